"""The way to the cluster, for those parts of a daemon that need it: one client, and this node's name."""

from __future__ import annotations

from pathlib import Path

from fairlead.cluster.access import Access, find_access, parse_server
from fairlead.cluster.client import Client
from fairlead.cluster.credentials import TokenFile
from fairlead.cluster.nodes import NodeWatch
from fairlead.config.load import Loaded
from fairlead.config.settings import environment
from fairlead.config.spec import ClusterSpec
from fairlead.model.errors import ConfigError
from fairlead.model.ports import Clock


class Cluster:
    def __init__(self, client: Client, node: str) -> None:
        self.client = client
        self.node = node
        self.watch = NodeWatch(client, node)  # one for all parts; whoever needs it runs it

    async def close(self) -> None:
        await self.client.close()


def open_cluster(loaded: Loaded, clock: Clock) -> Cluster:
    """Raises ConfigError or NoAccess when nobody says where the cluster is, or which node this is."""
    spec, around = loaded.config.cluster, environment()
    node = spec.node or around.get("NODE_NAME", "")
    if not node:
        unknown = "the name of this node is not known. Set it, or NODE_NAME to the pod's spec.nodeName"
        raise ConfigError(loaded.source, [f"cluster.node: {unknown}"])
    access = _named(spec, loaded.source) or find_access(around, clock, kubeconfig=spec.kubeconfig, context=spec.context)
    return Cluster(Client(access, clock), node)


def _named(spec: ClusterSpec, source: str) -> Access | None:
    if not spec.server:
        return None
    from fairlead.cluster.tls import Trust  # noqa: PLC0415 - few name their server

    credentials = TokenFile(Path(spec.token_file)) if spec.token_file else None
    server = parse_server(spec.server, where=f"{source}: cluster.server")
    return Access(server, Trust(ca_file=spec.ca_file), credentials, source="cluster.server")
