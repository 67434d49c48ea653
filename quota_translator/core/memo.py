"""Answers that are kept for the very object they were worked out from.

A pass meets mostly the objects of the pass before: what is immutable and unchanged need not be
worked out again. Such objects often cannot be hashed (they hold dicts), and equal ones may be
spelled differently, so they are told apart by identity. Nothing of it shows but in time.

An answer keeps its object alive, and each pass renders new ones. So who runs passes says when one
begins, and what several of them in a row did not ask for goes: what is kept follows the size of the
tree, where a number alone would let a tree of four grow by tens of MiB before it bounds anything.
"""

import weakref
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

A = TypeVar("A")
R = TypeVar("R")
_PASSES: Final = 8  # not every pass asks for all that the next one needs


class ByIdentity(Generic[A, R]):
    """A pure function of one immutable object, with at most twice `most` answers kept.

    Answers that were not asked for while `most` others were worked out are dropped, and so are
    those that some passes in a row did not ask for.
    """

    def __init__(self, function: Callable[[A], R], most: int = 2048) -> None:
        self._function = function
        self._most = most
        # By id; the object is kept beside its answer, so that no other can have its id.
        self._recent: dict[int, tuple[A, R]] = {}
        self._older: dict[int, tuple[A, R]] = {}
        self._passes = 0
        _memos.add(self)

    def __call__(self, about: A) -> R:
        found = self._recent.get(id(about))
        if found is None:
            found = self._older.get(id(about)) or (about, self._function(about))
            if len(self._recent) >= self._most:
                self._turn()
            self._recent[id(about)] = found
        return found[1]

    def next_pass(self) -> None:
        self._passes += 1
        if self._passes % _PASSES == 0:
            self._turn()

    def _turn(self) -> None:
        self._recent, self._older = {}, self._recent

    def __len__(self) -> int:
        return len(self._recent.keys() | self._older.keys())


_memos: Final[weakref.WeakSet[ByIdentity[Any, Any]]] = weakref.WeakSet()


def next_pass() -> None:
    """A pass begins."""
    for memo in _memos:
        memo.next_pass()
