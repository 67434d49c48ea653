"""One-line builders of records, so that a test shows only what it is about.

A budget is written `gpu a100 16 +4 -8 !`: resource, flavor, nominal, borrowingLimit (+),
lendingLimit (-), and ! when it is enforced. A row of capacity is written `gpu a100 32`, or
`gpu a100 never` when no node has ever reported the pair. `gpu="16 +4"` is short for
`gpu a100 16 +4`, and so is `tpu`.
"""

from collections.abc import Mapping
from typing import Any

from quota_translator.core.check import Context, Verdict, check
from quota_translator.core.names import ROOT, Pair
from quota_translator.core.quantity import ZERO, Quantity
from quota_translator.core.tree import grow
from quota_translator.core.world import Budget, CapacityRow, Flavor, QuotaNode

RESOURCES = {"gpu": "nvidia.com/gpu", "tpu": "google.com/tpu"}
FLAVOR = "a100"
A100 = "nvidia.com/gpu on a100"
FLAVORS = (Flavor("a100"), Flavor("h100"))
_SHORT = tuple(RESOURCES)


def pair(text: str) -> Pair:
    resource, flavor = text.split()
    return Pair(RESOURCES.get(resource, resource), flavor)


def budget(text: str, index: int = 0, **fields: Any) -> Budget:
    resource, flavor, nominal, *rest = text.split()
    limits = {token[0]: Quantity.parse(token[1:]) for token in rest if token != "!"}
    return Budget(
        *pair(f"{resource} {flavor}"),
        nominal=Quantity.parse(nominal),
        borrowing_limit=limits.get("+"),
        lending_limit=limits.get("-"),
        enforced=True if "!" in rest else None,
        index=index,
        **fields,
    )


def node(
    name: str, *budgets: str | Budget, parent: str | None = "", role: str = "Cohort", **fields: Any
) -> QuotaNode:
    """A group unless `role` says otherwise; its parent is root unless given."""
    short = [f"{word} {FLAVOR} {fields.pop(word)}" for word in _SHORT if word in fields]
    return QuotaNode(
        name=name,
        role=role,
        parent=(None if name == ROOT else ROOT) if parent == "" else parent,
        budgets=tuple(
            budget(entry, index) if isinstance(entry, str) else entry
            for index, entry in enumerate((*short, *budgets))
        ),
        **fields,
    )


def root(*budgets: str | Budget, **fields: Any) -> QuotaNode:
    return node(ROOT, *budgets, **fields)


def team(name: str, *budgets: str | Budget, parent: str = "", **fields: Any) -> QuotaNode:
    return node(name, *budgets, parent=parent, role="ClusterQueue", **fields)


def rows(*marks: str, **short: str | int) -> Mapping[Pair, CapacityRow]:
    """Rows of capacity in which everything that is installed is usable and believed."""
    texts = [*marks, *(f"{word} {FLAVOR} {mark}" for word, mark in short.items())]
    found = {}
    for text in texts:
        *names, mark = text.split()
        key = pair(" ".join(names))
        amount = ZERO if mark == "never" else Quantity.parse(mark)
        found[key] = CapacityRow(
            pair=key,
            allocatable=amount,
            unavailable=ZERO,
            unhealthy=ZERO,
            installed=amount,
            mark=amount,
            ever_seen=mark != "never",
        )
    return found


def judged(*nodes: QuotaNode, **context: Any) -> Verdict:
    """The verdict on a tree of these nodes, in a context of these fields."""
    return check(grow(nodes), Context(**context))


def identities(verdict: Verdict) -> list[tuple[str, str, str]]:
    """Of each violation the node, the reason and the subject, in the verdict's order."""
    return [violation.identity for violation in verdict.violations]
