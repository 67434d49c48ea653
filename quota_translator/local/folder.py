"""A folder that people edit: its files as they were when they last made sense.

A file that is broken, half-written or suddenly empty keeps what it held before, and is reported
once with file and line. A file that is gone is gone, and so is what it held.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from quota_translator.local.files import Problem, find
from quota_translator.local.load import Content, Loaded, combine, read_file

QUIET_NS: Final = 50_000_000  # a file that was written later than this ago may be half-written
Signature = tuple[int, int, int]
Report = Callable[[str], None]


class Scanned(msgspec.Struct, frozen=True):
    """One look at the folder.

    `unread`: files that never made sense, so nothing is complete. `news`: a line for every problem
    that is new since the last look, and for every file that reads well again or is gone. `young`: a
    file was written a moment ago and has not been read for that, so look again.
    """

    loaded: Loaded
    problems: tuple[Problem, ...]
    unread: tuple[Problem, ...]
    news: tuple[str, ...] = ()
    young: bool = False


class Folder:
    """Reads what changed since the last look. `scan` does I/O; run it in a thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._signatures: dict[Path, Signature | None] = {}
        self._good: dict[Path, Content] = {}
        self._bad: dict[Path, tuple[Problem, ...]] = {}
        self._told: frozenset[Problem] = frozenset()

    def scan(self) -> Scanned:
        files, missing = find([self._path])
        # A folder without files is an empty cluster, and no fault.
        lost = [] if not files and self._path.is_dir() else missing
        if not lost:
            self._forget(files)
        young = False
        for path in files:
            signature = _signature(path)
            if signature is not None and self._signatures.get(path) == signature:
                continue
            if path in self._good and _is_young(signature):
                young = True
                continue
            self._signatures[path] = signature
            self._read(path)
        loaded = combine(self._good[path] for path in files if path in self._good)
        bad = [problem for path in files for problem in self._bad.get(path, ())]
        problems = (*lost, *bad, *loaded.problems)
        unread = [self._bad[path][0] for path in files if path not in self._good]
        return Scanned(loaded, problems, (*lost, *unread), self._news(problems), young)

    def _forget(self, files: list[Path]) -> None:
        for path in self._signatures.keys() - set(files):
            del self._signatures[path]
            self._good.pop(path, None)
            self._bad.pop(path, None)

    def _read(self, path: Path) -> None:
        content, before = read_file(path), self._good.get(path)
        problems = content.problems
        if not problems and before and before.entries and _is_empty(path):
            held = len(before.entries)
            message = f"is empty: its {held} object(s) stay; delete the file to remove them"
            problems = (Problem(str(path), 0, message),)
        if problems:
            self._bad[path] = problems
            return
        self._bad.pop(path, None)
        self._good[path] = content

    def _news(self, problems: tuple[Problem, ...]) -> tuple[str, ...]:
        before, self._told = self._told, frozenset(problems)
        new = [f"{problem}{self._kept(problem)}" for problem in sorted(self._told - before)]
        mended = {problem.file for problem in before} - {problem.file for problem in problems}
        return (*new, *(f"{file}: {self._end(file)}" for file in sorted(mended)))

    def _end(self, file: str) -> str:
        is_there = any(str(path) == file for path in (self._path, *self._signatures))
        return "reads well again" if is_there else "is gone, and its fault with it"

    def _kept(self, problem: Problem) -> str:
        is_held = any(str(path) == problem.file for path in self._bad if path in self._good)
        is_told = problem.message.startswith("is empty")
        return " (its last good state stays)" if is_held and not is_told else ""


def _signature(path: Path) -> Signature | None:
    """Differs whenever the file was written or replaced. None: it cannot be told."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return (status.st_mtime_ns, status.st_size, status.st_ino)


def _is_young(signature: Signature | None) -> bool:
    return signature is not None and 0 <= time.time_ns() - signature[0] < QUIET_NS


def _is_empty(path: Path) -> bool:
    try:
        return path.stat().st_size == 0
    except OSError:
        return False
