"""Fake nodes: Node objects that kwok keeps alive, and the accidents that happen to nodes."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any, Protocol

from e2e.controlplane.api import Api
from e2e.controlplane.configuration import (
    FAKE_NODE_ANNOTATION,
    KUBELET_ANNOTATION,
    NOT_READY,
    SILENT,
)
from e2e.controlplane.processes import wait_until

GPU = "nvidia.com/gpu"
PRODUCT_LABEL = "nvidia.com/gpu.product"
A100 = "NVIDIA-A100-SXM4-80GB"
BASE_RESOURCES = {"cpu": "96", "memory": "768Gi", "pods": "110"}
READY_LIMIT = 30.0


class HasApi(Protocol):
    """All that is needed of a control plane here."""

    api: Api


def node_document(name: str, labels: Mapping[str, str] | None = None) -> dict[str, Any]:
    """A Node that kwok takes care of, with the labels that every kubelet sets."""
    usual = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": usual | dict(labels or {}),
            "annotations": {FAKE_NODE_ANNOTATION: "fake"},
        },
    }


def resource_status(
    resources: Mapping[str, str | int], capacity: Mapping[str, str | int] | None = None
) -> dict[str, Any]:
    """A node status with this allocatable, and this capacity where it differs."""
    allocatable = BASE_RESOURCES | {name: str(value) for name, value in resources.items()}
    whole = allocatable | {name: str(value) for name, value in (capacity or {}).items()}
    return {"status": {"allocatable": allocatable, "capacity": whole}}


def add_node(
    cp: HasApi,
    name: str,
    labels: Mapping[str, str] | None = None,
    resources: Mapping[str, str | int] | None = None,
    *,
    capacity: Mapping[str, str | int] | None = None,
    wait: bool = True,
) -> None:
    """Add a fake node with these extended resources, and wait until pods can be put on it."""
    document = node_document(name, labels) | resource_status(resources or {}, capacity)
    # Resources set at creation are kept by the API server, so the node never shows others.
    cp.api.create("/api/v1/nodes", document)
    if wait:
        wait_until(
            f"node {name} to be ready", lambda: _not_usable(cp.api, name), timeout=READY_LIMIT
        )


def add_gpu_node(
    cp: HasApi, name: str, gpus: int = 8, product: str = A100, *, wait: bool = True
) -> None:
    """Add a fake node with NVIDIA GPUs, labelled as their feature discovery labels it."""
    add_node(cp, name, {PRODUCT_LABEL: product}, {GPU: gpus}, wait=wait)


def delete_node(cp: HasApi, name: str) -> None:
    cp.api.delete(f"/api/v1/nodes/{name}")


def cordon(cp: HasApi, name: str) -> None:
    """No new pods, please; what ``kubectl cordon`` does."""
    cp.api.merge(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": True}})


def uncordon(cp: HasApi, name: str) -> None:
    cp.api.merge(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": None}})


def label_node(cp: HasApi, name: str, **labels: str | None) -> None:
    """Set labels, or remove those that are None."""
    cp.api.merge(f"/api/v1/nodes/{name}", {"metadata": {"labels": labels}})


def set_allocatable(
    cp: HasApi,
    name: str,
    resources: Mapping[str, str | int | None],
    *,
    capacity: Mapping[str, str | int | None] | None = None,
) -> None:
    """Change some resources of the status; None takes one away. Capacity stays unless given."""
    status = {"allocatable": _as_text(resources), "capacity": _as_text(capacity or {})}
    cp.api.merge(f"/api/v1/nodes/{name}/status", {"status": status})


def set_ready(cp: HasApi, name: str, *, ready: bool) -> None:
    """Break a node, or repair it: its kubelet reports Ready False or True. Waits for that."""
    _set_kubelet(cp, name, None if ready else NOT_READY)
    if ready:
        _set_lease_holder(cp, name, None)
    wanted = "True" if ready else "False"
    wait_until(
        f"node {name} to report Ready={wanted}",
        lambda: None if (seen := ready_status(cp.api, name)) == wanted else f"Ready={seen}",
        timeout=READY_LIMIT,
    )


def silence(cp: HasApi, name: str) -> None:
    """The node's kubelet dies: no heartbeats. Ready turns Unknown some 50 seconds later.

    Somebody else takes the node's lease and does not renew it; kwok does not fight for it.
    ``set_ready(ready=True)`` revives the node.
    """
    _set_kubelet(cp, name, SILENT)
    _set_lease_holder(cp, name, "nobody")


def _set_kubelet(cp: HasApi, name: str, state: str | None) -> None:
    annotations = {KUBELET_ANNOTATION: state}
    cp.api.merge(f"/api/v1/nodes/{name}", {"metadata": {"annotations": annotations}})


def _set_lease_holder(cp: HasApi, name: str, holder: str | None) -> None:
    """Give the lease to somebody for good; None gives it back to whoever asks first."""
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 1_000_000, "renewTime": now}
    path = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{name}"
    cp.api.merge(path, {"spec": spec if holder else {"holderIdentity": None}})


def touch_status(cp: HasApi, name: str, note: str) -> None:
    """A status update that changes nothing of interest, as a kubelet's heartbeat does."""
    condition = {"type": "Note", "status": "False", "reason": "Touched", "message": note}
    cp.api.request(
        "PATCH",
        f"/api/v1/nodes/{name}/status",
        {"status": {"conditions": [condition]}},
        content_type="application/strategic-merge-patch+json",
    )


def ready_status(api: Api, name: str) -> str:
    """The status of the Ready condition, or ``absent``."""
    node = api.find(f"/api/v1/nodes/{name}") or {}
    conditions = node.get("status", {}).get("conditions", [])
    found = [condition["status"] for condition in conditions if condition["type"] == "Ready"]
    return found[0] if found else "absent"


def _not_usable(api: Api, name: str) -> str | None:
    status = ready_status(api, name)
    if status != "True":
        return f"Ready={status}"
    node = api.get(f"/api/v1/nodes/{name}")
    taints = [taint["key"] for taint in node["spec"].get("taints", [])]
    return f"taints {taints}" if taints else None


def _as_text(resources: Mapping[str, str | int | None]) -> dict[str, str | None]:
    return {name: None if value is None else str(value) for name, value in resources.items()}
