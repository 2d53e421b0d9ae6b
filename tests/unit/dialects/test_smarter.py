"""The command line and the config file of smarter-device-manager."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.config.load import build
from fairlead.dialects.smarter.command import read_command_line, read_file
from fairlead.fronts.checkpoint import NAME
from fairlead.kit import documents
from fairlead.model.errors import FairleadError


def translate(*args: str) -> tuple[dict[str, Any], tuple[str, ...]]:
    made = read_command_line(args, {}).translate()
    build(dict(made.config), "test")
    return made.config, made.notes


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "conf.yaml"


def test_its_items_become_one_rule_that_names_a_resource_after_each_file(file: Path):
    file.write_text("- devicematch: ^video[0-9]*$\n  nummaxdevices: 10\n")
    config, notes = translate("--config", str(file), "-logtostderr=true", "-v=0")
    assert config["rules"] == [{"match": {"attributes": {"kind": "file"}}, "resource": "smarter-devices/{resource}"}]
    (entry,) = config["backends"][0]["devices"]
    assert entry["tree"] == {"matches": [{"match": "^video[0-9]*$", "count": 10}]}
    assert notes == ()


@pytest.mark.parametrize(("flags", "nodes"), [((), 0), (("--pass-device-specs",), 4)])
def test_the_word_for_jetson_gpus_is_no_expression(flags: tuple[str, ...], nodes: int, file: Path):
    file.write_text("- {devicematch: nvidia-gpu, nummaxdevices: 3}\n")
    config, _ = translate("--config", str(file), *flags)
    (entry,), (rule,) = config["backends"][0]["devices"], config["rules"]
    assert (rule["resource"], rule["env"]) == (
        "smarter-devices/nvidia-gpu{number}",
        {"NVIDIA_VISIBLE_DEVICES": "{indexes}"},
    )
    assert (entry["tree"]["directory"], len(entry["tree"]["nodes"])) == ("/sys/devices", nodes)


def test_without_a_file_the_devices_are_those_of_its_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    config, notes = translate()
    files, gpus = config["backends"][0]["devices"]
    assert {"match": "^snd$", "count": 20} in files["tree"]["matches"]
    assert len(files["tree"]["matches"]) == 13
    assert gpus["tree"]["matches"][0]["count"] == 10
    assert "there is no config file" in notes[0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("devicematch: x", "expected a list of devicematch and nummaxdevices"),
        ("- devicematch: (\n", "line 1, [0]: devicematch: '(' is no expression of Go: a '(' is not closed"),
        ("- devicematch: (?=x)y\n", "(?=x) is not known here"),
        ("- nummaxdevices: 2\n", "[0]: the key 'devicematch' is missing"),
        ("- devicematch: ''\n", "which would be every file of /dev"),
        ("- {devicematch: a, nummaxdevices: -1}\n", "nummaxdevices: -1 is not a number from 0"),
        ("- {devicematch: nvidia-gpu, nummaxdevices: -1}\n", "nummaxdevices: -1 is not a number from 0"),
        ("- {devicematch: a, nummaxdevices: many}\n", "[0].nummaxdevices: expected a whole number"),
        ("- 7\n", "[0]: expected a mapping"),
    ],
)
def test_what_does_not_fit_is_named_with_its_place(text: str, words: str, file: Path):
    file.write_text(text)
    with pytest.raises(FairleadError) as refusal:
        translate("--config", str(file))
    assert words in str(refusal.value)
    assert str(file) in str(refusal.value)


@pytest.mark.parametrize(
    ("item", "words"),
    [
        ("{devicematch: (, nummaxdevices: 1}", "devicematch: '(' is no expression of Go: a '(' is not closed"),
        ("{devicematch: '', nummaxdevices: 1}", "which would be every file of /dev"),
        ("{devicematch: ^a$, nummaxdevices: -1}", "nummaxdevices: -1 is not a number from 0 to 65536"),
        ("{devicematch: nvidia-gpu, nummaxdevices: -1}", "nummaxdevices: -1 is not a number from 0 to 65536"),
        ("{devicematch: ^a$, nummaxdevices: many}", "nummaxdevices: expected a whole number"),
        ("{nummaxdevices: 2}", "the key 'devicematch' is missing"),
        ("7", "expected a mapping"),
    ],
)
def test_an_item_with_a_mistake_is_left_out_with_a_note_and_the_others_are_served(item: str, words: str, file: Path):
    file.write_text(f"- {{devicematch: ^b$, nummaxdevices: 3}}\n- {item}\n- {{devicematch: ^c$, nummaxdevices: 1}}\n")
    config, (note,) = translate("--config", str(file))
    (entry,) = config["backends"][0]["devices"]
    assert entry["tree"]["matches"] == [{"match": "^b$", "count": 3}, {"match": "^c$", "count": 1}]
    assert note.startswith(f"{file}: line 2, [1]")
    assert words in note
    assert note.endswith(". The item is left out, and the others are served: correct it")


def test_a_file_of_mistakes_alone_is_refused_with_all_of_them(file: Path):
    file.write_text("- {devicematch: (, nummaxdevices: 1}\n- {devicematch: ^a$, nummaxdevices: -1}\n")
    with pytest.raises(FairleadError) as refusal:
        translate("--config", str(file))
    assert "line 1, [0]: devicematch: '('" in str(refusal.value)
    assert "line 2, [1]: nummaxdevices: -1 is not a number" in str(refusal.value)


def test_a_mistyped_key_is_named_and_the_rest_is_served(file: Path):
    file.write_text("- {devicematch: ^a$, numaxdevices: 2}\n- {devicematch: ^b$, nummaxdevices: 1}\n")
    config, notes = translate("--config", str(file))
    assert notes[0].endswith("did you mean 'nummaxdevices'? Known: devicematch, nummaxdevices")
    assert "no device of '^a$' is offered" in notes[1]
    assert len(config["backends"][0]["devices"][0]["tree"]["matches"]) == 2


@pytest.mark.parametrize(
    ("held", "flag", "characters"),
    [
        (["\x00"], "auto", True),
        (["0"], "auto", False),
        (None, "auto", False),
        (["\x00"], "numbers", False),
        (None, "characters", True),
    ],
)
def test_ids_are_those_that_pods_hold(
    held: list[str] | None, flag: str, characters: bool, kubelet_root: Path, file: Path
):
    file.write_text("- {devicematch: ^snd$, nummaxdevices: 2}\n")
    if held is not None:
        entries = [
            {"PodUID": "1", "ContainerName": "c", "ResourceName": "smarter-devices/snd", "DeviceIDs": {"-1": held}}
        ]
        data = {"PodDeviceEntries": entries, "RegisteredDevices": {}}
        (kubelet_root / NAME).write_text(json.dumps({"Data": data, "Checksum": 1}))
    config, _ = translate("--config", str(file), "--plugin-dir", str(kubelet_root), "--ids", flag)
    assert config["backends"][0]["devices"][0]["tree"].get("characters", False) is characters


ITEMS = st.lists(
    st.dictionaries(
        st.sampled_from(["devicematch", "nummaxdevices", "x"]),
        st.none() | st.integers() | st.text(alphabet="^$.*+?()[]{}|\\abc/0-9:", max_size=12),
        max_size=3,
    )
    | st.text(max_size=4),
    max_size=4,
)


@given(ITEMS)
def test_whatever_the_file_holds_it_is_read_or_refused_in_words(tmp_path_factory: pytest.TempPathFactory, items: Any):
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_text(documents.to_yaml(items))
    try:
        read_file(str(path), [])
    except FairleadError as error:
        assert str(error)


def test_a_key_that_is_unknown_is_named_beside_the_one_that_is_missing(tmp_path: Path):
    file = tmp_path / "conf.yaml"
    file.write_text("- devicematsh: ^tty\n")
    with pytest.raises(
        FairleadError, match=r"devicematsh: unknown key, which is ignored; did you mean 'devicematch'"
    ) as bad:
        read_file(str(file), [])
    assert "the key 'devicematch' is missing" in str(bad.value)
