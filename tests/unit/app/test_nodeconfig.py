"""A label of the node that is followed: what happens when the watch behind it ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.clock import FakeClock

from fairlead.app.nodeconfig import ChoiceTerms, NodeConfig
from fairlead.cluster.nodes import NodeWatch
from fairlead.kit.supervise import Ended


class NoClient:
    """Of an API server that is never asked."""

    closed = False

    async def close(self) -> None:
        self.closed = True


@pytest.fixture
def client() -> NoClient:
    return NoClient()


@pytest.fixture
def choice(tmp_path: Path, client: NoClient) -> NodeConfig:
    (tmp_path / "a").write_text("")
    terms = ChoiceTerms(str(tmp_path), "--config", "example.com/config", default="a")
    opened: Any = client
    return NodeConfig(terms, lambda: opened, FakeClock(), lambda _text: None)


@pytest.fixture(params=["raises", "returns"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> type[Exception]:
    """How the watch ends, by itself."""

    async def run(_self: NodeWatch) -> None:
        if request.param == "raises":
            raise RuntimeError("a defect")

    monkeypatch.setattr(NodeWatch, "run", run)
    return RuntimeError if request.param == "raises" else Ended


async def test_a_start_does_not_wait_for_a_watch_that_has_ended(
    choice: NodeConfig, client: NoClient, kind: type[Exception]
):
    with pytest.raises(kind):
        await choice._choose_first()
    assert client.closed


async def test_a_daemon_learns_that_the_watch_has_ended(choice: NodeConfig, client: NoClient, kind: type[Exception]):
    """Its task fails then: the status says so, and the probe of liveness fails."""
    with pytest.raises(kind):
        await choice.run(lambda: None, lambda _topic, _text: None)
    assert client.closed
