"""What NVIDIA's plugin v0.19.3, which is built here, answers differently from v0.20.0, which was recorded.

Seen by replaying every recording. README.md has the whole list; here is what can be said as a rule.
"""

from __future__ import annotations

from typing import Any

import msgspec

from tests.vectors import Preference, Resource, Result
from tests.vectors.types import Json

NEW_HOOK = "update-application-profile"


def as_v0_19(recorded: Result) -> Result:
    """The recording, without what the older version does not have."""
    return msgspec.structs.replace(
        recorded,
        effective_config=_config(recorded.effective_config),
        cdi_specs={path: _spec(spec) for path, spec in recorded.cdi_specs.items()},
        resources={name: _resource(resource) for name, resource in recorded.resources.items()},
    )


def _config(config: Json | None) -> Json | None:
    """There was no allocation policy for shared devices, and so no option."""
    if config is None:
        return None
    plugin = {key: value for key, value in config["flags"]["plugin"].items() if key != "sharedDevicesAllocationPolicy"}
    return config | {"flags": config["flags"] | {"plugin": plugin}}


def _spec(spec: Json) -> Json:
    """Its container toolkit knew one hook less."""
    edits: dict[str, Any] = spec["spec"]["containerEdits"]
    if "hooks" not in edits:
        return spec
    hooks = [hook for hook in edits["hooks"] if NEW_HOOK not in hook["args"]]
    return spec | {"spec": spec["spec"] | {"containerEdits": edits | {"hooks": hooks}}}


def _resource(resource: Resource) -> Resource:
    """Among replicas it did not prefer the GPU of which it had picked fewest: its answers are others, and random."""
    asked = resource.preferred
    if asked is None:
        return resource
    return msgspec.structs.replace(resource, preferred=[one for one in asked if not _is_random(one)])


def _is_random(one: Preference) -> bool:
    return any("::" in slot for wanted in one.request for slot in wanted.available)
