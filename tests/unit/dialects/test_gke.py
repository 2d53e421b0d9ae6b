"""What the settings of Google's plugin mean in a configuration of ours."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.config.load import build
from fairlead.dialects.configfile import BadFile
from fairlead.dialects.gke.command import PROGRAM, read_command_line
from fairlead.dialects.gke.gpuconfig import SIZES, GpuConfig, Sharing, parse_config, parse_xids, read_divisor
from fairlead.dialects.goflags import BadFlag
from fairlead.dialects.invocation import Translation
from fairlead.model.errors import UsageError

Order = Callable[..., Translation]
OFF = {"health": {"ignoredXids": "all"}}


@pytest.fixture
def order(tmp_path: Path) -> Order:
    def make(*args: str, file: object = None, divisor: str | None = None, **environ: str) -> Translation:
        config, fraction = tmp_path / "gpu.json", tmp_path / "divisor"
        if file is not None:
            config.write_text(file if isinstance(file, str) else json.dumps(file))
        if divisor is not None:
            fraction.write_text(divisor)
        places = [f"-gpu-config={config}", f"-gpu-fraction-divisor-file={fraction}"]
        found = read_command_line([*places, *args], environ).translate()
        build(dict(found.config), "test")  # it is a configuration
        return found

    return make


def backend(found: Translation) -> dict[str, Any]:
    (one,) = found.config["backends"]
    return dict(one)


def rule(found: Translation) -> dict[str, Any]:
    (one,) = found.config["rules"]
    return dict(one)


def test_without_flags_gpus_are_whole_and_have_their_nodes_and_mounts(order: Order) -> None:
    found = order()
    assert backend(found) == {
        "kind": "nvidia",
        "discovery": "any",
        "driverRootMount": "/usr/local/nvidia",
        "naming": "minor",
        "ways": [],
        "nodes": True,
        "permissions": "mrw",
        **OFF,
    }
    assert rule(found) == {
        "resource": "nvidia.com/gpu",
        "mounts": [
            {"host": "/home/kubernetes/bin/nvidia", "container": "/usr/local/nvidia"},
            {"host": "/home/kubernetes/bin/nvidia/vulkan/icd.d", "container": "/etc/vulkan/icd.d"},
        ],
    }
    assert found.config["kubelet"]["directory"] == "/device-plugin"
    assert found.config["kubelet"]["socketName"] == "nvidiaGPU-{started}.sock"
    assert found.config["scan"] == {"interval": "10s"}
    assert "cluster" not in found.config
    assert found.notes == ()


def test_go_and_glog_flags_are_read_with_one_dash_or_two(order: Order) -> None:
    order("-logtostderr", "-v=3", "--alsologtostderr=false", "-vmodule=a=1", "-stderrthreshold=INFO", "-log_dir=/tmp")
    found = order("-host-path=/opt/nv", "--container-vulkan-icd-path", "/vk", "-plugin-directory=/dp")
    driver, vulkan = rule(found)["mounts"]
    assert (driver["host"], vulkan["container"]) == ("/opt/nv", "/vk")
    assert found.config["kubelet"]["directory"] == "/dp"


@pytest.mark.parametrize("word", ["-plugin-directori=/x", "-host-path=opt", "-gpu-metrics-port=http", "-discovery=pci"])
def test_flags_that_make_no_sense_are_refused(order: Order, word: str) -> None:
    with pytest.raises(BadFlag):
        order(word)
    assert PROGRAM.bad_flag == 2


def test_metrics_are_served_where_theirs_serves_them(order: Order) -> None:
    assert "http" not in order().config
    served = order("-enable-container-gpu-metrics", "-gpu-metrics-port=9000").config["http"]
    assert served == {"listen": ":9000", "page": False, "usage": True, "names": ["gke"]}
    served = order("-enable-container-gpu-metrics", "-http=127.0.0.1:9402", "-metric-names=hami").config["http"]
    assert (served["listen"], served["names"]) == ("127.0.0.1:9402", ["gke", "hami"])
    assert order("-http=:9402").config["http"] == {"listen": ":9402"}


def test_time_sharing_and_mps_make_shares(order: Order) -> None:
    shared = {"GPUSharingConfig": {"GPUSharingStrategy": "time-sharing", "MaxSharedClientsPerGPU": 3}}
    found = rule(order(file=shared))
    assert (found["replicas"], found["ids"], found["perContainer"]) == (3, "{id}/vgpu{n}", 1)
    shared["GPUSharingConfig"]["GPUSharingStrategy"] = "mps"
    made = order(file=shared)
    assert "perContainer" not in rule(made)
    assert rule(made)["mounts"][-1] == {"host": "/tmp/nvidia-mps", "readOnly": False}
    assert backend(made)["mps"]["clients"] == 3


def test_sizes_that_the_partition_tool_makes_are_sizes(order: Order) -> None:
    for size in ("4g.20gb", "4g.40gb"):
        assert backend(order(file={"GPUPartitionSize": size}))["partition"] == {"profile": size, "count": 1}


@pytest.mark.parametrize(
    ("size", "count"), [("1g.5gb", 7), ("1g.24gb+gfx", 4), ("2g.10gb", 3), ("3g.20gb", 2), ("7g.40gb", 1)]
)
def test_each_size_has_the_number_that_fills_a_gpu(order: Order, size: str, count: int) -> None:
    found = backend(order(file={"GPUPartitionSize": size}))
    assert (found["mig"], found["partition"]) == ("mixed", {"profile": size, "count": count})


def test_a_size_that_does_not_exist_is_refused_with_the_nearest_one(order: Order) -> None:
    with pytest.raises(UsageError, match=r"'3g\.20g' is not a valid GPU partition size; did you mean '3g\.20gb'"):
        order(file={"GPUPartitionSize": "3g.20g"})


@pytest.mark.parametrize(
    ("text", "divisor", "note"), [("2\n", 2, ""), ("1", 1, ""), ("0", 1, "no number"), ("half", 1, "half")]
)
def test_the_fraction_divisor_is_a_number_or_1(tmp_path: Path, text: str, divisor: int, note: str) -> None:
    (tmp_path / "d").write_text(text)
    found, said = read_divisor(str(tmp_path / "d"))
    assert found == divisor
    assert note in said
    assert bool(said) == bool(note)


def test_a_share_of_a_gpu_in_a_vm_brings_the_nodes_of_its_instance(order: Order) -> None:
    assert backend(order(divisor="2"))["instanceNodes"] is True
    assert "instanceNodes" not in backend(order(divisor="1"))


def test_health_monitoring_watches_48_and_what_is_configured(order: Order) -> None:
    found = order("-enable-health-monitoring", file={"HealthCriticalXid": [72]}, XID_CONFIG="61, 31", NODE_NAME="n1")
    assert backend(found)["health"] == {"onlyXids": [31, 48, 61, 72]}
    cluster = found.config["cluster"]
    assert cluster["condition"]["codes"] == [f"xid-{xid}" for xid in (48, 63, 64, 79, 119, 120, 123, 140)]
    assert (cluster["events"]["reason"], cluster["node"]) == ("XIDError", "n1")
    assert "nodeMetadata" not in cluster


def test_without_a_name_of_the_node_the_metadata_server_is_asked(order: Order) -> None:
    assert order("-enable-health-monitoring").config["cluster"]["nodeMetadata"] == "metadata.google.internal"
    found = order("-enable-health-monitoring", "-metadata-server=10.0.0.1:80", "-node-name=n2").config["cluster"]
    assert found["node"] == "n2"


def test_the_driver_version_is_published_where_the_node_is_known(order: Order) -> None:
    cluster = order("-publish-driver-version", NODE_NAME="n1").config["cluster"]
    assert (cluster["fieldManager"], len(cluster["annotate"]), cluster["node"]) == ("gpu-device-plugin", 4, "n1")
    found = order("-publish-driver-version")
    assert "cluster" not in found.config
    assert "NODE_NAME is not set" in found.notes[0]


def test_at_a_reload_what_is_wrong_is_refused_and_the_start_takes_the_rest(tmp_path: Path) -> None:
    file = tmp_path / "gpu.json"
    file.write_text('{"GPUSharingConfig": {"GPUSharingStrategy": "x"}}')
    order = read_command_line([f"-gpu-config={file}"], {})
    assert "replicas" not in order.translate().config["rules"][0]
    file.write_text('{"MaxTimeSharedClientsPerGPU": 2, "Note": 1}')
    assert order.translate().config["rules"][0]["replicas"] == 2
    for text in ("{", '{"GPUSharingConfig": {"MaxSharedClientsPerGPU": 2}}'):
        file.write_text(text)
        with pytest.raises(BadFile, match=r"gpu\.json"):
            order.translate()
    file.unlink()
    with pytest.raises(BadFile, match="no such file any more"):
        order.translate()
    file.write_text("{}")
    assert "replicas" not in order.translate().config["rules"][0]


# --- The config file and XID_CONFIG -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"GPUSharingConfig": {"GPUSharingStrategy": "mps"}}', "MaxSharedClientsPerGPU: it must be over 0"),
        ('{"GPUSharingConfig": {"MaxSharedClientsPerGPU": 3}}', "GPUSharingStrategy: it is missing"),
        ('{"GPUSharingConfig": {"GPUSharingStrategy": "mig"}}', "GPUSharingStrategy: 'mig' is neither"),
        ('{"GPUPartitionSize": ', "it is no JSON"),
        ("[]", "expected an object"),
        ('{"GPUSharingConfig": 3}', "GPUSharingConfig: expected an object, got 3"),
        ('{"GPUPartitonSize": "1g.5gb"}', "GPUPartitonSize: unknown key, which is left out; did you mean"),
        ('{"GPUPartitionSize": 3}', "GPUPartitionSize: expected a text"),
        ('{"MaxTimeSharedClientsPerGPU": true}', "MaxTimeSharedClientsPerGPU: expected a whole number, got True"),
        ('{"HealthCriticalXid": [1, "x"]}', "HealthCriticalXid: expected up to 1000 numbers"),
        ('{"HealthCriticalXid": "48"}', "HealthCriticalXid: expected a list of numbers"),
    ],
)
def test_what_is_wrong_is_named_and_left_out(text: str, words: str) -> None:
    config, notes = parse_config(text)
    assert config == GpuConfig()
    assert words in notes[0]


def test_a_part_that_is_wrong_leaves_the_others() -> None:
    config, notes = parse_config('{"GPUPartitionSize": "3g.40gb", "GPUSharingConfig": {"GPUSharingStrategy": "x"}}')
    assert (config, len(notes)) == (GpuConfig("3g.40gb"), 1)


def test_keys_are_found_in_any_case_and_null_is_nothing() -> None:
    text = '{"gpusharingconfig": {"GPUSHARINGSTRATEGY": "mps", "maxSharedClientsPerGPU": 2}, "GPUPartitionSize": null}'
    assert parse_config(text) == (GpuConfig(sharing=Sharing("mps", 2)), [])


def test_the_deprecated_key_goes_before_the_new_one() -> None:
    both = {
        "MaxTimeSharedClientsPerGPU": 2,
        "GPUSharingConfig": {"GPUSharingStrategy": "mps", "MaxSharedClientsPerGPU": 5},
    }
    config, notes = parse_config(json.dumps(both))
    assert (config.sharing, len(notes)) == (Sharing("time-sharing", 2), 1)


@pytest.mark.parametrize(
    ("text", "xids"), [("61, 31", (61, 31)), ("", ()), ("31,32,x", ()), ("-1", ()), (",", ()), ("9" * 30, ())]
)
def test_xids_are_numbers_or_none_of_them_counts(text: str, xids: tuple[int, ...]) -> None:
    found, note = parse_xids(text)
    assert found == xids
    assert bool(note) == (text not in {"61, 31", ""})


@given(st.lists(st.integers(0, 2**62), min_size=1, max_size=20))
def test_xids_that_were_written_are_read(xids: list[int]) -> None:
    assert parse_xids(" , ".join(map(str, xids))) == (tuple(xids), "")


@given(st.text())
def test_any_text_may_be_given_as_xids(text: str) -> None:
    xids, note = parse_xids(text)
    assert not (xids and note)
    assert all(xid >= 0 for xid in xids)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)
_KEYS = st.sampled_from(
    ["GPUPartitionSize", "MaxTimeSharedClientsPerGPU", "gpuSharingConfig", "HealthCriticalXid", "GPUSharingStrategy"]
)


@given(st.dictionaries(_KEYS | st.text(), _JSON | st.dictionaries(_KEYS, _JSON), max_size=6))
def test_any_file_gives_a_config_and_what_is_left_out_is_named(raw: dict[str, Any]) -> None:
    config, notes = parse_config(json.dumps(raw))
    assert isinstance(config.partition_size, str)
    assert config.sharing is None or config.sharing.clients > 0
    known = {"gpupartitionsize", "maxtimesharedclientspergpu", "gpusharingconfig", "healthcriticalxid"}
    unknown = [key for key in raw if key.lower() not in known]
    assert sum("unknown key" in note and not note.startswith("GPUSharingConfig.") for note in notes) == len(unknown)


@given(st.text())
def test_any_text_may_be_a_config_file(text: str) -> None:
    parse_config(text)


def test_there_is_no_size_with_more_instances_than_a_gpu_has() -> None:
    assert set(SIZES.values()) == {1, 2, 3, 4, 7}
