"""Names that travel are accepted or refused as the kubelet would."""

import pytest

from fairlead.model.errors import InvalidName
from fairlead.model.names import DOMAIN_MAX, SLOT_ID_MAX, parse_resource_name, parse_slot_id, socket_name


@pytest.mark.parametrize(
    "text",
    [
        "nvidia.com/gpu",
        "amd.com/gpu",
        "a/b",
        "example.com/A_b.c-9",
        "foo.kubernetes.io.example/x",
        "x" * DOMAIN_MAX + "/gpu",
        "example.com/" + "n" * 63,
    ],
)
def test_a_name_that_the_kubelet_takes(text: str) -> None:
    assert parse_resource_name(text) == text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "it needs a vendor domain"),
        ("gpu", "it needs a vendor domain"),
        ("x.com/gpu/y", "one '/' only"),
        ("kubernetes.io/gpu", "kubernetes.io is reserved"),
        ("node.kubernetes.io/gpu", "kubernetes.io is reserved"),
        ("requests.example.com/gpu", "may not start with 'requests.'"),
        ("X.com/gpu", "'X.com' is not a lower-case DNS domain"),
        ("/gpu", "'' is not a lower-case DNS domain"),
        ("-a.com/gpu", "is not a lower-case DNS domain"),
        ("x" * (DOMAIN_MAX + 1) + "/gpu", f"{DOMAIN_MAX} is the limit"),
        ("example.com/", "must be 1 to 63"),
        ("example.com/-gpu", "must be 1 to 63"),
        ("example.com/gpu-", "must be 1 to 63"),
        ("example.com/g pu", "must be 1 to 63"),
        ("example.com/gpu\n", "must be 1 to 63"),
        ("example.com/" + "n" * 64, "must be 1 to 63"),
    ],
)
def test_a_name_that_the_kubelet_refuses_says_which_rule_it_breaks(text: str, words: str) -> None:
    with pytest.raises(InvalidName) as caught:
        parse_resource_name(text)
    assert words in caught.value.reason
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize("text", ["GPU-0", "MIG-GPU-1/3/0", "a::1", "x" * SLOT_ID_MAX])
def test_a_slot_id_that_travels(text: str) -> None:
    assert parse_slot_id(text) == text


@pytest.mark.parametrize(
    ("text", "words"),
    [("", "empty"), ("x" * 64, "it has 64 characters; 63 is the limit"), ("a b", "a space"), ("a\nb", "printed")],
)
def test_a_slot_id_that_does_not(text: str, words: str) -> None:
    with pytest.raises(InvalidName, match=words):
        parse_slot_id(text)


def test_two_vendors_gpus_have_two_sockets() -> None:
    names = [parse_resource_name(text) for text in ("nvidia.com/gpu", "amd.com/gpu")]
    assert [socket_name(name) for name in names] == ["fairlead-nvidia.com_gpu.sock", "fairlead-amd.com_gpu.sock"]
    assert socket_name(names[0], "x-{name}.sock") == "x-gpu.sock"
