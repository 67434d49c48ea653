"""Failed writes are tried again after growing pauses, one object at a time."""

import msgspec
import pytest

from quota_translator.core.actions import Action
from quota_translator.core.names import Key
from quota_translator.core.notes import Note
from quota_translator.core.results import Outcome, Result, Results
from quota_translator.core.world import Observed
from quota_translator.retries import LONGEST_PAUSE, Retries, fault_notes

A, B = Key("ClusterQueue", "", "a"), Key("ClusterQueue", "", "b")


def action(key: Key, spec: dict | None = None) -> Action:
    return Action("update", key, 1, spec or {}, nodes=frozenset({key.name}), quota=key.name)


def result(key: Key, outcome: Outcome = "unavailable", **more: object) -> Result:
    plain = Result(key, "update", 1, frozenset({key.name}), {}, outcome, "no answer")
    return msgspec.structs.replace(plain, **more)


def learn(retries: Retries, now: float, *results: Result, retry_after: float | None = None) -> None:
    retries.learn(Results(results, retry_after), now)


@pytest.fixture
def retries() -> Retries:
    return Retries(lambda: 1.0)


def keys(actions: tuple[Action, ...]) -> list[Key]:
    return [one.key for one in actions]


def test_a_failed_write_waits_and_the_others_do_not(retries: Retries) -> None:
    learn(retries, 100.0, result(A), result(B, "written"))
    assert keys(retries.ready([action(A), action(B)], 100.4)) == [B]
    assert keys(retries.ready([action(A), action(B)], 100.5)) == [A, B]


def test_pauses_double_up_to_a_bound(retries: Retries) -> None:
    pauses = []
    for _ in range(9):
        retries.ready([action(A)], 0.0)
        learn(retries, 0.0, result(A))
        pauses.append(retries.wake_at)
    assert pauses == [0.5, 1, 2, 4, 8, 16, LONGEST_PAUSE, LONGEST_PAUSE, LONGEST_PAUSE]


def test_another_write_of_the_same_object_need_not_wait(retries: Retries) -> None:
    learn(retries, 0.0, result(A))
    assert keys(retries.ready([action(A, {"cohortName": "ml"})], 0.1)) == [A]


@pytest.mark.parametrize("outcome", ["written", "unchanged", "refused"])
def test_an_answer_ends_the_waiting(retries: Retries, outcome: Outcome) -> None:
    learn(retries, 0.0, result(A))
    learn(retries, 1.0, result(A, outcome))
    assert retries.count == 0
    assert retries.wake_at is None


def test_what_is_no_longer_planned_is_forgotten(retries: Retries) -> None:
    learn(retries, 0.0, result(A))
    assert retries.ready([action(B)], 0.1) == (action(B),)
    assert retries.count == 0


@pytest.mark.case("A-69")
@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({}, "MaterializationFailed"),
        ({"kueue_down": True}, "KueueUnavailable"),
        ({"outcome": "skipped", "needs_parent": True}, "ParentNotMaterialized"),
        ({"outcome": "conflict", "record": Observed(A)}, "ObjectConflict"),
    ],
)
def test_the_fault_stays_on_the_node_between_attempts(
    retries: Retries, more: dict, reason: str
) -> None:
    learn(retries, 0.0, result(A, **more))
    retries.ready([action(A)], 0.1)
    assert retries.notes() == (Note("a", reason, "update ClusterQueue a: no answer"),)


def test_a_refusal_is_told_as_the_next_plan_tells_it() -> None:
    (note,) = fault_notes(result(A, "refused"))
    assert note == Note("a", "MaterializationFailed", "ClusterQueue a was refused: no answer")


@pytest.mark.parametrize("outcome", ["conflict", "skipped", "throttled"])
def test_what_the_next_pass_cures_is_no_fault_of_the_node(
    retries: Retries, outcome: Outcome
) -> None:
    learn(retries, 0.0, result(A, outcome))
    assert retries.notes() == ()
    assert retries.count == 1


def test_what_was_not_tried_waits_as_the_server_asked_and_does_not_count_as_failed(
    retries: Retries,
) -> None:
    for _ in range(5):
        learn(retries, 0.0, result(A, "throttled"), retry_after=7.0)
    assert retries.wake_at == 7
    learn(retries, 10.0, result(A))
    assert retries.wake_at == 10.5


def creation(key: Key, requires: Key | None = None) -> Action:
    return msgspec.structs.replace(action(key), verb="create", requires=requires)


def test_what_hangs_on_a_creation_that_waits_is_not_tried_without_it(retries: Retries) -> None:
    planned = [creation(A), creation(B, requires=A)]
    learn(retries, 0.0, result(A), result(B, "skipped", needs_parent=True))
    learn(retries, 0.5, result(A), result(B, "skipped", needs_parent=True))
    assert retries.ready(planned, 1.0) == ()
    assert retries.wake_at == 1.5  # not each half second, for the sake of B
    assert keys(retries.ready(planned, 1.5)) == [A, B]


def test_what_failed_together_is_tried_together() -> None:
    draws = iter([0.0, 1.0, 0.5])
    retries = Retries(lambda: next(draws))
    learn(retries, 0.0, result(A), result(B))
    assert keys(retries.ready([action(A), action(B)], 0.25)) == [A, B]


def test_what_was_skipped_again_and_again_is_asked_for_less_often(retries: Retries) -> None:
    pauses = []
    for _ in range(3):
        learn(retries, 0.0, result(A, "skipped"))  # its namespace is ending, say
        pauses.append(retries.wake_at)
    assert pauses == [0.5, 1, 2]


def test_an_outage_of_days_is_counted_without_end(retries: Retries) -> None:
    for _ in range(3000):
        learn(retries, 0.0, result(A))
    assert retries.wake_at == LONGEST_PAUSE
