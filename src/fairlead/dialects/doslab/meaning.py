"""What `fairlead doslab …` means: from a command line and an environment to a configuration of ours."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fairlead.dialects.goflags import BadFlag, Flag, Kind
from fairlead.dialects.gpus import (
    ACTUAL,
    KUBECONFIG,
    MAX_STALL,
    NODE_NAME,
    PER_CONTAINER,
    UNIT_TOO_SMALL,
    configure,
    memory,
)
from fairlead.dialects.order import Meant, Order, last_flags, own_flags, read_flags

SOURCE = "fairlead doslab"
DOMAIN = "doslab.io/"
SCHEDULER_IP = f"{DOMAIN}gem-scheduler-ip"
MANAGER_PORT = f"{DOMAIN}gem-podmanager-port"
ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
TOKEN_ELSEWHERE = "/etc/fairlead/token"  # noqa: S105 - where the printed configuration expects it

FLAGS = (
    Flag("masterUrl", Kind.TEXT, "", help="Address of the API server. Left out: as kubectl, or the pod's own account."),
    Flag(
        "token",
        Kind.TEXT,
        "",
        help="Token for it. Everybody on the node can read it here: see --token-file.",
        secret=True,
    ),
)
OWN = (
    *own_flags("doslab", "kube-device-plugin-mini"),
    UNIT_TOO_SMALL,
    MAX_STALL,
    KUBECONFIG,
    Flag("token-file", Kind.TEXT, "", ("FAIRLEAD_TOKEN_FILE",), help="File with the token for -masterUrl."),
    Flag(
        "ca-file",
        Kind.TEXT,
        f"{ACCOUNT}/ca.crt",
        ("FAIRLEAD_CA_FILE",),
        help="Certificates to trust at -masterUrl. Empty: those of the host.",
    ),
    *last_flags(),
)

RULE: Mapping[str, Any] = {
    "resource": f"{DOMAIN}gpu-memory",
    "assign": {
        "device": f"{DOMAIN}gpu-uuid",
        "by": "id",
        "time": f"{DOMAIN}gpu-assume-time",
        "timeRequired": True,
        "assigned": f"{DOMAIN}gpu-assigned",
        "unassigned": ["false"],
        "afterBind": False,
        "actual": ACTUAL,
        "needs": [SCHEDULER_IP, MANAGER_PORT],
        "wait": "10s",
        "marks": {f"{DOMAIN}gpu-assigned": "true"},
    },
    "perContainer": PER_CONTAINER,
    "env": {
        "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
        "LD_PRELOAD": "/kubeshare/library/libgemhook.so.1",
        "POD_MANAGER_IP": f"{{annotation:{SCHEDULER_IP}}}",
        "POD_MANAGER_PORT": f"{{annotation:{MANAGER_PORT}}}",
        "POD_NAME": "{podName}",
        "DOSLAB_IO_GPU_UUID": "{ids}",
        "DOSLAB_IO_GPU_RESOURCE_USED_BY_POD": "{podUnits}",
        "DOSLAB_IO_GPU_RESOURCE_USED_BY_CONTAINER": "{units}",
        "DOSLAB_IO_GPU_RESOURCE_TOTAL": "{nodeUnits}",
    },
}
AMOUNTS = (
    {"resource": f"{DOMAIN}gpu-count", "perDevice": 1},
    {"resource": f"{DOMAIN}gpu-core", "perDevice": 100},
)


class DoslabOrder(Order, frozen=True):
    host: str  # the node's name, unless the environment has it
    token_file: str = ""  # where the token from the command line is kept

    @property
    def source(self) -> str:
        return SOURCE

    def meant(self) -> Meant:
        notes: list[str] = []
        rule = {"resource": RULE["resource"], "memory": memory(self.parsed, "1MiB", "fakeID---{index}---{n}"), **RULE}
        cluster = {**self._server(notes), **({} if self.environ.get(NODE_NAME) else {"node": self.host})}
        config = configure(
            self.parsed,
            name="doslab",
            socket_name="doslab.sock",
            backend={},
            rule=rule,
            amounts=AMOUNTS,
            cluster=cluster,
        )
        return Meant(config, tuple(notes))

    def _server(self, notes: list[str]) -> dict[str, Any]:
        values = self.parsed.values
        server, token, file = (str(values[name]) for name in ("masterUrl", "token", "token-file"))
        if token and file:
            raise BadFlag("-token and --token-file: only one of them can be meant. Leave one out")
        if (token or file) and not server:
            raise BadFlag(
                f"{'-token' if token else '--token-file'} needs -masterUrl, which has no default here. "
                "Leave out both, and the pod's own account or $KUBECONFIG is used"
            )
        if not server:
            return {}
        if values["kubeconfig"]:
            raise BadFlag("-masterUrl and --kubeconfig: only one of them can be meant. Leave one out")
        if token and values["print-config"]:
            notes.append(f"the token is not shown: put it into a file, {TOKEN_ELSEWHERE} or another")
            file = TOKEN_ELSEWHERE
        made = {"server": server, "tokenFile": self.token_file or file or f"{ACCOUNT}/token"}
        if server.startswith("https:") and values["ca-file"]:
            made["caFile"] = str(values["ca-file"])
        return made


def read(
    args: Sequence[str],
    environ: Mapping[str, str],
    host: Callable[[], str] = lambda: os.uname().nodename,
    keep: Callable[[str], str] | None = None,
) -> DoslabOrder:
    """BadFlag for what cannot be understood."""
    parsed = read_flags((*FLAGS, *OWN), args, environ, "-masterUrl=https://10.0.0.1:6443")
    token = str(parsed.values["token"])
    kept = (keep or keep_token)(token) if token and not parsed.values["print-config"] else ""
    return DoslabOrder(parsed, environ, host().strip().lower(), kept)


def keep_token(token: str) -> str:
    """A file that is on no disk and that only this process can open, as the configuration holds no tokens."""
    file = os.memfd_create("token")
    os.write(file, token.encode())
    return f"/proc/self/fd/{file}"
