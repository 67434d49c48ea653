"""A scripted server with one Secret and one webhook configuration, and clocks that can be moved."""

from __future__ import annotations

import base64
import ssl
from datetime import UTC, datetime, timedelta
from typing import Any

from cryptography import x509

from quota_translator.certs.keeper import CertificateKeeper
from quota_translator.core.world import Clock
from quota_translator.kube.client import Client, Retries
from quota_translator.kube.config import Connection
from tests.kube.scripted import Asked, Reply, Scripted, failed, listed, reply

NAMESPACE = "quota-system"
NAME = "webhook-cert"
CONFIGURATION = "guard"
SECRETS = f"/api/v1/namespaces/{NAMESPACE}/secrets"
SECRET = f"{SECRETS}/{NAME}"
CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
HOOKS = f"{CONFIGURATIONS}/{CONFIGURATION}"
DAY = 86400.0
NO_CHECK_TIME = 0x200000  # OpenSSL's: the tests have their own time
START = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Clocks:
    """Both clocks of a machine. They go on together; the wall clock can be set, too."""

    def __init__(self) -> None:
        self.steady = 1000.0
        self.offset = START - timedelta(seconds=1000)

    def now(self) -> Clock:
        return Clock(self.offset + timedelta(seconds=self.steady), self.steady)

    def go_on(self, seconds: float) -> None:
        self.steady += seconds

    def set_wall(self, seconds: float) -> None:
        """Set the wall clock forward, or back. Forward is also what a suspended machine sees."""
        self.offset += timedelta(seconds=seconds)

    async def sleep(self, seconds: float) -> None:
        self.go_on(seconds)


class Objects:
    """What the server has, by the rules that matter here: versions, conflicts, merge patches."""

    def __init__(self, server: Scripted) -> None:
        self.server = server
        self.version = 100
        self.secret: dict[str, Any] | None = None
        self.configuration: dict[str, Any] | None = self.configured("a.guard", "b.guard")
        server.always("create", SECRETS, self._create)
        server.always("patch", SECRET, self._patch_secret)
        server.always("patch", HOOKS, self._patch_hooks)
        server.always("get", SECRET, lambda _asked: _found(self.secret))
        server.always("get", HOOKS, lambda _asked: _found(self.configuration))
        server.always("list", SECRETS, lambda _asked: self._listed(self.secret))
        server.always("list", CONFIGURATIONS, lambda _asked: self._listed(self.configuration))

    def next_version(self) -> str:
        self.version += 1
        return str(self.version)

    def configured(self, *names: str) -> dict[str, Any]:
        hooks = [{"name": name, "clientConfig": {"url": "https://x"}} for name in names]
        metadata = {"name": CONFIGURATION, "resourceVersion": self.next_version()}
        return {"metadata": metadata, "webhooks": hooks}

    def data(self, key: str) -> bytes:
        assert self.secret is not None
        return base64.b64decode(self.secret["data"][key])

    def put(self, **data: bytes) -> None:
        """Somebody else writes these keys of the Secret (tls_crt for tls.crt)."""
        encoded = {
            key.replace("_", ".").replace("previous.", "previous-"): base64.b64encode(value)
            for key, value in data.items()
        }
        self.secret = self.secret or {"metadata": {"name": NAME, "namespace": NAMESPACE}}
        self.secret.setdefault("data", {}).update({k: v.decode() for k, v in encoded.items()})
        self.secret["metadata"]["resourceVersion"] = self.next_version()

    def bundles(self) -> list[bytes]:
        assert self.configuration is not None
        hooks = self.configuration["webhooks"]
        return [base64.b64decode(hook["clientConfig"].get("caBundle", "")) for hook in hooks]

    def overwrite_bundle(self, text: bytes) -> None:
        assert self.configuration is not None
        for hook in self.configuration["webhooks"]:
            hook["clientConfig"]["caBundle"] = base64.b64encode(text).decode()
        self.configuration["metadata"]["resourceVersion"] = self.next_version()

    def writes(self) -> list[str]:
        return [f"{a.verb} {a.path}" for a in self.server.asked if a.verb in {"create", "patch"}]

    # --- answers --------------------------------------------------------------------------

    def _listed(self, item: dict[str, Any] | None) -> Reply:
        return listed(*([item] if item else []), version=str(self.version))

    def _create(self, asked: Asked) -> Reply:
        if self.secret is not None:
            return failed(409, "AlreadyExists")
        self.secret = asked.body
        self.secret["metadata"]["resourceVersion"] = self.next_version()
        return reply(self.secret, 201)

    def _patch_secret(self, asked: Asked) -> Reply:
        if self.secret is None:
            return failed(404, "NotFound")
        if asked.body["metadata"]["resourceVersion"] != self.secret["metadata"]["resourceVersion"]:
            return failed(409, "Conflict")
        merged = self.secret["data"] | asked.body["data"]
        self.secret["data"] = {key: value for key, value in merged.items() if value is not None}
        self.secret["metadata"]["resourceVersion"] = self.next_version()
        return reply(self.secret)

    def _patch_hooks(self, asked: Asked) -> Reply:
        found = self.configuration
        if found is None:
            return failed(404, "NotFound")
        if asked.body["metadata"]["resourceVersion"] != found["metadata"]["resourceVersion"]:
            return failed(409, "Conflict")
        assert asked.headers["Content-Type"] == "application/strategic-merge-patch+json"
        for sent in asked.body["webhooks"]:
            (hook,) = [hook for hook in found["webhooks"] if hook["name"] == sent["name"]]
            hook["clientConfig"] |= sent["clientConfig"]
        found["metadata"]["resourceVersion"] = self.next_version()
        return reply(found)


def _found(item: dict[str, Any] | None) -> Reply:
    return reply(item) if item is not None else failed(404, "NotFound")


class Replica:
    """A keeper with its own client and clocks. `step` is one look at everything."""

    def __init__(self, server: Scripted, clocks: Clocks, **options: Any) -> None:
        self.clocks = clocks
        self.changes: list[str] = []
        self.client = Client(
            Connection(server.host), retries=Retries(attempts=1), sleep=clocks.sleep
        )
        found: dict[str, Any] = {
            "namespace": NAMESPACE,
            "secret_name": NAME,
            "service_name": "guard",
            "configuration_name": CONFIGURATION,
            "extra_names": ("127.0.0.1",),
            "lifetime": 90 * DAY,
        } | options
        self.keeper = CertificateKeeper(
            self.client,
            now=clocks.now,
            sleep=clocks.sleep,
            rand=lambda: 0.5,
            on_change=lambda: self.changes.append(self.keeper.problem()),
            **found,
        )

    async def step(self, times: int = 1) -> None:
        for _ in range(times):
            await self.keeper.step()

    async def pass_time(self, seconds: float, step: float = 10.0) -> None:
        """Let time go by, looking every `step` seconds."""
        for _ in range(int(seconds // step)):
            self.clocks.go_on(step)
            await self.keeper.step()


def handshake(context: ssl.SSLContext, trusted: bytes = b"", name: str = "") -> x509.Certificate:
    """A client's handshake with a server of this context, in memory. Raises ssl.SSLError."""
    asking = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    asking.check_hostname = bool(name)
    asking.verify_mode = ssl.CERT_REQUIRED if trusted else ssl.CERT_NONE
    if trusted:
        asking.load_verify_locations(cadata=trusted.decode())
        asking.verify_flags |= NO_CHECK_TIME
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = asking.wrap_bio(to_client, to_server, server_hostname=name or None)
    server = context.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    found = client.getpeercert(binary_form=True)
    assert found is not None
    return x509.load_der_x509_certificate(found)
