"""Every metric's name, labels and meaning, in one table: of the program, and of docs/metrics.md.

Label values are names of the tree, resources, flavors, kinds, and words of ours: their number is
bounded by the tree, and nothing that a user writes as free text becomes one.

Ages and durations are seconds, not the moments at which they began: a rule then compares no clocks,
and the clock of Prometheus may be wrong. Only the certificate's end is a moment, as everywhere.
"""

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

PREFIX: Final = "quota_translator"
_PAIR: Final = ("resource", "flavor")
_BUDGET: Final = ("plane", "quota", "role", "resource", "flavor")


class Family(msgspec.Struct, frozen=True):
    """One metric, without the prefix. A counter's series ends in `_total`."""

    name: str
    kind: Literal["gauge", "counter", "histogram"]
    labels: tuple[str, ...]
    text: str

    @property
    def shown(self) -> str:
        return f"{PREFIX}_{self.name}{'_total' if self.kind == 'counter' else ''}"


def _gauge(name: str, text: str, *labels: str) -> Family:
    return Family(name, "gauge", labels, text)


def _counter(name: str, text: str, *labels: str) -> Family:
    return Family(name, "counter", labels, text)


_CAPACITY: Final = (
    _gauge("capacity_allocatable", "On nodes that are Ready and not cordoned.", *_PAIR),
    _gauge("capacity_unavailable", "On nodes that are cordoned or not Ready.", *_PAIR),
    _gauge("capacity_unhealthy", "Devices that Ready nodes have but do not offer.", *_PAIR),
    _gauge(
        "capacity_nodes",
        "The nodes behind the first two: `schedulable` or `unavailable`.",
        *_PAIR,
        "state",
    ),
    _gauge("capacity_unattributed", "On nodes that belong to no flavor.", "resource", "reason"),
    _gauge("capacity_unattributed_nodes", "The nodes behind these, each once.", "reason"),
    _gauge("capacity_high_water_mark", "What budgets are checked against.", *_PAIR),
    _gauge(
        "capacity_declared",
        "What root's expectedCapacity says. Budgets are checked against the larger of the two.",
        *_PAIR,
    ),
    _gauge(
        "capacity_measurement_age_seconds",
        "Since the last good measurement, or since this process began to lead without one.",
    ),
    _gauge(
        "oversubscribed",
        "By how much the tree as a whole promises more than there is. Only while it does.",
        *_PAIR,
    ),
)
_TREE: Final = (
    _gauge("budget_nominal", "A budget's share.", *_BUDGET),
    _gauge("budget_limit", "Share and borrowingLimit of a team or enforced group.", *_BUDGET),
    _gauge("budget_admitted", "Admitted, borrowed included. Unknown: no series.", *_BUDGET),
    _gauge("budget_reserved", "Held by a quota reservation, admitted or not.", *_BUDGET),
    _gauge("budget_borrowed", "Admitted above the share.", *_BUDGET),
    _gauge("budget_idle", "A team's share that it does not use; others may borrow it.", *_BUDGET),
    _gauge(
        "budget_over_mark_seconds",
        "How long a budget above the high-water mark has frozen its node. Only while it does.",
        *_BUDGET,
    ),
    _gauge(
        "budget_over_share_seconds",
        "How long more has been admitted than share and borrowingLimit allow. Only while it is.",
        *_BUDGET,
    ),
    _gauge(
        "budget_at_limit_seconds",
        "How long scrapes of this process have found a team at its limit. Only while it is.",
        *_BUDGET,
    ),
    _gauge(
        "node_reason",
        "1 for each condition's present reason, the good ones too. Degraded has Ready's.",
        "quota",
        "condition",
        "reason",
    ),
)
_WRITES: Final = (
    _counter("backend_applied", "Writes of Kueue's objects, by what came.", "kind", "result"),
    _counter(
        "backend_swept",
        "Kueue's objects deleted: `finalize` after their node, `materialize` of one that stays.",
        "trigger",
    ),
    _counter("drift_repairs", "Objects that somebody changed and that were put back.", "kind"),
    _counter("retries", "Writes tried again after a failure.", "kind"),
    _gauge("writes_retrying", "Objects whose last write failed and is tried again."),
    _gauge("objects_waiting", "Objects not yet as wanted, for a shrink or a parent elsewhere."),
    _gauge("work_waiting_seconds", "How long a change has waited for a pass; 0: there is none."),
    _counter(
        "passes",
        "`done`, `incomplete` (a write did not succeed), `failed` (a fault of the program).",
        "outcome",
    ),
    Family("pass_duration_seconds", "histogram", (), "How long a pass took."),
    _counter("events", "Events: `created`, `counted` (the same again), `dropped`.", "outcome"),
)
_PROCESS: Final = (
    _counter(
        "requests",
        "Requests to the API server, by HTTP status or the error of none.",
        "verb",
        "kind",
        "code",
    ),
    _gauge("synced", "1 when all objects of a kind were read and are watched.", "kind"),
    _gauge(
        "watch_age_seconds",
        "Since the server was last heard of a kind: event, bookmark, or a watch opened again.",
        "kind",
    ),
    _gauge("leader", "1 while this process writes."),
    _gauge("leader_transitions", "How often the Lease went from one holder to another."),
    _gauge("rival_controller", "1 while another controller holds the tree: nothing is written."),
    _gauge("certificate_expiry_timestamp_seconds", "When the webhook's certificate expires."),
    _counter(
        "webhook_decisions",
        "Of the admission webhook: `allowed`, `warned`, `denied`, or `failed` to decide.",
        "operation",
        "outcome",
        "reason",
    ),
    Family("webhook_duration_seconds", "histogram", (), "How long the webhook took to answer."),
    _gauge("tasks", "asyncio tasks that have not ended. A number that only grows is a leak."),
    _gauge("build_info", "1, with the version.", "version", "python"),
)
# In the order of the documentation, under its headings.
SECTIONS: Final[Mapping[str, tuple[Family, ...]]] = {
    "Capacity": _CAPACITY,
    "The tree": _TREE,
    "Writes and passes": _WRITES,
    "The process": _PROCESS,
}
FAMILIES: Final[Mapping[str, Family]] = {
    family.name: family for section in SECTIONS.values() for family in section
}
