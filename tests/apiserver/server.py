"""HTTP for the store, with the answers, the refusals and the bad days of an API server."""

from __future__ import annotations

import asyncio
import copy
import json
import re
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.apiserver.store import Object, RefusedError, Store, apply_ops, merge, merge_strategic

PATCHES = {
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
}

REVIEWS = "selfsubjectaccessreviews"


@dataclass
class Request:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Fault:
    """What happens to the next request, or the next of a kind, instead of an answer."""

    code: int = 0  # refuse with this
    message: str = ""
    retry_after: str = ""
    hang: bool = False
    close: bool = False
    raw: bytes | None = None  # answer with these bytes, then close
    methods: str = ""  # such as "PUT PATCH"; empty: any
    path: str = ""  # a regular expression; empty: any

    def meets(self, request: Request) -> bool:
        return (not self.methods or request.method in self.methods.split()) and bool(re.search(self.path, request.path))


@dataclass
class Target:
    """What a path names."""

    group: str
    plural: str
    namespace: str
    name: str
    subresource: str


class ApiServer:
    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.store = Store()
        self.requests: list[Request] = []
        self.faults: list[Fault] = []
        self.allowed: set[tuple[str, str]] | None = None  # (verb, resource); None: everything
        self.tokens: set[str] | None = None
        self.port = 0
        self.connections = 0  # how many were made
        self.bookmarks = True
        self.selects = True  # whether fieldSelector is minded
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._watching = asyncio.Event()  # set when a watch is open
        self._epoch = asyncio.Event()  # set to end the open watches

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    def write_kubeconfig(self, file: Path, token: str = "s3cret") -> str:
        """A way to it, for programs that read such files."""
        config = {
            "clusters": [{"name": "c", "cluster": {"server": self.url}}],
            "users": [{"name": "u", "user": {"token": token}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        file.write_text(json.dumps(config))
        return str(file)

    async def start(self) -> None:
        """On the same port after a stop."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """As a crash: whatever is open is cut."""
        assert self._server is not None
        self._server.close()
        await self.drop()
        await self._server.wait_closed()

    async def drop(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._watching.clear()

    def end_watches(self) -> None:
        """In order, as a server does when their time is over."""
        self._epoch.set()
        self._epoch = asyncio.Event()
        self._watching.clear()
        self.store.wake()

    async def watched(self) -> None:
        await self._watching.wait()

    # --- Connections ----------------------------------------------------------------------------------------------

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        try:
            while (request := await _read(reader)) is not None:
                self.requests.append(request)
                if not await self._answer(request, writer):
                    return
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _answer(self, request: Request, writer: asyncio.StreamWriter) -> bool:
        """Whether the connection can go on."""
        if fault := next((one for one in self.faults if one.meets(request)), None):
            self.faults.remove(fault)
            if fault.hang:
                await asyncio.Event().wait()
            if fault.close:
                return False
            if fault.raw is not None:
                writer.write(fault.raw)
                await writer.drain()
                return False
            await self._refuse(writer, RefusedError(fault.code, fault.message), fault.retry_after)
            return True
        try:
            self._admit(request)
            if request.query.get("watch") == "true":
                await self._watch(request, writer)
                return True
            code, answer = self._serve(request)
        except RefusedError as refused:
            await self._refuse(writer, refused)
        else:
            await _write(writer, code, answer)
        return True

    async def _refuse(self, writer: asyncio.StreamWriter, refused: RefusedError, retry_after: str = "") -> None:
        more = f"Retry-After: {retry_after}\r\n" if retry_after else ""
        await _write(writer, refused.code, _status(refused), more)

    # --- Requests -------------------------------------------------------------------------------------------------

    def _admit(self, request: Request) -> None:
        if self.tokens is not None:
            _, _, token = request.headers.get("authorization", "").partition("Bearer ")
            if token not in self.tokens:
                raise RefusedError(401, "Unauthorized")
        if self.allowed is None:
            return
        target = _target(request.path)
        if target.plural == REVIEWS:  # every account may ask for its rights
            return
        resource = f"{target.plural}/{target.subresource}" if target.subresource else target.plural
        if (verb := _verb(request, target)) not in {verb for verb, what in self.allowed if what == resource}:
            scope = f'in the namespace "{target.namespace}"' if target.namespace else "at the cluster scope"
            raise RefusedError(
                403,
                f'{target.plural} "{target.name}" is forbidden: User "system:serviceaccount:default:fairlead" cannot '
                f'{verb} resource "{resource}" in API group "{target.group}" {scope}',
            )

    def _serve(self, request: Request) -> tuple[int, Object]:
        target, store = _target(request.path), self.store
        match request.method:
            case "GET" if target.name:
                return 200, store.get(target.plural, target.name, target.namespace)
            case "GET":
                return 200, self._page(request, target)
            case "PATCH":
                return 200, self._patch(request, target)
            case "POST" if target.plural == REVIEWS:
                return 201, self._review(request.json())
            case "POST" if target.subresource == "binding":
                return 201, self._bind(request.json(), target)
            case "POST":
                thing = request.json()
                if (target.plural, target.namespace, thing["metadata"]["name"]) in store.objects:
                    raise RefusedError(409, f'{target.plural} "{thing["metadata"]["name"]}" already exists')
                return 201, store.put(target.plural, thing, target.namespace)
            case "DELETE":
                store.remove(target.plural, target.name, target.namespace)
                return 200, {"kind": "Status", "status": "Success"}
        raise RefusedError(405, "method not allowed")

    def _review(self, review: Object) -> Object:
        asked = review["spec"]["resourceAttributes"]
        below = asked.get("subresource")
        resource = f"{asked['resource']}/{below}" if below else asked["resource"]
        return {**review, "status": {"allowed": self.allowed is None or (asked["verb"], resource) in self.allowed}}

    def _bind(self, binding: Object, target: Target) -> Object:
        """Node, annotations and labels in one write, if the uid is right and there is no node yet."""
        pod = copy.deepcopy(self.store.get(target.plural, target.name, target.namespace))
        meta = binding["metadata"]
        if meta.get("uid") not in (None, "", pod["metadata"].get("uid")):
            raise RefusedError(409, f'Operation cannot be fulfilled on pods/binding "{target.name}": the UID differs')
        if node := pod.setdefault("spec", {}).get("nodeName"):
            raise RefusedError(409, f'pod {target.name} is already assigned to node "{node}"')
        pod["spec"]["nodeName"] = binding["target"]["name"]
        for part in ("annotations", "labels"):
            pod["metadata"][part] = {**(pod["metadata"].get(part) or {}), **(meta.get(part) or {})}
        self.store.put(target.plural, pod, target.namespace)
        return {"kind": "Status", "status": "Success", "metadata": {}}

    def _page(self, request: Request, target: Target) -> Object:
        things = self.store.all(target.plural, target.namespace, self._fields(request))
        start, limit = int(request.query.get("continue", 0)), int(request.query.get("limit", 0)) or len(things)
        meta = {"resourceVersion": str(self.store.version)}
        if start + limit < len(things):
            meta["continue"] = str(start + limit)
        return {"kind": "List", "metadata": meta, "items": things[start : start + limit]}

    def _fields(self, request: Request) -> str:
        return request.query.get("fieldSelector", "") if self.selects else ""

    def _patch(self, request: Request, target: Target) -> Object:
        kind = request.headers.get("content-type", "")
        if kind not in PATCHES:
            raise RefusedError(415, f"the body of the request was in an unknown format - {kind}")
        before = self.store.get(target.plural, target.name, target.namespace)
        patch = request.json()
        if kind.startswith("application/json-patch"):
            after = apply_ops(before, patch)
        else:
            after = (merge_strategic if "strategic" in kind else merge)(before, patch)
        # The status sub-resource leaves the spec alone, the object itself leaves the status alone.
        kept = "spec" if target.subresource == "status" else "status"
        after = {key: value for key, value in after.items() if key != kept}
        if kept in before:
            after[kept] = before[kept]
        return self.store.put(target.plural, after, target.namespace)

    async def _watch(self, request: Request, writer: asyncio.StreamWriter) -> None:
        target, fields = _target(request.path), self._fields(request)
        version = int(request.query["resourceVersion"])
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
        if version < self.store.oldest:
            gone = RefusedError(410, f"too old resource version: {version}")
            await _line(writer, {"type": "ERROR", "object": _status(gone)})
            writer.write(b"0\r\n\r\n")
            return
        epoch = self._epoch
        self._watching.set()
        while not epoch.is_set():
            for seen, kind, thing in list(self.store.since(version, target.plural, target.namespace, fields)):
                await _line(writer, {"type": kind, "object": thing})
                version = seen
            if self.bookmarks and version < self.store.version:
                version = self.store.version
                mark = {"metadata": {"resourceVersion": str(version)}}
                await _line(writer, {"type": "BOOKMARK", "object": mark})
            await writer.drain()
            await self.store.news()
        writer.write(b"0\r\n\r\n")
        await writer.drain()


@asynccontextmanager
async def api_server(tls: ssl.SSLContext | None = None) -> AsyncIterator[ApiServer]:
    server = ApiServer(tls)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


def _target(path: str) -> Target:
    words = [unquote(word) for word in path.strip("/").split("/")]
    group = words.pop(1) if words.pop(0) == "apis" else ""
    words = words[1:]  # without the version
    namespace = ""
    if words[0] == "namespaces" and len(words) > 2:
        namespace, words = words[1], words[2:]
    plural, name, subresource = [*words, "", ""][:3]
    return Target(group, plural, namespace, name, subresource)


def _verb(request: Request, target: Target) -> str:
    if request.method == "GET":
        return "watch" if request.query.get("watch") == "true" else "get" if target.name else "list"
    return {"POST": "create", "PATCH": "patch", "DELETE": "delete"}[request.method]


def _status(refused: RefusedError) -> Object:
    return {"kind": "Status", "status": "Failure", "code": refused.code, "message": str(refused)}


async def _read(reader: asyncio.StreamReader) -> Request | None:
    with suppress(asyncio.IncompleteReadError):
        head = await reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode().strip().split("\r\n")
        method, target, _ = first.split(" ")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        url = urlsplit(target)
        return Request(method, url.path, {key: one[0] for key, one in parse_qs(url.query).items()}, headers, body)
    return None


async def _write(writer: asyncio.StreamWriter, code: int, answer: Object, more: str = "") -> None:
    body = json.dumps(answer).encode()
    head = f"HTTP/1.1 {code} Whatever\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n{more}\r\n"
    writer.write(head.encode() + body)
    await writer.drain()


async def _line(writer: asyncio.StreamWriter, event: Object) -> None:
    line = json.dumps(event).encode() + b"\n"
    # In two chunks, as a proxy may cut them.
    for part in (line[: len(line) // 2], line[len(line) // 2 :]):
        writer.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
    await writer.drain()
