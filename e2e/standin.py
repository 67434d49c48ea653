"""In place of a kubelet and of kube-proxy: runs the pods of our Deployment as processes.

Everything else about a Deployment is real: its controller makes ReplicaSets and pods, the scheduler
places them, and ``kubectl rollout status`` and ``helm --wait`` see what they see anywhere. They are
placed on a node called ``stand-in``, which an admission policy sees to: kwok would only pretend to
run them. The stand-in talks to the API server as that node's kubelet, with a kubelet's rights.

    with standin(cp) as machine:
        ...  # helm install, upgrade, uninstall: whatever makes or changes a Deployment
        machine.pods
"""

from __future__ import annotations

import contextlib
import datetime
import itertools
import threading
import time
from collections.abc import Iterator
from typing import Any

from e2e.controlplane.api import ApiError
from e2e.controlplane.cluster import ControlPlane
from e2e.forwarding import Address, Forwarder
from e2e.pod import STRATEGIC_MERGE, Pod, Redirect
from e2e.waiting import eventually

NODE = "stand-in"
PODS = f"/api/v1/pods?fieldSelector=spec.nodeName={NODE}"
SERVICES = "/api/v1/services"
POLICIES = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings"
LABEL = "quota-translator.dev/stand-in"
OURS = (
    "has(object.metadata.labels) && 'helm.sh/chart' in object.metadata.labels && "
    "object.metadata.labels['helm.sh/chart'].startsWith('quota-translator-')"
)
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
PAUSE = 0.1
LEASE_EVERY = 10.0
LEASE_SECONDS = 40
NO_API_SERVER = 0


class StandIn:
    """The node, its pods, and the Services in front of them. Use ``standin``."""

    def __init__(self, cp: ControlPlane, redirect: Redirect | None = None) -> None:
        self._cp = cp
        self._redirect = {} if redirect is None else {"redirect": redirect}
        self._api = cp.api_as(f"system:node:{NODE}", ["system:nodes"])
        self._pods: dict[str, Pod] = {}  # by uid
        self._services: dict[Address, Forwarder] = {}
        self._numbers = itertools.count(1)
        self._leased_at = float("-inf")
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=NODE, daemon=True)
        self.problem: BaseException | None = None

    @property
    def pods(self) -> list[Pod]:
        """Those that are not gone, oldest first."""
        self.check()
        return list(self._pods.values())

    def check(self) -> None:
        """Raise what ended the stand-in, if anything did."""
        if self.problem is not None:
            raise AssertionError(f"the stand-in ended: {self.problem!r}") from self.problem

    def start(self) -> None:
        self._register()
        self._draw_pods()
        self._thread.start()
        eventually(self._has_no_taints, 30, "the stand-in's node to be ready")
        eventually(self._draws_pods, 30, "our pods to be given to the stand-in")

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(60)
        self._cp.api.delete(f"/api/v1/nodes/{NODE}")
        self._cp.api.delete(f"{POLICIES}/{NODE}")
        self._cp.api.delete(f"{BINDINGS}/{NODE}")
        for path in self._own_pods():
            self._cp.api.delete(path, gracePeriodSeconds=0)

    # ------------------------------------------------------------------------ the thread

    def _run(self) -> None:
        try:
            while not self._stopping.wait(PAUSE):
                with contextlib.suppress(_NobodyAnswers):
                    self._step()
        except BaseException as error:  # noqa: BLE001 - told to whoever asks next
            self.problem = error
        finally:
            for forwarder in self._services.values():
                forwarder.close()
            for pod in self._pods.values():
                pod.stop()

    def _step(self) -> None:
        with _patient():
            self._renew_lease()
            self._take_in(self._api.items(PODS))
        for uid, pod in list(self._pods.items()):
            with _patient():
                pod.step()
            if pod.done:
                self._pods = {key: other for key, other in self._pods.items() if key != uid}
        with _patient():
            self._forward(self._api.items(SERVICES))

    def _take_in(self, found: list[dict[str, Any]]) -> None:
        documents = {document["metadata"]["uid"]: document for document in found}
        for uid, document in documents.items():
            if uid in self._pods:
                self._pods[uid].document = document
            else:
                pod = Pod(self._cp, self._api, document, self._address(), **self._redirect)
                self._pods = {**self._pods, uid: pod}
        for uid, pod in self._pods.items():
            if uid not in documents:  # deleted without asking the kubelet
                pod.stop()

    def _address(self) -> str:
        """Of each new pod its own, as long as there are any."""
        addresses = self._cp.pod_range
        return str(addresses[next(self._numbers) % (addresses.num_addresses - 2) + 1])

    def _forward(self, services: list[dict[str, Any]]) -> None:
        wanted: dict[Address, list[Address]] = {}
        for service in services:
            for port in service["spec"]["ports"]:
                address = (service["spec"]["clusterIP"], port["port"])
                target = port["targetPort"]
                behind = [pod for pod in self._pods.values() if _is_behind(service, pod)]
                there = [pod for pod in behind if pod.has_port(target)]
                wanted[address] = [(pod.ip, pod.port(target)) for pod in there]
        for address in set(self._services) - set(wanted):
            self._services.pop(address).close()
        for address, targets in wanted.items():
            self._services.setdefault(address, Forwarder(address)).aim(targets)

    # ------------------------------------------------------------------------ the node

    def _register(self) -> None:
        labels = {"kubernetes.io/hostname": NODE, LABEL: "true"}
        size = {"cpu": "64", "memory": "256Gi", "pods": "110", "ephemeral-storage": "1Ti"}
        node = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": NODE, "labels": labels},
            "status": {"capacity": size, "allocatable": size},
        }
        self._cp.api.delete(f"/api/v1/nodes/{NODE}")
        self._api.create("/api/v1/nodes", node)
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        ready = {"type": "Ready", "status": "True", "reason": "StandIn", "message": "a process"}
        stamps = {"lastHeartbeatTime": now, "lastTransitionTime": now}
        self._api.request(
            "PATCH",
            f"/api/v1/nodes/{NODE}/status",
            {"status": {"conditions": [ready | stamps]}},
            content_type=STRATEGIC_MERGE,
        )

    def _draw_pods(self) -> None:
        """The pods of our chart get this node's label into their selector when they are made."""
        pods = {
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "operations": ["CREATE"],
            "resources": ["pods"],
        }
        patch = (
            f'[JSONPatch{{op: "add", path: "/spec/nodeSelector", value: {{"{LABEL}": "true"}}}}]'
        )
        policy = {
            "matchConstraints": {"resourceRules": [pods]},
            "matchConditions": [{"name": "ours", "expression": OURS}],
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": patch}}],
            "failurePolicy": "Fail",
            "reinvocationPolicy": "Never",
        }
        for path, kind, spec in (
            (POLICIES, "MutatingAdmissionPolicy", policy),
            (BINDINGS, "MutatingAdmissionPolicyBinding", {"policyName": NODE}),
        ):
            self._cp.api.delete(f"{path}/{NODE}")
            document = {"kind": kind, "metadata": {"name": NODE}, "spec": spec}
            version = {"apiVersion": "admissionregistration.k8s.io/v1"}
            self._cp.api.create(path, version | document)

    def _draws_pods(self) -> bool:
        """The API server learns of a policy a moment later."""
        probe = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": NODE, "labels": {"helm.sh/chart": "quota-translator-probe"}},
            "spec": {"containers": [{"name": "probe", "image": "none"}]},
        }
        made = self._cp.api.create("/api/v1/namespaces/default/pods?dryRun=All", probe)
        return LABEL in (made["spec"].get("nodeSelector") or {})

    def _renew_lease(self) -> None:
        if time.monotonic() - self._leased_at < LEASE_EVERY:
            return
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {"holderIdentity": NODE, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": now}
        path = f"{LEASES}/{NODE}"
        if self._api.find(path) is None:
            metadata = {"name": NODE, "namespace": "kube-node-lease"}
            self._api.create(
                LEASES,
                {
                    "apiVersion": "coordination.k8s.io/v1",
                    "kind": "Lease",
                    "metadata": metadata,
                    "spec": spec,
                },
            )
        else:
            self._api.merge(path, {"spec": spec})
        self._leased_at = time.monotonic()

    def _has_no_taints(self) -> bool:
        self.check()
        return not self._cp.api.get(f"/api/v1/nodes/{NODE}")["spec"].get("taints")

    def _own_pods(self) -> list[str]:
        found = [item["metadata"] for item in self._cp.api.items(PODS)]
        return [f"/api/v1/namespaces/{m['namespace']}/pods/{m['name']}" for m in found]


class _NobodyAnswers(Exception):
    """The API server is away, or what was asked for changed meanwhile: look again."""


@contextlib.contextmanager
def _patient() -> Iterator[None]:
    try:
        yield
    except ApiError as error:
        if error.code in (NO_API_SERVER, 403, 404, 409, 429, 500, 503):
            raise _NobodyAnswers from error
        raise


def _is_behind(service: dict[str, Any], pod: Pod) -> bool:
    labels = pod.document["metadata"].get("labels", {})
    selector = service["spec"].get("selector") or {}
    if "deletionTimestamp" in pod.document["metadata"] or not pod.ready or not selector:
        return False
    return all(labels.get(key) == text for key, text in selector.items())


@contextlib.contextmanager
def standin(cp: ControlPlane, redirect: Redirect | None = None) -> Iterator[StandIn]:
    """A node that runs what is installed meanwhile; everything ends with it.

    `redirect`: what becomes of the pods' kubeconfigs, such as `FaultProxy.redirect`.
    """
    machine = StandIn(cp, redirect)
    try:
        machine.start()
        yield machine
        machine.check()
    finally:
        machine.stop()
