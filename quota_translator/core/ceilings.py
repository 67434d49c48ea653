"""How much of a pair the tree may promise: what was measured, or what root declares of it.

An autoscaled pool has no machines while nobody needs any, so its size has to be said
(`expectedCapacity` on root). The larger of the two counts in every check.
"""

from collections.abc import Mapping

import msgspec

from quota_translator.core.names import Pair
from quota_translator.core.quantity import ZERO, Quantity
from quota_translator.core.world import CapacityRow, QuotaNode


class Ceiling(msgspec.Struct, frozen=True):
    """Of one pair: its row, None where nobody measures it, and what is declared of it."""

    row: CapacityRow | None = None
    declared: Quantity | None = None

    @property
    def amount(self) -> Quantity:
        mark = self.row.mark if self.row is not None else ZERO
        return mark if self.declared is None or self.declared <= mark else self.declared

    @property
    def is_known(self) -> bool:
        """Whether somebody has seen such hardware, or vouches for it."""
        return self.declared is not None or (self.row is not None and self.row.ever_seen)

    @property
    def is_declared(self) -> bool:
        """Whether it is the declaration that counts."""
        return self.declared is not None and self.declared == self.amount

    @property
    def text(self) -> str:
        """In a sentence, with the figure."""
        if self.is_declared:
            return f"the declared capacity is {self.declared}"
        return f"the cluster's peak capacity is {self.amount}"


class Ceilings:
    """The ceilings of one tree, of which `root` is the root; None where there is none."""

    def __init__(self, root: QuotaNode | None, rows: Mapping[Pair, CapacityRow]) -> None:
        self._rows = rows
        self._declared = declared(root)

    def of(self, pair: Pair) -> Ceiling:
        return Ceiling(self._rows.get(pair), self._declared.get(pair))

    def __contains__(self, pair: Pair) -> bool:
        return pair in self._rows or pair in self._declared


def declared(root: QuotaNode | None) -> Mapping[Pair, Quantity]:
    """What root declares, by pair. Of two entries for one pair the first counts."""
    found: dict[Pair, Quantity] = {}
    for entry in root.expected if root is not None else ():
        found.setdefault(entry.pair, entry.quantity)
    return found
