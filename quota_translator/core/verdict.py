"""What checking a tree yields, as values: violations, what they freeze, and what is oversubscribed.

Status, the command line and the webhook print these same values, so that nobody reads two
versions of one fault.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from quota_translator.core.names import Pair
from quota_translator.core.options import Options
from quota_translator.core.quantity import Quantity
from quota_translator.core.world import CapacityRow, Flavor

PARENT_MISSING: Final = "ParentMissing"
PARENT_CYCLE: Final = "ParentCycle"
UNREACHABLE: Final = "Unreachable"
DUPLICATE_NODE: Final = "DuplicateNode"
NODE_KIND_INVALID: Final = "NodeKindInvalid"
DEPTH_EXCEEDED: Final = "DepthExceeded"
NAME_INVALID: Final = "NameInvalid"
BUDGET_INVALID: Final = "BudgetInvalid"
KUEUE_LIMIT_EXCEEDED: Final = "KueueLimitExceeded"
CONTAINMENT_VIOLATED: Final = "ContainmentViolated"
CAPACITY_EXCEEDED: Final = "CapacityExceeded"

# Structure first: a node without a place or a readable number is not worth comparing with others.
RANKS: Final[Mapping[str, int]] = {
    reason: rank
    for rank, reason in enumerate(
        (
            PARENT_MISSING,
            PARENT_CYCLE,
            UNREACHABLE,
            DUPLICATE_NODE,
            NODE_KIND_INVALID,
            DEPTH_EXCEEDED,
            NAME_INVALID,
            BUDGET_INVALID,
            KUEUE_LIMIT_EXCEEDED,
            CONTAINMENT_VIOLATED,
            CAPACITY_EXCEEDED,
        )
    )
}

_MOST_TEXT: Final = 80  # of a name in a sentence; a good name has at most 63 characters
_MOST_MESSAGE: Final = 8000  # of one node's joined message; a condition's holds 32768


class Violation(msgspec.Struct, frozen=True):
    """One broken rule. `identity` says whether two findings are the same one; messages do not."""

    node: str
    reason: str
    subject: str
    message: str
    field: str = ""  # such as spec.budgets[2].nominal; "" when no single field is at fault
    source: str = ""  # where the node was read, for people
    excess: Quantity | None = None  # by how much, where the rule compares amounts

    @property
    def identity(self) -> tuple[str, str, str]:
        return (self.node, self.reason, self.subject)

    @property
    def rank(self) -> int:
        return RANKS.get(self.reason, len(RANKS))

    @property
    def order(self) -> tuple[str, int, str, str, str]:
        """Sorts violations by node, then rank, then subject; the rest makes ties stable."""
        return (self.node, self.rank, self.subject, self.field, self.message)


class Frozen(msgspec.Struct, frozen=True):
    """Why a node's objects stay as they are: its own fault, or that of `origin`, an ancestor."""

    reason: str
    message: str
    origin: str


class Oversubscription(msgspec.Struct, frozen=True):
    """A pair of which the tree as a whole promises more than there is: `ceiling` is the high-water
    mark, or the declared capacity where that is larger."""

    pair: Pair
    promised: Quantity
    ceiling: Quantity
    is_declared: bool = False

    @property
    def excess(self) -> Quantity:
        return self.promised - self.ceiling

    @property
    def message(self) -> str:
        what = "declared capacity" if self.is_declared else "high-water mark"
        return (
            f"the tree promises {self.promised} of {self.pair}, the {what} is "
            f"{self.ceiling}: lower shares by {self.excess}, add hardware, or give root a budget"
        )


class Verdict(msgspec.Struct, frozen=True):
    """`violations` in their order; `frozen` by node name; `oversubscribed` by pair."""

    violations: tuple[Violation, ...] = ()
    frozen: Mapping[str, Frozen] = {}
    oversubscribed: tuple[Oversubscription, ...] = ()


class Context(msgspec.Struct, frozen=True):
    """What a tree is checked against. None means not known, and is then not judged."""

    capacity: Mapping[Pair, CapacityRow] | None = None  # None or empty: capacity is not checked
    flavors: tuple[Flavor, ...] | None = None
    options: Options = Options()
    kueue_release: tuple[int, int] | None = None


def by_node(violations: Iterable[Violation]) -> dict[str, tuple[Violation, ...]]:
    """The violations of each node, in their order."""
    found: dict[str, list[Violation]] = {}
    for violation in sorted(violations, key=lambda one: one.order):
        found.setdefault(violation.node, []).append(violation)
    return {name: tuple(of_node) for name, of_node in found.items()}


def node_message(violations: Sequence[Violation]) -> str:
    """One sentence for all violations of one node, which are given in their order."""
    messages = [violation.message for violation in violations]
    if len(messages) <= 1:
        return "".join(messages)
    told, length = 0, 0
    while told < len(messages) and (length := length + len(messages[told])) <= _MOST_MESSAGE:
        told += 1
    rest = f"; ({len(messages) - told} more)" if told < len(messages) else ""
    return f"{len(messages)} invariants violated: {'; '.join(messages[:told])}{rest}"


def shown(text: object, most: int = _MOST_TEXT) -> str:
    """A name as it appears in a sentence: in quotes, and cut when it is absurdly long."""
    return f'"{_cut(str(text), most)}"'


def shown_pair(pair: Pair) -> str:
    """A pair as it appears in a sentence; cut when it is absurdly long."""
    return _cut(str(pair), 2 * _MOST_TEXT)


def listed(names: Sequence[str], joint: str = ", ", most: int = 8) -> str:
    """At most `most` names, then how many are left out."""
    rest = f"{joint}({len(names) - most} more)" if len(names) > most else ""
    return joint.join(_cut(name, _MOST_TEXT) for name in names[:most]) + rest


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
