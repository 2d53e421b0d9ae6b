"""Where our extender answers otherwise than gpushare's, and why. The guide has the same list."""

from __future__ import annotations

from collections.abc import Mapping

DIFFERENCES: Mapping[str, str] = {
    "names-only": (
        "A filter by names answers with names; theirs adds whole Node objects, which kube-scheduler does not read. "
        "Reasons are left out when a node fits: they are used for nothing."
    ),
    "best-first": "The best nodes are answered, the best first, and no more than `nodes`; theirs answers with all.",
    "reason-with-figures": (
        "A refusal begins with the words of theirs and adds figures. Where no leaving pod would help it is marked as "
        "unresolvable, so that no pod is evicted in vain."
    ),
    "not-offered": (
        "A node that is not known, or tells no number of devices, offers nothing; theirs has other words for it."
    ),
    "asks-for-nothing": "A pod that asks for nothing of ours may go everywhere; theirs refuses nodes without GPUs.",
    "any-spelling": "Keys must be spelled as kube-scheduler spells them; theirs ignores the case of letters.",
    "other-errors": "Errors of requests that cannot be read, and of binds, are in other words.",
    "bind-status": (
        "A bind that fails is answered with 200 and an Error, which kube-scheduler shows; theirs answers with 500, "
        "whose text it does not read."
    ),
    "one-write": (
        "Node and annotations are one write; theirs patches first, and leaves the annotations when the bind fails."
    ),
    "bound-once": "A pod that is bound stays where it is; theirs binds it again, and books two devices.",
    "limit-counts": (
        "A pod counts with what its containers are given, their limits; theirs counts what the annotation says, or "
        "nothing where it cannot be read."
    ),
    "deleting-counts": "A pod that is being deleted holds its device until it is gone; theirs gives it away before.",
    "never-wraps": "A device with more booked than it has takes nothing; theirs wraps around, and takes anything.",
    "follows-changes": "A changed annotation of a pod is followed; theirs keeps what it saw first.",
    "all-nodes": (
        "`inspect` shows every node with devices; theirs shows those that it was asked about, and removed ones."
    ),
    "unhealthy-words": "A word in the ConfigMap that is no index says nothing; theirs takes it for device 0.",
    "total-of-devices": (
        "The total of a node is that of its devices; theirs is what the node has, with the rest of a division."
    ),
}
