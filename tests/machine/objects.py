"""What people write, as JSON; and what stands on the server, as records."""

from collections.abc import Iterable, Mapping
from typing import Any, cast

import msgspec

from quota_translator.core import wire
from quota_translator.core.names import KINDS, QUOTA_KIND, RESOURCE_FLAVOR, Key
from quota_translator.core.reading import read_quota
from quota_translator.core.world import Observed, QuotaNode, World
from tests.machine.server import Object, Server, Where

GPU = "nvidia.com/gpu"


def quota(
    name: str, role: str, parent: str | None, budgets: Iterable[Mapping[str, Any]]
) -> dict[str, Any]:
    spec: dict[str, Any] = {"role": role, "budgets": list(budgets)}
    if parent is not None:
        spec["parentRef"] = {"name": parent}
    return {"metadata": {"name": name}, "spec": spec}


def budget(flavor: str, nominal: Any, **fields: Any) -> dict[str, Any]:
    return {"resourceName": GPU, "resourceFlavor": flavor, "nominal": nominal} | fields


def machine(name: str, label: str, gpus: Any, *, ready: bool = True) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": {"gpu": label}},
        "spec": {},
        "status": {
            "capacity": {GPU: gpus},
            "allocatable": {GPU: gpus},
            "conditions": [{"type": "Ready", "status": str(ready)}],
        },
    }


def flavor(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"nodeLabels": {"gpu": name}}}


def namespace(name: str, *, enrolled: bool = True) -> dict[str, Any]:
    labels = {"gpu": "yes" if enrolled else "no"}
    return {"metadata": {"name": name, "labels": labels}, "status": {"phase": "Active"}}


def stranger(kind: str, name: str, parent: str, nominal: int) -> dict[str, Any]:
    """A Cohort or ClusterQueue that nobody said is ours."""
    field = "parentName" if kind == "Cohort" else "cohortName"
    cell = {"name": GPU, "nominalQuota": str(nominal)}
    group = {
        "coveredResources": [GPU],
        "flavors": [{"name": "a100", "resources": [cell]}],
    }
    return {"metadata": {"name": name}, "spec": {field: parent, "resourceGroups": [group]}}


# --- from the server --------------------------------------------------------------------------


def key_of(where: Where) -> Key:
    kind, namespace_, name = where
    return Key(cast("Any", kind), namespace_, name)


def observed(where: Where, found: Object) -> Observed:
    kind = cast("Any", where[0])
    return wire.to_observed(kind, msgspec.convert(found, wire.WireKueue))


def quotas(server: Server) -> tuple[QuotaNode, ...]:
    return tuple(read_quota(found) for found in server.all(QUOTA_KIND))


def truth(server: Server) -> World:
    """What a controller would see that sees everything at once."""
    live = {
        key_of(where): observed(where, found)
        for where, found in server.objects.items()
        if where[0] in KINDS
    }
    return World(
        quotas=quotas(server),
        nodes=tuple(
            wire.to_node(msgspec.convert(found, wire.WireNode)) for found in server.all("Node")
        ),
        flavors=tuple(
            wire.to_flavor(msgspec.convert(found, wire.WireFlavor))
            for found in server.all(RESOURCE_FLAVOR)
        ),
        namespaces=tuple(
            wire.to_namespace(msgspec.convert(found, wire.WireNamespace))
            for found in server.all("Namespace")
        ),
        live=live,
        known=frozenset(KINDS),
    )
