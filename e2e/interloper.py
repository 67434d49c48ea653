"""Somebody who acts just before a write of ours is stored: after we have read, and before we wrote.

It is an admission webhook. The API server asks it about each write of a kind; it does what the test
wants while our request waits, and then allows it. Nothing in the product knows of it.
"""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from e2e.controller import USER
from e2e.controlplane.certificates import Authority
from e2e.controlplane.cluster import ControlPlane
from e2e.waiting import eventually

NAME = "e2e-interloper"
CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
Act = Callable[[str, str], None]


@contextmanager
def interloper(cp: ControlPlane, plural: str, act: Act, folder: Path) -> Iterator[None]:
    """Calls ``act`` with operation ("CREATE", "UPDATE") and name before each write of ours.

    ``folder`` is for the certificate; ``plural`` names one kind of Kueue's.
    """
    authority = Authority()
    certificate, key = authority.server(NAME, ["localhost"], ["127.0.0.1"]).write(folder)
    heard: list[str] = []  # the users whose writes were seen
    server = _Server(act, heard)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    port = server.server_address[1]
    try:
        cp.api.create(CONFIGURATIONS, _configuration(plural, port, authority.certificate))
        eventually(lambda: _is_asked(cp, plural, heard), what="the interloper to be asked")
        yield
    finally:
        cp.api.delete(f"{CONFIGURATIONS}/{NAME}")
        server.shutdown()
        server.server_close()
        thread.join()


def _is_asked(cp: ControlPlane, plural: str, heard: list[str]) -> bool:
    kind = {"cohorts": "Cohort", "clusterqueues": "ClusterQueue"}[plural]
    probe = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": kind,
        "metadata": {"name": "probe"},
        "spec": {},
    }
    cp.api.create(f"/apis/kueue.x-k8s.io/v1beta2/{plural}?dryRun=All", probe)
    return bool(heard)


def _configuration(plural: str, port: int, ca: bytes) -> dict[str, Any]:
    hook = {
        "name": "interloper.example.com",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Fail",
        "timeoutSeconds": 10,
        "rules": [
            {
                "apiGroups": ["kueue.x-k8s.io"],
                "apiVersions": ["v1beta2"],
                "operations": ["CREATE", "UPDATE"],
                "resources": [plural],
            }
        ],
        "clientConfig": {
            "url": f"https://127.0.0.1:{port}/",
            "caBundle": base64.b64encode(ca).decode(),
        },
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": NAME},
        "webhooks": [hook],
    }


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, act: Act, heard: list[str]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.act = act
        self.heard = heard


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_POST(self) -> None:
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        request = review["request"]
        user = request["userInfo"]["username"]
        self.server.heard.append(user)
        if user == USER:
            self.server.act(request["operation"], request["name"])
        review["response"] = {"uid": request["uid"], "allowed": True}
        answer = json.dumps(review).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Not onto the terminal of the test run."""
