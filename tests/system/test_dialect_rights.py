"""Each dialect uses all the rights that its account is given in the guide, and no other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.system.desk import DIALECTS, NODE, Desk, Dialect, desk
from tests.system.rights import right

from fairlead.cluster.rbac import FEATURES
from fairlead.testing import Kubelet

SHARED = "`fairlead doslab`, `fairlead gpushare`"
RIGHTS = {"doslab": SHARED, "gpushare": SHARED, "volcano": "`fairlead volcano`"}

AMOUNTS = {"doslab": "doslab.io/gpu-core", "gpushare": "aliyun.com/gpu-count", "volcano": "volcano.sh/gpu-number"}


async def until(place: Desk, is_so: Callable[[dict[str, Any]], bool]) -> None:
    """Of the node, as the API server has it."""
    async with asyncio.timeout(20):
        while not is_so(place.server.store.get("nodes", NODE)):
            await place.server.store.news()


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
async def test_an_admission_with_exactly_these_rights(dialect: Dialect, kubelet: Kubelet, kubelet_root: Path):
    rights = {(verb, rule.resource) for rule in FEATURES[RIGHTS[dialect.name]] for verb in rule.verbs}
    async with desk(dialect, kubelet, kubelet_root) as place:
        place.server.allowed = rights
        node = place.server.store.get("nodes", NODE)
        node["metadata"]["annotations"]["gpu"] = "locked"
        place.server.store.put("nodes", node)
        await place.bind("a", {"main": 4}, card=2)
        await place.marked("a")
        if dialect.name == "volcano":
            await until(place, lambda node: "gpu" not in node["metadata"]["annotations"])
        await until(place, lambda node: AMOUNTS[dialect.name] in node["status"]["capacity"])
        assert place.node.daemon.problems == {}
        assert {right(request) for request in place.server.requests} == rights
