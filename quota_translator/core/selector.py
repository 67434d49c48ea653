"""Label selectors: as kubectl writes them, as Kubernetes stores them, and what they match."""

import re
from collections.abc import Mapping
from typing import Any, Final

NAME_LABEL: Final = "kubernetes.io/metadata.name"  # every namespace carries its own name
_KEY = r"(?:[a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?"
_VALUE = r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?|"
_SET_TERM = re.compile(r"(\S+)\s+(in|notin)\s*\(([^()]*)\)")
_OPERATORS = frozenset({"In", "NotIn", "Exists", "DoesNotExist"})


class SelectorError(ValueError):
    """The selector cannot be read; the message says which part and what to write."""


def parse_selector(value: Any) -> dict[str, Any]:
    """kubectl's text (`team in (a,b),gpu=true,!old`) or a LabelSelector → a LabelSelector.

    An empty LabelSelector ({}) selects everything, as in Kubernetes. Raises SelectorError.
    """
    if isinstance(value, Mapping):
        return _checked(value)
    if not isinstance(value, str):
        raise SelectorError(f"{value!r} is neither selector text nor a LabelSelector")
    labels: dict[str, str] = {}
    expressions: list[dict[str, Any]] = []
    for term in re.split(r",(?![^()]*\))", value):
        _term(term.strip(), labels, expressions)
    result: dict[str, Any] = {}
    if labels:
        result["matchLabels"] = labels
    if expressions:
        result["matchExpressions"] = expressions
    return _checked(result)


def _term(term: str, labels: dict[str, str], expressions: list[dict[str, Any]]) -> None:
    if found := _SET_TERM.fullmatch(term):
        values = sorted(word.strip() for word in found[3].split(","))
        operator = "In" if found[2] == "in" else "NotIn"
        expressions.append({"key": found[1], "operator": operator, "values": values})
    elif "!=" in term:
        key, _, text = term.partition("!=")
        expressions.append({"key": key.strip(), "operator": "NotIn", "values": [text.strip()]})
    elif "=" in term:
        key, _, text = term.replace("==", "=").partition("=")
        labels[key.strip()] = text.strip()
    elif term.startswith("!"):
        expressions.append({"key": term[1:].strip(), "operator": "DoesNotExist"})
    elif term:
        expressions.append({"key": term, "operator": "Exists"})
    else:
        raise SelectorError("an empty term; write key=value, key in (a,b), key or !key")


def _checked(selector: Mapping[str, Any]) -> dict[str, Any]:
    unknown = set(selector) - {"matchLabels", "matchExpressions"}
    if unknown:
        raise SelectorError(f"{min(unknown)} is not a field of a label selector")
    for key, text in (selector.get("matchLabels") or {}).items():
        _check_words(key, [text])
    for expression in selector.get("matchExpressions") or []:
        operator = expression.get("operator")
        if operator not in _OPERATORS:
            raise SelectorError(f"{operator!r} is not one of {', '.join(sorted(_OPERATORS))}")
        values = expression.get("values") or []
        if bool(values) != (operator in ("In", "NotIn")):
            raise SelectorError(f"{operator} with values {values} on {expression.get('key')!r}")
        _check_words(expression.get("key"), values)
    return dict(selector)


def _check_words(key: Any, values: list[Any]) -> None:
    if not isinstance(key, str) or not re.fullmatch(_KEY, key):
        raise SelectorError(f"{key!r} is not a label key")
    for text in values:
        if not isinstance(text, str) or len(text) > 63 or not re.fullmatch(_VALUE, text):
            raise SelectorError(f"{text!r} is not a label value")


def matches(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether labels satisfy a LabelSelector; {} is satisfied by all."""
    wanted = selector.get("matchLabels") or {}
    if any(labels.get(key) != text for key, text in wanted.items()):
        return False
    return all(_holds(e, labels) for e in selector.get("matchExpressions") or [])


def _holds(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    present = expression["key"] in labels
    listed = labels.get(expression["key"]) in (expression.get("values") or [])
    return {
        "In": present and listed,
        "NotIn": not (present and listed),
        "Exists": present,
        "DoesNotExist": not present,
    }[str(expression["operator"])]
