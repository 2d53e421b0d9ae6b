"""The command line, the environment and the config file of squat's generic-device-plugin."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.cli import dialect
from fairlead.config.load import build
from fairlead.dialects.generic.command import GenericInvocation, read_command_line
from fairlead.dialects.invocation import Translation
from fairlead.kit import documents
from fairlead.model.errors import FairleadError

FUSE = {"name": "fuse", "groups": [{"count": 10, "paths": [{"path": "/dev/fuse"}]}]}


def read(*args: str, environ: dict[str, str] | None = None) -> GenericInvocation:
    return read_command_line(args, environ or {})


def translate(
    *devices: dict[str, Any], more: tuple[str, ...] = (), environ: dict[str, str] | None = None
) -> Translation:
    words = [word for device in devices for word in ("--device", json.dumps(device))]
    made = read(*words, *more, environ=environ).translate()
    build(dict(made.config), "test")
    return made


def bundle(device: dict[str, Any]) -> Any:
    return translate(device).config["backends"][0]["devices"][0]["bundle"]


def refusal(*args: str) -> str:
    with pytest.raises(FairleadError) as refused:
        read(*args).translate()
    return str(refused.value)


def test_a_device_becomes_a_rule_and_the_options_of_a_backend():
    config = translate(FUSE).config
    assert config["rules"] == [{"match": {"attributes": {"resource": "fuse"}}, "resource": "squat.ai/fuse"}]
    assert bundle(FUSE) == {"name": "fuse", "groups": [{"count": 10, "paths": [{"path": "/dev/fuse"}]}]}
    assert config["kubelet"]["directory"] == "/var/lib/kubelet/device-plugins"


def test_print_config_prints_a_configuration_that_means_the_same(capsys: pytest.CaptureFixture[str]):
    assert dialect.main("generic", ["--device", json.dumps(FUSE), "--domain", "example.org", "--print-config"]) == 0
    printed = documents.parse(capsys.readouterr().out, "printed")
    assert printed == translate(FUSE, more=("--domain=example.org",)).config


def test_flags_win_over_the_environment_and_that_over_the_file(tmp_path: Path):
    file = tmp_path / "config.yaml"
    file.write_text(documents.to_yaml({"domain": "file.org", "devices": [FUSE], "plugin-directory": "/from/file"}))

    def domain(*args: str, environ: dict[str, str] | None = None) -> str:
        config = read("--config", str(file), *args, environ=environ).translate().config
        assert config["kubelet"]["directory"] == "/from/file"
        return str(config["rules"][0]["resource"])

    assert domain() == "file.org/fuse"
    assert domain(environ={"DOMAIN": "env.org"}) == "env.org/fuse"
    assert domain(environ={"DOMAIN": ""}) == "file.org/fuse"  # an empty variable is not set
    assert domain("--domain", "flag.org", environ={"DOMAIN": "env.org"}) == "flag.org/fuse"


def test_without_a_flag_the_config_file_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "config.yaml").write_text(documents.to_yaml({"device": [FUSE]}))
    monkeypatch.chdir(tmp_path)
    made = read()
    assert made.source == "./config.yaml"
    assert made.translate().config["rules"][0]["resource"] == "squat.ai/fuse"


def test_keys_may_be_in_any_case_and_zero_is_the_default_as_in_go():
    group = {"COUNT": 0, "Paths": [{"PATH": " /dev/fuse ", "mountpath": "", "permissions": "", "limit": 0, "type": ""}]}
    assert bundle({"Name": " fuse ", "groups": [group]}) == {
        "name": "fuse",
        "groups": [{"paths": [{"path": "/dev/fuse"}]}],
    }


def test_an_unknown_key_is_named_with_a_guess_and_the_rest_is_served(tmp_path: Path):
    file = tmp_path / "config.yaml"
    device = {"name": "fuse", "groups": [{"paths": [{"path": "/dev/fuse", "permisions": "r"}]}]}
    file.write_text(documents.to_yaml({"devices": [device], "colour": 1}))
    made = read("--config", str(file)).translate()
    assert made.notes == (
        f"{file}: colour: unknown key, which is ignored",
        f"{file}: devices[0].groups[0].paths[0].permisions: unknown key, which is ignored; did you mean 'permissions'?",
    )
    assert len(made.config["rules"]) == 1


def test_a_device_that_theirs_would_serve_without_sense_is_left_out_and_the_others_are_served():
    odd = {"name": "odd", "groups": [{"paths": [{"path": "/dev/odd", "type": "mount"}]}]}
    made = translate(FUSE, odd)
    assert [rule["resource"] for rule in made.config["rules"]] == ["squat.ai/fuse"]
    (note,) = made.notes
    assert "groups[0].paths[0].type: unknown value 'mount'; did you mean 'Mount'?" in note
    assert note.endswith("odd is left out")


@pytest.mark.parametrize(
    ("device", "words"),
    [
        ("{name: F}", "name: 'F' does not match [a-z0-9][-a-z0-9]*[a-z0-9]"),
        ("{groups: []}", "name: '' does not match"),
        ("{name: fuse, groups: {}}", "groups: expected a list"),
        ("{name: fuse, groups: [{count: -1}]}", "count: -1 is not a number from 1"),
        ("{name: fuse, groups: [{count: many}]}", "count: expected a whole number"),
        ("{name: fuse, groups: [{usb: [{vendor: zz}]}]}", "usb[0].vendor: 'zz' is not one to four hexadecimal digits"),
        ("{name: fuse, groups: [{usb: [{}], paths: [{path: /x}]}]}", "usb: beside paths"),
        ("[1]", "expected a mapping with name and groups"),
        ("{", "--device"),
    ],
)
def test_what_theirs_refuses_is_refused_with_the_key(device: str, words: str):
    assert words in refusal("--device", device)


def test_a_fault_of_the_file_is_named_with_its_line(tmp_path: Path):
    file = tmp_path / "config.yaml"
    file.write_text("devices:\n- name: fuse\n- name: Serial\n")
    assert f"{file}: line 3, devices[1].name: 'Serial' does not match" in refusal("--config", str(file))


def test_usb_ids_that_yaml_takes_for_numbers_are_read_in_hexadecimal(tmp_path: Path):
    file = tmp_path / "config.yaml"
    file.write_text("devices: [{name: key, groups: [{usb: [{vendor: 1050, product: '0407'}]}]}]")
    made = read("--config", str(file)).translate()
    found = made.config["backends"][0]["devices"][0]["bundle"]["groups"][0]["usb"]
    assert found == [{"vendor": "1050", "product": "0407"}]
    assert made.notes == (
        f"{file}: devices[0].groups[0].usb[0].vendor: 1050 is a number to YAML, and is read as 1050. Put it in quotes",
    )


def test_variables_that_break_theirs_are_not_read():
    assert translate(FUSE, environ={"VERSION": "1", "DEVICE": "x"}).config == translate(FUSE).config


def test_health_and_metrics_are_served_where_theirs_serves_them():
    assert translate(FUSE).config["http"] == {"listen": ":8080", "names": ["generic"]}
    assert translate(FUSE, more=("--listen", "127.0.0.1:9")).config["http"]["listen"] == "127.0.0.1:9"


def test_names_and_domains_that_the_kubelet_refuses_are_refused(capsys: pytest.CaptureFixture[str]):
    assert dialect.main("generic", ["--device", json.dumps(FUSE), "--domain", "Not_A.Domain"]) == 1
    assert "Not_A.Domain" in capsys.readouterr().err


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["name", "groups", "count", "paths", "usb", "path", "vendor", "product", "type", "limit", "x"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(st.lists(JSON, max_size=3))
def test_whatever_a_device_holds_it_is_served_or_refused_in_words(devices: list[Any]):
    try:
        made = read(*(word for one in devices for word in ("--device", json.dumps(one)))).translate()
        build(dict(made.config), "test")
    except FairleadError as error:
        assert str(error)
