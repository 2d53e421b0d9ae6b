"""`fairlead doslab …`: from a command line and an environment to a configuration of ours."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fairlead.dialects.goflags import BadFlag, Flag, Kind
from fairlead.dialects.gpus import (
    KUBECONFIG,
    MAX_STALL,
    NODE_NAME,
    PER_CONTAINER,
    UNIT_TOO_SMALL,
    configure,
    memory,
)
from fairlead.dialects.invocation import Invocation, Program, Translation, common_flags, help_flags, read_flags
from fairlead.policy.pods.contract import DOSLAB

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
        help="Token for it. Every user of the node can read it here: see --token-file.",
        secret=True,
    ),
)
OWN = (
    *common_flags("doslab", "kube-device-plugin-mini"),
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
    *help_flags(),
)

RULE: Mapping[str, Any] = {
    "resource": DOSLAB.resource,
    "assign": {
        "device": DOSLAB.device,
        "by": "id",
        "time": DOSLAB.time,
        "timeRequired": True,
        "assigned": DOSLAB.assigned,
        "unassigned": ["false"],
        "afterBind": False,
        "actual": DOSLAB.actual,
        "needs": [SCHEDULER_IP, MANAGER_PORT],
        "wait": "10s",
        "marks": {DOSLAB.assigned: "true"},
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
    {"resource": DOSLAB.count, "perDevice": 1},
    {"resource": f"{DOMAIN}gpu-core", "perDevice": 100},
)


class DoslabInvocation(Invocation, frozen=True):
    host: str  # the node's name, unless the environment has it
    token_file: str = ""  # where the token from the command line is kept

    @property
    def source(self) -> str:
        return SOURCE

    def translate(self) -> Translation:
        notes: list[str] = []
        rule = {"resource": RULE["resource"], "memory": memory(self.parsed, "1MiB", "fakeID---{index}---{n}"), **RULE}
        cluster = {**self._server(notes), **({} if self.environ.get(NODE_NAME) else {"node": self.host})}
        config = configure(
            OWN,
            self.parsed,
            name="doslab",
            socket_name="doslab.sock",
            backend={},
            rule=rule,
            amounts=AMOUNTS,
            cluster=cluster,
        )
        return Translation(config, tuple(notes))

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


def read_command_line(
    args: Sequence[str],
    environ: Mapping[str, str],
    host: Callable[[], str] = lambda: os.uname().nodename,
    keep: Callable[[str], str] | None = None,
) -> DoslabInvocation:
    """BadFlag for what cannot be understood."""
    parsed = read_flags((*FLAGS, *OWN), args, environ, "-masterUrl=https://10.0.0.1:6443")
    token = str(parsed.values["token"])
    kept = (keep or keep_token)(token) if token and not parsed.values["print-config"] else ""
    return DoslabInvocation(parsed, environ, host().strip().lower(), kept)


PROGRAM = Program(
    SOURCE,
    "The device plugin of doslab.io (kube-device-plugin-mini): its flags and contract, on Fairlead's engine.",
    (*FLAGS, *OWN),
    read_command_line,
    bad_flag=2,  # as Go's flag package ends
    not_offered="In flags: --unit-too-small=grow. A pod's number then counts larger units",
)


def keep_token(token: str) -> str:
    """A file that is on no disk and that only this process can open, as the configuration holds no tokens."""
    file = os.memfd_create("token")
    os.write(file, token.encode())
    return f"/proc/self/fd/{file}"
