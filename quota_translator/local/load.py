"""Files and folders as a list of records, each of which knows where it was written.

Kinds that this program reads become records; other kinds are counted and skipped, because a GitOps
folder holds other things. Every fault is collected, so that one run tells them all.
"""

import gc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from quota_translator.core.names import API_VERSION, OME_API_VERSION, QUOTA_KIND
from quota_translator.local.documents import parse
from quota_translator.local.files import STANDARD_INPUT, Problem, find, read
from quota_translator.local.items import DocumentError, Item
from quota_translator.local.objects import (
    VERSIONS,
    Entry,
    RefusedError,
    kind_of,
    to_entry,
)
from quota_translator.local.quota_file import odd_amounts


class Content(msgspec.Struct, frozen=True):
    """What one file holds."""

    entries: tuple[Entry, ...] = ()
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()
    skipped: Mapping[str, int] = {}  # kinds that are not read, and how many of each
    ome: tuple[str, ...] = ()  # sources of objects with OME's apiVersion


class Loaded(msgspec.Struct, frozen=True):
    """Everything that was read. With problems, the entries are not the whole truth."""

    entries: tuple[Entry, ...]
    problems: tuple[Problem, ...]
    notes: tuple[str, ...] = ()
    by_source: Mapping[str, Entry] = {}  # the quotas, by where they stand

    def where(self, source: str, field: str) -> str:
        """The file and line of a field of the object that was read at `source`."""
        entry = self.by_source.get(source)
        if entry is None or not field:
            return source
        return f"{entry.file}:{entry.item.line_at(field)}"


def load(paths: Sequence[Path]) -> Loaded:
    """Read files and folders. Never raises for what they hold: every fault is a Problem."""
    files, problems = find(paths)
    loaded = combine(read_file(path) for path in files)
    problems += loaded.problems
    if not problems and not loaded.entries:
        problems.append(_nothing(paths, len(files), loaded.notes))
    return msgspec.structs.replace(loaded, problems=tuple(problems))


def _nothing(paths: Sequence[Path], files: int, notes: tuple[str, ...]) -> Problem:
    where = ", ".join(str(path) for path in paths) or "no path was given"
    kinds = ", ".join(VERSIONS)
    skipped = "".join(f"; {note}" for note in notes)
    message = f"nothing to read in {files} file(s): none of {kinds}{skipped}"
    return Problem(where, 0, message)


def combine(contents: Iterable[Content]) -> Loaded:
    """Files together: an object that stands twice is a problem; a quota is left to `check`."""
    entries: list[Entry] = []
    problems: list[Problem] = []
    notes: list[str] = []
    ome: list[str] = []
    skipped: dict[str, int] = {}
    for content in contents:
        entries += content.entries
        problems += content.problems
        notes += content.notes
        ome += content.ome
        for kind, count in content.skipped.items():
            skipped[kind] = skipped.get(kind, 0) + count
    problems += _twice(entries)
    return Loaded(
        entries=tuple(entries),
        problems=tuple(problems),
        notes=(*notes, *_ome_note(ome), *_skip_note(skipped)),
        by_source={entry.source: entry for entry in entries if entry.quota is not None},
    )


def _twice(entries: list[Entry]) -> list[Problem]:
    first: dict[tuple[str, str, str], Entry] = {}
    found: list[Problem] = []
    for entry in entries:
        if entry.kind == QUOTA_KIND:
            continue
        before = first.setdefault((entry.kind, entry.namespace, entry.name), entry)
        if before is not entry:
            message = f"{entry} stands here and at {before.source}: keep one of them"
            found.append(Problem(entry.file, entry.item.line, message))
    return found


def _ome_note(ome: list[str]) -> list[str]:
    if not ome:
        return []
    note = (
        f"{len(ome)} object(s) of apiVersion {OME_API_VERSION} are read as {API_VERSION} "
        f"(first at {ome[0]}); to convert a file, change its apiVersion, nothing else"
    )
    return [note]


def _skip_note(skipped: Mapping[str, int]) -> list[str]:
    if not skipped:
        return []
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(skipped.items()))
    return [f"skipped, because they are of no concern here: {kinds}"]


# --- one file ---------------------------------------------------------------------------------


def read_file(path: Path) -> Content:
    """One file's objects. A fault in one of them does not hide those of the others."""
    data = read(path)
    if isinstance(data, Problem):
        return Content(problems=(data,))
    return read_bytes(data, "<stdin>" if path == STANDARD_INPUT else str(path))


def read_bytes(data: bytes, file: str) -> Content:
    with _no_collector():
        return _read_bytes(data, file)


@contextmanager
def _no_collector() -> Iterator[None]:
    """A big file makes millions of short-lived objects, and the collector would visit them all
    again and again: three quarters of the time that it takes to read a cluster's nodes."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _read_bytes(data: bytes, file: str) -> Content:
    try:
        items = parse(data)
    except DocumentError as error:
        return Content(problems=(Problem(file, error.line, error.message),))
    reading = _Reading(file)
    for item in items:
        reading.take(item)
    return reading.content()


class _Reading:
    """What has been read of one file so far."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.entries: list[Entry] = []
        self.problems: list[Problem] = []
        self.notes: list[str] = []
        self.skipped: dict[str, int] = {}
        self.ome: list[str] = []

    def content(self) -> Content:
        return Content(
            tuple(self.entries),
            tuple(self.problems),
            tuple(self.notes),
            self.skipped,
            tuple(self.ome),
        )

    def take(self, item: Item) -> None:
        try:
            kind = kind_of(item)
            if kind in VERSIONS:
                self._keep(to_entry(kind, item, self.file), item)
            else:
                self.skipped[kind] = self.skipped.get(kind, 0) + 1
        except RefusedError as refused:
            self.problems += [Problem(self.file, line, text) for line, text in refused.faults]

    def _keep(self, entry: Entry, item: Item) -> None:
        self.entries.append(entry)
        if entry.kind == QUOTA_KIND:
            for line, message in odd_amounts(item):
                self.notes.append(f"{self.file}:{line}: {entry}: {message}")
            if item.value["apiVersion"] == OME_API_VERSION:
                self.ome.append(entry.source)
