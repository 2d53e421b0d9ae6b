"""The kubelet's end of a plugin's sockets, for asking anything at all: also what no kubelet would ask.

Takes registrations on the stand-in's socket, dials back, follows each resource's lists and makes single calls. Owns the
process of the program under test. Must not know recordings nor what an answer should be.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from fairlead.standin._gen import deviceplugin_v1beta1_pb2 as dp
from fairlead.standin.errors import Rejected
from fairlead.standin.plugin import open_channel
from fairlead.standin.servers import Socket, registration_service

PATIENCE_S = 30.0
DIAL_S = 10.0
_SERVICE = "/v1beta1.DevicePlugin/"


class NothingHappenedError(Exception):
    """What was waited for did not come; the text has the program's last words."""


class Followed:
    """One registration: a connection, and the lists that came over it."""

    def __init__(self, path: Path, news: asyncio.Event) -> None:
        self.channel = open_channel(path, "localhost", 1.0)
        self.options: dp.DevicePluginOptions | None = None
        self.lists: list[dp.ListAndWatchResponse] = []
        self.ended: str | None = None
        self._news = news
        self._task = asyncio.ensure_future(self._follow())

    async def ask(self, method: str, request: Any, reply: type[Any]) -> Any:
        call = self.channel.unary_unary(
            f"{_SERVICE}{method}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=reply.FromString,
        )
        return await call(request, timeout=PATIENCE_S)

    async def _follow(self) -> None:
        watch = self.channel.unary_stream(
            f"{_SERVICE}ListAndWatch",
            request_serializer=dp.Empty.SerializeToString,
            response_deserializer=dp.ListAndWatchResponse.FromString,
        )
        try:
            # As the kubelet: it dials until the plugin answers, for up to 10 s.
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.channel.channel_ready(), DIAL_S)
            self.options = await self.ask("GetDevicePluginOptions", dp.Empty(), dp.DevicePluginOptions)
            async for message in watch(dp.Empty()):
                self.lists.append(message)
                self._news.set()
            self.ended = "OK"
        except grpc.aio.AioRpcError as error:
            self.ended = error.code().name
        self._news.set()

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self.channel.close(None)


class Kubelet:
    """And the program: start it, ask it, end it."""

    def __init__(self, plugins: Path) -> None:
        self.plugins = plugins
        self.registrations: list[dp.RegisterRequest] = []
        self.followed: dict[str, Followed] = {}
        self.refuses: str | None = None
        self._log = bytearray()
        self._news = asyncio.Event()
        self._socket: Socket | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None

    @property
    def log(self) -> str:
        return self._log.decode(errors="replace")

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        assert self._process is not None
        return self._process.returncode

    def sockets(self) -> list[str]:
        return sorted(path.name for path in self.plugins.glob("*.sock") if path.name != "kubelet.sock")

    async def serve(self) -> None:
        scratch = self.plugins.with_name(".registration")
        self._socket = Socket(self.plugins / "kubelet.sock", scratch, registration_service(self._register))
        await self._socket.start()

    async def restart(self) -> None:
        """As a kubelet does: every socket in the directory goes, its own comes anew."""
        if self._socket is not None:
            await self._socket.stop()
        for path in self.plugins.glob("*.sock"):
            path.unlink()
        await self.serve()

    async def start(self, command: list[str], env: dict[str, str]) -> None:
        self._process = await asyncio.create_subprocess_exec(
            *command, env=env, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        self._reader = asyncio.ensure_future(self._read(self._process))

    async def until(self, what: Callable[[], bool], timeout_s: float = PATIENCE_S) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                while not what():
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise NothingHappenedError(
                f"nothing came in {timeout_s:g} s. The program said:\n{self.log[-3000:]}"
            ) from None

    def signal(self, number: signal.Signals) -> None:
        if self.exit_code is None:
            os.kill(self.pid, number)

    async def stop(self) -> int:
        self.signal(signal.SIGTERM)
        assert self._process is not None
        async with asyncio.timeout(PATIENCE_S):
            return await self._process.wait()

    async def close(self) -> None:
        if self._process is not None:
            self.signal(signal.SIGKILL)
            await self._process.wait()
        if self._reader is not None:
            await self._reader
        for followed in self.followed.values():
            await followed.close()
        if self._socket is not None:
            await self._socket.stop()

    async def _register(self, request: dp.RegisterRequest) -> None:
        self.registrations.append(request)
        if self.refuses is not None:
            raise Rejected(self.refuses)
        if old := self.followed.get(request.resource_name):
            await old.close()
        self.followed[request.resource_name] = Followed(self.plugins / request.endpoint, self._news)
        self._news.set()

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        while chunk := await process.stdout.read(65536):
            self._log += chunk
            self._news.set()
        await process.wait()
        self._news.set()


@contextlib.asynccontextmanager
async def kubelet(plugins: Path) -> AsyncIterator[Kubelet]:
    it = Kubelet(plugins)
    try:
        yield it
    finally:
        await it.close()
