"""The values whose renderings are kept in golden/.

python -m tests.helm.scenarios     write them anew, after a change that is meant
"""

from typing import Any

from tests.helm.rendering import CHART, ENROLLED, ROOT, template

GOLDEN = ROOT / "tests" / "helm" / "golden"
NO_CRD = {"crd": {"install": False}}
SCENARIOS: dict[str, dict[str, Any]] = {
    "usual": ENROLLED,
    "only-looking": {"capacity": {"resources": []}, "replicaCount": 1},
    "no-webhook": {
        **ENROLLED,
        "webhook": {"enabled": False},
        "events": {"enabled": False},
        "leaderElection": {"enabled": False},
        "metrics": {"enabled": False},
        "replicaCount": 1,
        "rbac": {"people": False},
    },
    "everything": {
        "name": "quotas",
        "image": {
            "repository": "registry.example.com/quota-translator",
            "digest": "sha256:" + "0123456789abcdef" * 4,
        },
        "imagePullSecrets": [{"name": "registry"}],
        "replicaCount": 3,
        "capacity": {"growth": "Usable", "settleAfter": "never", "reportInterval": ""},
        "materialize": {
            "namespaceSelector": {
                "matchLabels": {"gpu": "true"},
                "matchExpressions": [
                    {"key": "team", "operator": "In", "values": ["a", "b"]},
                    {"key": "old", "operator": "DoesNotExist"},
                ],
            },
            "coverResources": {"example.com/fpga": "1k", "hugepages-2Mi": 1000000},
            "fieldManager": "platform",
        },
        "maxTreeDepth": 0,
        "takeOver": True,
        "status": {"workloadNames": True},
        "webhook": {
            "deny": ["OverMark", "NeverSeen"],
            "port": 10250,
            "servicePort": 8443,
            "timeoutSeconds": 3,
            "extraNames": ["quotas.example.com", "192.0.2.7"],
        },
        "metrics": {
            "secure": True,
            "serviceMonitor": {
                "enabled": True,
                "additionalLabels": {"release": "prometheus"},
                "interval": "1m",
            },
            "prometheusRule": {"enabled": True, "additionalLabels": {"release": "prometheus"}},
        },
        "serviceAccount": {"annotations": {"example.com/identity": "quotas"}},
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "topology.kubernetes.io/zone",
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app.kubernetes.io/name": "quotas"}},
            }
        ],
        "priorityClassName": "system-cluster-critical",
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "gpu", "operator": "DoesNotExist"}]}
                    ]
                }
            }
        },
        "nodeSelector": {"pool": "system"},
        "tolerations": [{"key": "system", "operator": "Exists"}],
        "networkPolicy": {
            "enabled": True,
            "metricsFrom": [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}],
        },
        "labels": {"example.com/owner": "platform"},
        "podLabels": {"example.com/tier": "control"},
        "podAnnotations": {"example.com/note": "kept"},
        "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy.example.com:3128"}],
        "extraVolumes": [{"name": "more", "configMap": {"name": "more"}}],
        "extraVolumeMounts": [{"name": "more", "mountPath": "/etc/more", "readOnly": True}],
    },
    "cert-manager": {**ENROLLED, "webhook": {"certificates": "certManager"}},
    "cert-manager-issuer": {
        **ENROLLED,
        "webhook": {
            "certificates": "certManager",
            "issuerRef": {"kind": "ClusterIssuer", "name": "company"},
        },
    },
    "mounted": {**ENROLLED, "webhook": {"certificates": "mounted", "secretName": "our-pair"}},
}


def golden(name: str) -> str:
    """A rendering without what has a place of its own: the CRD, the version of the chart."""
    return template({**SCENARIOS[name], **NO_CRD})


def main() -> None:
    for name in SCENARIOS:
        (GOLDEN / f"{name}.yaml").write_text(golden(name), encoding="utf-8")
    for file in GOLDEN.glob("*.yaml"):
        if file.stem not in SCENARIOS:
            file.unlink()
    print(f"wrote {len(SCENARIOS)} renderings of {CHART.name} into {GOLDEN.relative_to(ROOT)}")  # noqa: T201


if __name__ == "__main__":
    main()
