"""The documents that the parts of the control plane read."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from e2e.controlplane import configuration


def hook(group: str, resource: str, path: str) -> dict[str, Any]:
    return {
        "name": f"{resource}.test",
        "clientConfig": {"service": {"name": "s", "namespace": "n", "path": path}},
        "rules": [{"apiGroups": [group], "resources": [resource]}],
    }


def webhooks(*hooks: dict[str, Any]) -> list[dict[str, Any]]:
    document = {
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "validating"},
        "webhooks": list(hooks),
    }
    (result,) = configuration.local_webhooks([document], 1234, b"authority")
    assert result["metadata"] == {"name": "kueue-validating"}
    kept: list[dict[str, Any]] = result["webhooks"]
    return kept


@pytest.mark.parametrize(
    ("group", "resource", "kept"),
    [
        ("batch", "jobs", True),
        ("", "pods", True),
        ("kueue.x-k8s.io", "cohorts", True),
        ("kueue.x-k8s.io", "workloads/status", True),
        ("batch", "cronjobs", False),
        ("jobset.x-k8s.io", "jobsets", False),
        ("ray.io", "jobs", False),
    ],
)
def test_only_kinds_that_exist_keep_their_webhook(group: str, resource: str, kept: bool) -> None:
    assert len(webhooks(hook(group, resource, "/path"))) == kept


def test_a_webhook_is_called_on_this_machine() -> None:
    (cohort,) = webhooks(hook("kueue.x-k8s.io", "cohorts", "/validate-cohort"))
    assert cohort["clientConfig"] == {
        "url": "https://127.0.0.1:1234/validate-cohort",
        "caBundle": base64.b64encode(b"authority").decode(),
    }
    assert "namespaceSelector" not in cohort


def test_the_systems_own_pods_are_left_alone() -> None:
    (pod,) = webhooks(hook("", "pods", "/mutate-pod"))
    (expression,) = pod["namespaceSelector"]["matchExpressions"]
    assert expression["operator"] == "NotIn"
    assert expression["values"] == ["kube-system", "kueue-system"]


def stage(name: str, *keys: str) -> dict[str, Any]:
    expressions = [{"key": key, "operator": "Exists"} for key in keys]
    return {
        "kind": "Stage",
        "metadata": {"name": name},
        "spec": {
            "resourceRef": {"kind": "Node"},
            "selector": {"matchExpressions": expressions},
            "delay": {"durationMilliseconds": 1},
            "next": {"statusTemplate": name},
        },
    }


STAGES = [
    stage("node-initialize", ".status"),
    stage("node-heartbeat", ".status"),
    stage("node-heartbeat-with-lease", ".status"),
    stage("node-not-ready", ".metadata.labels"),
    stage("pod-ready", ".status.phase"),
    stage("pod-complete", ".status.phase", ".metadata.ownerReferences.[].kind"),
    stage("pod-delete", ".metadata.deletionTimestamp"),
]


def keys(document: dict[str, Any]) -> list[str]:
    return [item["key"] for item in document["spec"]["selector"]["matchExpressions"]]


def test_pods_complete_only_when_told() -> None:
    stages = {item["metadata"]["name"]: item for item in configuration.kwok_stages(STAGES)}
    annotation = '.metadata.annotations["quota-translator.dev/complete"]'
    assert keys(stages["pod-complete"]) == [".status.phase", annotation]


def test_a_node_is_broken_by_an_annotation_and_mended_without_it() -> None:
    stages = {item["metadata"]["name"]: item for item in configuration.kwok_stages(STAGES)}
    annotation = '.metadata.annotations["quota-translator.dev/kubelet"]'
    assert annotation in keys(stages["node-not-ready"])
    assert ".metadata.labels" not in keys(stages["node-not-ready"])
    assert "delay" not in stages["node-not-ready"]["spec"]
    assert annotation in keys(stages["node-initialize"])
    assert annotation in keys(stages["node-heartbeat-with-lease"])
    assert "node-heartbeat" not in stages


def test_the_stages_of_kwok_are_not_changed_in_place() -> None:
    before = configuration.dump_all(STAGES)
    configuration.kwok_stages(STAGES)
    assert configuration.dump_all(STAGES) == before


def test_empty_documents_are_dropped() -> None:
    assert configuration.load_all("---\n---\na: 1\n---\n") == [{"a": 1}]
