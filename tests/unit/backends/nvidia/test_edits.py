"""What a container gets, compared with the answers that NVIDIA's plugin gave."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from fairlead.backends.nvidia.edits import EditsBuilder
from fairlead.backends.nvidia.hostnodes import CONTROL_NODES, FEATURE_NODES, IMEX_NODE, HostNodes, enabled_features
from fairlead.backends.nvidia.snapshot import Platform
from fairlead.backends.nvidia.spec import DeviceListStrategy, Ids, Imex, Options
from fairlead.inject import cdi
from fairlead.kit.decoding import convert
from fairlead.model.device import Device, DeviceNode
from fairlead.model.edits import Edits, Grant
from fairlead.model.names import DeviceId, ResourceName, SlotId

VECTORS = json.loads((Path(__file__).parents[3] / "vectors/nvidia_injection/edits.json").read_text())
GPU = ResourceName("nvidia.com/gpu")


def grant(*devices: tuple[str, str, list[str]], resource: str = GPU) -> Grant:
    return Grant(
        ResourceName(resource),
        tuple(SlotId(device[0]) for device in devices),
        tuple(Device(DeviceId(id_), index, nodes=tuple(map(DeviceNode, paths))) for id_, index, paths in devices),
    )


def site_of(case: dict[str, Any], options: Options) -> HostNodes:
    there = case["there"]
    nvml = case["kind"] == "nvml"
    return HostNodes(
        Platform(case["kind"]),
        tuple(node for node in CONTROL_NODES if nvml and node in there),
        tuple(channel for channel in options.imex.channels if IMEX_NODE.format(channel) in there),
        tuple(
            name
            for name in enabled_features(options)
            if any(Path(path).match(pattern) for pattern in FEATURE_NODES[name] for path in there)
        ),
    )


def as_recorded(edits: Edits, *, indexes: bool) -> dict[str, Any]:
    """In the form of the recordings. What has a random order there is sorted."""
    env = dict(edits.env)
    if indexes and "NVIDIA_VISIBLE_DEVICES" in env:
        env["NVIDIA_VISIBLE_DEVICES"] = ",".join(sorted(env["NVIDIA_VISIBLE_DEVICES"].split(",")))
    return normal(
        {
            "envs": env,
            "mounts": [
                {"container_path": m.container_path, "host_path": m.host_path, "read_only": m.read_only}
                for m in edits.mounts
            ],
            "devices": [
                {"container_path": n.container_path or n.path, "host_path": n.path, "permissions": n.permissions}
                for n in edits.nodes
            ],
            "annotations": dict(edits.annotations),
            "cdi_devices": list(edits.cdi),
        },
        indexes=indexes,
    )


def normal(answer: dict[str, Any], *, indexes: bool) -> dict[str, Any]:
    answer = json.loads(json.dumps(answer))
    # Difference `annotation-key`: ours is the same each time.
    answer["annotations"] = {
        re.sub(r"nvidia-device-plugin_.*", "nvidia-device-plugin_", key): value
        for key, value in answer["annotations"].items()
    }
    # Difference `no-duplicates`: a node is there once. Upstream's order of nodes is random.
    nodes = {json.dumps(node, sort_keys=True) for node in answer["devices"]}
    answer["devices"] = [json.loads(node) for node in sorted(nodes)]
    if indexes:  # upstream's order of indexes is random
        answer["cdi_devices"].sort()
        answer["mounts"].sort(key=lambda mount: mount["container_path"])
        answer["annotations"] = {k: ",".join(sorted(v.split(","))) for k, v in answer["annotations"].items()}
        if answer["envs"].get("NVIDIA_VISIBLE_DEVICES"):
            ids = sorted(answer["envs"]["NVIDIA_VISIBLE_DEVICES"].split(","))
            answer["envs"]["NVIDIA_VISIBLE_DEVICES"] = ",".join(ids)
    return answer


@pytest.mark.parametrize(
    "case", VECTORS["cases"], ids=[f"{i}-{case['name']}" for i, case in enumerate(VECTORS["cases"])]
)
def test_a_container_gets_what_it_got_before(case: dict[str, Any]) -> None:
    options = convert(VECTORS["options"][case["options"]], Options, "recorded")
    indexes = options.ids is Ids.INDEX
    asked = grant(*(tuple(device) for device in case["devices"]), resource=case["resource"])
    given = EditsBuilder(options).edits(site_of(case, options), asked)
    assert as_recorded(given, indexes=indexes) == normal(case["answer"], indexes=indexes)


ONE = ("GPU-a", "0", ["/dev/nvidia0"])
TWO = ("GPU-b", "1", ["/dev/nvidia1"])
FULL = HostNodes(Platform.NVML, CONTROL_NODES, (0,), ("gdrcopy", "gds", "mofed"))


def test_ids_keep_the_order_of_the_grant() -> None:
    assert EditsBuilder(Options()).edits(HostNodes(), grant(TWO, ONE)).env == {"NVIDIA_VISIBLE_DEVICES": "GPU-b,GPU-a"}
    by_index = EditsBuilder(Options(ids=Ids.INDEX)).edits(HostNodes(), grant(TWO, ONE))
    assert by_index.env == {"NVIDIA_VISIBLE_DEVICES": "1,0"}


def test_no_node_comes_twice() -> None:
    mig = [("MIG-1", "0:0", ["/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap12"]), ("MIG-2", "0:1", ["/dev/nvidia0"])]
    nodes = EditsBuilder(Options(nodes=True)).edits(HostNodes(), grant(*mig)).nodes
    assert [node.path for node in nodes] == ["/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap12"]


def test_names_are_in_the_order_gpu_imex_then_the_flags() -> None:
    options = Options(ways=(DeviceListStrategy.CDI_CRI,), imex=Imex(channels=(0,)), gds=True, mofed=True, gdrcopy=True)
    vendor = "k8s.device-plugin.nvidia.com"
    assert EditsBuilder(options).edits(FULL, grant(ONE)).cdi == (
        f"{vendor}/gpu=GPU-a",
        f"{vendor}/imex-channel=0",
        f"{vendor}/gdrcopy=all",
        f"{vendor}/gds=all",
        f"{vendor}/mofed=all",
    )


def test_a_flag_without_nodes_sets_its_variable_but_names_no_device() -> None:
    edits = EditsBuilder(Options(ways=(DeviceListStrategy.CDI_CRI,), gds=True)).edits(HostNodes(), grant(ONE))
    assert edits.env == {"NVIDIA_GDS": "enabled"}
    assert edits.cdi == ("k8s.device-plugin.nvidia.com/gpu=GPU-a",)


def test_two_resources_of_one_container_have_two_annotations() -> None:
    options = Options(ways=(DeviceListStrategy.CDI_ANNOTATIONS,))
    keys = [
        key
        for resource in ("nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.5gb")
        for key in EditsBuilder(options).edits(HostNodes(), grant(ONE, resource=resource)).annotations
    ]
    assert keys[0] == "cdi.k8s.io/nvidia-device-plugin_nvidia.com_gpu"
    assert len(set(keys)) == 3


def test_equal_grants_have_equal_edits() -> None:
    options = Options(ways=tuple(DeviceListStrategy), nodes=True)
    assert EditsBuilder(options).edits(FULL, grant(ONE, TWO)) == EditsBuilder(options).edits(FULL, grant(ONE, TWO))


def test_an_old_mig_id_is_a_name_that_cdi_allows() -> None:
    edits = EditsBuilder(Options(ways=(DeviceListStrategy.CDI_CRI,))).edits(
        HostNodes(), grant(("MIG-GPU-a/3/0", "0:0", []))
    )
    assert edits.cdi == ("k8s.device-plugin.nvidia.com/gpu=MIG-GPU-a_3_0",)


@pytest.mark.parametrize("resource", ["nvidia.com/" + "a" * 52, "nvidia.com/" + "a" * 51 + "b", "nvidia.com/gpu"])
def test_annotation_keys_are_no_longer_than_kubernetes_allows(resource: str) -> None:
    key = cdi.annotation_key("nvidia-device-plugin", resource)
    assert len(key.removeprefix("cdi.k8s.io/")) <= 63
    assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*[A-Za-z0-9]", key.removeprefix("cdi.k8s.io/"))


def nodes_only(**more: Any) -> Options:
    options: Options = convert({"ways": [], "nodes": True, "permissions": "mrw", **more}, Options, "nvidia")
    return options


def test_without_a_way_the_nodes_are_all_that_a_container_gets() -> None:
    there = HostNodes(Platform.NODES, CONTROL_NODES)
    found = EditsBuilder(nodes_only()).edits(there, grant(("nvidia0", "0", ["/dev/nvidia0"])))
    assert found == Edits(nodes=tuple(DeviceNode(path, "", "mrw") for path in (*CONTROL_NODES, "/dev/nvidia0")))


@pytest.mark.parametrize(
    ("clients", "slots", "memory_bytes", "percent", "limit"),
    [
        (10, 1, 80 * 2**30, "10", "0=8192M"),
        (10, 5, 80 * 2**30, "50", "0=40960M"),
        (7, 2, 80 * 2**30, "28", "0=23405M"),
        (2, 1, 20 * 2**30, "50", "0=10240M"),
        (4, 1, 0, "25", None),
    ],
)
def test_limits_for_mps_are_shares_of_the_device(
    clients: int, slots: int, memory_bytes: int, percent: str, limit: str | None
) -> None:
    device = Device(DeviceId("nvidia0"), "0", memory_bytes=memory_bytes)
    shares = tuple(SlotId(f"nvidia0/vgpu{number}") for number in range(slots))
    found = EditsBuilder(nodes_only(mps={"clients": clients})).edits(HostNodes(), Grant(GPU, shares, (device,)))
    assert found.env.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE") == percent
    assert found.env.get("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT") == limit
