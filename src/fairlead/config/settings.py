"""The common settings: what a flag or an environment variable can set, and where it lands in the configuration.

The only place that reads the environment.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, MutableMapping

from msgspec import Struct


class Setting(Struct, frozen=True):
    flag: str
    env: str
    path: tuple[str, ...]
    help: str
    switch: bool = False  # on or off: the flag alone means on


SETTINGS = (
    Setting("--plugin-dir", "FAIRLEAD_PLUGIN_DIR", ("kubelet", "directory"), "The kubelet's device-plugin directory."),
    Setting("--registration", "FAIRLEAD_REGISTRATION", ("kubelet", "registration"), "socket or watcher."),
    Setting("--watcher-dir", "FAIRLEAD_WATCHER_DIR", ("kubelet", "watcherDirectory"), "The plugin-watcher directory."),
    Setting("--pod-resources", "FAIRLEAD_POD_RESOURCES", ("kubelet", "podResources"), "The pod-resources socket."),
    Setting("--status-socket", "FAIRLEAD_STATUS_SOCKET", ("status", "socket"), "The daemon's own socket."),
    Setting("--http", "FAIRLEAD_HTTP", ("http", "listen"), "Serve probes and metrics there, such as 127.0.0.1:9402."),
    Setting(
        "--page-token-file",
        "FAIRLEAD_PAGE_TOKEN_FILE",
        ("http", "tokenFile"),
        "File with the token that the page asks for. Without one it is served on loopback only.",
    ),
    Setting("--scan-interval", "FAIRLEAD_SCAN_INTERVAL", ("scan", "interval"), "Time between scans, such as 60s."),
    Setting(
        "--scan-remember",
        "FAIRLEAD_SCAN_REMEMBER",
        ("scan", "remember"),
        "Offer what a daemon of the same boot found while a first scan is slow. On unless set to false.",
        switch=True,
    ),
    Setting("--log-format", "FAIRLEAD_LOG_FORMAT", ("log", "format"), "text or json."),
    Setting("--journal-dir", "FAIRLEAD_JOURNAL_DIR", ("log", "directory"), "Where the journal is kept on disk."),
    Setting(
        "--record", "FAIRLEAD_RECORD", ("record", "file"), "Record what happens in this file, for fairlead replay."
    ),
    Setting(
        "--watchdog-limit",
        "FAIRLEAD_WATCHDOG_LIMIT",
        ("watchdog", "limit"),
        "End the process when its event loop hangs for longer, such as 60s. 0: never.",
    ),
    Setting(
        "--take-over",
        "FAIRLEAD_TAKE_OVER",
        ("takeOver",),
        "Take over from a daemon that serves the same directory, without a gap.",
        switch=True,
    ),
    Setting("--instance", "FAIRLEAD_INSTANCE", ("instance",), "Name of this daemon, if two share a directory."),
)

SETTINGS_OF_MANAGERS = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
SWITCHES = {"true": True, "1": True, "false": False, "0": False}
CONFIG_ENV = "FAIRLEAD_CONFIG"
LABEL_ENV, CHOICE_ENV = "FAIRLEAD_CONFIG_LABEL", "FAIRLEAD_CONFIG_DEFAULT"
DEFAULT_CONFIG = "/etc/fairlead/fairlead.yaml"


class Override(Struct, frozen=True):
    path: tuple[str, ...]
    value: str | bool
    source: str  # "--plugin-dir" or "FAIRLEAD_PLUGIN_DIR"


def overrides(flags: Mapping[str, str | None], environ: Mapping[str, str] | None = None) -> tuple[Override, ...]:
    """Flags win over the environment; both win over the file. An empty variable counts as not set."""
    environ = os.environ if environ is None else environ
    found = []
    for setting in SETTINGS:
        flag = flags.get(setting.flag)
        if flag is not None:
            found.append(Override(setting.path, _value(setting, flag), setting.flag))
        elif environ.get(setting.env):
            found.append(Override(setting.path, _value(setting, environ[setting.env]), setting.env))
    return tuple(found)


def _value(setting: Setting, text: str) -> str | bool:
    """What is neither on nor off stays text: the decoder says what is wrong with it."""
    return SWITCHES.get(text.lower(), text) if setting.switch else text


def environment() -> Mapping[str, str]:
    """All of it, for a dialect: other systems have variables of their own."""
    return dict(os.environ)


class Supervision(Struct, frozen=True):
    """Who started the process, and what it wants to hear."""

    socket: str = ""  # where; empty: nothing
    watchdog_s: float = 0.0  # a sign of life at least this often; 0: none
    in_pod: bool = False  # a container that ends is started again


def supervision(environ: MutableMapping[str, str] | None = None) -> Supervision:
    """The variables of systemd. They are taken out of the environment: our children are not the service."""
    environ = os.environ if environ is None else environ
    socket, period_us, pid = (environ.pop(name, "") for name in SETTINGS_OF_MANAGERS)
    mine = not pid or pid == str(os.getpid())
    watchdog_s = int(period_us) / 1e6 if mine and period_us.isdecimal() else 0.0
    in_pod = bool(environ.get("KUBERNETES_SERVICE_HOST"))
    return Supervision(socket if socket[:1] in {"/", "@"} else "", watchdog_s, in_pod)


def debugging() -> bool:
    return bool(os.environ.get("FAIRLEAD_DEBUG"))


def config_path(flag: str | None, environ: Mapping[str, str] | None = None) -> str:
    environ = os.environ if environ is None else environ
    return flag or environ.get(CONFIG_ENV) or DEFAULT_CONFIG


def config_label(flag: str | None, default: str | None) -> tuple[str, str]:
    """The label of the node that chooses the configuration, and the one for a node without it."""
    return flag or os.environ.get(LABEL_ENV, ""), default or os.environ.get(CHOICE_ENV, "")
