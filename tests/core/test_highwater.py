"""High-water marks: OME's numbers, rows that nobody measures, stamps and the moments to wake.

The clocks of waits are in test_waits.py.
"""

from collections.abc import Mapping
from datetime import timedelta

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quota_translator.core.capacity import Reading
from quota_translator.core.highwater import Advanced, advance, same_row
from quota_translator.core.names import Pair
from quota_translator.core.options import OME_CAPACITY, CapacityOptions
from quota_translator.core.quantity import ZERO, Quantity
from quota_translator.core.world import CapacityRow, Wait
from tests.core.marks import (
    DAY,
    MINUTE,
    PAIR,
    START,
    STEADY,
    Bench,
    Held,
    amount,
    clock,
    reading,
    row,
    seen,
    waits,
)

OTHER = Pair("nvidia.com/gpu", "h100")


def ome(band: int = 10) -> CapacityOptions:
    return msgspec.structs.replace(OME_CAPACITY, hysteresis_percent=band)


# --- OME's numbers ----------------------------------------------------------------------------

# (band, mark, reading, new mark): reference numbers of OME's high-water mark.
OME_NUMBERS: list[tuple[int, int | str, Held, str]] = [
    (10, 100, 120, "120"),
    (10, 100, 100, "100"),
    (10, 100, 95, "100"),
    (10, 100, 90, "100"),
    (10, 100, 89, "89"),
    (10, 100, 0, "0"),
    (0, 100, 99, "99"),
    (-5, 100, 99, "99"),
    (100, 100, 0, "100"),
    (250, 100, 0, "100"),
    (25, 8, 7, "8"),
    (25, 8, 5, "5"),
    (25, 8, 6, "8"),
    (10, 32, 24, "24"),
    (10, 32, 30, "32"),
    (10, "1500m", "1450m", "1500m"),
    (0, "1500m", "1450m", "1450m"),
    (10, "1e30", "900e27", "1e30"),
    (10, "1e30", amount("900e27") - Quantity(1), "899999999999999999999999999999999999999n"),
    (10, 100, None, "100"),
    (0, 100, None, "100"),
]


def spelled(value: object) -> str:
    return str(value)


@pytest.mark.case("A-28")
@pytest.mark.case("A-29")
@pytest.mark.case("A-30")
@pytest.mark.case("A-31")
@pytest.mark.parametrize(("band", "mark", "held", "after"), OME_NUMBERS, ids=spelled)
def test_without_clocks_the_marks_are_omes(
    band: int, mark: int | str, held: Held, after: str
) -> None:
    found = Bench(ome(band), {PAIR: row(mark)}).measure(1, held)
    assert found.mark == amount(after)


@pytest.mark.case("A-29")
@pytest.mark.parametrize("options", [OME_CAPACITY, CapacityOptions()], ids=["OME", "ours"])
def test_a_band_of_a_hundred_never_lowers_whatever_the_clocks(options: CapacityOptions) -> None:
    never = msgspec.structs.replace(options, hysteresis_percent=100, drop_after=0, settle_after=0)
    bench = Bench(never)
    assert bench.run({0: 32, 1: 8, 2: 0, 400 * DAY: 0}) == ["32"] * 4
    assert bench.last.wake_at == STEADY + 400 * DAY + MINUTE  # a stamp, no wait


@pytest.mark.case("A-29")
def test_a_band_of_zero_follows_every_dip() -> None:
    assert Bench(ome(0)).run({0: 32, 1: 31, 2: 32, 3: 8, 4: 0}) == ["32", "31", "32", "8", "0"]


@pytest.mark.case("A-24")
def test_a_drain_leaves_the_mark() -> None:
    bench = Bench(ome())
    assert bench.run({0: (32, 0), 1: (24, 8), 2: (0, 32)}) == ["32"] * 3
    assert str(bench.rows[PAIR].unavailable) == "32"
    assert str(bench.rows[PAIR].allocatable) == "0"


@pytest.mark.parametrize(
    ("growth", "marks"),
    [("Installed", ["32", "40", "40", "40"]), ("Usable", ["32", "32", "32", "40"])],
)
def test_with_growth_usable_parked_hardware_holds_the_mark_but_never_raises_it(
    growth: str, marks: list[str]
) -> None:
    options = msgspec.convert({"growth": growth, "drop_after": 0.0}, CapacityOptions)
    steps: Mapping[float, Held] = {0: 32, 1: (32, 8), 2: (24, 16), 3: (40, 0)}
    assert Bench(options).run(steps) == marks


def oracle(band: int, mark: int, held: int | None) -> int:
    """OME's rule, in one place and nothing else."""
    if held is None:
        return mark
    if held >= mark or band <= 0:
        return held
    if band >= 100 or held * 100 >= mark * (100 - band):
        return mark
    return held


@settings(max_examples=100)
@given(
    st.sampled_from([-5, 0, 1, 10, 25, 99, 100, 250]),
    st.lists(st.none() | st.integers(0, 120), max_size=12),
    st.lists(st.integers(0, 10**7), min_size=12, max_size=12),
)
def test_with_omes_options_every_history_gives_omes_marks(
    band: int, history: list[int | None], pauses: list[int]
) -> None:
    bench, mark, now = Bench(ome(band)), 0, 0
    for held, pause in zip(history, pauses, strict=False):
        now += pause
        mark = oracle(band, mark, held)
        assert bench.measure(now, held).mark == Quantity.of(mark)


# --- what was not measured --------------------------------------------------------------------


@pytest.mark.case("FC-A10")
@pytest.mark.case("A-35")
def test_no_measurement_moves_no_mark_and_refreshes_no_stamp() -> None:
    rows = {PAIR: row(32), OTHER: row(8, pair=OTHER, observed_at=None)}
    assert advance(rows, None, CapacityOptions(), clock(DAY), True) == Advanced(rows)


@pytest.mark.case("FC-A10")
def test_a_stretch_without_measurement_does_not_count_towards_a_wait() -> None:
    bench = Bench()
    bench.run({0: 32, 10: 0, 20: 0})
    bench.take(25, None)
    bench.take(DAY, None)
    assert waits(bench.measure(DAY + 1, 0)) == {"Settle": ("0", 10), "Drop": ("0", 10)}
    assert str(bench.measure(DAY + 20, 0).mark) == "32"
    assert str(bench.measure(DAY + 21, 0).mark) == "0"


@pytest.mark.case("A-31")
@pytest.mark.case("A-39")
def test_a_vanished_pair_keeps_mark_and_stamp_and_shows_nothing() -> None:
    bench = Bench()
    bench.measure(0, (24, 8))
    found = bench.measure(10 * DAY, None)
    assert found == CapacityRow(
        PAIR, ZERO, ZERO, ZERO, ZERO, Quantity.of(32), observed_at=START, measured=False
    )
    assert bench.last.changed
    again = bench.measure(11 * DAY, None)
    assert again == found
    assert (bench.last.changed, bench.last.stamped, bench.last.wake_at) == (False, False, None)


def test_a_pair_that_was_never_seen_is_zero_with_a_fresh_stamp() -> None:
    bench = Bench()
    found = bench.measure(0, None)
    assert (found.mark, found.ever_seen, found.measured) == (ZERO, False, True)
    assert found.observed_at == START
    assert bench.measure(59, None).observed_at == START
    assert bench.measure(60, None).observed_at == START + timedelta(seconds=60)
    assert bench.measure(61, 0).ever_seen
    assert not bench.measure(62, None).measured


def test_a_pair_seen_with_zero_has_been_seen() -> None:
    found = Bench().measure(0, 0)
    assert (found.mark, found.ever_seen, found.measured) == (ZERO, True, True)


def test_rows_of_flavors_that_are_gone_keep_what_was_believed() -> None:
    waiting = (Wait("Drop", ZERO, START, 5.0, STEADY),)
    rows = {
        PAIR: row(32),
        OTHER: row(8, pair=OTHER, pending=waiting),
        Pair("google.com/tpu", "v5"): row(0, pair=Pair("google.com/tpu", "v5"), ever_seen=False),
    }
    found = advance(rows, reading(32), CapacityOptions(), clock(1), True)
    assert list(found.rows) == [PAIR, OTHER]
    gone = found.rows[OTHER]
    assert (str(gone.mark), gone.observed_at, gone.measured) == ("8", START, False)
    assert (gone.allocatable, gone.pending) == (ZERO, ())
    assert found.changed


@pytest.mark.case("A-33")
def test_a_cluster_without_rows_stays_without() -> None:
    assert advance({}, Reading({}), CapacityOptions(), clock(0), True) == Advanced({})
    assert advance({}, None, CapacityOptions(), clock(0), True) == Advanced({})


def test_rows_come_in_the_order_of_their_pairs() -> None:
    pairs = [Pair(r, f) for r in ("b.io/x", "a.io/x") for f in ("z", "y")]
    found = Reading({pair: seen(8, pair) for pair in pairs})
    assert list(advance({}, found, CapacityOptions(), clock(0), True).rows) == sorted(pairs)


# --- amounts that nobody can read -------------------------------------------------------------


def test_sums_that_lack_an_unreadable_amount_lower_nothing_and_are_no_measurement() -> None:
    bench = Bench(ome())
    before = bench.measure(0, 32)
    found = bench.take(DAY, Reading({PAIR: seen(24, unreadable=1)}))
    assert found == before
    assert not bench.last.changed
    assert str(bench.measure(DAY + 1, 24).mark) == "24"


def test_sums_that_lack_an_unreadable_amount_may_raise_the_mark() -> None:
    bench = Bench()
    bench.measure(0, 32)
    assert str(bench.take(1, Reading({PAIR: seen(40, unreadable=1)})).mark) == "40"


def test_waits_stand_still_while_an_amount_is_unreadable() -> None:
    bench = Bench()
    bench.run({0: 32, 10: 24, 20: 24})
    bench.take(30, Reading({PAIR: seen(16, unreadable=1)}))
    assert bench.last.wake_at is None
    assert waits(bench.measure(DAY, 24)) == {"Settle": ("24", 10), "Drop": ("24", 10)}


# --- stamps -----------------------------------------------------------------------------------


@pytest.mark.case("A-35")
@pytest.mark.parametrize(
    ("observed", "options", "heard", "is_stamped"),
    [
        (-59, CapacityOptions(), True, False),
        (-60, CapacityOptions(), True, True),
        (-DAY, CapacityOptions(), True, True),
        (None, CapacityOptions(), True, True),
        (1, CapacityOptions(), True, True),
        (-DAY, CapacityOptions(report_interval=0), True, False),
        (None, CapacityOptions(report_interval=0), True, False),
        (-DAY, CapacityOptions(), False, False),
        (None, CapacityOptions(), False, False),
        (-300, CapacityOptions(report_interval=301), True, False),
        (-301, CapacityOptions(report_interval=301), True, True),
    ],
    ids=[
        "fresh",
        "at the interval",
        "expired",
        "missing",
        "in the future",
        "disabled",
        "disabled and missing",
        "unheard",
        "unheard and missing",
        "longer interval",
        "at the longer interval",
    ],
)
def test_an_unchanged_row_is_stamped_anew_when_its_stamp_is_due(
    observed: float | None, options: CapacityOptions, heard: bool, is_stamped: bool
) -> None:
    at = None if observed is None else START + timedelta(seconds=observed)
    bench = Bench(options, {PAIR: row(32, observed_at=at)})
    found = bench.measure(0, 32, heard=heard)
    assert found.observed_at == (START if is_stamped else at)
    assert bench.last.stamped == is_stamped
    assert bench.last.changed is False or at is None


@pytest.mark.case("A-35")
@pytest.mark.case("A-37")
def test_a_pass_that_finds_the_same_changes_nothing() -> None:
    bench = Bench()
    first = bench.measure(0.5, 32)
    assert (bench.last.changed, bench.last.stamped) == (True, False)
    assert first.observed_at == START  # whole seconds
    assert bench.measure(30, 32) == first
    assert (bench.last.changed, bench.last.stamped) == (False, False)


def test_the_counting_of_a_wait_alone_is_no_change() -> None:
    bench = Bench()
    bench.run({0: 32, 1: 30})
    assert bench.last.changed
    one = bench.rows[PAIR]
    other = bench.measure(2, 30)
    assert one != other
    assert same_row(one, other)
    assert not bench.last.changed


def test_a_row_that_changes_has_the_present_stamp() -> None:
    bench = Bench()
    bench.run({0: 32})
    assert bench.measure(5.9, (24, 8)).observed_at == START + timedelta(seconds=5)
    assert (bench.last.changed, bench.last.stamped) == (True, False)


def test_when_one_stamp_is_due_all_measured_rows_get_it() -> None:
    third = Pair("nvidia.com/gpu", "l4")
    rows = {
        PAIR: row(8, observed_at=START - timedelta(seconds=60)),
        OTHER: row(8, pair=OTHER, observed_at=START - timedelta(seconds=20)),
        third: row(8, pair=third, observed_at=START - timedelta(seconds=90)),
    }
    found = Reading({PAIR: seen(8), OTHER: seen(8, OTHER), third: seen(None, third)})
    after = advance(rows, found, CapacityOptions(), clock(0), True)
    stamps = [after.rows[pair].observed_at for pair in (PAIR, OTHER, third)]
    assert stamps == [START, START, START - timedelta(seconds=90)]
    assert after.stamped


# --- when to look again -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "steps", "wakes_in"),
    [
        (CapacityOptions(), {0: 32}, 60),
        (CapacityOptions(), {0: 32, 12: 32}, 48),
        (CapacityOptions(), {0: 32, 12: 24}, 30),
        (CapacityOptions(), {0: 32, 12: 24, 22: 24}, 20),
        (CapacityOptions(report_interval=0), {0: 32, 12: 30}, DAY),
        (CapacityOptions(report_interval=0), {0: 32}, None),
        (CapacityOptions(report_interval=0, grow_after=90), {0: 32}, 90),
        (msgspec.structs.replace(OME_CAPACITY, report_interval=0), {0: 32, 1: 31}, None),
    ],
    ids=[
        "stamp",
        "the rest of the stamp",
        "Drop before the stamp",
        "the rest of Drop",
        "Settle",
        "nothing",
        "Grow",
        "Settle never",
    ],
)
def test_it_wakes_when_a_wait_or_a_stamp_is_due(
    options: CapacityOptions, steps: Mapping[float, Held], wakes_in: float | None
) -> None:
    bench = Bench(options)
    bench.run(steps)
    last = max(steps)
    assert bench.last.wake_at == (None if wakes_in is None else STEADY + last + wakes_in)


def test_a_short_interval_never_makes_it_wake_at_once() -> None:
    bench = Bench(CapacityOptions(report_interval=0.01))
    for at in (0.9, 1.0, 1.5, 2.0):
        bench.measure(at, 32)
        assert bench.last.wake_at is not None
        assert bench.last.wake_at > STEADY + at


def test_unheard_it_looks_again_soon_and_not_at_once() -> None:
    bench = Bench()
    bench.run({0: 32, 1: 24})
    bench.measure(DAY, 24, heard=False)
    assert bench.last.wake_at == STEADY + DAY + 10


# --- properties -------------------------------------------------------------------------------

STEPS = st.lists(
    st.tuples(
        st.sampled_from([0.5, 1, 10, 29.5, 30, 31, 600, DAY]),  # seconds since the last reading
        st.none() | st.tuples(st.integers(0, 40), st.integers(0, 8)),
        st.booleans(),  # heard
        st.sampled_from([0, 0, 0, -DAY, 5, 10_000 * DAY]),  # a jump of the wall clock
    ),
    max_size=12,
)
OPTIONS = st.builds(
    CapacityOptions,
    hysteresis_percent=st.sampled_from([-5, 0, 10, 50, 100]),
    growth=st.sampled_from(["Installed", "Usable"]),
    grow_after=st.sampled_from([0, 20]),
    drop_after=st.sampled_from([0, 30]),
    settle_after=st.sampled_from([None, 0, 60, DAY]),
    report_interval=st.sampled_from([0, 60]),
)
Steps = list[tuple[float, tuple[int, int] | None, bool, float]]


@settings(max_examples=100)
@given(STEPS, OPTIONS)
def test_a_mark_never_exceeds_what_was_installed_nor_falls_below_what_is(
    steps: Steps, options: CapacityOptions
) -> None:
    bench, now, most = Bench(options), 0.0, 0
    for pause, held, heard, jump in steps:
        now += pause
        mark = bench.measure(now, held, heard=heard, wall_off=jump).mark
        most = max(most, sum(held or (0, 0)))
        assert mark <= Quantity.of(most)
        if held is not None and not options.grow_after:
            assert mark >= Quantity.of(sum(held) if options.growth == "Installed" else held[0])


@pytest.mark.case("FC-A10")
@settings(max_examples=100)
@given(STEPS, OPTIONS, st.lists(st.sampled_from([0.5, 30, DAY, 400 * DAY]), max_size=4))
def test_no_failed_measurement_moves_a_mark_a_wait_or_a_stamp(
    steps: Steps, options: CapacityOptions, failures: list[float]
) -> None:
    """After any history, for however long nothing can be measured."""
    bench, now = Bench(options), 0.0
    for pause, held, heard, jump in (*steps, (1.0, (8, 0), True, 0.0)):
        now += pause
        bench.measure(now, held, heard=heard, wall_off=jump)
        before = bench.rows[PAIR]
        for failure in failures:
            now += failure
            after = bench.take(now, None, wall_off=jump)
            assert (after.mark, after.observed_at) == (before.mark, before.observed_at)
            assert same_row(after, before)
            assert waits(after) == waits(before)
            assert (bench.last.changed, bench.last.stamped) == (False, False)


@settings(max_examples=100)
@given(STEPS, OPTIONS)
def test_no_jump_of_the_wall_clock_moves_a_mark(steps: Steps, options: CapacityOptions) -> None:
    calm, jumpy, now = Bench(options), Bench(options), 0.0
    for pause, held, heard, jump in steps:
        now += pause
        one = calm.measure(now, held, heard=heard)
        other = jumpy.measure(now, held, heard=heard, wall_off=jump)
        assert one.mark == other.mark
        assert waits(one) == waits(other)


@settings(max_examples=100)
@given(STEPS, OPTIONS)
def test_what_goes_on_waiting_is_past_the_mark_and_not_due(
    steps: Steps, options: CapacityOptions
) -> None:
    bench, now = Bench(options), 0.0
    for pause, held, heard, _ in steps:
        now += pause
        found = bench.measure(now, held, heard=heard)
        kinds = {wait.kind for wait in found.pending}
        assert kinds in (set(), {"Grow"}, {"Settle"}, {"Settle", "Drop"})
        assert all((wait.value > found.mark) == (wait.kind == "Grow") for wait in found.pending)
        assert all(wait.value != found.mark for wait in found.pending)
        assert bench.last.wake_at is None or bench.last.wake_at > STEADY + now
