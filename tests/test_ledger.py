"""Which Events are written, and when: repetitions, floods and failures, at given moments."""

from datetime import UTC, datetime, timedelta

import pytest

from quota_translator.core.happenings import Happening
from quota_translator.core.world import Clock
from quota_translator.ledger import (
    ATTEMPTS,
    BURST,
    COUNT_PAUSE,
    QUEUE,
    REFILL,
    REMEMBERED,
    SAME_WITHIN,
    Ledger,
)


def at(seconds: float) -> Clock:
    return Clock(datetime(2026, 11, 30, tzinfo=UTC) + timedelta(seconds=seconds), seconds)


def froze(message: str = "24 of 28", node: str = "ml", uid: str = "u1") -> Happening:
    return Happening(node, uid, "ContainmentViolated", message)


def drain(ledger: Ledger, now: float) -> int:
    """Write everything that is due; how much that was."""
    writes = 0
    while (entry := ledger.next(now)) is not None:
        ledger.written(entry, entry.name or "event", entry.count, now)
        writes += 1
    return writes


def test_what_happens_once_is_written_at_once_and_once() -> None:
    ledger = Ledger()
    assert ledger.wake_at is None
    assert ledger.tell(froze(), at(10)) == "new"
    entry = ledger.next(10)
    assert entry is not None
    assert (entry.name, entry.count, entry.first) == ("", 1, at(10).wall)
    assert drain(ledger, 10) == 1
    assert (ledger.next(1e9), ledger.wake_at) == (None, None)


def test_the_same_again_is_counted_on_the_event_that_is_there_and_not_each_time() -> None:
    ledger = Ledger()
    ledger.tell(froze(), at(0))
    drain(ledger, 0)
    for second in range(1, 100):
        assert ledger.tell(froze(), at(second)) == "again"
    assert ledger.next(100) is None
    assert ledger.wake_at == COUNT_PAUSE
    entry = ledger.next(COUNT_PAUSE)
    assert entry is not None
    assert (entry.name, entry.count, entry.last) == ("event", 100, at(99).wall)


def test_what_is_told_while_it_is_being_written_is_not_lost() -> None:
    ledger = Ledger()
    ledger.tell(froze(), at(0))
    entry = ledger.next(0)
    assert entry is not None
    ledger.tell(froze(), at(1))
    ledger.written(entry, "event", 1, 2)
    assert ledger.wake_at == 2 + COUNT_PAUSE
    assert drain(ledger, 2 + COUNT_PAUSE) == 1


@pytest.mark.parametrize(
    "other", [froze("other"), froze(uid="u2"), Happening("ml", "u1", "Thawed", "24 of 28")]
)
def test_another_message_object_or_reason_is_another_event(other: Happening) -> None:
    ledger = Ledger()
    ledger.tell(froze(), at(0))
    assert ledger.tell(other, at(1)) == "new"


def test_after_an_hour_of_quiet_it_is_a_new_event() -> None:
    ledger = Ledger()
    ledger.tell(froze(), at(0))
    drain(ledger, 0)
    ledger.tell(froze(), at(SAME_WITHIN - 1))
    drain(ledger, SAME_WITHIN)
    assert ledger.tell(froze(), at(2 * SAME_WITHIN - 2)) == "again"
    drain(ledger, 2 * SAME_WITHIN)
    assert ledger.tell(froze(), at(4 * SAME_WITHIN)) == "new"


def test_a_node_that_says_something_new_all_the_time_is_cut_and_others_are_not() -> None:
    ledger = Ledger()
    told = [ledger.tell(froze(str(number)), at(0)) for number in range(100)]
    assert (told.count("new"), told.count("dropped")) == (BURST, 100 - BURST)
    assert ledger.tell(froze(node="web", uid="u9"), at(0)) == "new"
    assert ledger.tell(froze("later"), at(REFILL - 0.1)) == "dropped"
    assert ledger.tell(froze("later"), at(REFILL)) == "new"


def test_the_queue_is_bounded_and_so_is_what_is_remembered() -> None:
    ledger = Ledger()
    told = [ledger.tell(froze(uid=f"u{number}"), at(0)) for number in range(QUEUE + 44)]
    assert (told.count("new"), told.count("dropped")) == (QUEUE, 44)
    drain(ledger, 0)
    for number in range(2 * REMEMBERED):
        ledger.tell(froze(uid=f"v{number}"), at(1))
        drain(ledger, 1)
    assert ledger.tell(froze(uid="v1"), at(2)) == "new"  # forgotten
    assert ledger.tell(froze(uid=f"v{2 * REMEMBERED - 1}"), at(2)) == "again"
    assert len(ledger._buckets) == len(ledger._entries) == REMEMBERED


def test_a_failure_is_tried_again_a_few_times_and_the_server_may_ask_for_a_pause() -> None:
    ledger, now = Ledger(), 0.0
    ledger.tell(froze(), at(0))
    for attempt in range(1, ATTEMPTS):
        entry = ledger.next(now)
        assert entry is not None
        assert ledger.failed(entry, now, 60.0 if attempt == 1 else 0.0)
        assert ledger.wake_at is not None
        assert ledger.wake_at - now == (60.0 if attempt == 1 else 2.0**attempt)
        now = ledger.wake_at
    entry = ledger.next(now)
    assert entry is not None
    assert not ledger.failed(entry, now, 0.0)
    assert ledger.wake_at is None
    assert ledger.tell(froze(), at(now)) == "new"


def test_what_never_will_be_written_is_not_tried_again() -> None:
    ledger = Ledger()
    ledger.tell(froze(), at(0))
    entry = ledger.next(0)
    assert entry is not None
    assert not ledger.failed(entry, 0, None)
    assert ledger.next(1e9) is None
