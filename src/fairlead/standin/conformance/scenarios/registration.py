"""Scenarios: how a plugin registers."""

import asyncio

from fairlead.standin._gen import deviceplugin_v1beta1_pb2 as dp
from fairlead.standin.conformance.rig import Rig
from fairlead.standin.conformance.scenario import Chapter, Failed
from fairlead.standin.registration import is_extended_resource

CHAPTER = Chapter("Registration")


@CHAPTER.required(
    "C01", "registers", "A plugin that is started calls Register on kubelet.sock in good time.", early=True
)
async def registers(rig: Rig) -> None:
    """Nothing else makes the kubelet look at a plugin. One that runs without it looks healthy and serves no pod."""
    if not rig.registrations:
        raise Failed("it never called Register")


@CHAPTER.required("C02", "serves before it registers", "The socket listens when Register is called.", early=True)
async def serves_first(rig: Rig) -> None:
    """The kubelet dials the plugin inside the Register call. A socket that comes later costs the dial's whole pause."""
    late = [each for each in rig.registrations if not each.served]
    if late:
        raise Failed(f"nobody listened on {late[0].request.endpoint!r} when Register arrived")


@CHAPTER.required("C03", "says v1beta1", "The version in Register is exactly v1beta1.", early=True)
async def says_version(rig: Rig) -> None:
    """It is the only version there is. The kubelet refuses every other value."""
    for each in rig.registrations:
        if each.request.version != "v1beta1":
            raise Failed(f"the version is {each.request.version!r}")


@CHAPTER.required(
    "C04", "has a legal resource name", "The resource name is a domain, a slash and a name, both legal.", early=True
)
async def legal_name(rig: Rig) -> None:
    """The kubelet refuses a name without a domain, in capitals before the slash, or under kubernetes.io."""
    for each in rig.registrations:
        if not is_extended_resource(each.request.resource_name):
            raise Failed(f"the kubelet refuses the name {each.request.resource_name!r}")


@CHAPTER.advised(
    "C05", "names its endpoint plainly", "The endpoint is a file name: no slash, no dots that lead away.", early=True
)
async def plain_endpoint(rig: Rig) -> None:
    """The kubelet joins it to its directory. An absolute path ends up below that; `..` leads out of what it cleans."""
    for each in rig.registrations:
        endpoint = each.request.endpoint
        if "/" in endpoint or endpoint in {"", ".", ".."}:
            raise Failed(f"the endpoint is {endpoint!r}")


@CHAPTER.required(
    "C06", "answers for its options inside Register", "GetDevicePluginOptions works while Register is out.", early=True
)
async def answers_options(rig: Rig) -> None:
    """The kubelet asks once, inside Register, and fails the registration if there is no answer."""
    asked = [call for call in rig.kubelet.calls if call.method == "GetDevicePluginOptions"]
    mine = [call for call in asked if call.resource == rig.resource and call.seconds is not None]
    # One that failed among good ones may be the kubelet's own doing: an old stream's end takes down a new call.
    if mine and all(call.error for call in mine):
        raise Failed(f"GetDevicePluginOptions failed: {mine[0].error}")
    await rig.unharmed("asked for its options again")


@CHAPTER.advised("C07", "says the same options twice", "The options in Register are those of GetDevicePluginOptions.")
async def same_options(rig: Rig) -> None:
    """The kubelet reads the answer of the call only. Options in Register alone have no effect, which few expect."""
    async with rig.client() as client:
        answer = await client.options()
    request = rig.registrations[-1].request
    if request.HasField("options") and request.options != answer:
        raise Failed("Register and GetDevicePluginOptions disagree")


@CHAPTER.required("C08", "bears a slow Register", "A Register that takes seconds is waited for, not repeated.")
async def bears_slow_register(rig: Rig) -> None:
    """The kubelet may dial for 10 s inside Register. A shorter deadline of the plugin ends that dial."""
    callback = rig.kubelet.callbacks.on_register

    async def slowly(request: dp.RegisterRequest) -> None:
        assert callback is not None
        await callback(request)
        await asyncio.sleep(rig.timeouts.slow_s)

    rig.kubelet.callbacks.on_register = slowly
    since = len(rig.registrations)
    try:
        await rig.kubelet.restart()
        await rig.registered_again(f"Register takes {rig.timeouts.slow_s:g} s: it was not registered", since)
    finally:
        rig.kubelet.callbacks.on_register = callback
    if (count := len(rig.registrations) - since) > 2:
        raise Failed(f"Register takes {rig.timeouts.slow_s:g} s, and was called {count} times")
