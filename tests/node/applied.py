"""A file of deploy/manifests on the node, as people use it: `kubectl apply`, `rollout`, `delete`.

The image is the node's, and is never pulled. What else a test must change, it says.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.chart.render import MANIFESTS
from tests.node import runtime
from tests.node.deployed import SPACE, is_gone, pods
from tests.node.rig.api import Api
from tests.node.rig.places import BIN, KUBECONFIG
from tests.node.rig.steps import NodeFailedError, until

Objects = Mapping[str, Any]  # by kind: a manifest of a plugin alone has one of each
SET = "daemonset/fairlead"
ROLLED_S = 120


class Applied:
    """The DaemonSet of the manifest, and its pods."""

    def __init__(self, api: Api, file: Path) -> None:
        self._api = api
        self.file = file

    def apply(self) -> None:
        kubectl("apply", "-f", str(self.file))
        self.wait_rolled_out()

    def delete(self) -> None:
        kubectl("delete", "-f", str(self.file), "--ignore-not-found")
        until(lambda: is_gone(self._api), "the namespace is gone", 90.0)

    def restart(self) -> None:
        """A roll-out, to its end."""
        self.rollout("restart")
        self.wait_rolled_out()

    def change(self, *words: str) -> None:
        """`kubectl set`: what follows is a roll-out."""
        kubectl("--namespace", SPACE, "set", words[0], SET, *words[1:])

    def rollout(self, verb: str, *words: str) -> None:
        kubectl("--namespace", SPACE, "rollout", verb, SET, *words)

    def wait_rolled_out(self) -> None:
        self.rollout("status", f"--timeout={ROLLED_S}s")
        until(lambda: len(pods(self._api)) == 1, "one pod is left", 60.0)

    def pod(self) -> Any:
        (one,) = pods(self._api)
        return one

    def wait_newcomer(self, old: Any, condition: Callable[[Any], bool], what: str) -> Any:
        """The pod beside the old one, once its container's status is so."""

        def found() -> Any:
            name = old["metadata"]["name"]
            others = [one for one in pods(self._api) if one["metadata"]["name"] != name]
            return others if len(others) == 1 and condition(container(others[0])) else None

        return until(found, f"the new pod {what}", 60.0)[0]


@contextmanager
def applied(api: Api, dialect: str, directory: Path, change: Callable[[Objects], None]) -> Iterator[Applied]:
    """Served by the manifest of a dialect, after changes; deleted at the end, unless the test has done that."""
    objects = {one["kind"]: one for one in yaml.safe_load_all((MANIFESTS / f"{dialect}.yaml").read_text()) if one}
    template(objects)["containers"][0].update({"image": runtime.NAME, "imagePullPolicy": "Never"})
    change(objects)
    file = directory / f"{dialect}.yaml"
    file.write_text(yaml.safe_dump_all(objects.values()))
    made = Applied(api, file)
    try:
        made.apply()
        yield made
    finally:
        made.delete()


def template(objects: Objects) -> Any:
    return objects["DaemonSet"]["spec"]["template"]["spec"]


def container(pod: Any) -> Any:
    """The status of its only container; empty before there is one."""
    return next(iter(pod["status"].get("containerStatuses", ())), {})


def kubectl(*words: str) -> str:
    command = [str(BIN / "kubectl"), f"--kubeconfig={KUBECONFIG}", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=ROLLED_S + 60)
    if done.returncode != 0:
        raise NodeFailedError(f"kubectl {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout
