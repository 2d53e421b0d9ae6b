"""The contract of a backend: every backend here keeps it, and a breach is named."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace
from tests.amd import machines
from tests.amd.tree import write
from tests.nvml import Driver, gpus
from tests.unit.backends.nvidia.drivers import installed, options

import fairlead
from fairlead.backends import registry
from fairlead.kit.clock import SystemClock
from fairlead.library import backend_of
from fairlead.model.device import Device
from fairlead.model.edits import Edits, Grant
from fairlead.model.health import Cause, CauseKind
from fairlead.model.inventory import Findings
from fairlead.model.names import DeviceId
from fairlead.model.ports import Backend, Sink
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


@pytest.fixture(params=["sim", "paths", "bundle", "tree", "usb", "nvidia", "amd", "library"])
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
    elif request.param in {"bundle", "tree", "usb"}:
        yield files_world(request.param, tmp_path)
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
        yield World(lambda: registry.open("sim", {"fleet": "h100x8"}, clock))
    else:
        yield World(lambda: backend_of(Leds(), "leds", clock))


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


async def test_every_backend_keeps_the_contract(world: World) -> None:
    assert await check_backend(world.make, unplug=world.unplug, plug=world.plug, garbage=world.garbage) == []


async def test_one_that_is_open_already_keeps_the_contract(world: World) -> None:
    assert await check_backend(world.make()) == []


def test_every_kind_of_backend_is_under_the_contract() -> None:
    own = {kind for kind, module in registry._OWN.items() if module.startswith("fairlead.")}  # tests add others
    assert own == {"sim", "paths", "nvidia", "amd"}


class Plain:
    """The least that a backend can be; each below breaks one rule."""

    name: Any = "plain"
    ids: Any = "ab"

    async def discover(self) -> Findings:
        return Findings(tuple(Device(DeviceId(one)) for one in self.ids))


class Nameless(Plain):
    name = None


class NotAsync(Plain):
    def probe(self, device: Device) -> None: ...


class AsyncEdits(Plain):
    async def edits(self, grant: Grant) -> Edits:
        return Edits()


class WrongTurn(Plain):
    one_at_a_time = "yes"

    async def probe(self, device: Device) -> None: ...


class Failing(Plain):
    async def discover(self) -> Findings:
        raise OSError("no bus")


class Slow(Plain):
    async def discover(self) -> Findings:
        await asyncio.Event().wait()
        raise AssertionError


class Odd(Plain):
    async def discover(self) -> Findings:
        return None  # type: ignore[return-value]  # the point


class Empty(Plain):
    ids = ""


class Twins(Plain):
    ids = "aa"


class Spaced(Plain):
    ids = ("a b",)


class Endless(Plain):
    ids = ("x" * 64,)


class Counting(Plain):
    scans = 0

    async def discover(self) -> Findings:
        self.scans += 1
        return Findings((Device(DeviceId(f"a{self.scans}")),))


class Born(Plain):
    """Whose ids are made when it is opened."""

    born = 0

    def __init__(self) -> None:
        Born.born += 1
        self.ids = (f"a{Born.born}",)


class Shuffled(Plain):
    async def discover(self) -> Findings:
        self.ids = self.ids[::-1]
        return await super().discover()


class Warm(Plain):
    scans = 0

    async def discover(self) -> Findings:
        self.scans += 1
        return Findings((Device(DeviceId("a"), attributes={"temperature": str(self.scans)}),))


class Unsayable(Plain):
    async def discover(self) -> Findings:
        return Findings((Device(DeviceId("a")), Device(DeviceId("b"), model="\ud800")))


class Verbose(Plain):
    async def discover(self) -> Findings:
        return Findings((Device(DeviceId("a"), model="x" * 5000),))


class Forgetful(Plain):
    async def probe_all(self, devices: Sequence[Device]) -> Mapping[DeviceId, Cause | None]:
        return {devices[0].id: None}


class Ill(Plain):
    async def probe(self, device: Device) -> Cause | None:
        return Cause("smoke", CauseKind.NEEDS_RESET) if device.id == "b" else None


class Stubborn(Plain):
    """Well, until it is asked a second time."""

    rounds = 0

    async def probe_all(self, devices: Sequence[Device]) -> Mapping[DeviceId, Cause | None]:
        self.rounds += 1
        cause = Cause("smoke", CauseKind.NEEDS_RESET) if self.rounds > 1 else None
        return {device.id: cause for device in devices}


class ShortWatch(Plain):
    async def watch(self, sink: Sink) -> None: ...


async def stay() -> None:
    """For half a second, whoever cancels it."""
    done = asyncio.Event()
    asyncio.get_running_loop().call_later(0.5, done.set)
    while not done.is_set():
        try:
            await done.wait()
        except asyncio.CancelledError:
            continue


class DeafWatch(Plain):
    async def watch(self, sink: Sink) -> None:
        await stay()


class DeafScan(Plain):
    scans = 0

    async def discover(self) -> Findings:
        self.scans += 1
        if self.scans > 2:
            await stay()
        return await super().discover()


class Blocking(Plain):
    async def discover(self) -> Findings:
        time.sleep(0.2)  # noqa: ASYNC251 - the point
        return await super().discover()


class Mute(Plain):
    async def wait_for(self) -> None: ...


class Blind(Plain):
    async def signs(self, devices: Sequence[Device]) -> dict[DeviceId, dict[str, Any]]:
        return {}


class Raising(Plain):
    async def signs(self, devices: Sequence[Device]) -> dict[DeviceId, dict[str, Any]]:
        raise OSError("the driver is gone")


class Waiting(Plain):
    async def wait_for(self) -> str:
        await asyncio.Event().wait()
        return ""


class Lost(Plain):
    def reopen(self) -> None:
        self.ids = "a"


class Changing(Plain):
    edited = 0

    def edits(self, grant: Grant) -> Edits:
        self.edited += 1
        return Edits(env={"N": str(self.edited)})


class Reading(Plain):
    def edits(self, grant: Grant) -> Edits:
        return Edits(env={"HOST": Path("/proc/self/comm").read_text()})


class Lazy(Plain):
    def edits(self, grant: Grant) -> Edits:
        time.sleep(0.1)
        return Edits()


class Wrong(Plain):
    def edits(self, grant: Grant) -> Edits:
        return {}  # type: ignore[return-value]  # the point


class Unclosed(Plain):
    """Leaves a thread, a task and a descriptor."""

    left: list[Callable[[], object]] = []

    async def discover(self) -> Findings:
        over = threading.Event()
        threading.Thread(target=over.wait, name="unclosed", daemon=True).start()
        task = asyncio.create_task(asyncio.Event().wait(), name="unended")
        file = Path("/dev/zero").open("rb")  # noqa: ASYNC230, SIM115 - the point
        self.left += over.set, task.cancel, file.close
        return await super().discover()


class Breaking(Plain):
    async def close(self) -> None:
        raise OSError("stuck")


BREACHES: list[tuple[type[Any], str]] = [
    (Nameless, "ports: name is None"),
    (NotAsync, "ports: probe is no coroutine"),
    (AsyncEdits, "ports: edits is a coroutine"),
    (WrongTurn, "ports: one_at_a_time is 'yes', not a bool"),
    (Failing, "scan: discover: OSError: no bus"),
    (Slow, "scan: discover: the scan has not answered in 0.1 s"),
    (Odd, "scan: discover: discover gave None, not findings"),
    (Empty, "devices: discover found none"),
    (Twins, "ids: a is given twice"),
    (Spaced, "ids: slot id 'a b': it holds a space"),
    (Endless, "ids: slot id 'xxx"),
    (Counting, "stable-ids: a second scan found a2, not a1"),
    (Born, "stable-ids: a second backend of the same options found a2, not a1"),
    (Shuffled, "order: a second scan found a, b, in another order than b, a"),
    (Warm, "stable-facts: a second scan found a with another attributes"),
    (Unsayable, "bounds: b: left out, because an id, a path or another text of them is not valid UTF-8"),
    (Verbose, "bounds: a: left out, because an id, a path or another text of them has over 4,096 characters"),
    (Forgetful, "health: probe of b: the backend gave no answer"),
    (Ill, "health: b should be well, and is unhealthy: smoke"),
    (Stubborn, "health: a does not come back after a fault"),
    (ShortWatch, "watch: watch ended: it returned"),
    (DeafWatch, "watch: watch does not end within"),
    (DeafScan, "deadline: discover does not end within"),
    (Blocking, "blocking: the event loop stood still for 0.1 s at "),
    (Mute, "wait-for: wait_for gave None, not a text"),
    (Blind, "signs: a is left out"),
    (Raising, "signs: signs: OSError: the driver is gone"),
    (Waiting, "wait-for: wait_for has not answered in 0.1 s"),
    (Lost, "reopen: the scan after it found a, not a, b"),
    (Changing, "edits: two answers for one grant differ"),
    (Reading, "edits: edits has used the host: open /proc/self/comm"),
    (Lazy, "edits: edits took 0.1 s for 1 devices"),
    (Wrong, "edits: edits: edits gave {}, not Edits"),
    (Unclosed, "closing: left behind: thread unclosed, task unended, descriptor /dev/zero"),
    (Breaking, "closing: close: OSError: stuck"),
]


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
