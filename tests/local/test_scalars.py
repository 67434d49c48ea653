"""Scalars as `kubectl` reads them; the values were taken from running Go's sigs.k8s.io/yaml."""

import pytest

from quota_translator.local.scalars import key_text, resolve, whole_float

GO_READS = {
    "8": 8, "8.0": 8, "010": 8, "0o10": 8, "1e3": 1000, "1E3": 1000, "1e+3": 1000, "1_000": 1000,
    "yes": True, "y": True, "Y": True, "on": True, "true": True, "Off": False, "n": False,
    "~": None, "null": None, "Null": None, "": None, "NULL": None,
    "0x10": 16, "+0x10": 16, "0b11": 3, "-0b11": -3, "0b1_1": 3, "0b2": "0b2", "0o8": "0o8",
    "+8": 8, "-8": -8, "08": 8, "09": 9, "-010": -8, "0_10": 8, "0x_1": 1, "0777": 511, "-0": 0,
    "1.": 1, "1.5": 1.5, ".5": 0.5, "0.0": 0, "1e-3": 0.001, "12e03": 12000, "0.1e2": 10,
    "1:30": "1:30", "190:20:30": "190:20:30", "2001-12-14": "2001-12-14", "1e400": "1e400",
    "=": "=", "<<": "<<", "1Gi": "1Gi", "1k": "1k", "1E": "1E", "_1": "_1", "8e": "8e",
    "1e3.0": "1e3.0", "1__0": 10, "685.230_15e+03": 685230.15, "._5": "._5",
    "123456789012345678901234567890": 1.2345678901234568e29, "1e21": 1e21, "1e20": 10**20,
    "9223372036854775808": 9223372036854775808, "18446744073709551615": 18446744073709551615,
    "18446744073709551616": 18446744073709552000, "-9223372036854775809": -9223372036854776000,
}  # fmt: skip


@pytest.mark.case("FC-D05")
@pytest.mark.parametrize(("text", "value"), GO_READS.items())
def test_a_plain_scalar_is_read_as_the_server_reads_it(text: str, value: object) -> None:
    found = resolve(text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize("text", [".inf", "-.INF", "+.Inf", ".nan", ".NaN"])
def test_what_json_cannot_say_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no place in JSON"):
        resolve(text)


@pytest.mark.parametrize(
    ("tag", "text", "value"),
    [
        ("str", "8", "8"),
        ("int", "8", 8),
        ("float", "8", 8),
        ("bool", "no", False),
        ("null", "", None),
    ],
)
def test_a_tag_decides(tag: str, text: str, value: object) -> None:
    assert resolve(text, f"tag:yaml.org,2002:{tag}") == value


@pytest.mark.parametrize(
    ("tag", "text"), [("int", "yes"), ("int", "x"), ("bool", "1"), ("null", "0")]
)
def test_a_tag_that_does_not_fit_is_refused(tag: str, text: str) -> None:
    with pytest.raises(ValueError, match=f"is no {tag}"):
        resolve(text, f"tag:yaml.org,2002:{tag}")


def test_keys_become_text() -> None:
    assert [key_text(v) for v in ("a", 8, True, False, 1.5)] == ["a", "8", "true", "false", "1.5"]
    with pytest.raises(ValueError, match="null"):
        key_text(None)


def test_a_whole_float_is_a_whole_number() -> None:
    assert whole_float(1.8446744073709552e19) == 18446744073709552000
    assert isinstance(whole_float(1e21), float)
