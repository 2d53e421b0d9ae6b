"""Who we are: a token, a file with one, or a program that makes them. Nothing here prints what it holds."""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from msgspec import Struct

from fairlead.cluster.errors import NoAccess
from fairlead.kit import files
from fairlead.model.ports import Clock

EXEC_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
EXEC_DEADLINE_S = 60.0
EXEC_OUTPUT_MAX_BYTES = 2**20
EXPIRES_EARLY_S = 30.0  # a token must not run out on its way


class Credential(Struct, frozen=True):
    token: str = ""
    cert_pem: bytes = b""
    key_pem: bytes = b""

    def __repr__(self) -> str:  # see the module
        return f"Credential(token={bool(self.token)}, certificate={bool(self.cert_pem)})"


class Credentials(ABC):
    @abstractmethod
    async def get(self) -> Credential: ...

    def forget(self) -> None:  # noqa: B027 - most have nothing newer
        """The server refused what `get` gave: do not give the same again if there may be something newer."""


class StaticToken(Credentials):
    def __init__(self, token: str = "") -> None:
        self._credential = Credential(token)

    async def get(self) -> Credential:
        return self._credential


class TokenFile(Credentials):
    """A file that others replace: the kubelet rotates a pod's token every hour. Read for every request."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._last = ""

    async def get(self) -> Credential:
        # A file that is being replaced is there again in a moment: the last token is good for minutes more.
        with contextlib.suppress(OSError, ValueError):
            self._last = files.read_bytes(self._file, files.SMALL_BYTES).decode("ascii").strip() or self._last
        if not self._last:
            raise NoAccess(f"{self._file}: there is no token in it, or it cannot be read")
        return Credential(self._last)


class _Status(Struct, rename="camel"):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: datetime | None = None


class _Answer(Struct, rename="camel"):
    api_version: str = ""
    status: _Status = msgspec.field(default_factory=_Status)


class ExecPlugin(Credentials):
    """A program named in a kubeconfig, such as those of cloud providers. Its answer is kept until it expires."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], version: str, clock: Clock, hint: str = ""
    ) -> None:
        self._command = tuple(command)
        self._environment = dict(environment)
        self._version = version
        self._clock = clock
        self._hint = f". {' '.join(hint.split())}" if hint else ""
        self._kept: tuple[Credential, float] | None = None
        self._turn = asyncio.Lock()

    async def get(self) -> Credential:
        async with self._turn:  # two requests at once must not run it twice
            if self._kept is None or self._kept[1] <= self._clock.now():
                self._kept = await self._run()
            return self._kept[0]

    def forget(self) -> None:
        self._kept = None

    async def _run(self) -> tuple[Credential, float]:
        name = self._command[0]
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                env=self._environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                # What it prints there is for the person at the terminal: how to log in, for example.
                stderr=None,
                limit=EXEC_OUTPUT_MAX_BYTES,
            )
        except OSError as error:
            reason = f"the credential program {name!r} cannot be run: {error.strerror}"
            raise NoAccess(f"{reason}{self._hint}") from None
        try:
            async with asyncio.timeout(EXEC_DEADLINE_S):
                output = await _all(process)
                code = await process.wait()
        except TimeoutError:
            raise NoAccess(f"the credential program {name!r} has not ended in {EXEC_DEADLINE_S:g} s") from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if code != 0:
            raise NoAccess(f"the credential program {name!r} ended with {code}{self._hint}")
        return self._read(name, output)

    def _read(self, name: str, output: bytes) -> tuple[Credential, float]:
        # Never quoted: it may hold the token.
        try:
            answer = msgspec.json.decode(output, type=_Answer)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise NoAccess(f"the credential program {name!r} did not print an ExecCredential") from None
        if answer.api_version != self._version:
            raise NoAccess(
                f"the credential program {name!r} speaks {answer.api_version!r:.40}, and not {self._version}"
            )
        status = answer.status
        if not status.token and not (status.client_certificate_data and status.client_key_data):
            raise NoAccess(f"the credential program {name!r} gave neither a token nor a certificate with its key")
        until_s = float("inf")
        if (expires := status.expiration_timestamp) is not None:
            until_s = (expires if expires.tzinfo else expires.replace(tzinfo=UTC)).timestamp() - EXPIRES_EARLY_S
        pem = (status.client_certificate_data.encode(), status.client_key_data.encode())
        return Credential(status.token, *pem), until_s


async def _all(process: asyncio.subprocess.Process) -> bytes:
    assert process.stdout is not None
    output = b""
    while piece := await process.stdout.read(64 * 1024):
        output += piece
        if len(output) > EXEC_OUTPUT_MAX_BYTES:
            raise NoAccess(f"a credential program printed more than {EXEC_OUTPUT_MAX_BYTES} bytes")
    return output
