"""What a team may take back from others, and from itself: preemption, inherited down the tree.

The nearest node that states it, the team itself first, decides all three policies; what that one
leaves out is Kueue's default, `Never`. Half of a policy from one node and half from another would
be a mixture that nobody wrote.
"""

from collections.abc import Mapping
from typing import Any, Final, get_args

from quota_translator.core.tree import Tree
from quota_translator.core.world import BorrowPolicy, FieldFault, ReclaimPolicy, WithinPolicy

NEVER: Final = "Never"
# Stated in full: what the API server would fill in is the same, and an edit of any part shows.
NO_PREEMPTION: Final[Mapping[str, Any]] = {
    "reclaimWithinCohort": NEVER,
    "withinClusterQueue": NEVER,
    "borrowWithinCohort": {"policy": NEVER},
}
_ENUMS: Final = {
    "reclaimWithinCohort": get_args(ReclaimPolicy),
    "withinClusterQueue": get_args(WithinPolicy),
}
_BORROW_POLICIES: Final = get_args(BorrowPolicy)
_PATH: Final = "spec.preemption"
_INT32: Final = range(-(2**31), 2**31)


class Preemptions:
    """Answers for the teams of one tree; what a group decides is found once."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._known: dict[str | None, tuple[Mapping[str, Any], str]] = {None: (NO_PREEMPTION, "")}

    def of(self, name: str) -> Mapping[str, Any]:
        """What applies to a node, in the form of a ClusterQueue's field: always the same object
        while the node that states it is the same."""
        return self._decided(name)[0]

    def source(self, name: str) -> str:
        """The node that states it; "" where none does."""
        return self._decided(name)[1]

    def _decided(self, name: str) -> tuple[Mapping[str, Any], str]:
        asked: list[str] = []
        at: str | None = name
        while at is not None and at not in self._known and at not in asked:
            node = self._tree.nodes.get(at)
            if node is not None and node.preemption is not None:
                self._known[at] = (node.preemption, at)
                break
            asked.append(at)
            at = self._tree.parent(at)
        found = self._known.get(at, self._known[None])  # a loop of parents decides nothing
        self._known.update(dict.fromkeys(asked, found))
        return found


def read_preemption(value: Any, faults: list[FieldFault]) -> Mapping[str, Any] | None:
    """`spec.preemption` in full, in the form of a ClusterQueue's field. Never raises."""
    if value is None:
        return None
    if not isinstance(value, Mapping):
        faults.append(FieldFault(_PATH, "is not an object"))
        return None
    found: dict[str, Any] = {
        field: _one_of(value.get(field), allowed, f"{_PATH}.{field}", faults)
        for field, allowed in _ENUMS.items()
    }
    found["borrowWithinCohort"] = _borrowing(value.get("borrowWithinCohort"), faults)
    if found["borrowWithinCohort"]["policy"] != NEVER and found["reclaimWithinCohort"] == NEVER:
        faults.append(
            FieldFault(
                f"{_PATH}.borrowWithinCohort.policy",
                "needs a reclaimWithinCohort other than Never: who may evict others to borrow must "
                "be able to take back its own",
            )
        )
    return found


def _borrowing(value: Any, faults: list[FieldFault]) -> dict[str, Any]:
    path = f"{_PATH}.borrowWithinCohort"
    if value is not None and not isinstance(value, Mapping):
        faults.append(FieldFault(path, "is not an object"))
    given = value if isinstance(value, Mapping) else {}
    policy = _one_of(given.get("policy"), _BORROW_POLICIES, f"{path}.policy", faults)
    found: dict[str, Any] = {"policy": policy}
    threshold = given.get("maxPriorityThreshold")
    if threshold is None:
        return found
    if isinstance(threshold, bool) or not isinstance(threshold, int) or threshold not in _INT32:
        faults.append(
            FieldFault(f"{path}.maxPriorityThreshold", f"{threshold!r} is not a 32-bit integer")
        )
        return found
    return found | {"maxPriorityThreshold": threshold}


def _one_of(value: Any, allowed: tuple[str, ...], path: str, faults: list[FieldFault]) -> str:
    if value is None:
        return NEVER
    if value not in allowed:
        faults.append(FieldFault(path, f"{value!r} is none of {', '.join(allowed)}"))
        return NEVER
    return str(value)
