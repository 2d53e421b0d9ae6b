"""The visitor's keys: one letter, one thing that happens on the node."""

from __future__ import annotations

import asyncio
import sys
import termios
import time
import tty
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from fairlead.cli.demo.stage import Stage
from fairlead.cli.demo.story import Told
from fairlead.model.errors import FairleadError

HELP = "p pod   x delete pod   f fail a GPU   c clear it   n plug one in   u pull one   k restart kubelet   q quit"


class Keys:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._kubelet = stage.kubelet
        self._made = 0
        self._pressed: asyncio.Queue[str] = asyncio.Queue()
        self._acts: dict[str, Callable[[], Awaitable[Told]]] = {
            "p": self._pod,
            "x": self._delete,
            "f": self._fail,
            "c": self._clear,
            "n": self._plug,
            "u": self._pull,
            "k": self._restart,
        }

    async def follow(self) -> AsyncIterator[Told]:
        """What each key did, until q or Ctrl-C."""
        terminal = sys.stdin.fileno()
        before = termios.tcgetattr(terminal)
        loop = asyncio.get_running_loop()
        tty.setcbreak(terminal)
        loop.add_reader(terminal, lambda: self._pressed.put_nowait(sys.stdin.read(1)))
        try:
            while (key := await self._pressed.get()) not in {"q", "\x04", ""}:
                if act := self._acts.get(key):
                    began = time.perf_counter()
                    try:
                        told = await act()
                    except (FairleadError, TimeoutError) as error:
                        told = Told("demo", str(error), 0.0)
                    yield Told(told.mark, told.text, time.perf_counter() - began)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None:
                task.uncancel()  # Ctrl-C: leave the way q does
        finally:
            loop.remove_reader(terminal)
            termios.tcsetattr(terminal, termios.TCSADRAIN, before)

    async def _rows(self) -> list[dict[str, Any]]:
        status = await self._stage.ask("status")
        return [row for row in status["devices"] if row["resource"]]

    async def _pod(self) -> Told:
        self._made += 1
        rows = await self._rows()
        if not rows:
            return Told("pod", "there is no device to ask for", 0.0)
        name, size = f"yours-{self._made}", 1 + self._made % 2
        pod = await self._kubelet.run_pod(name, {"main": {rows[0]["resource"]: size}})
        if pod.phase == "Running":
            return Told("pod", f"{name} asked for {size} and runs", 0.0)
        await self._kubelet.delete_pod(pod)
        return Told("pod", f"{name} asked for {size}: {pod.reason}: {pod.message}", 0.0)

    async def _delete(self) -> Told:
        if not self._kubelet.pods:
            return Told("pod", "no pod is left", 0.0)
        pod = self._kubelet.pods[-1]
        await self._kubelet.delete_pod(pod)
        return Told("pod", f"{pod.name} left", 0.0)

    async def _fail(self) -> Told:
        well = [row for row in await self._rows() if row["health"] == "healthy"]
        if not well:
            return Told("fault", "every device has failed already", 0.0)
        return Told("fault", await self._stage.ask("steer", do="fail", device=well[-1]["id"], xid=79), 0.0)

    async def _clear(self) -> Told:
        ill = [row for row in await self._rows() if row["health"] != "healthy"]
        if not ill:
            return Told("fault", "nothing is wrong", 0.0)
        return Told("fault", await self._stage.ask("steer", do="clear", device=ill[0]["id"]), 0.0)

    async def _plug(self) -> Told:
        rows = await self._rows()
        self._made += 1
        new = {"id": f"GPU-{self._made:08x}-feed-4000-8000-00000000beef", "index": f"n{self._made}"}
        if rows:
            new |= {"vendor": rows[0]["vendor"], "model": rows[0]["model"], "memory": rows[0]["memory_bytes"]}
        return Told("plug", await self._stage.ask("steer", do="plug", new=new), 0.0)

    async def _pull(self) -> Told:
        rows = await self._rows()
        if not rows:
            return Told("plug", "there is nothing to pull", 0.0)
        return Told("plug", await self._stage.ask("steer", do="unplug", device=rows[-1]["id"]), 0.0)

    async def _restart(self) -> Told:
        await self._kubelet.restart()
        return Told("kubelet", "restarted", 0.0)
