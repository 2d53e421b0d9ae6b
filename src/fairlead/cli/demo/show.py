"""The show: prints the story line by line, with a live table on a terminal, and lets the visitor play afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from typing import Any

from fairlead.cli.demo.keys import HELP, Keys
from fairlead.cli.demo.stage import DemoFailed, Stage
from fairlead.cli.demo.story import Event, Story
from fairlead.cli.draw import duration, paint
from fairlead.model.errors import FairleadError

STYLES = {"kubelet": "accent", "daemon": "accent", "pod": "good", "fault": "warn", "plug": "accent", "stop": "accent"}
REFRESH_S = 0.25
# On a terminal a reader needs a moment between two lines.
PAUSE_S = 1.2


class Show:
    def __init__(self, fleet: str, *, stay: bool, keep: bool, record: str = "") -> None:
        self._fleet = fleet
        self._stay = stay
        self._keep = keep
        self._record = record
        self._live: Any = None
        self._visiting = False  # the keys work
        self._began = time.perf_counter()

    async def run(self) -> int:
        async with Stage(self._fleet, keep=self._keep, record=self._record) as stage:
            story = Story(stage)
            try:
                self._print(
                    paint("Fairlead demo", "bold")
                    + f"  simulated node {self._fleet}, embedded kubelet, the real daemon"
                )
                self._print(f"In a browser: {paint(f'http://{stage.address}', 'accent')}\n")
                with self._screen():
                    drawing = asyncio.create_task(self._draw(stage)) if self._live else None
                    try:
                        async for event in story.tell():
                            self._line(event)
                            if self._live:
                                await asyncio.sleep(PAUSE_S)
                        if self._stay:
                            await self._visit(stage, story.resource)
                    finally:
                        if drawing:
                            drawing.cancel()
                            await asyncio.gather(drawing, return_exceptions=True)
                self._line(await story.epilogue())
            except DemoFailed as failure:
                self._print(paint(f"✗ {failure}", "bad"))
                self._print(paint("the daemon's last lines:", "dim") + "\n" + stage.log_tail())
                return 1
            took = duration(time.perf_counter() - self._began)
            self._print(f"\n{paint('✓ every step ended as it must', 'good')}  ({took})")
            if self._keep:
                self._print(f"kept: {stage.root}")
            return 0

    # --- Lines ----------------------------------------------------------------------------------------------------

    def _line(self, event: Event) -> None:
        kind = paint(f"{event.kind:>8}", STYLES.get(event.kind, ""))
        self._print(f"{kind}  {event.text} {paint(duration(event.took_s), 'dim')}")

    def _print(self, text: str) -> None:
        if self._live:
            from rich.text import Text  # noqa: PLC0415 - an extra

            self._live.console.print(Text.from_ansi(text))
        else:
            sys.stdout.write(text + "\n")
            sys.stdout.flush()

    # --- The live table -------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _screen(self) -> Any:
        """A live table under the story, where there is a terminal and rich."""
        if not sys.stdout.isatty():
            yield
            return
        try:
            from rich.live import Live  # noqa: PLC0415 - an extra
        except ImportError:
            self._print("for a live table: pip install 'fairlead[pretty]'")
            yield
            return
        with Live(refresh_per_second=8, transient=False) as self._live:
            try:
                yield
            finally:
                self._live.update("")
        self._live = None

    async def _draw(self, stage: Stage) -> None:
        from fairlead.cli.demo.view import draw  # noqa: PLC0415 - needs rich

        while True:
            with contextlib.suppress(FairleadError):
                self._live.update(draw(await stage.status(), HELP if self._visiting else ""))
            await asyncio.sleep(REFRESH_S)

    # --- The visitor ----------------------------------------------------------------------------------------------

    async def _visit(self, stage: Stage, resource: str) -> None:
        self._visiting = True
        self._print("")
        self._print("Now you. Keys are below the table; or, in a second shell:")
        for command in ("status", f"explain {resource} -n 3", "sim fail 2 xid=79", "clear 2"):
            self._print(paint(f"  {sys.argv[0]} {command} --socket {stage.socket}", "accent"))
        async for event in Keys(stage).follow():
            self._line(event)
