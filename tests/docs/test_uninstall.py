"""What an uninstall leaves is on the page about operating: all that the code can write, and nothing else."""

from __future__ import annotations

import ast
import asyncio
import re
from pathlib import Path

import yaml
from tests.chart.rights import FEATURE_NAMES
from tests.docs.blocks import ROOT

from fairlead.app.daemon import Daemon
from fairlead.app.questions import itself
from fairlead.app.start import journal_on_disk
from fairlead.backends.nvidia.spec import Cdi
from fairlead.cluster.rbac import FEATURES
from fairlead.config.load import parse
from fairlead.config.spec import KubeletSpec, LogSpec, StatusSpec
from fairlead.dialects.gke import command as gke
from fairlead.dialects.nvidia.flags import LABEL_FLAGS
from fairlead.dialects.volcano import command as volcano
from fairlead.fronts.nodestatus.amounts import SIGNED
from fairlead.kit.clock import SystemClock
from fairlead.model.names import ResourceName
from fairlead.observe.journal import Journal
from fairlead.policy.offering.units import UNITS
from fairlead.policy.packing import told
from fairlead.programs.labels import catalogue, outputs
from fairlead.programs.labels.amd import catalogue as amd
from fairlead.wire import deviceplugin as dp
from fairlead.wire.rpc import Channel

SECTION = (ROOT / "docs/guide/operating.md").read_text().partition("## After an uninstall\n")[2].partition("\n## ")[0]
OWN_FILES, ELSEWHERE, CLUSTER = (
    [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]
    for table in re.findall(r"(?:^\|.*\n)+", SECTION, re.MULTILINE)
)
SOURCES = ROOT / "src/fairlead"
# Those of a command that a person runs, and of tests: no pod and no service has them.
NOT_DEPLOYED = ("standin/", "testing/", "cli/")
# Who writes files -> a name of the page. Empty: it is gone when the program ends.
WRITERS = {
    "app/entry.py": "",  # the plugin directory itself, which is the kubelet's
    "app/nodeconfig.py": ".<instance>.config",
    "backends/nvidia/mps/daemon.py": "/run/nvidia/mps/",
    "backends/specdirectory.py": "/var/run/cdi/<vendor>-<class>.json",
    "engine/cleanup.py": ".fairlead.unclean",
    "engine/cordons.py": ".fairlead.cordons",
    "engine/lastinventory.py": ".fairlead.inventory",
    "engine/unitfile.py": ".<domain>_<name>-<sum>.unit",
    "fronts/deviceplugin/endpoint.py": "",  # a socket
    "fronts/handover.py": "",  # a socket in a directory of its own
    "fronts/sockets.py": ".fairlead.lock",
    "kit/files.py": "",  # writes for the others
    "observe/control.py": "/run/fairlead/",
    "observe/journalfile.py": "/var/lib/fairlead/<name>.journal",
    "observe/recordingfile.py": "record.file",
    "programs/configmanager.py": "",  # a link in a volume of its pod
    "programs/hostservice/place.py": "/etc/systemd/system/fairlead.service",
    "programs/labels/outputs.py": "/etc/kubernetes/node-feature-discovery/features.d/gfd",
    "programs/mpsdaemon.py": "/run/nvidia/mps/",
}
PATIENCE_S = 40.0
EVERYTHING = """
backends: [{{kind: sim, fleet: {{devices: [{{count: 2, vendor: nvidia, memory: 4GiB}}]}}}}]
rules:
  - {{match: {{index: 0}}, resource: example.com/gpu, cleanup: {{command: [/bin/true]}}}}
  - {{resource: example.com/gpu-memory, memory: {{unit: 1GiB}}}}
kubelet: {{directory: {root}/dp, podResources: {root}/none.sock}}
status: {{socket: {root}/run/fl.sock}}
log: {{directory: {root}/state}}
record: {{file: {root}/state/flight.rec}}
"""


def names(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def fits(shown: str, name: str) -> bool:
    parts = re.split(r"<[^>]+>", shown)
    return re.fullmatch(".+".join(map(re.escape, parts)), name) is not None


async def use(daemon: Daemon) -> None:
    """Has a device cordoned, and another given to a container."""
    async with asyncio.timeout(PATIENCE_S):
        while not daemon.is_settled:  # noqa: ASYNC110 - the daemon has no event for it
            await asyncio.sleep(0.01)
    await daemon.questions.cordon({"device": "1", "reason": "fan is replaced"}, itself())
    endpoint = daemon.supervisor.endpoints[ResourceName("example.com/gpu")]
    channel = await Channel.connect(str(endpoint.socket), timeout_s=PATIENCE_S)
    asked = dp.AllocateRequest((dp.ContainerAllocateRequest((endpoint.resource.slots[0].id,)),))
    await channel.unary(dp.ALLOCATE, asked, timeout_s=PATIENCE_S)
    await channel.close()


async def test_a_daemon_that_ended_leaves_what_the_page_lists(kubelet_root: Path):
    (kubelet_root / "state").mkdir()
    loaded = parse(EVERYTHING.format(root=kubelet_root), "test")
    clock, disk = SystemClock(), journal_on_disk(loaded)
    assert disk is not None
    daemon = Daemon(loaded, clock=clock, journal=Journal(clock, disk=disk))
    task = asyncio.create_task(daemon.run())
    try:
        await use(daemon)
    finally:
        daemon.stop()
        await asyncio.wait_for(task, PATIENCE_S)
        disk.close()

    left = {f"{path.name}/" if path.is_dir() else path.name for path in (kubelet_root / "dp").iterdir()}
    rows = [names(row[0]) for row in OWN_FILES]
    assert [name for name in left if not any(fits(shown, name) for row in rows for shown in row)] == []
    unseen = [row[0] for row in rows if not any(fits(shown, name) for shown in row for name in left)]
    assert unseen == [".<instance>.config"]  # needs an API server: tests/system/test_nodeconfig.py
    assert list((kubelet_root / "run").iterdir()) == []
    assert {path.name for path in (kubelet_root / "state").iterdir()} == {"fl.journal", "flight.rec"}


def test_every_module_that_writes_files_is_known():
    """A new one belongs into WRITERS, and on the page if what it writes outlasts it."""
    found = {
        name
        for path in SOURCES.rglob("*.py")
        if not (name := path.relative_to(SOURCES).as_posix()).startswith(NOT_DEPLOYED) and writes(path)
    }
    assert found == set(WRITERS)
    shown = {name for row in OWN_FILES + ELSEWHERE for name in names(row[0])}
    assert {name for name in WRITERS.values() if name} <= shown


def writes(path: Path) -> bool:
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(attr="O_CREAT" | "symlink_to" | "touch" | "mkdir" | "mkdtemp" | "write_text"):
                return True
            case ast.Attribute(value=ast.Name(id="files"), attr="replace"):
                return True
            case ast.ImportFrom(module="fairlead.wire.unix", names=imported) if "listen" in {n.name for n in imported}:
                return True
            case ast.Call(func=ast.Attribute(attr="open"), args=[*_, ast.Constant(value=str(mode))]):
                if set(mode) & set("wxa"):
                    return True
    return False


def test_the_default_places_are_those_of_the_code():
    shown = {name for row in ELSEWHERE for name in names(row[0])}
    (labels,) = [flag.default for flag in LABEL_FLAGS if flag.name == "output-file"]
    values = yaml.safe_load((ROOT / "deploy/chart/values.yaml").read_text())
    assert f"`{KubeletSpec().directory}`" in SECTION
    assert {
        f"{Path(StatusSpec().socket).parent}/",
        f"{LogSpec().directory}/<name>.journal",
        f"{Cdi().directory}/<vendor>-<class>.json",
        f"{values['mps']['root']}/",
        str(labels),
    } <= shown


def test_directories_that_the_kubelet_makes_for_a_pod_are_listed():
    """`type: DirectoryOrCreate` of a mount leaves a directory on every node that the pod came to."""
    values = yaml.safe_load((ROOT / "deploy/chart/values.yaml").read_text())
    text = (ROOT / "deploy/chart/templates/_facts.tpl").read_text() + (
        ROOT / "deploy/chart/templates/mps.yaml"
    ).read_text()
    made = re.findall(r".*DirectoryOrCreate", text)
    places = {
        ".mps.root": values["mps"]["root"],
        "gke.configDir": values["gke"]["configDir"],
        "amd.exporterDir": values["amd"]["exporterDir"],
        "Values.amd.exporterDir": values["amd"]["exporterDir"],
        "/var/run/cdi": Cdi().directory,
        '"host" $directory': Cdi().directory,
    }
    for line in made:
        (place,) = {value for words, value in places.items() if words in line}
        assert any(name.startswith(f"{place}/") for row in ELSEWHERE for name in names(row[0])), line


def test_every_feature_that_writes_to_the_cluster_is_listed():
    writing = {
        feature
        for feature, name in FEATURE_NAMES.items()
        if any({"create", "patch", "update"} & set(rule.verbs) for rule in FEATURES[name])
    }
    listed = {name for row in CLUSTER for name in names(row[1]) if name in FEATURE_NAMES}
    assert listed == writing


def test_names_on_nodes_are_those_of_the_code():
    shown = {name for row in CLUSTER for name in names(row[0])}
    assert {
        f"{SIGNED}<instance>",
        f"{UNITS}<instance>",
        f"{told.PREFIX}<domain>_<name>",
        outputs.OWNED,
        f"{catalogue.PREFIX}<name>",
        f"{amd.PREFIX}<name>",
        f"{amd.BETA}<name>",
    } <= shown
    environ = {"NODE_NAME": "node"}
    healthy = gke.read_command_line(["-enable-health-monitoring"], environ).translate().config["cluster"]
    shared = volcano.read_command_line([], environ).translate().config["cluster"]
    by_dialect = {name for row in CLUSTER for name in names(row[1])}
    assert {healthy["condition"]["type"], shared["unhealthy"]} <= by_dialect


def test_nothing_of_a_release_asks_helm_to_keep_it():
    chart = ROOT / "deploy/chart"
    assert not (chart / "crds").exists()
    templates = [*chart.glob("templates/*"), *(ROOT / "deploy/manifests").glob("*.yaml")]
    assert not [path.name for path in templates if "helm.sh/resource-policy" in path.read_text()]
    assert not [path.name for path in templates if "helm.sh/hook" in path.read_text()]
