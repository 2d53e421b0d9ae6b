"""A certificate authority of the node's own, and one certificate for each who talks to the API server."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.node.rig.places import API_IN_PODS, CERTS, HOST, NODE
from tests.node.rig.steps import NodeFailedError

# Who it is for the API server: common name, and the organisation that RBAC reads as a group.
CLIENTS = {
    "admin": "/O=system:masters/CN=fairlead-node-admin",
    "scheduler": "/CN=system:kube-scheduler",
    "controller-manager": "/CN=system:kube-controller-manager",
    "kubelet": f"/O=system:nodes/CN=system:node:{NODE}",
    "apiserver-to-kubelet": "/O=system:masters/CN=apiserver",
}
DAYS = "30"
KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def make() -> None:
    ca = ["-CA", file("ca", "crt"), "-CAkey", file("ca", "key")]
    _request("ca", "/CN=fairlead-node", ["-addext", "keyUsage=critical,keyCertSign,cRLSign"])
    names = f"subjectAltName=IP:{HOST},IP:{API_IN_PODS},DNS:localhost,DNS:kubernetes.default.svc"
    _request("apiserver", "/CN=kube-apiserver", [*ca, "-addext", names, *_leaf("serverAuth")])
    for name, subject in CLIENTS.items():
        _request(name, subject, [*ca, *_leaf("clientAuth")])
    _openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", file("accounts", "key"))
    _openssl("ec", "-in", file("accounts", "key"), "-pubout", "-out", file("accounts", "pub"))


def file(name: str, kind: str) -> str:
    return str(Path(CERTS) / f"{name}.{kind}")


def _leaf(usage: str) -> list[str]:
    return ["-addext", "basicConstraints=critical,CA:FALSE", "-addext", f"extendedKeyUsage={usage}"]


def _request(name: str, subject: str, more: list[str]) -> None:
    out = ["-keyout", file(name, "key"), "-out", file(name, "crt")]
    _openssl("req", "-x509", *KEY, "-days", DAYS, "-subj", subject, *out, *more)


def _openssl(*args: str) -> None:
    done = subprocess.run(["openssl", *args], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NodeFailedError(f"openssl {args[0]} failed: {done.stderr.strip()}")
