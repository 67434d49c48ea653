"""The CustomResourceDefinition of AcceleratorQuota, generated from the models.

Pydantic's JSON schema is turned into a structural schema (no references, no unions but
int-or-string, nothing nullable), and the rules that need more than one field are added as CEL, so
that they hold with no webhook at all. `core/check.py` judges the same things again on what is
stored, because an object may have been stored before a rule was.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from quota_translator.core.model import AcceleratorQuotaSpec
from quota_translator.core.model_status import AcceleratorQuotaStatus
from quota_translator.core.names import COVER_FLAVOR, GROUP, QUOTA_KIND, ROOT, VERSION

PLURAL = "acceleratorquotas"
_KEPT = (
    "type",
    "format",
    "pattern",
    "minLength",
    "maxLength",
    "minimum",
    "maximum",
    "minItems",
    "maxItems",
    "maxProperties",
    "enum",
    "description",
    "required",
)


def _rule(rule: str, message: str, **more: str) -> dict[str, str]:
    return {"rule": rule, "message": message} | more


_NAME_RULES = [
    _rule(
        "self.metadata.name.size() <= 63",
        "the name is copied into label values: at most 63 characters",
    ),
    _rule(
        "self.metadata.name != 'default'",
        "the name default is reserved: a LocalQueue of that name would capture every unlabelled "
        "job of its namespace",
    ),
    _rule(
        "!self.metadata.name.endsWith('.rest') && !self.metadata.name.endsWith('.intake') "
        "&& !self.metadata.name.contains('.m-')",
        "names that end in .rest or .intake, or contain .m-, are reserved",
    ),
    _rule(
        f"self.metadata.name != '{ROOT}' "
        "|| (self.spec.role == 'Cohort' && !has(self.spec.parentRef))",
        "root is a Cohort without a parent",
    ),
    _rule(
        f"self.metadata.name == '{ROOT}' || has(self.spec.parentRef)",
        "only the reserved root may omit parentRef",
    ),
    _rule(
        "!has(self.spec.parentRef) || self.spec.parentRef.name != self.metadata.name",
        "a node cannot be its own parent",
    ),
    _rule(
        f"self.metadata.name == '{ROOT}' || !has(self.spec.expectedCapacity)",
        "expectedCapacity is of the whole cluster: it belongs to root",
        fieldPath=".spec.expectedCapacity",
    ),
    _rule(
        f"self.metadata.name != '{ROOT}' || !has(self.spec.fairSharing)",
        "root has no siblings, so it carries no fairSharing",
        fieldPath=".spec.fairSharing",
    ),
    _rule(
        f"self.metadata.name != '{ROOT}' || !has(self.spec.budgets) || self.spec.budgets.all(b, "
        "!has(b.enforced) && !has(b.borrowingLimit) && !has(b.lendingLimit))",
        "root has no parent, so its budgets carry no limits and are not enforced",
    ),
]

_SPEC_RULES = [
    _rule(
        "self.role == oldSelf.role",
        "role cannot be changed: delete the node and create it again",
        fieldPath=".role",
    ),
    _rule(
        "self.role != 'ClusterQueue' || (has(self.budgets) && self.budgets.size() > 0)",
        "a ClusterQueue needs at least one budget",
    ),
    _rule(
        "self.role != 'Cohort' || (!has(self.priorityTier) && !has(self.distribution))",
        "a Cohort carries neither priorityTier nor distribution",
    ),
    _rule(
        "self.role != 'Cohort' || (!has(self.namespaces) && !has(self.namespaceSelector))",
        "a Cohort takes no work, so it carries neither namespaces nor namespaceSelector",
    ),
    _rule(
        "!has(self.namespaces) || !has(self.namespaceSelector)",
        "namespaces and namespaceSelector exclude each other",
        fieldPath=".namespaceSelector",
    ),
    _rule(
        "self.role != 'Cohort' || !has(self.stopPolicy)",
        "stopPolicy belongs to a ClusterQueue: Kueue cannot stop a Cohort",
        fieldPath=".stopPolicy",
    ),
    _rule(
        "self.role != 'Cohort' || !has(self.budgets) || self.budgets.all(b, "
        "!has(b.policy) && !has(b.perCluster))",
        "a Cohort's budget carries neither policy nor perCluster",
    ),
    _rule(
        "self.role != 'Cohort' || !has(self.budgets) || self.budgets.all(b, "
        "(has(b.enforced) && b.enforced) || (!has(b.borrowingLimit) && !has(b.lendingLimit)))",
        "a Cohort's budget carries limits only when it is enforced",
    ),
    _rule(
        "self.role != 'ClusterQueue' || !has(self.budgets) || "
        "self.budgets.all(b, !has(b.enforced))",
        "enforced belongs to a Cohort's budget: a ClusterQueue's always is",
    ),
    _rule(
        "!has(self.budgets) || self.budgets.all(b, (has(b.policy) ? b.policy : "
        "(has(self.distribution) ? self.distribution.policy : '')) != 'Explicit' "
        "|| (has(b.perCluster) && b.perCluster.size() > 0))",
        "the policy Explicit needs perCluster",
    ),
    _rule(
        "!has(self.budgets) || self.budgets.all(b, (has(b.policy) ? b.policy : "
        "(has(self.distribution) ? self.distribution.policy : '')) != 'Proportional' "
        "|| !has(b.perCluster))",
        "the policy Proportional takes no perCluster",
    ),
]


def _amount_rules(field: str) -> list[dict[str, str]]:
    text, optional = f"string(self.{field})", f"!has(self.{field}) || "
    # A device comes whole. isInteger is false for 3000m and 8.0, so these are let through.
    whole = f"(quantity({text}).isInteger() || {text}.matches('^[+]?[0-9]+(000m|[.]0*)$'))"
    device = "!self.resourceName.contains('/')"
    return [
        _rule(
            f"{optional}isQuantity({text})",
            f"{field} is not a Kubernetes quantity",
            fieldPath=f".{field}",
        ),
        _rule(
            f"{optional}!isQuantity({text}) || quantity({text}).compareTo(quantity('0')) >= 0",
            f"{field} must not be negative",
            fieldPath=f".{field}",
        ),
        _rule(
            f"{optional}!isQuantity({text}) || quantity({text}).compareTo(quantity('1e15')) <= 0",
            f"{field} is above 1e15",
            fieldPath=f".{field}",
        ),
        _rule(
            f"{optional}!isQuantity({text}) || {device} "
            f"|| quantity({text}).compareTo(quantity('1e15')) > 0 || {whole}",
            f"{field} is a fraction of a resource that comes whole",
            fieldPath=f".{field}",
        ),
    ]


_WEIGHT = "quantity(string(self.weight))"
_FAIR_SHARING_RULES = [
    _rule(
        f"isQuantity(string(self.weight)) && ({_WEIGHT}.compareTo(quantity('0')) == 0 "
        f"|| ({_WEIGHT}.compareTo(quantity('1n')) > 0 "
        f"&& {_WEIGHT}.compareTo(quantity('1e15')) <= 0))",
        "weight is 0, or more than 0.000000001 and at most 1e15",
        fieldPath=".weight",
    ),
]

_PREEMPTION_RULES = [
    _rule(
        "!has(self.borrowWithinCohort) || !has(self.borrowWithinCohort.policy) "
        "|| self.borrowWithinCohort.policy == 'Never' "
        "|| (has(self.reclaimWithinCohort) && self.reclaimWithinCohort != 'Never')",
        "borrowWithinCohort needs a reclaimWithinCohort other than Never",
        fieldPath=".borrowWithinCohort",
    ),
]

_BUDGET_RULES = [
    *_amount_rules("nominal"),
    *_amount_rules("borrowingLimit"),
    *_amount_rules("lendingLimit"),
    _rule(
        "!has(self.lendingLimit) || !isQuantity(string(self.lendingLimit)) "
        "|| !isQuantity(string(self.nominal)) || "
        "quantity(string(self.lendingLimit)).compareTo(quantity(string(self.nominal))) <= 0",
        "lendingLimit is above nominal: a share cannot lend more than it has",
        fieldPath=".lendingLimit",
    ),
    _rule(
        f"self.resourceFlavor != '{COVER_FLAVOR}'",
        f"{COVER_FLAVOR} is the controller's own flavor and takes no budget",
        fieldPath=".resourceFlavor",
    ),
]

_REQUIREMENT_RULES = [
    _rule(
        "(self.operator in ['In', 'NotIn']) == (has(self.values) && self.values.size() > 0)",
        "In and NotIn need values, and Exists and DoesNotExist take none",
        fieldPath=".values",
    ),
]

_EXPECTED_RULES = [
    *_amount_rules("quantity"),
    _rule(
        f"self.resourceFlavor != '{COVER_FLAVOR}'",
        f"{COVER_FLAVOR} is the controller's own flavor: it has no hardware",
        fieldPath=".resourceFlavor",
    ),
]

_COLUMNS = [
    ("Role", "string", ".spec.role"),
    ("Parent", "string", ".spec.parentRef.name"),
    ("Nominal", "string", ".status.budgets[0].nominal"),
    ("Admitted", "string", ".status.budgets[0].admitted"),
    ("Summary", "string", ".status.summary"),
    ("Ready", "string", ".status.conditions[?(@.type=='Ready')].status"),
    ("Materialized", "string", ".status.conditions[?(@.type=='Materialized')].status"),
    ("Age", "date", ".metadata.creationTimestamp"),
]
# With -o wide: why a node is not as it should be.
_WIDE_COLUMNS = [
    (f"{kind}Reason", "string", f".status.conditions[?(@.type=='{kind}')].reason")
    for kind in ("Ready", "Materialized")
]


def crd() -> dict[str, Any]:
    """The whole CRD as plain JSON."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Cluster",
            "names": {
                "kind": QUOTA_KIND,
                "listKind": f"{QUOTA_KIND}List",
                "plural": PLURAL,
                "singular": QUOTA_KIND.lower(),
                "shortNames": ["aq"],
            },
            "versions": [_version()],
        },
    }


def _version() -> dict[str, Any]:
    spec = structural(AcceleratorQuotaSpec) | {"description": "What is promised, and to whom."}
    spec["x-kubernetes-validations"] = _SPEC_RULES
    spec["properties"]["budgets"]["items"]["x-kubernetes-validations"] = _BUDGET_RULES
    requirement = spec["properties"]["namespaceSelector"]["properties"]["matchExpressions"]["items"]
    requirement["x-kubernetes-validations"] = _REQUIREMENT_RULES
    spec["properties"]["expectedCapacity"]["items"]["x-kubernetes-validations"] = _EXPECTED_RULES
    spec["properties"]["fairSharing"]["x-kubernetes-validations"] = _FAIR_SHARING_RULES
    spec["properties"]["preemption"]["x-kubernetes-validations"] = _PREEMPTION_RULES
    root = {
        "type": "object",
        "description": "One node of the tree that says who owns which accelerators.",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": spec,
            "status": structural(AcceleratorQuotaStatus)
            | {"description": "Whether the promise is sound, whether Kueue has it, who uses it."},
        },
        "x-kubernetes-validations": _NAME_RULES,
    }
    return {
        "name": VERSION,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": [
            *({"name": name, "type": kind, "jsonPath": path} for name, kind, path in _COLUMNS),
            *(
                {"name": name, "type": kind, "jsonPath": path, "priority": 1}
                for name, kind, path in _WIDE_COLUMNS
            ),
        ],
        "schema": {"openAPIV3Schema": root},
    }


def structural(model: type[BaseModel]) -> dict[str, Any]:
    """A pydantic model as a structural schema."""
    schema = model.model_json_schema(by_alias=True)
    return _structural(schema, schema.get("$defs", {}))


def _structural(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    resolved = _resolve(schema, definitions)
    if resolved.get("x-kubernetes-int-or-string"):
        return {k: v for k, v in resolved.items() if k in ("maxLength", "description")} | {
            "x-kubernetes-int-or-string": True
        }
    result = {key: value for key, value in resolved.items() if key in _KEPT}
    result |= {key: value for key, value in resolved.items() if key.startswith("x-kubernetes-")}
    if "const" in resolved:
        result["enum"] = [resolved["const"]]
    if "properties" in resolved:
        result["properties"] = {
            name: _structural(inner, definitions) for name, inner in resolved["properties"].items()
        }
    if isinstance(resolved.get("additionalProperties"), Mapping):  # a map of the people's own keys
        result["additionalProperties"] = _structural(resolved["additionalProperties"], definitions)
    if "items" in resolved:
        result["items"] = _structural(resolved["items"], definitions)
    return dict(sorted(result.items()))


def _resolve(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    """Follow a reference, and take the one branch of a union that is not null."""
    own = {k: v for k, v in schema.items() if k not in ("$ref", "anyOf", "default")}
    if "$ref" in schema:
        inner = definitions[schema["$ref"].rpartition("/")[2]]
        return _resolve(inner, definitions) | own
    if "anyOf" in schema and not own.get("x-kubernetes-int-or-string"):
        branches = [b for b in schema["anyOf"] if b.get("type") != "null"]
        if len(branches) == 1:
            return _resolve(branches[0], definitions) | own
    return own
