"""Annotations of the node that say what its devices are."""

from __future__ import annotations

from functools import partial

import pytest
from tests.apiserver.server import ApiServer
from tests.unit.cluster.watching import running
from tests.unit.fronts.nodestatus.node import NodeStage

from fairlead.cluster.client import Client
from fairlead.fronts.nodestatus.annotations import NodeAnnotations, render
from fairlead.model.device import Device
from fairlead.model.inventory import Inventory
from fairlead.model.names import DeviceId

TEMPLATES = {"v/full": "{driver}", "v/major": "{driver.0}", "v/minor": "{driver.1}", "v/revision": "{driver.2}"}


def inventory(version: str) -> Inventory:
    return Inventory((Device(DeviceId("a")), Device(DeviceId("b"), attributes={"driver": version})))


def annotated(server: ApiServer, version: str) -> bool:
    noted = server.store.get("nodes", "n1")["metadata"].get("annotations", {})
    return bool(noted.get("v/full") == version)


@pytest.mark.parametrize(
    ("version", "parts"),
    [
        ("550.107.02.04", ["550.107.02.04", "550", "107", "02"]),
        ("535.183", ["535.183", "535", "183"]),
        ("535", ["535", "535"]),
        ("", []),
    ],
)
def test_parts_that_are_not_there_are_left_out(version: str, parts: list[str]):
    assert render(TEMPLATES, inventory(version)) == dict(zip(TEMPLATES, parts, strict=False))


async def test_they_are_applied_when_they_change(server: ApiServer, client: Client):
    stage = NodeStage(server, client)
    annotations = NodeAnnotations(stage.cluster, TEMPLATES, "gpu-device-plugin", stage.record, stage.note)
    async with running(annotations.run()):
        for version in ("535", "550.1", "550.1", ""):
            annotations.tell(inventory(version))
            await stage.until(partial(annotated, server, version or "550.1"))
    first, second = stage.sent("PATCH")
    assert (first.path, first.query) == ("/api/v1/nodes/n1", {"fieldManager": "gpu-device-plugin", "force": "true"})
    assert first.headers["content-type"] == "application/apply-patch+yaml"
    assert second.json()["metadata"]["annotations"] == {"v/full": "550.1", "v/major": "550", "v/minor": "1"}
