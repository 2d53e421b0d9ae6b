"""Checks of the container runtime and of CDI: whether what a container is given arrives in it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from fairlead.programs.doctor.checks.words import has_nvidia, listing
from fairlead.programs.doctor.facts import Facts, Missing
from fairlead.programs.doctor.findings import API, HOST, RUNTIME, Chapter, LacksError, Seen, need

RUNTIMES = Chapter("The container runtime")
NVIDIA_HANDLER = "nvidia"
CDI_BY_DEFAULT, CDI_BY_OPTION = (2, 0), (1, 7)
BY_HOOK = frozenset({"envvar", "volume-mounts"})
_VERSION = re.compile(r"v?(\d+)\.(\d+)")


@RUNTIMES.warning(
    "D10",
    "the container runtime has no nvidia handler",
    "nvidia-ctk runtime configure --runtime={runtime} && systemctl restart {runtime}",
    RUNTIME,
)
def no_handler(facts: Facts) -> Iterator[Seen]:
    """With the ways envvar and volume-mounts it is NVIDIA's runtime that puts the driver and the GPUs into a container.

    Without it a pod starts, is counted, and finds no GPU. The ways of CDI need no handler.
    """
    if not has_nvidia(facts):
        return
    runtime = need(facts.runtime)
    ways = _ways(facts)
    if NVIDIA_HANDLER in runtime.handlers or not BY_HOOK & ways:
        return
    known = listing(runtime.handlers) or "none"
    yield Seen(f"{runtime.config}: handlers {known}; the default is {runtime.default}", {"runtime": runtime.name})


@RUNTIMES.error(
    "D11",
    "the RuntimeClass is missing",
    r"""printf 'apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: %s}\nhandler: %s\n' {name} {name}"""
    " | kubectl apply -f -",
    API,
    RUNTIME,
)
def no_class(facts: Facts) -> Iterator[Seen]:
    """A pod, or the daemon's own DaemonSet, that names a RuntimeClass which is not there is rejected.

    If nvidia is a handler of the runtime and not its default, pods can only choose it through a RuntimeClass.
    """
    classes = need(facts.runtime_classes)
    names = {one.name for one in classes}
    if not isinstance(facts.daemon_sets, Missing):
        for one in facts.daemon_sets:
            if one.runtime_class and one.runtime_class not in names:
                text = f"DaemonSet {one} names RuntimeClass {one.runtime_class}, which is not there"
                yield Seen(text, {"name": one.runtime_class})
                return
    runtime = facts.runtime
    if isinstance(runtime, Missing) or NVIDIA_HANDLER not in runtime.handlers or runtime.default == NVIDIA_HANDLER:
        return
    if BY_HOOK & _ways(facts) and not any(one.handler == NVIDIA_HANDLER for one in classes):
        text = (
            f"{runtime.config}: the handler nvidia is not the default ({runtime.default}), and no RuntimeClass has it"
        )
        yield Seen(text, {"name": NVIDIA_HANDLER})


@RUNTIMES.error(
    "D26",
    "CDI names are sent, and the runtime does not read them",
    "containerd config dump | sed 's/enable_cdi = false/enable_cdi = true/' > {config}.new && mv {config}.new {config} "
    "&& systemctl restart containerd",
    RUNTIME,
)
def no_cdi(facts: Facts) -> Iterator[Seen]:
    """CDI needs containerd 1.7.

    Version 1.6 drops CDI names without a word, and 1.7 does so unless enable_cdi is set: the pod starts without its
    device. Upgrade containerd, set the option, or use the way envvar.
    """
    config = need(facts.config)
    if "cdi-cri" not in {way for entry in config.backends for way in _ways_of(entry)}:
        return
    runtime = need(facts.runtime)
    if runtime.name != "containerd":
        return
    found = _VERSION.match(runtime.version)
    if not found:
        raise LacksError(f"the version of {runtime.name} is not known: it is in the node's status, at the API server")
    version = int(found[1]), int(found[2])
    values = {"config": runtime.config}
    if version < CDI_BY_OPTION:
        cure = "apt-get install --only-upgrade containerd.io  # 1.7 or later; or use the way envvar"
        yield Seen(f"containerd {runtime.version} knows no CDI", values, cure)
    elif (runtime.cdi is None and version < CDI_BY_DEFAULT) or runtime.cdi is False:
        said = "does not set enable_cdi" if runtime.cdi is None else "has enable_cdi = false"
        yield Seen(f"containerd {runtime.version}, and {runtime.config} {said}", values)


@RUNTIMES.error(
    "D27",
    "a CDI spec is broken, stale, or claimed twice",
    "nvidia-ctk cdi generate --output={path}",
    HOST,
)
def bad_specs(facts: Facts) -> Iterator[Seen]:
    """The runtime refuses a container whose CDI name it cannot resolve:

    `unresolvable CDI devices`. It also refuses one whose spec names a path that is not there. If two specs of one
    directory define a name, neither counts. Fairlead writes its own specs anew at each change; specs of others are
    theirs to mend or to remove.
    """
    owners: dict[str, str] = {}
    for file in need(facts.cdi):
        if file.problem:
            yield Seen(f"{file.path}: {file.problem}", {"path": file.path})
        if file.absent:
            yield Seen(f"{file.path} ({file.kind}): {listing(file.absent)} not on this host", {"path": file.path})
        twice = [name for name in file.names if name in owners]
        if twice:
            cure = f"rm {file.path}"
            yield Seen(f"{listing(twice)} in {owners[twice[0]]} and in {file.path}", {}, cure)
        owners |= {name: file.path for name in file.names if name not in owners}
    if isinstance(facts.config, Missing):
        return
    for entry in facts.config.backends:
        cdi = entry.get("cdi")
        ways = _ways_of(entry)
        if entry.get("kind") != "nvidia" or not any(way.startswith("cdi") for way in ways):
            continue
        vendor = str(cdi.get("vendor", "")) if isinstance(cdi, dict) else ""
        vendor = vendor or "k8s.device-plugin.nvidia.com"
        if not isinstance(facts.daemons, Missing) and not any(name.startswith(f"{vendor}/") for name in owners):
            cure = "fairlead journal -n 200 | grep scan"
            yield Seen(f"no spec has a name of {vendor}, whose names are sent to the runtime", {}, cure)


def _ways_of(entry: dict[str, object]) -> list[str]:
    ways = entry.get("ways")
    if isinstance(ways, list):
        return [str(way) for way in ways]
    return ["envvar"] if entry.get("kind") == "nvidia" else []


def _ways(facts: Facts) -> set[str]:
    """How containers learn of NVIDIA GPUs. Without a configuration: as most plugins do, by the environment."""
    if isinstance(facts.config, Missing):
        return {"envvar"}
    return {way for entry in facts.config.backends for way in _ways_of(entry)}
