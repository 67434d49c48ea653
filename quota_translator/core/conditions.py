"""Conditions: built from findings, carried over from the status that stood before."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from quota_translator.core.times import stamp
from quota_translator.core.verdict import Frozen
from quota_translator.core.world import Clock, QuotaNode

READY: Final = "Ready"
DEGRADED: Final = "Degraded"
MATERIALIZED: Final = "Materialized"
ENVELOPE_OVERDRAWN: Final = "EnvelopeOverdrawn"
FOREIGN_MEMBER: Final = "ForeignMember"
OVERSUBSCRIBED: Final = "Oversubscribed"
AMBIGUOUS_FLAVOR: Final = "AmbiguousFlavor"
ORPHANS_HELD: Final = "OrphansHeld"
TERMINATING: Final = "Terminating"
USAGE_DIFFERS: Final = "UsageDiffers"

ADMITTED: Final = "Admitted"
READY_MESSAGE: Final = "node is a valid member of the quota tree"
SOUND_MESSAGE: Final = "no invariant violated"
MATERIALIZED_MESSAGE: Final = "enforcement objects match this node's budget"

_MAX_MESSAGE: Final = 32768  # what a condition may hold
_CUT: Final = " … (cut)"


class Finding(msgspec.Struct, frozen=True):
    """A condition before it has a time: what holds, why in one word, and the sentence."""

    type: str
    holds: bool
    reason: str
    message: str


def soundness(frozen: Frozen | None) -> tuple[Finding, Finding]:
    """Ready and Degraded: exact opposites with one reason, which may be an ancestor's."""
    if frozen is None:
        return (
            Finding(READY, True, ADMITTED, READY_MESSAGE),
            Finding(DEGRADED, False, ADMITTED, SOUND_MESSAGE),
        )
    return (
        Finding(READY, False, frozen.reason, frozen.message),
        Finding(DEGRADED, True, frozen.reason, frozen.message),
    )


def conditions(node: QuotaNode, findings: Iterable[Finding], clock: Clock) -> list[dict[str, Any]]:
    """The list as it is stored. A condition keeps its time until its status flips."""
    before = stored(node.status)
    return [_condition(finding, before.get(finding.type), node, clock) for finding in findings]


def stored(status: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The conditions of a stored status by type; whatever is no condition is left out."""
    found = status.get("conditions")
    rows = found if isinstance(found, list) else []
    return {str(row["type"]): row for row in rows if isinstance(row, Mapping) and "type" in row}


def _condition(
    finding: Finding, before: Mapping[str, Any] | None, node: QuotaNode, clock: Clock
) -> dict[str, Any]:
    status = "True" if finding.holds else "False"
    since = before.get("lastTransitionTime") if before else None
    kept = before is not None and before.get("status") == status and isinstance(since, str)
    return {
        "type": finding.type,
        "status": status,
        "reason": finding.reason,
        "message": _bounded(finding.message),
        "observedGeneration": node.generation,
        "lastTransitionTime": since if kept else stamp(clock.wall),
    }


def _bounded(message: str) -> str:
    """The API server counts characters; a longer message would cost the whole status."""
    if len(message) <= _MAX_MESSAGE:
        return message
    return message[: _MAX_MESSAGE - len(_CUT)] + _CUT
