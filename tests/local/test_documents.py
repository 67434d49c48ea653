"""Files to objects, with the line of every field; bad text fails with one clear error."""

import json
import random

import pytest

from quota_translator.local.documents import parse
from quota_translator.local.items import DocumentError, steps

TREE = b"""\
# a comment
apiVersion: v1
kind: List
items:
  - kind: A
    spec:
      budgets:
        - {nominal: 010}
        -
          nominal: "4"
---
kind: B
"""


def refused(data: bytes | str) -> DocumentError:
    with pytest.raises(DocumentError) as caught:
        parse(data.encode() if isinstance(data, str) else data)
    return caught.value


def test_lists_are_taken_apart_and_lines_are_known() -> None:
    first, second = parse(TREE)
    assert first.value == {"kind": "A", "spec": {"budgets": [{"nominal": 8}, {"nominal": "4"}]}}
    assert (first.line, second.line) == (5, 12)
    assert first.line_at("spec.budgets[0].nominal") == 8
    assert first.line_at("spec.budgets[1].nominal") == 10
    assert first.text_at("spec.budgets[0].nominal") == "010"


def test_a_path_that_does_not_exist_gives_the_nearest_line() -> None:
    first, _ = parse(TREE)
    assert first.line_at("spec.budgets[0].lendingLimit") == 8
    assert first.line_at("spec.budgets[7].nominal") == 7
    assert first.line_at("") == 5
    assert first.text_at("spec.budgets[7].nominal") is None


def test_json_has_lines_too() -> None:
    value = {
        "kind": "NodeList",
        "apiVersion": "v1",
        "items": [{"a": [1, {"b": "ü\U0001f600"}]}, {}],
    }
    first, second = parse(json.dumps(value, indent="\t").encode())
    assert first.value == {"apiVersion": "v1", "kind": "Node", "a": [1, {"b": "ü\U0001f600"}]}
    assert (first.line, second.line) == (5, 13)
    assert first.line_at("a[1].b") == 9
    assert first.line_at("a[5]") == 6
    assert first.line_at("nothing") == 5


def test_one_json_value_after_another_is_a_stream() -> None:
    assert [item.line for item in parse(b'{"a": 8.0}\n\n{"a": {}}\n')] == [1, 3]
    assert parse(b'{"a": 8.0}')[0].value == {"a": 8}


def test_yaml_may_start_with_a_brace() -> None:
    assert parse(b"{a: yes}")[0].value == {"a": True}


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n---\n", "null\n"])
def test_empty_documents_are_none(text: str) -> None:
    assert parse(text.encode()) == []


def test_a_byte_order_mark_is_no_content() -> None:
    assert parse("\ufeffa: 1".encode())[0].value == {"a": 1}


def test_merge_keys_give_way_to_what_is_written() -> None:
    text = b"base: &b {a: 1, z: 1}\nc: {<<: [*b, {a: 2, b: 2}], z: 3}\n"
    assert parse(text)[0].value["c"] == {"a": 1, "b": 2, "z": 3}


def test_keys_are_read_like_values() -> None:
    assert parse(b"yes: 1\n010: 2\n'no': 3\n")[0].value == {"true": 1, "8": 2, "no": 3}


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a:\n\tb: 1\n", 2, "a tab in the indentation"),
        ("a: 1\na: 2\n", 2, "'a' stands twice"),
        ("{a: 1, a: 2}", 1, "'a' stands twice"),
        ('{"a": 1,\n "a": 2}', 1, "'a' stands twice"),
        ("kind: A\nx: 1\nkind: B\n", 3, "is a line --- missing between two objects?"),
        ("a: b: c\n", 1, "not YAML: mapping values are not allowed"),
        ("a: 'b\n", 2, "not YAML: found unexpected end of stream"),
        ("a: *gone\n", 1, "undefined alias"),
        ("a: &x [*x]\n", 1, "contains itself"),
        ("a: 1\n? [b]\n: 2\n", 2, "a key must be text"),
        ("a: 1\n~: 2\n", 2, "a key is null"),
        ("a: 1\nb: .inf\n", 2, "no place in JSON"),
        ("a:\n  <<: 3\n", 2, "merges mappings only"),
        ("a: 1\nb: \x01\n", 2, "character 0x1 is not allowed"),
        ('{"a": ]', 1, "not JSON"),
        ('{"a": NaN}', 1, "not JSON: NaN"),
        ("%YAML 9.9\n---\na: 1\n", 1, "not YAML"),
    ],
)
def test_bad_text_has_one_clear_error(text: str, line: int, words: str) -> None:
    error = refused(text)
    assert words in error.message
    assert error.line == line


def test_other_encodings_are_refused() -> None:
    error = refused(b"a: 1\nb: \xe9\n")
    assert (error.line, "not UTF-8" in error.message) == (2, True)


@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", '{"a": '])
def test_bottomless_nesting_is_refused(opening: str) -> None:
    assert "nest" in refused(opening * 200_000).message


@pytest.mark.parametrize("shape", ["[%s]", "{a: %s}"])
def test_nesting_within_libyamls_own_bound_is_refused_too(shape: str) -> None:
    text = "x"
    for _ in range(300):
        text = shape % text
    assert "nested deeper than 100" in refused(f"a: {text}").message


def test_a_bomb_of_aliases_is_refused_without_going_off() -> None:
    lines = ["a: &a [" + ",".join(["lol"] * 10) + "]"]
    for before, name in zip("abcdefgh", "bcdefghi", strict=True):
        lines.append(f"{name}: &{name} [" + ",".join([f"*{before}"] * 10) + "]")
    error = refused("\n".join(lines))
    assert "aliases expand to more than 1,000,000 values" in error.message


def test_aliases_in_reason_are_shared() -> None:
    value = parse(b"a: &x {m: 1}\nb: [*x, *x]\n")[0].value
    assert value == {"a": {"m": 1}, "b": [{"m": 1}, {"m": 1}]}


@pytest.mark.parametrize("kind", ["bytes", "letters", "words"])
def test_five_megabytes_of_rubbish_fail_clearly(kind: str) -> None:
    dice = random.Random(7)
    data = {
        "bytes": dice.randbytes(5_000_000),
        "letters": b"rubbish" * 700_000,
        "words": b"lorem: ipsum: dolor\n" * 250_000,
    }[kind]
    if kind == "letters":  # one long text is YAML, though no object
        assert isinstance(parse(data)[0].value, str)
    else:
        assert refused(data).message


def test_steps_of_a_path() -> None:
    assert steps("spec.budgets[2].nominal") == ("spec", "budgets", 2, "nominal")
