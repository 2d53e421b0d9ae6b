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
from fairlead.cli.demo.story import Event
from fairlead.model.errors import FairleadError
from fairlead.observe.status import DeviceStatus

HELP = "p pod  x delete  f fail  c clear  n plug in  u pull out  k restart kubelet  q quit"


class Keys:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._kubelet = stage.kubelet
        self._made = 0
        self._pressed: asyncio.Queue[str] = asyncio.Queue()
        # Each does something, and says what became of it.
        self._acts: dict[str, tuple[str, Callable[[], Awaitable[str]]]] = {
            "p": ("pod", self._pod),
            "x": ("pod", self._delete),
            "f": ("fault", self._fail),
            "c": ("fault", self._clear),
            "n": ("plug", self._plug),
            "u": ("plug", self._pull),
            "k": ("kubelet", self._restart),
        }

    async def follow(self) -> AsyncIterator[Event]:
        """What each key did, until q or Ctrl-C."""
        terminal = sys.stdin.fileno()
        before = termios.tcgetattr(terminal)
        loop = asyncio.get_running_loop()
        tty.setcbreak(terminal)
        loop.add_reader(terminal, lambda: self._pressed.put_nowait(sys.stdin.read(1)))
        try:
            while (key := await self._pressed.get()) not in {"q", "\x04", ""}:
                if key in self._acts:
                    kind, act = self._acts[key]
                    began = time.perf_counter()
                    try:
                        text = await act()
                    except (FairleadError, TimeoutError) as error:
                        kind, text = "demo", str(error)
                    yield Event(kind, text, time.perf_counter() - began)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None:
                task.uncancel()  # Ctrl-C: leave the way q does
        finally:
            loop.remove_reader(terminal)
            termios.tcsetattr(terminal, termios.TCSADRAIN, before)

    async def _offered(self) -> list[DeviceStatus]:
        return [device for device in (await self._stage.status()).devices if device.resource]

    async def _steer(self, **order: Any) -> str:
        return str(await self._stage.ask("steer", **order))

    async def _pod(self) -> str:
        self._made += 1
        resource = next((device.resource for device in await self._offered()), None)
        if resource is None:
            return "there is no device to ask for"
        name, size = f"yours-{self._made}", 1 + self._made % 2
        pod = await self._kubelet.run_pod(name, {"main": {resource: size}})
        if pod.phase == "Running":
            return f"{name} asked for {size} and runs"
        await self._kubelet.delete_pod(pod)
        return f"{name} asked for {size}: {pod.reason}: {pod.message}"

    async def _delete(self) -> str:
        if not self._kubelet.pods:
            return "no pod is left"
        pod = self._kubelet.pods[-1]
        await self._kubelet.delete_pod(pod)
        return f"{pod.name} left"

    async def _fail(self) -> str:
        healthy = [device for device in await self._offered() if device.health == "healthy"]
        return await self._steer(do="fail", device=healthy[-1].id, xid=79) if healthy else "every device has failed"

    async def _clear(self) -> str:
        failed = [device for device in await self._offered() if device.health != "healthy"]
        return await self._steer(do="clear", device=failed[0].id) if failed else "every device is healthy"

    async def _plug(self) -> str:
        self._made += 1
        new: dict[str, Any] = {"id": f"GPU-{self._made:08x}-feed-4000-8000-00000000beef", "index": f"n{self._made}"}
        for device in (await self._offered())[:1]:
            new |= {"vendor": device.vendor, "model": device.model, "memory": device.memory_bytes}
        return await self._steer(do="plug", new=new)

    async def _pull(self) -> str:
        devices = await self._offered()
        return await self._steer(do="unplug", device=devices[-1].id) if devices else "there is no device to pull out"

    async def _restart(self) -> str:
        await self._kubelet.restart()
        return "restarted"
