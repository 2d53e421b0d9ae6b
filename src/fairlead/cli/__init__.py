"""The `fairlead` command. The daemon's own path is short: `run` is parsed here, everything else loads click.

Called by a name of `names.py`, it is the program of that name.
"""

from __future__ import annotations

import signal
import sys
from io import TextIOWrapper

from fairlead.cli.names import command_of

# Each is a package of fairlead.dialects, which takes the place of another system's device plugin.
DIALECTS = {
    "amd": "Take the place of AMD's GPU device plugin. Also: labels.",
    "doslab": "Take the place of kube-device-plugin-mini (doslab.io).",
    "generic": "Take the place of squat's generic-device-plugin.",
    "gke": "Take the place of GKE's device plugin for NVIDIA GPUs. Its repository is container-engine-accelerators.",
    "gpushare": "Take the place of Aliyun's gpushare device plugin. Also: inspect.",
    "nvidia": "Take the place of NVIDIA's device plugin. Also: labels, config-manager, mps-daemon.",
    "smarter": "Take the place of smarter-device-manager.",
    "volcano": "Take the place of Volcano's device plugin.",
}
DEFECT = 70  # EX_SOFTWARE
INTERRUPTED = 130  # 128 and the number of SIGINT, as shells have it


def main(argv: list[str] | None = None) -> None:
    """Entry point. Every error is one line and an exit code; no traceback reaches a user who did not ask for it."""
    try:
        if isinstance(sys.stdout, TextIOWrapper):  # a name that this terminal has no letters for is no defect
            sys.stdout.reconfigure(errors="backslashreplace")
        _dispatch([*command_of(sys.argv[0]), *sys.argv[1:]] if argv is None else argv)
    except KeyboardInterrupt:  # while starting; code with something to clean up has caught it before
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second one must not disturb the end
        sys.exit(INTERRUPTED)
    except Exception as error:
        from fairlead.config.settings import debugging  # noqa: PLC0415 - only a defect needs it

        if debugging():
            raise
        from fairlead.cli.say import say  # noqa: PLC0415 - as above

        say(f"this is a defect in Fairlead: {type(error).__name__}: {error}")
        say("run it again with FAIRLEAD_DEBUG=1 for the traceback, and report it")
        sys.exit(DEFECT)


def _dispatch(args: list[str]) -> None:
    if args and args[0] in {"run", *DIALECTS}:
        from fairlead.app.start import prepare  # noqa: PLC0415 - the other commands are no daemons

        prepare()
    if args[:1] == ["run"]:
        from fairlead.cli.run import parse, run  # noqa: PLC0415 - the daemon loads no click: start-up and memory

        if (plain := parse(args[1:])) is not None:
            sys.exit(run(plain))
    elif args and args[0] in DIALECTS:
        from fairlead.cli import dialect  # noqa: PLC0415 - see above

        sys.exit(dialect.main(args[0], args[1:]))
    from fairlead.cli.commands import cli  # noqa: PLC0415 - see above

    cli(args, prog_name="fairlead")
