"""Each check finds its planted fault, and nothing else; a healthy node gives nothing; what is lacking is said."""

from __future__ import annotations

import re
from typing import Any

import pytest
from msgspec.structs import fields, replace
from tests.unit.programs.doctor import healthy as h
from tests.unit.programs.doctor.healthy import healthy

from fairlead.model.errors import Oversize
from fairlead.model.names import DeviceId, ResourceName, SlotId
from fairlead.model.resource import Resource, Slot
from fairlead.policy.offering import budget
from fairlead.programs.doctor import facts as f
from fairlead.programs.doctor.checks import CHECKS
from fairlead.programs.doctor.facts import Facts, Missing, SocketState
from fairlead.programs.doctor.findings import Finding, Severity, examine

NONE = f.Missing("no daemon answers")
AMD = f.PciDevice("0000:c1:00.0", "1002", "1200", "amdgpu", 0)
NVSWITCH = f.PciDevice("0000:87:00.0", "10de", "0680", "nvidia")
CDI = {"backends": [{"kind": "nvidia", "ways": ["cdi-cri"]}]}
OWN_SPEC = f.CdiFile(
    "/var/run/cdi/own.json", "k8s.device-plugin.nvidia.com/gpu", ("k8s.device-plugin.nvidia.com/gpu=a",)
)
SINGLE = {"backends": [{"kind": "nvidia", "mig": "single"}]}
CUT = h.gpu(0, mig_enabled=True, profiles=("1g.10gb",), cap_paths=("/dev/nvidia-caps/nvidia-cap3",))
CAP_NODE = {"/dev/nvidia-caps/nvidia-cap3": f.Node(236, 3, 0o444)}
WITH_CAP = f.DevFiles({**h.dev().nodes, **CAP_NODE}, h.dev().char_links | {"236:3"})
DENIED = h.plugins(SocketState.DENIED)

# What is planted, and words of what is then seen. Several of one code: each way in which it shows.
GREEDY = "nvidia.com/gpu: one container may have 1 of it, not 2: x"
PLANTED: list[tuple[str, dict[str, Any], str]] = [
    ("D01", {"plugins": h.plugins(SocketState.ABSENT, there=False)}, f"{h.DIRECTORY} is not there"),
    (
        "D01",
        {"plugins": h.plugins(SocketState.NO_SOCKET)},
        "kubelet.sock is no socket, while the kubelet runs as process 700",
    ),
    (
        "D01",
        {
            "pod_resources": f.SocketFile("/var/lib/kubelet/pod-resources/kubelet.sock", SocketState.ABSENT),
            "process": f.KubeletProcess(7, "/data/kubelet"),
        },
        "--root-dir=/data/kubelet",
    ),
    ("D02", {"plugins": h.plugins(SocketState.REFUSED)}, "kubelet.sock: refused (Connection refused)"),
    ("D03", {"plugins": DENIED, "selinux": f.Selinux(enforcing=True, own="u:r:container_t:s0")}, "container_t"),
    (
        "D03",
        {"plugins": DENIED, "process": f.KubeletProcess(7, label="u:r:unconfined_service_t:s0")},
        "the kubelet: u:r:",
    ),
    (
        "D04",
        {"events": (f.Event("kube-system", "fairlead", 'pods "x" is forbidden: violates PodSecurity "baseline"'),)},
        "kube-system/fairlead",
    ),
    (
        "D05",
        {"node": h.node(labels={"feature.node.kubernetes.io/pci-0300_10de.present": "true"})},
        "pci-10de.present In true; the node has feature.node.kubernetes.io/pci-0300_10de.present",
    ),
    ("D06", {"daemon_sets": (h.daemon_set(tolerations=()),)}, "nvidia.com/gpu=present:NoSchedule"),
    ("D07", {"pci": h.pci(driver="nouveau")}, "0000:3b:00.0 is bound to nouveau"),
    ("D07", {"pci": h.pci(driver="vfio-pci")}, "vfio-pci"),
    ("D07", {"pci": h.pci(driver="")}, "has no driver, although nvidia is loaded"),
    ("D08", {"pci": (*h.pci(), replace(AMD, driver=""))}, "1 AMD GPUs (0000:c1:00.0), and module amdgpu is not loaded"),
    (
        "D09",
        {"nvml": f.NvmlFailure("libnvidia-ml.so.1 was not found: in a, b", library=True)},
        "was not found: in a, b",
    ),
    ("D10", {"runtime": h.runtime(handlers=("runc",), default="runc")}, "handlers runc; the default is runc"),
    (
        "D11",
        {"runtime": h.runtime(default="runc"), "runtime_classes": ()},
        "the handler nvidia is not the default (runc)",
    ),
    ("D11", {"daemon_sets": (h.daemon_set(runtime_class="nvidia-x"),)}, "names RuntimeClass nvidia-x"),
    ("D12", {"nvidia": f.NvidiaFiles("550.54.15", ("/usr/lib64/libnvidia-ml.so.560.28.03",))}, "library 560.28.03"),
    ("D12", {"nvml": f.NvmlFailure("nvmlInit: mismatch (NVML error 18)")}, "kernel module 550.54.15; nvmlInit"),
    ("D13", {"dev": h.dev(without="/dev/nvidia1")}, "/dev/nvidia1 not there"),
    ("D13", {"dev": h.dev(without="/dev/nvidia-uvm")}, "/dev/nvidia-uvm not there"),
    ("D14", {"dev": h.dev(links=False)}, "/dev/nvidia-uvm, /dev/nvidia0"),
    ("D15", {"pci": (*h.pci(), NVSWITCH)}, "1 NVSwitches (0000:87:00.0), and no process nv-fabricmanager"),
    (
        "D15",
        {
            "pci": (*h.pci(), NVSWITCH),
            "processes": frozenset({"nv-fabricmanage"}),
            "nvml": f.NvmlFacts((h.gpu(0, fabric="in progress"), h.gpu(1))),
        },
        "GPU 0: in progress. It must be of version 550.54.15",
    ),
    ("D16", {"pci": h.pci(answers=False)}, "0000:3b:00.0 reads as all ones"),
    ("D16", {"daemons": h.daemons(devices=(h.device(cause="xid-79: GPU has fallen off the bus"),))}, "xid-79"),
    ("D16", {"nvml": f.NvmlFacts((h.gpu(1),), ("GPU 0: nvmlDeviceGetName: lost (NVML error 15)",))}, "NVML error 15"),
    ("D17", {"xids": (f.Xid("0000:3b:00", 79, 2),)}, "XID 79 (GPU has fallen off the bus) of 0000:3b:00, 2 times"),
    ("D17", {"xids": (f.Xid("0000:3b:00", 48),)}, "XID 48 (double-bit ECC error)"),
    ("D17", {"xids": (f.Xid("0000:3b:00", 31),)}, "a fault of a program"),
    ("D17", {"xids": (f.Xid("0000:3b:00", 94),)}, "offered again after clean probes"),
    ("D17", {"xids": (f.Xid("0000:3b:00", 999),)}, "XID 999 (not in the catalogue)"),
    ("D18", {"nvml": f.NvmlFacts((h.gpu(0, rows_pending=True), h.gpu(1)))}, "GPU-1: rows or pages wait for a reset"),
    ("D18", {"nvml": f.NvmlFacts((h.gpu(0, rows_failed=True), h.gpu(1)))}, "a remapping failed"),
    ("D19", {"nvml": f.NvmlFacts((h.gpu(0, mig_enabled=True), h.gpu(1)))}, "MIG is on, and it has no instance"),
    (
        "D19",
        {
            "nvml": f.NvmlFacts((h.gpu(0, mig_enabled=True, profiles=("1g.10gb", "2g.20gb")), h.gpu(1))),
            "config": h.config(SINGLE),
        },
        "mig: single, and there are 1g.10gb, 2g.20gb",
    ),
    ("D20", {"nvml": f.NvmlFacts((CUT, h.gpu(1)))}, "/dev/nvidia-caps/nvidia-cap3 not there"),
    (
        "D21",
        {"mps": (f.MpsPipe("nvidia.com/gpu", "/mps/nvidia.com/gpu/pipe", "control: No such file"),)},
        "control: No such",
    ),
    (
        "D22",
        {"daemon_sets": (h.daemon_set(), h.daemon_set(name="other"))},
        "kube-system/fairlead and kube-system/other select app=",
    ),
    (
        "D23",
        {
            "daemons": h.daemons(*[f.Refusal("nvidia.com/gpu", GREEDY)] * 3),
            "pods": (h.pod(), h.pod(name="greedy", phase="Failed", message=f"Allocate failed: {GREEDY}, unexpected")),
        },
        "3 times: nvidia.com/gpu: one container may have 1",
    ),
    (
        "D24",
        {"pods": (h.pod(), h.pod(name="p", images=("nvcr.io/nvidia/k8s-device-plugin:v0.17",)))},
        "pod default/p runs nvcr.io",
    ),
    ("D24", {"plugins": h.plugins(SocketState.ANSWERS, "nvidia-gpu.sock")}, "another process serves"),
    (
        "D24",
        {"daemons": (*h.daemons(), replace(h.daemons()[0], socket="/run/fairlead/nvidia.sock"))},
        "/run/fairlead/nvidia.sock",
    ),
    ("D25", {"slices": (f.Slice("s1", "gpu.nvidia.com", ("gpu-0",)),)}, "ResourceSlice s1 of gpu.nvidia.com has gpu-0"),
    (
        "D26",
        {"config": h.config(CDI), "cdi": (OWN_SPEC,), "runtime": h.runtime(version="1.6.33")},
        "1.6.33 knows no CDI",
    ),
    ("D26", {"config": h.config(CDI), "cdi": (OWN_SPEC,), "runtime": h.runtime(cdi=False)}, "has enable_cdi = false"),
    ("D26", {"config": h.config(CDI), "cdi": (OWN_SPEC,), "runtime": h.runtime(cdi=None)}, "does not set enable_cdi"),
    ("D27", {"cdi": (f.CdiFile("/etc/cdi/a.yaml", problem="line 1: no mapping"),)}, "/etc/cdi/a.yaml: line 1"),
    (
        "D27",
        {"cdi": (f.CdiFile("/etc/cdi/a.yaml", "a.com/b", ("a.com/b=0",), ("/dev/gone",)),)},
        "/dev/gone not on this host",
    ),
    ("D27", {"cdi": (replace(OWN_SPEC, path="/etc/cdi/a"), OWN_SPEC)}, "in /etc/cdi/a and in /var/run/cdi/own.json"),
    ("D27", {"config": h.config(CDI)}, "no spec has a name of k8s.device-plugin.nvidia.com"),
    ("D28", {"daemons": NONE, "plan": h.plan(worst_bytes=5_000_000)}, "a list of 5,000,000 bytes"),
    ("D29", {"node": h.node(capacity={"nvidia.com/gpu": "2", "nvidia.com/old": "0"})}, "nvidia.com/old: 0"),
    (
        "D30",
        {"daemons": h.daemons(resources=(h.resource(phase="backoff", reason="no stream in 10 s", attempt=7),))},
        "backoff for 1000 s, attempt 7: no stream",
    ),
    (
        "D31",
        {"pods": (h.pod(), h.pod(name="x", phase="Failed", reason="UnexpectedAdmissionError"))},
        "1 in namespace default: x",
    ),
    (
        "D32",
        {"checkpoint": f.DiskCheckpoint("/c", problem="it has more than 64 bytes")},
        "/c: it has more than 64 bytes",
    ),
    ("D32", {"checkpoint": h.checkpoint(frozenset())}, "pods hold GPU-1 by pod-resources"),
    ("D33", {"holdings": h.holdings("gone")}, "pod default/gone holds 1 slots"),
    (
        "D34",
        {"users": (f.DeviceUser(4711, "python3", "/dev/nvidia1"),)},
        "process 4711 (python3) has /dev/nvidia1 open",
    ),
    (
        "D35",
        {"pci": (*h.pci(), AMD), "modules": frozenset({"nvidia", "amdgpu"})},
        "/sys/class/kfd, /dev/kfd, /dev/dri/renderD* not there",
    ),
    (
        "D36",
        {"dev": h.dev(mode=0o660, gid=44), "pods": (h.pod(user=1000),)},
        "runs as user 1000 and holds /dev/nvidia0, of mode 0660 and group 44",
    ),
    ("D37", {"inotify": f.Inotify(128, 128)}, "root has 128 instances"),
    (
        "D38",
        {"rights": (f.Right("the daemon with `amounts`", "", "nodes/status", "patch", allowed=False),)},
        "may not patch nodes/status",
    ),
    (
        "D39",
        {"node": h.node(annotations={"hami.io/mutex.lock": "2027-01-15T07:00:00Z,default,p"})},
        "which is 3600 s ago",
    ),
    ("D39", {"node": h.node(annotations={"hami.io/node-handshake": "Requesting_2027.01.15 07:00:00"})}, "3600 s ago"),
    (
        "D40",
        {"daemons": h.daemons(devices=(h.device(0, numa_nodes=()), h.device(1)))},
        "has no NUMA node; the machine has 2",
    ),
    (
        "D41",
        {"daemons": h.daemons(devices=()), "special": f.SpecialHost(tegra=True, model="Jetson")},
        "a Jetson (Jetson)",
    ),
    ("D41", {"daemons": h.daemons(devices=()), "special": f.SpecialHost(wsl=True)}, "WSL2"),
    (
        "D42",
        {"daemons": h.daemons(devices=(h.device(0), h.device(1, model="A100")))},
        "nvidia.com/gpu: 1 x A100, 1 x H100",
    ),
    ("D43", {"nvml": f.NvmlFacts((h.gpu(0), h.gpu(1)), deaf=("GPU-1: is too old for events",))}, "too old for events"),
    (
        "D44",
        {"daemon_sets": (h.daemon_set(surge="1"),)},
        "kubelet v1.36.4, and DaemonSet kube-system/fairlead is updated",
    ),
]
PLACEHOLDER = re.compile(r"\{[a-z]+\}")


def found(facts: Facts) -> list[Finding]:
    return list(examine(facts, CHECKS).findings)


def test_a_healthy_node_gives_nothing_and_everything_was_looked_at():
    report = examine(healthy(), CHECKS)
    assert report.findings == ()
    assert report.not_looked_at == ()
    assert report.looked_at == len(CHECKS) == 44


def test_every_check_has_a_planted_fault_and_codes_are_used_once():
    assert {code for code, _, _ in PLANTED} == {check.code for check in CHECKS}
    assert len({check.code for check in CHECKS}) == len(CHECKS)
    assert all(check.why and check.cure and check.needs for check in CHECKS)


@pytest.mark.parametrize(("code", "change", "words"), PLANTED, ids=[f"{c}-{w[:20]}" for c, _, w in PLANTED])
def test_a_planted_fault_is_found_with_its_value_and_a_whole_command(code: str, change: dict[str, Any], words: str):
    findings = found(healthy(**change))
    assert [one.code for one in findings] == [code]
    assert words in findings[0].seen
    assert not PLACEHOLDER.search(findings[0].cure)
    assert findings[0].link.endswith(f"#{code.lower()}")


def test_the_cure_fits_what_was_seen():
    def cure(**change: Any) -> str:
        return found(healthy(**change))[0].cure

    assert "blacklist nouveau" in cure(pci=h.pci(driver="nouveau"))
    assert "vfio-pci/unbind" in cure(pci=h.pci(driver="vfio-pci"))
    assert "restorecon" in cure(plugins=DENIED, process=f.KubeletProcess(7, label="unconfined_service_t"))
    assert cure(pods=(h.pod(name="x", phase="Failed", reason="UnexpectedAdmissionError"), h.pod())).endswith(
        "-n default x"
    )
    assert "nvidia.com~1old" in cure(node=h.node(capacity={"nvidia.com/old": "0"}))
    assert cure(inotify=f.Inotify(9000, 9000)).endswith("=18000")


def test_severities_of_xids_follow_what_they_mean():
    xids = tuple(f.Xid("0000:3b:00", number) for number in (31, 48, 79, 94))
    severities = {one.seen.split()[1]: one.severity for one in found(healthy(xids=xids))}
    assert severities == {"79": Severity.ERROR, "48": Severity.WARNING, "31": Severity.NOTE, "94": Severity.NOTE}


def test_a_list_that_the_daemon_refused_is_found_by_the_words_of_the_budget():
    slots = tuple(Slot(SlotId(f"s{n}"), DeviceId("d")) for n in range(50))
    with pytest.raises(Oversize) as refused:
        budget.check(Resource(ResourceName("a.io/b"), slots), limit_bytes=100)
    findings = found(healthy(daemons=h.daemons(problems=(str(refused.value),))))
    assert [one.code for one in findings] == ["D28"]


# --- What is lacking --------------------------------------------------------------------------------------------------


def test_without_any_fact_every_check_says_what_it_lacks_and_none_is_fine():
    report = examine(Facts(), CHECKS)
    assert report.findings == ()
    assert report.looked_at == 0
    assert {one.lacks for one in report.not_looked_at} >= {"it was not asked for"}


@pytest.mark.parametrize("name", [field.name for field in fields(Facts) if field.name not in {"where", "plan"}])
def test_a_lost_fact_makes_no_finding_and_its_checks_say_so_or_do_without(name: str):
    report = examine(healthy(**{name: Missing("lost")}), CHECKS)
    assert report.findings == ()
    optional = {
        "config",
        "daemon_sets",
        "pod_resources",
        "process",
        "selinux",
        "nvidia",
        "runtime",
        "holdings",
        "kfd",
        "processes",
    }
    assert report.not_looked_at or name in optional


def test_a_node_without_gpus_needs_no_driver():
    nothing = healthy(
        pci=(), nvml=Missing("there is no NVIDIA GPU on the bus"), majors={}, dev=f.DevFiles(), modules=frozenset()
    )
    report = examine(nothing, CHECKS)
    assert report.findings == ()
    assert report.not_looked_at == ()


def test_denied_to_a_user_is_no_finding_about_selinux():
    report = examine(healthy(plugins=DENIED, where=f.Where(uid=1000, now_s=h.NOW_S)), CHECKS)
    assert [one.code for one in report.not_looked_at] == ["D03"]
    assert "this is user 1000" in report.not_looked_at[0].lacks


@pytest.mark.parametrize(
    "change",
    [
        {"node": h.node(kubelet_version="v1.37.0"), "daemon_sets": (h.daemon_set(surge="1"),)},
        {"daemon_sets": (h.daemon_set(surge="1", takes_over=True),)},
        {"runtime": h.runtime(handlers=("runc",)), "config": h.config(CDI), "cdi": (OWN_SPEC,)},
        {"config": h.config(CDI), "cdi": (OWN_SPEC,), "runtime": h.runtime(version="2.0.1", cdi=None)},
        {"dev": h.dev(links=False), "config": h.config({"backends": [{"kind": "nvidia", "nodes": True}]})},
        {"dev": h.dev(links=False), "kubelet": f.KubeletConfig()},
        {"dev": h.dev(mode=0o660, gid=44), "pods": (h.pod(user=1000, groups=(44,)),)},
        {"dev": h.dev(mode=0o660, gid=44), "pods": (h.pod(user=1000),), "runtime": h.runtime(ownership=True)},
        {"daemons": h.daemons(devices=(h.device(numa_nodes=()),)), "numa_nodes": 1},
        {"daemons": h.daemons(resources=(h.resource(phase="backoff", since_s=h.NOW_S - 5),))},
        {"node": h.node(annotations={"hami.io/mutex.lock": "2027-01-15T07:59:00Z"})},
        {"node": h.node(annotations={"hami.io/mutex.lock": "soon"})},
        {"node": h.node(annotations={"a.io/mutex.lock": str(int(h.NOW_S - 10) * 10**9)})},
        {"nvml": f.NvmlFacts((CUT, h.gpu(1))), "dev": WITH_CAP},
        {"slices": (f.Slice("s1", "gpu.example.com"),)},
        {"special": f.SpecialHost(tegra=True)},
        {"node": h.node(taints=(f.Taint("a", "b", "PreferNoSchedule"), f.Taint("node.kubernetes.io/not-ready")))},
        {"daemon_sets": (h.daemon_set(), h.daemon_set(name="o", namespace="other"))},
    ],
)
def test_what_looks_like_a_fault_and_is_none(change: dict[str, Any]):
    assert found(healthy(**change)) == []


@pytest.mark.parametrize(
    ("operator", "values", "chosen"),
    [("NotIn", ("a",), True), ("Exists", (), False), ("DoesNotExist", (), True), ("Gt", ("1",), True)],
)
def test_labels_are_compared_as_the_scheduler_does(operator: str, values: tuple[str, ...], chosen: bool):
    sets = (h.daemon_set(alternatives=((f.Term("k", operator, values),),)),)
    assert [one.code for one in found(healthy(daemon_sets=sets))] == ([] if chosen else ["D05"])


def test_many_findings_of_one_check_are_counted_not_listed():
    users = tuple(f.DeviceUser(n, "x", "/dev/nvidia0") for n in range(30))
    findings = found(healthy(users=users))
    assert len(findings) == 8
    assert findings[-1].seen.endswith("; and 22 more like this")


def test_what_is_quoted_is_cut():
    findings = found(healthy(events=(f.Event("kube-system", "fairlead", "violates PodSecurity " + "x" * 5000),)))
    assert len(findings[0].seen) < 700


def test_a_version_that_is_none_is_not_looked_at():
    report = examine(healthy(node=h.node(kubelet_version="")), CHECKS)
    assert [(one.code, one.lacks) for one in report.not_looked_at] == [
        ("D44", "the node's kubelet version '' is not understood")
    ]
