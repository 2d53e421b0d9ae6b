"""What our command makes of a recording's command line, brought to the stage that the recording is played on.

Only places and times are changed: directories, the simulated machine, and how long is waited for what never comes.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from tests.recorded.outcome import number
from tests.recorded.stage import COMMANDS, Stage
from tests.vectors.sharing import Case

WAIT = "300ms"  # for a pod that will not come
LONG_WAIT = "20s"  # for something that will
COMES_LATE = ("mini 041", "gpushare 047", "gpushare 048", "gpushare 049", "volcano 047")


def config_of(case: Case, stage: Stage, *more: str) -> dict[str, Any]:
    """`more`: flags of ours."""
    read = import_module(f"fairlead.dialects.{COMMANDS[case.peer]}.command").read_command_line
    places = ["--plugin-dir", str(stage.plugins), "--status-socket", str(stage.status_socket)]
    args = [*stage.words(), *places, "--pod-resources", str(stage.pod_resources), *more]
    config: dict[str, Any] = dict(read(args, stage.env()).translate().config)
    (backend,) = config["backends"]
    backend |= {"hostRoot": str(stage.machine.root), "driverRootMount": str(stage.machine.root)}
    backend["health"] = {**backend.get("health", {}), "eventWait": "30ms"}
    (rule,) = config["rules"]
    wait = LONG_WAIT if f"{case.peer} {number(case.case)}" in COMES_LATE else WAIT
    config["rules"] = [{**rule, "assign": {**rule["assign"], "wait": wait}}]
    config["health"] = {"hold": "1h"}  # nothing comes back while a test looks on
    return config
