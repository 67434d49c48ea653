"""Writes that failed and are tried again: each object after a pause of its own, growing.

A failure of one object must neither stop the others nor be hammered. While an object waits here its
last fault stays on its node, so that a condition does not blink between attempts.
"""

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from quota_translator.core.actions import Action
from quota_translator.core.names import Key
from quota_translator.core.notes import (
    KUEUE_UNAVAILABLE,
    MATERIALIZATION_FAILED,
    OBJECT_CONFLICT,
    PARENT_NOT_MATERIALIZED,
    Note,
)
from quota_translator.core.results import Result

FIRST_PAUSE: Final = 0.5
LONGEST_PAUSE: Final = 30.0
_DONE: Final = frozenset({"written", "unchanged"})


class _Waiting(msgspec.Struct, frozen=True):
    failures: int
    not_before: float  # steady
    result: Result


class Retries:
    """What failed lately. `rand` gives [0, 1), so that retries do not march in step."""

    def __init__(self, rand: Callable[[], float]) -> None:
        self._rand = rand
        self._waiting: dict[Key, _Waiting] = {}

    def ready(self, actions: Iterable[Action], now: float) -> tuple[Action, ...]:
        """The actions that may be tried now. What is no longer planned is forgotten."""
        planned = tuple(actions)
        wanted = {action.key for action in planned}
        self._waiting = {key: entry for key, entry in self._waiting.items() if key in wanted}
        return tuple(action for action in planned if self._is_ready(action, now))

    def _is_ready(self, action: Action, now: float) -> bool:
        entry = self._waiting.get(action.key)
        # What is wanted now is another write than the one that failed: a new matter.
        return entry is None or entry.result.spec != action.spec or now >= entry.not_before

    def learn(self, results: Iterable[Result], now: float) -> None:
        for result in results:
            if result.outcome in _DONE or result.outcome == "refused":
                self._waiting.pop(result.key, None)
                continue
            before = self._waiting.get(result.key)
            failures = before.failures + 1 if before else 1
            pause = min(FIRST_PAUSE * 2.0 ** (failures - 1), LONGEST_PAUSE)
            not_before = now + pause * (0.5 + self._rand() / 2)
            self._waiting[result.key] = _Waiting(failures, not_before, result)

    @property
    def wake_at(self) -> float | None:
        return min((entry.not_before for entry in self._waiting.values()), default=None)

    @property
    def count(self) -> int:
        return len(self._waiting)

    def notes(self) -> tuple[Note, ...]:
        """What is wrong with the nodes whose writes wait here."""
        return tuple(note for entry in self._waiting.values() for note in fault_notes(entry.result))


def fault_notes(result: Result) -> Iterable[Note]:
    """What one failed write says of the nodes behind it."""
    reason = _reason(result)
    text = f"{result.verb} {result.key}: {result.message}"
    return (Note(node, reason, text) for node in sorted(result.nodes))


def _reason(result: Result) -> str:
    if result.kueue_down:
        return KUEUE_UNAVAILABLE
    if result.needs_parent:
        return PARENT_NOT_MATERIALIZED
    if result.outcome == "conflict":
        return OBJECT_CONFLICT
    return MATERIALIZATION_FAILED
