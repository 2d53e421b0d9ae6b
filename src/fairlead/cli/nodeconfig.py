"""What the flags of a daemon say about a configuration that a label of the node chooses."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fairlead.app.nodeconfig import ChoiceTerms, NodeConfig
from fairlead.cli.say import say
from fairlead.cluster.access import find_access
from fairlead.cluster.client import Client
from fairlead.config.choice import FALLBACKS
from fairlead.config.settings import environment
from fairlead.kit.clock import SystemClock
from fairlead.model.errors import UsageError


def follow_label(
    label: str,
    directory: str,
    default: str,
    fallbacks: Sequence[str],
    *,
    flag: str,
    remembered: Path,
    program: str = "fairlead",
) -> NodeConfig:
    """`flag`: what names the directory. UsageError where a choice is not possible."""
    around, clock = environment(), SystemClock()
    if not Path(directory).is_dir():
        raise UsageError(f"{flag}: {directory or 'nothing'} is no directory, and --config-label chooses a file of one")
    for strategy in fallbacks:
        if strategy not in FALLBACKS:
            raise UsageError(f"--config-fallbacks: unknown word {strategy!r}. Use some of {', '.join(FALLBACKS)}")
    node = around.get("NODE_NAME", "")
    if not node:
        why = "--config-label: the name of this node is not known. Set NODE_NAME to the pod's spec.nodeName"
        raise UsageError(why)
    terms = ChoiceTerms(directory, flag, label, default, tuple(fallbacks), node, str(remembered))
    return NodeConfig(terms, lambda: Client(find_access(around, clock), clock), clock, lambda text: say(text, program))
