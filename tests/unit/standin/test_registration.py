import asyncio
from pathlib import Path

import grpc
import grpc.aio
import pytest
from tests.unit.standin.sample import RESOURCE, SamplePlugin, device, devices, register

from fairlead.standin._gen import deviceplugin_v1beta1_pb2 as dp
from fairlead.standin.registration import is_extended_resource, join
from fairlead.testing import FakeClock, Kubelet, Timings


@pytest.mark.parametrize(
    "name",
    [
        "nvidia.com/gpu",
        "example.com/a.b_c-D9",
        "foo.kubernetes.io.example/x",
        "a" * 63 + ".com/" + "n" * 63,
        ".".join(["a" * 60] * 4) + "/x",  # 243 characters, 252 with the added word
    ],
)
def test_names_a_plugin_may_register(name: str) -> None:
    assert is_extended_resource(name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "gpu",
        "X.com/gpu",
        "x.com/gpu/y",
        "kubernetes.io/gpu",
        "a.kubernetes.io/gpu",
        "requests.x.com/gpu",
        "x.com/",
        "x.com/-gpu",
        "x.com/" + "n" * 64,
        ".".join(["a" * 60] * 4) + "aa/x",
    ],
)
def test_names_the_kubelet_refuses(name: str) -> None:
    assert not is_extended_resource(name)


@pytest.mark.parametrize(
    ("endpoint", "path"),
    [
        ("p.sock", "/d/p/p.sock"),
        ("sub/p.sock", "/d/p/sub/p.sock"),
        ("../other/p.sock", "/d/other/p.sock"),
        ("/abs/p.sock", "/d/p/abs/p.sock"),
        ("", "/d/p"),
    ],
)
def test_an_endpoint_is_joined_to_the_directory_as_go_does(endpoint: str, path: str) -> None:
    assert join(Path("/d/p"), endpoint) == Path(path)


async def refusal(plugin: SamplePlugin, **changes: str) -> str:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await plugin.register(**changes)
    assert caught.value.code() is grpc.StatusCode.UNKNOWN
    return caught.value.details() or ""


async def test_registering_brings_capacity_and_allocatable(kubelet: Kubelet, plugin: SamplePlugin) -> None:
    assert kubelet.node().capacity == {RESOURCE: 2}
    assert kubelet.node().allocatable == {RESOURCE: 2}
    assert [name for name, _ in plugin.calls] == ["GetDevicePluginOptions", "ListAndWatch"]


async def test_another_version_is_refused(kubelet: Kubelet, plugin: SamplePlugin) -> None:
    assert await refusal(plugin, version="v1") == (
        'requested API version "v1" is not supported by kubelet. Supported version is ["v1beta1"]'
    )


async def test_a_bad_name_is_refused(kubelet: Kubelet, plugin: SamplePlugin) -> None:
    assert await refusal(plugin, resource_name="gpu") == 'the ResourceName "gpu" is invalid'


async def test_a_plugin_that_does_not_serve_is_refused_after_the_dial_window(
    kubelet: Kubelet, fake_clock: FakeClock
) -> None:
    plugin = SamplePlugin(kubelet.plugin_dir)
    attempt = asyncio.create_task(refusal(plugin))
    await fake_clock.wait_for_sleepers()
    fake_clock.advance(9.9)
    assert not attempt.done()
    fake_clock.advance(0.1)
    assert await attempt == "failed to dial device plugin: context deadline exceeded"
    assert kubelet.node().capacity == {}


async def test_a_socket_that_appears_inside_the_dial_window_is_found(kubelet_root: Path) -> None:
    async with Kubelet(kubelet_root, timings=Timings(redial_s=0.1)) as kubelet:
        plugin = SamplePlugin(kubelet.plugin_dir, devices("a"))
        attempt = asyncio.create_task(plugin.register())
        await kubelet.wait_for(lambda: kubelet.calls)
        async with plugin:
            await attempt
            await kubelet.wait_for_allocatable(RESOURCE, 1)


async def test_the_plugins_own_deadline_cuts_the_dial(kubelet: Kubelet) -> None:
    async with grpc.aio.insecure_channel(f"unix:{kubelet.plugin_dir / 'kubelet.sock'}") as channel:
        call = channel.unary_unary(
            "/v1beta1.Registration/Register",
            request_serializer=dp.RegisterRequest.SerializeToString,
            response_deserializer=dp.Empty.FromString,
        )
        request = dp.RegisterRequest(version="v1beta1", endpoint="no.sock", resource_name=RESOURCE)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(request, timeout=0.05)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    await kubelet.wait_for(lambda: kubelet.calls[0].seconds is not None)


async def test_options_that_fail_refuse_the_registration(kubelet: Kubelet) -> None:
    async with SamplePlugin(kubelet.plugin_dir, devices("a")) as plugin:
        plugin.fail["GetDevicePluginOptions"] = "not today"
        assert await refusal(plugin) == (
            "failed to get device plugin options: rpc error: code = Unknown desc = not today"
        )
        assert [name for name, _ in plugin.calls] == ["GetDevicePluginOptions"]
        assert RESOURCE not in kubelet.node().capacity


async def test_options_in_the_request_are_never_read(kubelet: Kubelet) -> None:
    async with SamplePlugin(kubelet.plugin_dir, devices("a", "b")) as plugin:
        options = dp.DevicePluginOptions(get_preferred_allocation_available=True)
        request = dp.RegisterRequest(version="v1beta1", endpoint="dp.sock", resource_name=RESOURCE, options=options)
        await register(kubelet.plugin_dir, request)
        await kubelet.wait_for_allocatable(RESOURCE, 2)
        await kubelet.run_pod("p", {"main": {RESOURCE: 1}})
        assert plugin.made("GetPreferredAllocation") == []


async def test_an_endpoint_outside_the_directory_works(kubelet: Kubelet) -> None:
    async with SamplePlugin(kubelet.plugin_dir.parent / "other", devices("a")) as plugin:
        request = dp.RegisterRequest(version="v1beta1", endpoint="../other/dp.sock", resource_name=RESOURCE)
        await register(kubelet.plugin_dir, request)
        await kubelet.wait_for_allocatable(RESOURCE, 1)
        assert plugin.made("ListAndWatch")


async def test_a_newer_plugin_replaces_the_list_after_the_older_one_died(kubelet: Kubelet) -> None:
    async with SamplePlugin(kubelet.plugin_dir, devices("a", "b"), name="one.sock") as one:
        await one.register()
        await kubelet.wait_for_allocatable(RESOURCE, 2)
    await kubelet.wait_for_allocatable(RESOURCE, 0)
    async with SamplePlugin(kubelet.plugin_dir, devices("c"), name="two.sock") as two:
        await two.register()
        await kubelet.wait_for_allocatable(RESOURCE, 1)
        assert kubelet.devices(RESOURCE) == {"c": "Healthy"}


async def test_two_resources_live_side_by_side(kubelet: Kubelet, plugin: SamplePlugin) -> None:
    other = SamplePlugin(kubelet.plugin_dir, [device("x")], name="other.sock", resource="example.com/other")
    async with other:
        await other.register()
        await kubelet.wait_for_allocatable("example.com/other", 1)
        assert kubelet.node().allocatable == {RESOURCE: 2, "example.com/other": 1}
