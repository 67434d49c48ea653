"""What must hold whatever happens: looked at after every single change on the server.

Some promises can be kept only by who sees what is there. While watches are cut, or a person has
changed Kueue's objects a moment ago, they are judged by what the controller could see.
"""

from collections import deque
from collections.abc import Mapping
from typing import Final

from quota_translator.core.capacity import measure
from quota_translator.core.kueue import is_ours, parent_of
from quota_translator.core.names import (
    CLUSTER_QUEUE,
    COHORT,
    FINALIZER,
    KINDS,
    QUOTA_KIND,
    RESOURCE_FLAVOR,
    Key,
    Pair,
)
from quota_translator.core.quantity import ZERO, Quantity
from quota_translator.core.results import Results
from quota_translator.core.translate import Translation
from quota_translator.core.world import Observed
from tests.core.kueueworld import cyclic
from tests.machine import client, kueue
from tests.machine.life import DROP_AFTER, MANAGER, OPTIONS, Life
from tests.machine.objects import key_of, observed, quotas, truth
from tests.machine.server import Object, Where
from tests.machine.sums import Amounts, caps_in, sums_in

CALM_SECONDS: Final = 3.0  # after a person's change everybody has seen it
DEAF_SECONDS: Final = 300.0  # a watch that is deaf is noticed within this
LAG_SECONDS: Final = 5.0  # from a node's change to the pass that measures it


class Promises:
    """Hooked into a life; what is broken lands in `life.broken`."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self._live: dict[Key, Observed] = {}
        self._believed: dict[Key, Observed] = {}
        self._calm_from = 0.0
        self._caps: deque[tuple[float, Amounts]] = deque()
        self._absent: dict[tuple[str, str], float] = {}  # name and role: when it last was not there
        self._installed: deque[tuple[float, Mapping[Pair, Quantity]]] = deque()
        self._marks: Mapping[Pair, Quantity] = {}
        self._thawed: set[str] = set()
        life.server.hooks.append(self._changed)
        life.kueue.taken = self._taken
        life.watchers.append(self._passed)

    def disturb(self, seconds: float = CALM_SECONDS) -> None:
        """For so long the controller cannot be expected to see what is there."""
        self._calm_from = max(self._calm_from, self._life.loop.time() + seconds)

    @property
    def calm(self) -> bool:
        return self._life.kueue.running and self._life.loop.time() >= self._calm_from

    # --- being told -----------------------------------------------------------------------

    def _changed(
        self, actor: str, where: Where, before: Object | None, after: Object | None
    ) -> None:
        try:
            if where[0] in KINDS:
                self._kueue_object(actor, where, before, after)
            elif where[0] == QUOTA_KIND:
                self._quota(actor, before, after)
            if where[0] in ("Node", RESOURCE_FLAVOR):
                self._measured()
        except AssertionError as error:
            self._life.broken.append(error)

    def _kueue_object(
        self, actor: str, where: Where, before: Object | None, after: Object | None
    ) -> None:
        key = key_of(where)
        former = dict(self._live)
        if after is None:
            self._live.pop(key, None)
        else:
            self._live[key] = observed(where, after)
        if actor == client.ACTOR:
            self._ours_only(key, former)
            self._above(key, former)
            self._bounded(*self._before_and_after(key, former), f"{key} was written")
            if before is not None and _goes(before, after):
                self._is_wanted_no_more(key)
        elif actor != kueue.ACTOR:
            self.disturb()

    def _taken(self, where: Where, found: Object | None) -> None:
        key = key_of(where)
        former = dict(self._believed)
        if found is None:
            self._believed.pop(key, None)
        else:
            self._believed[key] = observed(where, found)
        try:
            if self.calm:
                self._bounded(former, self._believed, f"Kueue took {key}")
        except AssertionError as error:
            self._life.broken.append(error)

    # --- Kueue's objects ------------------------------------------------------------------

    def _visible(self, key: Key) -> Observed | None:
        """As the controller sees it."""
        assert self._life.cluster is not None
        return self._life.cluster._live.get(key)

    def _ours_only(self, key: Key, former: Mapping[Key, Observed]) -> None:
        found = former.get(key)
        if found is None or is_ours(found, MANAGER):
            return
        shown = self._visible(key)
        could_know = self.calm or shown is None or not is_ours(shown, MANAGER)
        assert not could_know, f"{key} is not ours and was written"

    def _above(self, key: Key, former: Mapping[Key, Observed]) -> None:
        """Nothing is put beneath what is not there, or not ours, or in a loop."""
        made, was = self._live.get(key), former.get(key)
        if made is None or key.kind not in (COHORT, CLUSTER_QUEUE):
            return
        parent = parent_of(made)
        if parent is None or (was is not None and parent_of(was) == parent):
            return
        above = Key(COHORT, "", parent)
        if self.calm:
            assert above in former, f"{key} was put beneath {parent}, which is not there"
            assert is_ours(former[above], MANAGER), f"{key} was put beneath a foreign {parent}"
            assert cyclic(self._live) <= cyclic(former), f"{key} was put into a loop"
        else:
            shown = self._visible(above)
            assert shown is not None, f"{key} was put beneath {parent}, which is not seen"

    def _before_and_after(
        self, key: Key, former: Mapping[Key, Observed]
    ) -> tuple[Mapping[Key, Observed], Mapping[Key, Observed]]:
        """Of a write of ours: all that there is, or while we cannot know that, all that we see."""
        if self.calm:
            return former, self._live
        shown = {other: self._visible(other) for other in former.keys() | {key}}
        seen = {other: found for other, found in shown.items() if found is not None}
        after = {other: found for other, found in seen.items() if other != key}
        written = self._live.get(key)
        return seen, after | ({key: written} if written is not None else {})

    def _bounded(
        self, former: Mapping[Key, Observed], now: Mapping[Key, Observed], what: str
    ) -> None:
        """No write makes a sum larger than the budget above it."""
        caps = self._largest_caps()
        before, after = sums_in(former, caps), sums_in(now, caps)
        for place, total in after.items():
            most = max(before.get(place, ZERO), caps[place])
            group, pair = place
            assert total <= most, f"{what}: {group} holds {total} of {pair}, and may hold {most}"

    def _largest_caps(self) -> Amounts:
        """By the trees that the passes of the last moments saw."""
        life = self._life
        assert life.cluster is not None
        now, seen = life.loop.time(), life.cluster.seen
        if seen is not None and seen.quotas is not None:
            self._caps.append((now, caps_in(seen.quotas)))
        while self._caps[0][0] < now - CALM_SECONDS and len(self._caps) > 1:
            self._caps.popleft()
        everywhere = set.intersection(*(set(caps) for _, caps in self._caps))
        return {place: max(caps[place] for _, caps in self._caps) for place in everywhere}

    def _is_wanted_no_more(self, key: Key) -> None:
        """A deletion has its reason in the tree, and not in what could not be read."""
        if key.kind not in (COHORT, CLUSTER_QUEUE):
            return
        self._note_absent()
        since = self._absent.get((key.name, key.kind))
        assert since is not None, f"{key} was deleted and its node has always been there"
        allowed = DEAF_SECONDS if not self.calm else CALM_SECONDS + DEAF_SECONDS
        assert since >= self._life.loop.time() - allowed, f"{key} was deleted; its node is there"

    # --- the tree -------------------------------------------------------------------------

    def _quota(self, actor: str, before: Object | None, after: Object | None) -> None:
        self._note_absent()
        if actor != client.ACTOR or before is None:
            return
        kept = set(before["metadata"].get("finalizers", ())) - {FINALIZER}
        if after is None:
            assert not kept, "finalizers of others were stripped"
            return
        assert kept <= set(after["metadata"].get("finalizers", ())), "others' finalizers stripped"
        assert before["spec"] == after["spec"], "the tree itself was edited"
        self._frozen_since(before, after)

    def _note_absent(self) -> None:
        """Whose node is not in the tree now, in which role."""
        now = self._life.loop.time()
        there = {(n.name, n.role) for n in quotas(self._life.server) if not n.deleting}
        there.add(("root", COHORT))
        for name in {key.name for key in self._live} | {name for name, _ in self._absent}:
            for role in (COHORT, CLUSTER_QUEUE):
                if (name, role) not in there:
                    self._absent[name, role] = now

    def _frozen_since(self, before: Object, after: Object) -> None:
        """`frozenAt` stays as long as the node stays frozen, over restarts too."""
        name = after["metadata"]["name"]
        was, now = (o.get("status", {}).get("materialization", {}) for o in (before, after))
        if was.get("frozen") and now.get("frozen") and was["frozenAt"] != now["frozenAt"]:
            assert name in self._thawed, f"{name}: frozenAt changed"
        self._thawed.discard(name)

    # --- passes ---------------------------------------------------------------------------

    def _passed(self, translation: Translation, results: Results) -> None:
        frozen = translation.verdict.frozen.keys()
        for result in results.results:
            if result.outcome == "written":
                assert not result.nodes & frozen, f"{result.key} is of a frozen node"
        self._thawed |= translation.tree.nodes.keys() - frozen
        marks = {pair: row.mark for pair, row in translation.capacity.items()}
        for pair, before in self._marks.items():
            if marks.get(pair, ZERO) < before:
                self._fell(pair, before)
        self._marks = marks

    def _measured(self) -> None:
        world = truth(self._life.server)
        named = frozenset(b.flavor for node in world.quotas or () for b in node.budgets)
        resources = OPTIONS.capacity.resources
        reading = measure(world.nodes or (), world.flavors or (), resources, named)
        rows = {pair: seen.installed for pair, seen in reading.pairs.items()}
        self._installed.append((self._life.loop.time(), rows))

    def _fell(self, pair: Pair, before: Quantity) -> None:
        """A mark falls only after there has been less for long enough, by the steady clock."""
        now = self._life.loop.time()
        if self._calm_from > now - DROP_AFTER - LAG_SECONDS:
            return  # what it did not see it did not measure
        since = now - DROP_AFTER + LAG_SECONDS
        then: Mapping[Pair, Quantity] = {}
        for at, rows in self._installed:
            if at <= since:
                then = rows
            elif at <= now - LAG_SECONDS:
                assert rows.get(pair, ZERO) < before, f"the mark of {pair} fell too early"
        assert then.get(pair, ZERO) < before, f"the mark of {pair} fell from {before} too early"


def _goes(before: Object, after: Object | None) -> bool:
    deleting = "deletionTimestamp"
    return after is None or (deleting in after["metadata"] and deleting not in before["metadata"])
