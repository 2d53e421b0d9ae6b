"""CDI specs as values: the version that they need, what is wrong with them, their names."""

import json

import pytest

from fairlead.inject import cdi
from fairlead.model.errors import InvalidName

NODE = cdi.Node("/dev/a")
NOTHING = cdi.ContainerEdits()


def spec(*devices, kind="example.com/widget", common=NOTHING, annotations=None):
    return cdi.Spec(kind=kind, devices=devices, container_edits=common, annotations=annotations or {})


def device(name="one", *nodes, annotations=None, **edits):
    held = cdi.ContainerEdits(device_nodes=nodes or (NODE,), **edits)
    return cdi.Device(name=name, container_edits=held, annotations=annotations or {})


@pytest.mark.parametrize(
    ("document", "version"),
    [
        (spec(device()), "0.3.0"),
        (spec(device(mounts=(cdi.Mount("/a", "/b", type="tmpfs"),))), "0.4.0"),
        (spec(device(), common=cdi.ContainerEdits(mounts=(cdi.Mount("/a", "/b", type="bind"),))), "0.4.0"),
        (spec(device("0")), "0.5.0"),
        (spec(device("one", cdi.Node("/dev/a", "/host/dev/a"))), "0.5.0"),
        (spec(device(), annotations={"a": "b"}), "0.6.0"),
        (spec(device("0", annotations={"a": "b"})), "0.6.0"),
        (spec(device(), kind="example.com/a.b"), "0.6.0"),
        (spec(device(additional_gids=(44,))), "0.7.0"),
        (spec(device(), common=cdi.ContainerEdits(additional_gids=(44,))), "0.7.0"),
    ],
)
def test_the_version_is_the_oldest_that_will_do(document, version):
    assert json.loads(cdi.encode(document))["cdiVersion"] == version


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (spec(), "no devices"),
        (spec(device("")), "device name ''"),
        (spec(device("a/b")), "device name 'a/b'"),
        (spec(device("a-")), "device name 'a-'"),
        (spec(device("a"), device("a")), "'a' is there twice"),
        (spec(cdi.Device(name="a", container_edits=NOTHING)), "changes nothing"),
        (spec(device(), kind="0.com/a"), "vendor '0.com'"),
        (spec(device(), kind="example.com"), "class ''"),
        (spec(device(), kind="example.com/a/b"), "class 'a/b'"),
        (spec(device(env=("=x",))), "'=x' is not NAME=value"),
        (spec(device("a", cdi.Node(""))), "has no path"),
        (spec(device("a", cdi.Node("/dev/a", type="x"))), "unknown type"),
        (spec(device("a", cdi.Node("/dev/a", permissions="rx"))), "permissions 'rx'"),
        (spec(device(hooks=(cdi.Hook("later", "/bin/x"),))), "unknown hook 'later'"),
        (spec(device(hooks=(cdi.Hook("poststop", ""),))), "no program"),
        (spec(device(mounts=(cdi.Mount("", "/a"),))), "lacks a path"),
    ],
)
def test_what_a_runtime_would_refuse_is_never_made(document, words):
    with pytest.raises(InvalidName, match="CDI spec") as caught:
        cdi.encode(document)
    assert words in str(caught.value)


def test_what_has_no_value_is_left_out():
    assert json.loads(cdi.encode(spec(device()))) == {
        "cdiVersion": "0.3.0",
        "kind": "example.com/widget",
        "devices": [{"name": "one", "containerEdits": {"deviceNodes": [{"path": "/dev/a"}]}}],
        "containerEdits": {},
    }


def test_joined_parts_hold_each_thing_once_in_an_order_that_can_be_mounted():
    deep, flat = cdi.Mount("/x", "/a/b/c"), cdi.Mount("/y", "/z")
    one = cdi.ContainerEdits(("A=1",), (cdi.Node("/dev/b/c"), NODE), (), (deep,), (7, 5))
    other = cdi.ContainerEdits(("B=1", "A=1"), (NODE,), (), (flat, deep), (5,))
    assert cdi.join([one, other]) == cdi.ContainerEdits(
        ("A=1", "B=1"), (NODE, cdi.Node("/dev/b/c")), (), (flat, deep), (5, 7)
    )


def test_a_file_tells_its_kind():
    assert cdi.read_kind(cdi.encode(spec(device(), device("two")))) == "example.com/widget"
    assert cdi.read_kind(b"{") == ""
    assert cdi.read_kind(b'{"kind": 7}') == ""
    assert cdi.read_kind(b'{"kind": "\xff"}') == ""
    assert cdi.file_name("example.com/widget") == "example.com-widget.json"
