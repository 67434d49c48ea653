"""A plan as text, for people: plain characters, made for 100 columns, nothing ever cut off."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from quota_translator.core.conditions import MATERIALIZED
from quota_translator.core.names import LOCAL_QUEUE
from quota_translator.core.notes import PROGRESSING
from quota_translator.core.tree import Tree
from quota_translator.core.verdict import listed
from quota_translator.core.world import CapacityRow, QuotaNode
from quota_translator.local.changes import VERBS, Change
from quota_translator.local.present import View, violation_rows

GROUP_WORD = {"Cohort": "group", "ClusterQueue": "team"}
_WIDEST = 48  # of a column; longer entries push the rest of their line
_COLUMNS = 100
_MOST_CHANGES = 200  # entries; `-o json` has all of them


def text(view: View) -> str:
    """Capacity, tree, findings, changes, and a verdict in the last line."""
    sections = (
        _capacity(view),
        _tree(view),
        _violations(view),
        _findings(view),
        _changes(view.changes),
        _notes(view.notes),
        [verdict_line(view)],
    )
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


def tree_text(view: View) -> str:
    """The tree, what is wrong with it, and the verdict: what `run --local --once` prints."""
    sections = (_capacity(view), _tree(view), _violations(view), _findings(view))
    return "\n\n".join("\n".join(s) for s in (*sections, [verdict_line(view)]) if s) + "\n"


# --- capacity ---------------------------------------------------------------------------------


def _capacity(view: View) -> list[str]:
    rows = view.translation.capacity
    if not rows:
        return ["CAPACITY is not known, so budgets are not held to it."]
    head = ["CAPACITY", "MARK", "INSTALLED", "USABLE", "PARKED", "UNHEALTHY", "NODES"]
    table = [head, *(_capacity_row(rows[pair]) for pair in sorted(rows))]
    lines = _aligned(table, right=range(1, len(head)))
    for pair in sorted(rows):
        lines += [f"  {pair}: {told}" for told in _waits(rows[pair])]
    return lines


def _capacity_row(row: CapacityRow) -> list[str]:
    figures = (row.mark, row.installed, row.allocatable, row.unavailable, row.unhealthy)
    if not row.measured:
        return [str(row.pair), str(row.mark), *["-"] * 5]
    if not row.ever_seen:
        return [str(row.pair), *["0"] * 5, "none ever"]
    nodes = f"{row.nodes}+{row.unavailable_nodes}" if row.unavailable_nodes else str(row.nodes)
    return [str(row.pair), *(str(figure) for figure in figures), nodes]


def _waits(row: CapacityRow) -> Iterator[str]:
    for wait in row.pending:
        when = f" at {wait.until:%Y-%m-%d %H:%M:%S} UTC" if wait.until else " never"
        yield f"the mark becomes {wait.value}{when} if it lasts ({wait.kind})"


# --- the tree ---------------------------------------------------------------------------------


def _tree(view: View) -> list[str]:
    tree = view.translation.tree
    table = [["TREE", "ROLE", "READY", "IN KUEUE", "USED/SHARE"]]
    for name, stem, rest in _drawn(tree):
        table += _node_rows(view, tree.nodes[name], stem, rest)
    lines = _aligned(table)
    lost = [name for name in tree.nodes if not tree.is_reached(name)]
    if lost:
        table = [["WITHOUT A PLACE IN THE TREE", "ROLE", "READY", "IN KUEUE", "USED/SHARE"]]
        for name in lost:
            table += _node_rows(view, tree.nodes[name], "", "")
        lines += ["", *_aligned(table)]
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
    role = GROUP_WORD.get(node.role, node.role or "?")
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


# --- what is wrong, and what is to be known ---------------------------------------------------


def _violations(view: View) -> list[str]:
    rows = violation_rows(view)
    lines = [f"VIOLATIONS ({len(rows)})"] if rows else []
    for row in rows:
        where = f"{row['source']}: " if row["source"] else ""
        lines.append(f"  {where}{row['node']}: {row['reason']}: {row['message']}")
    return lines


def _findings(view: View) -> list[str]:
    """Everything that is no violation and yet not as one would wish."""
    found = []
    for name in view.order():
        rows = view.statuses.get(name, {}).get("conditions", [])
        found += [f"  {name}: {r['reason']}: {r['message']}" for r in rows if _is_finding(r)]
    reading = view.translation.reading
    for row in reading.unattributed if reading else ():
        flavors = f" between {', '.join(row.flavors)}" if row.flavors else ""
        found.append(
            f"  {row.quantity} {row.resource} on {row.nodes} node(s) count nowhere: {row.reason}"
            f"{flavors} (such as {', '.join(row.examples)})"
        )
    return ["FINDINGS", *found] if found else []


def _is_finding(row: Mapping[str, Any]) -> bool:
    if row["type"] in {"Ready", "Degraded"}:
        return False
    if row["type"] == MATERIALIZED:
        return row["status"] == "False" and row["reason"] not in {PROGRESSING, "Frozen"}
    return bool(row["status"] == "True")


def _notes(notes: Sequence[str]) -> list[str]:
    return ["NOTES", *(f"  {note}" for note in notes)] if notes else []


# --- changes ----------------------------------------------------------------------------------


def _changes(changes: Sequence[Change]) -> list[str]:
    if not changes:
        return ["CHANGES: none, Kueue's objects are as they should be."]
    lines = [f"CHANGES ({counts(changes)})"]
    blocks = [_block(same) for same in _together(changes)]
    for block in blocks[:_MOST_CHANGES]:
        lines += block
    if len(blocks) > _MOST_CHANGES:
        lines.append(f"  ... and {len(blocks) - _MOST_CHANGES} more (-o json shows all)")
    return lines


def _together(changes: Iterable[Change]) -> list[list[Change]]:
    """A team's LocalQueues are one entry, the other objects one each."""
    found: dict[object, list[Change]] = {}
    for change in changes:
        key: object = change.key
        if change.key.kind == LOCAL_QUEUE:
            key = (change.action, change.key.name, change.details, change.message)
        found.setdefault(key, []).append(change)
    return list(found.values())


def _block(same: Sequence[Change]) -> list[str]:
    """One line, or, where that would be too long, one more for each detail."""
    first = same[0]
    name = f"{first.key.kind} {first.key.name}"
    if first.key.kind == LOCAL_QUEUE:
        name += f" in {listed([change.key.namespace for change in same])}"
    told = [first.message] if first.message else list(_details(first))
    head = f"  {first.action:8} {name}"
    line = f"{head}: {'; '.join(told)}" if told else head
    if len(line) <= _COLUMNS:
        return [line]
    return [f"{head}:", *(f"             {part}" for part in told)]


def _details(change: Change) -> Iterator[str]:
    for detail in change.details:
        if change.action == "create":
            yield f"{detail.what} {detail.new}"
        else:
            yield f"{detail.what} {detail.old or 'none'} → {detail.new or 'none'}"
    if "labels" in change.fields:
        yield "labels"


def counts(changes: Iterable[Change]) -> str:
    """2 to create, 1 to update"""
    actions = [change.action for change in changes]
    told = [(verb, actions.count(verb)) for verb in VERBS]
    words = {"keep": "kept as they are", "conflict": "in conflict"}
    return ", ".join(f"{n} {words.get(verb, f'to {verb}')}" for verb, n in told if n)


def verdict_line(view: View) -> str:
    verdict = view.translation.verdict
    nodes = len(view.translation.tree.nodes)
    if not verdict.violations:
        return f"Sound: {nodes} nodes, no violation; {counts(view.changes) or 'nothing to change'}."
    blamed = len({violation.node for violation in verdict.violations})
    return (
        f"Not sound: {len(verdict.violations)} violation(s) on {blamed} of {nodes} nodes; "
        f"{len(verdict.frozen)} node(s) are frozen, and their Kueue objects stay as they are."
    )


def _aligned(table: Sequence[Sequence[str]], right: Iterable[int] = ()) -> list[str]:
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
