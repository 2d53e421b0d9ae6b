"""Where ours labels otherwise than AMD's node labeller, on purpose. The guide has this table; a test compares."""

from __future__ import annotations

DIFFERENCES = {
    "patch": (
        "The labeller sends one patch with the labels that differ, and none if all are right; AMD's writes the "
        "whole node whenever it starts."
    ),
    "kept": "A label that another writer changes or removes is restored within seconds; AMD's does not notice.",
    "hardware": (
        "The labels follow GPUs that are added, removed or repartitioned within seconds; AMD's reads the GPUs once,"
        " when it starts."
    ),
    "stale": (
        "Counters of values that no GPU has any more are removed, under both prefixes; AMD's leaves those of "
        "multi-valued kinds and of firmware behind."
    ),
    "cut": (
        "A value that is not valid in a label is shortened or left out, with a message, and all other labels are "
        "written; AMD's sends it as it is, and the API server refuses the whole update."
    ),
    "empty": "Without a version file there is no label; AMD's writes a label with an empty value.",
    "driver-late": (
        "Without a driver the labeller leaves the labels as they are and waits for the driver; AMD's exits with "
        "code 2 and a stack dump."
    ),
    "no-node": (
        "A node that does not exist is reported, and the labeller tries again; AMD's waits in silence. Without "
        "DS_NODE_NAME the labeller exits with code 2; AMD's waits in silence."
    ),
    "family": (
        "The family comes from sysfs (the version of the graphics core, the gfx version or the PCI id) and needs no"
        " /dev/dri; AMD's asks libdrm."
    ),
    "product": (
        "If sysfs has no product_name, the name comes from the host's /usr/share/libdrm/amdgpu.ids or from a short "
        "table of Instinct models; AMD's asks libdrm, whose list is in its image."
    ),
    "features": (
        "Feature versions of firmware need a readable debugfs, because sysfs has firmware versions only; AMD's asks"
        " libdrm."
    ),
    "firmware-block": (
        "A firmware block for which the driver has no version is left out; AMD's repeats the numbers of the block "
        "before it."
    ),
    "firmware-large": "Firmware versions have 32 bits; AMD's reader of debugfs clips them to 31.",
    "vram": (
        "Memory is the sum of the memory banks of a GPU or, if KFD has none, mem_info_vram_total; AMD's reads the "
        "first bank only."
    ),
    "partitioning": (
        "Partitioning is supported if any GPU of the node supports it; AMD's looks at the first PCI function only."
    ),
    "numa": "GPUs without a NUMA node, and their partitions, are labelled like all others; AMD's leaves them out.",
    "vendor": (
        "A PCI function with another vendor than AMD gets no labels; AMD's leaves out only those that come from libdrm."
    ),
    "arguments": "An argument that is not a flag is refused; AMD's ignores it and all flags after it.",
    "messages": "The labeller reports each problem once, in one line; AMD's logs it for each GPU, with a stack trace.",
}
