"""`fairlead nvidia mps-daemon`: NVIDIA's mps-control-daemon, drop-in."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence

from fairlead.backends.nvidia.mps.daemonspec import ControlDaemonSpec
from fairlead.backends.nvidia.spec import Mps, Options
from fairlead.cli.say import say
from fairlead.config.settings import environment
from fairlead.dialects import goflags
from fairlead.dialects.goflags import BadFlag
from fairlead.dialects.nvidia.command import read_command_line
from fairlead.dialects.nvidia.flags import MPS_FLAGS
from fairlead.kit.clock import SystemClock
from fairlead.kit.decoding import convert
from fairlead.model.errors import FairleadError
from fairlead.observe.journal import Journal, text_line, to_stderr
from fairlead.programs.mpsdaemon import MpsDaemon, find_daemon_specs, mount_shm

FAILED = 1
SUMMARY = "Control daemons of MPS for what the config file shares so. mount-shm: make its shared memory, and end."


def main(args: Sequence[str]) -> int:
    try:
        return _main(list(args))
    except FairleadError as error:
        say(error, "fairlead nvidia mps-daemon")
        return FAILED
    except KeyboardInterrupt:
        return 130


def _main(args: list[str]) -> int:
    mount = "mount-shm" in args
    parsed = goflags.parse(MPS_FLAGS, [word for word in args if word != "mount-shm"], environment())
    if parsed.values["help"]:
        sys.stdout.write(goflags.usage("fairlead nvidia mps-daemon [mount-shm]", SUMMARY, MPS_FLAGS))
        return 0
    if parsed.rest and not parsed.values["lenient"]:
        raise BadFlag(f"{parsed.rest[0]!r} is no flag, and no command. There is one: mount-shm")
    root = str(parsed.values["mps-dir"])
    if mount:
        asyncio.run(mount_shm(root))
        return 0
    clock = SystemClock()
    journal = Journal(clock, to_stderr(text_line))

    async def load() -> Sequence[ControlDaemonSpec]:
        return await find_daemon_specs(_options(parsed.values), clock)

    def record(kind: str, /, **keys: object) -> None:
        journal.record(kind, **keys)

    try:
        asyncio.run(MpsDaemon(load, clock, record, sys.stdout.write, root=root).run())
    finally:
        journal.flush()
    return 0


def _options(values: Mapping[str, object]) -> Options:
    """What the plugin beside us makes of the same config file. Where MPS is on the host is not needed here."""
    args = [f"--mig-strategy={values['mig-strategy']}", f"--config-file={values['config-file']}", "--mps-root=/mps"]
    translation = read_command_line([*args, *(["--lenient"] if values["lenient"] else [])], {}).translate()
    made = convert(
        {key: value for key, value in translation.config["backends"][0].items() if key != "kind"}, Options, "nvidia"
    )
    mps = made.mps
    return Options(
        mig=made.mig,
        host_root=str(values["host-root"]),
        mps=Mps(root=str(values["mps-dir"]), replicas=mps.replicas, devices=mps.devices, managed=True),
    )
