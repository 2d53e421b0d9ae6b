"""A real Prometheus that scrapes a daemon of a test."""

from __future__ import annotations

import asyncio
import json
import socket
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.monitoring.promql import RULES
from tests.monitoring.provision import find_or_skip
from tests.system.rig import PATIENCE_S

POLL_S = 0.1
EVERY = "500ms"  # a scrape takes no longer than the time between two, also on a busy machine
Alerts = dict[str, dict[str, Any]]
STARTS = 3  # another program may take the port that was free


class Prometheus:
    def __init__(self, port: int) -> None:
        self.port = port

    async def ask(self, path: str, **query: str) -> Any:
        """The data of an answer of its API. AssertionError with its own words where it refuses."""
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(query)}"

        def fetch() -> Any:
            try:
                with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
                    return json.load(answer)
            except urllib.error.HTTPError as error:
                return json.load(error)

        answer = await asyncio.to_thread(fetch)
        assert answer["status"] == "success", f"{query}: {answer.get('error')}"
        return answer["data"]

    async def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """Labels and value of each series, now."""
        data = await self.ask("query", query=expression)
        if data["resultType"] == "scalar":
            return [({}, float(data["result"][1]))]
        return [(each["metric"], float(each["value"][1])) for each in data["result"]]

    async def until(self, expression: str, holds: Callable[[list[Any]], bool] = bool) -> list[Any]:
        """Asks again until the answer is as it should be."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                found = await self.query(expression)
                if holds(found):
                    return found
                await asyncio.sleep(POLL_S)

    async def until_alerts(self, holds: Callable[[Alerts], bool]) -> Alerts:
        """Those that fire, by name, when they are as they should be."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                found = (await self.ask("alerts"))["alerts"]
                firing = {each["labels"]["alertname"]: each for each in found if each["state"] == "firing"}
                if holds(firing):
                    return firing
                await asyncio.sleep(POLL_S)


@asynccontextmanager
async def scraping(target: int, directory: Path) -> AsyncIterator[Prometheus]:
    """With the alerts of deploy/monitoring, which fire at once: an hour has no room in a test."""
    hasty = yaml.safe_load(RULES.read_text())
    for group in hasty["groups"]:
        group["interval"] = EVERY
        for rule in group["rules"]:
            rule.pop("for", None)
    (directory / "rules.yaml").write_text(yaml.safe_dump(hasty))
    config = {
        "global": {"scrape_interval": EVERY, "scrape_timeout": EVERY, "evaluation_interval": EVERY},
        "rule_files": ["rules.yaml"],
        "scrape_configs": [
            {
                "job_name": "plugin",
                "honor_labels": True,
                "static_configs": [{"targets": [f"127.0.0.1:{target}"], "labels": {"instance": "n1"}}],
            }
        ],
    }
    (directory / "prometheus.yaml").write_text(yaml.safe_dump(config))
    for _ in range(STARTS):
        port = _free_port()
        process = await _start(port, directory)
        try:
            if await _ready(port, process):
                yield Prometheus(port)
                return
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()
    raise AssertionError(f"Prometheus does not start:\n{(directory / 'log').read_text()}")


async def _start(port: int, directory: Path) -> asyncio.subprocess.Process:
    with (directory / "log").open("wb") as log:
        return await asyncio.create_subprocess_exec(
            find_or_skip().prometheus,
            f"--config.file={directory / 'prometheus.yaml'}",
            f"--storage.tsdb.path={directory / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
            stdout=log,
            stderr=log,
        )


async def _ready(port: int, process: asyncio.subprocess.Process) -> bool:
    """Until it answers; False if it has ended."""
    async with asyncio.timeout(PATIENCE_S):
        while process.returncode is None:
            try:
                await Prometheus(port).query("up")
            except (OSError, AssertionError, ValueError):
                await asyncio.sleep(POLL_S)
            else:
                return True
    return False


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port
