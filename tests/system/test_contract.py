"""The contract of a backend: every backend here keeps it, and a breach is named."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_type_hints

import pytest
from msgspec.structs import replace
from tests.amd import machines
from tests.amd.tree import write
from tests.nvml import Driver, gpus
from tests.system.breaches import BREACHES, Born, Plain, Unclosed
from tests.unit.backends import sysfs
from tests.unit.backends.host import Host
from tests.unit.backends.nvidia.drivers import installed, options

import fairlead
from fairlead.backends import registry
from fairlead.backends.paths.spec import FINDERS, Entry
from fairlead.kit.clock import SystemClock
from fairlead.library import backend_of
from fairlead.model.inventory import Findings
from fairlead.model.ports import Backend, Steers
from fairlead.testing import check_backend, contract


class Leds(fairlead.Plugin):
    resource = "example.com/led"

    def discover(self) -> Iterator[fairlead.Device]:
        yield fairlead.Device("led0")
        yield fairlead.Device("led1")

    def check(self, device: fairlead.Device) -> None: ...

    def wait_for(self) -> None: ...


class World(NamedTuple):
    """What a backend looks at, and what may happen in it."""

    make: Callable[[], Backend]
    unplug: Callable[[], object] | None = None
    plug: Callable[[], object] | None = None
    garbage: Callable[[], object] | None = None


@pytest.fixture(params=["sim", "paths", *FINDERS, "nvidia", "amd", "library"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    clock = SystemClock()
    if request.param == "nvidia":
        with installed(Driver(gpus=gpus("A100", 3)), tmp_path) as node:
            yield World(
                lambda: registry.open("nvidia", options(node), clock),
                unplug=lambda: node.become(replace(node.driver, gpus=node.driver.gpus[:2])),
                plug=lambda: node.become(replace(node.driver, gpus=gpus("A100", 3))),
            )
    elif request.param == "paths":
        ttys = [tmp_path / f"tty{number}" for number in range(2)]
        for tty in ttys:
            tty.touch()
        entry = {"devices": [{"paths": [f"{tmp_path}/tty*"], "allow": ["file"]}]}
        yield World(lambda: registry.open("paths", entry, clock), unplug=ttys[1].unlink, plug=ttys[1].touch)
    elif request.param in FILES:
        yield files_world(request.param, tmp_path)
    elif request.param in SYSFS:
        yield sysfs_world(request.param, tmp_path)
    elif request.param == "amd":
        whole, root = machines.mi210(), tmp_path / "amd"
        write(root, whole)
        yield World(
            lambda: registry.open("amd", {"hostRoot": str(root)}, clock),
            unplug=lambda: write(root, replace(whole, gpus=whole.gpus[:-1])),
            plug=lambda: write(root, whole),
            garbage=lambda: [path.write_bytes(b"\xff\0 garbage") for path in root.rglob("properties")],
        )
    elif request.param == "sim":
        yield sim_world()
    else:
        assert request.param == "library"
        yield World(lambda: backend_of(Leds(), "leds", clock))


def sim_world() -> World:
    """Its devices come and go by orders, which are given to the one that was made first."""
    made: list[Backend] = []

    def make() -> Backend:
        made.append(registry.open("sim", {"fleet": "h100x8"}, SystemClock()))
        return made[-1]

    def steer(order: str) -> None:
        assert isinstance(made[0], Steers)
        made[0].steer({"do": order, "device": "7"})

    return World(make, unplug=lambda: steer("unplug"), plug=lambda: steer("plug"))


# The finders of the paths backend, by what two devices of theirs are made of: plain files, or a whole sysfs. Of the
# latter, which entry goes when a device is unplugged, and the files that are garbage in the end.
FILES = frozenset({"bundle", "tree", "usb"})
SYSFS = {
    "pci": ("sys/bus/pci/devices/0000:02:00.0", "uevent"),
    "rdma": ("sys/class/infiniband/mlx5_2", "ibdev"),
    "sysfs": ("sys/class/tty/ttyUSB2", "uevent", "idVendor", "idProduct"),
}


def files_world(finder: str, root: Path) -> World:
    """Two devices that a finder of the paths backend sees."""
    ports = [root / f"sys/bus/usb/devices/3-{number}" for number in (1, 2)]
    nodes = [root / f"dev/bus/usb/003/00{number}" for number in (1, 2)]
    for number, (port, node) in enumerate(zip(ports, nodes, strict=True), 1):
        for folder in (port, node.parent, root / f"dev/snd{number}"):
            folder.mkdir(parents=True, exist_ok=True)
        facts = {"idVendor": "1050", "idProduct": "0407", "serial": str(number), "busnum": "3", "devnum": str(number)}
        for name, text in facts.items():
            (port / name).write_text(f"{text}\n")
        node.touch()
    path = {"path": "/dev/bus/usb/*/*", "type": "Mount"}
    entries: dict[str, Any] = {
        "bundle": {"allow": ["file"], "bundle": {"name": "any", "groups": [{"count": 2, "paths": [path]}]}},
        "tree": {"allow": ["directory"], "tree": {"matches": [{"match": "^snd[0-9]$", "count": 3}]}},
        "usb": {"allow": ["file"], "usb": {"vendor": "1050", "product": "0407"}},
    }
    removed = {"bundle": nodes[1], "tree": root / "dev/snd2", "usb": ports[1]}[finder]
    away = root / "away"
    options = {"hostRoot": str(root), "devices": [entries[finder]]}
    return World(
        lambda: registry.open("paths", options, SystemClock()),
        unplug=lambda: removed.rename(away),
        plug=lambda: away.rename(removed),
        garbage=lambda: [path.write_bytes(b"\xff\0 garbage") for path in root.rglob("idVendor")],
    )


def sysfs_world(finder: str, root: Path) -> World:
    """Two devices that a finder sees in a made-up sysfs. What is left out must be named: no entry lists it as ill."""
    host = Host(root)
    functions = [sysfs.function(host, f"0000:0{number}:00.0", "15B3:101B") for number in (1, 2)]
    for number, function in enumerate(functions, 1):
        sysfs.adapter(host, function, f"mlx5_{number}", number, {"1": "4: ACTIVE"})
        converter = sysfs.usb(host, f"1-{number}", serial=f"A{number}")
        sysfs.node(host, f"{converter}/1-{number}:1.0/x", "tty", f"ttyUSB{number}")
    entries: dict[str, Any] = {
        "pci": {"pci": {"vendor": "15b3"}},
        "rdma": {"rdma": {}, "optional": True},
        "sysfs": {"sysfs": {"class": "tty", "vendor": "0403", "serial": "A*"}},
    }
    removed = root / SYSFS[finder][0]
    away = root / "away"
    options = {"hostRoot": str(root), "devices": [{"allow": ["file"], **entries[finder]}]}
    return World(
        lambda: registry.open("paths", options, SystemClock()),
        unplug=lambda: removed.rename(away),
        plug=lambda: away.rename(removed),
        garbage=lambda: [
            path.write_bytes(b"\xff\0 garbage")
            for name in SYSFS[finder][1:]
            for path in (root / "sys/devices").rglob(name)
        ],
    )


async def test_every_backend_keeps_the_contract(world: World) -> None:
    assert await check_backend(world.make, unplug=world.unplug, plug=world.plug, garbage=world.garbage) == []


async def test_one_that_is_open_already_keeps_the_contract(world: World) -> None:
    assert await check_backend(world.make()) == []


def test_every_kind_of_backend_is_under_the_contract() -> None:
    own = {kind for kind, module in registry._OWN.items() if module.startswith("fairlead.")}  # tests add others
    assert own == {"sim", "paths", "nvidia", "amd"}


def test_every_finder_of_the_paths_backend_is_under_the_contract() -> None:
    ways = {name for name, kind in get_type_hints(Entry).items() for one in get_args(kind) if hasattr(one, "patterns")}
    assert ways == set(FINDERS) == FILES | SYSFS.keys()


@pytest.mark.parametrize(("kind", "words"), BREACHES)
async def test_a_breach_is_named(kind: type[Any], words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contract, "_PATIENCE_S", 0.01)
    monkeypatch.setattr(contract, "_BLOCKED_S", 0.1)
    Born.born = 0
    broken = await check_backend(kind, deadline_s=0.1)
    for end in Unclosed.left:
        end()
    assert any(sentence.startswith(words) for sentence in broken), broken
    rule = words.partition(":")[0]
    assert any(sentence.endswith(contract.RULES[rule]) for sentence in broken), broken  # the cure


@pytest.mark.parametrize("found", ["ab", "a", "ac"])
async def test_hot_plug_is_checked_with_the_authors_own_hooks(found: str) -> None:
    """Found after the device was taken away, and after it came back."""
    backend = Plain()
    hooks = iter([found, "ab" if found == "ab" else "ax"])

    def turn() -> None:
        backend.ids = next(hooks)

    (breach,) = await check_backend(backend, unplug=turn, plug=turn)
    assert breach.startswith("hot-plug: ")


async def test_a_device_that_garbage_hides_must_be_told() -> None:
    class Hiding(Plain):
        problems: tuple[str, ...] = ()

        async def discover(self) -> Findings:
            return replace(await super().discover(), problems=self.problems)

    backend = Hiding()

    def damage() -> None:
        backend.ids = "a"

    (breach,) = await check_backend(backend, garbage=damage)
    assert breach.startswith("garbage: b are not found any more, and no problem says why")
    backend.ids, backend.problems = "ab", ("b cannot be read",)
    assert await check_backend(backend, garbage=damage) == []


def test_every_rule_has_a_backend_that_breaks_it_and_is_in_the_guide() -> None:
    tried = {words.partition(":")[0] for _, words in BREACHES} | {"hot-plug", "garbage"}
    assert tried == set(contract.RULES)
    guide = (Path(__file__).parents[2] / "docs/guide/testing-your-plugin.md").read_text()
    for rule, cure in contract.RULES.items():
        assert f"| `{rule}` | {cure}. |" in guide


@pytest.mark.parametrize("how", [Plain, Plain()])
async def test_the_least_that_a_backend_can_be_keeps_the_contract(how: Any) -> None:
    assert await check_backend(how) == []
