"""Where ours prints otherwise than kubectl-inspect-gpushare, on purpose. The guide has this table; a test compares."""

from __future__ import annotations

DIFFERENCES = {
    "index-shown": (
        "A pod on a GPU that its node does not count has a column, and is in every sum; "
        "the original leaves it out of the columns, and out of the summary."
    ),
    "unit-unknown": "Where the unit is unknown the head says `GPU Memory`; the original says `GPU Memory()`.",
    "unit-annotated": (
        "Amounts of a node that says how large its units are, are shown in MiB or GiB; "
        "the original shows numbers of units, and guesses."
    ),
    "unit-large": "A GPU with 141 units counts in GiB; the original takes more than 100 for MiB.",
    "unit-mixed": "Where nodes count in different units the head says `mixed`; the original takes the unit of any.",
    "order": "Nodes are in the server's order, pods by GPU; the original's order changes from call to call.",
    "init-containers": (
        "An init container that asks for more than the containers together counts, as with the scheduler; "
        "the original counts containers only."
    ),
    "percent": "29 of 100 are 29 %; the original says 28, as floats have it.",
    "address": "A node without an internal address is shown with its first one; the original says `unknown`.",
    "plugin-away": "A node whose plugin is away is shown with its pods; the original leaves it out.",
    "rule": "The line under the pods of a node ends at 120; the original's grows with every pod.",
    "flags": "`-d` also counts behind the node, and a second node is an error; the original ignores both.",
    "errors": "Errors and notes go to standard error, with a cure; the original prints errors as if they were tables.",
}
