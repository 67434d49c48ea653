"""What the core needs to know of the settings; `settings.py` documents and validates them."""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from quota_translator.core.quantity import Quantity

DEFAULT_RESOURCES = ("google.com/tpu", "nvidia.com/gpu")
DEFAULT_COVER: Mapping[str, Quantity] = {
    "cpu": Quantity.parse("16M"),
    "ephemeral-storage": Quantity.parse("16Pi"),
    "memory": Quantity.parse("16Pi"),
}


# What a write may be warned about, and `webhook.deny` may refuse.
OVER_MARK = "OverMark"
NEVER_SEEN = "NeverSeen"
FLAVOR_MISSING = "FlavorMissing"
BELOW_ADMITTED = "BelowAdmitted"
OVERSUBSCRIBED = "Oversubscribed"
AMBIGUOUS_FLAVOR = "AmbiguousFlavor"
WARNINGS = (
    OVER_MARK,
    NEVER_SEEN,
    FLAVOR_MISSING,
    BELOW_ADMITTED,
    OVERSUBSCRIBED,
    AMBIGUOUS_FLAVOR,
)


class CapacityOptions(msgspec.Struct, frozen=True):
    """How hardware is measured and when a change is believed. All waits in seconds.

    `settle_after` None means never. OME's exact behaviour is `OME_CAPACITY`.
    """

    resources: tuple[str, ...] = DEFAULT_RESOURCES  # exact names; empty turns measuring off
    hysteresis_percent: int = 10
    growth: Literal["Installed", "Usable"] = "Installed"
    grow_after: float = 0.0
    drop_after: float = 30.0
    settle_after: float | None = 24 * 3600.0
    report_interval: float = 60.0  # 0: unchanged rows are never stamped anew


OME_CAPACITY = CapacityOptions(drop_after=0.0, settle_after=None)


class MaterializeOptions(msgspec.Struct, frozen=True):
    """What is written to Kueue. With neither a list nor a selector nothing is written at all."""

    manager: str = "quota-translator"  # the value of the managed-by label
    enrolled_namespaces: tuple[str, ...] = ()
    namespace_selector: Mapping[str, Any] | None = None  # a Kubernetes LabelSelector
    cover: bool = True
    cover_resources: Mapping[str, Quantity] = msgspec.field(default_factory=lambda: DEFAULT_COVER)
    # Seconds for which an object stays whose node vanished without having been released.
    orphan_after: float = 60.0

    @property
    def enabled(self) -> bool:
        return bool(self.enrolled_namespaces) or self.namespace_selector is not None


class Options(msgspec.Struct, frozen=True):
    capacity: CapacityOptions = CapacityOptions()
    materialize: MaterializeOptions = MaterializeOptions()
    max_tree_depth: int = 5  # edges below root; 0 is no bound
    usage_interval: float = 5.0  # at most one write of mere use per node in this many seconds
    workload_names: bool = False  # list the workloads that keep a deleted node's queue
