"""Run subjects, each several times in processes of its own, and gather what they found."""

import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from bench.sizes import Size

ROOT: Final = Path(__file__).resolve().parent.parent
PATIENCE: Final = 600.0


class Record(msgspec.Struct, frozen=True):
    """One figure at one size, over all runs."""

    figure: str
    size: str
    unit: str
    median: float
    least: float
    most: float
    n: int


class Machine(msgspec.Struct, frozen=True):
    """Where and of what a run tells."""

    commit: str
    python: str
    machine: str
    cores: int
    load: tuple[float, float]  # of the last minute, when the run began and when it ended
    at: str


def run(subject: str, size: Size, place: Path, processes: int) -> list[Record]:
    """Every figure of a subject at a size. Raises CalledProcessError when a process fails."""
    found: dict[tuple[str, str], list[float]] = {}
    for _ in range(processes):
        command = [sys.executable, "-m", "bench.subjects", subject, str(place)]
        ran = subprocess.run(
            command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True, timeout=PATIENCE
        )
        for line in ran.stdout.splitlines():
            figure, unit, value = json.loads(line)
            found.setdefault((figure, unit), []).append(value)
    return [summed_up(figure, size.name, unit, values) for (figure, unit), values in found.items()]


def summed_up(figure: str, size: str, unit: str, values: Iterable[float]) -> Record:
    ordered = sorted(values)
    median = statistics.median(ordered)
    return Record(figure, size, unit, median, ordered[0], ordered[-1], len(ordered))


def machine(commit_before: str, load_before: float) -> Machine:
    """What is true now, beside what was when the run began."""
    after = commit()
    return Machine(
        commit=after if after == commit_before else f"{commit_before} to {after}",
        python=platform.python_version(),
        machine=_processor(),
        cores=os.cpu_count() or 0,
        load=(load_before, load()),
        at=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def load() -> float:
    return round(os.getloadavg()[0], 1)


def commit() -> str:
    """The commit that is checked out, with a + when its files have been edited."""

    def git(*arguments: str) -> str:
        ran = subprocess.run(
            ["git", *arguments],
            cwd=ROOT,
            check=False,
            capture_output=True,
            text=True,
        )
        return ran.stdout.strip()

    changed = git("status", "--porcelain", "--", "quota_translator", "bench/*.py")
    return (git("rev-parse", "--short=12", "HEAD") or "unknown") + ("+" if changed else "")


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()
