"""Speaks to the API server: HTTPS and JSON from the standard library, with a client certificate."""

from __future__ import annotations

import http.client
import json
import ssl
from typing import Any

from tests.node.rig import certificates
from tests.node.rig.places import HOST, ports

CALL_S = 15.0


class RefusedError(Exception):
    """The API server said no."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class Api:
    def __init__(self, who: str = "admin") -> None:
        self._tls = ssl.create_default_context(cafile=certificates.file("ca", "crt"))
        self._tls.load_cert_chain(certificates.file(who, "crt"), certificates.file(who, "key"))

    def get(self, path: str) -> Any:
        return self.call("GET", path)

    def call(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Any:
        connection = http.client.HTTPSConnection(HOST, ports().api, timeout=CALL_S, context=self._tls)
        try:
            content = None if body is None else json.dumps(body)
            connection.request(method, path, content, {"Content-Type": kind, "Accept": "application/json"})
            response = connection.getresponse()
            text = response.read()
        finally:
            connection.close()
        if response.status >= 400:
            raise RefusedError(response.status, _message(text))
        return json.loads(text) if text.startswith((b"{", b"[")) else text.decode()


def _message(text: bytes) -> str:
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return text.decode(errors="replace")[:200]
