"""Records into a table for people and a file for machines."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from bench.fit import exponent
from bench.measure import Machine, Record
from bench.sizes import SIZES, Size

MOST_GROWTH: Final = 1.1
# Figures that have a target: by size, in the figure's unit. P1, M1, W1 … are the names under
# which the targets are kept.
TARGETS: Final[dict[str, tuple[str, dict[str, float]]]] = {
    "measure + marks": ("P1", {"M": 0.002, "L": 0.006}),
    "measure again after one event": ("P1", {"M": 0.002, "L": 0.006}),
    "pipeline unchanged": ("P2", {"L": 0.150}),
    "pipeline cold": ("P2", {"L": 0.400}),
    "sync: longest block": ("", {"S": 0.050, "M": 0.050, "L": 0.050}),
    "passes in a thread: longest wait": ("", {"S": 0.050, "M": 0.050, "L": 0.050}),
    "after four passes: RSS": ("M1", {"S": 100.0, "M": 110.0, "L": 150.0}),
    "sync: peak RSS": ("M2", {"L": 220.0}),
    "webhook, 1 at once: p99": ("W1", {"L": 0.005}),
    "webhook, 16 at once: p99": ("W1", {"L": 0.015}),
    "webhook, 64 at once: p99": ("W1", {"L": 0.110}),
    "webhook while nodes are read: p99": ("W2", {"L": 0.100}),
}
# How cost is to grow with what it looks at. Memory counts what came on top of the imports.
GROWTH: Final[dict[str, Callable[[Size], int]]] = {
    "decode nodes": lambda size: size.nodes,
    "measure + marks": lambda size: size.nodes,
    "measure again after one event": lambda size: size.nodes,
    "pipeline cold": lambda size: size.records,
    "pipeline unchanged": lambda size: size.records,
    "statuses": lambda size: size.teams + size.cohorts,
    "sync: CPU": lambda size: size.records,
    "after four passes: RSS": lambda size: size.records,
}
_BASE: Final = {"after four passes: RSS": "imports: RSS"}
_FITTED: Final = ("S", "M", "L")


class Growth(msgspec.Struct, frozen=True):
    figure: str
    exponent: float
    sizes: tuple[str, ...]


class Report(msgspec.Struct, frozen=True):
    machine: Machine
    records: tuple[Record, ...]
    growth: tuple[Growth, ...]


def growth(records: Iterable[Record]) -> tuple[Growth, ...]:
    """The exponents over S, M and L, of the least of all runs: noise only ever adds."""
    by_place = {(record.figure, record.size): record.least for record in records}
    found = []
    for figure, count in GROWTH.items():
        base = _BASE.get(figure)
        sizes = [name for name in _FITTED if (figure, name) in by_place]
        costs = [
            by_place[figure, name] - (by_place.get((base, name), 0.0) if base else 0.0)
            for name in sizes
        ]
        if len(sizes) > 1 and min(costs) > 0:
            slope = exponent([count(SIZES[name]) for name in sizes], costs)
            found.append(Growth(figure, round(slope, 2), tuple(sizes)))
    return tuple(found)


def table(report: Report) -> str:
    """Markdown: a row a figure, a column a size, then targets and growth."""
    sizes = [name for name in SIZES if any(record.size == name for record in report.records)]
    head = ["figure", *sizes, "target", "growth"]
    figures = list(dict.fromkeys(record.figure for record in report.records))
    rows = [head, ["---"] * len(head), *(_row(figure, sizes, report) for figure in figures)]
    return "\n".join([_caption(report), "", *(f"| {' | '.join(row)} |" for row in rows)]) + "\n"


def _caption(report: Report) -> str:
    about = report.machine
    return (
        f"Commit {about.commit}, Python {about.python}, {about.cores} cores of {about.machine}, "
        f"load {about.load[0]} to {about.load[1]}, {about.at}. Least of n runs (median, most; n)."
    )


def _row(figure: str, sizes: Sequence[str], report: Report) -> list[str]:
    by_size = {record.size: record for record in report.records if record.figure == figure}
    slopes = {growth.figure: growth.exponent for growth in report.growth}
    name, targets = TARGETS.get(figure, ("", {}))
    unit = next(iter(by_size.values())).unit
    told = " · ".join(f"{size} ≤ {_amount(most, unit)}" for size, most in targets.items())
    slope = f"{slopes[figure]:.2f} (≤ {MOST_GROWTH})" if figure in slopes else ""
    cells = [_cell(by_size.get(size), targets.get(size)) for size in sizes]
    return [figure, *cells, f"{name} {told}".strip(), slope]


def _cell(record: Record | None, target: float | None) -> str:
    if record is None:
        return ""
    missed = " **over**" if target is not None and record.least > target else ""
    spread = f"{_amount(record.median, record.unit)}, {_amount(record.most, record.unit)}"
    return f"{_amount(record.least, record.unit)}{missed} ({spread}; {record.n})"


def _amount(value: float, unit: str) -> str:
    return f"{value * 1000:.3g} ms" if unit == "s" else f"{value:.3g} {unit}"


def write(report: Report, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "latest.json"
    file.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n")
    return file
