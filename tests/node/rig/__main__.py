"""`make node-up` and `make node-down`."""

from __future__ import annotations

import sys

from tests.node.rig import needs, node, process
from tests.node.rig.places import BIN, KUBECONFIG, LOGS
from tests.node.rig.steps import NodeFailedError, NodeMissingError


def main(words: list[str]) -> int:
    if words not in (["up"], ["down"]):
        print("usage: python -m tests.node.rig up|down", file=sys.stderr)
        return 2
    try:
        needs.check_root()
        with process.alone():
            if words == ["down"]:
                node.down()
                return 0
            if not node.is_up():
                node.up()
        print(f"kubectl: {BIN}/kubectl --kubeconfig {KUBECONFIG} get pods -A")
        print(f"logs:    {LOGS}")
        print("end it:  make node-down")
    except (NodeMissingError, NodeFailedError) as error:
        print(f"node: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
