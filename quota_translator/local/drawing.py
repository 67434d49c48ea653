"""The tree as people see it, and columns."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from quota_translator.core.conditions import MATERIALIZED
from quota_translator.core.notes import PROGRESSING
from quota_translator.core.tree import Tree
from quota_translator.core.world import QuotaNode
from quota_translator.local.present import View

_ROLES: Final = {"Cohort": "group", "ClusterQueue": "team"}
_WIDEST: Final = 48  # of a column; longer entries push the rest of their line


def tree_lines(view: View) -> list[str]:
    tree = view.translation.tree
    table = [["TREE", "ROLE", "READY", "IN KUEUE", "USED/SHARE"]]
    for name, stem, rest in _drawn(tree):
        table += _node_rows(view, tree.nodes[name], stem, rest)
    lines = aligned(table)
    lost = [name for name in tree.nodes if not tree.is_reached(name)]
    if lost:
        table = [["WITHOUT A PLACE IN THE TREE", "ROLE", "READY", "IN KUEUE", "USED/SHARE"]]
        for name in lost:
            table += _node_rows(view, tree.nodes[name], "", "")
        lines += ["", *aligned(table)]
    return lines


def _drawn(tree: Tree) -> Iterator[tuple[str, str, str]]:
    """(name, what stands before it, what stands before its further lines), root first."""
    if not tree.order:
        return
    todo = [(tree.order[0], "", "")]
    while todo:
        name, stem, below = todo.pop()
        children = [child for child in tree.children(name) if tree.is_reached(child)]
        yield name, stem, below + ("│  " if children else "   ")
        branches = [
            (child, f"{below}{'└─' if last else '├─'} ", f"{below}{'   ' if last else '│  '}")
            for child in children
            for last in [child == children[-1]]
        ]
        todo += reversed(branches)


def _node_rows(view: View, node: QuotaNode, stem: str, rest: str) -> Iterator[list[str]]:
    status = view.statuses.get(node.name, {})
    conditions = {row["type"]: row for row in status.get("conditions", [])}
    ready = _condition(conditions.get("Ready"))
    written = _condition(conditions.get(MATERIALIZED))
    shares = [share_text(node, row) for row in status.get("budgets", [])] or ["-"]
    role = _ROLES.get(node.role, node.role or "?")
    yield [f"{stem}{node.name}", role, ready, written, shares[0]]
    for share in shares[1:]:
        yield [rest.rstrip(), "", "", "", share]


def _condition(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return "-"
    if row["status"] == "True":
        return "yes"
    return "not yet" if row["reason"] == PROGRESSING else str(row["reason"])


def share_text(node: QuotaNode, row: Mapping[str, Any]) -> str:
    """0/8+4 nvidia.com/gpu on a100"""
    names = (row["resourceName"], row["resourceFlavor"])
    budget = next((b for b in node.budgets if tuple(b.pair) == names), None)
    share = f"{row.get('admitted', '?')}/{row['nominal']}"
    words = []
    if budget is not None:
        share += f"+{budget.borrowing_limit}" if budget.borrowing_limit else ""
        if budget.lending_limit is not None:
            words.append(f"lends {budget.lending_limit}")
        if budget.enforced:
            words.append("enforced")
    more = f" ({', '.join(words)})" if words else ""
    return f"{share} {names[0]} on {names[1]}{more}"


def aligned(table: Sequence[Sequence[str]], right: Iterable[int] = ()) -> list[str]:
    """Columns two spaces apart; those in `right` are aligned to the right, as numbers are."""
    ends = set(right)
    widths = [
        max((len(row[column]) for row in table if len(row[column]) <= _WIDEST), default=0)
        for column in range(len(table[0]))
    ]
    lines = []
    for row in table:
        parts = [
            cell.rjust(width) if column in ends else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(parts).rstrip())
    return lines
