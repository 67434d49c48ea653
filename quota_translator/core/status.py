"""What the controller says on the tree's own objects: one plain JSON status per node.

The fields are those of `core/model_status.py`. What is not known is absent; what is zero says "0".
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from quota_translator.core.actions import Plan
from quota_translator.core.capacity import Reading
from quota_translator.core.ceilings import declared
from quota_translator.core.conditions import (
    AMBIGUOUS_FLAVOR,
    ENVELOPE_OVERDRAWN,
    FOREIGN_MEMBER,
    OVERSUBSCRIBED,
    Finding,
    conditions,
    soundness,
    stored,
)
from quota_translator.core.envelope import enforced
from quota_translator.core.holder import FIELD, claimed
from quota_translator.core.inforce import InForce
from quota_translator.core.materialized import Materialized
from quota_translator.core.names import ROOT, Key, Pair
from quota_translator.core.notes import Note
from quota_translator.core.options import Options
from quota_translator.core.quantity import Quantity
from quota_translator.core.remembered import frozen_at, last_in_force
from quota_translator.core.render import Rendering
from quota_translator.core.rootstatus import ambiguity, capacity_rows, unattributed_rows
from quota_translator.core.sums import promisers
from quota_translator.core.times import stamp
from quota_translator.core.tree import Tree
from quota_translator.core.usage import Usage, Use, authored, over
from quota_translator.core.verdict import Frozen, Oversubscription, Verdict, listed
from quota_translator.core.world import Budget, CapacityRow, Clock, Memory, QuotaNode, World

_MOST_PROMISERS: Final = 3

Status = dict[str, Any]


def statuses(
    tree: Tree,
    verdict: Verdict,
    rendering: Rendering,
    plan: Plan,
    usage: Usage,
    capacity: Mapping[Pair, CapacityRow],
    reading: Reading | None,
    world: World,
    memory: Memory,
    options: Options,
    clock: Clock,
    notes: Iterable[Note] = (),
    written: frozenset[Key] = frozenset(),
    stamped: bool = False,
) -> dict[str, Status]:
    """The status of every node of the tree, broken ones included.

    `notes` and `written` are what applying the plan brought: faults, and the objects whose writes
    succeeded. `memory` holds the times from before this pass; what begins now gets the clock's.
    `stamped`: the capacity rows have a new stamp, so root is written anyhow.
    """
    reporter = _Reporter(tree, verdict, rendering, usage, memory, clock)
    manager = options.materialize.manager
    in_force = InForce(world, manager)
    materialized = None
    if options.materialize.enabled:
        materialized = Materialized(tree.nodes, rendering, plan, world, manager, notes, written)
    found = {
        name: reporter.status(node, materialized, in_force) for name, node in tree.nodes.items()
    }
    if ROOT in found:
        measured = bool(options.capacity.resources)
        _add_root(found[ROOT], tree.nodes[ROOT], capacity, reading, measured, clock)
        if memory.holder is not None:
            found[ROOT][FIELD] = claimed(
                tree.nodes[ROOT].status, memory.holder, clock, renew=stamped
            )
    return found


class _Reporter:
    """The parts that every node's status has."""

    def __init__(
        self,
        tree: Tree,
        verdict: Verdict,
        rendering: Rendering,
        usage: Usage,
        memory: Memory,
        clock: Clock,
    ) -> None:
        self._tree = tree
        self._verdict = verdict
        self._usage = usage
        self._memory = memory
        self._clock = clock
        self._extra = _extra_findings(tree, verdict, rendering)

    def status(
        self, node: QuotaNode, materialized: Materialized | None, in_force: InForce
    ) -> Status:
        frozen = self._verdict.frozen.get(node.name)
        findings = list(soundness(frozen))
        is_applied = False
        if materialized is not None:
            finding = materialized.finding(node.name, frozen)
            is_applied = finding.holds
            findings.append(finding)
        findings.extend(self._extra.get(node.name, ()))
        status: Status = {"observedGeneration": node.generation}
        if node.parent is not None:
            status["parent"] = node.parent
        if path := self._tree.path(node.name):
            status["path"] = path
        if node.budgets:
            status["summary"] = summary(node, self._usage.get(node.name, {}))
            status["budgets"] = self._budgets(node, in_force)
        status["conditions"] = conditions(node, findings, self._clock)
        status["materialization"] = self._materialization(node, frozen, is_applied)
        return status

    def _budgets(self, node: QuotaNode, in_force: InForce) -> list[dict[str, Any]]:
        uses, last = self._usage.get(node.name, {}), last_in_force(node.status)
        budgets = authored(node)
        return [
            self._budget(
                node,
                budgets[pair],
                uses.get(pair),
                in_force.share(node, budgets[pair], last.get(pair)),
            )
            for pair in sorted(budgets)
        ]

    def _budget(
        self, node: QuotaNode, budget: Budget, use: Use | None, share: Quantity | None
    ) -> dict[str, Any]:
        row: dict[str, Any] = {
            "resourceName": budget.resource,
            "resourceFlavor": budget.flavor,
            "nominal": budget.nominal.canonical(),
        }
        if share is not None:
            row["inForce"] = share.canonical()
        if use is None:
            return row
        excess = over(budget, use)
        row["admitted"] = use.admitted.canonical()
        row["reserved"] = use.reserved.canonical()
        row["borrowed"] = use.borrowed.canonical()
        row["over"] = excess.canonical()
        if excess:
            since = self._memory.over_since.get((node.name, budget.pair), self._clock.wall)
            row["overSince"] = stamp(since)
        return row

    def _materialization(
        self, node: QuotaNode, frozen: Frozen | None, is_applied: bool
    ) -> dict[str, Any]:
        before = node.status.get("materialization")
        before = before if isinstance(before, Mapping) else {}
        found: dict[str, Any] = {"frozen": frozen is not None}
        if frozen is not None:
            since = self._memory.frozen_since.get(node.name) or frozen_at(node.status)
            found["frozenAt"] = stamp(since or self._clock.wall)
            found["reason"] = frozen.reason
        applied = node.generation if is_applied else before.get("lastAppliedGeneration")
        if isinstance(applied, int):
            found["lastAppliedGeneration"] = applied
        return found


def summary(node: QuotaNode, uses: Mapping[Pair, Use]) -> str:
    """Pairs with used / share, and what may be borrowed: `nvidia.com/gpu a100 4/8+4`."""
    budgets = authored(node)
    return ", ".join(_summed(budgets[pair], uses.get(pair)) for pair in sorted(budgets))


def _summed(budget: Budget, use: Use | None) -> str:
    used = use.admitted.canonical() if use else "?"
    more = f"+{budget.borrowing_limit}" if budget.borrowing_limit else ""
    return f"{budget.resource} {budget.flavor} {used}/{budget.nominal}{more}"


# --- conditions that are there while they hold ------------------------------------------------


def _extra_findings(tree: Tree, verdict: Verdict, rendering: Rendering) -> dict[str, list[Finding]]:
    found: dict[str, list[Finding]] = {}
    overdrawn: dict[str, list[str]] = {}
    for (name, pair), envelope in sorted(rendering.overdrawn.items()):
        overdrawn.setdefault(name, []).append(f"{pair}: {envelope}")
    for name, told in overdrawn.items():
        finding = Finding(ENVELOPE_OVERDRAWN, True, ENVELOPE_OVERDRAWN, "; ".join(told))
        found.setdefault(name, []).append(finding)
    for name, members in sorted(rendering.foreign_members.items()):
        effect = "may be borrowed here beyond what the tree promises"
        if enforced(tree.nodes[name]):
            effect = "counts against the group's"
        told_members = (
            f"{listed(sorted(members))} stands beneath this group in Kueue without being of the "
            f"tree; its quota {effect}"
        )
        finding = Finding(FOREIGN_MEMBER, True, FOREIGN_MEMBER, told_members)
        found.setdefault(name, []).append(finding)
    if verdict.oversubscribed:
        sums = "; ".join(_oversubscribed(one, tree) for one in verdict.oversubscribed)
        finding = Finding(OVERSUBSCRIBED, True, OVERSUBSCRIBED, sums)
        found.setdefault(ROOT, []).append(finding)
    return found


def _oversubscribed(one: Oversubscription, tree: Tree) -> str:
    """With those that promise most of it: whom to ask first."""
    largest = [f"{name} {amount}" for name, amount in promisers(tree, one.pair)[:_MOST_PROMISERS]]
    return f"{one.message} (the largest: {', '.join(largest)})" if largest else one.message


def _add_root(
    status: Status,
    root: QuotaNode,
    capacity: Mapping[Pair, CapacityRow],
    reading: Reading | None,
    measured: bool,
    clock: Clock,
) -> None:
    """Root's own rows. Without a measurement in this pass the rows of the last one stay."""
    if capacity:
        status["capacity"] = capacity_rows(capacity, declared(root))
    if not measured:
        return
    if reading is None:
        kept = root.status.get("unattributed")
        if isinstance(kept, list) and kept:
            status["unattributed"] = kept
        known = stored(root.status).get(AMBIGUOUS_FLAVOR)
        status["conditions"] += [dict(known)] if known else []
        return
    if reading.unattributed:
        status["unattributed"] = unattributed_rows(reading.unattributed)
    message = ambiguity(reading.unattributed)
    if message:
        finding = Finding(AMBIGUOUS_FLAVOR, True, AMBIGUOUS_FLAVOR, message)
        status["conditions"] += conditions(root, [finding], clock)
