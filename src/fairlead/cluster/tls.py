"""TLS on a pair of byte streams, and the contexts for it, of clients and of servers.

The streams use ssl's memory buffers, not asyncio's TLS: the daemon loads asyncio without ssl, and only those who talk
to a cluster pay for it. No private key touches a disk here.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from msgspec import Struct

from fairlead.cluster.connection import READ_BYTES, Stream
from fairlead.cluster.errors import NoAccess
from fairlead.kit import files
from fairlead.model.errors import HostError


class TlsConfig(Struct, frozen=True):
    """Whom we trust, and how we show who we are. A file is read again when it changes."""

    ca_file: str = ""
    ca_pem: bytes = b""
    cert_file: str = ""
    key_file: str = ""
    cert_pem: bytes = b""
    key_pem: bytes = b""
    insecure: bool = False

    def __repr__(self) -> str:  # a private key must not get into a log by accident
        return f"TlsConfig(ca={self.ca_file or bool(self.ca_pem)}, cert={self.cert_file or bool(self.cert_pem)})"

    def stamp(self) -> tuple[object, ...]:
        """Differs when a file was replaced."""
        return tuple(_stamp(file) for file in (self.ca_file, self.cert_file, self.key_file) if file)


def make_context(trust: TlsConfig) -> ssl.SSLContext:
    paths = [file for file in (trust.ca_file, trust.cert_file, trust.key_file) if file]
    try:
        for file in paths:
            files.check(file, files.MAX_BYTES)  # OpenSSL would wait for a FIFO
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        if trust.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        elif trust.ca_pem or trust.ca_file:
            # Only these. The system's own list would cost two megabytes and add hundreds to trust.
            context.load_verify_locations(trust.ca_file or None, cadata=trust.ca_pem.decode() or None)
        else:
            context.load_default_certs()
        if trust.cert_pem:
            with _in_memory(trust.cert_pem) as cert, _in_memory(trust.key_pem) as key:
                context.load_cert_chain(cert, key, password=_no_password)
        elif trust.cert_file:
            context.load_cert_chain(trust.cert_file, trust.key_file or None, password=_no_password)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise NoAccess(f"certificates {', '.join(paths) or 'in the kubeconfig'} cannot be used: {reason}") from None
    return context


def make_server_context(cert_file: str, key_file: str, client_ca_file: str = "") -> ssl.SSLContext:
    """With `client_ca_file`, only clients that show a certificate of that authority are spoken to."""
    paths = [file for file in (cert_file, key_file, client_ca_file) if file]
    try:
        for file in paths:
            files.check(file, files.MAX_BYTES)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION  # costs us more than the client that asks for it
        context.set_alpn_protocols(["http/1.1"])
        context.load_cert_chain(cert_file, key_file, password=_no_password)
        if client_ca_file:
            context.load_verify_locations(client_ca_file)
            context.verify_mode = ssl.CERT_REQUIRED
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise HostError(f"TLS: {', '.join(paths)} cannot be used: {reason}") from None
    return context


class ServerCertificates:
    """The context for the next connection: of the files as they are now.

    Files that cannot be used leave the last good context in place. `on_trouble` hears that once for each such change,
    and an empty text when it is over.
    """

    def __init__(
        self,
        cert_file: str,
        key_file: str,
        client_ca_file: str = "",
        on_trouble: Callable[[str], None] = lambda _reason: None,
    ) -> None:
        self._files = (cert_file, key_file, client_ca_file)
        self._on_trouble = on_trouble
        self._troubled = False
        self._stamps = self._look()
        self._context = make_server_context(*self._files)

    def current(self) -> ssl.SSLContext:
        stamps = self._look()
        if stamps == self._stamps:
            return self._context
        self._stamps = stamps  # of before the reading: what changes meanwhile is read again
        try:
            self._context = make_server_context(*self._files)
        except HostError as error:
            self._troubled = True
            self._on_trouble(f"{error}. The certificate of before stays in use")
        else:
            if self._troubled:
                self._troubled = False
                self._on_trouble("")
        return self._context

    def _look(self) -> tuple[object, ...]:
        return tuple(_stamp(file) for file in self._files if file)


class TlsStream(Stream):
    """Reads and writes plain bytes; the network sees TLS."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, context: ssl.SSLContext, server_name: str
    ) -> None:
        super().__init__(reader, writer)
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=server_name)

    async def handshake(self) -> None:
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await self._flush()
                if not await self._more():
                    raise ConnectionResetError("it hung up during the TLS handshake") from None
            else:
                await self._flush()
                return

    async def read(self) -> bytes:
        while True:
            try:
                return self._tls.read(READ_BYTES)
            except ssl.SSLWantReadError:
                await self._flush()  # the protocol may have something to say, such as a new key
                if not await self._more():
                    return b""  # without a goodbye. A cut answer is noticed by its own framing
            except ssl.SSLZeroReturnError:
                return b""

    async def write(self, data: bytes) -> None:
        self._tls.write(data)
        await self._flush()

    async def _flush(self) -> None:
        if self._outgoing.pending:
            await super().write(self._outgoing.read())

    async def _more(self) -> bool:
        data = await super().read()
        self._incoming.write(data)
        return bool(data)


def is_certificate_error(error: BaseException) -> bool:
    """Whether it is the certificate that is wrong, and not the way to the server."""
    return isinstance(error, ssl.SSLCertVerificationError)


@contextmanager
def _in_memory(content: bytes) -> Iterator[str]:
    """A path to bytes that are in no directory."""
    number = os.memfd_create("fairlead", os.MFD_CLOEXEC)
    try:
        os.write(number, content)
        yield f"/proc/self/fd/{number}"
    finally:
        os.close(number)


def _no_password() -> str:
    # Without this OpenSSL would ask on the terminal.
    raise ValueError("the private key is encrypted, and no terminal to ask for its password")


def _stamp(file: str) -> object:
    try:
        found = os.stat(file)  # noqa: PTH116 - once per connection; a Path for it is waste
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns
