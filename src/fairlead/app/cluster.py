"""The way to the cluster, for those parts of a daemon that need it: one client, and this node's name."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from fairlead.cluster.access import Access, find_access, parse_server
from fairlead.cluster.client import Client
from fairlead.cluster.cluster import Cluster
from fairlead.cluster.credentials import TokenFile
from fairlead.config.load import Loaded
from fairlead.config.settings import environment
from fairlead.config.spec import ClusterSpec
from fairlead.model.errors import ConfigError
from fairlead.model.ports import Clock


def open_cluster(loaded: Loaded, clock: Clock) -> Cluster:
    """Raises ConfigError or NoAccess when it is not known where the cluster is, or which node this is."""
    spec, around = loaded.config.cluster, environment()
    node = spec.node or around.get("NODE_NAME", "")
    find = None
    if not node and spec.node_metadata:
        from fairlead.cluster.metadata import read_instance_name  # noqa: PLC0415 - few machines are Google's

        find = partial(read_instance_name, spec.node_metadata)
    elif not node:
        unknown = "the name of this node is not known. Set it, or NODE_NAME to the pod's spec.nodeName"
        raise ConfigError(loaded.source, [f"cluster.node: {unknown}"])
    access = _named(spec, loaded.source) or find_access(around, clock, kubeconfig=spec.kubeconfig, context=spec.context)
    return Cluster(Client(access, clock), node, find)


def _named(spec: ClusterSpec, source: str) -> Access | None:
    if not spec.server:
        return None
    from fairlead.cluster.tls import TlsConfig  # noqa: PLC0415 - few name their server

    credentials = TokenFile(Path(spec.token_file)) if spec.token_file else None
    server = parse_server(spec.server, where=f"{source}: cluster.server")
    return Access(server, TlsConfig(ca_file=spec.ca_file), credentials, source="cluster.server")
