"""Probes, metrics and the page of a running daemon over HTTP. Loaded only where the configuration asks for it.

Owns which path answers what. A page of metrics is made on a thread, from a snapshot, and serves for a second.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

import msgspec

from fairlead.app.page import Page
from fairlead.app.snapshot import take_snapshot
from fairlead.config.settings import environment
from fairlead.fronts.deviceplugin.lifecycle import Signal
from fairlead.kit.addresses import local_url
from fairlead.kit.files import SMALL_BYTES, read_text
from fairlead.kit.owner import Owner
from fairlead.kit.singleflight import SingleFlight
from fairlead.model.device import Usage
from fairlead.model.errors import HostError
from fairlead.model.holdings import Holdings, Unknown
from fairlead.model.names import DeviceId, ResourceName
from fairlead.observe.exposition import TYPE
from fairlead.observe.http import HttpServer, Reply, Request, Route, is_loopback, listen
from fairlead.observe.metrics import render
from fairlead.observe.process import read_process
from fairlead.observe.totals import Own, Totals
from fairlead.wire import deviceplugin as dp

if TYPE_CHECKING:
    from fairlead.app.daemon import Daemon
    from fairlead.fronts.deviceplugin.endpoint import Handlers
    from fairlead.observe.journal import Fact

FRESH_S = 1.0  # a page of metrics is not made more often
# Each question makes the kubelet rebuild what it knows of its devices (docs/decisions/0024-granted-a-moment-ago.md).
HOLDERS_FRESH_S = 5.0
USAGE_DEADLINE_S = 3.0
RETRY_S = 5.0  # an address that is taken may become free: the daemon before this one may hold it

Checks = Mapping[str, str]  # by name, what is wrong; empty: nothing


class Web:
    def __init__(self, daemon: Daemon) -> None:
        self.port = 0  # while it listens
        self._daemon = daemon
        self._config = daemon.loaded.config.http  # a change of it needs a restart
        self._totals = Totals(daemon.clock.monotonic)
        self._thread = Owner("http", daemon.clock)
        self._holdings: Holdings | Unknown = Unknown("not read yet")
        self._asked_s = self._made_s = float("-inf")
        self._page = b""
        self._usage: Mapping[DeviceId, Usage] = {}
        self._making = SingleFlight(self._make)
        self._shown = Page(daemon, self._thread, self._refusal, self._on_error)
        daemon.journal.on_fact = self._note

    def _note(self, fact: Fact) -> None:
        self._totals.note(fact)
        self._shown.note(fact)

    def instrument(self, _resource: ResourceName, handlers: Handlers) -> Handlers:
        unary = {method for method in handlers if method is not dp.LIST_AND_WATCH}
        return {
            method: self._totals.timed(method.path.rpartition("/")[2], handler) if method in unary else handler
            for method, handler in handlers.items()
        }

    def routes(self) -> Mapping[str, Route]:
        return {
            "/health": self._healthz,  # as squat's plugin has it
            "/healthz": self._healthz,
            "/metrics": self._metrics,
            "/readyz": self._readyz,
            "/startupz": self._startupz,
            **(self._shown.routes() if self._config.page else {}),
        }

    async def run(self) -> None:
        """Until cancelled."""
        daemon, config = self._daemon, self._config
        server: HttpServer | None = None
        try:
            while server is None:
                try:
                    listening = listen(config.listen)
                except HostError as error:
                    daemon.problems.note("http", str(error))
                    await daemon.clock.sleep(RETRY_S)
                    continue
                server = HttpServer(
                    listening,
                    self.routes(),
                    frozenset(host.lower() for host in config.hosts),
                    on_shortage=lambda reason: daemon.problems.note("http-descriptors", reason and f"http: {reason}"),
                    on_error=self._on_error,
                )
                self.port = server.port
                daemon.problems.note("http", "")
                shown = config.page and (config.token_file or is_loopback(config.listen))
                page = {"page": local_url(config.listen, server.port)} if shown else {}
                daemon.journal.record("http", listen=config.listen, port=server.port, **page)
            await daemon.stopped.wait()
        finally:
            if server is not None:
                server.close()
            self._making.cancel()
            self._thread.close()

    async def _refusal(self, request: Request) -> str:
        """The page names pods: on the network it asks for a token."""
        config = self._config
        if not config.token_file:
            return "" if is_loopback(config.listen) else "the page is served on loopback only, or with http.tokenFile"
        from hmac import compare_digest  # noqa: PLC0415 - takes OpenSSL along

        try:
            text = await self._thread.call(read_text, config.token_file, SMALL_BYTES, what="the token of the page")
            problem = "" if text.strip() else "it is empty"
        except OSError as error:
            text, problem = "", error.strerror or str(error)
        self._daemon.problems.note("http-token", problem and f"http.tokenFile: {config.token_file}: {problem}")
        token = text.strip().encode()
        given = request.authorization.removeprefix("Bearer ") or parse_qs(request.query).get("token", [""])[0]
        if token and compare_digest(given.encode(), token):
            return ""
        what = "this token is not the one of http.tokenFile" if given else "a token is needed"
        return f"{what}: Authorization: Bearer TOKEN, or ?token=TOKEN"

    def _on_error(self, path: str, error: Exception) -> None:
        self._daemon.journal.record("http-failed", path=path, reason=f"{type(error).__name__}: {error}")

    # --- Probes ---------------------------------------------------------------------------------------------------

    async def _healthz(self, _request: Request) -> Reply:
        """Only what a restart of the daemon cures. That this is answered shows that its loop turns."""
        return _reply({"loop": "", "tasks": "; ".join(self._daemon.tasks.crashed)})

    async def _startupz(self, _request: Request) -> Reply:
        return _reply({"scanned": self._scanned()})

    async def _readyz(self, _request: Request) -> Reply:
        """Whether pods can be given devices. A node without devices is ready: there is nothing to wait for."""
        endpoints = self._daemon.supervisor.endpoints.values()
        waiting = [
            f"{each.name}: {each.life.phase.value}: {each.waits_for or each.life.reason}"
            for each in endpoints
            if each.life.phase.value != "streaming"
        ]
        stopping = "the daemon is stopping" if self._daemon.stopped.is_set() else ""
        # Ready too early, the daemon before this one would be stopped while the kubelet still follows its streams.
        taking_over = self._daemon.problems.get("handover", "")
        checks = {"scanned": self._scanned(), "registered": "; ".join(waiting), "handover": taking_over}
        return _reply({**checks, "stopping": stopping})

    def _scanned(self) -> str:
        if self._daemon.spoken:
            return ""
        sources = self._daemon.engine.sources.live.values()
        silent = [source.name for source in sources if source.scanned_s is None]
        return f"not yet scanned: {', '.join(silent)}"

    # --- Metrics --------------------------------------------------------------------------------------------------

    async def _metrics(self, _request: Request) -> Reply:
        if self._daemon.clock.monotonic() - self._made_s >= FRESH_S:
            await self._making.run()
        return Reply(self._page, type=TYPE)

    async def _make(self) -> None:
        daemon = self._daemon
        now_s = daemon.clock.monotonic()
        if now_s - self._asked_s >= HOLDERS_FRESH_S:
            self._holdings, self._asked_s = await daemon.questions.holders(), now_s
            self._usage = await self._measure() if daemon.loaded.config.http.usage else {}
        snapshot, own = take_snapshot(daemon, self._holdings), self._own()
        self._page = await self._thread.call(render, snapshot, self._totals, own, what="the page of metrics")
        self._made_s = daemon.clock.monotonic()

    async def _measure(self) -> Mapping[DeviceId, Usage]:
        """All backends at once, and none for long: a page of metrics is worth more than what one cannot say."""
        sources = list(self._daemon.engine.sources.speaking.values())
        answers = await asyncio.gather(
            *(asyncio.wait_for(source.usage(), USAGE_DEADLINE_S) for source in sources), return_exceptions=True
        )
        usage: dict[DeviceId, Usage] = {}
        for source, answer in zip(sources, answers, strict=True):
            failed = isinstance(answer, BaseException)
            self._daemon.problems.note(
                f"usage {source.name}", f"backend {source.name}: usage: {answer!r}" if failed else ""
            )
            usage |= answer if not isinstance(answer, BaseException) else {}
        return usage

    def _own(self) -> Own:
        daemon = self._daemon
        endpoints = daemon.supervisor.endpoints.values()
        health = daemon.loaded.config.health
        return Own(
            registrations={
                (each.name, signal.value): each.registrations.get(signal, 0)
                for each in endpoints
                for signal in Signal  # from 0 on: a rate over the first one would be lost otherwise
            },
            refused=tuple(daemon.supervisor.refused),
            scan_interval_s=daemon.loaded.config.scan.interval,
            probe_interval_s=max(health.probe_interval, health.rest_interval),
            probed_s={each.name: each.probed_s for each in daemon.engine.sources.live.values() if each.probed},
            api_server_answers=daemon.cluster.answers if daemon.cluster is not None else None,
            differences=daemon.auditor.counts() if daemon.auditor is not None else None,
            node=daemon.loaded.config.cluster.node or environment().get("NODE_NAME", ""),
            names=tuple(daemon.loaded.config.http.names),
            usage=self._usage,
            config_hash=f"{zlib.crc32(msgspec.json.encode(daemon.loaded.config, enc_hook=float)):08x}",
            config_problem=daemon.problems.get("config", ""),
            restart_needed="restart" in daemon.problems,
            process=read_process(),
        )


def _reply(checks: Checks) -> Reply:
    """One line for each check, as the API server's own probes have it."""
    lines = [f"[-]{name} failed: {wrong}" if wrong else f"[+]{name} ok" for name, wrong in checks.items()]
    return Reply("\n".join([*lines, ""]).encode(), 503 if any(checks.values()) else 200)
