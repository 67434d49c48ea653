"""The chart's values, once: their defaults, their schema and their meaning.

What is an option of the controller comes from `settings.py`; the rest is what Kubernetes needs.
`chart_files.py` writes `values.yaml`, `values.schema.json`, the table of the chart's README and
`files/options.yaml` (by which the templates turn values into flags) from this table.
"""

import re
from dataclasses import dataclass
from typing import Any

from quota_translator.core.options import WARNINGS
from quota_translator.settings import Settings

DURATION = r"\s*(0|([0-9]+(\.[0-9]+)?(ms|s|m|h|d))+)?\s*"
RESOURCE = r"\s*[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?\s*"
ANY_RESOURCE = r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?"
LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
HOST = r"[a-z0-9A-F:]([-.:a-z0-9A-F]*[a-z0-9A-F])?"
QUANTITY = r"[0-9]*[1-9][0-9]{0,5}(\.[0-9]+)?(k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?"

OBJECT = r"\s*([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?)?\s*"
TAG = r"\s*([A-Za-z0-9_][-A-Za-z0-9_.]{0,127})?\s*"

TEXT: dict[str, Any] = {"type": "string"}
BOOLEAN: dict[str, Any] = {"type": "boolean"}
OPEN: dict[str, Any] = {"type": "object"}
OPEN_LIST: dict[str, Any] = {"type": "array", "items": {"type": "object"}}
STRINGS: dict[str, Any] = {"type": "object", "additionalProperties": TEXT}
PORT: dict[str, Any] = {"type": "integer", "minimum": 1, "maximum": 65535}

# The flags that the templates write themselves: what they say depends on more than the value.
BY_HAND = (
    "materialize.namespaceSelector",
    "materialize.coverResources",
    "materialize.fieldManager",
)


@dataclass(frozen=True)
class Value:
    """One value. `schema` None: that of the setting of the same name."""

    path: str
    default: Any
    about: str = ""
    schema: dict[str, Any] | None = None
    group: str = ""  # a heading in front of it

    @property
    def setting(self) -> str:
        return re.sub(r"([A-Z])", r"_\1", self.path.replace(".", "_")).lower()

    @property
    def is_option(self) -> bool:
        """Whether it becomes a flag of its own, by its name."""
        return self.setting in Settings.model_fields

    @property
    def by_name(self) -> bool:
        """Whether the templates need to know nothing else about it."""
        return self.path not in BY_HAND

    @property
    def meaning(self) -> str:
        described = Settings.model_fields[self.setting].description if self.is_option else ""
        return self.about or described or ""


def matching(pattern: str) -> dict[str, Any]:
    """The schema of a text of which all matches the pattern."""
    return {"type": "string", "pattern": f"^{pattern}$"}


def _list(pattern: str) -> dict[str, Any]:
    return {"type": "array", "items": matching(pattern)}


VALUES: tuple[Value, ...] = (
    Value(
        "mode",
        "",
        "Required. `workload`: the tree of this cluster becomes Kueue objects here. `management` "
        "(a tree for a fleet) is refused until there is one.",
        TEXT,
        group="What it is",
    ),
    Value(
        "name",
        "quota-translator",
        "The name of the Deployment, and the beginning of every other name. At most 55 characters. "
        "Two installations in one cluster need two, the second with `crd.install` false.",
        TEXT,
    ),
    Value(
        "replicaCount",
        2,
        "Replicas. One writes; all serve the webhook.",
        {"type": "integer", "minimum": 0, "maximum": 20},
    ),
    Value(
        "image.repository",
        "quota-translator",
        "Without a registry, the nodes' default one.",
        matching(r"\s*[^\s]*\s*"),
        group="Image",
    ),
    Value("image.tag", "", "Empty: the chart's `appVersion`.", matching(TAG)),
    Value(
        "image.digest",
        "",
        "Such as `sha256:…`; wins over the tag.",
        matching("(sha256:[0-9a-f]{64})?"),
    ),
    Value("image.pullPolicy", "IfNotPresent", "", {"enum": ["Always", "IfNotPresent", "Never"]}),
    Value("imagePullSecrets", [], "Names of Secrets, as `[{name: …}]`.", OPEN_LIST),
    Value(
        "capacity.resources",
        ["google.com/tpu", "nvidia.com/gpu"],
        "",
        _list(RESOURCE),
        group="Measuring",
    ),
    Value("capacity.hysteresisPercent", 10),
    Value("capacity.growth", "Installed"),
    Value("capacity.growAfter", "0s"),
    Value("capacity.dropAfter", "30s"),
    Value("capacity.settleAfter", "24h"),
    Value("capacity.reportInterval", "1m"),
    Value(
        "materialize.enrolledNamespaces",
        [],
        "",
        _list(rf"\s*({LABEL})?\s*"),
        group="Writing to Kueue",
    ),
    Value(
        "materialize.namespaceSelector",
        None,
        "A label selector in place of the list: text as kubectl takes it, or a LabelSelector. `{}` "
        "is every namespace.",
        {"type": ["string", "object", "null"]},
    ),
    Value("materialize.cover", True),
    Value(
        "materialize.coverResources",
        {"cpu": "16M", "ephemeral-storage": "16Pi", "memory": "16Pi"},
        "Ceilings of the cover resources. Those given are added to these.",
        {
            "type": "object",
            "propertyNames": {"pattern": f"^{ANY_RESOURCE}$"},
            "additionalProperties": {
                "anyOf": [matching(QUANTITY), {"type": "integer", "minimum": 1, "maximum": 10**18}]
            },
        },
    ),
    Value(
        "materialize.fieldManager",
        "",
        "The value of the label that says an object is ours. Empty: `name`. Two installations must "
        "not share one.",
        matching(r"\s*([a-zA-Z0-9]([-a-zA-Z0-9_.]{0,61}[a-zA-Z0-9])?)?\s*"),
    ),
    Value("materialize.orphanAfter", "1m"),
    Value("maxTreeDepth", 5, group="The tree"),
    Value("resyncInterval", "10m"),
    Value("writeConcurrency", 16),
    Value("takeOver", False),
    Value("status.usageInterval", "5s"),
    Value("status.workloadNames", False),
    Value(
        "webhook.enabled",
        True,
        "Serve the admission webhook, and register it.",
        BOOLEAN,
        group="Admission webhook",
    ),
    Value("webhook.deny", [], "", {"type": "array", "items": {"enum": list(WARNINGS)}}),
    Value("webhook.port", 9443, "The port of the pods.", PORT),
    Value("webhook.servicePort", 443, "The port of the Service.", PORT),
    Value(
        "webhook.timeoutSeconds",
        5,
        "How long the API server waits for an answer.",
        {"type": "integer", "minimum": 1, "maximum": 30},
    ),
    Value("webhook.certificates", "self"),
    Value("webhook.certificateLifetime", "90d"),
    Value("webhook.extraNames", [], "", _list(rf"\s*({HOST})?\s*")),
    Value(
        "webhook.secretName",
        "",
        "With `certificates: mounted`, the Secret with your `tls.crt` and `tls.key`.",
        matching(OBJECT),
    ),
    Value(
        "webhook.issuerRef",
        {},
        "With `certificates: certManager`, the issuer. Empty: one that signs itself is made.",
        {
            "type": "object",
            "properties": {
                "name": matching(OBJECT),
                "kind": matching("[A-Za-z]*"),
                "group": matching(OBJECT),
            },
            "additionalProperties": False,
        },
    ),
    Value("leaderElection.enabled", True, group="Leader election"),
    Value("leaderElection.leaseDuration", "15s"),
    Value("leaderElection.renewDeadline", "10s"),
    Value("leaderElection.retryPeriod", "2s"),
    Value("events.enabled", True, group="What it tells"),
    Value("log.level", "info"),
    Value("log.format", "json"),
    Value("metrics.enabled", True, "Serve `/metrics`.", BOOLEAN),
    Value("metrics.port", 8080, "", PORT),
    Value("metrics.secure", False),
    Value(
        "metrics.serviceMonitor.enabled",
        False,
        "A ServiceMonitor for the Prometheus Operator, in place of the scrape annotations.",
        BOOLEAN,
    ),
    Value(
        "metrics.serviceMonitor.additionalLabels",
        {},
        "Those that your Prometheus selects.",
        STRINGS,
    ),
    Value("metrics.serviceMonitor.interval", "", "Empty: Prometheus' own.", matching(DURATION)),
    Value("metrics.prometheusRule.enabled", False, "A PrometheusRule with the alerts.", BOOLEAN),
    Value(
        "metrics.prometheusRule.additionalLabels",
        {},
        "Those that your Prometheus selects.",
        STRINGS,
    ),
    Value("health.port", 8081, "The port of `/healthz` and `/readyz`.", PORT),
    Value(
        "crd.install",
        True,
        "Install the CRD. It stays when the chart is uninstalled, and the tree with it.",
        BOOLEAN,
        group="Kubernetes",
    ),
    Value(
        "rbac.create",
        True,
        "The roles that the controller needs, no more than its features do.",
        BOOLEAN,
    ),
    Value(
        "rbac.people",
        True,
        "ClusterRoles for people: a viewer, part of view, edit and admin, and an editor.",
        BOOLEAN,
    ),
    Value("serviceAccount.create", True, "", BOOLEAN),
    Value(
        "serviceAccount.name",
        "",
        "Empty: `name` if it is created, else `default`.",
        matching(OBJECT),
    ),
    Value("serviceAccount.annotations", {}, "", STRINGS),
    Value(
        "podDisruptionBudget.enabled", True, "Only where there is more than one replica.", BOOLEAN
    ),
    Value(
        "topologySpreadConstraints",
        [],
        "Empty: replicas go to different nodes where they can.",
        OPEN_LIST,
    ),
    Value(
        "priorityClassName",
        "",
        "`system-cluster-critical` keeps it running on a full cluster.",
        matching(OBJECT),
    ),
    Value("affinity", {}, "", OPEN),
    Value("nodeSelector", {}, "", STRINGS),
    Value("tolerations", [], "", OPEN_LIST),
    Value(
        "resources",
        {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}},
        "Enough for 5,000 nodes; `docs/install.md` says what to set for more.",
        OPEN,
    ),
    Value(
        "networkPolicy.enabled",
        False,
        "Let in the webhook, the probes and the scrapes only.",
        BOOLEAN,
    ),
    Value(
        "networkPolicy.metricsFrom",
        [],
        "Who may scrape, as NetworkPolicy peers. Empty: everybody.",
        OPEN_LIST,
    ),
    Value("labels", {}, "More labels for every object.", STRINGS),
    Value("podLabels", {}, "", STRINGS),
    Value("podAnnotations", {}, "", STRINGS),
    Value("extraEnv", [], "More environment variables.", OPEN_LIST),
    Value("extraVolumes", [], "More volumes.", OPEN_LIST),
    Value("extraVolumeMounts", [], "Where they are mounted.", OPEN_LIST),
)
