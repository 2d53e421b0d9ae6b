"""Names that travel: resources, devices, slots. Owns what the kubelet accepts; knows nothing of sockets."""

from __future__ import annotations

import re
from typing import NewType, TypeAlias

from fairlead.model.errors import InvalidName

DeviceId: TypeAlias = str  # plain, so that an author of a plugin writes Device("led0")
SlotId = NewType("SlotId", str)
ResourceName = NewType("ResourceName", str)

# The API comment says a device id has at most 63 characters. The kubelet does not check it; others downstream do.
SLOT_ID_MAX = 63
# The kubelet prefixes "requests." and then asks for a DNS subdomain of at most 253 characters.
DOMAIN_MAX = 253 - len("requests.")

_DOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


def parse_resource_name(text: str) -> ResourceName:
    """Returns the text as a resource name, or says which of the kubelet's rules it breaks."""
    domain, slash, name = text.partition("/")
    if not slash:
        raise InvalidName("resource name", text, "it needs a vendor domain, such as example.com/gpu")
    if "/" in name:
        raise InvalidName("resource name", text, "it may hold one '/' only")
    if "kubernetes.io/" in text:
        raise InvalidName("resource name", text, "kubernetes.io is reserved; use a domain of your own")
    if domain.startswith("requests."):
        raise InvalidName("resource name", text, "the domain may not start with 'requests.'")
    if len(domain) > DOMAIN_MAX:
        raise InvalidName("resource name", text, f"the domain has {len(domain)} characters; {DOMAIN_MAX} is the limit")
    if not _DOMAIN.fullmatch(domain):
        raise InvalidName("resource name", text, f"{domain!r} is not a lower-case DNS domain")
    if not _NAME.fullmatch(name):
        raise InvalidName(
            "resource name",
            text,
            f"{name!r} must be 1 to 63 letters, digits, '-', '_' or '.', with a letter or digit at both ends",
        )
    return ResourceName(text)


def parse_slot_id(text: str) -> SlotId:
    """Returns the text as a slot id, or says why the kubelet's API would not take it."""
    if not text:
        raise InvalidName("slot id", text, "it is empty")
    if len(text) > SLOT_ID_MAX:
        raise InvalidName(
            "slot id", text, f"it has {len(text)} characters; {SLOT_ID_MAX} is the limit. Give the device a shorter id"
        )
    if not text.isprintable() or " " in text:
        raise InvalidName("slot id", text, "it holds a space or a character that cannot be printed")
    return SlotId(text)


SOCKET_NAME = "fairlead-{domain}_{name}.sock"


def socket_name(resource: ResourceName, template: str = SOCKET_NAME) -> str:
    """The socket file of a resource. The domain is part of it: two vendors may both have a 'gpu'."""
    domain, _, name = resource.partition("/")
    return template.replace("{domain}", domain).replace("{name}", name)
