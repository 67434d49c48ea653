"""What the API server would make of an AcceleratorQuota as it is written in a file.

Only its shape is judged here: unknown fields, and values of the wrong JSON type. What the tree's
rules say of the values has reasons of its own, and is left to `check`.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

from quota_translator.core.model import field_errors
from quota_translator.local.items import Item, say, steps

_UNKNOWN: Final = "unknown field"
_WRONG_TYPE: Final = "input should be a valid"
_TYPES: Final = {
    "dictionary": "an object",
    "string": "text: put it in quotes",
    "boolean": "true or false",
    "list": "a list",
}
# Fields whose values the tree's rules judge, with reasons of their own. Of these only what has the
# wrong JSON type is told here.
_JUDGED: Final = re.compile(
    r"spec\.(role|parentRef(\.name)?|budgets(\[\d+\])?(\.(resourceName|resourceFlavor|nominal"
    r"|borrowingLimit|lendingLimit))?)"
)
_AMOUNTS: Final = ("nominal", "borrowingLimit", "lendingLimit")


def faults_of(item: Item) -> Iterator[tuple[int, str]]:
    """(line, message) for everything that the API server would refuse to store."""
    faults: dict[str, str] = {}
    for key in item.value:
        if key not in {"apiVersion", "kind", "metadata", "spec", "status"}:
            faults[key] = _UNKNOWN
    spec = item.value.get("spec")
    if not isinstance(spec, dict):
        faults["spec"] = "is required" if spec is None else f"is {say(spec)}, not an object"
    for path, message in field_errors(spec) if isinstance(spec, dict) else ():
        if message != _UNKNOWN and not message.startswith(_WRONG_TYPE) and _JUDGED.fullmatch(path):
            continue
        is_amount = path.endswith(_AMOUNTS) and message != _UNKNOWN
        faults.setdefault(
            path, _amount_fault(item, path) if is_amount else _told(item, path, message)
        )
    for path, message in faults.items():
        yield item.line_at(path), _field(path, message)


def _told(item: Item, path: str, message: str) -> str:
    if not message.startswith(_WRONG_TYPE):
        return message
    wanted = next((told for word, told in _TYPES.items() if word in message), "of the right type")
    return f"is {say(value_at(item, path))}, not {wanted}"


def _field(path: str, message: str) -> str:
    return f"{message} {path}" if message == _UNKNOWN else f"{path} {message}"


def _amount_fault(item: Item, path: str) -> str:
    value, text = value_at(item, path), item.text_at(path)
    written = f", written {text}" if text is not None and text != str(value) else ""
    return (
        f"is {say(value)}{written}; an amount is a whole number or text: "
        f'write it as 8 or, in quotes, as "1500m"'
    )


def odd_amounts(item: Item) -> Iterator[tuple[int, str]]:
    """(line, message) for amounts that the API server reads unlike they are written, as 010."""
    for index, budget in enumerate(item.value["spec"].get("budgets") or []):
        for name in _AMOUNTS:
            value, path = budget.get(name), f"spec.budgets[{index}].{name}"
            text = item.text_at(path)
            if value is not None and text is not None and text.lstrip("+") != str(value):
                yield item.line_at(path), f"{path} is written {text}, which means {value}"


def value_at(item: Item, path: str) -> Any:
    """The value of a field, None where there is none."""
    value = item.value
    for step in steps(path):
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return None
    return value
