"""Kubernetes quantities, exactly.

A quantity is a whole number of nanos (10^-9), which is the finest that Kubernetes keeps: a finer
amount is rounded away from zero, as the API server does. Python's integers have no bound, so sums
and comparisons are exact at any size. The text that a quantity prints is the API server's own
canonical form: reading it back gives the same value and the same text.

Source of the rules: the `Quantity` type of Kubernetes' apimachinery, and what a running API server
answers (tests/e2e write quantities into a ResourceQuota and read them back).
"""

import re
from functools import lru_cache
from typing import Final, Literal, Self

import msgspec

Form = Literal["DecimalSI", "BinarySI", "DecimalExponent"]

_NANO: Final = 10**9
_MAX_BINARY: Final = (2**63 - 1) * _NANO  # the API server caps binary quantities here
# Longer text is no honest quantity, and arithmetic on it would be a way to stall the program.
_MAX_TEXT: Final = 128
_MAX_EXPONENT: Final = 100

_SI: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_SI_SUFFIX: Final = {power: suffix for suffix, power in _SI.items()}
_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_BINARY_SUFFIX: Final = {power: suffix for suffix, power in _BINARY.items()} | {0: ""}
_TEXT: Final = re.compile(
    r"(?P<sign>[+-]?)(?:(?P<whole>[0-9]+)(?:\.(?P<part>[0-9]*))?|\.(?P<only>[0-9]+))"
    r"(?P<suffix>[KMGTPE]i|[numkMGTPE]?|[eE](?P<exponent>[+-]?[0-9]+))"
)


class QuantityError(ValueError):
    """The text is not a Kubernetes quantity."""


class Quantity(msgspec.Struct, frozen=True, eq=False, gc=False):
    """An exact, immutable amount. Equality, order and hash are by value, never by spelling.

    Made in C, and unknown to the garbage collector: a pass over a large tree makes many.
    """

    nanos: int
    form: Form = "DecimalSI"

    @classmethod
    def parse(cls, text: str) -> "Quantity":
        """Read a quantity as the API server does. Raises QuantityError with the text in it."""
        return _parse(text)

    @classmethod
    def of(cls, whole: int) -> Self:
        """A whole number of units."""
        return cls(whole * _NANO)

    # --- value ----------------------------------------------------------------------------

    @property
    def is_whole(self) -> bool:
        return self.nanos % _NANO == 0

    def ceil(self) -> int:
        """Whole units, rounded up: what Kueue charges for a resource that is not cpu."""
        return -(-self.nanos // _NANO)

    def __float__(self) -> float:
        return self.nanos / _NANO

    def __bool__(self) -> bool:
        return self.nanos != 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Quantity) and self.nanos == other.nanos

    def __ne__(self, other: object) -> bool:
        return not self == other  # a Struct's own would go by identity

    def __hash__(self) -> int:
        return hash(self.nanos)

    def __lt__(self, other: "Quantity") -> bool:
        return self.nanos < other.nanos

    def __le__(self, other: "Quantity") -> bool:
        return self.nanos <= other.nanos

    def __gt__(self, other: "Quantity") -> bool:
        return self.nanos > other.nanos

    def __ge__(self, other: "Quantity") -> bool:
        return self.nanos >= other.nanos

    def __add__(self, other: "Quantity") -> "Quantity":
        return Quantity(self.nanos + other.nanos, self.form if self.nanos else other.form)

    def __sub__(self, other: "Quantity") -> "Quantity":
        return Quantity(self.nanos - other.nanos, self.form if self.nanos else other.form)

    def __neg__(self) -> "Quantity":
        return Quantity(-self.nanos, self.form)

    def __mul__(self, factor: int) -> "Quantity":
        return Quantity(self.nanos * factor, self.form)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _memo: object) -> Self:
        return self

    # --- text -----------------------------------------------------------------------------

    def canonical(self) -> str:
        """The API server's own spelling of this value, which reads back as the same value."""
        if not self.nanos:
            return "0"
        # A binary amount that no binary suffix fits is told in the decimal form, as the server does
        # from the second reading on: "5000" has lost what it was, and would come back as "5k".
        if self.form == "BinarySI" and self.nanos % (1024 * _NANO) == 0:
            return _binary_text(self.nanos // _NANO)
        return _decimal_text(self.nanos, exponent_form=self.form == "DecimalExponent")

    def __str__(self) -> str:
        return self.canonical()

    def __repr__(self) -> str:
        return f"Quantity({self.canonical()!r})"


ZERO: Final = Quantity(0)


def total(amounts: "list[Quantity] | tuple[Quantity, ...]") -> Quantity:
    """The exact sum; 0 for none."""
    result = ZERO
    for amount in amounts:
        result = result + amount
    return result


@lru_cache(maxsize=4096)
def _parse(text: str) -> Quantity:
    match = _TEXT.fullmatch(text) if len(text) <= _MAX_TEXT else None
    if match is None:
        raise QuantityError(f"{text[:64]!r} is not a Kubernetes quantity")
    whole, part = match["whole"] or "0", match["part"] or match["only"] or ""
    # The amount is digits / 10^scale * 10^power * 2^bits, kept in integers to the end.
    digits, scale = int(whole + part), len(part)
    power, bits, form = _suffix(text, match["suffix"], match["exponent"])
    numerator = digits * 2**bits * 10 ** (max(power, 0) + 9)
    denominator = 10 ** (scale + max(-power, 0))
    nanos = -(-numerator // denominator)  # up: Kubernetes never rounds an amount away
    if form == "BinarySI":
        nanos = min(nanos, _MAX_BINARY)
    return Quantity(-nanos if match["sign"] == "-" else nanos, form)


def _suffix(text: str, suffix: str, exponent: str | None) -> tuple[int, int, Form]:
    """A suffix as (power of ten, power of two, form)."""
    if exponent is not None:
        power = int(exponent)
        if abs(power) > _MAX_EXPONENT:
            raise QuantityError(f"{text[:64]!r} has an exponent beyond ±{_MAX_EXPONENT}")
        return power, 0, "DecimalExponent"
    if suffix in _BINARY:
        return 0, _BINARY[suffix], "BinarySI"
    return _SI[suffix], 0, "DecimalSI"


def _decimal_text(nanos: int, *, exponent_form: bool) -> str:
    whole, rest = divmod(nanos, _NANO)
    if not rest and whole % 1000:  # a number of devices, mostly: it is its own shortest text
        return str(whole)
    power = -9
    # The largest power of a thousand that leaves a whole number. "E" is the last SI suffix.
    while nanos % 1000 == 0 and (exponent_form or power < 18):
        nanos //= 1000
        power += 3
    if exponent_form:
        return f"{nanos}e{power}" if power else str(nanos)
    return f"{nanos}{_SI_SUFFIX[power]}"


def _binary_text(value: int) -> str:
    power = 0
    while value % 1024 == 0 and power < 60:
        value //= 1024
        power += 10
    return f"{value}{_BINARY_SUFFIX[power]}"
