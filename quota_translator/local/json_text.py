"""JSON to values, by the standard library; lines are looked up only when somebody asks."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from quota_translator.local.items import DocumentError, Item, Step, is_list, typed
from quota_translator.local.scalars import whole_float


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise DocumentError(0, f"the key {twice!r} stands twice in one object")
    return made


def _no_constant(text: str) -> Any:
    raise DocumentError(0, f"{text} has no place in JSON")


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_once,
    parse_constant=_no_constant,
    parse_float=lambda text: whole_float(float(text)),
)
_BLANK: Final = re.compile(r"[ \t\r\n]*")


def json_items(text: str) -> Iterator[Item]:
    at, line, seen = _skip(text, 0), 1, 0
    while at < len(text):
        value, end = _decode(text, at)
        if is_list(value):
            offsets = _item_offsets(text, at)
            for inner, start in zip(value["items"], offsets, strict=True):
                line, seen = line + text.count("\n", seen, start), start
                yield _json_item(text, typed(inner, value), start, line)
        elif value is not None:
            line, seen = line + text.count("\n", seen, at), at
            yield _json_item(text, value, at, line)
        at = _skip(text, end)


def _decode(text: str, at: int) -> tuple[Any, int]:
    try:
        return _DECODER.raw_decode(text, at)
    except DocumentError as error:
        raise DocumentError(_line(text, at), f"not JSON: {error.message}") from error
    except RecursionError as error:
        raise DocumentError(_line(text, at), "nested too deeply") from error


def _json_item(text: str, value: Any, start: int, line: int) -> Item:
    return Item(
        value=value,
        line=line,
        line_of_steps=lambda path: _line(text, _json_offset(text, start, path)),
        text_of_steps=lambda _path: None,
    )


def _item_offsets(text: str, start: int) -> list[int]:
    at = _skip(text, _json_offset(text, start, ("items",)))
    return [offset for _, offset in _members(text, at)]


def _json_offset(text: str, at: int, path: Sequence[Step]) -> int:
    """Where the value of a path starts, or that of the nearest one around it that exists."""
    for step in path:
        found = next((offset for name, offset in _members(text, at) if name == step), None)
        if found is None:
            return at
        at = found
    return at


def _members(text: str, at: int) -> Iterator[tuple[Step, int]]:
    """(key or index, offset of the value) of the object or array that starts at `at`."""
    opening = text[at]
    if opening not in "{[":
        return
    at, index = _skip(text, at + 1), 0
    while text[at] not in "}]":
        name: Step = index
        if opening == "{":
            name, at = _DECODER.raw_decode(text, at)
            at = _skip(text, _skip(text, at) + 1)
        yield name, at
        _, at = _DECODER.raw_decode(text, at)
        at, index = _skip(text, at), index + 1
        if text[at] == ",":
            at = _skip(text, at + 1)


def _skip(text: str, at: int) -> int:
    blank = _BLANK.match(text, at)
    return blank.end() if blank else at


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1
