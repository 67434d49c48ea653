"""Why a node is not (wholly) in Kueue: the reasons of Materialized=False, and their precedence.

Rendering, planning and applying each find such reasons; status shows the one that comes first here
and joins the messages of that reason.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

FROZEN: Final = "Frozen"
OBJECT_CONFLICT: Final = "ObjectConflict"
KUEUE_UNAVAILABLE: Final = "KueueUnavailable"
MATERIALIZATION_FAILED: Final = "MaterializationFailed"
PARENT_NOT_MATERIALIZED: Final = "ParentNotMaterialized"
WAITING_FOR_SHRINK: Final = "WaitingForShrink"
FLAVOR_MISSING: Final = "FlavorMissing"
FLAVOR_TERMINATING: Final = "FlavorTerminating"
QUEUE_INACTIVE: Final = "QueueInactive"
DRIFT_CONTESTED: Final = "DriftContested"
DRAINING: Final = "Draining"  # of a node that was deleted: what of it is still in Kueue
# Not in the list of final reasons: writes are planned and on their way.
PROGRESSING: Final = "Progressing"

PRECEDENCE: Final = (
    FROZEN,
    OBJECT_CONFLICT,
    KUEUE_UNAVAILABLE,
    MATERIALIZATION_FAILED,
    PARENT_NOT_MATERIALIZED,
    WAITING_FOR_SHRINK,
    FLAVOR_MISSING,
    FLAVOR_TERMINATING,
    QUEUE_INACTIVE,
    DRIFT_CONTESTED,
    DRAINING,
    PROGRESSING,
)
_RANK: Final = {reason: rank for rank, reason in enumerate(PRECEDENCE)}


class Note(msgspec.Struct, frozen=True, order=True, gc=False):
    """One finding about one node of the tree. `message` is a sentence for people."""

    node: str
    reason: str
    message: str


def foremost(notes: Iterable[Note]) -> Note | None:
    """The note to show for one node: the first reason by precedence, its messages joined."""
    found = sorted(set(notes), key=lambda note: (_RANK[note.reason], note.message))
    if not found:
        return None
    reason = found[0].reason
    same = [note.message for note in found if note.reason == reason]
    return Note(found[0].node, reason, "; ".join(same))
