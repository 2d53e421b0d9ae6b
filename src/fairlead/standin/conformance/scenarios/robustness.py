"""Scenarios: odd, broken and hostile callers. The plugin may refuse them; it must stand."""

import asyncio
import contextlib
import socket
from time import perf_counter

import grpc

from fairlead.standin._gen import deviceplugin_v1beta1_pb2 as dp
from fairlead.standin.conformance.client import allocate_request
from fairlead.standin.conformance.rig import Rig
from fairlead.standin.conformance.scenario import Chapter, Failed

CHAPTER = Chapter("Odd and hostile callers")
UNKNOWN_FIELD = b"\xfa\x3e\x03new"  # field 1007, a string
HOSTILE_IDS = (
    "",
    ".",
    "../../etc/passwd",
    "/dev/mem",
    "$(reboot)",
    "a;b",
    "a,b",
    "a\nb",
    "a\x00b",
    "%s%n",
    "ü\u202e\U0001f4a3",
    "x" * 100_000,
)
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
CONNECTIONS = 20
CHURN = 40
PARTS = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9)  # of the time that a call takes
SPARE_FILES = 10
LOOK_S = 0.05


@CHAPTER.foreign("C67", "ignores fields it does not know", "A message with a new field is read as if it had none.")
async def unknown_fields(rig: Rig) -> None:
    """The interface grows by new fields. A plugin that refuses them breaks on the next kubelet."""
    ids = rig.need(1)
    inner = dp.ContainerAllocateRequest(devices_ids=ids[:1]).SerializeToString() + UNKNOWN_FIELD
    request = (
        b"\x0a" + bytes([len(inner)]) + inner if len(inner) < 128 else allocate_request(ids[:1]).SerializeToString()
    )
    async with rig.client() as client:
        for method, body in (("GetDevicePluginOptions", b""), ("Allocate", request)):
            answer = await client.ask(method, body + UNKNOWN_FIELD)
            if not answer.ok:
                raise Failed(f"{method} with a new field: {answer}")


@CHAPTER.foreign("C68", "says that a method is unknown", "An unknown method or service is answered with UNIMPLEMENTED.")
async def unknown_methods(rig: Rig) -> None:
    """A newer kubelet asks, and goes on without it if it gets this status. Silence would stop it."""
    async with rig.client() as client:
        for method in ("/v1beta1.DevicePlugin/Deallocate", "/v2.DevicePlugin/Allocate", "/grpc.health.v9.Health/Check"):
            answer = await client.ask(method)
            if answer.code is not grpc.StatusCode.UNIMPLEMENTED:
                raise Failed(f"{method}: {answer}")
    await rig.unharmed("an unknown method")


@CHAPTER.foreign("C69", "accepts any authority", "The host name of a call over a unix socket does not matter.")
async def any_authority(rig: Rig) -> None:
    """The kubelet says localhost here, and the encoded path of the socket where it found the plugin by itself."""
    for authority in ("localhost", str(rig.path).replace("/", "%2F"), "unix"):
        async with rig.client(authority=authority) as client:
            answer = await client.ask("GetDevicePluginOptions")
        if not answer.ok:
            raise Failed(f"authority {authority!r}: {answer}")


@CHAPTER.foreign(
    "C70", "refuses what is no message", "Bytes that are no message are refused, and nothing else happens."
)
async def no_message(rig: Rig) -> None:
    """A decoder that throws must not take the server with it."""
    async with rig.client() as client:
        for body in (b"\x0a\x7fab", b"\xff\xff\xff\xff", b"\x0a\x02\x0a\x7f"):
            answer = await client.ask("Allocate", body)
            if answer.ok or answer.silent:
                raise Failed(f"Allocate with bytes that are no message: {answer}")
    await rig.unharmed("bytes that are no message")


@CHAPTER.foreign("C71", "refuses hostile ids", "Ids that look like paths, commands or nonsense do no harm.")
async def hostile_ids(rig: Rig) -> None:
    """Ids end up in paths, variables and logs. What is not in the list is refused before anything is made of it."""
    async with rig.client() as client:
        # One that takes any id is C22's. Here it is to stand these.
        careless = (await client.allocate(["no-such-device"])).ok
        for i in HOSTILE_IDS:
            if i in rig.ids:
                continue
            answer = await client.allocate([i])
            if answer.silent:
                raise Failed(f"the id {i[:20]!r} got no answer: {answer}")
            if answer.ok and not careless:
                raise Failed(f"the id {i[:20]!r} was allocated")
    await rig.unharmed("hostile ids")


@CHAPTER.foreign("C72", "stands a huge request", "A request of several MiB does no harm: the next one works.")
async def huge_request(rig: Rig) -> None:
    """A server may refuse what is over its limit. It must not run out of memory, or close its doors."""
    ids = rig.need(1)
    async with rig.client() as client:
        for what, asked in (
            ("50,000 unknown ids", [f"no-such-device-{n}" for n in range(50_000)]),
            ("an id of 5 MiB", ["x" * (5 << 20)]),
        ):
            if (answer := await client.allocate(asked)).code is grpc.StatusCode.DEADLINE_EXCEEDED:
                raise Failed(f"{what} got no answer: {answer}")
    await rig.unharmed("a huge request")
    async with rig.client() as client:
        await client.must_allocate(ids[:1])


@CHAPTER.foreign("C73", "stands large metadata", "4 KiB of metadata are accepted; 64 KiB do no harm.")
async def large_metadata(rig: Rig) -> None:
    """Tracing puts headers on every call. gRPC guarantees room for 8 KiB."""
    async with rig.client() as client:
        answer = await client.ask("GetDevicePluginOptions", metadata=(("x-trace", "t" * 4096),))
        if not answer.ok:
            raise Failed(f"with 4 KiB of metadata: {answer}")
        await client.ask("GetDevicePluginOptions", metadata=(("x-trace", "t" * 65536),))
    await rig.unharmed("64 KiB of metadata")


@CHAPTER.foreign(
    "C74", "stands half-open connections", "Connections that send nothing, half a message or nonsense do no harm."
)
async def half_open(rig: Rig) -> None:
    """A killed kubelet, a port scanner, a curious user. Meanwhile the real kubelet has to be served."""
    with contextlib.ExitStack() as stack:
        for number in range(CONNECTIONS):
            raw = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            raw.settimeout(rig.timeouts.call_s)
            with contextlib.suppress(OSError):  # it may close the door on us
                raw.connect(str(rig.path))
                raw.sendall((b"", PREFACE[:7], PREFACE, b"GET / HTTP/1.1\r\n\r\n", PREFACE + b"\xff" * 64)[number % 5])
        await rig.unharmed(f"{CONNECTIONS} half-open connections")
    await rig.unharmed("half-open connections that were closed")
    if not rig.streaming:
        raise Failed("half-open connections ended the kubelet's stream")


@CHAPTER.required("C75", "stands calls that break off", "A call that the caller gives up does no harm.")
async def broken_off(rig: Rig) -> None:
    """A kubelet that dies ends its call in the middle. The next one asks for the same device."""
    ids = rig.need(1)
    async with rig.client() as client:
        began_s = perf_counter()
        await client.must_allocate(ids[:1])
        takes_s = perf_counter() - began_s
        for part in PARTS:
            call = asyncio.create_task(client.allocate(ids[:1]))
            await asyncio.sleep(part * takes_s)  # it has hardly begun, or is about to be answered
            call.cancel()
            await asyncio.wait({call})
            # The one that broke off may still be in the plugin's hands.
            if not (answer := await client.allocate(ids[:1], in_flight=2)).ok:
                raise Failed(f"a call broke off, and the next one failed: {answer}")
    await rig.unharmed("calls that broke off")


@CHAPTER.foreign("C76", "gives back what callers used", "Connections and streams that ended leave no open files.")
async def no_leak(rig: Rig) -> None:
    """The kubelet restarts for years. What leaks each time ends with `too many open files`."""
    if (before := rig.plugin.open_files()) is None:
        return
    for _ in range(CHURN):
        async with rig.client() as client, client.lists() as stream:
            # It may serve afresh when a stream ends; then the next ones find no server for a moment.
            with contextlib.suppress(TimeoutError, grpc.aio.AioRpcError):
                await rig.timer.within(rig.timeouts.call_s, stream.read())
    await rig.settle("streams came and went")
    span = rig.timer.begin(rig.timeouts.wait_s)  # it closes them in its own time
    while (after := rig.plugin.open_files() or 0) > before + SPARE_FILES:
        if not span.left_s():
            raise Failed(f"{CHURN} streams came and went: {before} open files before, {after} after")
        await asyncio.sleep(LOOK_S)
