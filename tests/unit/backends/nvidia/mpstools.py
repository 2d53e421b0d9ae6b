"""Stand-ins for nvidia-cuda-mps-control and nvidia-smi: programs that check what they are given and remember it.

A directory beside them holds their world: `calls` is what happened, `alive-*` are daemons by their pipe directory, and
files such as `refuse-quit` or `hang--d` make a call fail or hang.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import NamedTuple

from fairlead.backends.nvidia.mps.command import Tools

# In sh, because dozens of them run in a test and an interpreter takes longer to start.
PROGRAM = r"""#!/bin/sh
world={world}
name=${{0##*/}}

remember() {{ printf '%s\t%s\t%s\t%s\n' "$name" "$1" "$2" "$3" >>"$world/calls"; }}
refuse() {{ echo "$*"; exit 1; }}
obey() {{
  [ -e "$world/hang-$1" ] && exec sleep 1000
  [ -e "$world/refuse-$1" ] && refuse "refused: $1"
  true
}}

if [ "$name" = nvidia-smi ]; then
  [ $# = 4 ] && [ "$1 $3" = "-i -c" ] || refuse "bad arguments: $*"
  case "$4" in EXCLUSIVE_PROCESS | DEFAULT) ;; *) refuse "bad mode: $4" ;; esac
  remember mode "$2" "$4"
  obey "$2"
  exit 0
fi

given=$(tr '\0' '\n' </proc/$$/environ | sed 's/=.*//' | sort | tr '\n' ' ')
[ "$given" = "CUDA_MPS_LOG_DIRECTORY CUDA_MPS_PIPE_DIRECTORY " ] || refuse "bad environment: $given"
alive=$world/alive-$(echo "$CUDA_MPS_PIPE_DIRECTORY" | tr / _)
if [ "$*" = -d ]; then
  remember start "$CUDA_MPS_PIPE_DIRECTORY"
  obey -d
  [ -d "$CUDA_MPS_PIPE_DIRECTORY" ] && [ -d "$CUDA_MPS_LOG_DIRECTORY" ] || exit 2
  [ -e "$alive" ] && exit 1
  echo "control daemon started" >>"$CUDA_MPS_LOG_DIRECTORY/control.log"
  : >"$alive"
  exit 0
fi
[ $# = 0 ] || refuse "bad arguments: $*"
order=$(cat)
word=${{order%% *}}
remember order "$order" "$CUDA_MPS_PIPE_DIRECTORY"
obey "$word"
[ -e "$alive" ] || refuse "Cannot find MPS control daemon process"
case "$word" in
  quit) rm "$alive" ;;
  get_default_active_thread_percentage) echo 25.0 ;;
  set_default_device_pinned_mem_limit | set_default_active_thread_percentage) ;;
  *) refuse "unknown order: $order" ;;
esac
"""


class Call(NamedTuple):
    program: str
    what: str  # mode, start or order
    first: str  # a GPU, a directory, an order
    second: str


class MpsWorld:
    def __init__(self, directory: Path) -> None:
        self._world = directory / "world"
        self._world.mkdir(parents=True)
        programs = directory / "bin"
        programs.mkdir()
        for name in ("nvidia-cuda-mps-control", "nvidia-smi"):
            path = programs / name
            path.write_text(PROGRAM.format(world=shlex.quote(str(self._world))))
            path.chmod(0o755)
        self.tools = Tools(path=str(programs), deadline_s=30.0)

    def calls(self) -> list[Call]:
        path = self._world / "calls"
        return [Call(*line.split("\t")) for line in path.read_text().splitlines()] if path.exists() else []

    def orders(self) -> list[str]:
        """What the daemons were told, in order, without the questions how they are."""
        told = [call.first for call in self.calls() if call.what == "order"]
        return [order for order in told if not order.startswith("get_")]

    def modes(self) -> list[tuple[str, str]]:
        return [(call.first, call.second) for call in self.calls() if call.what == "mode"]

    def starts(self) -> int:
        return sum(call.what == "start" for call in self.calls())

    def forget(self) -> None:
        (self._world / "calls").unlink(missing_ok=True)

    def set(self, what: str) -> None:
        (self._world / what).touch()

    def unset(self, what: str) -> None:
        (self._world / what).unlink()

    def alive(self) -> int:
        return len(list(self._world.glob("alive-*")))

    def kill(self) -> None:
        for path in self._world.glob("alive-*"):
            path.unlink()
