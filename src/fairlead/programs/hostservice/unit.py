"""The unit of the service, as text: started before the kubelet, watched, and closed in to what its needs say. Pure.

docs/guide/host.md gives the reason for each directive; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from fairlead.programs.hostservice.needs import Needs, Nodes

CACHE = "fairlead"  # below /var/cache
CACHE_VARIABLE = "FAIRLEAD_ONEFILE_CACHE"
WATCHDOG_S = 60
START_MARGIN_S = 15.0
Directive = tuple[str, str]


class Service(Struct, frozen=True):
    name: str  # of the unit, without its suffix
    command: tuple[str, ...]  # the program and its arguments
    kubelets: tuple[str, ...]  # units that must start later
    environment: str  # path of the file with variables
    description: str
    one_file: bool = False  # the program unpacks itself


def render(service: Service, needs: Needs) -> str:
    parts = {
        "Unit": _unit(service),
        "Service": [*_service(service, needs), *_sandbox(needs)],
        "Install": [("WantedBy", "multi-user.target")],
    }
    return "\n".join(
        f"[{name}]\n" + "".join(f"{key}={value}\n" for key, value in lines) for name, lines in parts.items()
    )


def _unit(service: Service) -> Iterator[Directive]:
    yield "Description", service.description
    yield "Before", " ".join(service.kubelets)
    yield "After", "systemd-modules-load.service nvidia-persistenced.service"
    yield "StartLimitIntervalSec", "0"


def _service(service: Service, needs: Needs) -> Iterator[Directive]:
    yield "Type", "notify"
    yield "NotifyAccess", "main"
    for path, mode in needs.directories:
        yield "ExecStartPre", f"+mkdir -p --mode={mode:04o} {quote(path)}"
    yield "ExecStart", " ".join(map(quote, service.command))
    yield "ExecReload", "kill -HUP $MAINPID"
    yield "EnvironmentFile", f"-{service.environment}"
    yield "TimeoutStartSec", f"{needs.start_s + START_MARGIN_S:.0f}"
    yield "TimeoutStopSec", "20"
    yield "WatchdogSec", f"{WATCHDOG_S}"
    yield "Restart", "always"
    yield "RestartSec", "1"
    yield "KillMode", "mixed"
    yield "OOMScoreAdjust", "-900"
    yield "LimitNOFILE", "4096"
    if not needs.programs:
        yield "MemoryMax", "512M"
        yield "TasksMax", "64"
    yield "RuntimeDirectory", "fairlead"
    yield "RuntimeDirectoryMode", "0755"
    yield "RuntimeDirectoryPreserve", "yes"
    yield "StateDirectory", "fairlead"
    yield "StateDirectoryMode", "0750"
    if service.one_file:
        yield "CacheDirectory", CACHE
        yield "CacheDirectoryMode", "0700"
        yield "Environment", f"{CACHE_VARIABLE}=%C/{CACHE}"


def _sandbox(needs: Needs) -> Iterator[Directive]:
    yield "ProtectSystem", "strict"
    for path, _ in needs.directories:
        # With "-": systemd sets the paths up for ExecStartPre too, which makes the directories.
        yield "ReadWritePaths", quote(f"-{path}")
    yield "ProtectHome", "read-only" if needs.homes else "yes"
    if not needs.shared_tmp:
        yield "PrivateTmp", "yes"
    if needs.nodes is Nodes.NONE:
        yield "PrivateDevices", "yes"
    if needs.nodes is not Nodes.OPENED:
        yield "DevicePolicy", "closed"
    if not needs.network:
        yield "PrivateNetwork", "yes"
        yield "IPAddressDeny", "any"
    yield "RestrictAddressFamilies", "AF_UNIX AF_INET AF_INET6" if needs.network else "AF_UNIX"
    yield "CapabilityBoundingSet", " ".join(needs.capabilities)
    yield "AmbientCapabilities", ""
    yield "NoNewPrivileges", "yes"
    # One line takes calls away from what the other gives.
    yield "SystemCallFilter", "@system-service"
    yield "SystemCallFilter", f"~@privileged @obsolete{'' if needs.library or needs.programs else ' @resources'}"
    yield "SystemCallErrorNumber", "EPERM"
    yield "SystemCallArchitectures", "native"
    if not needs.library and not needs.programs:
        yield "MemoryDenyWriteExecute", "yes"
    yield "UMask", "0027"
    for name in SWITCHES:
        yield name, "yes"
    yield "ProtectProc", "default" if needs.programs else "invisible"
    yield "KeyringMode", "private"


# The same for every configuration.
SWITCHES = (
    "ProtectKernelTunables",
    "ProtectKernelModules",
    "ProtectKernelLogs",
    "ProtectControlGroups",
    "ProtectClock",
    "ProtectHostname",
    "RestrictNamespaces",
    "RestrictRealtime",
    "RestrictSUIDSGID",
    "LockPersonality",
)


def quote(word: str) -> str:
    """A word of a command line or a path, so that systemd reads it as it is: no specifier, no variable."""
    plain = word.replace("%", "%%").replace("$", "$$")
    if plain and all(char.isalnum() or char in "_-./=:,@+%$" for char in plain) and plain.isascii():
        return plain
    inner = "".join(_escape(char) for char in plain)
    return f'"{inner}"'


def _escape(char: str) -> str:
    if char in {'"', "\\"}:
        return f"\\{char}"
    if char.isprintable():
        return char
    return "".join(f"\\x{byte:02x}" for byte in char.encode("utf-8", "surrogateescape"))


def directives(texts: Sequence[str]) -> set[str]:
    """The names of all directives in some units."""
    return {line.partition("=")[0] for text in texts for line in text.splitlines() if "=" in line and line[0] != "#"}
