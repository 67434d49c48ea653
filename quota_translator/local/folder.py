"""A folder that people edit: its files as they were when they last made sense.

A file that is broken, half-written or suddenly empty keeps what it held before, and is reported
once with file and line. A file that is gone is gone, and so is what it held.
"""

import os
from collections.abc import Callable
from pathlib import Path

import msgspec

from quota_translator.local.files import Problem, find
from quota_translator.local.load import Content, Loaded, combine, read_file

Signature = tuple[int, int, int]
Report = Callable[[str], None]


class Scanned(msgspec.Struct, frozen=True):
    """One look at the folder. `unread`: files that never made sense, so nothing is complete."""

    loaded: Loaded
    problems: tuple[Problem, ...]
    unread: tuple[Problem, ...]
    changed: bool


class Folder:
    """Reads what changed since the last look. `scan` does I/O; run it in a thread."""

    def __init__(self, path: Path, report: Report) -> None:
        self._path = path
        self._report = report
        self._signatures: dict[Path, Signature | None] = {}
        self._good: dict[Path, Content] = {}
        self._bad: dict[Path, tuple[Problem, ...]] = {}
        self._told: frozenset[Problem] = frozenset()

    def scan(self) -> Scanned:
        files, missing = find([self._path])
        # A folder without files is an empty cluster, and no fault.
        lost = [] if not files and self._path.is_dir() else missing
        changed = self._forget(files) if not lost else False
        for path in files:
            signature = _signature(path)
            if signature is None or self._signatures.get(path) != signature:
                self._signatures[path] = signature
                changed |= self._read(path)
        loaded = combine(self._good[path] for path in files if path in self._good)
        bad = [problem for path in files for problem in self._bad.get(path, ())]
        problems = (*lost, *bad, *loaded.problems)
        self._tell(problems)
        unread = [self._bad[path][0] for path in files if path not in self._good]
        return Scanned(loaded, problems, (*lost, *unread), changed)

    def _forget(self, files: list[Path]) -> bool:
        gone = self._signatures.keys() - set(files)
        for path in gone:
            del self._signatures[path]
            self._good.pop(path, None)
            self._bad.pop(path, None)
        return bool(gone)

    def _read(self, path: Path) -> bool:
        content, before = read_file(path), self._good.get(path)
        problems = content.problems
        if not problems and before and before.entries and _is_empty(path):
            held = len(before.entries)
            message = f"is empty: its {held} object(s) stay; delete the file to remove them"
            problems = (Problem(str(path), 0, message),)
        if problems:
            self._bad[path] = problems
            return before is None
        self._bad.pop(path, None)
        self._good[path] = content
        return True

    def _tell(self, problems: tuple[Problem, ...]) -> None:
        """Say what is new, and when all is well again."""
        now = frozenset(problems)
        for problem in sorted(now - self._told):
            kept = "" if problem.message.startswith("is empty") else " (its last good state stays)"
            self._report(f"{problem}{kept}")
        for file in sorted({p.file for p in self._told} - {p.file for p in now}):
            self._report(f"{file}: reads well again")
        self._told = now


def _signature(path: Path) -> Signature | None:
    """Differs whenever the file was written or replaced. None: it cannot be told."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return (status.st_mtime_ns, status.st_size, status.st_ino)


def _is_empty(path: Path) -> bool:
    try:
        return path.stat().st_size == 0
    except OSError:
        return False
