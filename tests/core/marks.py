"""Measurements over time, for the tests of marks and waits."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from quota_translator.core.capacity import PairReading, Reading
from quota_translator.core.highwater import Advanced, advance
from quota_translator.core.names import Pair
from quota_translator.core.options import CapacityOptions
from quota_translator.core.quantity import ZERO, Quantity
from quota_translator.core.world import CapacityRow, Clock

PAIR = Pair("nvidia.com/gpu", "a100")
START = datetime(2026, 3, 1, 12, tzinfo=UTC)
STEADY = 5_000.0
MINUTE, HOUR, DAY = 60.0, 3600.0, 24 * 3600.0

# What the nodes of a pair hold: how many are usable, or (usable, parked), or None for "no node
# lists the resource".
Held = int | str | Quantity | tuple[int, int] | None


def amount(value: int | str | Quantity) -> Quantity:
    if isinstance(value, Quantity):
        return value
    return Quantity.of(value) if isinstance(value, int) else Quantity.parse(value)


def seen(held: Held, pair: Pair = PAIR, unreadable: int = 0) -> PairReading:
    usable, parked = held if isinstance(held, tuple) else (held, 0)
    return PairReading(
        pair=pair,
        allocatable=ZERO if usable is None else amount(usable),
        unavailable=amount(parked),
        unhealthy=ZERO,
        reported=usable is not None,
        unreadable=unreadable,
    )


def reading(held: Held) -> Reading:
    return Reading({PAIR: seen(held)})


def clock(seconds: float, wall_off: float = 0.0) -> Clock:
    return Clock(START + timedelta(seconds=seconds + wall_off), STEADY + seconds)


def row(mark: int | str, **fields: object) -> CapacityRow:
    """A row as if the mark had just been measured."""
    held = amount(mark)
    values: dict[str, object] = {
        "pair": PAIR,
        "allocatable": held,
        "unavailable": ZERO,
        "unhealthy": ZERO,
        "installed": held,
        "mark": held,
        "observed_at": START,
    }
    return CapacityRow(**(values | fields))  # type: ignore[arg-type]


class Bench:
    """One pair under measurement; remembers what the controller would."""

    def __init__(
        self, options: CapacityOptions | None = None, rows: Mapping[Pair, CapacityRow] | None = None
    ) -> None:
        self.options = options or CapacityOptions()
        self.rows: Mapping[Pair, CapacityRow] = rows or {}
        self.last = Advanced({})

    def measure(
        self, seconds: float, held: Held, *, heard: bool = True, wall_off: float = 0.0
    ) -> CapacityRow:
        return self.take(seconds, reading(held), heard=heard, wall_off=wall_off)

    def take(
        self, seconds: float, found: Reading | None, *, heard: bool = True, wall_off: float = 0.0
    ) -> CapacityRow:
        self.last = advance(self.rows, found, self.options, clock(seconds, wall_off), heard)
        self.rows = self.last.rows
        return self.rows[PAIR]

    def run(self, steps: Mapping[float, Held]) -> list[str]:
        """The marks after measuring each amount at each second."""
        return [str(self.measure(at, held).mark) for at, held in steps.items()]


def waits(found: CapacityRow) -> dict[str, tuple[str, float]]:
    """Pending changes by kind: value, and the seconds that they have lasted."""
    return {wait.kind: (str(wait.value), wait.elapsed) for wait in found.pending}
