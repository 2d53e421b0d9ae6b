"""The configuration: strict, with every fault named at once, its line, the bad value and a way out."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fairlead.config.load import build, load, parse, schema
from fairlead.config.reference import EXAMPLE, effective, explain_key, keys
from fairlead.config.settings import DEFAULT_CONFIG, SETTINGS, config_path, overrides
from fairlead.config.spec import Config
from fairlead.model.device import DeviceNode
from fairlead.model.edits import Mount
from fairlead.model.errors import ConfigError, UsageError
from fairlead.model.resource import Strategy

GOOD = """
backends:
  - kind: sim
    fleet: h100x8
rules:
  - match: {vendor: nvidia, memory: ">=40GiB", index: [0, 1], numa: 0}
    resource: nvidia.com/gpu
    replicas: 4
    placement: pack
    env: {GPUS: "{ids}"}
    mounts: [{host: /usr/lib/x}, {host: /a, container: /b, readOnly: false}]
    devices: [{host: /dev/ctl}, {host: /dev/x, container: /dev/y, permissions: r}]
  - exclude: true
"""


def faults(text: str, **flags: str) -> str:
    given = overrides({"--" + name.replace("_", "-"): value for name, value in flags.items()}, {})
    with pytest.raises(ConfigError) as caught:
        parse(text, "f.yaml", given)
    return str(caught.value)


def test_a_good_file_becomes_rules():
    first, second = parse(GOOD, "f.yaml").rules
    assert first.selector.vendors == ("nvidia",)
    assert first.selector.indexes == ("0", "1")
    assert first.selector.numa == (0,)
    assert first.selector.memory_min_bytes == 40 * 2**30
    assert (first.replicas, first.terms.strategy, first.label) == (4, Strategy.PACK, "rules[0]")
    assert first.terms.extra.mounts == (Mount("/usr/lib/x", "/usr/lib/x"), Mount("/a", "/b", read_only=False))
    assert first.terms.extra.nodes == (DeviceNode("/dev/ctl"), DeviceNode("/dev/x", "/dev/y", "r"))
    assert second.resource is None


def test_a_single_resource_may_have_a_socket_of_a_fixed_name():
    fixed = "kubelet: {socketName: mine.sock}\n"
    assert parse(GOOD + fixed, "f").config.kubelet.socket_name == "mine.sock"
    second = GOOD.replace("  - exclude: true\n", "  - resource: nvidia.com/other\n")
    assert "kubelet.socketName: 'mine.sock' must be a plain file name that holds {name}" in faults(second + fixed)
    pattern = GOOD.replace("nvidia.com/gpu", "nvidia.com/{model}")
    assert "A name without it is for a single resource" in faults(pattern + fixed)
    form = GOOD.replace("    replicas: 4\n", "    replicas: 4\n    also: [{resource: nvidia.com/whole}]\n")
    assert "socketName" in faults(form + fixed)
    assert "socketName" in faults(GOOD + "kubelet: {socketName: kubelet.sock}\n")


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        (">=40GiB", 40 * 2**30, None),
        (">1KiB", 1025, None),
        ("<=2MiB", None, 2 * 2**20),
        ("< 100B", None, 99),
        ("16GiB..24GiB", 16 * 2**30, 24 * 2**30),
        ("80GiB", 80 * 2**30, 80 * 2**30),
    ],
)
def test_memory_ranges(text, low, high):
    match = parse(GOOD.replace(">=40GiB", text), "f").rules[0].selector
    assert (match.memory_min_bytes, match.memory_max_bytes) == (low, high)


@pytest.mark.parametrize(
    ("change", "to", "words"),
    [
        ("vendor:", "vendr:", "line 6, rules[0].match.vendr: unknown key 'vendr'; did you mean 'vendor'?"),
        (">=40GiB", "lots", "rules[0].match.memory: 'lots' is not a memory range"),
        (">=40GiB", "4GiB..2GiB", "is empty"),
        ("nvidia.com/gpu", "gpu", "line 7, rules[0].resource: resource name 'gpu': it needs a vendor domain"),
        ("resource: nvidia.com/gpu", "resource: kubernetes.io/gpu", "reserved"),
        ("replicas: 4", "replicas: 0", "line 8, rules[0].replicas: expected a whole number >= 1, got 0"),
        ("replicas: 4", "replicas: many", "line 8, rules[0].replicas: expected a whole number, got 'many'"),
        ("placement: pack", "placement: packed", "did you mean 'pack'?"),
        ('GPUS: "{ids}"', "1X: a", "not a name for an environment variable"),
        ('GPUS: "{ids}"', "GPUS: 1", "rules[0].env: expected text, got 1"),
        ("host: /usr/lib/x", "host: lib/x", "rules[0].mounts[0].host: 'lib/x' must be an absolute path"),
        ("container: /b", "container: /b/../c", "must not contain '..'"),
        ("permissions: r", "permissions: rx", "'rx' must be some of r, w and m"),
        ("permissions: r", "permissions: rr", "each once"),
        ("- exclude: true", "- {exclude: true, resource: a.b/c}", "both resource and exclude"),
        ("- exclude: true", "- {}", "the key 'resource' is missing"),
        ("- kind: sim\n    fleet", "- fleet", "backends[0]: the key 'kind' is missing"),
        ("backends:", "instance: Nope\nbackends:", "line 2, instance: 'Nope' must be 1 to 32"),
        ("backends:", "status: {socket: x.sock}\nbackends:", "status.socket: 'x.sock' must be an absolute path"),
        ("backends:", "scan: {interval: soon}\nbackends:", "scan.interval: expected a duration"),
        ("backends:", "scan: {interval: 0s}\nbackends:", "scan.interval: 0 s is too short"),
        ("backends:", "health: {probeDeadline: 0}\nbackends:", "health.probeDeadline: 0 s is too short"),
        ("backends:", "kubelet: {directory: ''}\nbackends:", "kubelet.directory: it is empty"),
        ("- kind: sim", "- {kind: sim, name: a}\n  - {kind: sim, name: a}\n  - kind: sim", "is the name of another"),
        ("backends:", "kubelet: {directory: /" + "d" * 90 + "}\nbackends:", "107 is the limit"),
        ("backends:", "log: {format: xml}\nbackends:", "unknown value 'xml'"),
        ("  - exclude: true", "  - {resource: nvidia.com/gpu, placement: spread}", "nvidia.com/gpu"),
        ("rules:", "rules: [", "line "),
        ("rules:", "backends: []\nrules:", "given twice"),
    ],
)  # fmt: skip
def test_each_fault_is_named_with_its_place(change, to, words):
    assert change in GOOD
    assert words in faults(GOOD.replace(change, to, 1))


def test_a_file_in_json_is_read_the_same_way(monkeypatch: pytest.MonkeyPatch):
    config = parse(GOOD, "f").config
    text = msgspec.json.encode(effective(config)).decode()
    monkeypatch.setitem(sys.modules, "yaml", None)  # and without YAML
    assert parse(text, "g").config == config


def test_json_with_faults_is_told_with_lines_as_yaml_is():
    assert "line 1" in faults('{"rules": [{"resource": "gpu"}], "backends": [{"kind": "sim"}]}')
    assert "given twice" in faults('{"rules": [], "rules": []}')
    assert "line 2" in faults('{"rules": ')


@pytest.mark.parametrize("text", ["[" * 5000, '{"a":' * 5000, "- " * 5000])
def test_a_file_nested_without_end_is_a_fault_of_the_file(text):
    assert "f.yaml: " in faults(text)


def test_all_faults_are_told_at_once_in_the_order_of_the_file():
    text = GOOD.replace("vendor:", "vendr:").replace("replicas: 4", "replicas: -1").replace("pack", "tight")
    text += "kubelet: {directry: /x}\n"
    lines = faults(text).splitlines()
    assert [line.split(":")[1].strip().split(",")[0] for line in lines] == ["line 6", "line 8", "line 9", "line 14"]


@pytest.mark.parametrize("listen", ["nonsense", "127.0.0.1", "127.0.0.1:x", "localhost:99999", "9402:"])
def test_an_address_that_cannot_be_is_named_before_the_daemon_starts(listen):
    assert f"http.listen: {listen!r} is not an address and a port" in faults(GOOD + f"http: {{listen: '{listen}'}}\n")


@pytest.mark.parametrize("text", ["", "[]", "just words", "backends: []", "rules: []"])
def test_an_empty_or_odd_file_says_what_is_missing(text):
    assert "backend" in faults(text)


def test_a_fault_in_a_flag_names_the_flag():
    assert "--registration: unknown value 'x'" in faults(GOOD, registration="x")


def test_flags_win_over_environment_and_both_over_the_file():
    text = GOOD + "kubelet: {directory: /file}\nscan: {interval: 7s}\n"
    environ = {"FAIRLEAD_PLUGIN_DIR": "/env", "FAIRLEAD_SCAN_INTERVAL": "9s", "FAIRLEAD_LOG_FORMAT": ""}
    config = parse(text, "f", overrides({"--plugin-dir": "/flag"}, environ)).config
    assert config.kubelet.directory == "/flag"
    assert float(config.scan.interval) == 9
    assert config.log.format == "text"


def test_a_section_of_the_wrong_type_is_the_files_fault_not_the_flags():
    assert "kubelet: expected a mapping" in faults(GOOD + "kubelet: 3\n", plugin_dir="/x")


def test_the_path_of_the_file_comes_from_flag_environment_or_habit():
    assert config_path("a", {"FAIRLEAD_CONFIG": "b"}) == "a"
    assert config_path(None, {"FAIRLEAD_CONFIG": "b"}) == "b"
    assert config_path(None, {}) == DEFAULT_CONFIG


def test_a_missing_or_unreadable_file_is_named(tmp_path: Path):
    with pytest.raises(ConfigError, match="no such file"):
        load(str(tmp_path / "none.yaml"))
    with pytest.raises(ConfigError, match="is a directory"):
        load(str(tmp_path))
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load(str(tmp_path / "binary"))


def test_a_configuration_made_by_code_is_checked_the_same_way():
    with pytest.raises(ConfigError, match="vendor domain"):
        build({"backends": [{"kind": "x"}], "rules": [{"resource": "gpu"}]}, "the program")


WORDS = st.sampled_from(["backends", "rules", "kubelet", "match", "resource", "kind", "env", "mounts", "x"])
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=12,
)


@given(ANYTHING)
def test_no_file_makes_it_stumble(data):
    """Whatever is in the file: a configuration, or a ConfigError."""
    try:
        parse(yaml.safe_dump(data), "f.yaml")
    except ConfigError as error:
        assert error.problems


@given(st.text(max_size=200))
def test_no_text_makes_it_stumble(text):
    try:
        parse(text, "f.yaml")
    except ConfigError as error:
        assert error.problems


def test_the_schema_accepts_the_example_and_names_every_section():
    made = schema()
    config = made["$defs"]["Config"] if "$defs" in made else made
    assert set(config["properties"]) == {field.encode_name for field in msgspec.structs.fields(Config)}
    assert parse(EXAMPLE, "example").rules


def test_every_key_is_described():
    assert [key.path for key in keys() if not key.text] == []


def test_the_effective_configuration_loads_again_to_the_same():
    config = parse(GOOD, "f").config
    assert parse(yaml.safe_dump(effective(config)), "g").config == config


def test_a_key_can_be_explained_and_a_wrong_one_is_guessed():
    text = explain_key("rules.match.memory")
    assert "16GiB..24GiB" in text
    assert "rules[].match.memory" in explain_key("rules[].match")
    assert "aligned | pack | spread | closest, default aligned" in explain_key("rules.placement")
    assert "duration, default 60s" in explain_key("scan.interval")
    with pytest.raises(UsageError, match=r"did you mean 'rules\.match\.memory'"):
        explain_key("rules.match.memry")


def test_settings_reach_real_keys():
    known = {key.path for key in keys()}
    for setting in SETTINGS:
        assert ".".join(setting.path) in known


@pytest.mark.parametrize("key", ["`atch", "a`b", "``", "'", ""])
def test_a_key_of_odd_characters_is_named_and_does_not_hang(key: str):
    raw = {"backends": [{"kind": "sim"}], "rules": [{key: {}, "resource": "example.com/gpu"}]}
    with pytest.raises(ConfigError) as caught:
        build(raw, "f.yaml")
    assert repr(key) in str(caught.value)


@pytest.mark.parametrize("name", [{}, [], 7, True])
def test_a_backend_is_named_by_text(name: object):
    with pytest.raises(ConfigError, match=r"backends\[0\]\.name: expected text"):
        build({"backends": [{"kind": "sim", "name": name}], "rules": [{"resource": "example.com/gpu"}]}, "f.yaml")


def test_a_fault_in_json_that_is_no_yaml_is_told_without_its_line():
    with pytest.raises(ConfigError, match=r"(?m)^f\.json: rulez: unknown key 'rulez'"):
        parse('{"rulez": "\\ud83d\\ude00"}', "f.json")  # a pair of escapes, which YAML does not know


@pytest.mark.parametrize(
    ("key", "one", "most"), [("backends", {"kind": "sim"}, 64), ("rules", {"exclude": True}, 1000), ("rules", {}, 1000)]
)
def test_a_file_that_asks_for_too_much_is_refused_at_once(key: str, one: dict[str, object], most: int):
    raw = {"backends": [{"kind": "sim"}], "rules": [{"resource": "example.com/gpu"}], key: [one] * (most + 1)}
    with pytest.raises(ConfigError, match=rf"{key}: {most + 1:,} of them; {most:,} is the limit") as caught:
        build(raw, "f.yaml")
    assert len(caught.value.problems) == 1


def test_an_error_names_a_hundred_faults_and_counts_the_rest():
    error = ConfigError("f.yaml", ["x" * 5000] * 250)
    assert len(error.problems) == 101
    assert str(error).endswith("f.yaml: and 150 faults more")
    assert len(str(error)) < 250_000


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        ("{id}-{n}", "must be {id}, a slash"),
        ("vgpu{n}", "must be {id}, a slash"),
        ("{id}/vgpu", "must be {id}, a slash"),
        ("{id}/gpu7{n}", "must be {id}, a slash"),
    ],
)
def test_a_form_of_ids_that_would_not_lead_back_is_refused(ids: str, words: str) -> None:
    raw = {"backends": [{"kind": "sim"}], "rules": [{"resource": "a.com/b", "replicas": 2, "ids": ids}]}
    with pytest.raises(ConfigError, match=re.escape(words)):
        build(raw, "test")


def test_units_of_memory_have_ids_of_their_own() -> None:
    rule = {"resource": "a.com/b", "ids": "{id}/vgpu{n}", "memory": {"unit": "1GiB"}}
    with pytest.raises(ConfigError, match=r"memory\.ids"):
        build({"backends": [{"kind": "sim"}], "rules": [rule]}, "test")


def test_who_must_know_the_node_at_the_start_cannot_ask_a_metadata_server() -> None:
    raw = {
        "backends": [{"kind": "sim"}],
        "amounts": [{"resource": "a.com/b", "total": 1}],
        "cluster": {"nodeMetadata": "metadata.google.internal"},
    }
    with pytest.raises(ConfigError, match=r"Set cluster\.node"):
        build(raw, "test")
