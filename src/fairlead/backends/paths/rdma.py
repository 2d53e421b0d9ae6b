"""Finds RDMA adapters: the nodes of an adapter, or of one of its ports, are one device. Its health is its links."""

# Annotations are objects here, not text: text would be evaluated at each start (docs/decisions/0008-speed.md).
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, ClassVar, NamedTuple

import msgspec

from fairlead.backends.paths import sysfs
from fairlead.backends.paths.found import Found, Look, base
from fairlead.kit.decoding import Words, doc
from fairlead.kit.text import printable
from fairlead.model.health import Cause, CauseKind

ADAPTERS, VERBS, MANAGEMENT = "/sys/class/infiniband", "/sys/class/infiniband_verbs", "/sys/class/infiniband_mad"
CONNECTION_MANAGER = "/sys/class/misc/rdma_cm"  # one for all adapters
_STATE = re.compile(r"([0-9]): *([A-Z_]+)")
_ACTIVE = {"4", "5"}  # active, and active but waiting for a response
_PORT = re.compile(r"[0-9]{1,3}")
_NAME = re.compile(r"[\w.:-]+", re.ASCII)
_NO_GUID = re.compile(r"[0:]*")


class Per(StrEnum):
    ADAPTER = "adapter"
    PORT = "port"


class _Sibling(NamedTuple):
    """What another class of the kernel has of an adapter."""

    where: str
    path: str
    adapter: str
    port: str  # empty: it is of all ports


class Rdma(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """The identity is the PCI address; the node GUID of an adapter that has none."""

    fields: ClassVar = ("name", "adapter", "port", "guid")

    adapter: Annotated[Words, doc("Globs of the names in /sys/class/infiniband.", "mlx5_*")] = Words()
    per: Annotated[Per, doc("What one device is.")] = Per.ADAPTER
    nodes: Annotated[Words, doc("Globs of its nodes' names; left out, all of them.", ["uverbs*", "rdma_cm"])] = Words()
    require_link: Annotated[bool, doc("Without an active port it is unhealthy.")] = True

    def faults(self) -> Iterator[str]:
        yield from ()

    def find(self, look: Look) -> Iterator[Found]:
        shared = [path] if (path := sysfs.node(look, CONNECTION_MANAGER, "infiniband/")) else []
        adapters = {name: where for name in look.names(ADAPTERS) if (where := look.real(f"{ADAPTERS}/{name}"))}
        verbs, management = self._siblings(look, VERBS), self._siblings(look, MANAGEMENT)
        ports_of = {name: _ports(look, where) for name, where in adapters.items()}
        _name_strays(look, ports_of, verbs, management)
        for adapter, where in adapters.items():
            if not sysfs.fits(adapter, self.adapter):
                continue
            ports = ports_of[adapter]
            first = [one.path for one in verbs if one.adapter == adapter]
            for chosen in [[port] for port in ports] if self.per is Per.PORT else [ports]:
                own = [one.path for port in chosen for one in management if (one.adapter, one.port) == (adapter, port)]
                yield self._found(look, where, chosen, self._paths(first, own, shared))

    def health(self, look: Look, found: Found) -> Cause | None:
        """A state that cannot be read says nothing."""
        if not found.states:
            return Cause("no-node", CauseKind.TRANSIENT, f"{found.index} has no device node: is ib_uverbs loaded?")
        if not self.require_link:
            return None
        ports = found.attributes["ports"].split(",")
        states = {port: _STATE.match(look.read(f"{found.where}/ports/{port}/state")) for port in ports}
        known = {port: state for port, state in states.items() if state}
        if not known or any(state[1] in _ACTIVE for state in known.values()):
            return None
        told = ", ".join(f"port {port} is {state[2]}" for port, state in known.items())
        return Cause("link-down", CauseKind.TRANSIENT, f"{found.names['adapter']}: {told}")

    def patterns(self) -> Iterable[str]:
        return ("/dev/infiniband/rdma_cm",)

    def _siblings(self, look: Look, directory: str) -> list[_Sibling]:
        """The nodes in a class, and whose they are."""
        found = []
        for name in look.names(directory):
            where = f"{directory}/{name}"
            if path := sysfs.node(look, where, "infiniband/"):
                found.append(_Sibling(where, path, look.read(f"{where}/ibdev"), look.read(f"{where}/port")))
        return found

    def _paths(self, verbs: Sequence[str], own: Sequence[str], shared: Sequence[str]) -> list[str]:
        """None without a node for verbs, where one is wanted: the node of all adapters gives no access to this one."""
        chosen = [path for path in (*verbs, *own) if sysfs.fits(base(path), self.nodes)]
        if not verbs and (not chosen or sysfs.fits("uverbs0", self.nodes)):
            return []
        return [*chosen, *(path for path in shared if sysfs.fits(base(path), self.nodes))]

    def _found(self, look: Look, where: str, ports: list[str], paths: list[str]) -> Found:
        adapter, guid = base(where), look.read(f"{where}/node_guid")
        card = sysfs.hardware(look, where)
        identity = card.identity if card else adapter if _NO_GUID.fullmatch(guid) else guid
        name = f"{identity}-port{ports[0]}" if self.per is Per.PORT else identity
        layer = look.read(f"{where}/ports/{ports[0]}/link_layer") if ports else ""
        return Found(
            identity=name,
            names={"name": name, "adapter": adapter, "port": ",".join(ports), "guid": guid},
            states=tuple(look.see(path) for path in paths),
            index=f"{adapter}/{ports[0]}" if self.per is Per.PORT else adapter,
            where=where,
            key=f"rdma {name}",
            vendor=card.vendor if card else "",
            model=look.read(f"{where}/hca_type") or (f"{card.vendor}:{card.product}" if card and card.vendor else ""),
            attributes={"adapter": adapter, "ports": ",".join(ports), "guid": guid, "linkLayer": layer},
        )


def _ports(look: Look, where: str) -> list[str]:
    return [port for port in look.names(f"{where}/ports") if _PORT.fullmatch(port)]


def _name_strays(
    look: Look, ports: Mapping[str, Sequence[str]], verbs: Sequence[_Sibling], management: Sequence[_Sibling]
) -> None:
    """Names files that do not say whose a node is.

    Where each adapter has its own, an adapter that is not here may be of another network namespace.
    """
    lacking = ports.keys() - {one.adapter for one in verbs}
    for one in (*verbs, *management):
        if one.adapter not in ports and (lacking or not _NAME.fullmatch(one.adapter)):
            why = f"says '{printable(one.adapter)[:40]}', which is no adapter: {one.path} is left out"
            look.name(f"{one.where}/ibdev", why)
        elif one.port and one.port not in ports.get(one.adapter, [one.port]):
            why = f"says '{printable(one.port)[:40]}', which is no port of {one.adapter}: {one.path} is left out"
            look.name(f"{one.where}/port", why)
