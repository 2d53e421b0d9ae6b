"""Routes: which path asks what, and how questions and answers look as JSON. Decides nothing.

The paths of gpushare's extender are served as they are, with the verbs that it lacks beside them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec

from fairlead._version import __version__
from fairlead.scheduler.extender import Extender, NotReady
from fairlead.scheduler.http.messages import Handler, Reply, Request, explain
from fairlead.scheduler.inspect import describe
from fairlead.scheduler.protocol import BindingArgs, BindingResult, ExtenderArgs, FilterResult, PreemptionArgs

PREFIXES = ("/gpushare-scheduler", "/scheduler")
# What becomes of a question. An error: the scheduler tries again later.
FITS, REFUSED, DONE, ERROR = "fits", "refused", "done", "error"
VERBS = {
    "filter": (FITS, REFUSED, ERROR),
    "prioritize": (DONE, ERROR),
    "bind": (DONE, ERROR),
    "preempt": (DONE, ERROR),
}
TEXT = "text/plain; charset=utf-8"
_UNREADABLE = (msgspec.MsgspecError, UnicodeError, RecursionError)
T = TypeVar("T")


def routes(extender: Extender) -> Table:
    serve = _Handlers(extender)
    table = probes(extender)
    for prefix in PREFIXES:
        table |= {f"{prefix}/{verb}": {"POST": getattr(serve, verb)} for verb in VERBS}
        table[f"{prefix}/inspect"] = {"GET": serve.inspect}
        table[f"{prefix}/inspect/"] = {"GET": serve.inspect}
    table["/version"] = {"GET": serve.version}
    return table


def probes(extender: Extender) -> Table:
    """What everyone may ask."""
    serve = _Handlers(extender)
    return Table({"/healthz": {"GET": serve.healthz}, "/readyz": {"GET": serve.readyz}})


class Table(dict[str, dict[str, Handler]]):
    """A path that ends with a slash stands for all below it."""

    def get(self, path: str, default: Any = None) -> Any:
        return super().get(path) or super().get(path[: path.rfind("/") + 1], default)


class _Handlers:
    def __init__(self, extender: Extender) -> None:
        self._extender = extender

    async def filter(self, request: Request) -> Reply:
        """An error is a part of the answer: the scheduler reads the body of a 200 only."""
        try:
            found = await self._extender.filter(msgspec.json.decode(request.body, type=ExtenderArgs))
        except _UNREADABLE as error:
            found = FilterResult(error=f"the request cannot be read: {error}")
        except NotReady as error:
            found = FilterResult(error=str(error))
        self._count("filter", ERROR if found.error else FITS if found.node_names else REFUSED)
        return _json(found)

    async def prioritize(self, request: Request) -> Reply:
        return await self._answer("prioritize", request, ExtenderArgs, self._extender.prioritize)

    async def bind(self, request: Request) -> Reply:
        try:
            done = await self._extender.bind(msgspec.json.decode(request.body, type=BindingArgs))
        except _UNREADABLE as error:
            done = BindingResult(f"the request cannot be read: {error}")
        except NotReady as error:
            done = BindingResult(str(error))
        self._count("bind", ERROR if done.error else DONE)
        return _json(done)

    async def preempt(self, request: Request) -> Reply:
        return await self._answer("preempt", request, PreemptionArgs, self._extender.preempt)

    async def _answer(self, verb: str, request: Request, into: type[T], work: Callable[[T], Awaitable[Any]]) -> Reply:
        """For verbs whose answer has no place for an error."""
        try:
            reply = _json(await work(msgspec.json.decode(request.body, type=into)))
        except _UNREADABLE as error:
            reply = explain(400, f"the request cannot be read: {error}")
        except NotReady as error:
            reply = explain(503, str(error))
        self._count(verb, DONE if reply.status == 200 else ERROR)
        return reply

    def _count(self, verb: str, result: str) -> None:
        self._extender.answers[verb, result] += 1

    async def inspect(self, request: Request) -> Reply:
        name = request.path.partition("/inspect/")[2]
        found = describe(self._extender.view, name)
        return _json(found) if found is not None else explain(404, f"there is no node {name!r:.80} with such devices")

    async def version(self, request: Request) -> Reply:
        del request
        return Reply(__version__.encode(), type=TEXT)

    async def healthz(self, request: Request) -> Reply:
        del request
        return Reply(b"ok", type=TEXT)

    async def readyz(self, request: Request) -> Reply:
        """Not before both lists are read. A server that is away later does not take it back: what is known is known."""
        del request
        if self._extender.feed.ready:
            return Reply(b"ok", type=TEXT)
        return explain(503, self._extender.feed.problem or "the lists of nodes and pods are not read yet")


def _json(value: Any) -> Reply:
    return Reply(msgspec.json.encode(value))
