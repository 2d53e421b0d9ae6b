"""A change of part of an object, for accounts that may patch it and for those that may only update it."""

from __future__ import annotations

from typing import Any

from fairlead.cluster.client import Anything, Client
from fairlead.cluster.errors import Forbidden
from fairlead.cluster.kinds import Kind
from fairlead.cluster.patches import MergePatch, merge


async def change(client: Client, kind: Kind, name: str, body: Any, *, namespace: str = "") -> None:
    """By a merge patch. Where that is forbidden the object is read, merged here, and written whole with its version.

    Raises Conflict when the object has changed since it was read: work out the change again. If both ways are
    forbidden, the error asks for the patch.
    """
    try:
        await client.patch(kind, name, MergePatch(body), Anything, namespace=namespace)
    except Forbidden as refused:
        whole = await client.get(kind, name, dict[str, Any], namespace=namespace)
        try:
            await client.update(kind, name, merge(whole, body), Anything, namespace=namespace)
        except Forbidden:
            raise refused from None
