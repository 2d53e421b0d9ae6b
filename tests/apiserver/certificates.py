"""A certificate authority and certificates for tests, made by openssl: nothing that expires lies in the repository."""

from __future__ import annotations

import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Pair:
    cert: Path
    key: Path


class Authority:
    def __init__(self, root: Path, name: str = "authority") -> None:
        self._root = root
        self.ca = self._make(name, ["-addext", "keyUsage=critical,keyCertSign,cRLSign"])

    def issue(self, name: str, names: str = "IP:127.0.0.1,DNS:localhost") -> Pair:
        signed = ["-CA", str(self.ca.cert), "-CAkey", str(self.ca.key), "-addext", f"subjectAltName={names}"]
        return self._make(name, [*signed, "-addext", "basicConstraints=critical,CA:FALSE"])

    def server_context(self, pair: Pair, *, ask_client: bool = False) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pair.cert, pair.key)
        if ask_client:
            context.load_verify_locations(self.ca.cert)
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def _make(self, name: str, more: list[str]) -> Pair:
        pair = Pair(self._root / f"{name}.crt", self._root / f"{name}.key")
        key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        out = ["-subj", f"/CN={name}", "-days", "2", "-keyout", str(pair.key), "-out", str(pair.cert)]
        subprocess.run(["openssl", "req", "-x509", *key, *out, *more], check=True, capture_output=True)
        return pair
