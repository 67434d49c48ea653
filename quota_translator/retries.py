"""Writes that failed and are tried again: each object after a pause of its own, growing.

A failure of one object must neither stop the others nor be hammered. While an object waits here its
last fault stays on its node, so that a condition does not blink between attempts.
"""

from collections.abc import Callable, Container, Iterable
from typing import Final, Generic, TypeVar

from quota_translator.core.actions import Action
from quota_translator.core.names import Key
from quota_translator.core.notes import (
    KUEUE_UNAVAILABLE,
    MATERIALIZATION_FAILED,
    OBJECT_CONFLICT,
    PARENT_NOT_MATERIALIZED,
    Note,
)
from quota_translator.core.results import Result, Results

FIRST_PAUSE: Final = 0.5
LONGEST_PAUSE: Final = 30.0
_DONE: Final = frozenset({"written", "unchanged", "refused"})
_NO_FAULT: Final = frozenset({"throttled", "skipped"})

K = TypeVar("K")


class Pauses(Generic[K]):
    """Until when each thing that failed is left alone: pauses double, and differ by `rand`.

    `rand` gives [0, 1), so that retries do not march in step.
    """

    def __init__(self, rand: Callable[[], float]) -> None:
        self._rand = rand
        self._failures: dict[K, int] = {}
        self._until: dict[K, float] = {}

    def failed(self, key: K, now: float, luck: float | None = None) -> float:
        """It failed again; the steady moment of the next attempt. `luck`: in place of `rand`."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        pause = min(FIRST_PAUSE * 2.0 ** min(failures - 1, 30), LONGEST_PAUSE)
        luck = self._rand() if luck is None else luck
        return self.put_off(key, now + pause * (0.5 + luck / 2))

    def put_off(self, key: K, until: float) -> float:
        """It was not even tried."""
        self._until[key] = until
        return until

    def over(self, key: K) -> None:
        self._failures.pop(key, None)
        self._until.pop(key, None)

    def keep(self, keys: Container[K]) -> None:
        """Forget all others."""
        for key in [key for key in self._until if key not in keys]:
            self.over(key)

    def until(self, key: K) -> float:
        return self._until.get(key, float("-inf"))

    @property
    def soonest(self) -> float | None:
        return min(self._until.values(), default=None)


class Retries:
    """The objects whose last write did not succeed."""

    def __init__(self, rand: Callable[[], float]) -> None:
        self._rand = rand
        self._pauses = Pauses[Key](rand)
        self._faults: dict[Key, Result] = {}

    def ready(self, actions: Iterable[Action], now: float) -> tuple[Action, ...]:
        """The actions that may be tried now. What is no longer planned is forgotten.

        What is put beneath an object whose creation waits here waits with it.
        """
        planned = tuple(actions)
        wanted = {action.key for action in planned}
        self._pauses.keep(wanted)
        self._faults = {key: fault for key, fault in self._faults.items() if key in wanted}
        found: list[Action] = []
        waiting: dict[Key | None, float] = {}  # creations, and until when they wait
        for action in planned:
            above = waiting.get(action.requires, now)
            until = max(above, self._until(action))
            if until <= now:
                found.append(action)
            elif action.verb == "create":
                waiting[action.key] = until
            if above > now and action.key in self._faults:
                self._pauses.put_off(action.key, until)
        return tuple(found)

    def _until(self, action: Action) -> float:
        fault = self._faults.get(action.key)
        # What is wanted now is another write than the one that failed: a new matter.
        is_same = fault is not None and fault.spec == action.spec
        return self._pauses.until(action.key) if is_same else float("-inf")

    def learn(self, results: Results, now: float) -> None:
        # One draw for all: what failed together is tried together. A thousand moments of their
        # own, spread over the pause, would be a thousand passes.
        luck = self._rand()
        for result in results.results:
            if result.outcome in _DONE:
                self._pauses.over(result.key)
                self._faults.pop(result.key, None)
                continue
            self._faults[result.key] = result
            if result.outcome == "throttled" or result.needs_parent:
                self._pauses.put_off(result.key, now + (results.retry_after or FIRST_PAUSE))
            else:
                self._pauses.failed(result.key, now, luck)

    @property
    def wake_at(self) -> float | None:
        return self._pauses.soonest

    @property
    def count(self) -> int:
        return len(self._faults)

    def notes(self) -> tuple[Note, ...]:
        """What is wrong with the nodes whose writes wait here."""
        return tuple(note for fault in self._faults.values() for note in fault_notes(fault))


def fault_notes(result: Result) -> Iterable[Note]:
    """What one write that did not succeed says of the nodes behind it."""
    reason = fault_reason(result)
    if reason is None:
        return ()
    text = f"{result.verb} {result.key}: {result.message}"
    if result.outcome == "refused":  # in the words in which the next plans go on telling it
        text = f"{result.key} was refused: {result.message}"
    return (Note(node, reason, text) for node in sorted(result.nodes))


def fault_reason(result: Result) -> str | None:
    """The reason of Materialized=False after a write that did not succeed; None: there is none."""
    if result.kueue_down:
        return KUEUE_UNAVAILABLE
    if result.needs_parent:
        return PARENT_NOT_MATERIALIZED
    if result.outcome == "conflict":
        # With a record it is a stranger's object; else ours changed meanwhile, which the next
        # pass sees and plans for.
        return OBJECT_CONFLICT if result.record is not None else None
    return None if result.outcome in _NO_FAULT else MATERIALIZATION_FAILED
