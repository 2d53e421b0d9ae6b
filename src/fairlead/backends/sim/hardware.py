"""The simulated hardware: what is plugged in and what is wrong with it, and the orders that change it.

Knows no time, no task and no sink: an order gives an `Outcome`, and the backend reports it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct, field
from msgspec.structs import replace

from fairlead.backends.sim import spec
from fairlead.backends.sim.build import Built, build
from fairlead.backends.sim.xids import cause_of
from fairlead.kit.decoding import did_you_mean
from fairlead.model.device import Device
from fairlead.model.errors import UsageError
from fairlead.model.health import Cause, CauseKind
from fairlead.model.inventory import Findings, Links
from fairlead.model.names import DeviceId


class Card(Struct):
    """A device and its present state."""

    device: Device
    plugged: bool = True
    faults: dict[str, Cause] = field(default_factory=dict)
    probe_takes_s: float = 0.0
    hung: bool = False

    def heal(self) -> None:
        self.faults.clear()
        self.probe_takes_s, self.hung = 0.0, False


class Outcome(Struct, frozen=True):
    """What an order did: one line for people, and what the backend has to report."""

    line: str
    faults: tuple[tuple[DeviceId, Cause], ...] = ()
    clears: tuple[tuple[DeviceId, str | None], ...] = ()
    rescan: bool = False
    later: tuple[tuple[float, DeviceId, spec.AnyOrder], ...] = ()  # seconds from now: turns of a flapping device
    healed: frozenset[DeviceId] = frozenset()  # turns still to come for these are off


class Hardware:
    def __init__(self, built: Built, fleet: str) -> None:
        self.fleet = fleet
        self.scan_error = ""
        self.scan_takes_s = 0.0
        self._cards: dict[DeviceId, Card] = {}
        self._wholes: dict[DeviceId, Device] = {}
        self._scores: dict[tuple[DeviceId, DeviceId], int] = {}
        self._findings: Findings | None = None
        self._join(built)

    def findings(self) -> Findings:
        """What a scan sees. One object until something is plugged or unplugged: the matrix is not built again."""
        if self._findings is None:
            devices = tuple(card.device for card in self._cards.values() if card.plugged)
            seen = {device.id for device in devices}
            scores = {pair: score for pair, score in self._scores.items() if seen.issuperset(pair)}
            self._findings = Findings(devices, Links(scores))
        return self._findings

    def card(self, device: DeviceId) -> Card | None:
        return self._cards.get(device)

    def faults(self) -> Iterator[tuple[DeviceId, Cause]]:
        """Every fault that stands, for a watcher that joins late."""
        for card in self._cards.values():
            if card.plugged:
                yield from ((card.device.id, cause) for cause in card.faults.values())

    def carry_out(self, order: spec.AnyOrder) -> Outcome:
        """UsageError for an order that makes no sense now; nothing has changed then."""
        match order:
            case spec.Fail():
                return self._fail(order)
            case spec.Flap():
                return self._flap(order)
            case spec.Clear():
                return self._clear(order)
            case spec.Recover():
                return self._recover(order)
            case spec.Unplug():
                return self._unplug(order)
            case spec.Plug():
                return self._plug(order)
            case spec.Slow():
                cards = self._find(order.device)
                for card in cards:
                    card.probe_takes_s = order.takes
                return Outcome(f"{_named(cards)}: probes take {order.takes:g} s")
            case spec.Hang():
                cards = self._find(order.device)
                for card in cards:
                    card.hung = True
                return Outcome(f"{_named(cards)}: probes do not answer")
            case spec.ScanError():
                self.scan_error = order.message
                return Outcome(f"scans fail: {order.message}", rescan=True)
            case spec.ScanSlow():
                self.scan_takes_s = order.takes
                return Outcome(f"scans take {order.takes:g} s", rescan=True)

    def _fail(self, order: spec.Fail) -> Outcome:
        cards, cause = self._find(order.device), _cause(order)
        for card in cards:
            card.faults[cause.code] = cause
        reported = tuple((card.device.id, cause) for card in cards if card.plugged)
        return Outcome(f"{_named(cards)} fails: {cause} ({cause.kind.value})", faults=reported)

    def _flap(self, order: spec.Flap) -> Outcome:
        cards, cause = self._find(order.device), _cause(order)
        later: list[tuple[float, DeviceId, spec.AnyOrder]] = []
        for turn in range(order.times):
            for card in cards:
                device = card.device.id
                fail = spec.Fail(device=device, code=cause.code, kind=cause.kind, message=cause.message)
                later.append((turn * order.every, device, fail))
                later.append(((turn + 0.5) * order.every, device, spec.Clear(device=device, code=cause.code)))
        line = f"{_named(cards)} fails and clears {order.times} times, every {order.every:g} s: {cause}"
        return Outcome(line, later=tuple(later))

    def _clear(self, order: spec.Clear) -> Outcome:
        cards = self._find(order.device)
        code = cause_of(order.xid).code if order.xid is not None else order.code or None
        for card in cards:
            if code is None:
                card.faults.clear()
            else:
                card.faults.pop(code, None)
        clears = tuple((card.device.id, code) for card in cards)
        return Outcome(f"{_named(cards)}: {code or 'every fault'} is cleared", clears=clears)

    def _recover(self, order: spec.Recover) -> Outcome:
        if order.device is None:
            cards = list(self._cards.values())
            rescan = bool(self.scan_error or self.scan_takes_s)
            self.scan_error, self.scan_takes_s = "", 0.0
            line = "everything is well again"
        else:
            cards, rescan = self._find(order.device), False
            line = f"{_named(cards)} is well again"
        clears = () if order.silent else tuple((card.device.id, None) for card in cards)
        for card in cards:
            card.heal()
        line += ", and nothing was reported" if order.silent else ""
        return Outcome(line, clears=clears, rescan=rescan, healed=frozenset(card.device.id for card in cards))

    def _unplug(self, order: spec.Unplug) -> Outcome:
        cards = self._find(order.device)
        if not any(card.plugged for card in cards):
            return Outcome(f"{_named(cards)} is unplugged already")
        for card in cards:
            card.plugged = False
        self._findings = None
        return Outcome(f"{_named(cards)} is unplugged", rescan=True)

    def _plug(self, order: spec.Plug) -> Outcome:
        if (order.device is None) == (order.new is None):
            raise UsageError("plug: name the device that comes back, or give new ones under 'new'")
        if order.new is not None:
            return self._plug_new(order.new)
        assert order.device is not None
        cards = self._find(order.device)
        if all(card.plugged for card in cards):
            return Outcome(f"{_named(cards)} is plugged in already")
        # A device that was pulled and comes back went through a reset: its faults are over.
        clears = tuple((card.device.id, None) for card in cards if card.faults)
        for card in cards:
            card.plugged = True
            card.heal()
        self._findings = None
        return Outcome(f"{_named(cards)} is plugged in", clears=clears, rescan=True)

    def _plug_new(self, group: spec.Group) -> Outcome:
        # Numbers go on behind all devices ever seen, so ids and indexes stay unique.
        first = len({card.device.parent or card.device.id for card in self._cards.values()})
        built = build((group,), self.fleet, "plug", first=first, at="new")
        for device in (*built.devices, *built.wholes):
            if device.id in self._cards or device.id in self._wholes:
                raise UsageError(f"plug: a device {device.id!r} exists already; give the new one another id")
        self._join(built)
        return Outcome(f"{_named([self._cards[device.id] for device in built.devices])} is plugged in", rescan=True)

    def _join(self, built: Built) -> None:
        self._cards |= {device.id: Card(device) for device in built.devices}
        self._wholes |= {device.id: device for device in built.wholes}
        self._scores |= built.scores or {}
        self._findings = None

    def _find(self, ref: spec.DeviceRef) -> list[Card]:
        """The card a person means by an id, an index or the beginning of an id. A partitioned device: all its parts."""
        text = str(ref)
        known = {card.device.id: card.device for card in self._cards.values()} | self._wholes
        found = [known[DeviceId(text)]] if text in known else [one for one in known.values() if one.index == text]
        found = found or [one for one in known.values() if one.id.startswith(text)]
        if not text or not found:
            hint = did_you_mean(text, (one.index for one in known.values()), also=known)
            raise UsageError(f"no device {text!r}{hint}")
        if len(found) > 1:
            names = [one.id for one in found]
            raise UsageError(f"{text!r} fits {len(found)} devices: {', '.join(names[:4])}. Use more of the id")
        whole = found[0].id
        return [card for card in self._cards.values() if whole in {card.device.id, card.device.parent}]


def _cause(order: spec.Fault) -> Cause:
    if order.xid is not None and order.code:
        raise UsageError("fail: give an xid or a code, not both")
    cause = Cause(order.code or "sim-fault", CauseKind.NEEDS_RESET) if order.xid is None else cause_of(order.xid)
    return replace(cause, kind=order.kind or cause.kind, message=order.message or cause.message)


def _named(cards: Iterable[Card]) -> str:
    names = [f"{card.device.index} ({card.device.id})" for card in cards]
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
