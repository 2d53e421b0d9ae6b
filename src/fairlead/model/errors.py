"""The error tree. One root, one branch per party at fault; each says what, which one, and what to do."""

from __future__ import annotations

from collections.abc import Iterable


class FairleadError(Exception):
    """Anything Fairlead can explain. A command prints it as one line and exits with `exit_code`."""

    exit_code = 1


class UsageError(FairleadError):
    """The command or the library was called with something that cannot work."""

    exit_code = 2


class InvalidName(UsageError):
    """A name from outside that a rule forbids."""

    def __init__(self, kind: str, text: str, reason: str) -> None:
        super().__init__(f"{kind} {text!r}: {reason}")
        self.kind, self.text, self.reason = kind, text, reason


class InvalidQuantity(UsageError):
    """An amount from outside that is none."""

    def __init__(self, text: str, reason: str) -> None:
        shown = text if len(text) <= 64 else f"{text[:61]}..."
        super().__init__(f"amount {shown!r}: {reason}")
        self.text, self.reason = text, reason


PROBLEMS_MAX = 100  # faults that one error names
PROBLEM_MAX = 2000  # characters of one fault: what is quoted in it may be as long as the file


class ConfigError(UsageError):
    """One or more faults in a configuration. Holds them all."""

    def __init__(self, source: str, problems: Iterable[str]) -> None:
        self.source = source
        found = [text if len(text) <= PROBLEM_MAX else f"{text[:PROBLEM_MAX]}..." for text in problems]
        more = len(found) - PROBLEMS_MAX
        self.problems = (*found[:PROBLEMS_MAX], *([f"and {more:,} faults more"] if more > 0 else ()))
        super().__init__("\n".join(f"{source}: {problem}" for problem in self.problems))


class MissingExtra(UsageError):
    """A feature whose optional dependencies are not installed."""

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(f"{feature} needs the extra {extra!r}. Install it with: pip install 'fairlead[{extra}]'")


class HostError(FairleadError):
    """The host refuses: a directory, a socket, a lock."""

    exit_code = 3


class BackendError(FairleadError):
    """A backend could not answer. The last inventory stays."""

    exit_code = 4


class NotYet(BackendError):
    """What the backend needs is not there, and may come at any moment: it is asked again after seconds."""


class NotRunning(FairleadError):
    """No daemon answers where one was expected."""

    exit_code = 5


class Busy(FairleadError):
    """The daemon has more requests than it works on at a time. Asking again later is the cure."""


class AskRefused(FairleadError):
    """A request from the kubelet that must not be granted."""


class UnknownSlots(AskRefused):
    """Ids that are not in the list."""

    def __init__(self, resource: str, ids: Iterable[str]) -> None:
        self.ids = tuple(sorted(ids))
        super().__init__(f"{resource}: unknown device ids: {some(self.ids)}")


class UnfitSlots(AskRefused):
    """Ids that are in the list, but must not start a container now."""

    def __init__(self, resource: str, reasons: Iterable[tuple[str, str]]) -> None:
        self.reasons = tuple(sorted(reasons))
        named = some([f"{slot} ({reason})" for slot, reason in self.reasons])
        super().__init__(f"{resource}: devices not fit for use: {named}")


class NotClean(AskRefused):
    """A device that was used by another container, and could not be cleaned."""

    def __init__(self, device: str, reason: str) -> None:
        super().__init__(f"{device} is not clean: {reason}. Look at it, then: fairlead clear {device}")


class Straddles(AskRefused):
    """Memory on several devices, for a container that must have it on one."""

    def __init__(self, resource: str, units: Iterable[tuple[str, int]]) -> None:
        named = some([f"{device} ({count})" for device, count in units])
        super().__init__(
            f"{resource}: the units lie on several devices: {named}. The memory of one container must lie on one "
            "device, and none had so much free. Ask for less, or allow it with memory.straddle"
        )


class BadAsk(AskRefused):
    """A request that makes no sense: a size below one, more asked for than offered, an id twice."""


class NotAssigned(AskRefused):
    """No pod of this node explains what the kubelet asks for."""

    def __init__(self, resource: str, amount: int, node: str, reason: str) -> None:
        super().__init__(
            f"{resource}: no device for {amount} of it on node {node!r}: {reason}. "
            "Which device it shall be, the scheduler that assigns them writes on the pod"
        )


class Elsewhere(AskRefused):
    """Slots of other devices than the one that was chosen for the pod."""

    def __init__(self, resource: str, devices: Iterable[str], chosen: Iterable[str]) -> None:
        super().__init__(
            f"{resource}: the slots lie on {some(devices)}, but the pod was assigned {some(chosen)}, "
            "which had too few free. assign.strict refuses this"
        )


class ClusterAway(AskRefused):
    """The API server cannot be asked, and a guess might give a container the device of another."""

    def __init__(self, resource: str, amount: int, node: str, reason: str) -> None:
        super().__init__(
            f"{resource}: which pod of node {node!r} asks for {amount} of it is not known: {reason or 'no answer yet'}"
        )


class EditsFailed(AskRefused):
    """A backend could not say what a container gets."""

    def __init__(self, backend: str, reason: str) -> None:
        super().__init__(f"backend {backend}: what the container gets is not known: {reason}")


class EditConflict(AskRefused):
    """Two parts of one container's edits contradict each other."""

    def __init__(self, what: str, key: str, one: str, other: str) -> None:
        super().__init__(f"{what} {key!r} would be set twice: to {one!r} and to {other!r}")


class NotOffered(FairleadError):
    """What is configured cannot be offered with the devices of this node."""


class Oversize(NotOffered):
    """A device list that the kubelet would drop without a word."""


def some(items: Iterable[str], most: int = 8) -> str:
    """The first few items, and how many more there are: an error may name 60,000 ids."""
    listed = list(items)
    more = len(listed) - most
    return ", ".join(listed[:most]) + (f" and {more} more" if more > 0 else "")
