"""An API server that also takes whole objects, with their version."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from tests.apiserver.server import ApiServer, Request, _target
from tests.apiserver.store import Object, RefusedError


class UpdatingServer(ApiServer):
    def __init__(self) -> None:
        super().__init__()
        self.before_update: Callable[[], None] = lambda: None

    def _admit(self, request: Request) -> None:
        if request.method != "PUT":
            super()._admit(request)
        elif self.allowed is not None and ("update", plural := _target(request.path).plural) not in self.allowed:
            raise RefusedError(403, f'{plural} is forbidden: User "fairlead" cannot update resource "{plural}"')

    def _serve(self, request: Request) -> tuple[int, Object]:
        if request.method != "PUT":
            return super()._serve(request)
        self.before_update()
        target, thing = _target(request.path), request.json()
        before = self.store.get(target.plural, target.name, target.namespace)
        if thing["metadata"].get("resourceVersion") != before["metadata"]["resourceVersion"]:
            changed = "the object has been modified; please apply your changes to the latest version and try again"
            raise RefusedError(409, f'Operation cannot be fulfilled on {target.plural} "{target.name}": {changed}')
        return 200, self.store.put(target.plural, thing, target.namespace)


@asynccontextmanager
async def updating_server() -> AsyncIterator[UpdatingServer]:
    server = UpdatingServer()
    await server.start()
    try:
        yield server
    finally:
        await server.stop()
