"""What can go wrong between us and the API server, each with what to do. Holds no secret: no header, no token."""

from __future__ import annotations

from fairlead.cluster.kinds import Ask
from fairlead.model.errors import FairleadError

_TEXT_MAX = 500


class ClusterError(FairleadError):
    """The API server refuses, fails or is away."""

    exit_code = 6
    passing = False  # whether the same request may succeed later, unchanged
    retry_after_s = 0.0  # what the server asked for


class NoAccess(ClusterError):
    """Nobody said where the API server is, or the file that says it is wrong."""

    exit_code = 2


class Unreachable(ClusterError):
    passing = True

    def __init__(self, server: str, reason: str, hint: str = "") -> None:
        super().__init__(f"the API server {server} cannot be reached: {reason}{'. ' + hint if hint else ''}")


class TooSlow(ClusterError):
    passing = True

    def __init__(self, what: str, timeout_s: float) -> None:
        super().__init__(f"{what}: no answer within {timeout_s:g} s")


class Babble(ClusterError):
    """Bytes that are no answer of an API server."""

    passing = True

    def __init__(self, reason: str) -> None:
        super().__init__(f"the API server's answer makes no sense: {reason}")


class TooLarge(Babble):
    passing = False  # it would be as large the next time


class Refusal(ClusterError):
    """The API server answered, and the answer is no."""

    def __init__(self, ask: Ask, status: int, message: str) -> None:
        super().__init__(f"cannot {ask}: {_short(message) or f'the API server answered {status}'}")
        self.ask, self.status, self.message = ask, status, message


class Unauthorized(Refusal):
    """The server does not know who we are."""

    def __init__(self, ask: Ask, status: int, _message: str) -> None:
        super().__init__(ask, status, "the API server does not accept our credentials. Are they for this cluster?")


class Forbidden(Refusal):
    """The server knows who we are, and we may not. Names the rule that is missing."""

    def __init__(self, ask: Ask, status: int, message: str) -> None:
        super().__init__(ask, status, message)
        self.rule = ask.rule
        where = f"Role in namespace {ask.namespace!r} or its ClusterRole" if ask.namespace else "ClusterRole"
        group = f" of API group {ask.kind.group!r}" if ask.kind.group else ""
        self.args = (
            f"{_who(message)} may not {ask}{group}. Add this rule to its {where}:\n{self.rule}"
            + ("" if "cannot" in message else f"\nThe API server said: {_short(message)}"),
        )


class NotFound(Refusal):
    pass


class Conflict(Refusal):
    """Somebody else changed the object, or it is there already."""


class Gone(Refusal):
    """The version to go on from is too old: list again."""


class Invalid(Refusal):
    """The server understood the request and finds it wrong."""


class Busy(Refusal):
    passing = True


class ServerFailed(Refusal):
    passing = True


_KINDS: dict[int, type[Refusal]] = {
    400: Invalid,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    415: Invalid,
    422: Invalid,
    429: Busy,
}


def refusal(ask: Ask, status: int, message: str, retry_after_s: float = 0.0) -> Refusal:
    kind = _KINDS.get(status, ServerFailed if status >= 500 else Refusal)
    error = kind(ask, status, message)
    error.retry_after_s = retry_after_s
    return error


def _who(message: str) -> str:
    """The user that the server names: `nodes "x" is forbidden: User "..." cannot patch ...`."""
    _, found, rest = message.partition('User "')
    name, closed, _ = rest.partition('"')
    return _short(name) if found and closed and name else "this account"


def _short(text: str) -> str:
    plain = " ".join(text.split())
    return plain if len(plain) <= _TEXT_MAX else f"{plain[: _TEXT_MAX - 3]}..."
