"""AcceleratorQuota as people write it: the source of the CRD, of the API's docs, and of errors.

The models state shape, bounds and descriptions once. `core/crd.py` turns them into the CRD's
structural schema, `docs/` into the field reference. The watch never builds them: `read_quota`
(core/reading.py) goes from JSON to a compact `QuotaNode`, and a property test holds the two
together.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from quota_translator.core.world import BorrowPolicy, ReclaimPolicy, StopPolicy, WithinPolicy

MAX_BUDGETS = 16
MAX_NAME = 63  # the name is copied into label values
MAX_SUBDOMAIN = 253
MAX_QUANTITY_TEXT = 64
DNS_SUBDOMAIN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"

SubdomainName = Annotated[str, Field(min_length=1, max_length=MAX_SUBDOMAIN, pattern=DNS_SUBDOMAIN)]
# A Kubernetes quantity: an integer, or text such as "24", "1500m", "16Gi".
QuantityText = Annotated[
    int | str,
    Field(json_schema_extra={"x-kubernetes-int-or-string": True, "maxLength": MAX_QUANTITY_TEXT}),
]


LabelText = Annotated[str, Field(max_length=MAX_NAME)]


class ApiModel(BaseModel):
    """camelCase on the wire; an unknown field is an error that names it."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="forbid", strict=True
    )


class ParentRef(ApiModel):
    name: SubdomainName = Field(description="The name of the parent AcceleratorQuota.")


class ClusterShare(ApiModel):
    """A share of one budget on one cluster of a fleet. Without effect on a single cluster."""

    cluster: SubdomainName = Field(description="The cluster's name.")
    nominal: QuantityText = Field(description="The share on that cluster.")


class BudgetSpec(ApiModel):
    resource_name: str = Field(
        min_length=1,
        max_length=MAX_SUBDOMAIN,
        description="The resource, such as nvidia.com/gpu.",
    )
    resource_flavor: SubdomainName = Field(description="The Kueue ResourceFlavor, such as a100.")
    nominal: QuantityText = Field(description="The share.")
    borrowing_limit: QuantityText | None = Field(
        default=None,
        description="How much more may be borrowed from unused shares anywhere in the tree. "
        "Unset is 0. On a team, or on a group whose budget is enforced.",
    )
    lending_limit: QuantityText | None = Field(
        default=None,
        description="How much of the unused share others may use, at most nominal. Unset is all "
        "of it. On a team, or on a group whose budget is enforced.",
    )
    enforced: bool | None = Field(
        default=None,
        description="On a group other than root: true makes the budget a cap at run time "
        "(nominal + borrowingLimit for everything beneath). Unset: checked when written only.",
    )
    policy: Literal["Explicit", "Proportional"] | None = Field(
        default=None, description="How a fleet distributes this budget. No effect on one cluster."
    )
    per_cluster: list[ClusterShare] | None = Field(
        default=None,
        max_length=64,
        description="Explicit shares of a fleet. No effect on one cluster.",
        json_schema_extra={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["cluster"],
        },
    )


class Distribution(ApiModel):
    policy: Literal["Explicit", "Proportional"] = Field(
        description="The policy of budgets that name none. No effect on one cluster."
    )


class BorrowWithinCohort(ApiModel):
    policy: BorrowPolicy | None = Field(
        default=None,
        description="LowerPriority: while it borrows, the team may evict work of lower priority in "
        "other teams. Unset is Never. Needs a reclaimWithinCohort other than Never.",
    )
    max_priority_threshold: int | None = Field(
        default=None,
        ge=-(2**31),
        le=2**31 - 1,
        description="Only work up to this priority may be evicted so.",
        json_schema_extra={"format": "int32"},
    )


class Preemption(ApiModel):
    """Kueue's own words, and Kueue's own defaults: what is left out is Never."""

    reclaim_within_cohort: ReclaimPolicy | None = Field(
        default=None,
        description="Whether a team within its share may evict work of others that runs on what "
        "they borrowed: Any, LowerPriority (only work of lower priority), or Never.",
    )
    borrow_within_cohort: BorrowWithinCohort | None = Field(
        default=None, description="Whether a team that borrows may evict work of others."
    )
    within_cluster_queue: WithinPolicy | None = Field(
        default=None,
        description="Whether a team may evict its own work: LowerPriority, "
        "LowerOrNewerEqualPriority, or Never.",
    )


class FairSharing(ApiModel):
    weight: QuantityText = Field(
        description="How much of what is borrowed this node may have, compared with its siblings: "
        "0, or more than 0.000000001. Kueue's default is 1."
    )


class ExpectedCapacity(ApiModel):
    resource_name: str = Field(
        min_length=1, max_length=MAX_SUBDOMAIN, description="The resource, such as nvidia.com/gpu."
    )
    resource_flavor: SubdomainName = Field(description="The Kueue ResourceFlavor, such as l4-spot.")
    quantity: QuantityText = Field(description="The size of the pool when it is scaled up.")


class SelectorRequirement(ApiModel):
    key: str = Field(min_length=1, max_length=317, description="The label's key.")
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"] = Field(description="The relation.")
    values: list[LabelText] | None = Field(
        default=None,
        max_length=256,
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
        description="For In and NotIn, and for no other.",
    )


class LabelSelector(ApiModel):
    """As everywhere in Kubernetes: all parts hold, and without a part everything does."""

    match_labels: dict[str, LabelText] | None = Field(
        default=None, max_length=64, description="Labels that are all there."
    )
    match_expressions: list[SelectorRequirement] | None = Field(
        default=None,
        max_length=64,
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
        description="Requirements that all hold.",
    )


class AcceleratorQuotaSpec(ApiModel):
    role: Literal["Cohort", "ClusterQueue"] = Field(
        description="Cohort groups other nodes; ClusterQueue is a team, which has no children and "
        "whose budgets workloads charge. It cannot be changed: delete the node and create it again."
    )
    parent_ref: ParentRef | None = Field(
        default=None,
        description="The parent. Every node but root has one; root has none.",
    )
    budgets: list[BudgetSpec] | None = Field(
        default=None,
        max_length=MAX_BUDGETS,
        description="One entry for each resource on a flavor. A team needs at least one. Queues "
        "try flavors in the order in which they are written here.",
        json_schema_extra={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["resourceName", "resourceFlavor"],
        },
    )
    namespaces: list[SubdomainName] | None = Field(
        default=None,
        min_length=1,
        max_length=256,
        description="On a team: which of the enrolled namespaces may submit, by name. Unset, and "
        "without a namespaceSelector, all of them may.",
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )
    namespace_selector: LabelSelector | None = Field(
        default=None,
        description="On a team: which of the enrolled namespaces may submit, by their labels. Not "
        "together with namespaces.",
    )
    expected_capacity: list[ExpectedCapacity] | None = Field(
        default=None,
        max_length=64,
        description="On root: the size of pools that are autoscaled. Checks use the larger of this "
        "and the high-water mark.",
        json_schema_extra={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["resourceName", "resourceFlavor"],
        },
    )
    preemption: Preemption | None = Field(
        default=None,
        description="Who may be evicted so that a team gets its share. The nearest node that has "
        "this field decides for everything beneath it, the team itself first. Where none has it, "
        "nobody is evicted.",
    )
    fair_sharing: FairSharing | None = Field(
        default=None,
        description="Passed to Kueue, which uses it only where fair sharing is on in its own "
        "configuration. On a team or a group, not on root.",
    )
    stop_policy: StopPolicy | None = Field(
        default=None,
        description="On a team. Hold: nothing new is admitted. HoldAndDrain: what runs is evicted "
        "too. None: neither, and a stop that a person puts on the queue is taken back. Unset: "
        "people's own stops are left alone.",
    )
    priority_tier: str | None = Field(
        default=None, max_length=63, description="On a team. Stored; without effect so far."
    )
    distribution: Distribution | None = Field(
        default=None, description="On a team. How a fleet distributes it. No effect on one cluster."
    )


def field_errors(spec: Any) -> list[tuple[str, str]]:
    """What is wrong with the *shape* of a spec, as (field path, message). Empty when nothing is."""
    from pydantic import ValidationError

    try:
        AcceleratorQuotaSpec.model_validate(spec)
    except ValidationError as error:
        return [(_path(e["loc"]), _message(dict(e))) for e in error.errors(include_url=False)]
    return []


def _path(location: tuple[int | str, ...]) -> str:
    """("budgets", 2, "nominal", "int") → spec.budgets[2].nominal"""
    path = "spec"
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
        elif part not in ("int", "str"):  # the branches of a union, which people did not write
            path += f".{part}"
    return path


def _message(error: dict[str, Any]) -> str:
    if error["type"] == "extra_forbidden":
        return "unknown field"
    if error["type"] == "missing":
        return "is required"
    text = str(error["msg"])
    return text[0].lower() + text[1:]
