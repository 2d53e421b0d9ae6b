"""TLS on a pair of byte streams, and the contexts for it.

Uses ssl's memory buffers, not asyncio's TLS: the daemon loads asyncio without ssl, and only those who talk to a cluster
pay for it. No private key touches a disk here.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager

from msgspec import Struct

from fairlead.backends import files
from fairlead.cluster.errors import NoAccess

READ_BYTES = 64 * 1024


class Trust(Struct, frozen=True):
    """Whom we trust, and how we show who we are. A file is read again when it changes."""

    ca_file: str = ""
    ca_pem: bytes = b""
    cert_file: str = ""
    key_file: str = ""
    cert_pem: bytes = b""
    key_pem: bytes = b""
    insecure: bool = False

    def __repr__(self) -> str:  # a private key must not get into a log by accident
        return f"Trust(ca={self.ca_file or bool(self.ca_pem)}, cert={self.cert_file or bool(self.cert_pem)})"

    def stamp(self) -> tuple[object, ...]:
        """Differs when a file was replaced."""
        return tuple(_stamp(file) for file in (self.ca_file, self.cert_file, self.key_file) if file)


def make_context(trust: Trust) -> ssl.SSLContext:
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


class TlsStream:
    """Reads and writes plain bytes; the network sees TLS."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, context: ssl.SSLContext, server_name: str
    ) -> None:
        self._reader = reader
        self._writer = writer
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
        """Some bytes, or none at the end."""
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

    def close(self) -> None:
        self._writer.close()

    async def _flush(self) -> None:
        if self._outgoing.pending:
            self._writer.write(self._outgoing.read())
            await self._writer.drain()

    async def _more(self) -> bool:
        data = await self._reader.read(READ_BYTES)
        self._incoming.write(data)
        return bool(data)


def is_distrust(error: BaseException) -> bool:
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
    raise ValueError("the private key is encrypted, and there is nobody to ask for its password")


def _stamp(file: str) -> object:
    try:
        found = os.stat(file)  # noqa: PTH116 - once per connection; a Path for it is waste
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns
