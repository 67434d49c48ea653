"""What really stands beneath each budgeted group in Kueue, and how much may still be added.

The sum is the worst that Kueue may believe at this moment: each object with the larger of its live
share and of a share that it was told to give up but may not have yet, beneath every Cohort where it
is or may still be seen. Room is what the budget leaves over that sum. Shrinks that are only planned
make no room. Amounts are nanos (see core/quantity.py), counted as Kueue charges them.
"""

from collections.abc import Iterable, Mapping

import msgspec

from quota_translator.core.arithmetic import charged
from quota_translator.core.kueue import cells, parent_of
from quota_translator.core.links import Links
from quota_translator.core.names import CLUSTER_QUEUE, COHORT, ROOT, Key, Pair
from quota_translator.core.quantity import Quantity
from quota_translator.core.tree import Tree
from quota_translator.core.world import Desired, Observed, Settling

Amounts = dict[Pair, int]


class Cap(msgspec.Struct, frozen=True):
    """A group's budget on one pair. Only an enforced one is a cap at run time."""

    nominal: int
    borrowing: int
    enforced: bool


Caps = Mapping[str, Mapping[Pair, Cap]]


class Block(msgspec.Struct, frozen=True):
    """Where there is no room: the group, the pair, what is asked for, and what there is."""

    group: str
    pair: Pair
    asked: int
    room: int


def caps_of(tree: Tree, desired: Mapping[Key, Desired]) -> dict[str, dict[Pair, Cap]]:
    """The budgets of the groups that are being written, by the name of their Cohort."""
    caps: dict[str, dict[Pair, Cap]] = {}
    for key, wanted in desired.items():
        if key.kind != COHORT:
            continue
        for node in sorted(wanted.nodes & tree.nodes.keys()):
            for budget in tree.nodes[node].budgets:
                limit = budget.borrowing_limit
                caps.setdefault(key.name, {}).setdefault(
                    budget.pair,
                    Cap(
                        budget.nominal.nanos,
                        limit.nanos if limit else 0,
                        bool(budget.enforced) and key.name != ROOT,
                    ),
                )
    return caps


class LiveSums:
    """Sums and rooms at the start of a pass; rooms shrink as the pass reserves them."""

    def __init__(
        self,
        live: Mapping[Key, Observed],
        settling: Mapping[Key, Settling],
        caps: Caps,
        manager: str,
    ) -> None:
        """`settling` holds only entries that still count."""
        self.caps = caps
        self.links = Links()
        self.live: dict[Key, Amounts] = {}  # as the store shows it
        self.worst: dict[Key, Amounts] = {}  # as Kueue may believe it
        self.unknown: set[Key] = set()  # what Kueue believes of these, nobody remembers
        self._pairs = {pair for row in caps.values() for pair in row}
        for key, seen in live.items():
            if key.kind in (COHORT, CLUSTER_QUEUE):
                self._see(key, seen, settling.get(key), manager)
        for key in settling.keys() - self.worst.keys():  # gone, but Kueue may not know it yet
            self.live[key] = {}
            self.worst[key] = self.counted(settling[key].nominal)
            self.links.link(key, settling[key].parents)
        self.unsure = {name for key in self.unknown for name in self.links.above(key)}
        self.sums = self._sums()
        self.excess = self._excesses(live, settling)
        self._rooms = self._room_of_each()

    def worst_of(self, keys: Iterable[Key]) -> Amounts:
        """What these objects hold together at worst."""
        total: Amounts = {}
        for key in keys:
            for pair, amount in self.worst.get(key, {}).items():
                total[pair] = total.get(pair, 0) + amount
        return total

    def own(self, name: str, pair: Pair) -> int:
        """What the group's own Cohort holds at worst."""
        return self.worst.get(Key(COHORT, "", name), {}).get(pair, 0)

    def block(self, groups: Iterable[str], amounts: Amounts) -> Block | None:
        """The first of these groups that has no room for the amounts; None when all have.

        An amount of 0 is one that the sums have already, because Kueue may still count it from
        before: it needs no room, but it must not come back where there is too much as it is.
        """
        for name in sorted(groups):
            row = self.caps.get(name, {})
            for pair, amount in amounts.items():
                if pair not in row:
                    continue
                room = self._rooms[name, pair]
                if amount > room or name in self.unsure:
                    return Block(name, pair, amount, max(0, room))
        return None

    def reserve(self, groups: Iterable[str], amounts: Amounts, sign: int = 1) -> None:
        """Take the amounts from the room of these groups; sign -1 gives them back."""
        for name in groups:
            row = self.caps.get(name, {})
            for pair, amount in amounts.items():
                if pair in row:
                    self._rooms[name, pair] -= sign * amount

    def limit(self, name: str, pair: Pair, own: int, wanted: Quantity, live: object) -> Quantity:
        """The borrowingLimit that a group's Cohort may have now, with `own` in the same write.

        An enforced group's members hold at most the sum of all shares beneath and of this limit, so
        the limit gives way to whatever the sum has too much. While nobody knows what Kueue believes
        of a member, it does not rise either: a Cohort that states no limit, such as one that stood
        at the top and moves beneath another, begins at 0.
        """
        cap = self.caps.get(name, {}).get(pair)
        if cap is None or not cap.enforced:
            return wanted
        others = self.sums[name, pair] - self.own(name, pair)
        most = max(0, cap.nominal + cap.borrowing - others - own)
        if name in self.unsure:
            most = min(most, live.nanos if isinstance(live, Quantity) else 0)
        return wanted if wanted.nanos <= most else Quantity(most, wanted.form)

    def counted(self, nominal: Mapping[Pair, object]) -> Amounts:
        """Nominals as Kueue charges them; only pairs that some group budgets, without zeros."""
        return {
            pair: charged(pair.resource, amount).nanos
            for pair, amount in nominal.items()
            if pair in self._pairs and isinstance(amount, Quantity) and amount
        }

    # --- reading --------------------------------------------------------------------------

    def _see(self, key: Key, seen: Observed, entry: Settling | None, manager: str) -> None:
        parent = parent_of(seen)
        self.links.link(key, (parent,) if parent else ())
        amounts = self.counted(
            {pair: cell.get("nominalQuota") for pair, cell in cells(seen.spec).items()}
        )
        self.live[key] = self.worst[key] = amounts
        if entry is not None:
            self.links.link(key, entry.parents)
            old = self.counted(entry.nominal)
            self.worst[key] = {
                pair: max(old.get(pair, 0), amounts.get(pair, 0)) for pair in {**old, **amounts}
            }
        elif seen.managed_by == manager and _is_behind(seen):
            self.unknown.add(key)  # written before this process started

    def _sums(self) -> dict[tuple[str, Pair], int]:
        sums = {(name, pair): 0 for name, row in self.caps.items() for pair in row}
        for key, amounts in self.worst.items():
            if not amounts:
                continue
            for name in self.links.above(key):
                for pair in self.caps.get(name, {}):
                    sums[name, pair] += amounts.get(pair, 0)
        for name, row in self.caps.items():
            for pair, cap in row.items():
                sums[name, pair] += self.own(name, pair) if cap.enforced else 0
        return sums

    def _excesses(
        self, live: Mapping[Key, Observed], settling: Mapping[Key, Settling]
    ) -> dict[tuple[str, Pair], int]:
        """By how much a group's limit in Kueue is larger than the limit that it shall have."""
        found: dict[tuple[str, Pair], int] = {}
        for name, row in self.caps.items():
            key = Key(COHORT, "", name)
            seen, entry = live.get(key), settling.get(key)
            now = cells(seen.spec) if seen else {}
            for pair, cap in row.items():
                limits = [now.get(pair, {}).get("borrowingLimit")]
                limits.append(entry.limits.get(pair) if entry else None)
                known = [limit.nanos for limit in limits if isinstance(limit, Quantity)]
                if cap.enforced and known:
                    found[name, pair] = max(0, max(known) - cap.borrowing)
        return found

    def _room_of_each(self) -> dict[tuple[str, Pair], int]:
        return {
            (name, pair): cap.nominal - self.sums[name, pair] - self.excess.get((name, pair), 0)
            for name, row in self.caps.items()
            for pair, cap in row.items()
        }


def _is_behind(seen: Observed) -> bool:
    """A ClusterQueue of which Kueue has taken an earlier spec, but not this one yet."""
    return seen.key.kind == CLUSTER_QUEUE and 0 < seen.active_generation < seen.generation
