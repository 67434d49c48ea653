"""YAML that is written reads back the same here, in Python's reader, and in the API server's."""

import pytest
import yaml

from quota_translator.local.documents import parse
from quota_translator.local.yaml_text import dump

WORDS = [
    "y",
    "n",
    "on",
    "1e3",
    "0o10",
    "010",
    "8.0",
    "~",
    "null",
    "1_0",
    ".inf",
    "=",
    "<<",
    "ünï",
    "2001-01-01",
    "1:30",
    "0x1F",
    "'",
    '"',
    "-",
    "#",
]
TEXTS = ["", " x ", "a: b", "- x", "# c", "line\nline", *WORDS]


@pytest.mark.parametrize("text", TEXTS)
def test_texts_stay_texts(text: str) -> None:
    written = dump({"key": text, "list": [text]})
    expected = {"key": text, "list": [text]}
    assert parse(written.encode())[0].value == expected
    assert yaml.safe_load(written) == expected


def test_keys_stay_texts() -> None:
    assert parse(dump({"y": 1, "010": 2}).encode())[0].value == {"y": 1, "010": 2}


def test_order_is_kept_and_nothing_is_an_alias() -> None:
    shared = {"n": 1}
    assert dump({"b": shared, "a": shared}) == 'b:\n  "n": 1\na:\n  "n": 1\n'
