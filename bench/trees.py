"""A tree of quotas, its flavors and namespaces, and the Kueue objects that it renders, as JSON.

The tree has root, divisions, groups and teams, and is sound: every promise is covered by what the
nodes of the same size have. Every fifth group enforces its budgets. The live objects are what the
program itself renders, with what a server and Kueue add to them.
"""

from collections.abc import Iterable, Iterator, Mapping
from random import Random
from typing import Any, Final

from bench.nodes import POOL_LABEL, devices, flavor_name, resource_of, uid
from bench.sizes import BUDGETS_PER_TEAM, FLAVORS, Size
from quota_translator.core.kueue import body
from quota_translator.core.names import (
    API_VERSION,
    CLUSTER_QUEUE,
    KUEUE_API_VERSION,
    LOCAL_QUEUE,
    QUOTA_KIND,
    ROOT,
)
from quota_translator.core.options import MaterializeOptions, Options
from quota_translator.core.world import Desired

ENROLLED: Final = {"matchLabels": {"example.org/quotas": "on"}}
OPTIONS: Final = Options(materialize=MaterializeOptions(namespace_selector=ENROLLED))
# Of what a pool has, this share is promised to teams; the rest is the groups' and divisions' slack.
_PROMISED: Final = 0.7

Document = dict[str, Any]
Shares = dict[int, int]  # pool → devices


def flavors(_size: Size, seed: int) -> Iterator[Document]:
    for pool in range(FLAVORS):
        name = flavor_name(pool)
        spec = {"nodeLabels": {POOL_LABEL: name}}
        yield _object(KUEUE_API_VERSION, "ResourceFlavor", name, seed) | {"spec": spec}


def namespaces(size: Size, seed: int) -> Iterator[Document]:
    """The enrolled ones, and half as many again that are not."""
    for index in range(size.namespaces + size.namespaces // 2):
        name = f"space-{index:02d}"
        found = _object("v1", "Namespace", name, seed)
        found["metadata"]["labels"] = {"kubernetes.io/metadata.name": name}
        if index < size.namespaces:
            found["metadata"]["labels"] |= ENROLLED["matchLabels"]
        yield found | {"status": {"phase": "Active"}}


def quotas(size: Size, seed: int) -> list[Document]:
    """The AcceleratorQuotas, in the order of names, without statuses."""
    teams = _team_shares(size, Random(f"{seed} tree"))
    groups = [_sum(teams[i :: size.groups], slack=1) for i in range(size.groups)]
    divisions = [_sum(groups[i :: size.divisions], slack=1) for i in range(size.divisions)]
    found = [_quota(ROOT, "Cohort", None, _budgets(_sum(divisions)), seed)]
    for index, shares in enumerate(divisions):
        budgets = _budgets(shares)
        found.append(_quota(f"division-{index:02d}", "Cohort", ROOT, budgets, seed))
    for index, shares in enumerate(groups):
        extra = {"enforced": True, "borrowingLimit": "4"} if index % 5 == 0 else {}
        parent = f"division-{index % size.divisions:02d}"
        found.append(_quota(f"group-{index:03d}", "Cohort", parent, _budgets(shares, extra), seed))
    for index, shares in enumerate(teams):
        limits = {"borrowingLimit": "8"} if index % 2 else {"lendingLimit": "1"}
        parent = f"group-{index % size.groups:03d}"
        budgets = _budgets(shares, limits)
        found.append(_quota(f"team-{index:04d}", "ClusterQueue", parent, budgets, seed))
    return sorted(found, key=lambda quota: str(quota["metadata"]["name"]))


def live(desired: Iterable[Desired], manager: str, seed: int) -> Iterator[Document]:
    """What a server and Kueue show of these objects when they have taken them."""
    for wanted in desired:
        found = body(wanted, manager)
        metadata = found["metadata"]
        rng = Random(f"{seed} {wanted.key}")
        metadata |= _server_metadata(rng) | {"managedFields": _managed(found["spec"], manager)}
        if wanted.key.kind == CLUSTER_QUEUE:
            found["status"] = _queue_status(found["spec"], rng)
        elif wanted.key.kind == LOCAL_QUEUE:
            found["status"] = _status("Can submit new workloads to ClusterQueue", rng)
        yield found


# --- shares -----------------------------------------------------------------------------------


def _team_shares(size: Size, rng: Random) -> list[Shares]:
    """Teams of one group have their budgets on pools that the group can cover."""
    chosen = [rng.sample(range(FLAVORS), BUDGETS_PER_TEAM) for _ in range(size.teams)]
    wanting = [sum(pool in pools for pools in chosen) for pool in range(FLAVORS)]
    fair = [int(devices(size, p) * _PROMISED) // max(1, wanting[p]) for p in range(FLAVORS)]
    return [{pool: max(1, fair[pool] - rng.randrange(3)) for pool in pools} for pools in chosen]


def _sum(parts: Iterable[Shares], slack: int = 0) -> Shares:
    total: Shares = {}
    for shares in parts:
        for pool, amount in shares.items():
            total[pool] = total.get(pool, slack) + amount
    return total


def _budgets(shares: Shares, extra: Mapping[str, Any] | None = None) -> list[Document]:
    return [
        {
            "resourceName": resource_of(pool),
            "resourceFlavor": flavor_name(pool),
            "nominal": str(amount),
            **(extra or {}),
        }
        for pool, amount in shares.items()
    ]


# --- objects ----------------------------------------------------------------------------------


def _quota(
    name: str, role: str, parent: str | None, budgets: list[Document], seed: int
) -> Document:
    spec: Document = {"role": role} | ({"parentRef": {"name": parent}} if parent else {})
    return _object(API_VERSION, QUOTA_KIND, name, seed) | {"spec": spec | {"budgets": budgets}}


def _object(api_version: str, kind: str, name: str, seed: int) -> Document:
    metadata = {"name": name} | _server_metadata(Random(f"{seed} {kind} {name}"))
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}


def _server_metadata(rng: Random) -> Document:
    return {
        "uid": uid(rng),
        "resourceVersion": str(40_000_000 + rng.randrange(9_000_000)),
        "generation": 1,
        "creationTimestamp": "2026-11-02T08:00:00Z",
    }


def _managed(spec: Document, manager: str) -> list[Document]:
    def entry(name: str, fields: Document, **more: str) -> Document:
        return {
            "manager": name,
            "operation": "Update",
            "apiVersion": KUEUE_API_VERSION,
            "time": "2026-11-02T08:00:00Z",
            "fieldsType": "FieldsV1",
            "fieldsV1": fields,
            **more,
        }

    labels: Document = {
        "f:labels": {".": {}, f"f:{manager}/managed-by": {}, f"f:{manager}/quota": {}}
    }
    status: Document = {
        "f:status": {"f:admittedWorkloads": {}, "f:conditions": {}, "f:flavorsUsage": {}}
    }
    return [
        entry(manager, {"f:metadata": labels, "f:spec": {f"f:{name}": {} for name in spec}}),
        entry("kueue-admission", status, subresource="status"),
    ]


def _queue_status(spec: Document, rng: Random) -> Document:
    used, reserved = [], []
    for group in spec.get("resourceGroups", ()):
        for flavor in group["flavors"]:
            amounts = [_used(cell, rng) for cell in flavor["resources"]]
            used.append({"name": flavor["name"], "resources": amounts})
            reserved.append({"name": flavor["name"], "resources": amounts})
    status = _status("Can admit new workloads", rng)
    return status | {"flavorsUsage": used, "flavorsReservation": reserved}


def _used(cell: Document, rng: Random) -> Document:
    amount = str(cell["nominalQuota"])
    total = rng.randrange(int(amount) + 1) if amount.isdecimal() else rng.randrange(512)
    return {"name": cell["name"], "total": str(total), "borrowed": "0"}


def _status(message: str, rng: Random) -> Document:
    condition = {
        "type": "Active",
        "status": "True",
        "reason": "Ready",
        "message": message,
        "observedGeneration": 1,
        "lastTransitionTime": f"2026-11-02T08:{rng.randrange(60):02d}:00Z",
    }
    return {
        "conditions": [condition],
        "admittedWorkloads": rng.randrange(9),
        "pendingWorkloads": rng.randrange(9),
        "reservingWorkloads": rng.randrange(9),
    }
