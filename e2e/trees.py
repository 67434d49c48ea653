"""Trees, flavors, machines and Jobs as the tests write them, and looks at what became of them.

Everything is made with plain requests: a test makes dozens of objects, and kubectl costs a tenth of
a second for each call.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from e2e.controller import QUOTAS
from e2e.controlplane import nodes
from e2e.controlplane.cluster import ControlPlane
from e2e.waiting import eventually

Document = dict[str, Any]

KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
KUEUE_VERSION = "kueue.x-k8s.io/v1beta2"
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
MANAGED_BY = "quota-translator.dev/managed-by"
NAMESPACE = "ml-serving"
PRODUCTS = {"a100": nodes.A100, "h100": "NVIDIA-H100-80GB-HBM3", "l4": "NVIDIA-L4"}
# Statuses of mere use at most twice a second: a test waits for them often.
FAST = ("--status-usage-interval", "500ms")
_GUIDE = Path(__file__).parent.parent / "examples" / "guide" / "tree.yaml"

# -------------------------------------------------------------- documents


def budget(
    nominal: int,
    borrowing: int | None = None,
    *,
    flavor: str = "a100",
    enforced: bool | None = None,
) -> Document:
    """GPUs of one flavor."""
    given = {
        "nominal": str(nominal),
        "borrowingLimit": None if borrowing is None else str(borrowing),
        "enforced": enforced,
    }
    pair: Document = {"resourceName": nodes.GPU, "resourceFlavor": flavor}
    return pair | {field: value for field, value in given.items() if value is not None}


def group(name: str, *budgets: Document, parent: str = "root") -> Document:
    return _quota(name, "Cohort", parent, budgets)


def team(name: str, *budgets: Document, parent: str) -> Document:
    return _quota(name, "ClusterQueue", parent, budgets)


def _quota(name: str, role: str, parent: str, budgets: Iterable[Document]) -> Document:
    return {
        "apiVersion": "quota-translator.dev/v1beta1",
        "kind": "AcceleratorQuota",
        "metadata": {"name": name},
        "spec": {"role": role, "parentRef": {"name": parent}, "budgets": list(budgets)},
    }


def guide_tree() -> list[Document]:
    """ml-research 24, of which team-alpha has 16 and team-beta 8 and up to 4 borrowed."""
    return list(yaml.safe_load_all(_GUIDE.read_text(encoding="utf-8")))


def namespace(name: str = NAMESPACE) -> Document:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def kueue_object(kind: str, name: str, spec: Document, namespace: str | None = None) -> Document:
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": KUEUE_VERSION, "kind": kind, "metadata": metadata, "spec": spec}


def flavor(name: str = "a100", *, topology: str | None = None) -> Document:
    spec: Document = {"nodeLabels": {nodes.PRODUCT_LABEL: PRODUCTS[name]}}
    if topology is not None:
        spec["topologyName"] = topology
    return kueue_object("ResourceFlavor", name, spec)


def pod_spec(gpus: int, on: Mapping[str, str] | None = None) -> Document:
    """One container with so many GPUs, for machines with these labels."""
    requests = {"cpu": "1", "memory": "1Gi"} | ({nodes.GPU: str(gpus)} if gpus else {})
    limits = {nodes.GPU: str(gpus)} if gpus else {}
    resources = {"requests": requests, "limits": limits}
    container = {"name": "train", "image": "none", "resources": resources}
    spec: Document = {"restartPolicy": "Never", "containers": [container]}
    return spec | ({"nodeSelector": dict(on)} if on else {})


def job(
    name: str,
    queue: str,
    gpus: int = 1,
    *,
    pods: int = 1,
    annotations: Mapping[str, str] | None = None,
    on: Mapping[str, str] | None = None,
) -> Document:
    """A Job of so many pods with so many GPUs each, on machines with these labels."""
    template = {
        "metadata": {"annotations": dict(annotations or {})},
        "spec": pod_spec(gpus, on),
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {QUEUE_LABEL: queue}},
        "spec": {"parallelism": pods, "completions": pods, "template": template},
    }


def pod(name: str, queue: str, gpus: int = 1) -> Document:
    metadata = {"name": name, "namespace": NAMESPACE, "labels": {QUEUE_LABEL: queue}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod_spec(gpus)}


# -------------------------------------------------------------- doing


def lab(cp: ControlPlane, *gpus: int, flavors: Iterable[str] = ("a100",)) -> None:
    """Flavors, the namespace, and A100 machines with so many GPUs each."""
    put(cp, namespace(), *map(flavor, flavors))
    for number, count in enumerate(gpus, 1):
        nodes.add_gpu_node(cp, f"gpu-{number}", count, wait=False)
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default"
    eventually(lambda: cp.api.find(path), what="the namespace's service account")


def put(cp: ControlPlane, *documents: Document) -> None:
    """Create objects, in this order."""
    for document in documents:
        cp.api.create(_place(document), document)


def edit(cp: ControlPlane, name: str, *budgets: Document) -> None:
    """Replace the budgets of a node of the tree."""
    cp.api.merge(f"{QUOTAS}/{name}", {"spec": {"budgets": list(budgets)}})


def end_job(cp: ControlPlane, name: str) -> None:
    """Delete a Job with its pods."""
    path = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs/{name}"
    cp.api.delete(path, propagationPolicy="Background")


def _place(document: Document) -> str:
    """The path of the list that an object is created in."""
    version, metadata = document["apiVersion"], document["metadata"]
    base = f"/apis/{version}" if "/" in version else f"/api/{version}"
    if "namespace" in metadata:
        base += f"/namespaces/{metadata['namespace']}"
    kind = document["kind"].lower()
    return f"{base}/{kind[:-1]}ies" if kind.endswith("y") else f"{base}/{kind}s"


# -------------------------------------------------------------- looking at the tree


def status(cp: ControlPlane, name: str) -> Document:
    found: Document = cp.api.get(f"{QUOTAS}/{name}").get("status") or {}
    return found


def condition(cp: ControlPlane, name: str, kind: str) -> Document:
    """A condition of a node; empty when there is none, or none yet for the spec as it is now."""
    node = cp.api.get(f"{QUOTAS}/{name}")
    for found in (node.get("status") or {}).get("conditions", []):
        current = found["observedGeneration"] == node["metadata"]["generation"]
        if found["type"] == kind and current:
            return dict(found)
    return {}


def verdicts(cp: ControlPlane, name: str) -> dict[str, str]:
    """The conditions of a node in short: ``{"Ready": "True Admitted", …}``."""
    kinds = [item["type"] for item in status(cp, name).get("conditions", [])]
    found = {kind: condition(cp, name, kind) for kind in kinds}
    return {kind: f"{item['status']} {item['reason']}" for kind, item in found.items() if item}


def wait_sound(cp: ControlPlane, *names: str, timeout: float = 30) -> None:
    """Until these nodes are Ready and in Kueue as they are written now."""

    def sound() -> bool:
        seen = {name: verdicts(cp, name) for name in names}
        wanted = ("Ready", "Materialized")
        assert all(
            found.get(kind, "").startswith("True") for found in seen.values() for kind in wanted
        ), seen
        return True

    eventually(sound, timeout, f"{', '.join(names)} to be Ready and Materialized")


def wait_told(
    cp: ControlPlane, name: str, kind: str, reason: str, holds: str = "False", timeout: float = 30
) -> str:
    """Until a condition of a node has this status and reason; its message."""

    def told() -> str:
        found = condition(cp, name, kind)
        assert (found.get("status"), found.get("reason")) == (holds, reason), verdicts(cp, name)
        return str(found["message"])

    return eventually(told, timeout, f"{kind}={holds} {reason} on {name}")


def share(cp: ControlPlane, name: str, flavor: str = "a100") -> Document:
    """A node's row of budgets: nominal, admitted, borrowed, …"""
    rows = status(cp, name).get("budgets", [])
    return next((row for row in rows if row["resourceFlavor"] == flavor), {})


def mark(cp: ControlPlane, flavor: str = "a100") -> str:
    """The high-water mark of a flavor's GPUs; empty when there is no row."""
    return str(capacity(cp, flavor).get("highWaterMark", ""))


def capacity(cp: ControlPlane, flavor: str = "a100") -> Document:
    """Root's row for a flavor's GPUs."""
    for row in status(cp, "root").get("capacity", []):
        if (row["resourceName"], row["resourceFlavor"]) == (nodes.GPU, flavor):
            return dict(row)
    return {}


# -------------------------------------------------------------- looking at Kueue


def queue(cp: ControlPlane, name: str) -> Document:
    found: Document = cp.api.get(f"{KUEUE}/clusterqueues/{name}")
    return found


def quotas_of(thing: Document) -> dict[tuple[str, str], Document]:
    """The cells of a ClusterQueue or a Cohort by flavor and resource, without the names in them."""
    return {
        (row["name"], cell["name"]): {k: v for k, v in cell.items() if k != "name"}
        for part in thing["spec"].get("resourceGroups", [])
        for row in part["flavors"]
        for cell in row["resources"]
    }


def gpu_cell(thing: Document, flavor: str = "a100") -> Document | None:
    return quotas_of(thing).get((flavor, nodes.GPU))


def names(cp: ControlPlane, plural: str) -> set[str]:
    """The names of all of Kueue's objects of a kind; namespace/name for those that have one."""
    found = [item["metadata"] for item in cp.api.items(f"{KUEUE}/{plural}")]
    return {"/".join(filter(None, (item.get("namespace"), item["name"]))) for item in found}


def unchanging(cp: ControlPlane, plural: str, name: str) -> Document:
    """An object without what Kueue itself writes into it: compare two of these."""
    found = dict(cp.api.get(f"{KUEUE}/{plural}/{name}"))
    metadata = {k: v for k, v in found["metadata"].items() if k not in _KUEUES_OWN}
    return {"metadata": metadata, "spec": found["spec"]}


_KUEUES_OWN = ("managedFields", "resourceVersion")


def admitted(cp: ControlPlane) -> set[str]:
    """The Jobs and pods, by name, that Kueue has admitted."""
    return {_owner(item) for item in _workloads(cp) if _is(item, "Admitted", "True")}


def held(cp: ControlPlane, *queues: str, flavor: str = "a100") -> int:
    """GPUs of a flavor that workloads of these queues hold, by Kueue's own word."""
    return sum(
        int(part.get("resourceUsage", {}).get(nodes.GPU, "0"))
        for item in _workloads(cp)
        if (given := item.get("status", {}).get("admission")) and given["clusterQueue"] in queues
        for part in given["podSetAssignments"]
        if part.get("flavors", {}).get(nodes.GPU) == flavor
    )


def flavors_given(cp: ControlPlane, name: str) -> dict[str, str]:
    """The flavor that Kueue chose for each resource of a Job or pod; empty before."""
    for item in _workloads(cp):
        if _owner(item) == name and (given := item.get("status", {}).get("admission")):
            return dict(given["podSetAssignments"][0]["flavors"])
    return {}


def is_tried(cp: ControlPlane, name: str) -> bool:
    """Whether Kueue has tried a workload and found no room for it."""
    return any(
        _owner(item) == name and _is(item, "QuotaReserved", "False", "Pending")
        for item in _workloads(cp)
    )


def wait_admitted(cp: ControlPlane, *jobs: str, timeout: float = 30) -> None:
    def all_in() -> bool:
        missing = set(jobs) - admitted(cp)
        assert not missing, f"not admitted: {sorted(missing)}: {_reasons(cp)}"
        return True

    eventually(all_in, timeout, f"{', '.join(jobs)} to be admitted")


def wait_tried(cp: ControlPlane, *jobs: str, timeout: float = 30) -> None:
    """Until Kueue has found no room for any of these."""

    def all_wait() -> bool:
        others = [name for name in jobs if not is_tried(cp, name)]
        assert not others, f"not found waiting: {others}: {_reasons(cp)}"
        return True

    eventually(all_wait, timeout, f"{', '.join(jobs)} to wait for room")


def _workloads(cp: ControlPlane) -> list[Document]:
    return cp.api.items(f"{KUEUE}/workloads")


def _owner(workload: Document) -> str:
    return next((o["name"] for o in workload["metadata"].get("ownerReferences", [])), "")


def _is(workload: Document, kind: str, wanted: str, reason: str | None = None) -> bool:
    return any(
        item["type"] == kind and item["status"] == wanted and reason in (None, item["reason"])
        for item in workload.get("status", {}).get("conditions", [])
    )


def _reasons(cp: ControlPlane) -> dict[str, list[str]]:
    return {
        _owner(item): [
            f"{c['type']}={c['status']} {c['reason']}: {c['message']}"
            for c in item.get("status", {}).get("conditions", [])
        ]
        for item in _workloads(cp)
    }


# -------------------------------------------------------------- looking at pods


def pods_of(cp: ControlPlane, name: str) -> list[Document]:
    return cp.api.items(f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector=job-name={name}")


def running_pods(cp: ControlPlane, name: str) -> list[Document]:
    return [found for found in pods_of(cp, name) if found["status"].get("phase") == "Running"]
