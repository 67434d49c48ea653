"""What a plain YAML scalar means to the API server.

`kubectl` turns YAML into JSON before anything is sent, with a reader of YAML 1.1 that differs from
Python's: `yes` and `y` are true, `010` and `0o10` are 8, `1e3` is 1000, `8.0` arrives as 8, `1:30`
and dates stay text. Two readers would be two truths, so this module follows that one. Each row of
its tests was taken from running Go's `sigs.k8s.io/yaml` 1.6.0.
"""

import math
import re
from decimal import Decimal
from functools import lru_cache
from typing import Final

Scalar = str | int | float | bool | None

PLAIN: Final = "plain"  # a scalar that is neither quoted nor tagged
TEXT: Final = "tag:yaml.org,2002:str"

_TRUE: Final = frozenset(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"))
_FALSE: Final = frozenset(
    ("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF")
)
_NULL: Final = frozenset(("", "~", "null", "Null", "NULL"))
_INFINITE: Final = re.compile(r"[+-]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_WHOLE: Final = re.compile(
    r"(?P<sign>[+-]?)(?:0[xX](?P<x>[0-9a-fA-F]+)|0[bB](?P<b>[01]+)|0[oO]?(?P<o>[0-7]+)"
    r"|(?P<d>0|[1-9][0-9]*))"
)
_BASE: Final = {"x": 16, "b": 2, "o": 8, "d": 10}
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_WHOLE_LIMIT: Final = 1e21  # from here on Go writes a float with an exponent
_TYPES: Final[dict[str, type | tuple[type, ...]]] = {
    "tag:yaml.org,2002:int": int,
    "tag:yaml.org,2002:float": (int, float),
    "tag:yaml.org,2002:bool": bool,
    "tag:yaml.org,2002:null": type(None),
}


def resolve(text: str, tag: str = PLAIN) -> Scalar:
    """The JSON value of a scalar. Raises ValueError where JSON has none or the tag does not fit."""
    if tag == PLAIN:
        return _plain(text)
    wanted = _TYPES.get(tag)
    if wanted is None:
        return text
    value = _plain(text)
    if not isinstance(value, wanted) or (isinstance(value, bool) and wanted is not bool):
        raise ValueError(f"{text!r} is no {tag.rpartition(':')[2]}, though its tag says so")
    return value


def key_text(value: Scalar) -> str:
    """A mapping's key as JSON has it. Raises ValueError for a key that is null."""
    if value is None:
        raise ValueError("a key is null: write a name, quoted where YAML would read it otherwise")
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


@lru_cache(maxsize=4096)
def _plain(text: str) -> Scalar:
    first = text[:1]
    if first.isalpha() or first in {"", "~"}:
        return _word(text)
    if first in {"+", "-", "."} or "0" <= first <= "9":
        return _number(text)
    return text


def _word(text: str) -> Scalar:
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    return None if text in _NULL else text


def _number(text: str) -> Scalar:
    if _INFINITE.fullmatch(text):
        raise ValueError(f"{text} has no place in JSON: quote it if it is text")
    # Digits may be set apart by underscores, though not in a number that starts with its point.
    bare = text if text.startswith(".") else text.replace("_", "")
    whole = _WHOLE.fullmatch(bare)
    if whole is not None and (value := _whole(whole)) is not None:
        return value
    if not _FLOAT.fullmatch(bare) or math.isinf(number := float(bare)):
        return text
    return whole_float(number)


def _whole(match: re.Match[str]) -> int | None:
    """An integer that fits 64 bits, else None: Go reads a longer one as a float."""
    base, digits = next((_BASE[k], v) for k, v in match.groupdict().items() if k in _BASE and v)
    if len(digits) > 64:
        return None
    value = int(digits, base) * (-1 if match["sign"] == "-" else 1)
    # Go reads what only fits an unsigned word when it has no sign at all.
    limit = 2**63 if match["sign"] else 2**64
    return value if -(2**63) <= value < limit else None


def whole_float(number: float) -> int | float:
    """A float that Go writes without a fraction is a whole number to the server: 8.0 is 8."""
    if number.is_integer() and abs(number) < _WHOLE_LIMIT:
        return int(Decimal(repr(number)))
    return number
