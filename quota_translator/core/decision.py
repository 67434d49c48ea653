"""The answer to a write: whether it is allowed, what is said of it, and how much of that."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from quota_translator.core.advice import Advice
from quota_translator.core.verdict import (
    BUDGET_INVALID,
    NAME_INVALID,
    NODE_KIND_INVALID,
    Violation,
)

FORBIDDEN: Final = 403
INVALID: Final = 422
_FIELD_REASONS: Final = frozenset({NODE_KIND_INVALID, NAME_INVALID, BUDGET_INVALID})
_MOST_MESSAGE: Final = 4000  # characters of a denial
_MOST_WARNING: Final = 255  # a longer one may be cut on its way to the person
_MOST_WARNINGS: Final = 12


class Cause(msgspec.Struct, frozen=True):
    """A field that is wrong, for the details of the answer."""

    field: str
    message: str


class Decision(msgspec.Struct, frozen=True):
    """`reason` is the first violation's, or what was denied by `webhook.deny`; for metrics too."""

    allowed: bool
    message: str = ""
    reason: str = ""
    code: int = 200
    causes: tuple[Cause, ...] = ()
    warnings: tuple[str, ...] = ()


def denied(name: str, added: Sequence[Violation]) -> Decision:
    """For what a write of this node adds. Where nothing but its own fields is wrong, that is what
    the answer is about; clients then show the causes in place of the message."""
    ranked = sorted(added, key=lambda violation: (violation.rank, violation.order))
    own = [violation for violation in ranked if violation.node == name and violation.field]
    is_field = len(own) == len(ranked) and all(v.reason in _FIELD_REASONS for v in own)
    return Decision(
        False,
        _joined([_clean(f"{violation.node}: {violation.message}") for violation in ranked]),
        ranked[0].reason,
        INVALID if is_field else FORBIDDEN,
        tuple(map(_cause, own[:_MOST_WARNINGS])),
    )


def _joined(messages: Sequence[str]) -> str:
    told, length = 1, len(messages[0])
    while told < len(messages) and (length := length + len(messages[told])) <= _MOST_MESSAGE:
        told += 1
    rest = f"; ({len(messages) - told} more)" if told < len(messages) else ""
    return "; ".join(messages[:told])[:_MOST_MESSAGE] + rest


def _cause(violation: Violation) -> Cause:
    message = violation.message.removeprefix(violation.field).lstrip(": ")
    return Cause(violation.field, _clean(message))


def advised(name: str, found: Iterable[Advice], deny: frozenset[str]) -> Decision:
    """Allowed with warnings, or denied where `deny` has what is to be warned about."""
    told = tuple(found)
    refused = [advice for advice in told if advice.kind in deny and not advice.only_warns]
    if refused:
        message = _joined([_clean(f"{name}: {advice.message}") for advice in refused])
        causes = tuple(Cause(advice.field, advice.message) for advice in refused if advice.field)
        return Decision(False, message, refused[0].kind, FORBIDDEN, causes)
    reason = told[0].kind if told else ""
    return Decision(True, reason=reason, warnings=tuple(_bounded(name, told)))


def _bounded(name: str, told: Sequence[Advice]) -> Iterator[str]:
    for advice in told[:_MOST_WARNINGS]:
        text = _clean(f"{name}: {advice.message}")
        yield text if len(text) <= _MOST_WARNING else text[: _MOST_WARNING - 1] + "…"
    if len(told) > _MOST_WARNINGS:
        yield f"{name}: {len(told) - _MOST_WARNINGS} more warnings"


def _clean(text: str) -> str:
    """Without control characters, of which a header of HTTP must have none."""
    return "".join(char if char.isprintable() else " " for char in text)
