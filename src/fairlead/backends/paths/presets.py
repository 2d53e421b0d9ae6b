"""Devices that many people have, as short entries: `preset: kvm`. A preset is an entry; what stands beside it wins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fairlead.backends.paths.spec import Options, Preset, find_faults
from fairlead.kit.decoding import convert
from fairlead.model.errors import ConfigError

PRESETS: Mapping[Preset, Mapping[str, Any]] = {
    Preset.KVM: {"paths": ["/dev/kvm"]},
    Preset.FUSE: {"paths": ["/dev/fuse"]},
    Preset.TUN: {"paths": ["/dev/net/tun"]},
    Preset.VHOST_NET: {"paths": ["/dev/vhost-net"]},
    Preset.TPM: {"paths": ["/dev/tpmrm*"]},
    Preset.SGX: {"paths": ["/dev/sgx_enclave"]},
    Preset.TAP: {"sysfs": {"class": "macvtap"}},
    Preset.SERIAL: {"sysfs": {"class": "tty", "node": ["ttyUSB*", "ttyACM*"]}},
    Preset.CAMERA: {"sysfs": {"class": "video4linux", "together": True}},
    Preset.RENDER: {"sysfs": {"class": "drm", "node": "renderD*"}},
    Preset.VFIO: {"pci": {"driver": "*vfio*"}},
    Preset.XILINX: {"pci": {"vendor": "10ee", "driver": ["xclmgmt", "xocl*"], "board": True}},
    Preset.DFL: {"pci": {"driver": "dfl-pci", "nodes": ["dfl-fme.*", "dfl-port.*"]}},
    Preset.RDMA: {"rdma": {}},
}


def options_of(raw: Mapping[str, Any]) -> Options:
    """The options with presets filled in. ConfigError names every key that does not fit."""
    options = dict(raw)
    if isinstance(options.get("devices"), list | tuple):
        options["devices"] = [_filled(entry) for entry in options["devices"]]
    chosen = convert(options, Options, "paths")
    if faults := list(find_faults(chosen)):
        raise ConfigError("paths", faults)
    return chosen


def _filled(entry: object) -> object:
    """A node without the device is as good as one with it: it offers none, and nothing is unhealthy."""
    known = entry.get("preset") if isinstance(entry, Mapping) else None
    if not isinstance(entry, Mapping) or known not in list(Preset):
        return entry
    return {"optional": True, **PRESETS[Preset(known)], **entry}
