"""`fairlead doctor` on a real node: nothing on a healthy one; each planted fault by its code, until it is cured."""

from __future__ import annotations

import json
import re
import secrets
import shlex
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fairlead.cluster.rbac import DOCTOR
from fairlead.fronts.checkpoint import NAME as CHECKPOINT
from tests.node import ailments
from tests.node.account import Account
from tests.node.ailments import Doctor, carry_out, daemon_set, status_of
from tests.node.broken import DOMAIN as BROKEN
from tests.node.cluster import Cluster
from tests.node.daemon import HEALTH, Fairlead, sim
from tests.node.nvidia import GPU, machine, wait_served
from tests.node.rig.node import start_kubelet, stop_kubelet
from tests.node.rig.places import INSIDE, NODE, PLUGINS
from tests.node.rig.steps import until
from tests.node.sickhost import AILMENTS, Ailment, Host, served
from tests.node.vendor import CLASSES
from tests.nvml import Driver, gpus

Make = Callable[[dict[str, Any]], Fairlead]
DOMAIN = f"doctor-{secrets.token_hex(3)}.example.com"  # names of other tests are not seen as left behind
RESOURCE = f"{DOMAIN}/device"
LOCK, GROUP = "hami.io/mutex.lock", 4242  # the group of the device nodes
LABEL = "feature.node.kubernetes.io/pci-10de.present"
TAINT = {"key": f"{DOMAIN}/reserved", "value": "yes", "effect": "NoSchedule"}
RIVAL = "nvcr.io/nvidia/k8s-device-plugin:v0.17.0"


@pytest.fixture(scope="module")
def nodes() -> Iterator[list[Path]]:
    """Two device nodes that are /dev/null by another name, for root and one group."""
    with ailments.device_nodes(2, GROUP) as made:
        yield made


@pytest.fixture(scope="module")
def daemon(node: None, nodes: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fairlead]:
    pattern = str(nodes[0]).removesuffix("0") + "{i}"
    made = Fairlead(
        tmp_path_factory.mktemp("sim"), {**sim(RESOURCE, 2, fleet={"nodes": [pattern]}), "instance": "doctor"}
    )
    made.start()
    Cluster().wait_numbers(RESOURCE, 2, 2)
    yield made
    made.end()


@pytest.fixture
def doctor(cluster: Cluster, daemon: Fairlead) -> Doctor:
    return Doctor(daemon.socket)


# --- A healthy node ---------------------------------------------------------------------------------------------------


def test_a_healthy_node_has_nothing_to_report(cluster: Cluster, doctor: Doctor):
    cluster.run_pod("healthy", {RESOURCE: 1})
    report = doctor.look()
    assert report.findings == ()
    # The rig's kubelet has another process name, and its configuration is not where kubelets have it.
    assert [one.code for one in report.not_looked_at] == ["D40"]


# --- The cluster's objects: the printed command itself is the cure ----------------------------------------------------


def test_pod_security_that_forbids_the_daemons_pod(doctor: Doctor):
    """The event of the refusal stays for an hour; the code does not."""
    volumes = [{"name": "host", "hostPath": {"path": str(INSIDE)}}]
    forbidding = ailments.namespace({"pod-security.kubernetes.io/enforce": "baseline"})
    with forbidding as space, doctor.ends_well("D04"), daemon_set("some-vgpu", space, volumes=volumes):
        carry_out(doctor.finding("D04").cure)
        until(lambda: status_of("some-vgpu", space)["currentNumberScheduled"], "it has a pod", 60.0)
        until(lambda: "D04" not in doctor.codes(), "D04 is gone")


@pytest.mark.parametrize(("operator", "label"), [("In", None), ("NotIn", "true")])
def test_a_plugin_that_does_not_choose_the_node(doctor: Doctor, operator: str, label: str | None):
    term = {"key": LABEL, "operator": operator, "values": ["true"]}
    required = {"nodeSelectorTerms": [{"matchExpressions": [term]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    plugin = daemon_set("chooses-vgpu", affinity=affinity)
    with ailments.marked({"labels": {LABEL: label}}), doctor.ends_well("D05"), plugin:
        carry_out(doctor.finding("D05").cure)
        until(lambda: status_of("chooses-vgpu")["desiredNumberScheduled"], "the node is chosen")
        assert "D05" not in doctor.codes()


@pytest.mark.parametrize("known", [[], [{"key": "other", "operator": "Exists"}]], ids=["none", "others"])
def test_a_taint_that_a_plugin_does_not_tolerate(doctor: Doctor, known: list[Any]):
    elsewhere = daemon_set("elsewhere-vgpu", nodeSelector={"is": "elsewhere"})  # the taint is no matter to it
    kept = daemon_set("kept-vgpu", tolerations=known)
    with ailments.marked(taints=[TAINT]), elsewhere, doctor.ends_well("D06"), kept:
        carry_out(doctor.finding("D06").cure)
        until(lambda: status_of("kept-vgpu")["desiredNumberScheduled"], "it comes to the node")
        assert "D06" not in doctor.codes()


def test_a_runtime_class_that_is_missing(cluster: Cluster, doctor: Doctor):
    name = f"doctor-{secrets.token_hex(3)}"
    with doctor.ends_well("D11"), daemon_set("class-vgpu", runtimeClassName=name):
        carry_out(doctor.finding("D11").cure)
        assert cluster.api.get(f"{CLASSES}/{name}")["handler"] == name
        assert "D11" not in doctor.codes()
    carry_out(f"kubectl delete runtimeclass {name}")


def test_an_update_that_runs_two_plugins_at_once(doctor: Doctor):
    surging = daemon_set("surge-vgpu", strategy={"maxSurge": 1, "maxUnavailable": 0})
    with doctor.ends_well("D44"), surging:
        carry_out(doctor.finding("D44").cure)
        assert "D44" not in doctor.codes()


def test_two_plugins_with_one_selector(doctor: Doctor):
    """The cure is a release with another name: here, the second one goes."""
    first, second = (daemon_set(f"{name}-vgpu", labels={"app": "twins"}) for name in ("first", "second"))
    with first, doctor.ends_well("D22"), second:
        assert "default/second-vgpu select app=twins" in doctor.finding("D22").seen


def test_a_lock_that_a_scheduler_left(cluster: Cluster, doctor: Doctor):
    with doctor.ends_well("D39"), ailments.marked({"annotations": {LOCK: "2026-01-01T00:00:00Z,default,pod"}}):
        carry_out(doctor.finding("D39").cure)
        assert LOCK not in cluster.annotations()


def test_rights_that_the_account_does_not_have(cluster: Cluster, daemon: Fairlead, tmp_path: Path):
    """Each is granted by its own command, to the account that was asked with."""
    account, config = Account(tmp_path, DOCTOR), tmp_path / "wants.yaml"
    amounts = {"amounts": [{"resource": f"{DOMAIN}/tokens", "total": 5}]}
    config.write_text(json.dumps({**json.loads(daemon.file.read_text()), **amounts}))
    doctor, made = Doctor(daemon.socket, kubeconfig=account.file), list[str]()
    try:
        with doctor.ends_well("D38"):
            doctor.finding("D38", "--config", str(config))
            for finding in doctor.look("--config", str(config)).findings:
                assert account.name in finding.cure
                made += re.findall(r"create clusterrole (\S+)", finding.cure)
                carry_out(finding.cure)
            until(lambda: "D38" not in doctor.codes("--config", str(config)), "the account has its rights")
    finally:
        account.remove()
        for name in made:
            carry_out(f"kubectl delete clusterrolebinding {name} && kubectl delete clusterrole {name}")
    assert sorted(made) == ["fairlead-list-nodes", "fairlead-patch-nodes-status", "fairlead-watch-nodes"]


# --- Others who offer the same devices --------------------------------------------------------------------------------


@pytest.fixture
def of_nvidia(cluster: Cluster, fairlead: Make) -> Fairlead:
    """Simulated devices under a name of NVIDIA's domain."""
    name = f"nvidia.com/doctor-{secrets.token_hex(3)}"
    made = fairlead(sim(name, 1, fleet={"vendor": "nvidia", "model": "H100"}))
    made.start()
    cluster.wait_offered(name, 1)
    return made


def test_a_rival_from_another_daemon_set(of_nvidia: Fairlead):
    doctor = Doctor(of_nvidia.socket)
    with ailments.image_named(RIVAL), doctor.ends_well("D24"), daemon_set("rival", image=RIVAL):
        finding = doctor.finding("D24")
        assert finding.cure == "kubectl -n default delete daemonset rival"
        carry_out(finding.cure)
        until(lambda: "D24" not in doctor.codes(), "the rival is gone", 60.0)


def test_nvidias_own_plugin_beside_ours(cluster: Cluster, of_nvidia: Fairlead):
    doctor = Doctor(of_nvidia.socket)
    with machine(Driver(gpus=gpus("H100", 2))) as made, doctor.ends_well("D24"):
        made.nvidias.start()
        wait_served(cluster, GPU, 2)
        assert "nvidia-gpu.sock" in doctor.finding("D24").seen
        made.nvidias.end()


def test_two_daemons_for_one_resource(cluster: Cluster, daemon: Fairlead, tmp_path: Path):
    second = Fairlead(tmp_path, {**sim(RESOURCE, 2), "status": {"socket": f"{daemon.socket.parent}/second.sock"}})
    doctor = Doctor(daemon.socket.parent)
    with doctor.ends_well("D24"):
        second.start()
        try:
            assert "is served by the daemons of" in doctor.finding("D24").seen
        finally:
            second.end()
    cluster.wait_numbers(RESOURCE, 2, 2)


def test_a_dra_driver_with_the_same_devices(cluster: Cluster, of_nvidia: Fairlead):
    """The cure is a release without GPUs: then its slices go."""
    doctor, path = Doctor(of_nvidia.socket), "/apis/resource.k8s.io/v1/resourceslices"
    pool = {"name": NODE, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "gpu.nvidia.com", "nodeName": NODE, "pool": pool, "devices": [{"name": "gpu-0"}]}
    with doctor.ends_well("D25"):
        cluster.api.call("POST", path, {"metadata": {"name": "doctor"}, "spec": spec})
        try:
            assert "gpu-0" in doctor.finding("D25").seen
        finally:
            cluster.api.call("DELETE", f"{path}/doctor")


def test_two_models_under_one_name(cluster: Cluster, fairlead: Make, resource: str):
    groups = [{"id": "a-{i}", "model": "A"}, {"id": "b-{i}", "model": "B"}]
    fleet = {"backends": [{"kind": "sim", "fleet": {"name": "models", "devices": groups}}], "health": HEALTH}
    rules = [{"resource": f"{resource}-{model.lower()}", "match": {"model": [model]}} for model in "AB"]
    daemon = fairlead({**fleet, "rules": rules})
    daemon.start()
    cluster.wait_offered(f"{resource}-a", 1)
    doctor = Doctor(daemon.socket)
    with doctor.ends_well("D42"):
        daemon.configure({**fleet, "rules": [{"resource": resource}]})
        daemon.send(signal.SIGHUP)
        assert "match" in carry_out(doctor.finding("D42").cure)
        daemon.configure({**fleet, "rules": rules})
        daemon.send(signal.SIGHUP)


# --- Pods and processes -----------------------------------------------------------------------------------------------


def test_a_pod_that_wants_two_shares_is_refused_and_stays_behind(cluster: Cluster, fairlead: Make, resource: str):
    daemon = fairlead(sim(resource, 1, replicas=4, perContainer=1))
    daemon.start()
    cluster.wait_numbers(resource, 4, 4)
    doctor = Doctor(daemon.socket)
    with doctor.ends_well("D23", "D31"):
        cluster.start_pod("greedy", {resource: 2}).wait_phase("Failed")
        assert f"--limits={resource}=1" in doctor.finding("D23").cure
        carry_out(doctor.finding("D31").cure)
        cluster.run_pod("modest", {resource: 1})


def test_a_pod_that_may_not_open_its_device(cluster: Cluster, doctor: Doctor, nodes: list[Path]):
    script = "; ".join(f"(: <{path}) 2>/dev/null && echo opened" for path in nodes)
    script += "; echo -- end; exec sleep 1000000"

    def tries(name: str, **context: Any) -> list[str]:
        user = {"runAsUser": 1000, **context}
        return cluster.run_pod(name, {RESOURCE: 2}, script=script, securityContext=user).prints()

    with doctor.ends_well("D36"):
        assert "opened" not in tries("closed")
        finding = doctor.finding("D36")
        assert "runAsUser: 1000" in carry_out(finding.cure)
        group = int(re.findall(r"supplementalGroups: \[(\d+)\]", finding.cure)[0])
        cluster.remove_pods()
        assert tries("open", supplementalGroups=[group]).count("opened") == 2


def test_a_process_of_the_host_that_uses_a_device(doctor: Doctor, nodes: list[Path]):
    with doctor.ends_well("D34"), ailments.opened(nodes[1]) as pid:
        finding = doctor.finding("D34")
        assert finding.cure == f"kill {pid}"
        carry_out(finding.cure)


def test_a_list_that_is_too_long_for_the_kubelet(cluster: Cluster, fairlead: Make, resource: str):
    daemon = fairlead(sim(resource, 2, replicas=2))
    daemon.start()
    cluster.wait_offered(resource, 4)
    doctor = Doctor(daemon.socket)
    with doctor.ends_well("D28"):
        daemon.configure(sim(resource, 2, replicas=65536))
        daemon.send(signal.SIGHUP)
        finding = doctor.finding("D28")
        most = re.findall(r"lower replicas from 65536 to (\d+)", finding.seen)
        assert f"to {most[0]}" in " ".join(carry_out(finding.cure, ends=1).split())
        daemon.end()
        daemon.configure(sim(resource, 2, replicas=min(10, int(most[0]))))  # fewer yet: this kubelet has more to do
        daemon.start()
        cluster.wait_offered(resource, 20)


# --- The kubelet ------------------------------------------------------------------------------------------------------


def test_a_daemon_that_serves_where_the_kubelet_does_not_look(cluster: Cluster, fairlead: Make, resource: str):
    config = sim(resource, 1)
    daemon = fairlead(config)
    daemon.start()
    cluster.wait_offered(resource, 1)
    doctor = Doctor(daemon.socket)
    with ailments.apart(linked=False) as place, doctor.ends_well("D01"):
        daemon.end()
        daemon.configure({**config, "kubelet": {"directory": place}})
        daemon.start()
        until(daemon.socket.exists, "it answers")
        cure = doctor.finding("D01").cure
        daemon.end()
        daemon.run("-m", *shlex.split(cure), "--config", str(daemon.file))
        cluster.wait_offered(resource, 1)


def test_a_socket_that_the_kubelet_cannot_dial(cluster: Cluster, fairlead: Make):
    """As with a directory that is not the same mount. The printed command shows it; the cure is the right directory."""
    name = f"{BROKEN}/doctor-{secrets.token_hex(3)}"
    with ailments.apart(linked=True) as place:
        daemon = fairlead({**sim(name, 1), "kubelet": {"directory": place}})
        daemon.start()
        until(daemon.socket.exists, "it answers")
        doctor = Doctor(daemon.socket)
        with doctor.ends_well("D30"):
            assert doctor.finding("D30").cure.startswith(f"ls -l {place} && ")
            daemon.end()
            words = ("--config", str(daemon.file), "--plugin-dir", f"{INSIDE}/device-plugins")
            daemon.run("-m", "fairlead", "run", *words)
            cluster.wait_offered(name, 1)


def test_a_kubelet_that_was_killed(cluster: Cluster, doctor: Doctor):
    with doctor.ends_well("D02"):
        stop_kubelet(signal.SIGKILL)
        assert doctor.finding("D02").cure == "systemctl start kubelet"
        start_kubelet()
        cluster.wait_numbers(RESOURCE, 2, 2)


def test_a_damaged_checkpoint_and_a_name_that_is_left_without_it(cluster: Cluster, doctor: Doctor, fairlead: Make):
    """A kubelet without its checkpoint forgets names, and leaves their amounts in the node's status."""
    name = f"{DOMAIN}/old"
    old = fairlead(sim(name, 1))
    old.start()
    cluster.wait_numbers(name, 1, 1)
    old.end()
    with doctor.ends_well("D29"):
        with doctor.ends_well("D32"):
            (PLUGINS / CHECKPOINT).write_text("{")
            drain, _, rest = doctor.finding("D32").cure.partition(f" && ssh {NODE} ")
            on_node, _, uncordon = rest.rpartition(" && ")
            carry_out(drain)
            stop, remove, start = on_node.strip("'").split(" && ")
            assert (stop, start) == ("systemctl stop kubelet", "systemctl start kubelet")
            stop_kubelet()
            carry_out(remove)
            start_kubelet()
            carry_out(uncordon)
            cluster.wait_numbers(RESOURCE, 2, 2)
        finding = doctor.finding("D29")
        assert finding.severity == "note"
        assert finding.seen.startswith(f"{name}: ")
        carry_out(finding.cure)
        done = time.time()
        until(lambda: cluster.heard() > done + 1, "the kubelet has told of the node again")
        assert cluster.numbers(name) is None


# --- Hardware, drivers and the runtime: files of a host, and a simulated driver ---------------------------------------


@pytest.fixture(scope="module")
def host(node: None) -> Iterator[tuple[Host, Doctor]]:
    with served(f"{DOMAIN}/gpu") as made:
        yield made


@pytest.fixture(scope="module")
def before(host: tuple[Host, Doctor]) -> set[str]:
    """What is found, or not looked at, before anything is planted."""
    report = host[1].look()
    return {one.code for one in report.findings} | {one.code for one in report.not_looked_at}


def test_a_healthy_host_with_gpus_has_nothing_to_report(before: set[str]):
    assert before == set()


@pytest.mark.parametrize("ailment", AILMENTS, ids=[f"{one.code}-{one.name}" for one in AILMENTS])
def test_a_fault_of_the_host(host: tuple[Host, Doctor], before: set[str], tmp_path: Path, ailment: Ailment):
    made, doctor = host
    words, printed = made.words(tmp_path, ailment), ""
    assert ailment.code not in (doctor.codes(*words) if words else before)
    ailment.plant(made)
    try:
        printed = doctor.finding(ailment.code, *words).cure
    finally:
        ailment.cure(made, printed)
    until(lambda: ailment.code not in doctor.codes(*words), f"{ailment.code} is gone")
    made.restore()
