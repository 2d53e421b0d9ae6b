"""The server with TLS: who is spoken to, certificates that change, and handshakes that do not end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import ssl
from pathlib import Path

import pytest
from tests.apiserver.certificates import Authority, Pair
from tests.unit.scheduler.http.place import HEALTH, Place, post, serving

from fairlead.cluster.tls import ServerCertificates, make_server_context
from fairlead.model.errors import HostError
from fairlead.scheduler.http.limits import Limits


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def pair(authority: Authority) -> Pair:
    return authority.issue("server")


@pytest.fixture(scope="module")
def second(authority: Authority) -> Pair:
    return authority.issue("second")


@pytest.fixture(scope="module")
def certificates(pair: Pair) -> ServerCertificates:
    return ServerCertificates(str(pair.cert), str(pair.key))


def trusting(authority: Authority, own: Pair | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority.ca.cert))
    if own is not None:
        context.load_cert_chain(own.cert, own.key)
    return context


async def name_of(place: Place, context: ssl.SSLContext) -> str:
    """The name in the certificate that a new connection is shown."""
    async with await place.connect(ssl=context) as client:
        assert (await client.ask(HEALTH)).status == 200
        return str(dict(part[0] for part in client.writer.get_extra_info("peercert")["subject"])["commonName"])


async def test_requests_over_tls(authority: Authority, certificates: ServerCertificates):
    body = bytes(range(256)) * 10_000
    async with (
        serving(tls=certificates) as place,
        await place.connect(ssl=trusting(authority), limit=2**23) as client,
    ):
        for _ in range(3):
            assert (await client.ask(post("/echo", body))).body == body
        client.writer.write(post("/echo", b"one") + HEALTH + post("/echo", b"two"))
        assert [(await client.read()).body for _ in range(3)] == [b"one", b"ok\n", b"two"]
        assert place.counters.accepted == 1


async def test_a_client_that_offers_http_2_gets_http_1_1(authority: Authority, certificates: ServerCertificates):
    context = trusting(authority)
    context.set_alpn_protocols(["h2", "http/1.1"])
    async with serving(tls=certificates) as place, await place.connect(ssl=context) as client:
        assert client.writer.get_extra_info("ssl_object").selected_alpn_protocol() == "http/1.1"
        assert (await client.ask(HEALTH)).status == 200


def test_old_tls_is_not_spoken(pair: Pair):
    context = make_server_context(str(pair.cert), str(pair.key))
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    assert context.verify_mode == ssl.CERT_NONE


async def test_refusals_are_read_over_tls_too(authority: Authority, certificates: ServerCertificates):
    async with serving(tls=certificates) as place, await place.connect(ssl=trusting(authority)) as client:
        client.writer.write(post("/echo", b"x" * 100_000, length=2**30))
        answer = await client.read()
        assert (answer.status, answer.headers["connection"]) == (413, "close")
        await place.clock.advance(1.0)
        assert await client.read_end() == b""
    await place.until(lambda: not place.counters.connections)


async def test_only_clients_of_the_authority_are_spoken_to(authority: Authority, pair: Pair, tmp_path: Path):
    tls = ServerCertificates(str(pair.cert), str(pair.key), str(authority.ca.cert))
    stranger = Authority(tmp_path, "stranger").issue("x")
    async with serving(tls=tls) as place:
        async with await place.connect(ssl=trusting(authority, authority.issue("me"))) as client:
            assert (await client.ask(HEALTH)).status == 200
        for own in (None, stranger):
            with contextlib.suppress(ssl.SSLError, ConnectionResetError):  # TLS 1.3 tells it with the first read
                async with await place.connect(ssl=trusting(authority, own)) as client:
                    client.writer.write(HEALTH)
                    assert await client.read_end() == b""
        await place.until(lambda: place.counters.handshakes_failed == 2)
        assert place.counters.requests == {("/healthz", 200): 1}


async def test_a_new_certificate_is_shown_to_new_connections_and_old_ones_go_on(
    authority: Authority, pair: Pair, second: Pair, tmp_path: Path
):
    cert, key = _put(tmp_path, pair)
    said: list[str] = []
    async with (
        serving(tls=ServerCertificates(str(cert), str(key), on_trouble=said.append)) as place,
        await place.connect(ssl=trusting(authority)) as old,
    ):
        assert (await old.ask(HEALTH)).status == 200
        assert await name_of(place, trusting(authority)) == "server"
        _put(tmp_path, second)
        assert await name_of(place, trusting(authority)) == "second"
        assert (await old.ask(HEALTH)).status == 200
    assert not said


async def test_a_broken_pair_leaves_the_last_good_one_and_is_said_once(
    authority: Authority, pair: Pair, second: Pair, tmp_path: Path
):
    cert, key = _put(tmp_path, pair)
    said: list[str] = []
    async with serving(tls=ServerCertificates(str(cert), str(key), on_trouble=said.append)) as place:
        _replace(second.cert, cert)  # with the key of before
        for _ in range(3):
            assert await name_of(place, trusting(authority)) == "server"
        assert len(said) == 1
        assert "cannot be used" in said[0]
        assert said[0].endswith("The certificate of before stays in use")
        _replace(second.key, key)
        assert await name_of(place, trusting(authority)) == "second"
        assert said[1:] == [""]
        cert.unlink()
        assert await name_of(place, trusting(authority)) == "second"
        os.mkfifo(cert)
        assert await name_of(place, trusting(authority)) == "second"
        assert len(said) == 4
        assert "FIFO" in said[-1]


def test_files_that_cannot_be_used_are_named_at_the_start(pair: Pair, second: Pair, tmp_path: Path):
    large = tmp_path / "large"
    with large.open("wb") as file:
        file.truncate(2**21)
    for files, reason in (
        (("/nowhere/crt", str(pair.key)), "No such file"),
        ((str(pair.cert), str(second.key)), "KEY_VALUES_MISMATCH|key values mismatch"),
        ((str(large), str(pair.key)), "are the limit"),
        ((str(pair.cert), str(pair.key), str(pair.key)), "cannot be used"),
    ):
        with pytest.raises(HostError, match=reason):
            ServerCertificates(*files)


async def test_a_handshake_that_does_not_come_is_not_waited_for(certificates: ServerCertificates):
    async with serving(Limits(handshake_s=0.05), tls=certificates) as place:
        async with await place.connect() as silent:
            assert await silent.read_end() == b""
        assert place.counters.handshakes_failed == 1
        assert place.counters.accepted == 0


async def test_plain_http_where_tls_is_spoken_ends_at_once(certificates: ServerCertificates):
    async with serving(tls=certificates) as place:
        async with await place.connect() as client:
            client.writer.write(HEALTH)
            await client.read_end()
        assert place.counters.handshakes_failed == 1


async def test_handshakes_that_do_not_come_keep_nobody_out(authority: Authority, certificates: ServerCertificates):
    async with serving(Limits(connections=5), tls=certificates) as place, contextlib.AsyncExitStack() as stack:
        silent = [await stack.enter_async_context(await place.connect()) for _ in range(8)]
        assert await name_of(place, trusting(authority)) == "server"
        for client in silent[:4]:
            assert await client.read_end() == b""
        assert place.counters.handshakes_failed == 4


async def test_connections_beyond_the_limit_over_tls(authority: Authority, certificates: ServerCertificates):
    context = trusting(authority)
    async with serving(Limits(connections=3), tls=certificates) as place, contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(await place.connect(ssl=context)) for _ in range(3)]
        for client in clients:
            assert (await client.ask(HEALTH)).status == 200
        async with await place.connect(ssl=context) as new:
            assert (await new.ask(HEALTH)).status == 200
            assert await clients[0].read_end() == b""
        assert place.counters.evicted == 1


async def test_a_client_of_tls_that_does_not_read_is_let_go(authority: Authority, certificates: ServerCertificates):
    async with (
        serving(tls=certificates) as place,
        await place.connect(ssl=trusting(authority)) as client,
    ):
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        client.writer.write(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n" * 20)
        await place.until(lambda: [c for c in place.service.connections if not c._writable])  # type: ignore[attr-defined]
        asked = len(place.asked)
        assert asked <= 2
        await place.clock.advance(30.0)
        await place.until(lambda: not place.counters.connections)
        assert len(place.asked) == asked


async def test_what_a_client_of_tls_asked_for_is_done_also_when_it_has_gone(
    authority: Authority, certificates: ServerCertificates, caplog: pytest.LogCaptureFixture
):
    async with serving(tls=certificates) as place:
        async with await place.connect(ssl=trusting(authority)) as client:
            client.writer.write(post("/gated", b"bind"))
            await place.until(lambda: place.asked)
        await place.until(lambda: not place.counters.connections)
        place.gate.set()
        await place.until(lambda: place.counters.requests == {("/gated", 200): 1})
        assert place.ended == ["bind"]
        assert place.counters.bytes_in_flight == 0
    assert not caplog.records  # asyncio complains in the log


async def test_the_end_over_tls(authority: Authority, certificates: ServerCertificates):
    place = Place(Limits(handshake_s=1000.0))
    place.listen(tls=certificates)
    context = trusting(authority)
    async with (
        await place.connect(ssl=context) as idle,
        await place.connect(ssl=context) as busy,
        await place.connect() as shaking,
    ):
        assert (await idle.ask(HEALTH)).status == 200
        busy.writer.write(post("/gated", b"x"))
        await place.until(lambda: place.asked)
        closing = asyncio.create_task(place.server.close())
        assert await idle.read_end() == b""
        assert await shaking.read_end() == b""
        place.gate.set()
        assert (await busy.read()).body == b"x"
        await closing
    assert place.counters.connections == 0


async def test_tls_is_not_for_unix_sockets(certificates: ServerCertificates, tmp_path: Path):
    with pytest.raises(HostError, match="TLS"):
        Place().server.listen(f"unix:{tmp_path}/x", certificates)


def _put(directory: Path, pair: Pair) -> tuple[Path, Path]:
    """As a volume of a secret does it: both at once, for who looks between two connections."""
    cert, key = directory / "tls.crt", directory / "tls.key"
    _replace(pair.cert, cert)
    _replace(pair.key, key)
    return cert, key


def _replace(source: Path, target: Path) -> None:
    shutil.copy(source, target.with_suffix(".new"))
    target.with_suffix(".new").replace(target)
