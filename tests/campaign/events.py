"""What can go wrong, as data: a seed gives a list of events, a file holds one, and either can be played again."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from dataclasses import asdict, dataclass

# How often each kind comes, relative to the others.
WEIGHTS = {
    # the kubelet
    "kubelet-restart": 5,
    "kubelet-stop": 2,
    "kubelet-start": 3,
    "kubelet-reboot": 1,
    "stream-eof": 6,
    # sockets
    "wipe-sockets": 3,
    "remove-socket": 4,
    "replace-socket": 3,
    "remove-kubelet-socket": 1,
    "replace-kubelet-socket": 1,
    # registration
    "refuse-register": 3,
    "never-dial": 2,
    "never-stream": 2,
    "other-version": 2,
    "restart-on-register": 2,
    "slow-reader": 2,
    "register-heals": 8,
    # time
    "wall-forward": 2,
    "wall-back": 2,
    "time-passes": 4,
    # devices
    "fail": 14,
    "clear": 8,
    "flap": 4,
    "recover": 5,
    "recover-silently": 2,
    "unplug": 6,
    "plug": 7,
    "plug-new": 2,
    # backends
    "probe-hangs": 3,
    "probe-slow": 2,
    "scan-fails": 3,
    "scan-hangs": 2,
    "backend-heals": 6,
    "prepare-fails": 1,
    "prepare-hangs": 1,
    "prepare-heals": 3,
    # configuration and signals
    "config-good": 7,
    "config-bad": 3,
    "config-gone": 1,
    "hangup": 3,
    "daemon-restart": 2,
    "daemon-killed": 3,
    "other-registration": 3,
    # pods
    "pod-comes": 14,
    "pod-goes": 8,
    "pod-ends": 3,
    "container-restarts": 4,
    # people
    "status": 2,
}
QUIET = "quiet"
# After these another daemon runs.
ENDINGS = frozenset({"daemon-restart", "daemon-killed", "other-registration"})
# Events between two quiets. A few: what one fault does is not mended by the next. Many: faults meet.
SPELLS = (2, 5, 15, 60, 100)


@dataclass(frozen=True, slots=True)
class Event:
    kind: str
    n: int = 0  # which one, of whatever there is to choose from
    gap_s: float = 0.0  # what passes before the next event; 0: nothing, not even a turn of the loop

    def __str__(self) -> str:
        return f"{self.kind} n={self.n} then {self.gap_s:g} s"


def generate(seed: int, count: int) -> list[Event]:
    """The same seed gives the same list; a longer one begins with the shorter."""
    rng = random.Random(f"campaign {seed}")
    kinds, weights = list(WEIGHTS), list(WEIGHTS.values())
    events: list[Event] = []
    left = rng.choice(SPELLS)
    for _ in range(count):
        kind = rng.choices(kinds, weights)[0]
        gap_s = rng.choices(
            (0.0, 0.001, rng.uniform(0.01, 0.3), rng.uniform(0.5, 12.0), rng.uniform(20.0, 90.0)), (30, 32, 22, 14, 2)
        )[0]
        events.append(Event(kind, rng.randrange(1 << 30), round(gap_s, 4)))
        left -= 1
        if not left:
            events.append(Event(QUIET))
            left = rng.choice(SPELLS)
    return events if events and events[-1].kind == QUIET else [*events, Event(QUIET)]


def write(events: Iterable[Event]) -> str:
    return "".join(json.dumps(asdict(event)) + "\n" for event in events)


def read(text: str) -> list[Event]:
    return [Event(**json.loads(line)) for line in text.splitlines() if line.strip() and not line.startswith("#")]
