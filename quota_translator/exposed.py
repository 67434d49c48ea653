"""What a scrape shows of the last pass: the gauges' values.

They are made whenever somebody scrapes, so a series is gone as soon as its cause is.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Final

import msgspec
from prometheus_client.metrics_core import GaugeMetricFamily, Metric

from quota_translator.core.capacity import Reading
from quota_translator.core.ceilings import declared
from quota_translator.core.conditions import DEGRADED
from quota_translator.core.names import CLUSTER_QUEUE, ROOT, Pair
from quota_translator.core.quantity import ZERO, Quantity
from quota_translator.core.tree import Tree
from quota_translator.core.usage import Usage, authored
from quota_translator.core.verdict import CAPACITY_EXCEEDED, Oversubscription, Violation
from quota_translator.core.world import Budget, CapacityRow, QuotaNode
from quota_translator.families import FAMILIES

PLANE: Final = "workload"

Labels = tuple[str, ...]
Values = dict[Labels, float]
AtLimit = Mapping[tuple[str, Pair], float]  # since which steady moment


class View(msgspec.Struct, frozen=True):
    """The last pass, as far as it is shown."""

    tree: Tree
    usage: Usage = {}
    capacity: Mapping[Pair, CapacityRow] = {}
    violations: tuple[Violation, ...] = ()
    oversubscribed: tuple[Oversubscription, ...] = ()
    frozen_since: Mapping[str, datetime] = {}
    over_since: Mapping[tuple[str, Pair], datetime] = {}
    statuses: Mapping[str, Mapping[str, object]] = {}
    retrying: int = 0
    waiting: int = 0


def gauge(name: str, values: Values) -> Metric:
    """A gauge of the table of families."""
    family = FAMILIES[name]
    found = GaugeMetricFamily(family.shown, family.text, labels=family.labels)
    for key, value in values.items():
        found.add_metric(key, value)
    return found


# --- capacity -----------------------------------------------------------------------------------


def measured(reading: Reading) -> Iterator[Metric]:
    """The gauges of the last measurement."""
    pairs = [(tuple(pair), row) for pair, row in reading.pairs.items()]
    yield gauge("capacity_allocatable", {pair: float(row.allocatable) for pair, row in pairs})
    yield gauge("capacity_unavailable", {pair: float(row.unavailable) for pair, row in pairs})
    yield gauge("capacity_unhealthy", {pair: float(row.unhealthy) for pair, row in pairs})
    nodes: Values = {}
    for pair, row in pairs:
        nodes[*pair, "schedulable"] = row.nodes
        nodes[*pair, "unavailable"] = row.unavailable_nodes
    yield gauge("capacity_nodes", nodes)
    loose: Values = {}
    for group in reading.unattributed:
        key = (group.resource, group.reason)
        loose[key] = loose.get(key, 0.0) + float(group.quantity)
    yield gauge("capacity_unattributed", loose)
    counts: Values = {(reason,): count for reason, count in reading.unattributed_nodes.items()}
    yield gauge("capacity_unattributed_nodes", counts)


def believed(view: View) -> Iterator[Metric]:
    """The marks, and what is promised beyond them."""
    marks = {tuple(pair): float(row.mark) for pair, row in view.capacity.items()}
    yield gauge("capacity_high_water_mark", marks)
    said = declared(view.tree.nodes.get(ROOT))
    # Of what root may declare only what is measured has series: names are free text there.
    vouched = {tuple(pair): float(said[pair]) for pair in view.capacity if pair in said}
    yield gauge("capacity_declared", vouched)
    excess = {tuple(one.pair): float(one.excess) for one in view.oversubscribed}
    yield gauge("oversubscribed", excess)


# --- the tree -----------------------------------------------------------------------------------


def _named(tree: Tree) -> Iterator[tuple[QuotaNode, Pair, Budget, Labels]]:
    """Every budget, with its labels. A node without a name has no series."""
    for name, node in tree.nodes.items():
        for pair, budget in authored(node).items() if name else ():
            yield node, pair, budget, (PLANE, name, node.role, *pair)


def _limit(node: QuotaNode, budget: Budget) -> Quantity | None:
    if node.role != CLUSTER_QUEUE and not budget.enforced:
        return None
    return budget.nominal + (budget.borrowing_limit or ZERO)


def budgets(view: View) -> Iterator[Metric]:
    """Sums over all nodes count a share once a level: filter by role."""
    names = ("nominal", "limit", "admitted", "reserved", "borrowed", "idle")
    figures: dict[str, Values] = {name: {} for name in names}
    for node, pair, budget, key in _named(view.tree):
        figures["nominal"][key] = float(budget.nominal)
        if (limit := _limit(node, budget)) is not None:
            figures["limit"][key] = float(limit)
        if use := view.usage.get(node.name, {}).get(pair):
            figures["admitted"][key] = float(use.admitted)
            figures["reserved"][key] = float(use.reserved)
            figures["borrowed"][key] = float(use.borrowed)
            if node.role == CLUSTER_QUEUE:
                figures["idle"][key] = max(0.0, float(budget.nominal - use.admitted))
    for name, values in figures.items():
        yield gauge(f"budget_{name}", values)


def durations(view: View, at_limit: AtLimit, wall: datetime, steady: float) -> Iterator[Metric]:
    """How long something has been so, of the budgets of which it is so now."""
    blamed = {(v.node, v.subject) for v in view.violations if v.reason == CAPACITY_EXCEEDED}
    over_mark: Values = {}
    over_share: Values = {}
    pinned: Values = {}
    for node, pair, _budget, key in _named(view.tree):
        if blamed and (node.name, str(pair)) in blamed:
            over_mark[key] = _seconds(view.frozen_since.get(node.name, wall), wall)
        if (since := view.over_since.get((node.name, pair))) is not None:
            over_share[key] = _seconds(since, wall)
        if (moment := at_limit.get((node.name, pair))) is not None:
            pinned[key] = max(0.0, steady - moment)
    yield gauge("budget_over_mark_seconds", over_mark)
    yield gauge("budget_over_share_seconds", over_share)
    yield gauge("budget_at_limit_seconds", pinned)


def _seconds(since: datetime, wall: datetime) -> float:
    return max(0.0, (wall - since).total_seconds())


def pinned(view: View, before: AtLimit, steady: float) -> dict[tuple[str, Pair], float]:
    """The teams' budgets that are used up to their limit, and since which moment."""
    found: dict[tuple[str, Pair], float] = {}
    for node, pair, budget, _ in _named(view.tree):
        use = view.usage.get(node.name, {}).get(pair) if node.role == CLUSTER_QUEUE else None
        limit = _limit(node, budget)
        if use is not None and limit is not None and use.admitted and use.admitted >= limit:
            found[node.name, pair] = before.get((node.name, pair), steady)
    return found


def reasons(view: View) -> Metric:
    """Every condition's reason, but Degraded's, which is Ready's."""
    found: Values = {}
    for name, status in view.statuses.items():
        rows = status.get("conditions")
        for row in rows if name and isinstance(rows, list) else ():
            if row["type"] != DEGRADED:
                found[name, row["type"], row["reason"]] = 1.0
    return gauge("node_reason", found)
