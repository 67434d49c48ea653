"""The status of an AcceleratorQuota: what the controller reports. Source of the CRD and the docs.

Every field is optional: what is not known is absent, which is not the same as "0".
"""

from typing import Literal

from pydantic import Field
from pydantic.config import JsonDict

from quota_translator.core.model import ApiModel

_MAP = "x-kubernetes-list-type"
_KEYS = "x-kubernetes-list-map-keys"
_PAIR_KEYS: JsonDict = {_MAP: "map", _KEYS: ["resourceName", "resourceFlavor"]}
_ATOMIC: JsonDict = {_MAP: "atomic"}
TIME: JsonDict = {"format": "date-time"}


class Condition(ApiModel):
    type: str = Field(
        max_length=316,
        description="Ready, Degraded, Materialized; while they hold also EnvelopeOverdrawn, "
        "ForeignMember, Oversubscribed, AmbiguousFlavor.",
    )
    status: Literal["True", "False", "Unknown"] = Field(description="True, False or Unknown.")
    reason: str = Field(min_length=1, max_length=1024, description="One word for programs.")
    message: str = Field(max_length=32768, description="A sentence for people.")
    last_transition_time: str = Field(
        json_schema_extra=TIME, description="When the status last changed."
    )
    observed_generation: int | None = Field(
        default=None, ge=0, description="The generation of the spec that this speaks of."
    )


class BudgetStatus(ApiModel):
    resource_name: str = Field(description="The resource.")
    resource_flavor: str = Field(description="The flavor.")
    nominal: str = Field(description="The share, as written.")
    in_force: str | None = Field(
        default=None, description="The share that Kueue is seen to enforce. Absent: not known."
    )
    admitted: str | None = Field(
        default=None, description="Admitted against the budget, borrowed included."
    )
    reserved: str | None = Field(
        default=None, description="Held by workloads with a quota reservation, admitted or not."
    )
    borrowed: str | None = Field(default=None, description="Admitted above nominal.")
    over: str | None = Field(
        default=None, description="Admitted beyond nominal + borrowingLimit (after a cut)."
    )
    over_since: str | None = Field(
        default=None, json_schema_extra=TIME, description="Since when it has been over."
    )


class Materialization(ApiModel):
    frozen: bool | None = Field(
        default=None, description="True: the Kueue objects are held at their last good state."
    )
    frozen_at: str | None = Field(
        default=None, json_schema_extra=TIME, description="Since when it has been frozen."
    )
    reason: str | None = Field(default=None, description="Why it is frozen.")
    last_applied_generation: int | None = Field(
        default=None, description="The generation of the spec that Kueue last had whole."
    )


class PendingChange(ApiModel):
    kind: Literal["Settle", "Drop", "Grow"] = Field(
        description="Settle: a fall within the band. Drop: a fall past it. Grow: a rise."
    )
    value: str = Field(description="What the mark becomes when the wait ends.")
    since: str = Field(json_schema_extra=TIME, description="When the change was first read.")
    elapsed: int = Field(ge=0, description="Seconds measured so far; restarts do not count.")
    until: str | None = Field(
        default=None,
        json_schema_extra=TIME,
        description="About when the wait ends. Absent: never.",
    )


class CapacityStatus(ApiModel):
    resource_name: str = Field(description="The resource.")
    resource_flavor: str = Field(description="The flavor.")
    allocatable: str = Field(description="On nodes that are Ready and not cordoned.")
    unavailable: str = Field(description="On nodes that are cordoned or not Ready.")
    unhealthy: str = Field(
        description="Devices that Ready nodes have (capacity) but do not offer (allocatable)."
    )
    installed: str = Field(description="allocatable + unavailable.")
    high_water_mark: str = Field(description="What budgets are checked against.")
    declared: str | None = Field(
        default=None,
        description="What root's expectedCapacity says. Checks use the larger of this and the "
        "high-water mark.",
    )
    pending: list[PendingChange] | None = Field(
        default=None,
        max_length=3,
        json_schema_extra=_ATOMIC,
        description="Changes that have not lasted long enough to be believed.",
    )
    nodes: int | None = Field(default=None, ge=0, description="Nodes behind allocatable.")
    unavailable_nodes: int | None = Field(
        default=None, ge=0, description="Nodes behind unavailable."
    )
    observed_at: str | None = Field(
        default=None,
        json_schema_extra=TIME,
        description="The last measurement. A pair that no node reports keeps its last one.",
    )
    measured: bool | None = Field(
        default=None, description="False: no node reports the pair now; the mark is kept."
    )
    ever_seen: bool | None = Field(
        default=None, description="False: no node has ever reported the pair."
    )


class UnattributedStatus(ApiModel):
    resource_name: str = Field(description="The resource.")
    reason: Literal["NoMatchingFlavor", "AmbiguousFlavor", "UnreadableQuantity"] = Field(
        description="Why it does not count."
    )
    flavors: list[str] | None = Field(
        default=None, json_schema_extra=_ATOMIC, description="The flavors that match best."
    )
    nodes: int = Field(ge=0, description="How many nodes.")
    quantity: str = Field(description="How much they hold together.")
    examples: list[str] | None = Field(
        default=None, max_length=3, json_schema_extra=_ATOMIC, description="Up to three node names."
    )


class ControllerStatus(ApiModel):
    namespace: str | None = Field(
        default=None, max_length=63, description="Where it runs, and its Lease is."
    )
    lease: str | None = Field(
        default=None,
        max_length=253,
        description="The Lease by which its replicas agree who writes. Absent: it has none.",
    )
    uid: str | None = Field(
        default=None,
        max_length=64,
        description="Of the Lease; without one, of the process itself. Absent: it stopped and gave "
        "the tree up.",
    )
    seen_at: str | None = Field(
        default=None, json_schema_extra=TIME, description="When it last said so."
    )


class AcceleratorQuotaStatus(ApiModel):
    observed_generation: int | None = Field(
        default=None, ge=0, description="The generation of the spec that this status speaks of."
    )
    parent: str | None = Field(default=None, description="The parent in the tree.")
    path: str | None = Field(default=None, description="Slash-joined from root.")
    summary: str | None = Field(
        default=None, description="One line for lists: pairs with used / share."
    )
    conditions: list[Condition] | None = Field(
        default=None,
        max_length=16,
        json_schema_extra={_MAP: "map", _KEYS: ["type"]},
        description="Ready, Degraded, Materialized and others.",
    )
    budgets: list[BudgetStatus] | None = Field(
        default=None,
        max_length=64,
        json_schema_extra=_PAIR_KEYS,
        description="Shares and use, by pair.",
    )
    materialization: Materialization | None = Field(
        default=None, description="How far the node is in Kueue."
    )
    capacity: list[CapacityStatus] | None = Field(
        default=None,
        max_length=4096,
        json_schema_extra=_PAIR_KEYS,
        description="On root: the hardware, by pair.",
    )
    unattributed: list[UnattributedStatus] | None = Field(
        default=None,
        max_length=32,
        json_schema_extra=_ATOMIC,
        description="On root: hardware that counts for no flavor.",
    )
    controller: ControllerStatus | None = Field(
        default=None,
        description="On root: the controller that writes this tree. Another one refuses to.",
    )
