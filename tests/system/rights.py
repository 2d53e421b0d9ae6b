"""The right that a request to the API server needs."""

from __future__ import annotations

from tests.apiserver.server import Request


def right(request: Request) -> tuple[str, str]:
    words = request.path.strip("/").split("/")[2:]
    words = words[2:] if words[0] == "namespaces" else words
    if request.method == "GET":
        verb = "watch" if request.query.get("watch") == "true" else "get" if len(words) > 1 else "list"
    else:
        verb = request.method.lower()
    return verb, "/".join(words[::2])
