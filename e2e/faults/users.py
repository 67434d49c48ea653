"""Who comes to the fault proxy, and as whom it goes to the API server."""

from __future__ import annotations

import base64
import ssl
import tempfile
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from cryptography import x509
from cryptography.x509.oid import NameOID

from e2e.controlplane.certificates import Pair

NOBODY = ""  # no client certificate: perhaps a token, which is passed on


class Users:
    """A session with the API server for each user whose kubeconfig was seen."""

    def __init__(self, ca: Path) -> None:
        self._ca = ca
        self._pairs: dict[str, Pair] = {}
        self._sessions: dict[str, aiohttp.ClientSession] = {}

    def learn(self, kubeconfig: Any) -> None:
        """Take the client certificate of a kubeconfig, if it has one."""
        user = kubeconfig["users"][0]["user"]
        if "client-certificate-data" in user:
            pair = Pair(
                base64.b64decode(user["client-certificate-data"]),
                base64.b64decode(user["client-key-data"]),
            )
            subject = x509.load_pem_x509_certificate(pair.certificate).subject
            name = subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value
            self._pairs[str(name)] = pair

    def serve(self, context: ssl.SSLContext, pair: Pair) -> None:
        """Make a server's context: its certificate, and a look at the clients'."""
        _load(context, pair)
        context.load_verify_locations(self._ca)
        context.verify_mode = ssl.CERT_OPTIONAL

    @staticmethod
    def of(request: web.Request) -> str:
        """The name in the client's certificate."""
        certificate = request.get_extra_info("peercert") or {}
        names = [value for part in certificate.get("subject", ()) for value in part]
        return next((value for key, value in names if key == "commonName"), NOBODY)

    def session(self, user: str) -> aiohttp.ClientSession:
        """Connections to the API server with this user's certificate. In the proxy's loop."""
        if user not in self._sessions:
            context = ssl.create_default_context(cafile=str(self._ca))
            if user in self._pairs:
                _load(context, self._pairs[user])
            self._sessions[user] = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, ssl=context),
                timeout=aiohttp.ClientTimeout(total=None),
                cookie_jar=aiohttp.DummyCookieJar(),
                read_bufsize=2**20,
            )
        return self._sessions[user]

    async def close(self) -> None:
        for session in self._sessions.values():
            await session.close()

    @staticmethod
    def encoded(data: bytes) -> str:
        return base64.b64encode(data).decode()


def _load(context: ssl.SSLContext, pair: Pair) -> None:
    """Certificates are loaded from files only."""
    with tempfile.TemporaryDirectory() as folder:
        context.load_cert_chain(*pair.write(Path(folder)))
