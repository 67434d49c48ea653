"""What is known of one kind: records by key, and whether they may be believed.

Records come in three ways: whole lists, watch events in order, and the answers of our own writes,
which are faster than the watch. Versions decide between an answer and an event; they are compared
as numbers where they are numbers (all API servers of today), else the later arrival counts.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Generic

import msgspec

from quota_translator.kube.decode import K, R


class Replaced(msgspec.Struct, Generic[K], frozen=True):
    """What a new list changed: keys that are gone, and whether anything differs at all."""

    deleted: tuple[K, ...]
    changed: bool


class Store(Generic[K, R]):
    """Records of one kind. Written by its reflector and by answers, read through snapshots.

    `synced` is False until the first list, and again while no list can be had: then the records
    are the last good ones, and `reason` says why no newer ones came. `generation` grows with every
    change, so that readers can tell whether anything happened.
    """

    def __init__(
        self,
        kind: str,
        key: Callable[[R], K],
        version: Callable[[R], str],
        dirty: Callable[[str], None] = lambda _kind: None,
    ) -> None:
        self.kind = kind
        self.synced = False
        self.decided = False  # synced once, or told why it is not
        self.reason = f"{kind} objects have not been listed yet"
        self.generation = 0
        self.dirty = dirty
        self._key = key
        self._version = version
        self._records: dict[K, R] = {}
        self._shared = False  # a snapshot holds self._records
        self._values: tuple[R, ...] | None = None
        self._seen = ""  # the version up to which list and watch have shown everything
        self._listing = False
        self._answers: dict[K, R | None] = {}  # writes answered while a list is on its way

    # --- reading --------------------------------------------------------------------------

    def snapshot(self) -> Mapping[K, R]:
        """All records of this moment. Costs nothing: the next change copies."""
        self._shared = True
        return self._records

    def values(self) -> tuple[R, ...]:
        """All records of this moment; the same tuple as long as nothing changes."""
        if self._values is None:
            self._values = tuple(self._records.values())
        return self._values

    def get(self, key: K) -> R | None:
        return self._records.get(key)

    def __len__(self) -> int:
        return len(self._records)

    @property
    def seen(self) -> str:
        return self._seen

    # --- from the reflector ---------------------------------------------------------------

    def begin_list(self) -> None:
        """A list is asked for now: answers from here on may be newer than it."""
        self._answers, self._listing = {}, True

    def replace(self, records: Iterable[R], version: str) -> Replaced[K]:
        """The list is there. Records that it lacks are deleted, except answers newer than it."""
        found = {self._key(record): record for record in records}
        for key, answer in self._answers.items():
            self._overlay(found, key, answer, version)
        before, self._records, self._shared = self._records, found, False
        self._answers, self._listing, self._seen = {}, False, version
        deleted = tuple(key for key in before if key not in found)
        changed = bool(deleted) or before != found
        self._mark_synced(changed)
        return Replaced(deleted, changed)

    def _overlay(self, found: dict[K, R], key: K, answer: R | None, version: str) -> None:
        if answer is None:
            return  # our delete; if the list still shows the object, the watch will end it
        if not _at_least(version, self._version(answer)):
            found[key] = answer

    def _mark_synced(self, changed: bool) -> None:
        self.decided = True
        if changed or not self.synced:
            self.synced, self.reason = True, ""
            self._changed()

    def put(self, record: R, version: str) -> None:
        """A watch event: ADDED or MODIFIED. Replays and stragglers change nothing."""
        if self.is_past(version):
            return  # not even where nothing is held: it may have been deleted since
        self.advance(version)
        key = self._key(record)
        held = self._records.get(key)
        if held == record or (held is not None and self._is_newer(held, record)):
            return
        self._own()[key] = record
        self._changed()

    def remove(self, record: R, version: str) -> None:
        """A watch event: DELETED. It says nothing of an object that was created after it."""
        if self.is_past(version):
            return
        self.advance(version)
        key = self._key(record)
        held = self._records.get(key)
        if held is None or _after(self._version(held), version):
            return
        del self._own()[key]
        self._changed()

    def is_past(self, version: str) -> bool:
        """Whether list and watch have shown everything up to `version` and more."""
        return _after(self._seen, version)

    def advance(self, version: str) -> None:
        """The watch has shown everything up to `version` (an event, or a bookmark)."""
        if version and not _at_least(self._seen, version):
            self._seen = version

    def unsync(self, reason: str) -> None:
        """The records are not to be acted on until a list succeeds."""
        self.decided = True
        if self.synced or self.reason != reason:
            self.synced, self.reason = False, reason
            self._changed()

    def believe(self) -> None:
        """The watch goes on from the last good records, so they are current again."""
        if not self.synced:
            self._mark_synced(changed=True)

    # --- from writes ----------------------------------------------------------------------

    def put_answer(self, record: R, *, quiet: bool = False) -> bool:
        """The answer of a write (or of a single GET), unless something newer is known.

        When the watch is past the answer's version, it has shown the answer or its end, so that an
        object deleted meanwhile does not come back. `quiet`: nobody needs a pass because of it.
        Returns whether the record was taken.
        """
        key, version = self._key(record), self._version(record)
        held = self._records.get(key)
        if held == record or _at_least(self._seen, version):
            return False
        if held is not None and self._is_newer(held, record):
            return False
        self._note(key, record)
        self._own()[key] = record
        self._changed(quiet=quiet)
        return True

    def remove_answer(self, key: K) -> None:
        """The server said that our delete is done, or that the object is not there."""
        self._note(key, None)
        if key in self._records:
            del self._own()[key]
            self._changed()

    def _note(self, key: K, answer: R | None) -> None:
        if self._listing:
            self._answers[key] = answer

    # --- inner ----------------------------------------------------------------------------

    def _is_newer(self, held: R, record: R) -> bool:
        return _after(self._version(held), self._version(record))

    def _own(self) -> dict[K, R]:
        if self._shared:
            self._records, self._shared = dict(self._records), False
        return self._records

    def _changed(self, *, quiet: bool = False) -> None:
        self.generation += 1
        self._values = None
        if not quiet:
            self.dirty(self.kind)


# Versions as numbers; False where one is no number, for then nobody can tell.


def _after(version: str, other: str) -> bool:
    return version.isdecimal() and other.isdecimal() and int(version) > int(other)


def _at_least(version: str, other: str) -> bool:
    return version.isdecimal() and other.isdecimal() and int(version) >= int(other)
