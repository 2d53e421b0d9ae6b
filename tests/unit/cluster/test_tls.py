"""The way to a server with TLS: whom we trust, how we show who we are, and what is said when it does not fit."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import ssl
from pathlib import Path

import pytest
from tests.apiserver.certificates import Authority, Pair
from tests.apiserver.server import api_server

from fairlead.cluster.access import Access, in_cluster, parse_server
from fairlead.cluster.client import AnyObject, Client
from fairlead.cluster.errors import ClusterError, NoAccess, Unreachable
from fairlead.cluster.kinds import NODES
from fairlead.cluster.kubeconfig import read_kubeconfig
from fairlead.cluster.tls import TlsConfig, make_context
from fairlead.kit.clock import SystemClock

CLOCK = SystemClock()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def serving(authority: Authority) -> Pair:
    return authority.issue("server")


async def _name(access: Access) -> str:
    client = Client(access, CLOCK, patience_s=0.0)
    try:
        return (await client.get(NODES, "n1", AnyObject)).metadata.name
    finally:
        await client.close()


async def test_a_server_of_the_right_authority_is_spoken_to(authority: Authority, serving: Pair):
    async with api_server(authority.server_context(serving)) as server:
        # More than one TLS record, and one connection for several calls.
        server.store.put("nodes", {"metadata": {"name": "n1"}, "status": {"images": ["x" * 100_000]}})
        client = Client(Access(parse_server(server.url), TlsConfig(ca_file=str(authority.ca.cert))), CLOCK)
        for _ in range(3):
            assert (await client.get(NODES, "n1", AnyObject)).metadata.name == "n1"
        await client.close()
        assert server.connections == 1


async def test_a_server_of_another_authority_is_not(authority: Authority, serving: Pair, tmp_path: Path):
    other = Authority(tmp_path, "other")
    async with api_server(authority.server_context(serving)) as server:
        access = Access(parse_server(server.url), TlsConfig(ca_file=str(other.ca.cert)))
        with pytest.raises(Unreachable, match=r"TLS: .*certificate.*The certificate authority in use is not the one"):
            await _name(access)
        assert server.requests == []


async def test_the_name_in_the_certificate_must_fit(authority: Authority):
    named = authority.issue("named", "DNS:kubernetes.default.svc")
    trust = TlsConfig(ca_file=str(authority.ca.cert))
    async with api_server(authority.server_context(named)) as server:
        server.store.put("nodes", {"metadata": {"name": "n1"}})
        with pytest.raises(Unreachable, match=r"TLS: .*127\.0\.0\.1"):
            await _name(Access(parse_server(server.url), trust))
        assert await _name(Access(parse_server(server.url, "kubernetes.default.svc"), trust)) == "n1"
        assert await _name(Access(parse_server(server.url), TlsConfig(insecure=True))) == "n1"


async def test_https_to_a_server_without_it_says_so(authority: Authority):
    async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.0 400 Bad Request\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(Unreachable, match="TLS: WRONG_VERSION_NUMBER"):
            await _name(Access(parse_server(url), TlsConfig(ca_file=str(authority.ca.cert))))


async def test_http_to_a_server_with_tls_says_so(authority: Authority, serving: Pair):
    async with api_server(authority.server_context(serving)) as server:
        with pytest.raises(ClusterError):
            await _name(Access(parse_server(server.url.replace("https:", "http:"))))


@pytest.mark.parametrize("inline", [True, False])
async def test_a_kubeconfig_with_a_client_certificate(
    authority: Authority, serving: Pair, tmp_path: Path, inline: bool
):
    mine = authority.issue("me")
    files = {"certificate-authority": authority.ca.cert, "client-certificate": mine.cert, "client-key": mine.key}
    said = {}
    for key, file in files.items():
        if inline:
            said[f"{key}-data"] = base64.b64encode(file.read_bytes()).decode()
        else:  # beside the kubeconfig, by a relative path
            shutil.copy(file, tmp_path / file.name)
            said[key] = file.name
    (ca, ca_said), *user = said.items()
    async with api_server(authority.server_context(serving, ask_client=True)) as server:
        server.store.put("nodes", {"metadata": {"name": "n1"}})
        config = {
            "clusters": [{"name": "c", "cluster": {"server": server.url, ca: ca_said}}],
            "users": [{"name": "u", "user": dict(user)}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        (tmp_path / "config").write_text(json.dumps(config))
        assert await _name(read_kubeconfig(str(tmp_path / "config"), "", {}, CLOCK)) == "n1"
        with pytest.raises(ClusterError):
            await _name(Access(parse_server(server.url), TlsConfig(ca_file=str(authority.ca.cert))))


async def test_a_pod_follows_its_token_and_authority_as_they_change(
    authority: Authority, serving: Pair, tmp_path: Path
):
    other = Authority(tmp_path, "other")
    for name, text in (("token", "first\n"), ("namespace", "blue")):
        (tmp_path / name).write_text(text)
    shutil.copy(other.ca.cert, tmp_path / "ca.crt")
    async with api_server(authority.server_context(serving)) as server:
        server.store.put("nodes", {"metadata": {"name": "n1"}})
        server.tokens = {"first"}
        environment = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(server.port)}
        access = in_cluster(environment, tmp_path)
        assert access is not None
        assert access.namespace == "blue"
        with pytest.raises(Unreachable):
            await _name(access)
        shutil.copy(authority.ca.cert, tmp_path / "new.crt")
        (tmp_path / "new.crt").replace(tmp_path / "ca.crt")
        assert await _name(access) == "n1"
        server.tokens = {"second"}
        (tmp_path / "token").write_text("second")
        assert await _name(access) == "n1"
        (tmp_path / "token").unlink()  # for a moment, while it is replaced
        assert await _name(access) == "n1"


def test_certificates_that_cannot_be_used_are_named(tmp_path: Path, authority: Authority):
    with pytest.raises(NoAccess, match=r"/nowhere/ca\.crt cannot be used: No such file"):
        make_context(TlsConfig(ca_file="/nowhere/ca.crt"))
    (tmp_path / "bad").write_text("not a certificate")
    with pytest.raises(NoAccess, match="bad cannot be used"):
        make_context(TlsConfig(ca_file=str(tmp_path / "bad")))
    with pytest.raises(NoAccess, match="in the kubeconfig cannot be used"):
        make_context(TlsConfig(ca_pem=authority.ca.cert.read_bytes(), cert_pem=b"no", key_pem=b"no"))


def test_old_tls_is_not_spoken():
    assert make_context(TlsConfig(insecure=True)).minimum_version == ssl.TLSVersion.TLSv1_2


def test_keys_are_not_printed():
    trust = TlsConfig(cert_pem=b"CERT", key_pem=b"s3cret", ca_file="/ca")
    assert "s3cret" not in repr(trust)
