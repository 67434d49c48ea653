"""Objects as the API sends them, small."""

from typing import Any

from quota_translator.core.names import (
    API_VERSION,
    KUEUE_API_VERSION,
    LABEL_MANAGED_BY,
    LABEL_QUOTA,
    Key,
)


def node(name: str, gpus: str = "8", version: str = "1", **labels: str) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "uid": f"u-{name}",
            "resourceVersion": version,
            "labels": labels,
        },
        "status": {
            "allocatable": {"nvidia.com/gpu": gpus, "cpu": "64"},
            "capacity": {"nvidia.com/gpu": gpus},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def kueue(
    key: Key,
    version: str = "1",
    *,
    manager: str | None = "quota-translator",
    uid: str = "",
    spec: dict[str, Any] | None = None,
    deleting: bool = False,
) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        "name": key.name,
        "uid": uid or f"u-{key.name}",
        "resourceVersion": version,
        "generation": 1,
    }
    if key.namespace:
        metadata["namespace"] = key.namespace
    if manager:
        metadata["labels"] = {LABEL_MANAGED_BY: manager, LABEL_QUOTA: key.name}
    if deleting:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return {
        "apiVersion": KUEUE_API_VERSION,
        "kind": key.kind,
        "metadata": metadata,
        "spec": spec or {},
    }


def quota(
    name: str,
    version: str = "1",
    status: dict[str, Any] | None = None,
    generation: int = 1,
    **spec: Any,
) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": "AcceleratorQuota",
        "metadata": {
            "name": name,
            "uid": f"u-{name}",
            "resourceVersion": version,
            "generation": generation,
        },
        "spec": {"role": "Cohort"} | spec,
        "status": status or {},
    }
