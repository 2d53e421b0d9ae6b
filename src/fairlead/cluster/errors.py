"""What can go wrong between us and the API server, each with what to do. Holds no secret: no header, no token."""

from __future__ import annotations

from fairlead.cluster.kinds import Request
from fairlead.model.errors import FairleadError

_TEXT_MAX = 500


class ClusterError(FairleadError):
    """The API server refuses, fails or is away."""

    exit_code = 6
    temporary = False  # whether the same request may succeed later, unchanged
    retry_after_s = 0.0  # what the server asked for


class NoAccess(ClusterError):
    """It is not known where the API server is, or the file that says so is wrong."""

    exit_code = 2


class Unreachable(ClusterError):
    temporary = True

    def __init__(self, server: str, reason: str, hint: str = "") -> None:
        super().__init__(f"the API server {server} cannot be reached: {reason}{'. ' + hint if hint else ''}")


class TooSlow(ClusterError):
    temporary = True

    def __init__(self, what: str, timeout_s: float) -> None:
        super().__init__(f"{what}: no answer within {timeout_s:g} s")


class MalformedResponse(ClusterError):
    """Bytes that are no answer of an API server."""

    temporary = True

    def __init__(self, reason: str) -> None:
        super().__init__(f"the API server's answer makes no sense: {reason}")


class TooLarge(MalformedResponse):
    temporary = False  # it would be as large the next time


class StatusError(ClusterError):
    """The API server answered, and the answer is no."""

    def __init__(self, request: Request, status: int, message: str) -> None:
        super().__init__(f"cannot {request}: {_short(message) or f'the API server answered {status}'}")
        self.request, self.status, self.message = request, status, message


class Unauthorized(StatusError):
    """The server does not know who we are."""

    def __init__(self, request: Request, status: int, _message: str) -> None:
        super().__init__(request, status, "the API server does not accept our credentials. Are they for this cluster?")


class Forbidden(StatusError):
    """The server knows who we are, and we may not. Names the rule that is missing."""

    def __init__(self, request: Request, status: int, message: str) -> None:
        super().__init__(request, status, message)
        self.rule = request.rule
        where = f"Role in namespace {request.namespace!r} or its ClusterRole" if request.namespace else "ClusterRole"
        group = f" of API group {request.kind.group!r}" if request.kind.group else ""
        self.args = (
            f"{_who(message)} may not {request}{group}. Add this rule to its {where}:\n{self.rule}"
            + ("" if "cannot" in message else f"\nThe API server said: {_short(message)}"),
        )


class NotFound(StatusError):
    pass


class Conflict(StatusError):
    """Another client changed the object, or it exists already."""


class Gone(StatusError):
    """The version to go on from is too old: list again."""


class Invalid(StatusError):
    """The server understood the request and finds it wrong."""


class Busy(StatusError):
    temporary = True


class ServerFailed(StatusError):
    temporary = True


_KINDS: dict[int, type[StatusError]] = {
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


def status_error(request: Request, status: int, message: str, retry_after_s: float = 0.0) -> StatusError:
    kind = _KINDS.get(status, ServerFailed if status >= 500 else StatusError)
    error = kind(request, status, message)
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
