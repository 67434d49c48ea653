"""What the groups will hold when all that is under way has happened, and who gives way to a move.

Under way are the shrinks, deletions and moves of this plan and what Kueue has not taken yet: they
come without waiting for anybody. So a share that has to be lowered is lowered no further than what
will not be free anyway, and of two that change places only one has to give way.
"""

from collections.abc import Iterable

from quota_translator.core.kueue import nominal_cells, parent_of
from quota_translator.core.links import Links
from quota_translator.core.livesums import Amounts
from quota_translator.core.names import COHORT, Key, Pair
from quota_translator.core.scene import Scene


class Outlook:
    """Shares, links and sums as they will be; `give_way` lowers shares in it and in the scene."""

    def __init__(self, scene: Scene) -> None:
        self.links = Links()
        self._scene = scene
        self._caps = scene.sums.caps
        self._shares: dict[Key, Amounts] = {}
        for key in sorted(scene.sums.live.keys() | scene.created):
            self._shares[key] = dict(self._share(key))
            self.links.link(key, self._place(key))
        self._sums = {(name, pair): 0 for name, row in self._caps.items() for pair in row}
        for key, amounts in self._shares.items():
            self._add(self._groups(key), amounts)

    def give_way(self, key: Key, groups: frozenset[str]) -> None:
        """Lower what would come along with this object to what these groups will let in.

        Nothing is lowered while something that cannot be written would not fit anyhow: the object
        has to wait for that, and may keep its shares meanwhile.
        """
        room = self._room(groups)
        coming = self.links.subtree(key)
        fixed = self._total(member for member in coming if not self._can_yield(member))
        if any(amount > max(0, room[pair]) for pair, amount in fixed.items() if pair in room):
            return
        yielding = [member for member in coming if self._can_yield(member)]
        yielding.sort(key=lambda member: (member.kind == COHORT, member.name))
        for pair, most in room.items():
            left = max(0, most - fixed.get(pair, 0))
            for member in yielding:
                share = self._shares[member].get(pair, 0)
                if share > left:
                    self._lower(member, pair, left)
                left -= min(share, left)
        self._add(groups, self._total(coming))

    # --- as it will be --------------------------------------------------------------------

    def _share(self, key: Key) -> Amounts:
        scene = self._scene
        live = scene.sums.live.get(key, {})
        if key in scene.compared.unwanted:
            stays = key.kind == COHORT and scene.sums.links.members(key.name)
            return live if stays or key in scene.memory.refused else {}
        found = scene.compared.present.get(key)
        if found is None or key in scene.memory.refused:
            return live
        wanted = scene.sums.counted(nominal_cells(found.wanted.spec))
        return {pair: min(amount, wanted.get(pair, 0)) for pair, amount in live.items()}

    def _place(self, key: Key) -> tuple[str, ...]:
        scene = self._scene
        if key in scene.created or key in scene.moved:
            parent = scene.parent(key)
        else:
            seen = scene.live.get(key)
            parent = parent_of(seen) if seen else None
        return (parent,) if parent else ()

    def _can_yield(self, key: Key) -> bool:
        return key in self._scene.compared.present or key in self._scene.compared.unwanted

    # --- sums -----------------------------------------------------------------------------

    def _groups(self, key: Key) -> frozenset[str]:
        """The groups in whose sums the object's share counts."""
        above = self.links.above(key)
        return above | {key.name} if key.kind == COHORT else above

    def _add(self, groups: Iterable[str], amounts: Amounts, sign: int = 1) -> None:
        for name in groups:
            for pair in self._caps.get(name, {}):
                self._sums[name, pair] += sign * amounts.get(pair, 0)

    def _lower(self, key: Key, pair: Pair, to: int) -> None:
        self._add(self._groups(key), {pair: self._shares[key][pair] - to}, -1)
        self._shares[key][pair] = to
        self._scene.yielded.setdefault(key, {})[pair] = to

    def _room(self, groups: Iterable[str]) -> Amounts:
        """What all of these groups together let in; a pair that none of them budgets lacks."""
        found: Amounts = {}
        for name in groups:
            for pair, cap in self._caps.get(name, {}).items():
                left = cap.nominal - self._sums[name, pair]
                found[pair] = min(found.get(pair, left), left)
        return found

    def _total(self, keys: Iterable[Key]) -> Amounts:
        total: Amounts = {}
        for key in keys:
            for pair, amount in self._shares.get(key, {}).items():
                total[pair] = total.get(pair, 0) + amount
        return total
