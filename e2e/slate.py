"""A clean slate: everything that a test made is gone before the next one begins.

One control plane serves the whole run, so tests would see each other's queues and nodes. Objects go
in the order in which nothing has to wait for something later in the list: first what holds quota,
then what gives it.
"""

from __future__ import annotations

from typing import Any

from e2e.controlplane.api import Api, ApiError
from e2e.controlplane.cluster import ControlPlane
from e2e.controlplane.processes import wait_until

KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
QUOTAS = "/apis/quota-translator.dev/v1beta1/acceleratorquotas"
NAMESPACES = "/api/v1/namespaces"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
SECRETS = "/api/v1/namespaces/default/secrets"
CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
OURS = "quota-translator"
KEPT_NAMESPACES = {"default", "kube-node-lease", "kube-public", "kube-system", "kueue-system"}
LIMIT = 60.0
MANY = 20

ORDER = (
    "/apis/batch/v1/jobs",
    "/apis/apps/v1/deployments",
    "/apis/apps/v1/replicasets",
    "/api/v1/pods",
    f"{KUEUE}/workloads",
    f"{KUEUE}/localqueues",
    f"{KUEUE}/clusterqueues",
    f"{KUEUE}/cohorts",
    f"{KUEUE}/resourceflavors",
    f"{KUEUE}/topologies",
    f"{KUEUE}/workloadpriorityclasses",
    f"{KUEUE}/admissionchecks",
    "/api/v1/nodes",
    NAMESPACES,
)
# What else there is in a namespace of a test's.
IN_NAMESPACES = (
    "/api/v1/namespaces/{}/events",
    "/apis/events.k8s.io/v1/namespaces/{}/events",
    "/api/v1/namespaces/{}/configmaps",
    "/api/v1/namespaces/{}/secrets",
    "/api/v1/namespaces/{}/resourcequotas",
    "/api/v1/namespaces/{}/serviceaccounts",
)


def clean(cp: ControlPlane) -> None:
    """Remove all objects of ours and of Kueue, Jobs, pods, nodes, and the tests' namespaces."""
    _remove_webhook(cp.api)
    _release_quotas(cp.api)
    _empty(cp.api, QUOTAS)
    if not cp.kueue_running and cp.api.items(f"{KUEUE}/clusterqueues"):
        cp.start_kueue()  # a test stopped it, and only Kueue takes its finalizers off
    cp.api.delete(LEASES)  # a leader that was killed still holds its own
    for path in ORDER:
        _empty(cp.api, path)


def _remove_webhook(api: Api) -> None:
    """It fails closed, and whoever answered it has ended: nothing of the tree could be deleted."""
    for path in (CONFIGURATIONS, SECRETS):
        for item in api.items(path):
            if OURS in item["metadata"]["name"]:
                api.delete(f"{path}/{item['metadata']['name']}")


def _release_quotas(api: Api) -> None:
    """Take off the finalizers: the controller that would do so ended with its test."""
    for item in api.items(QUOTAS):
        if item["metadata"].get("finalizers"):
            _forgive_absent(api, f"{QUOTAS}/{item['metadata']['name']}")


def _forgive_absent(api: Api, path: str) -> None:
    try:
        api.merge(path, {"metadata": {"finalizers": None}})
    except ApiError as error:
        if error.code != 404:
            raise


def _empty(api: Api, path: str) -> None:
    """Delete everything in a list of all namespaces, and wait until it is gone."""
    items = _removable(api, path)
    if len(items) > MANY and path != NAMESPACES:  # these the server cannot delete together
        for whole in {_own_path(path, item).rpartition("/")[0] for item in items}:
            api.delete(whole, gracePeriodSeconds=0, propagationPolicy="Background")
        items = []
    for item in items:
        api.delete(_own_path(path, item), gracePeriodSeconds=0, propagationPolicy="Background")
        if path == NAMESPACES:
            _finish_namespace(api, item["metadata"]["name"])
    plural = path.rpartition("/")[2]
    wait_until(f"all {plural} to be gone", lambda: _left(api, path), timeout=LIMIT)


def _finish_namespace(api: Api, name: str) -> None:
    """Empty a namespace and let it go: the controller manager would begin after five seconds."""
    for path in IN_NAMESPACES:
        api.delete(path.format(name))
    namespace = api.find(f"{NAMESPACES}/{name}")
    if namespace is None:
        return
    namespace["spec"]["finalizers"] = []
    del namespace["metadata"]["resourceVersion"]  # whatever became of it since
    try:
        api.request("PUT", f"{NAMESPACES}/{name}/finalize", namespace)
    except ApiError as error:
        if error.code not in (404, 409):
            raise


def _removable(api: Api, path: str) -> list[dict[str, Any]]:
    items = api.items(path)
    if path == NAMESPACES:
        return [item for item in items if item["metadata"]["name"] not in KEPT_NAMESPACES]
    return items


def _own_path(path: str, item: dict[str, Any]) -> str:
    """The path of one item of a list that spans all namespaces."""
    base, _, plural = path.rpartition("/")
    metadata = item["metadata"]
    if "namespace" in metadata:
        return f"{base}/namespaces/{metadata['namespace']}/{plural}/{metadata['name']}"
    return f"{path}/{metadata['name']}"


def _left(api: Api, path: str) -> str | None:
    items = _removable(api, path)
    return "; ".join(_describe(item) for item in items[:10]) or None


def _describe(item: dict[str, Any]) -> str:
    metadata = item["metadata"]
    name = "/".join(filter(None, (metadata.get("namespace"), metadata["name"])))
    finalizers = metadata.get("finalizers") or item.get("spec", {}).get("finalizers")
    deleted = "deleted" if "deletionTimestamp" in metadata else "not deleted"
    return f"{name} ({deleted}, finalizers {finalizers})"
