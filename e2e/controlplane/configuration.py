"""The files that the parts of the control plane read: pure functions from values to documents.

Kueue's configuration is decoded strictly and is right for one version only; see the version pinned
in ``go/main/go.mod``.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml

Document = dict[str, Any]

KUEUE_NAMESPACE = "kueue-system"
COMPLETE_ANNOTATION = "quota-translator.dev/complete"
# "not-ready": the kubelet reports so. "silent": it reports nothing any more; see ``nodes``.
KUBELET_ANNOTATION = "quota-translator.dev/kubelet"
NOT_READY = "not-ready"
SILENT = "silent"
FAKE_NODE_ANNOTATION = "kwok.x-k8s.io/node"

# Kueue answers for many more kinds; without their CRDs the entries would be of no use.
WEBHOOK_RESOURCES = {
    ("kueue.x-k8s.io", "clusterqueues"),
    ("kueue.x-k8s.io", "cohorts"),
    ("kueue.x-k8s.io", "resourceflavors"),
    ("kueue.x-k8s.io", "workloads"),
    ("batch", "jobs"),
    ("", "pods"),
}
UNTOUCHED_NAMESPACES = ["kube-system", KUEUE_NAMESPACE]
# kwok's own stages for what goes well. The heartbeat is the one of a kubelet that has a lease: the
# lease every ten seconds, the status every ten minutes or more.
NODE_STAGES = ("node-initialize", "node-heartbeat-with-lease")
POD_STAGES = ("pod-ready", "pod-delete")


def load_all(text: str) -> list[Document]:
    """The documents of a YAML stream, without the empty ones."""
    return [document for document in yaml.safe_load_all(text) if document]


def dump_all(documents: Iterable[Document]) -> str:
    return yaml.safe_dump_all(documents, sort_keys=False)


def audit_policy() -> Document:
    """Who asked for what, for every request; a request is written when it is answered."""
    return {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [{"level": "Metadata"}],
    }


def kubeconfig(url: str, ca: bytes, certificate: bytes, key: bytes, user: str) -> Document:
    """A kubeconfig that needs no other file."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": "quota-translator",
                "cluster": {"server": url, "certificate-authority-data": _base64(ca)},
            }
        ],
        "users": [
            {
                "name": user,
                "user": {
                    "client-certificate-data": _base64(certificate),
                    "client-key-data": _base64(key),
                },
            }
        ],
        "contexts": [
            {"name": "quota-translator", "context": {"cluster": "quota-translator", "user": user}}
        ],
        "current-context": "quota-translator",
    }


def kueue_configuration(health_port: int, webhook_port: int, certificates: Path) -> Document:
    return {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "namespace": KUEUE_NAMESPACE,
        "health": {"healthProbeBindAddress": f"127.0.0.1:{health_port}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": "127.0.0.1", "port": webhook_port, "certDir": str(certificates)},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "clientConnection": {"qps": 300, "burst": 500},
        "integrations": {"frameworks": ["batch/job", "pod"]},
        "featureGates": {"VisibilityOnDemand": False, "DisableWaitForPodsReady": True},
    }


def local_webhooks(documents: Iterable[Document], port: int, ca: bytes) -> list[Document]:
    """Kueue's webhook configurations, pointed at a process on this machine.

    Only the kinds that exist here are kept. Pods of the system's namespaces are left out: with
    Kueue down, nothing could be started there.
    """
    configurations = []
    for document in documents:
        hooks = [_local_hook(hook, port, ca) for hook in document["webhooks"] if _is_wanted(hook)]
        metadata = document["metadata"] | {"name": f"kueue-{document['metadata']['name']}"}
        configurations.append(document | {"metadata": metadata, "webhooks": hooks})
    return configurations


def _is_wanted(hook: Document) -> bool:
    return any(
        (group, resource.partition("/")[0]) in WEBHOOK_RESOURCES
        for rule in hook["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    )


def _local_hook(hook: Document, port: int, ca: bytes) -> Document:
    path = hook["clientConfig"]["service"]["path"]
    client = {"url": f"https://127.0.0.1:{port}{path}", "caBundle": _base64(ca)}
    changed = hook | {"clientConfig": client}
    if any("pods" in rule["resources"] for rule in hook["rules"]):
        changed["namespaceSelector"] = {
            "matchExpressions": [
                {
                    "key": "kubernetes.io/metadata.name",
                    "operator": "NotIn",
                    "values": UNTOUCHED_NAMESPACES,
                }
            ]
        }
    return changed


def kwok_stages(documents: Sequence[Document]) -> list[Document]:
    """What fake nodes and their pods do, from kwok's own stages and two differences.

    A Job's pod runs until a test annotates it, instead of completing at once. A node annotated as
    not ready stays so until the annotation is gone, instead of by a weighted draw that would go on
    writing. Where several stages match, kwok draws one; so none of them overlap.
    """
    by_name = {document["metadata"]["name"]: document for document in documents}
    healthy = _annotation(KUBELET_ANNOTATION, "NotIn", NOT_READY, SILENT)
    complete = _with_expressions(
        by_name["pod-complete"],
        _annotation(COMPLETE_ANNOTATION, "In", "true"),
        without=".metadata.ownerReferences.[].kind",
    )
    return [
        *(_with_expressions(by_name[name], healthy) for name in NODE_STAGES),
        *(by_name[name] for name in POD_STAGES),
        complete,
        _not_ready(by_name["node-not-ready"]),
    ]


def _annotation(name: str, operator: str, *values: str) -> Document:
    return {
        "key": f'.metadata.annotations["{name}"]',
        "operator": operator,
        "values": list(values),
    }


def _with_expressions(stage: Document, *more: Document, without: str | None = None) -> Document:
    spec = stage["spec"]
    kept = [
        expression
        for expression in spec["selector"]["matchExpressions"]
        if expression["key"] != without
    ]
    return stage | {"spec": spec | {"selector": {"matchExpressions": [*kept, *more]}}}


def _not_ready(stage: Document) -> Document:
    """kwok's stage for a failed node, chosen by our annotation alone, and played once."""
    spec = {key: stage["spec"][key] for key in ("resourceRef", "next")}
    selector = {
        "matchExpressions": [
            _annotation(KUBELET_ANNOTATION, "In", NOT_READY),
            {
                "key": '.status.conditions.[] | select( .type == "Ready" ) | .status',
                "operator": "In",
                "values": ["True"],
            },
        ]
    }
    return stage | {"spec": spec | {"selector": selector}}


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()
