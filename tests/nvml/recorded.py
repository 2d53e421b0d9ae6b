"""Turns the `driver` object of a recording into a Driver."""

from __future__ import annotations

from typing import Any

from tests.nvml.driver import Driver, Fault
from tests.nvml.values import GPU_LINK, SWITCH_LINK, Fabric, Gpu, Link, Mig, Profile


def from_recording(recorded: dict[str, Any]) -> Driver:
    own = {gpu["pci_bus_id"] for gpu in recorded["gpus"]}
    return Driver(
        gpus=tuple(_gpu(gpu, own) for gpu in recorded["gpus"]),
        driver_version=recorded["driver_version"],
        cuda_version=recorded["cuda_driver_version"],
        level_default=recorded["topology_default"],
        levels=tuple((a, b, level) for a, b, level in recorded["topology"]),
        faults=tuple(Fault(function, code, gpu) for function, code, gpu in recorded["faults"]),
        library_path=recorded["library_path"] if recorded["library"] == "present" else None,
        dev_nodes=tuple(recorded["dev_nodes"]),
        gpu_nodes=recorded["gpu_dev_nodes"],
        driver_root=recorded["driver_root_ctr_path"],
        driver_root_has_dev=recorded.get("driver_root_has_dev", False),
        driver_root_has_caps=False,
        driver_files=tuple(recorded["driver_files"]),
        files=recorded["files"],
        machine=recorded["machine_type"],
        mig_minors=not recorded.get("no_mig_minors", False),
        wsl=recorded.get("wsl", False),
        sysfs=not recorded.get("no_sysfs", False),
    )


def _gpu(gpu: dict[str, Any], own: set[str]) -> Gpu:
    mode = gpu["mig_mode"]
    memory = gpu["memory"]
    drm = gpu["drm"]
    return Gpu(
        uuid=gpu["uuid"],
        name=gpu["name"],
        bus_id=gpu["pci_bus_id"],
        minor=gpu["minor"],
        serial=gpu["serial"],
        device_id=int(gpu["pci_device_id"], 16),
        subsystem_id=int(gpu["pci_subsystem_id"], 16),
        pci_class=int(gpu["pci_class"], 16),
        memory_total=memory["total"],
        memory_reserved=memory["reserved"],
        memory_free=memory["free"],
        memory_used=memory["used"],
        cc_major=gpu["compute_capability"][0],
        cc_minor=gpu["compute_capability"][1],
        architecture=gpu["architecture"],
        brand=gpu["brand"],
        mig_capable=mode is not None,
        mig_current=mode["current"] if mode else 0,
        mig_pending=mode["pending"] if mode else 0,
        mig_max=gpu["max_mig_devices"],
        profiles=tuple(Profile(constant=int(number), **facts) for number, facts in gpu["gi_profiles"].items()),
        migs=tuple(_mig(mig) for mig in gpu["mig_devices"]),
        links=tuple(
            Link(
                it["link"],
                it["remote_bus_id"],
                bool(it["state"]),
                GPU_LINK if it["remote_bus_id"] in own else SWITCH_LINK,
            )
            for it in gpu["nvlinks"]
        ),
        events=int(gpu["supported_events"], 16),
        fabric=Fabric(**gpu["fabric"]) if gpu["fabric"] else None,
        addressing=-1 if gpu["addressing_mode"] is None else gpu["addressing_mode"],
        numa_node=gpu["numa_node"],
        drm=(drm["card"], drm["render"]) if drm else None,
    )


def _mig(mig: dict[str, Any]) -> Mig:
    plain = {name: mig[name] for name in ("index", "uuid", "gi", "ci", "gi_profile", "ci_profile")}
    return Mig(**plain, **mig["attributes"])
