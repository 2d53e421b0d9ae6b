"""Where the API server is and who we are: pods, kubeconfigs, credential programs, and what is refused."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.apiserver.fixtures import Quick

from fairlead.cluster import credentials
from fairlead.cluster.access import Access, Server, find_access, in_cluster, parse_server
from fairlead.cluster.connection import connect
from fairlead.cluster.credentials import Credential, ExecPlugin, TokenFile
from fairlead.cluster.errors import NoAccess
from fairlead.cluster.kubeconfig import read_kubeconfig

V1 = "client.authentication.k8s.io/v1"


@pytest.mark.parametrize(
    ("text", "server"),
    [
        ("https://10.0.0.1:6443", Server("10.0.0.1", 6443)),
        ("https://api.example.com", Server("api.example.com", 443)),
        ("https://[fd00::1]:6443/", Server("fd00::1", 6443)),
        ("https://rancher.example.com/k8s/clusters/c-1/", Server("rancher.example.com", 443, "/k8s/clusters/c-1")),
        ("http://127.0.0.1:8001", Server("127.0.0.1", 8001, tls=False)),
    ],
)
def test_an_address_is_taken_apart(text: str, server: Server):
    assert parse_server(text) == server


def test_an_ipv6_address_is_written_in_brackets():
    assert str(parse_server("https://[fd00::1]:6443")) == "https://[fd00::1]:6443"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "10.0.0.1:6443",
        "ftp://x",
        "https://",
        "https://x:99999",
        "https://user@x",
        "https://x/a b",
        "https://x?y",
        "http://[",
    ],
)
def test_what_is_no_address_is_refused(text: str):
    with pytest.raises(NoAccess, match="server"):
        parse_server(text)


@pytest.mark.parametrize(
    "text",
    [
        "https://admin:s3cret@10.0.0.1:6443",
        "https://admin:s3cret@10.0.0.1:port",
        "https://admin:s3cret",  # the host is missing
        "https://admin:s3cret:6443",
        "https://admin:8/s3cret@10.0.0.1",
        "https://admin:s3cret@[10.0.0.1",
        "https://admin:s3cret\u2100@x",  # urllib quotes it
        "admin:s3cret@10.0.0.1:6443",
        "ftp://admin:s3cret@10.0.0.1",
    ],
)
def test_a_password_in_a_wrong_address_is_not_shown(text: str, tmp_path: Path, quick: Quick):
    with pytest.raises(NoAccess) as caught:
        parse_server(text)
    assert "s3cret" not in str(caught.value)
    with pytest.raises(NoAccess, match=r"config, context 'x': the server of cluster 'c'") as caught:
        read_kubeconfig(_write(tmp_path / "config", _config(cluster={"server": text})), "", {}, quick)
    assert "s3cret" not in str(caught.value)


@given(st.text(max_size=60))
def test_any_text_is_an_address_or_is_refused(text: str):
    with contextlib.suppress(NoAccess):
        assert parse_server("https://" + text).host


# --- Plain text -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "user", [{"token": "s3cret"}, {"tokenFile": "t"}, {"exec": {"command": "x", "apiVersion": V1}}]
)
@pytest.mark.parametrize("server", ["http://10.0.0.1:8080", "http://127.0.0.1.example.com", "http://[fd00::1]"])
def test_credentials_are_not_sent_in_plain_text(tmp_path: Path, quick: Quick, user: dict[str, Any], server: str):
    file = _write(tmp_path / "config", _config(cluster={"server": server}, user=user))
    with pytest.raises(NoAccess, match=r"credentials are not sent to http://.* Use https, or plain http on this host"):
        read_kubeconfig(file, "", {}, quick)


@pytest.mark.parametrize("server", ["http://127.0.0.1:8001", "http://localhost:8001", "http://[::1]:8001", "https://x"])
async def test_credentials_are_sent_where_others_cannot_read_them(tmp_path: Path, quick: Quick, server: str):
    assert await _token(_write(tmp_path / "config", _config(cluster={"server": server})), quick) == "s3cret"


async def test_plain_text_without_credentials_is_taken(tmp_path: Path, quick: Quick):
    file = _write(tmp_path / "config", _config(cluster={"server": "http://10.0.0.1:8080"}, user={}))
    assert await _token(file, quick) == ""


@pytest.mark.parametrize("token", ["!s3cret", "*s3cret", "&s3cret [", "!!s3cret x", "!<s3cret> x"])
def test_a_token_that_is_no_yaml_is_not_shown(tmp_path: Path, quick: Quick, token: str):
    text = f"users:\n- name: u\n  user:\n    token: {token}\n"
    with pytest.raises(NoAccess, match="line ") as caught:
        read_kubeconfig(_write(tmp_path / "config", text), "", {}, quick)
    assert "s3cret" not in str(caught.value)


# --- In a pod ---------------------------------------------------------------------------------------------------------


def _account(root: Path, token: str = "s3cret") -> Path:
    (root / "token").write_text(token)
    (root / "ca.crt").write_text("")
    return root


def test_a_pod_knows_its_server(tmp_path: Path):
    environment = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    access = in_cluster(environment, _account(tmp_path))
    assert access is not None
    assert access.server.authority == "[fd00::1]:443"
    assert access.namespace == "default"


def test_outside_of_a_pod_there_is_none(tmp_path: Path):
    assert in_cluster({}, tmp_path) is None


def test_a_pod_without_an_account_says_how_to_give_it_one(tmp_path: Path):
    environment = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    with pytest.raises(NoAccess, match="automountServiceAccountToken"):
        in_cluster(environment, tmp_path)
    with pytest.raises(NoAccess, match="which is no port"):
        in_cluster({**environment, "KUBERNETES_SERVICE_PORT": "tcp://x"}, tmp_path)


async def test_an_empty_token_file_is_told_by_name(tmp_path: Path):
    (tmp_path / "token").write_text("")
    with pytest.raises(NoAccess, match="token: there is no token in it"):
        await TokenFile(tmp_path / "token").get()


def test_without_anything_it_says_what_was_looked_for(tmp_path: Path, quick: Quick):
    with pytest.raises(NoAccess, match=r"KUBECONFIG is not set, and .*/\.kube/config does not exist"):
        find_access({"HOME": str(tmp_path)}, quick)


async def test_a_pod_whose_kubeconfig_is_not_there_has_its_account(tmp_path: Path, quick: Quick):
    """As in manifests that name a file of the node. Who names a file by a flag is taken at his word."""
    environment = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443", "KUBECONFIG": "/none:/no"}
    account = _account(tmp_path)
    assert find_access(environment, quick, directory=account).source == "this pod's account"
    with pytest.raises(NoAccess, match="kubeconfig /none: there is no such file"):
        find_access(environment, quick, kubeconfig="/none", directory=account)
    with pytest.raises(NoAccess, match="kubeconfig /none:/no: there is no such file"):
        find_access({"KUBECONFIG": "/none:/no"}, quick, directory=account)
    mine = _write(tmp_path / "config", _config())
    assert find_access({**environment, "KUBECONFIG": f"/none:{mine}"}, quick, directory=account).source.startswith(mine)


# --- Kubeconfigs ------------------------------------------------------------------------------------------------------


def _config(**more: Any) -> dict[str, Any]:
    return {
        "clusters": [{"name": "c", "cluster": {"server": "https://10.0.0.1:80", **more.get("cluster", {})}}],
        "users": [{"name": "u", "user": more.get("user", {"token": "s3cret"})}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "blue"}}],
        "current-context": "x",
        "preferences": {},
    }


def _write(file: Path, config: Any) -> str:
    file.write_text(config if isinstance(config, str) else json.dumps(config))
    return str(file)


async def _token(file: str, quick: Quick, context: str = "", **environment: str) -> str:
    access = read_kubeconfig(file, context, environment, quick)
    return (await access.credential()).token


async def test_the_current_context_is_used(tmp_path: Path, quick: Quick):
    file = _write(tmp_path / "config", _config())
    access = find_access({"KUBECONFIG": file}, quick)
    assert (access.server.host, access.namespace) == ("10.0.0.1", "blue")
    assert (await access.credential()).token == "s3cret"
    assert access.source == f"{file}, context 'x'"


async def test_a_named_context_wins(tmp_path: Path, quick: Quick):
    config = _config()
    config["users"].append({"name": "u2", "user": {"token": "other"}})
    config["contexts"].append({"name": "y", "context": {"cluster": "c", "user": "u2"}})
    assert await _token(_write(tmp_path / "config", config), quick, "y") == "other"


async def test_several_files_are_one_and_the_first_wins(tmp_path: Path, quick: Quick):
    second = {**_config(user={"token": "second"}), "current-context": "z"}
    first = {"users": [{"name": "u", "user": {"token": "first"}}], "current-context": "x", "clusters": None}
    files = f"{_write(tmp_path / 'a', first)}:{tmp_path}/missing:{_write(tmp_path / 'b', second)}"
    assert await _token(files, quick) == "first"


async def test_a_token_file_is_beside_the_kubeconfig_and_read_again(tmp_path: Path, quick: Quick):
    (tmp_path / "t").write_text("one")
    file = _write(tmp_path / "config", _config(user={"tokenFile": "t", "token": "ignored"}))
    access = read_kubeconfig(file, "", {}, quick)
    assert (await access.credential()).token == "one"
    (tmp_path / "t").write_text("two")
    assert (await access.credential()).token == "two"


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (_config(cluster={"proxy-url": "http://proxy"}), "does not go through proxies"),
        (_config(cluster={"server": "nowhere"}), "it must be an address"),
        (_config(cluster={"certificate-authority-data": "%%%"}), "certificate-authority-data is not base64"),
        (_config(cluster={"insecure-skip-tls-verify": True, "certificate-authority": "x"}), "contradicts"),
        (_config(user={"username": "a", "password": "s3cret"}), "username and password"),
        (_config(user={"auth-provider": {"name": "gcp"}}), "auth-provider"),
        (_config(user={"as": "admin"}), "impersonate other users"),
        (_config(user={"client-certificate-data": "QQ=="}), "must both be files or both be data"),
        (_config(user={"exec": {"command": "x", "apiVersion": "v1alpha1"}}), "exec.apiVersion 'v1alpha1'"),
        (_config(user={"exec": {"apiVersion": V1}}), "exec.command is missing"),
        (_config(user={"exec": {"command": "x", "apiVersion": V1, "provideClusterInfo": True}}), "provideClusterInfo"),
        ({**_config(), "current-context": ""}, "no context is chosen.*Known: x"),
        ({**_config(), "current-context": "xx"}, "no context 'xx'; did you mean 'x'"),
        ({**_config(), "clusters": []}, "no cluster 'c'"),
        ({**_config(), "users": []}, "no user 'u'"),
        ({**_config(), "users": [{"name": "u", "user": {"token": 5}}]}, "Expected `str`"),
        ("a: [", "line 2"),
        ("\x00\x01", "config"),
        ("- a", "Expected"),
    ],
)
def test_a_kubeconfig_that_cannot_work_says_why(tmp_path: Path, quick: Quick, config: Any, reason: str):
    with pytest.raises(NoAccess, match=reason) as caught:
        read_kubeconfig(_write(tmp_path / "config", config), "", {}, quick)
    assert "s3cret" not in str(caught.value)


def test_a_kubeconfig_that_is_not_there(quick: Quick):
    with pytest.raises(NoAccess, match="/nowhere: there is no such file"):
        read_kubeconfig("/nowhere", "", {}, quick)


# --- Credential programs ----------------------------------------------------------------------------------------------


def _program(tmp_path: Path, quick: Quick, script: str, **spec: Any) -> Any:
    (tmp_path / "plugin.py").write_text(script)
    run = {"command": sys.executable, "args": [str(tmp_path / "plugin.py")], "apiVersion": V1, **spec}
    return read_kubeconfig(_write(tmp_path / "config", _config(user={"exec": run})), "", {"PATH": "/bin"}, quick)


ANSWER = """
import json, os
info = json.loads(os.environ["KUBERNETES_EXEC_INFO"])
with open(r"{root}/runs", "a") as runs:
    runs.write("x")
print(json.dumps({{"apiVersion": info["apiVersion"], "kind": "ExecCredential",
    "status": {{"token": os.environ["SEED"] + "-token", "expirationTimestamp": "2023-11-14T22:23:20Z"}}}}))
"""


async def test_a_credential_program_runs_once_until_its_answer_expires(tmp_path: Path, quick: Quick):
    access = _program(tmp_path, quick, ANSWER.format(root=tmp_path), env=[{"name": "SEED", "value": "my"}])
    for _ in range(3):
        assert await access.credential() == Credential("my-token")
    assert (tmp_path / "runs").read_text() == "x"
    await quick.sleep(580)  # it expires 600 s after the clock's start, and a little margin is kept
    await access.credential()
    assert (tmp_path / "runs").read_text() == "xx"
    access.forget()
    await access.credential()
    assert (tmp_path / "runs").read_text() == "xxx"


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("raise SystemExit(3)", "ended with 3. Install it so"),
        ("print('s3cret')", "did not print an ExecCredential"),
        (f'print(\'{{"apiVersion": "{V1}", "status": {{}}}}\')', "neither a token nor a certificate"),
        ('print(\'{"apiVersion": "other", "status": {"token": "s3cret"}}\')', "speaks 'other', and not"),
    ],
)
async def test_a_credential_program_that_fails_is_named(tmp_path: Path, quick: Quick, script: str, reason: str):
    access = _program(tmp_path, quick, script, installHint="Install\nit so")
    with pytest.raises(NoAccess, match=reason) as caught:
        await access.credential()
    assert "s3cret" not in str(caught.value)


async def test_a_credential_program_that_is_not_there(tmp_path: Path, quick: Quick):
    access = _program(tmp_path, quick, "", command="no-such-program-here")
    with pytest.raises(NoAccess, match="'no-such-program-here' cannot be run: No such file"):
        await access.credential()


async def test_a_credential_program_that_hangs_is_ended(tmp_path: Path, quick: Quick, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(credentials, "EXEC_DEADLINE_S", 0.2)
    access = _program(tmp_path, quick, "import signal; signal.pause()")
    with pytest.raises(NoAccess, match="has not ended in"):
        await access.credential()


async def test_a_credential_program_may_give_a_certificate(quick: Quick):
    answer = {"clientCertificateData": "CERT", "clientKeyData": "s3cret"}
    text = json.dumps({"apiVersion": V1, "status": answer})
    found = await ExecPlugin(["/bin/echo", text], {}, V1, quick).get()
    assert found == Credential("", b"CERT", b"s3cret")
    assert "s3cret" not in repr(found)


# --- What is odd about a place ----------------------------------------------------------------------------------------


def test_the_home_of_nobody_is_no_place_for_a_kubeconfig(quick: Quick):
    with pytest.raises(NoAccess, match="kubeconfig ~nobody-of-this-name/config"):
        read_kubeconfig("~nobody-of-this-name/config", "", {}, quick)


def test_a_home_that_is_not_ours_to_look_at_has_no_kubeconfig(quick: Quick, monkeypatch: pytest.MonkeyPatch):
    def refuse(path: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "exists", refuse)
    with pytest.raises(NoAccess, match="Give a file with --kubeconfig"):
        find_access({"HOME": "/root"}, quick)
    with pytest.raises(NoAccess, match="kubeconfig /root/config: Permission denied"):
        read_kubeconfig("/root/config", "", {}, quick)


async def test_a_name_that_no_host_can_have_is_told():
    with pytest.raises(NoAccess, match="is no name of a host"):
        await connect(Access(parse_server("http://a..b:1")))


async def test_a_name_that_no_certificate_can_have_is_told():
    listener = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    async with listener:
        port = listener.sockets[0].getsockname()[1]
        with pytest.raises(NoAccess, match="no certificate can be for"):
            await connect(Access(Server("127.0.0.1", port, name=".x")))


def test_a_credential_program_that_prints_no_text_is_told(quick: Quick):
    for output in (b'{"status": {"token": "\xff"}}', b"[" * 100_000):
        with pytest.raises(NoAccess, match="did not print an ExecCredential"):
            ExecPlugin(["x"], {}, V1, quick)._read("x", output)
