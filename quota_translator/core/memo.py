"""Answers that are kept for the very object they were worked out from.

A pass meets mostly the objects of the pass before: what is immutable and unchanged need not be
worked out again. Such objects often cannot be hashed (they hold dicts), and equal ones may be
spelled differently, so they are told apart by identity. Nothing of it shows but in time.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

A = TypeVar("A")
R = TypeVar("R")


class ByIdentity(Generic[A, R]):
    """A pure function of one immutable object, with at most twice `most` answers kept.

    Answers that were not asked for while `most` others were worked out are dropped.
    """

    def __init__(self, function: Callable[[A], R], most: int = 2048) -> None:
        self._function = function
        self._most = most
        # By id; the object is kept beside its answer, so that no other can have its id.
        self._recent: dict[int, tuple[A, R]] = {}
        self._older: dict[int, tuple[A, R]] = {}

    def __call__(self, about: A) -> R:
        found = self._recent.get(id(about))
        if found is None:
            found = self._older.get(id(about)) or (about, self._function(about))
            if len(self._recent) >= self._most:
                self._recent, self._older = {}, self._recent
            self._recent[id(about)] = found
        return found[1]

    def __len__(self) -> int:
        return len(self._recent.keys() | self._older.keys())
