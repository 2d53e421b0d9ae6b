"""Drives the Go program that plays the kubelet: one JSON line out, one JSON line back.

Owns the process and the matching of answers to requests. Must not know what is measured or asserted with it.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

LINE_BYTES = 64 << 20  # a list of devices as JSON is one line
PATIENCE_S = 40.0  # 20 MiB of lists take 10 s on a busy machine
SLACK_S = 10.0  # the program bounds its own operations; this bound is for a program that hangs


class GoError(Exception):
    """An operation failed on the Go side; `code` is the gRPC status name where it was one."""

    def __init__(self, text: str, code: str, message: str, result: Any) -> None:
        super().__init__(text)
        self.code, self.message, self.result = code, message, result


class GoKubelet:
    def __init__(self, binary: Path, directory: Path) -> None:
        self.binary, self.directory = binary, directory
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            self.binary,
            "--dir",
            self.directory,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=LINE_BYTES,
        )
        self._reader = asyncio.create_task(self._read(self._process), name="go-kubelet")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        process, reader = self._process, self._reader
        if process is None or reader is None or process.stdin is None:
            return
        process.stdin.close()  # its end
        try:
            async with asyncio.timeout(SLACK_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
        await reader

    async def ask(self, op: str, *, timeout_s: float = PATIENCE_S, **fields: Any) -> Any:
        """The result of one operation; GoError when it failed."""
        if self._process is None or self._process.stdin is None:
            raise RuntimeError("the Go kubelet is not running")
        request = {"id": next(self._ids), "op": op, "timeout_s": timeout_s, **fields}
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[request["id"]] = future
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        async with asyncio.timeout(timeout_s + SLACK_S):
            answer = await future
        if "error" in answer:
            raise GoError(answer["error"], answer.get("code", ""), answer.get("message", ""), answer.get("result"))
        return answer.get("result")

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        if process.stdout is None:
            return
        async for line in process.stdout:
            answer = json.loads(line)
            future = self._waiting.pop(answer["id"], None)
            if future is not None and not future.done():
                future.set_result(answer)
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(ConnectionError("the Go kubelet ended before it answered"))
