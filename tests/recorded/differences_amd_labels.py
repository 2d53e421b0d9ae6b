"""Where ours labels otherwise than AMD's node labeller, on purpose. The guide has this table; a test compares."""

from __future__ import annotations

from tests.recorded.outcome import Difference, Differences, Place
from tests.vectors.amd_labels import labellings

NODE = "/api/v1/nodes/node-1"
LONG = "A_very_long_product_name__with_odd_characters_and_more_than_sixty-three_of_them_OAM_x"
THEIRS = labellings()["057-label-long-name"].outputs.labels_after["amd.com/gpu.product-name"]
BOTH = ("amd.com/gpu", "beta.amd.com/gpu")
UNIT = "tests/unit/programs/labels/amd/"
HERE = "tests/recorded/test_amd_labels.py::"


def named(kind: str, value: str) -> dict[str, str]:
    """A label whose value all eight GPUs have."""
    return {f"label {prefix}.{kind}": value for prefix in BOTH} | {f"label beta.amd.com/gpu.{kind}.{value}": "8"}


def firmware(blocks: str, *versions: str) -> dict[str, None]:
    return {f"label beta.amd.com/gpu.firmware.{one}.{two}": None for one in blocks.split() for two in versions}


DIFFERENCES: Differences = {
    "patch": Difference(
        "The labeller sends one patch with the labels that differ, and none if all are right; AMD's writes the "
        "whole node whenever it starts.",
        (
            Place("055 056 057 059 061 062 063 066 069", {"requests": [f"GET {NODE}", f"PATCH {NODE}"]}),
            Place("068", {"requests": [f"GET {NODE}"]}),
        ),
    ),
    "kept": Difference(
        "A label that another writer changes or removes is restored within seconds; AMD's does not notice.",
        shown_by=f"{HERE}test_labels_that_are_wiped_come_back",
    ),
    "hardware": Difference(
        "The labels follow GPUs that are added, removed or repartitioned within seconds; AMD's reads the GPUs once, "
        "when it starts.",
        shown_by=f"{UNIT}test_command.py::test_hardware_that_changes_changes_the_labels",
    ),
    "stale": Difference(
        "Counters of values that no GPU has any more are removed, under both prefixes; AMD's leaves those of "
        "multi-valued kinds and of firmware behind.",
        (
            Place(
                "055",
                {
                    "label amd.com/gpu.device-id.740f": None,
                    "label beta.amd.com/gpu.family.HPC": None,
                    "label beta.amd.com/gpu.firmware.VCE.fw.1": None,
                },
            ),
        ),
    ),
    "cut": Difference(
        "A value that is not valid in a label is shortened or left out, with a message, and all other labels are "
        "written; AMD's sends it as it is, and the API server refuses the whole update.",
        (
            Place(
                "057",
                {f"label {prefix}.product-name": LONG[:63] for prefix in BOTH}
                | {
                    f"label beta.amd.com/gpu.product-name.{LONG[:45]}": "8",
                    f"label beta.amd.com/gpu.product-name.{THEIRS}": None,
                },
            ),
        ),
    ),
    "empty": Difference(
        "Without a version file there is no label; AMD's writes a label with an empty value.",
        (Place("061", {f"label amd.com/gpu.driver-{kind}version": None for kind in ("", "src-")}),),
    ),
    "driver-late": Difference(
        "Without a driver the labeller leaves the labels as they are and waits for the driver; AMD's exits with "
        "code 2 and a stack dump.",
        (Place("060", {"exit": 0}),),
    ),
    "no-node": Difference(
        "A node that does not exist is reported, and the labeller tries again; AMD's waits in silence. Without "
        "DS_NODE_NAME the labeller exits with code 2; AMD's waits in silence.",
        (Place("058", {"requests": ["GET /api/v1/nodes/node-2"]}),),
    ),
    "family": Difference(
        "The family comes from sysfs (the version of the graphics core, the gfx version or the PCI id) and needs no "
        "/dev/dri; AMD's asks libdrm.",
        (Place("061", named("family", "AI")),),
    ),
    "product": Difference(
        "If sysfs has no product_name, the name comes from the host's /usr/share/libdrm/amdgpu.ids or from a short "
        "table of Instinct models; AMD's asks libdrm, whose list is in its image.",
        (Place("061", named("product-name", "AMD_Instinct_MI210")),),
    ),
    "features": Difference(
        "Feature versions of firmware need a readable debugfs, because sysfs has firmware versions only; AMD's asks "
        "libdrm.",
        shown_by=f"{UNIT}test_machine.py::test_firmware_of_sysfs_and_features_of_debugfs",
    ),
    "firmware-block": Difference(
        "A firmware block for which the driver has no version is left out; AMD's repeats the numbers of the block "
        "before it.",
        (
            Place("066", firmware("MC UVD VCE", "feat.0", "fw.0")),
            Place("066", firmware("CE PFP", "feat.35", "fw.148")),
            Place("066", firmware("MEC SMC", "feat.1", "fw.49")),
        ),
    ),
    "firmware-large": Difference(
        "Firmware versions have 32 bits; AMD's reader of debugfs clips them to 31.",
        shown_by=f"{HERE}test_the_firmware_text_is_read_the_same",
    ),
    "vram": Difference(
        "Memory is the sum of the memory banks of a GPU or, if KFD has none, mem_info_vram_total; AMD's reads the "
        "first bank only.",
        shown_by=f"{UNIT}test_machine.py::test_memory_without_banks_is_what_the_driver_says",
    ),
    "partitioning": Difference(
        "Partitioning is supported if any GPU of the node supports it; AMD's looks at the first PCI function only.",
        shown_by=f"{UNIT}test_machine.py::test_partitioning_is_supported_if_any_gpu_can",
    ),
    "numa": Difference(
        "GPUs without a NUMA node, and their partitions, are labelled like all others; AMD's leaves them out.",
        shown_by=f"{UNIT}test_machine.py::test_partitions_count_where_kfd_knows_them_and_gpus_elsewhere",
    ),
    "vendor": Difference(
        "A PCI function with another vendor than AMD gets no labels; AMD's leaves out only those that come from "
        "libdrm.",
        shown_by=f"{UNIT}test_machine.py::test_another_vendor_has_no_labels",
    ),
    "arguments": Difference(
        "An argument that is not a flag is refused; AMD's ignores it and all flags after it.",
        shown_by=f"{UNIT}test_command.py::test_what_cannot_be_is_said",
    ),
    "messages": Difference(
        "The labeller reports each problem once, in one line; AMD's logs it for each GPU, with a stack trace.",
        shown_by="tests/unit/programs/labels/test_rounds.py::"
        "test_what_is_odd_is_said_once_and_the_labels_are_written_each_time",
    ),
}
