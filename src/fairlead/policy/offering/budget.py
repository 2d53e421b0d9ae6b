"""The message budget: whether the kubelet would take a device list, and what would fit if not.

The kubelet drops a list over its limit without telling anyone, and the resource shows 0. So the size is known before
anything is sent. Owns the advice; the arithmetic is in `listbytes`.
"""

from __future__ import annotations

from itertools import accumulate

from fairlead.model.errors import Oversize
from fairlead.model.resource import Resource
from fairlead.policy.offering.listbytes import list_bytes, worst_bytes, worst_sizes
from fairlead.policy.offering.memory import KUBELET_MESSAGE_MAX_BYTES

__all__ = ["KUBELET_MESSAGE_MAX_BYTES", "check", "list_bytes", "worst_bytes"]


def check(resource: Resource, limit_bytes: int = KUBELET_MESSAGE_MAX_BYTES) -> None:
    """Raises Oversize, with what would fit, if the list could grow over the limit."""
    sizes = list(worst_sizes(resource))
    total = sum(sizes)
    if total <= limit_bytes:
        return
    each = -(-total // len(sizes))
    raise Oversize(
        f"{resource.name}: {len(sizes)} slots x ~{each} bytes = {total:,} bytes, over the kubelet's {limit_bytes:,}; "
        f"at most {limit_bytes * len(sizes) // total} slots of this size fit: {_advice(resource, sizes, limit_bytes)}"
    )


def _advice(resource: Resource, sizes: list[int], limit_bytes: int) -> str:
    """The largest number of replicas that fits. Retired slots stay whatever the replicas are."""
    if resource.unit_bytes:
        # The unit was chosen to fit, so something else is listed too.
        return "slots of an earlier unit are still listed. They go when no pod holds them"
    fixed = 0
    groups: dict[str, list[int]] = {}
    for slot, size in zip(resource.slots, sizes, strict=True):
        if slot.retired_s is not None:
            fixed += size
        else:
            groups.setdefault(slot.device, []).append(size)
    most = max(map(len, groups.values()), default=0)
    sums = [[0, *accumulate(group)] for group in groups.values()]
    fits, over = 0, most + 1
    while over - fits > 1:
        middle = (fits + over) // 2
        if fixed + sum(prefix[min(middle, len(prefix) - 1)] for prefix in sums) <= limit_bytes:
            fits = middle
        else:
            over = middle
    if fits:
        return f"lower replicas from {most} to {fits}"
    return "even one slot per device is too many; divide the devices between several resource names"
