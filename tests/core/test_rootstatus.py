"""Root's rows: what is written, and what a restart reads back."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quota_translator.core.capacity import Unattributed
from quota_translator.core.model_status import AcceleratorQuotaStatus
from quota_translator.core.names import Pair
from quota_translator.core.quantity import ZERO, Quantity
from quota_translator.core.rootstatus import (
    ambiguity,
    capacity_from_status,
    capacity_rows,
    unattributed_rows,
)
from quota_translator.core.world import CapacityRow, Wait

GPU, TPU = "nvidia.com/gpu", "google.com/tpu"
WALL = datetime(2026, 10, 5, 9, 41, 12, tzinfo=UTC)


def q(amount: int) -> Quantity:
    return Quantity.of(amount)


def row(resource: str, flavor: str, mark: int, **fields: Any) -> CapacityRow:
    values: dict[str, Any] = {
        "allocatable": q(mark),
        "unavailable": ZERO,
        "unhealthy": ZERO,
        "installed": q(mark),
        "observed_at": WALL,
    } | fields
    return CapacityRow(Pair(resource, flavor), mark=q(mark), **values)


def by_pair(*rows: CapacityRow) -> dict[Pair, CapacityRow]:
    return {one.pair: one for one in rows}


def test_rows_stand_by_resource_and_then_flavor() -> None:
    rows = by_pair(row(GPU, "h100", 8), row(GPU, "a100", 32), row(TPU, "a100", 0, ever_seen=False))

    shown = [
        f"{one['resourceName']} {one['resourceFlavor']} {one['allocatable']} {one['highWaterMark']}"
        for one in capacity_rows(rows)
    ]

    assert shown == [
        "google.com/tpu a100 0 0",
        "nvidia.com/gpu a100 32 32",
        "nvidia.com/gpu h100 8 8",
    ]


def test_a_row_says_everything_that_was_measured_and_is_waited_for() -> None:
    wait = Wait("Drop", q(24), WALL, 17.9, counted_at=500.0, until=WALL + timedelta(seconds=30))
    never = Wait("Settle", q(24), WALL)
    full = row(
        GPU,
        "a100",
        32,
        allocatable=q(16),
        unavailable=q(8),
        unhealthy=q(2),
        installed=q(24),
        nodes=2,
        unavailable_nodes=1,
        pending=(wait, never),
    )

    assert capacity_rows(by_pair(full)) == [
        {
            "resourceName": GPU,
            "resourceFlavor": "a100",
            "allocatable": "16",
            "unavailable": "8",
            "unhealthy": "2",
            "installed": "24",
            "highWaterMark": "32",
            "nodes": 2,
            "unavailableNodes": 1,
            "pending": [
                {
                    "kind": "Drop",
                    "value": "24",
                    "since": "2026-10-05T09:41:12Z",
                    "elapsed": 17,
                    "until": "2026-10-05T09:41:42Z",
                },
                {"kind": "Settle", "value": "24", "since": "2026-10-05T09:41:12Z", "elapsed": 0},
            ],
            "observedAt": "2026-10-05T09:41:12Z",
        }
    ]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        pytest.param({}, {}, id="measured and seen: nothing remarkable"),
        pytest.param({"measured": False}, {"measured": False}, id="no node reports it now"),
        pytest.param({"ever_seen": False}, {"everSeen": False}, id="no node ever has"),
    ],
)
def test_what_is_remarkable_of_a_row_is_said(fields: Any, said: Any) -> None:
    (shown,) = capacity_rows(by_pair(row(GPU, "a100", 8, **fields)))

    assert {name: shown[name] for name in ("measured", "everSeen") if name in shown} == said


# --- reading back -----------------------------------------------------------------------------

amounts = st.integers(0, 10**21).map(Quantity)
moments = st.datetimes(datetime(2020, 1, 1), datetime(2100, 1, 1)).map(
    lambda moment: moment.replace(microsecond=0, tzinfo=UTC)
)
waits = st.builds(
    Wait,
    kind=st.sampled_from(("Settle", "Drop", "Grow")),
    value=amounts,
    since=moments,
    elapsed=st.floats(0, 1e7),
    counted_at=st.none() | st.floats(0, 1e6),
    until=st.none() | moments,
)


@st.composite
def capacities(draw: st.DrawFn) -> dict[Pair, CapacityRow]:
    pairs = st.tuples(st.sampled_from((GPU, TPU)), st.sampled_from(("a100", "h100", "v5p")))
    found = {}
    for names in draw(st.lists(pairs, max_size=4, unique=True)):
        usable, parked = draw(amounts), draw(amounts)
        pair = Pair(*names)
        found[pair] = CapacityRow(
            pair,
            usable,
            parked,
            draw(amounts),
            usable + parked,
            draw(amounts),
            draw(st.integers(0, 20000)),
            draw(st.integers(0, 20000)),
            tuple(draw(st.lists(waits, max_size=3, unique_by=lambda wait: wait.kind))),
            draw(st.none() | moments),
            draw(st.booleans()),
            draw(st.booleans()),
        )
    return found


@settings(max_examples=60)
@given(capacities())
def test_what_was_written_reads_back_equal(rows: dict[Pair, CapacityRow]) -> None:
    written = {"capacity": capacity_rows(rows)}
    AcceleratorQuotaStatus.model_validate(written)

    def uncounted(row: CapacityRow) -> CapacityRow:
        pending = tuple(
            msgspec.structs.replace(wait, elapsed=float(int(wait.elapsed)), counted_at=None)
            for wait in row.pending
        )
        return msgspec.structs.replace(row, pending=pending)

    assert capacity_from_status(written) == {pair: uncounted(row) for pair, row in rows.items()}


GOOD: dict[str, Any] = {
    "resourceName": GPU,
    "resourceFlavor": "a100",
    "allocatable": "16",
    "unavailable": "8",
    "highWaterMark": "32",
}


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param(None, id="no rows"),
        pytest.param("rows", id="text for the list"),
        pytest.param([None, 3, "row", []], id="rows that are no objects"),
        pytest.param([GOOD | {"resourceName": 3}], id="a resource that is no text"),
        pytest.param([GOOD | {"resourceFlavor": ""}], id="no flavor"),
        pytest.param([{**GOOD, "highWaterMark": "many"}], id="a mark that is no quantity"),
        pytest.param([{**GOOD, "highWaterMark": "-1"}], id="a mark below nothing"),
        pytest.param([{**GOOD, "highWaterMark": True}], id="a mark that is a truth"),
        pytest.param([{**GOOD, "highWaterMark": 10**5000}], id="a mark too long to print"),
        pytest.param([{k: v for k, v in GOOD.items() if k != "highWaterMark"}], id="no mark"),
    ],
)
def test_a_row_without_a_readable_mark_is_none(rows: Any) -> None:
    assert capacity_from_status({"capacity": rows}) == {}


def test_of_a_damaged_row_what_can_be_read_counts() -> None:
    odd = GOOD | {
        "unhealthy": "?",
        "nodes": -4,
        "unavailableNodes": True,
        "observedAt": "yesterday",
        "measured": "no",
        "pending": [
            "wait",
            {"kind": "Hope", "value": "3", "since": "2026-10-05T09:41:12Z"},
            {"kind": ["Drop"], "value": "3", "since": "2026-10-05T09:41:12Z"},
            {"kind": "Drop", "value": "x", "since": "2026-10-05T09:41:12Z"},
            {"kind": "Drop", "value": "3", "since": 17},
            {"kind": "Drop", "value": "24", "since": "2026-10-05T11:41:12+02:00", "elapsed": 9},
            {"kind": "Drop", "value": "1", "since": "2026-10-05T09:41:12Z"},
            {"kind": "Settle", "value": "24", "since": "2026-10-05T09:41:12", "elapsed": "long"},
            {"kind": "Grow", "value": "40", "since": "2026-10-05T09:41:12Z", "elapsed": 10**400},
        ],
    }

    (found,) = capacity_from_status({"capacity": [odd, GOOD]}).values()

    assert found == CapacityRow(
        Pair(GPU, "a100"),
        allocatable=q(16),
        unavailable=q(8),
        unhealthy=ZERO,
        installed=q(24),
        mark=q(32),
        pending=(
            Wait("Drop", q(24), WALL, 9.0),
            Wait("Settle", q(24), WALL),
            Wait("Grow", q(40), WALL),
        ),
    )


@pytest.mark.parametrize("elapsed", [float("nan"), float("inf"), -3, True, None, 1e300])
def test_a_count_of_seconds_that_cannot_be_is_none(elapsed: Any) -> None:
    wait = {"kind": "Drop", "value": "1", "since": "2026-10-05T09:41:12Z", "elapsed": elapsed}

    (found,) = capacity_from_status({"capacity": [GOOD | {"pending": [wait]}]}).values()

    assert found.pending[0].elapsed == 0.0


def test_a_status_of_ome_brings_its_marks() -> None:
    stored = {k: v for k, v in GOOD.items() if k != "unavailable"} | {
        "observedAt": "2026-10-05T09:41:12Z"
    }

    found = capacity_from_status({"capacity": [stored]})[Pair(GPU, "a100")]

    assert (found.mark, found.installed, found.observed_at) == (q(32), q(16), WALL)


# --- unattributed -----------------------------------------------------------------------------


def loose(reason: Any, *flavors: str, nodes: int = 1) -> Unattributed:
    return Unattributed(GPU, reason, flavors, nodes, q(8 * nodes), ("n1",))


def test_unattributed_rows_are_at_most_32() -> None:
    rows = [loose("NoMatchingFlavor", nodes=n) for n in range(1, 41)]

    written = unattributed_rows(rows)

    AcceleratorQuotaStatus.model_validate({"unattributed": written})
    assert len(written) == 32
    assert written[0] == {
        "resourceName": GPU,
        "reason": "NoMatchingFlavor",
        "flavors": [],
        "nodes": 1,
        "quantity": "8",
        "examples": ["n1"],
    }


def test_the_sentence_of_ambiguity_names_devices_nodes_flavors_and_the_remedy() -> None:
    rows = [loose("NoMatchingFlavor"), loose("AmbiguousFlavor", "a100", "a100-copy", nodes=2)]

    assert ambiguity(rows[:1]) == ""
    assert ambiguity(rows) == (
        "16 nvidia.com/gpu on 2 node(s) (n1) match a100, a100-copy equally well and count for "
        "none: give the flavors node labels that tell them apart"
    )
