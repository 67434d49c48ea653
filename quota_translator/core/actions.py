"""What a pass intends to write: actions on Kueue's objects, and the plan that holds them."""

from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from quota_translator.core.names import Key, Pair
from quota_translator.core.notes import Note
from quota_translator.core.quantity import Quantity
from quota_translator.core.world import Drift

SHRINK: Final = 1
PLACE: Final = 2  # creations and moves
GROW: Final = 3
DELETE: Final = 4


class Action(msgspec.Struct, frozen=True, gc=False):
    """One write. Every action of a plan is safe whether or not the others have happened.

    `spec` is the whole spec (normal form) that the object shall have after this write. It may be an
    interim one, smaller than what the tree wants in the end. An update sends only `fields`: names
    of top-level spec fields, and "labels"; a field that `spec` lacks is removed.
    """

    verb: Literal["create", "update", "delete"]
    key: Key
    stage: int
    spec: Mapping[str, Any] = {}
    fields: tuple[str, ...] = ()
    nodes: frozenset[str] = frozenset()
    quota: str = ""
    part: str | None = None
    uid: str = ""
    # Must be in the store and ours when this is sent: the Cohort (or, for a LocalQueue, the
    # ClusterQueue) that the object is put beneath. It may be created earlier in the same plan.
    requires: Key | None = None
    # What the write takes away, to be counted until Kueue has taken it (see core/settling.py):
    shrinks: Mapping[Pair, Quantity] = {}  # the larger old nominals
    lowers: Mapping[Pair, Quantity] = {}  # the larger old borrowingLimits
    leaves: str | None = None  # the Cohort that the object stood beneath


class Plan(msgspec.Struct, frozen=True):
    """The writes that are safe now, in the order in which they are sent, and what is not done yet.

    Stages follow each other; within a stage the order is free, but for `Action.requires`. When all
    are answered the next pass plans the rest; a plan without actions has nothing left to do now.
    """

    actions: tuple[Action, ...] = ()
    notes: tuple[Note, ...] = ()
    conflicts: Mapping[Key, str] = {}  # objects of a wanted name that are not ours
    waiting: Mapping[Key, str] = {}  # objects that are not as wanted yet, and what they wait for
    held: Mapping[Key, str] = {}  # unwanted objects of ours that cannot go yet, and why
    repairs: Mapping[Key, Drift] = {}  # drift that this plan repairs, as to be remembered
    wake_at: float | None = None  # steady: plan again then, if nothing happens before
