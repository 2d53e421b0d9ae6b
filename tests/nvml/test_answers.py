"""What a script says is what nvidia-ml-py reads."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pynvml  # type: ignore[import-untyped]  # NVIDIA ships no types
import pytest

from tests.nvml import Driver, gpus
from tests.nvml.answers import Install, handle, refused
from tests.nvml.models import linked, partitioned
from tests.nvml.values import Fabric, Process

H100 = gpus("H100", 8)
A100 = gpus("A100", 2)
SLICED = (partitioned(A100[0], "3g.20gb", "2g.10gb", "1g.5gb", "1g.5gb"), A100[1])


def test_the_system_tells_its_versions(install: Install) -> None:
    install(Driver(driver_version="550.54.15", cuda_version=12040))
    assert pynvml.nvmlSystemGetDriverVersion() == "550.54.15"
    assert pynvml.nvmlSystemGetNVMLVersion() == "12.550.54.15"
    assert pynvml.nvmlSystemGetCudaDriverVersion() == 12040
    assert pynvml.nvmlDeviceGetCount() == 0


def test_a_gpu_tells_what_it_is(install: Install) -> None:
    install(Driver(gpus=H100))
    assert pynvml.nvmlDeviceGetCount() == 8
    for index, gpu in enumerate(H100):
        it = handle(index)
        assert pynvml.nvmlDeviceGetUUID(it) == gpu.uuid
        assert pynvml.nvmlDeviceGetName(it) == "NVIDIA H100 80GB HBM3"
        assert pynvml.nvmlDeviceGetSerial(it) == gpu.serial
        assert pynvml.nvmlDeviceGetIndex(it) == index
        assert pynvml.nvmlDeviceGetMinorNumber(it) == gpu.minor
        assert pynvml.nvmlDeviceGetCudaComputeCapability(it) == (9, 0)
        assert pynvml.nvmlDeviceGetArchitecture(it) == 9
        assert pynvml.nvmlDeviceGetBrand(it) == 14


def test_a_gpu_tells_where_it_is(install: Install) -> None:
    install(Driver(gpus=gpus("L40S", 1, bus_id="00010000:3B:02.0")))
    pci = pynvml.nvmlDeviceGetPciInfo(handle())
    assert (pci.busId, pci.domain, pci.bus, pci.device) == ("00010000:3B:02.0", 0x10000, 0x3B, 2)
    assert pci.pciDeviceId == 0x26B910DE
    extended = pynvml.nvmlPciInfoExt_v1_t(version=pynvml.nvmlPciInfoExt_v1)
    pynvml.nvmlDeviceGetPciInfoExt(handle(), pynvml.byref(extended))
    assert (extended.baseClass, extended.subClass, extended.busId) == (3, 2, "00010000:3B:02.0")


def test_memory_is_told_in_both_versions(install: Install) -> None:
    install(Driver(gpus=gpus("H100", 1, memory_used=5, memory_free=7)))
    plain = pynvml.nvmlDeviceGetMemoryInfo(handle())
    assert (plain.total, plain.free, plain.used) == (85520809984, 7, 5)
    second = pynvml.nvmlDeviceGetMemoryInfo(handle(), version=pynvml.nvmlMemory_v2)
    assert (second.total, second.reserved, second.free, second.used) == (85520809984, 512 * 2**20, 7, 5)


def test_a_gpu_is_found_by_uuid_serial_and_address(install: Install) -> None:
    install(Driver(gpus=H100))
    for found in (
        pynvml.nvmlDeviceGetHandleByUUID(H100[5].uuid),
        pynvml.nvmlDeviceGetHandleBySerial(H100[5].serial),
        pynvml.nvmlDeviceGetHandleByPciBusId(H100[5].address),  # as the kernel writes it: NVML takes both
    ):
        assert pynvml.nvmlDeviceGetIndex(found) == 5
    refused(pynvml.NVML_ERROR_NOT_FOUND, pynvml.nvmlDeviceGetHandleByUUID, "GPU-nobody")
    refused(pynvml.NVML_ERROR_INVALID_ARGUMENT, handle, 8)


def test_counters_are_read_anew_in_each_call(install: Install) -> None:
    node = install(Driver(gpus=gpus("A100", 1)))
    it = handle()
    assert pynvml.nvmlDeviceGetTotalEccErrors(it, 1, 0) == 0
    busy = gpus(
        "A100", 1, ecc_uncorrected=3, remap_failed=1, temperature_c=91, power_mw=412_000, busy_percent=97,
        processes=(Process(4711, memory=12345),),
    )  # fmt: skip
    node.become(Driver(gpus=busy))
    assert pynvml.nvmlDeviceGetTotalEccErrors(it, 1, 0) == 3
    assert list(pynvml.nvmlDeviceGetRemappedRows(it)) == [0, 0, 0, 1]
    assert pynvml.nvmlDeviceGetTemperature(it, 0) == 91
    assert pynvml.nvmlDeviceGetPowerUsage(it) == 412_000
    assert pynvml.nvmlDeviceGetUtilizationRates(it).gpu == 97
    processes = pynvml.nvmlDeviceGetComputeRunningProcesses(it)
    assert [(one.pid, one.usedGpuMemory) for one in processes] == [(4711, 12345)]


def test_levels_between_gpus(install: Install) -> None:
    install(Driver(gpus=gpus("L40S", 3), level_default=50, levels=((0, 1, 30), (0, 1, 20))))
    assert pynvml.nvmlDeviceGetTopologyCommonAncestor(handle(0), handle(1)) == 20
    assert pynvml.nvmlDeviceGetTopologyCommonAncestor(handle(1), handle(0)) == 20
    assert pynvml.nvmlDeviceGetTopologyCommonAncestor(handle(0), handle(2)) == 50
    near = pynvml.nvmlDeviceGetTopologyNearestGpus(handle(0), 20)
    assert [pynvml.nvmlDeviceGetIndex(one) for one in near] == [1]


def test_nvlinks_name_the_gpu_at_the_other_end(install: Install) -> None:
    those = linked(gpus("V100", 3), {(0, 1): 2, (1, 2): 1})
    install(Driver(gpus=those))
    assert [pynvml.nvmlDeviceGetNvLinkState(handle(1), number) for number in range(3)] == [1, 1, 1]
    ends = [pynvml.nvmlDeviceGetNvLinkRemotePciInfo(handle(1), number).busId for number in range(3)]
    assert ends == [those[0].bus_id, those[0].bus_id, those[2].bus_id]
    refused(pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.nvmlDeviceGetNvLinkState, handle(1), 3)


def test_a_fabric_names_cluster_and_clique(install: Install) -> None:
    cluster = "00112233445566778899aabbccddeeff"
    install(Driver(gpus=(*gpus("H100", 1, fabric=Fabric(cluster=cluster, clique=7)), A100[1])))
    fabric = pynvml.c_nvmlGpuFabricInfoV_t()
    pynvml.nvmlDeviceGetGpuFabricInfoV(handle(0), pynvml.byref(fabric))
    assert (bytes(fabric.clusterUuid).hex(), fabric.cliqueId, fabric.state) == (cluster, 7, 3)
    refused(3, pynvml.nvmlDeviceGetGpuFabricInfoV, handle(1), pynvml.byref(fabric))


def test_mig_devices_have_their_own_answers(install: Install) -> None:
    install(Driver(gpus=SLICED))
    assert pynvml.nvmlDeviceGetMigMode(handle(0)) == [1, 1]
    assert pynvml.nvmlDeviceGetMigMode(handle(1)) == [0, 0]
    assert pynvml.nvmlDeviceGetMaxMigDeviceCount(handle(0)) == 7
    first = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle(0), 0)
    assert pynvml.nvmlDeviceIsMigDeviceHandle(first)
    assert pynvml.nvmlDeviceGetUUID(first) == SLICED[0].migs[0].uuid
    assert pynvml.nvmlDeviceGetName(first) == "NVIDIA A100-SXM4-40GB MIG 3g.20gb"
    assert pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(first)) == SLICED[0].uuid
    assert (pynvml.nvmlDeviceGetGpuInstanceId(first), pynvml.nvmlDeviceGetComputeInstanceId(first)) == (1, 0)
    assert pynvml.nvmlDeviceGetMemoryInfo(first).total == 19968 * 2**20
    attributes = pynvml.nvmlDeviceGetAttributes(first)
    assert (attributes.multiprocessorCount, attributes.gpuInstanceSliceCount) == (42, 3)
    by_uuid = pynvml.nvmlDeviceGetHandleByUUID(SLICED[0].migs[3].uuid)
    assert pynvml.nvmlDeviceGetIndex(by_uuid) == 3
    refused(pynvml.NVML_ERROR_NOT_FOUND, pynvml.nvmlDeviceGetMigDeviceHandleByIndex, handle(0), 4)
    refused(pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.nvmlDeviceGetMinorNumber, first)


def test_mig_profiles_instances_and_placements(install: Install) -> None:
    install(Driver(gpus=SLICED))
    profile = pynvml.nvmlDeviceGetGpuInstanceProfileInfo(handle(0), 2)
    assert (profile.id, profile.sliceCount, profile.memorySizeMB) == (9, 3, 19968)
    assert pynvml.nvmlDeviceGetGpuInstanceProfileInfo(handle(0), 2, version=2).name == "MIG 3g.20gb"
    refused(3, pynvml.nvmlDeviceGetGpuInstanceProfileInfo, handle(0), 12)
    instance = pynvml.nvmlDeviceGetGpuInstanceById(handle(0), 2)
    info = pynvml.nvmlGpuInstanceGetInfo(instance)
    assert (info.id, info.profileId, info.placement.start, info.placement.size) == (2, 14, 0, 2)
    compute = pynvml.nvmlGpuInstanceGetComputeInstanceById(instance, 0)
    assert pynvml.nvmlComputeInstanceGetInfo(compute).profileId == 1
    assert pynvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(instance, 1, 0).sliceCount == 2
    refused(3, pynvml.nvmlGpuInstanceGetComputeInstanceProfileInfo, instance, 3, 0)
    assert pynvml.nvmlDeviceGetGpuInstanceRemainingCapacity(handle(0), 9) == 0
    assert pynvml.nvmlDeviceGetGpuInstanceRemainingCapacity(handle(1), 9) == 2


def test_a_partition_changes_while_the_library_is_in_use(install: Install) -> None:
    node = install(Driver(gpus=SLICED))
    old = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle(0), 0)
    node.become(Driver(gpus=(partitioned(A100[0], "7g.40gb"), A100[1])))
    refused(pynvml.NVML_ERROR_INVALID_ARGUMENT, pynvml.nvmlDeviceGetUUID, old)
    new = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle(0), 0)
    assert pynvml.nvmlDeviceGetName(new).endswith("MIG 7g.40gb")


def test_gpus_come_with_the_next_nvmlinit_only(install: Install) -> None:
    node = install(Driver(gpus=H100[:4]))
    node.become(Driver(gpus=H100))
    pynvml.nvmlInit()  # the reference count is not 0: nothing is enumerated
    assert pynvml.nvmlDeviceGetCount() == 4
    pynvml.nvmlShutdown()
    pynvml.nvmlShutdown()
    pynvml.nvmlInit()
    assert pynvml.nvmlDeviceGetCount() == 8


def test_a_gpu_that_left_is_lost_for_those_who_hold_it(install: Install) -> None:
    node = install(Driver(gpus=H100))
    node.become(Driver(gpus=H100[:7]))
    assert pynvml.nvmlDeviceGetCount() == 8
    refused(pynvml.NVML_ERROR_GPU_IS_LOST, handle, 7)


def test_sixty_gpus(install: Install) -> None:
    install(Driver(gpus=gpus("B200", 60)))
    assert len({pynvml.nvmlDeviceGetUUID(handle(index)) for index in range(60)}) == 60


def test_a_script_that_is_not_understood_fails_nvmlinit(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with Driver().installed(tmp_path) as node, node.loaded() as nvml:
        (node.control / "script").write_text("colour blue\n")
        refused(nvml.NVML_ERROR_UNKNOWN, nvml.nvmlInit)
    assert "script:1: 'colour' is not understood here" in capfd.readouterr().err


def test_values_are_compared_by_content() -> None:
    assert gpus("H100", 8) == H100
    assert msgspec.structs.replace(H100[0], minor=9) != H100[0]
    with pytest.raises(ValueError, match=r"no room for 7g\.40gb, 3g\.20gb together"):
        partitioned(A100[0], "7g.40gb", "3g.20gb")
