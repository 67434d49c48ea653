"""Quantities: read as the API server reads them, compared by value, printed in its own spelling."""

import copy
import pickle
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quota_translator.core.quantity import ZERO, Form, Quantity, QuantityError, total

NANO = 10**9

# (text, nanos, canonical): what Go's resource.ParseQuantity and CanonicalizeBytes of Kubernetes'
# apimachinery 0.36.1 give, seen by running them.
READ = [
    # plain numbers
    ("0", 0, "0"),
    ("-0", 0, "0"),
    ("0e5", 0, "0"),
    ("0Ki", 0, "0"),
    ("1", NANO, "1"),
    ("+1", NANO, "1"),
    ("08", 8 * NANO, "8"),
    ("8.", 8 * NANO, "8"),
    ("8.0", 8 * NANO, "8"),
    (".5", NANO // 2, "500m"),
    ("-.5", -NANO // 2, "-500m"),
    ("1.234", 1_234_000_000, "1234m"),
    # decimal suffixes
    ("1n", 1, "1n"),
    ("1u", 1_000, "1u"),
    ("1m", 1_000_000, "1m"),
    ("1000m", NANO, "1"),
    ("1500m", 1_500_000_000, "1500m"),
    ("1000", 1_000 * NANO, "1k"),
    ("16000000", 16_000_000 * NANO, "16M"),
    ("1E", 10**18 * NANO, "1E"),
    ("4E", 4 * 10**18 * NANO, "4E"),
    # exponents: E is a suffix, or an exponent when a number follows
    ("1e3", 1_000 * NANO, "1e3"),
    ("1E3", 1_000 * NANO, "1e3"),
    ("129e6", 129_000_000 * NANO, "129e6"),
    ("12E6", 12_000_000 * NANO, "12e6"),
    ("1e-3", 1_000_000, "1e-3"),
    ("1e19", 10**19 * NANO, "10e18"),
    ("1e30", 10**30 * NANO, "1e30"),
    ("1e100", 10**100 * NANO, "10e99"),
    # binary suffixes
    ("1Ki", 1_024 * NANO, "1Ki"),
    ("1024Mi", 2**30 * NANO, "1Gi"),
    ("1025Ki", 1_025 * 2**10 * NANO, "1025Ki"),
    ("1.5Gi", 1_536 * 2**20 * NANO, "1536Mi"),
    ("0.5Ki", 512 * NANO, "512"),
    ("0.001Ki", 1_024_000_000, "1024m"),
    ("16Pi", 16 * 2**50 * NANO, "16Pi"),
    # the finest is a nano, and nothing is rounded away
    ("0.1n", 1, "1n"),
    ("1e-20", 1, "1e-9"),
    ("-0.0000000001", -1, "-1n"),
    ("1.5n", 2, "2n"),
    # binary amounts stop at the largest int64
    ("8Ei", (2**63 - 1) * NANO, "9223372036854775807"),
    ("-9Ei", -(2**63 - 1) * NANO, "-9223372036854775807"),
]


@pytest.mark.parametrize(("text", "nanos", "canonical"), READ, ids=[repr(row[0]) for row in READ])
@pytest.mark.case("FC-D01")
@pytest.mark.case("FC-D02")
def test_text_is_read_and_printed_as_the_api_server_does(
    text: str, nanos: int, canonical: str
) -> None:
    amount = Quantity.parse(text)
    assert amount.nanos == nanos
    assert amount.canonical() == canonical == str(amount)
    assert Quantity.parse(canonical) == amount
    assert Quantity.parse(canonical).canonical() == canonical


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "8x", "eight", "NaN", "inf", "0x10", "1,5", "1_000", "1e", "1ki", "1K", "1KiB"),
        *("1mi", " 1", "1 ", "1\n", "1 Gi", "--1", "1.2.3", "٨", "1e1.5"),
        # Go's parser reads these as 0; the pattern of every CRD refuses them, and so do people.
        *(".", "-", "+", "Ki", "m", "e3", "E"),
    ],
)
def test_what_is_no_quantity_is_refused_with_the_text_in_the_message(text: str) -> None:
    with pytest.raises(QuantityError) as refused:
        Quantity.parse(text)
    assert repr(text) in str(refused.value)
    assert isinstance(refused.value, ValueError)


@pytest.mark.parametrize("text", ["1" * 129, "1" * 100_000, "1e101", "1e-101", "1e999999999"])
def test_text_that_would_stall_the_program_is_refused_shortly(text: str) -> None:
    with pytest.raises(QuantityError) as refused:
        Quantity.parse(text)
    assert len(str(refused.value)) < 150


@pytest.mark.case("A-12")
def test_equal_amounts_in_different_spelling_are_equal_and_inputs_stay_as_they_are() -> None:
    milli, half = Quantity.parse("1500m"), Quantity.parse("0.5")
    assert milli < Quantity.parse("2Gi")
    assert half == Quantity.parse("500m")
    assert hash(half) == hash(Quantity.parse("500m"))
    assert (milli + half, milli - half) == (Quantity.of(2), Quantity.of(1))
    assert (milli.nanos, half.nanos) == (1_500_000_000, 500_000_000)


@pytest.mark.case("FC-D01")
@pytest.mark.parametrize(
    ("written", "stored"), [("1000", "1k"), ("1024Mi", "1Gi"), ("0.5", "500m"), ("8.0", "8")]
)
def test_what_the_server_stores_is_what_we_wrote(written: str, stored: str) -> None:
    assert Quantity.parse(written).canonical() == stored
    assert Quantity.parse(stored) == Quantity.parse(written)


@pytest.mark.case("FC-D04")
@pytest.mark.parametrize(
    ("text", "whole"),
    [("0.5", None), ("500m", None), ("1500m", None), ("3000m", 3), ("1Ki", 1024), ("8.0", 8)],
)
def test_wholeness_is_of_the_value_not_of_the_spelling(text: str, whole: int | None) -> None:
    amount = Quantity.parse(text)
    assert amount.is_whole == (whole is not None)
    if whole is not None:
        assert amount == Quantity.of(whole)


@pytest.mark.parametrize(
    ("text", "charged"), [("1500m", 2), ("1", 1), ("0", 0), ("1n", 1), ("-1500m", -1)]
)
def test_whole_units_are_rounded_up(text: str, charged: int) -> None:
    assert Quantity.parse(text).ceil() == charged


def test_order_is_by_value() -> None:
    texts = ["-1", "0", "1n", "999m", "1", "1k", "1Ki", "1Mi", "1e30"]
    amounts = [Quantity.parse(text) for text in texts]
    for smaller, larger in pairwise(amounts):
        assert (smaller < larger, smaller <= larger) == (True, True)
        assert (smaller > larger, smaller >= larger) == (False, False)
    same = Quantity.parse("1000m")
    assert (same <= Quantity.of(1), same >= Quantity.of(1)) == (True, True)
    assert (same < Quantity.of(1), same > Quantity.of(1)) == (False, False)


def test_a_quantity_equals_no_other_thing_and_only_zero_is_false() -> None:
    assert Quantity.of(1) != 1
    assert Quantity.of(1) != "1"
    assert (Quantity.parse("1000m") != Quantity.of(1)) is False
    assert not ZERO
    assert Quantity(1)
    assert Quantity(-1)


def test_a_quantity_cannot_be_changed() -> None:
    amount = Quantity.of(1)
    with pytest.raises(AttributeError, match="immutable"):
        amount.nanos = 2  # type: ignore[misc]
    assert copy.copy(amount) is amount
    assert copy.deepcopy({"a": amount})["a"] is amount
    assert pickle.loads(pickle.dumps(Quantity.parse("16Pi"))).canonical() == "16Pi"


def test_sums_keep_the_spelling_of_the_first_amount_that_is_not_zero() -> None:
    gib = Quantity.parse("1Gi")
    assert (gib + Quantity.parse("1024Mi")).canonical() == "2Gi"
    assert (ZERO + gib).canonical() == "1Gi"
    assert (ZERO - gib).canonical() == "-1Gi"
    assert (gib * 3).canonical() == "3Gi"
    assert (-gib).canonical() == "-1Gi"
    assert total([gib, gib]) == Quantity.parse("2Gi")
    assert total(()) == ZERO


def test_nothing_saturates() -> None:
    huge = Quantity.parse("1e30")
    assert (huge + Quantity(1)) - huge == Quantity(1)
    assert float(Quantity.parse("1500m")) == 1.5
    assert repr(huge) == "Quantity('1e30')"


_SUFFIXES: dict[str, Fraction | int] = {
    "": 1,
    "n": Fraction(1, 10**9),
    "m": Fraction(1, 1000),
    "k": 1000,
    "G": 10**9,
    "Ki": 2**10,
    "Gi": 2**30,
    "e2": 100,
    "E-4": Fraction(1, 10**4),
}


@given(
    whole=st.integers(0, 10**15),
    part=st.text("0123456789", max_size=12),
    suffix=st.sampled_from(sorted(_SUFFIXES)),
    negative=st.booleans(),
)
def test_every_legal_text_is_its_value_rounded_up_to_a_nano(
    whole: int, part: str, suffix: str, negative: bool
) -> None:
    exact = (Fraction(whole) + Fraction(int(part or 0), 10 ** len(part))) * _SUFFIXES[suffix] * NANO
    nanos = -(-exact.numerator // exact.denominator)
    if suffix.endswith("i"):
        nanos = min(nanos, (2**63 - 1) * NANO)
    amount = Quantity.parse(f"{'-' if negative else ''}{whole}.{part}{suffix}")
    assert amount.nanos == (-nanos if negative else nanos)


@given(
    st.integers(-(10**40), 10**40), st.sampled_from(["DecimalSI", "BinarySI", "DecimalExponent"])
)
def test_what_is_printed_reads_back_as_the_same_value_and_text(nanos: int, form: Form) -> None:
    if form == "BinarySI":
        nanos = max(-(2**63 - 1) * NANO, min(nanos, (2**63 - 1) * NANO))
    text = Quantity(nanos, form).canonical()
    assert Quantity.parse(text).nanos == nanos
    assert Quantity.parse(text).canonical() == text


@given(st.integers(), st.integers())
def test_arithmetic_is_that_of_whole_numbers(one: int, other: int) -> None:
    a, b = Quantity(one), Quantity(other)
    assert (a + b).nanos == one + other
    assert (a - b).nanos == one - other
    assert (a < b, a <= b, a == b) == (one < other, one <= other, one == other)


def test_a_binary_amount_that_no_binary_suffix_fits_is_told_in_the_decimal_form() -> None:
    assert Quantity.parse("4.8828125Ki").canonical() == "5k"
    assert Quantity.parse("5Ki").canonical() == "5Ki"
    assert Quantity.parse("1.5Ki").canonical() == "1536"
