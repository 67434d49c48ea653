"""Replicas of the webhook's TLS side: real keepers, real servers, and the rights of the chart.

Each replica is a thread with its own event loop and its own connection to the API server. It admits
everything; what is tested is whether it can be called. One configuration has a webhook for each
replica, so that a single request to the API server calls all of them.
"""

from __future__ import annotations

import asyncio
import json
import threading
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from aiohttp import web

from e2e.controlplane.cluster import ControlPlane
from e2e.waiting import eventually
from quota_translator.app import now
from quota_translator.certs.keeper import CertificateKeeper
from quota_translator.kube.client import Client
from quota_translator.kube.config import connect

NAMESPACE = "certificates"
USER = "certificate-keeper"
SECRET = "webhook-cert"
NAME = "certificates.quota-translator.dev"
SECRETS = f"/api/v1/namespaces/{NAMESPACE}/secrets"
CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
CONFIGURATION = f"{CONFIGURATIONS}/{NAME}"
PROBE = f"/api/v1/namespaces/{NAMESPACE}/configmaps?dryRun=All"
TLS_GOODBYE = 0.25  # aiohttp's advice: connections that were aborted close in the loop's next turns
RBAC = "rbac.authorization.k8s.io"


class Replica:
    """Serves on a port of its own between entering and leaving."""

    def __init__(self, kubeconfig: Path, lifetime: float) -> None:
        self._kubeconfig, self._lifetime = kubeconfig, lifetime
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._listening = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._main: asyncio.Task[None] | None = None
        self.failure: BaseException | None = None
        self.keeper: CertificateKeeper | None = None
        self.port = 0
        self.calls = 0

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._listening.wait(30), "the replica did not listen"
        return self

    def __exit__(self, *_: object) -> None:
        if self._loop is not None and self._main is not None:
            self._loop.call_soon_threadsafe(self._main.cancel)
        self._thread.join(30)
        assert not self._thread.is_alive()

    def problem(self) -> str:
        assert self.keeper is not None
        if self.failure is not None:
            raise AssertionError("the replica ended") from self.failure
        return self.keeper.problem()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except asyncio.CancelledError:
            pass
        except BaseException as error:  # noqa: BLE001 - shown by the test that meets it
            self.failure = error
        finally:
            self._listening.set()

    async def _serve(self) -> None:
        self._loop, self._main = asyncio.get_running_loop(), asyncio.current_task()
        try:
            await self._keep()
        finally:
            await asyncio.sleep(TLS_GOODBYE)

    async def _keep(self) -> None:
        async with Client(await connect(self._kubeconfig)) as client:
            self.keeper = CertificateKeeper(
                client,
                namespace=NAMESPACE,
                secret_name=SECRET,
                service_name="webhook",
                configuration_name=NAME,
                extra_names=("127.0.0.1",),
                lifetime=self._lifetime,
                now=now,
            )
            app = web.Application()
            app.router.add_post("/", self._admit)
            runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=self.keeper.context)
            await site.start()
            self.port = runner.addresses[0][1]
            self._listening.set()
            try:
                await self.keeper.run()
            finally:
                await runner.cleanup()

    async def _admit(self, request: web.Request) -> web.Response:
        review = await request.json()
        self.calls += 1
        answer = {"uid": review["request"]["uid"], "allowed": True}
        response = web.json_response(
            {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": answer}
        )
        response.force_close()  # so that each call is a handshake
        return response


class Callers:
    """Asks the API server, again and again, for something that all replicas must admit."""

    def __init__(self, cp: ControlPlane) -> None:
        self._cp = cp
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.done = 0
        self.failed: list[str] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(30)

    def _run(self) -> None:
        while not self._stop.wait(0.02):
            if problem := call(self._cp):
                self.failed.append(problem)
            else:
                self.done += 1


def call(cp: ControlPlane) -> str:
    """Why the replicas cannot be called; "" when all admitted."""
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "probe"}}
    try:
        cp.api.create(PROBE, body)
    except Exception as error:  # noqa: BLE001 - any failure is the answer
        return str(error)
    return ""


def configuration(ports: list[int], timeout: int = 5) -> dict[str, Any]:
    """As a chart renders it: without bundles. Fails closed, for one namespace's ConfigMaps."""
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["configmaps"],
    }
    label = {"kubernetes.io/metadata.name": NAMESPACE}
    hooks = [
        {
            "name": f"replica-{number}.certificates.quota-translator.dev",
            "clientConfig": {"url": f"https://127.0.0.1:{port}/"},
            "rules": [rule],
            "namespaceSelector": {"matchLabels": label},
            "failurePolicy": "Fail",
            "sideEffects": "None",
            "timeoutSeconds": timeout,
            "admissionReviewVersions": ["v1"],
        }
        for number, port in enumerate(ports)
    ]
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": NAME},
        "webhooks": hooks,
    }


def apply_as_helm(cp: ControlPlane, document: dict[str, Any]) -> None:
    """Server-side apply without force, as Helm 4 does. Raises KubectlError on a conflict."""
    arguments = ("apply", "--server-side", "--field-manager=helm", "-f", "-")
    cp.kubectl(*arguments, input=json.dumps(document))


def rights() -> list[dict[str, Any]]:
    """What a keeper may do: one Secret, one configuration, and nothing else anywhere."""
    own = ["get", "list", "watch", "patch"]
    secrets = {"apiGroups": [""], "resources": ["secrets"]}
    hooks = ["admissionregistration.k8s.io"], ["validatingwebhookconfigurations"]
    in_namespace = [
        secrets | {"verbs": ["create"]},
        secrets | {"verbs": own, "resourceNames": [SECRET]},
    ]
    in_cluster = [
        {
            "apiGroups": hooks[0],
            "resources": hooks[1],
            "resourceNames": [NAME],
            "verbs": own,
        }
    ]
    return [
        _rbac("Role", rules=in_namespace),
        _rbac("RoleBinding", **_binding("Role")),
        _rbac("ClusterRole", rules=in_cluster),
        _rbac("ClusterRoleBinding", **_binding("ClusterRole")),
    ]


def _rbac(kind: str, **content: Any) -> dict[str, Any]:
    metadata = {"name": USER}
    if not kind.startswith("Cluster"):
        metadata["namespace"] = NAMESPACE
    return {"apiVersion": f"{RBAC}/v1", "kind": kind, "metadata": metadata} | content


def _binding(kind: str) -> dict[str, Any]:
    return {
        "roleRef": {"apiGroup": RBAC, "kind": kind, "name": USER},
        "subjects": [{"apiGroup": RBAC, "kind": "User", "name": USER}],
    }


@contextmanager
def replicas(cp: ControlPlane, number: int, lifetime: float) -> Iterator[list[Replica]]:
    """Started at one moment, with their rights, and with a configuration that calls them all."""
    cp.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}, *rights())
    kubeconfig = cp.new_kubeconfig(USER)
    eventually(lambda: _may_read(cp), what="the rights to be known")
    made = [Replica(kubeconfig, lifetime) for _ in range(number)]
    try:
        for one in made:
            one.__enter__()
        apply_as_helm(cp, configuration([one.port for one in made]))
        yield made
    finally:
        for one in made:
            one.__exit__()
        _remove(cp)


def _may_read(cp: ControlPlane) -> bool:
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": USER,
            "resourceAttributes": {
                "group": "admissionregistration.k8s.io",
                "resource": "validatingwebhookconfigurations",
                "name": NAME,
                "verb": "get",
            },
        },
    }
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    return bool(cp.api.create(path, review)["status"]["allowed"])


def _remove(cp: ControlPlane) -> None:
    cp.api.delete(CONFIGURATION)
    for document in rights():
        plural = f"{document['kind'].lower()}s"
        within = "" if plural.startswith("cluster") else f"/namespaces/{NAMESPACE}"
        cp.api.delete(f"/apis/{RBAC}/v1{within}/{plural}/{USER}")
    cp.api.delete(f"{SECRETS}/{SECRET}")
    cp.api.delete(f"/api/v1/namespaces/{urllib.parse.quote(NAMESPACE)}")
