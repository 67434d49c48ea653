"""How long a change must last before it is believed, and what a wait becomes."""

from collections.abc import Mapping
from datetime import timedelta

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quota_translator.core.options import CapacityOptions
from quota_translator.core.quantity import Quantity
from quota_translator.core.world import Wait
from tests.core.marks import DAY, HOUR, PAIR, START, STEADY, Bench, Held, row, waits

NEVER = CapacityOptions(settle_after=None)

# What it shows, the options, the reading at each second, and the mark after each.
HISTORIES: list[tuple[str, CapacityOptions, Mapping[float, Held], list[int]]] = [
    # The worked examples.
    ("32→24 for 10 s→32", CapacityOptions(), {0: 32, 1: 24, 11: 32, 3 * DAY: 32}, [32] * 4),
    (
        "32→30 for 23 h→28 for 20 s→30",
        CapacityOptions(),
        {
            0: 32,
            10: 30,
            10 + 23 * HOUR: 28,
            30 + 23 * HOUR: 30,
            9 + 24 * HOUR: 30,
            10 + 24 * HOUR: 30,
        },
        [32, 32, 32, 32, 32, 30],
    ),
    (
        "32→0 by deletions→16 a day later",
        CapacityOptions(),
        {0: 32, 5: 24, 10: 16, 15: 8, 20: None, DAY: 16, DAY + 29: 16, DAY + 30: 16},
        [32] * 7 + [16],
    ),
    (
        "40→36 without dropAfter",
        CapacityOptions(drop_after=0),
        {0: 40, 1: 36, 60: 36},
        [40, 40, 40],
    ),
    # Drop
    ("32→24 for 30 s", CapacityOptions(), {0: 32, 1: 24, 30: 24, 31: 24}, [32, 32, 32, 24]),
    ("a plugin that restarts", CapacityOptions(), {0: 32, 1: 0, 26: 0, 27: 32}, [32] * 4),
    (
        "the largest since",
        CapacityOptions(),
        {0: 32, 1: 8, 11: 24, 21: 16, 31: 16},
        [32] * 4 + [24],
    ),
    (
        "a reading still lower starts anew",
        CapacityOptions(),
        {0: 32, 1: 24, 21: 16, 31: 16, 60: 16, 61: 16},
        [32, 32, 32, 24, 24, 16],
    ),
    (
        "back within the band",
        CapacityOptions(),
        {0: 32, 1: 24, 21: 30, 22: 24, 51: 24, 52: 24},
        [32] * 5 + [24],
    ),
    ("dropAfter 0", CapacityOptions(drop_after=0), {0: 32, 1: 24, 2: 32, 3: 0}, [32, 24, 32, 0]),
    # Settle
    ("32→30 for 24 h", CapacityOptions(), {0: 32, 5: 30, DAY: 30, DAY + 5: 30}, [32, 32, 32, 30]),
    ("settleAfter never", NEVER, {0: 32, 5: 30, 900 * DAY: 30}, [32] * 3),
    ("settleAfter 0", CapacityOptions(settle_after=0), {0: 32, 5: 31, 6: 30}, [32, 31, 30]),
    (
        "the largest since, through Drops",
        CapacityOptions(),
        {0: 32, 5: 29, 6: 16, 16: 30, HOUR: 29, DAY + 5: 29, 2 * DAY + 4: 29, 2 * DAY + 5: 29},
        [32] * 5 + [30, 30, 29],
    ),
    (
        "decay of a unit a day",
        CapacityOptions(),
        {d * DAY: 100 - d for d in range(4)},
        [100, 100, 99, 98],
    ),
    # Grow
    ("growAfter 0", CapacityOptions(), {0: 32, 1: 40}, [32, 40]),
    ("growAfter", CapacityOptions(grow_after=60), {0: 32, 59: 32, 60: 32}, [0, 0, 32]),
    (
        "the smallest since",
        CapacityOptions(grow_after=60),
        {0: 8, 30: 6, 60: 10, 119: 10, 120: 10},
        [0, 0, 6, 6, 10],
    ),
    ("a rise that went", CapacityOptions(grow_after=60), {0: 8, 30: 0, 40: 8, 99: 8}, [0] * 4),
    # Both
    (
        "32→16 while Settle is nearly due",
        CapacityOptions(),
        {0: 32, 5: 30, DAY: 16, DAY + 5: 16, DAY + 29: 16, DAY + 30: 16},
        [32, 32, 32, 30, 30, 16],
    ),
    (
        "both due at once: the lower, though within the band of the other",
        CapacityOptions(),
        {0: 100, 5: 95, DAY - 30: 86, DAY + 5: 86},
        [100, 100, 100, 86],
    ),
]


@pytest.mark.case("A-30")
@pytest.mark.case("A-41")
@pytest.mark.case("A-44")
@pytest.mark.parametrize(
    ("options", "steps", "marks"),
    [pytest.param(*history[1:], id=history[0]) for history in HISTORIES],
)
def test_a_change_is_believed_when_it_has_lasted(
    options: CapacityOptions, steps: Mapping[float, Held], marks: list[int]
) -> None:
    assert Bench(options).run(steps) == [str(mark) for mark in marks]


def test_a_wait_says_what_it_waits_for_since_when_and_until_when() -> None:
    bench = Bench()
    bench.measure(0, 32)
    found = bench.measure(1.7, 24)
    since = START + timedelta(seconds=1)
    assert found.pending == (
        Wait("Settle", Quantity.of(24), since, 0.0, STEADY + 1.7, since + timedelta(days=1)),
        Wait("Drop", Quantity.of(24), since, 0.0, STEADY + 1.7, since + timedelta(seconds=30)),
    )


def test_never_has_no_until() -> None:
    bench = Bench(NEVER)
    bench.run({0: 32, 1: 30})
    (settle,) = bench.rows[PAIR].pending
    assert (settle.kind, settle.until) == ("Settle", None)


def test_a_delay_beyond_the_calendar_has_no_until_either() -> None:
    bench = Bench(CapacityOptions(settle_after=1e12))
    bench.run({0: 32, 1: 30})
    assert bench.rows[PAIR].pending[0].until is None


def test_until_stays_while_the_clocks_agree_and_follows_them_when_they_do_not() -> None:
    bench = Bench()
    bench.run({0: 32, 1: 30})
    told = bench.rows[PAIR].pending[0].until
    assert told == START + timedelta(seconds=1, days=1)
    for at in (1.9, 7.3, 3600.5):
        assert bench.measure(at, 30).pending[0].until == told
    jumped = bench.measure(3601, 30, wall_off=HOUR).pending[0]
    assert jumped.until == told + timedelta(hours=1)
    assert jumped.since == START + timedelta(seconds=1)


# --- restarts, takeovers and silence ----------------------------------------------------------


def stored(kind: str, value: int, elapsed: float) -> Wait:
    return msgspec.convert(
        {"kind": kind, "value": Quantity.of(value), "since": START, "elapsed": elapsed}, Wait
    )


@pytest.mark.case("A-41")
def test_a_wait_goes_on_from_what_the_status_stored() -> None:
    waiting = row(32, pending=(stored("Settle", 30, 23 * HOUR),))
    bench = Bench(rows={PAIR: waiting})
    steps: Mapping[float, Held] = {9 * DAY: 30, 9 * DAY + HOUR - 1: 30, 9 * DAY + HOUR: 30}
    assert bench.run(steps) == ["32", "32", "30"]


def test_a_wait_that_had_lasted_when_it_was_stored_is_believed_at_the_first_measurement() -> None:
    assert Bench(rows={PAIR: row(32, pending=(stored("Drop", 24, 31),))}).run({0: 24}) == ["24"]


def test_a_reading_at_the_mark_ends_what_was_stored() -> None:
    waiting = row(32, pending=(stored("Settle", 24, 29), stored("Drop", 24, 29)))
    bench = Bench(rows={PAIR: waiting})
    assert bench.measure(0, 32).pending == ()
    assert waits(bench.measure(1, 24)) == {"Settle": ("24", 0), "Drop": ("24", 0)}


@pytest.mark.parametrize("value", [32, 99])
def test_a_stored_wait_that_makes_no_sense_starts_anew(value: int) -> None:
    waiting = row(32, pending=(stored("Settle", value, 9 * DAY), stored("Grow", 16, 9 * DAY)))
    bench = Bench(rows={PAIR: waiting})
    found = bench.measure(0, 30)
    assert (str(found.mark), waits(found)) == ("32", {"Settle": ("30", 0)})
    grown = Bench(rows={PAIR: row(32, pending=(stored("Grow", 16, 9 * DAY),))})
    grown.options = CapacityOptions(grow_after=60)
    assert waits(grown.measure(0, 40)) == {"Grow": ("40", 0)}


@settings(max_examples=80)
@given(st.lists(st.tuples(st.sampled_from([0.5, 7, 29, 30, DAY]), st.booleans()), max_size=12))
def test_a_fall_is_believed_when_the_measured_time_adds_up(
    pauses: list[tuple[float, bool]],
) -> None:
    """Time that a restart or a failed measurement cut in two adds nothing."""
    bench, now, lasted = Bench(), 1.0, 0.0
    bench.run({0: 32, now: 16})
    for pause, is_interrupted in pauses:
        if is_interrupted:
            bench.take(now + pause / 2, None)
        now += pause
        lasted += 0 if is_interrupted else pause
        assert str(bench.measure(now, 16).mark) == ("16" if lasted >= 30 else "32")


def test_silence_of_the_watches_does_not_count() -> None:
    bench = Bench()
    bench.run({0: 32, 1: 24, 11: 24})
    told = bench.rows[PAIR].pending
    for at in (20, 40, 400):
        found = bench.measure(at, 24, heard=False)
        assert waits(found)["Drop"] == ("24", 10)
        assert [wait.until for wait in found.pending] == [wait.until for wait in told]
    assert waits(bench.measure(500, 24))["Drop"] == ("24", 10)
    assert str(bench.measure(520, 24).mark) == "24"


def test_a_wait_that_begins_in_silence_counts_from_the_first_word() -> None:
    bench = Bench()
    bench.measure(0, 32)
    bench.measure(1, 24, heard=False)
    assert waits(bench.measure(100, 24))["Drop"] == ("24", 0)
    assert bench.run({129: 24, 130: 24}) == ["32", "24"]


def test_a_steady_clock_that_starts_again_shortens_nothing() -> None:
    bench = Bench()
    bench.run({0: 32, 1: 24})
    assert waits(bench.measure(-4000, 24)) == {"Settle": ("24", 0), "Drop": ("24", 0)}


def test_timers_that_fire_a_float_too_soon_do_not_loop() -> None:
    bench = Bench(CapacityOptions(drop_after=0.3))
    bench.run({0: 32, 0.1: 24})
    assert bench.last.wake_at is not None
    assert str(bench.measure(bench.last.wake_at - STEADY - 1e-9, 24).mark) == "24"


# --- options that change ----------------------------------------------------------------------


def change(bench: Bench, **options: object) -> None:
    bench.options = msgspec.structs.replace(bench.options, **options)


def test_a_settle_that_the_band_makes_a_drop_keeps_its_time() -> None:
    bench = Bench()
    bench.run({0: 32, 10: 30, 25: 30})
    change(bench, hysteresis_percent=5)
    assert waits(bench.measure(35, 30)) == {"Settle": ("30", 25), "Drop": ("30", 25)}
    assert bench.rows[PAIR].pending[1].since == START + timedelta(seconds=10)
    assert bench.run({39: 30, 40: 30}) == ["32", "30"]


def test_a_settle_that_saw_a_reading_within_the_new_band_lends_its_time_to_no_drop() -> None:
    bench = Bench()
    bench.run({0: 100, 10: 97, 1000: 92})
    change(bench, hysteresis_percent=5)
    assert waits(bench.measure(1001, 92)) == {"Settle": ("97", 991), "Drop": ("92", 0)}


def test_a_drop_that_the_band_takes_in_ends_and_settle_goes_on() -> None:
    bench = Bench()
    bench.run({0: 32, 10: 24})
    change(bench, hysteresis_percent=50)
    assert waits(bench.measure(39, 24)) == {"Settle": ("24", 29)}
    assert str(bench.measure(50, 24).mark) == "32"


def test_a_drop_whose_largest_reading_the_band_takes_in_starts_anew() -> None:
    bench = Bench()
    bench.run({0: 100, 10: 80, 20: 30})
    change(bench, hysteresis_percent=25)
    assert waits(bench.measure(25, 30)) == {"Settle": ("80", 15), "Drop": ("30", 0)}


@pytest.mark.parametrize(
    ("options", "mark"),
    [
        ({"hysteresis_percent": 0}, "30"),
        ({"settle_after": 60}, "30"),
        ({"hysteresis_percent": 0, "drop_after": 0}, "30"),
        ({"drop_after": 0}, "32"),
        ({"hysteresis_percent": 100, "settle_after": 60}, "32"),
    ],
    ids=["band 0", "settleAfter", "band and dropAfter 0", "dropAfter only", "band 100"],
)
def test_options_are_judged_anew_at_each_measurement(options: dict[str, object], mark: str) -> None:
    bench = Bench()
    bench.run({0: 32, 10: 30, 100: 30})
    change(bench, **options)
    assert str(bench.measure(101, 30).mark) == mark


def test_a_delay_that_becomes_zero_believes_the_present_reading() -> None:
    bench = Bench(CapacityOptions(grow_after=60))
    bench.run({0: 32, 60: 32, 61: 40, 62: 48})
    change(bench, grow_after=0)
    assert str(bench.measure(63, 48).mark) == "48"
    bench.run({64: 20, 65: 19})
    change(bench, drop_after=0)
    assert str(bench.measure(66, 19).mark) == "19"


def test_growth_that_becomes_usable_ends_a_rise_by_parked_hardware() -> None:
    bench = Bench(CapacityOptions(grow_after=60), {PAIR: row(32)})
    assert waits(bench.measure(0, (32, 8))) == {"Grow": ("40", 0)}
    change(bench, growth="Usable")
    assert waits(bench.measure(1, (32, 8))) == {}
