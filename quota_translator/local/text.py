"""A plan as text, for people: plain characters, made for 100 columns, nothing ever cut off."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from quota_translator.core.ceilings import declared
from quota_translator.core.conditions import MATERIALIZED
from quota_translator.core.names import LOCAL_QUEUE, ROOT
from quota_translator.core.notes import PROGRESSING
from quota_translator.core.verdict import listed
from quota_translator.core.world import CapacityRow
from quota_translator.local.changes import VERBS, Change
from quota_translator.local.drawing import aligned, tree_lines
from quota_translator.local.present import View, violation_rows

_COLUMNS = 100
_MOST_CHANGES = 200  # entries; `-o json` has all of them


def text(view: View) -> str:
    """Capacity, tree, findings, changes, and a verdict in the last line."""
    sections = (
        _capacity(view),
        tree_lines(view),
        violation_lines(view),
        finding_lines(view),
        change_lines(view.changes),
        _notes(view.notes),
        [verdict_line(view)],
    )
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


def tree_text(view: View) -> str:
    """The tree, what is wrong with it, and the verdict: what `run --local --once` prints."""
    sections = (_capacity(view), tree_lines(view), violation_lines(view), finding_lines(view))
    return "\n\n".join("\n".join(s) for s in (*sections, [verdict_line(view)]) if s) + "\n"


# --- capacity ---------------------------------------------------------------------------------


def _capacity(view: View) -> list[str]:
    rows = view.translation.capacity
    if not rows:
        return ["CAPACITY is not known, so budgets are not held to it."]
    head = ["CAPACITY", "MARK", "INSTALLED", "USABLE", "PARKED", "UNHEALTHY", "NODES"]
    table = [head, *(_capacity_row(rows[pair]) for pair in sorted(rows))]
    lines = aligned(table, right=range(1, len(head)))
    for pair in sorted(rows):
        lines += [f"  {pair}: {told}" for told in _waits(rows[pair])]
    for pair, amount in sorted(declared(view.translation.tree.nodes.get(ROOT)).items()):
        lines.append(f"  {pair}: root declares {amount}; the larger of this and the mark counts")
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


# --- what is wrong, and what is to be known ---------------------------------------------------


def violation_lines(view: View) -> list[str]:
    rows = violation_rows(view)
    lines = [f"VIOLATIONS ({len(rows)})"] if rows else []
    for row in rows:
        where = f"{row['source']}: " if row["source"] else ""
        lines.append(f"  {where}{row['node']}: {row['reason']}: {row['message']}")
    return lines


def finding_lines(view: View) -> list[str]:
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


def change_lines(changes: Sequence[Change]) -> list[str]:
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
        told = "1 node" if nodes == 1 else f"{nodes} nodes"
        return f"Sound: {told}, no violation; {counts(view.changes) or 'nothing to change'}."
    blamed = len({violation.node for violation in verdict.violations})
    return (
        f"Not sound: {len(verdict.violations)} violation(s) on {blamed} of {nodes} nodes; "
        f"{len(verdict.frozen)} node(s) are frozen, and their Kueue objects stay as they are."
    )
