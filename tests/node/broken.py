"""A plugin that breaks on purpose, on grpcio: what a kubelet does with it is what Fairlead must never cause.

It serves when asked, registers when asked, and never by itself. It writes down every call that it gets.
"""

from __future__ import annotations

import queue
import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

import grpc

from fairlead.standin._gen import deviceplugin_v1beta1_pb2 as dp
from tests.node.rig.places import PLUGINS

DOMAIN = "broken.example.com"  # the verdict on the kubelet's log lets these pass
REGISTER_S = 15.0
SERVICE = "v1beta1.DevicePlugin"


class Plugin:
    def __init__(self, count: int = 2) -> None:
        self.resource = f"{DOMAIN}/plugin-{secrets.token_hex(3)}"
        self.ids = [f"{self.resource.partition('/')[2]}-{number}" for number in range(count)]
        self.calls: list[str] = []
        self.fails: dict[str, str] = {}  # method → what it says instead of an answer
        self._words: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._socket = PLUGINS / f"broken-{secrets.token_hex(3)}.sock"
        self._server = grpc.server(ThreadPoolExecutor(8))
        self._server.add_generic_rpc_handlers((self._methods(),))
        self._server.add_insecure_port(f"unix:{self._socket}")

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._words.put(None)
        self._server.stop(None).wait()
        self._socket.unlink(missing_ok=True)

    def register(self) -> None:
        ask = dp.RegisterRequest(version="v1beta1", endpoint=self._socket.name, resource_name=self.resource)
        with grpc.insecure_channel(f"unix:{PLUGINS / 'kubelet.sock'}") as channel:
            path, write = "/v1beta1.Registration/Register", dp.RegisterRequest.SerializeToString
            channel.unary_unary(path, write, dp.Empty.FromString)(ask, timeout=REGISTER_S, wait_for_ready=True)

    def break_stream(self, word: str) -> None:
        """Ends the open ListAndWatch with an error."""
        self._words.put(word)

    def _methods(self) -> grpc.GenericRpcHandler[Any, Any]:
        def one(method: str, answer: Any, asked: Any, told: Any) -> Any:
            def handle(request: Any, context: grpc.ServicerContext) -> Any:
                self._note(method, context)
                return answer(request)

            return grpc.unary_unary_rpc_method_handler(handle, asked.FromString, told.SerializeToString)

        answers = dp.AllocateResponse(container_responses=[dp.ContainerAllocateResponse()])
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                "GetDevicePluginOptions": one(
                    "GetDevicePluginOptions", lambda _: dp.DevicePluginOptions(), dp.Empty, dp.DevicePluginOptions
                ),
                "Allocate": one("Allocate", lambda _: answers, dp.AllocateRequest, dp.AllocateResponse),
                "ListAndWatch": grpc.unary_stream_rpc_method_handler(
                    self._list_and_watch, dp.Empty.FromString, dp.ListAndWatchResponse.SerializeToString
                ),
            },
        )

    def _list_and_watch(self, _: dp.Empty, context: grpc.ServicerContext) -> Iterator[dp.ListAndWatchResponse]:
        self._note("ListAndWatch", context)
        yield dp.ListAndWatchResponse(devices=[dp.Device(ID=one, health="Healthy") for one in self.ids])
        word = self._words.get()
        if word is not None:
            _fail(context, word)

    def _note(self, method: str, context: grpc.ServicerContext) -> None:
        self.calls.append(method)
        if method in self.fails:
            _fail(context, self.fails[method])


def _fail(context: grpc.ServicerContext, word: str) -> None:
    """With its name: the kubelet logs some errors without the resource."""
    context.abort(grpc.StatusCode.UNKNOWN, f"{DOMAIN}: {word}")
