"""The `fairlead` command. The daemon's own path is short: `run` is parsed here, everything else loads click."""

from __future__ import annotations

import gc
import signal
import sys
from collections.abc import Callable
from importlib import import_module
from io import TextIOWrapper

# Each is a module beside this one, which takes the place of another system's device plugin.
DIALECTS = {
    "doslab": "Take the place of kube-device-plugin-mini (doslab.io).",
    "gpushare": "Take the place of Aliyun's gpushare device plugin; also inspect.",
    "nvidia": "Take the place of NVIDIA's device plugin; also labels, config-manager, mps-daemon.",
    "volcano": "Take the place of Volcano's device plugin.",
}
DEFECT = 70  # EX_SOFTWARE
INTERRUPTED = 130  # 128 and the number of SIGINT, as shells have it


def main(argv: list[str] | None = None) -> None:
    """Entry point. Every error is one line and an exit code; no traceback reaches a user who did not ask for it."""
    try:
        if isinstance(sys.stdout, TextIOWrapper):  # a name that this terminal has no letters for is no defect
            sys.stdout.reconfigure(errors="backslashreplace")
        _dispatch(sys.argv[1:] if argv is None else argv)
    except KeyboardInterrupt:  # while starting; whoever has something to tidy up has caught it before
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
        # Whoever changes the configuration may tell us before we listen. It waits until then, and ends nobody.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    if args[:1] == ["run"]:
        gc.disable()  # nothing made while starting is garbage; the daemon turns it on again when it serves

        from fairlead.cli import lean  # noqa: PLC0415 - as below

        lean.load()
        from fairlead.cli.run import parse, run  # noqa: PLC0415 - the daemon loads no click: start-up and memory

        if (plain := parse(args[1:])) is not None:
            sys.exit(run(plain))
    elif args and args[0] in DIALECTS:
        gc.disable()

        from fairlead.cli import lean  # noqa: PLC0415 - as below

        lean.load()
        main: Callable[[list[str]], int] = import_module(f"fairlead.cli.{args[0]}").main
        sys.exit(main(args[1:]))
    from fairlead.cli.commands import cli  # noqa: PLC0415 - see above

    cli(args, prog_name="fairlead")
