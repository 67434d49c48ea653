"""The spine: from what was seen and believed to what is wanted, in one pure function.

    measure → advance → grow → check → render → plan

Each stage is a function in the module of its name. The controller, `run --local`, `plan` and the
tests all call `translate`, so they cannot disagree.
"""

from collections.abc import Iterable, Mapping

import msgspec

from quota_translator.core.actions import Plan
from quota_translator.core.capacity import Reading, measure
from quota_translator.core.check import check
from quota_translator.core.held import advance_zeroed
from quota_translator.core.highwater import advance
from quota_translator.core.lifecycle import Roster, muster, without_former
from quota_translator.core.names import RETIRE, ROOT, SWEEP_ORPHANS, Pair
from quota_translator.core.options import Options
from quota_translator.core.orphans import Orphans, find_orphans
from quota_translator.core.plan import plan
from quota_translator.core.remembered import advance_frozen, frozen_since_from, over_since_from
from quota_translator.core.render import Rendering, render
from quota_translator.core.retirement import Retirement, find_retirement, without
from quota_translator.core.rootstatus import capacity_from_status
from quota_translator.core.tree import Tree, grow
from quota_translator.core.usage import Usage, advance_over, read_usage
from quota_translator.core.verdict import Context, Verdict
from quota_translator.core.world import (
    CapacityRow,
    Clock,
    Departed,
    Memory,
    QuotaNode,
    World,
)


class Translation(msgspec.Struct, frozen=True):
    """Everything that one look at the world led to.

    `tree` holds the members of `roster`. `memory` is what is believed from now on, before anything
    was applied. `stamped`: capacity rows have a new stamp. `measured`: by nodes and flavors whose
    watches heard from the server lately. `wake_at` (steady) is when to look again without a reason
    from outside.
    """

    reading: Reading | None
    capacity: Mapping[Pair, CapacityRow]
    stamped: bool
    tree: Tree
    verdict: Verdict
    rendering: Rendering
    plan: Plan
    usage: Usage
    memory: Memory
    wake_at: float | None = None
    measured: bool = False
    roster: Roster = Roster()
    orphans: Orphans = Orphans()
    retirement: Retirement = Retirement()

    @property
    def spent(self) -> tuple[str, ...]:
        """Annotations on root that have done their work."""
        done = ((SWEEP_ORPHANS, self.orphans.spent), (RETIRE, self.retirement.spent))
        return tuple(name for name, is_spent in done if is_spent)

    def node(self, name: str) -> QuotaNode:
        """A node of the tree, or one that is leaving it. Raises KeyError."""
        return self.tree.nodes.get(name) or self.roster.leaving[name]


def remember(quotas: Iterable[QuotaNode]) -> Memory:
    """What the stored statuses say: the memory of a process that has just started."""
    nodes = tuple(quotas)
    root = next((node for node in nodes if node.name == ROOT), None)
    return Memory(
        capacity=capacity_from_status(root.status) if root else {},
        frozen_since=frozen_since_from(nodes),
        over_since=over_since_from(nodes),
        departed=Departed(uids={node.name: node.uid for node in nodes}),
    )


def translate(world: World, memory: Memory, options: Options, clock: Clock) -> Translation:
    """One pass. `world.quotas` must be known; all else may be unknown, and is then not acted on."""
    quotas = world.quotas or ()
    memory, roster = without_former(memory, quotas), muster(quotas)
    reading = _reading(world, roster.members, options)
    tree = grow(roster.members)
    retirement = find_retirement(tree.nodes.get(ROOT), reading, clock)
    believed = without(memory.capacity, retirement)
    advanced = advance(believed, reading, options.capacity, clock, world.heard)
    context = Context(
        # With measuring off nothing is judged against marks of an earlier time.
        capacity=advanced.rows if options.capacity.resources else None,
        flavors=world.flavors,
        options=options,
        kueue_release=world.facts.kueue_release,
    )
    verdict = check(tree, context)
    manager = options.materialize.manager
    zeroed = advance_zeroed(world.live, memory, clock)
    usage = read_usage(tree, world, manager)
    departed, orphans = find_orphans(memory.departed, roster, world, options.materialize, clock)
    memory = msgspec.structs.replace(
        memory,
        capacity=advanced.rows,
        zeroed=zeroed,
        frozen_since=advance_frozen(verdict, memory.frozen_since, clock),
        over_since=advance_over(tree, usage, memory.over_since, clock),
        departed=departed,
    )
    rendering = render(tree, verdict.frozen, world, memory, options, clock)
    memory = msgspec.structs.replace(
        memory, rendered=rendering.queues, lingering=rendering.lingering
    )
    planned = Plan()
    if options.materialize.enabled:
        kept = rendering.kept | orphans.kept
        planned = plan(rendering.desired, kept, tree, world, memory, options, clock)
    moments = (
        advanced.wake_at,
        rendering.wake_at,
        planned.wake_at,
        orphans.wake_at,
        retirement.wake_at,
    )
    return Translation(
        reading=reading,
        capacity=advanced.rows,
        stamped=advanced.stamped,
        tree=tree,
        verdict=verdict,
        rendering=rendering,
        plan=planned,
        usage=usage,
        memory=memory,
        wake_at=min((moment for moment in moments if moment is not None), default=None),
        measured=reading is not None and world.heard,
        roster=roster,
        orphans=orphans,
        retirement=retirement,
    )


def _reading(world: World, quotas: Iterable[QuotaNode], options: Options) -> Reading | None:
    """Measure when nodes and flavors are both known: a partial view is no measurement."""
    if world.nodes is None or world.flavors is None or not options.capacity.resources:
        return None
    named = frozenset(budget.flavor for node in quotas for budget in node.budgets)
    return measure(world.nodes, world.flavors, options.capacity.resources, named)
