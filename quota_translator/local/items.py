"""What a file is taken apart into: one JSON value each, with the lines of its fields."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

Step = str | int
_STEPS: Final = re.compile(r"([^.\[\]]+)|\[(\d+)\]")


class DocumentError(Exception):
    """A text that is not what it should be: the line (from 1; 0 unknown) and what is wrong."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line
        self.message = message


class Item(msgspec.Struct, frozen=True, eq=False):
    """One document, or one item of a List: its JSON value and where it stands.

    `line_at(path)` is the line of a field such as spec.budgets[2].nominal, or of the nearest field
    around it that exists. `text_at(path)` is a scalar as it is written, None when not known.
    """

    value: Any
    line: int
    line_of_steps: Callable[[Sequence[Step]], int]
    text_of_steps: Callable[[Sequence[Step]], str | None]

    def line_at(self, path: str) -> int:
        return self.line_of_steps(steps(path))

    def text_at(self, path: str) -> str | None:
        return self.text_of_steps(steps(path))


def steps(path: str) -> tuple[Step, ...]:
    """spec.budgets[2].nominal → ("spec", "budgets", 2, "nominal")."""
    return tuple(int(index) if index else name for name, index in _STEPS.findall(path))


def is_list(value: Any) -> bool:
    """A List as kubectl prints it: v1 List, or NodeList and its like."""
    if not isinstance(value, dict) or not isinstance(value.get("items"), list):
        return False
    return isinstance(value.get("kind"), str) and value["kind"].endswith("List")


def typed(item: Any, around: Mapping[str, Any]) -> Any:
    """An item of a typed list (NodeList) need not repeat its kind."""
    kind = around["kind"].removesuffix("List")
    if not isinstance(item, dict) or not kind or "kind" in item:
        return item
    return {"apiVersion": around.get("apiVersion"), "kind": kind} | item


def say(value: Any) -> str:
    """A JSON value as people call it."""
    if isinstance(value, bool):
        return f"the boolean {str(value).lower()}"
    if value is None:
        return "null"
    if isinstance(value, int | float):
        return f"the number {value}"
    if isinstance(value, str):
        return f"the text {value[:40]!r}"
    return "a list" if isinstance(value, list) else "an object"
