"""Whose the tree is: the claim on root, when another's ends, and when ours is renewed."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quota_translator.core.holder import (
    Claim,
    claimed,
    expires_in,
    given_up,
    home,
    left,
    read_claim,
    refusal,
)
from quota_translator.core.model_status import ControllerStatus
from quota_translator.core.times import stamp
from quota_translator.core.world import Clock, Holder

WALL = datetime(2026, 11, 30, 12, tzinfo=UTC)
OURS = Holder("platform", "quota-translator", "lease-1")
OTHER = Holder("elsewhere", "quota-translator", "lease-2")
LONE = Holder("", "", "process-1")


def at(seconds: float = 0.0) -> Clock:
    return Clock(WALL + timedelta(seconds=seconds), 1000.0 + seconds)


def status(holder: Holder, seconds: float = 0.0) -> dict[str, Any]:
    """Root's status with that one's claim, renewed at this moment."""
    return {"controller": claimed({}, holder, at(seconds))}


def refused(found: Any, own: Holder = OURS, now: float = 0.0, looked_for: float = 0.0) -> str:
    return refusal(found, own, at(now), looked_for)


# --- another's claim --------------------------------------------------------------------------


@pytest.mark.case("A-102")
def test_the_sentence_names_who_holds_the_tree_and_what_to_do() -> None:
    assert refused(status(OTHER)) == (
        "another controller writes this tree: Lease quota-translator in namespace elsewhere, uid "
        "lease-2, last seen at 2026-11-30T12:00:00Z; stop that one, or start this one with "
        "--take-over"
    )
    assert "a process without a Lease, uid process-1, last" in refused(status(LONE))


@pytest.mark.parametrize(
    ("found", "own"),
    [
        pytest.param({}, OURS, id="nobody's"),
        pytest.param(status(OURS), OURS, id="ours"),
        pytest.param(status(LONE), LONE, id="ours, without a Lease"),
        pytest.param(
            status(Holder("platform", "quota-translator", "before")), OURS, id="a Lease made anew"
        ),
        pytest.param({"controller": "odd"}, OURS, id="no row"),
        pytest.param({"controller": {"seenAt": stamp(WALL)}}, OURS, id="nobody named"),
        pytest.param({"controller": {"uid": 3}}, OURS, id="no text"),
    ],
)
def test_nobody_else_holds_it(found: Any, own: Holder) -> None:
    assert refused(found, own) == ""


def test_two_processes_without_a_lease_are_two() -> None:
    assert refused(status(LONE), Holder("", "", "process-2"))


@pytest.mark.parametrize(
    ("age", "looked_for", "holds"),
    [
        pytest.param(0.0, 0.0, True, id="fresh"),
        pytest.param(170.0, 0.0, True, id="two intervals missed"),
        pytest.param(400.0, 0.0, True, id="its clock may be behind ours"),
        pytest.param(400.0, 179.0, True, id="watched, not long enough"),
        pytest.param(400.0, 180.0, False, id="watched for three intervals"),
        pytest.param(480.0, 0.0, False, id="too old for any clock"),
        pytest.param(-300.0, 0.0, True, id="its clock is ahead of ours"),
        pytest.param(-1e9, 0.0, True, id="decades ahead"),
        pytest.param(-1e9, 180.0, False, id="decades ahead, and watched"),
    ],
)
def test_when_anothers_claim_ends(age: float, looked_for: float, holds: bool) -> None:
    found = status(OTHER)
    assert bool(refused(found, now=age, looked_for=looked_for)) is holds
    claim = read_claim(found)
    assert claim is not None
    assert (expires_in(claim, at(age), looked_for) > 0) is holds


def test_a_claim_without_a_readable_time_is_watched() -> None:
    found = {"controller": {"uid": "u", "seenAt": "yesterday"}}
    assert "last seen at yesterday" in refused(found)
    assert "last seen at an unknown time" in refused({"controller": {"uid": "u", "seenAt": 5}})
    assert refused(found, looked_for=180.0) == ""
    assert expires_in(Claim(OTHER, ""), at(), 100.0) == 80.0


@given(st.floats(-1e6, 1e6), st.floats(0, 1e4))
def test_a_claim_that_holds_ends_by_watching_it(age: float, looked_for: float) -> None:
    claim = read_claim(status(OTHER))
    assert claim is not None
    rest = expires_in(claim, at(age), looked_for)
    assert 0.0 <= rest <= 180.0
    assert refused(status(OTHER), now=age, looked_for=looked_for + rest + 0.001) == ""


def test_a_claim_that_was_given_up_is_none_and_says_where_its_controller_lived() -> None:
    row = status(OTHER)["controller"]
    rest = {name: value for name, value in row.items() if name not in given_up()}
    ControllerStatus.model_validate(rest)
    assert read_claim({"controller": rest}) is None
    assert refused({"controller": rest}) == ""
    assert home({"controller": rest}) == home({"controller": row}) == "elsewhere"
    assert claimed({"controller": rest}, OURS, at()) == claimed({}, OURS, at())


@pytest.mark.parametrize("row", [None, "odd", {}, {"namespace": 5}, {"namespace": ""}])
def test_where_nobody_says_so_no_home_is_known(row: Any) -> None:
    assert home({"controller": row}) == home({}) == ""


# --- ours -------------------------------------------------------------------------------------


def test_the_row_is_one_that_the_server_takes() -> None:
    for holder in (OURS, LONE):
        row = claimed({}, holder, at())
        assert ControllerStatus.model_validate(row).model_dump(by_alias=True, exclude_none=True)
        assert row["uid"] == holder.uid
        assert row.get("lease", "") == holder.lease
        assert row.get("namespace", "") == holder.namespace


@pytest.mark.parametrize(
    ("age", "renew", "new"),
    [
        pytest.param(0.0, False, False, id="just written"),
        pytest.param(74.0, False, False, id="a stamp may still bring it along"),
        pytest.param(75.0, False, True, id="due by itself"),
        pytest.param(1.0, True, True, id="along with a stamp"),
        pytest.param(-5.0, False, True, id="our clock was put back"),
    ],
)
def test_when_our_claim_is_renewed(age: float, renew: bool, new: bool) -> None:
    row = claimed(status(OURS), OURS, at(age), renew=renew)
    assert row == claimed({}, OURS, at(age if new else 0.0))


def test_a_claim_becomes_ours_with_our_first_write() -> None:
    again = Holder("platform", "quota-translator", "lease-9")
    for before in (status(OTHER), status(again), {}):
        assert claimed(before, OURS, at(1)) == claimed({}, OURS, at(1))


def test_a_claim_of_ours_without_a_time_is_due() -> None:
    assert left(Claim(OURS, "odd"), at()) == 0.0
