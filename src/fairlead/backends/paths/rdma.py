"""Finds RDMA adapters: the nodes of an adapter, or of one of its ports, are one device. Its health is its links."""

# Annotations are objects here, not text: text would be evaluated at each start (docs/decisions/0008-speed.md).
import re
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Annotated, ClassVar

import msgspec

from fairlead.backends.paths import sysfs
from fairlead.backends.paths.found import Found, Look, base
from fairlead.kit.decoding import Words, doc
from fairlead.model.health import Cause, CauseKind

ADAPTERS, VERBS, MANAGEMENT = "/sys/class/infiniband", "/sys/class/infiniband_verbs", "/sys/class/infiniband_mad"
CONNECTION_MANAGER = "/sys/class/misc/rdma_cm"  # one for all adapters
_STATE = re.compile(r"([0-9]): *([A-Z_]+)")
_ACTIVE = {"4", "5"}  # active, and active but waiting for a response
_PORT = re.compile(r"[0-9]{1,3}")
_NO_GUID = re.compile(r"[0:]*")


class Per(StrEnum):
    ADAPTER = "adapter"
    PORT = "port"


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
        verbs = self._siblings(look, VERBS)
        management = self._siblings(look, MANAGEMENT)
        for adapter in look.names(ADAPTERS):
            where = look.real(f"{ADAPTERS}/{adapter}")
            if where is None or not sysfs.fits(adapter, self.adapter):
                continue
            ports = [port for port in look.names(f"{where}/ports") if _PORT.fullmatch(port)]
            for chosen in [[port] for port in ports] if self.per is Per.PORT else [ports]:
                own = [path for port in chosen for path in management.get((adapter, port), ())]
                paths = [*verbs.get((adapter, ""), ()), *own, *shared]
                yield self._found(look, where, chosen, [path for path in paths if sysfs.fits(base(path), self.nodes)])

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

    def _siblings(self, look: Look, directory: str) -> dict[tuple[str, str], list[str]]:
        """The nodes in a class, by adapter and port."""
        found: dict[tuple[str, str], list[str]] = {}
        for name in look.names(directory):
            where = f"{directory}/{name}"
            if path := sysfs.node(look, where, "infiniband/"):
                found.setdefault((look.read(f"{where}/ibdev"), look.read(f"{where}/port")), []).append(path)
        return found

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
            model=look.read(f"{where}/hca_type") or (f"{card.vendor}:{card.product}" if card else ""),
            attributes={"adapter": adapter, "ports": ",".join(ports), "guid": guid, "linkLayer": layer},
        )
