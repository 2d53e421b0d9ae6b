"""What can be configured of `fairlead scheduler`. The descriptions are the reference."""

# Annotations are objects here, not text: text would be evaluated at each start (docs/decisions/0008-speed.md).
import enum
from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta, field

from fairlead.config.rulespec import Spec, doc
from fairlead.kit import decoding, documents, files
from fairlead.kit.decoding import Problem
from fairlead.model.errors import ConfigError, InvalidName
from fairlead.model.names import parse_resource_name
from fairlead.policy.packing.node import Preference
from fairlead.policy.pods.contract import KNOWN, Contract, native
from fairlead.scheduler.view import Terms

PORT = 39999  # of gpushare's extender


class System(enum.StrEnum):
    """Whose names and annotations a resource has."""

    GPUSHARE = "gpushare"
    VOLCANO = "volcano"
    DOSLAB = "doslab"
    FAIRLEAD = "fairlead"


class ResourceSpec(Spec, frozen=True):
    system: Annotated[System, doc("Whose names and annotations its pods and nodes have.")]
    resource: Annotated[str, doc("Its name, for the system fairlead.", "example.com/gpu-memory")] = ""
    count: Annotated[
        str,
        doc(
            "The resource with the number of devices, for nodes that do not tell of single devices.",
            "example.com/gpu-count",
        ),
    ] = ""
    policy: Annotated[Preference, doc("binpack: the tightest device that fits; spread: the emptiest.")] = (
        Preference.TIGHTEST
    )


class TlsSpec(Spec, frozen=True):
    cert: Annotated[str, doc("File with the certificate, and those above it.", "/certs/tls.crt")] = ""
    key: Annotated[str, doc("File with its key.", "/certs/tls.key")] = ""
    client_ca: Annotated[
        str, doc("File with the certificates that clients must be signed by. Empty: any client.", "/certs/ca.crt")
    ] = ""


class SchedulerSpec(Spec, frozen=True):
    listen: Annotated[
        tuple[str, ...], doc("Addresses: host and port, or unix: and a path.", [f":{PORT}", "unix:/run/x.sock"])
    ] = (f":{PORT}",)
    probes: Annotated[
        tuple[str, ...],
        doc("Addresses that serve /healthz, /readyz and /metrics, and nothing else. Without TLS.", [":9402"]),
    ] = ()
    tls: Annotated[TlsSpec, doc("Certificates, for `listen`. Empty: plain HTTP.")] = field(default_factory=TlsSpec)
    resources: Annotated[tuple[ResourceSpec, ...], doc("What is packed. Empty: gpushare, volcano and doslab.")] = ()
    nodes: Annotated[
        int, Meta(ge=0, description="With how many nodes a filter answers: the best ones. 0: all that fit.")
    ] = 16
    wake: Annotated[
        bool,
        doc("Tell pods that were refused when they fit, by an annotation. The scheduler asks again then."),
    ] = True
    unhealthy_config_maps: Annotated[
        bool, doc("Read the ConfigMaps unhealthy-gpu-NODE in kube-system, where gpushare is packed.")
    ] = True
    kubeconfig: Annotated[
        str, doc("Kubeconfig file. Default: $KUBECONFIG, else the pod's own account, else ~/.kube/config.")
    ] = ""

    def terms(self) -> tuple[Terms, ...]:
        chosen = self.resources or tuple(ResourceSpec(system=System(name)) for name in KNOWN)
        return tuple(Terms(contract, one.policy) for one in chosen for contract in _contracts(one))


def _contracts(one: ResourceSpec) -> tuple[Contract, ...]:
    return (native(one.resource, one.count),) if one.system is System.FAIRLEAD else KNOWN[one.system]


def load(path: str) -> SchedulerSpec:
    """Raises ConfigError, which names every fault."""
    try:
        text = files.read_text(path)
    except OSError as error:
        raise ConfigError(path, [f"cannot be read: {error.strerror or error}"]) from None
    raw = documents.parse(text, path)
    spec, problems = decoding.decode(raw if raw is not None else {}, SchedulerSpec)
    if spec is not None:
        problems += [one for one in _check(spec) if not decoding.touches(one[0], problems)]
    if problems or spec is None:
        raise ConfigError(path, decoding.locate(text, problems, {}))
    return spec


def _check(spec: SchedulerSpec) -> Iterator[Problem]:
    seen: set[str] = set()
    for place, one in enumerate(spec.resources):
        at = ("resources", place)
        if one.system is System.FAIRLEAD:
            yield from _check_name((*at, "resource"), one.resource, "name the resource, such as example.com/gpu-memory")
            if one.count:
                yield from _check_name((*at, "count"), one.count, "")
        elif one.resource or one.count:
            yield (*at, "resource"), f"the names of {one.system} are known. Leave it out, or use system: fairlead"
        for contract in _contracts(one):
            if contract.resource in seen:
                yield at, f"{contract.resource} is here twice"
            seen.add(contract.resource)
    if bool(spec.tls.cert) != bool(spec.tls.key):
        yield ("tls",), "cert and key belong together. Give both, or none"
    if spec.tls.client_ca and not spec.tls.cert:
        yield ("tls", "clientCa"), "clients are checked over TLS only. Give cert and key too"
    if not spec.listen:
        yield ("listen",), f"give at least one address, such as :{PORT}"


def _check_name(path: tuple[str | int, ...], text: str, missing: str) -> Iterator[Problem]:
    if not text:
        yield path, missing
        return
    try:
        parse_resource_name(text)
    except InvalidName as error:
        yield path, str(error)
