"""The tree into the Kueue objects that it wants. One renderer for each kind, all listed here."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from quota_translator.core.check import Frozen
from quota_translator.core.envelope import Envelopes, Overdraft, envelopes
from quota_translator.core.groups import merge
from quota_translator.core.kueue import cells
from quota_translator.core.names import (
    CLUSTER_QUEUE,
    COHORT,
    COVER_FLAVOR,
    COVER_PART,
    RESOURCE_FLAVOR,
    ROOT,
    Key,
    Pair,
)
from quota_translator.core.notes import Note
from quota_translator.core.options import Options
from quota_translator.core.preemption import Preemptions
from quota_translator.core.quantity import Quantity
from quota_translator.core.queues import IDLE_AFTER, QueueRenderer, Queues, TeamQueue
from quota_translator.core.tree import Tree
from quota_translator.core.world import Clock, Desired, Memory, QuotaNode, World


class Rendering(msgspec.Struct, frozen=True):
    """What the tree wants of Kueue, and what there is to say about it.

    `kept` are the nodes whose objects are neither written nor deleted. With `namespaces_known`
    False there are no LocalQueues here, and none may be deleted for that. `held` are the pairs that
    stay in a team's queue at 0, with what still uses them (None: not known). `wake_at` (steady) is
    when one of those may go. `queues` is for `Memory.rendered`.
    """

    desired: Mapping[Key, Desired] = {}
    kept: frozenset[str] = frozenset()
    notes: tuple[Note, ...] = ()
    overdrawn: Mapping[tuple[str, Pair], Overdraft] = {}
    foreign_members: Mapping[str, tuple[str, ...]] = {}
    namespaces_known: bool = True
    held: Mapping[tuple[str, Pair], Quantity | None] = {}
    wake_at: float | None = None
    queues: Queues = Queues()
    lingering: Mapping[Key, float] = {}


def render(
    tree: Tree,
    frozen: Mapping[str, Frozen],
    world: World,
    memory: Memory,
    options: Options,
    clock: Clock,
) -> Rendering:
    """Every object that the tree wants, the same for the same input in any order.

    `memory.zeroed` has to be that of this look at the world (`held.advance_zeroed`). Frozen nodes
    and those that root does not reach want nothing and are `kept`. With no namespace enrolled
    nothing is wanted at all.
    """
    if not options.materialize.enabled:
        return Rendering()
    written = [node for node in _reached(tree) if node.name not in frozen and _has_role(node)]
    renderer = QueueRenderer(world, memory, options.materialize, clock, Preemptions(tree))
    rendered = renderer.render(node for node in written if node.role == CLUSTER_QUEUE)
    queues = tuple(rendered.teams.values())
    groups = [node for node in written if node.role == COHORT]
    shape = _envelopes(groups, queues, world, memory, options)
    parts: tuple[Iterable[Desired], ...] = (
        _flavors(queues, world),
        _cohorts(groups, shape),
        (queue.desired for queue in queues),
    )
    desired = {wanted.key: wanted for part in parts for wanted in part}
    for queue in queues:
        desired.update(queue.local_queues)
    lingering = renderer.lingering(rendered)
    for key in lingering:
        desired[key] = Desired(key, key.name, frozenset((key.name,)), {"clusterQueue": key.name})
    wakes = [queue.held.wake_at for queue in queues if queue.held.wake_at is not None]
    wakes += [end for since in lingering.values() if (end := since + IDLE_AFTER) > clock.steady]
    return Rendering(
        desired=desired,
        kept=frozenset(tree.nodes) - {node.name for node in written},
        notes=tuple(note for queue in queues for note in queue.notes),
        overdrawn=shape.overdrawn,
        foreign_members=shape.foreign_members,
        namespaces_known=world.namespaces is not None,
        held={
            (queue.desired.quota, pair): use
            for queue in queues
            for pair, use in queue.held.reserved.items()
        },
        wake_at=min(wakes, default=None),
        queues=rendered,
        lingering=lingering,
    )


def _reached(tree: Tree) -> Iterator[QuotaNode]:
    return (tree.nodes[name] for name in tree.order)


def _has_role(node: QuotaNode) -> bool:
    return node.role in {COHORT, CLUSTER_QUEUE}


# --- the renderers ----------------------------------------------------------------------------


def _flavors(queues: Sequence[TeamQueue], world: World) -> Iterator[Desired]:
    """The cover's flavor, while a queue uses it or one in Kueue (a kept one) still lists it."""
    users = frozenset(queue.desired.quota for queue in queues if queue.uses_cover)
    if users or _is_cover_listed(world):
        key = Key(RESOURCE_FLAVOR, "", COVER_FLAVOR)
        yield Desired(key, ROOT, users or frozenset((ROOT,)), {}, COVER_PART)


def _cohorts(groups: Sequence[QuotaNode], shape: Envelopes) -> Iterator[Desired]:
    for node in groups:
        spec = _cohort_spec(node, shape)
        yield Desired(Key(COHORT, "", node.name), node.name, frozenset((node.name,)), spec)


# --- parts of them ----------------------------------------------------------------------------


def _cohort_spec(node: QuotaNode, shape: Envelopes) -> dict[str, Any]:
    spec: dict[str, Any] = {} if node.name == ROOT else {"parentName": node.parent}
    if node.fair_weight is not None:
        spec["fairSharing"] = {"weight": node.fair_weight}
    cells_here = shape.cells.get(node.name, ())
    if cells_here:
        order = [budget.flavor for budget in node.budgets]
        spec["resourceGroups"] = merge(cells_here, order, COHORT)
    return spec


def _envelopes(
    groups: Sequence[QuotaNode],
    queues: Sequence[TeamQueue],
    world: World,
    memory: Memory,
    options: Options,
) -> Envelopes:
    """What the groups hold, counting what the server refuses as it stands.

    Whether a group's Cohort is the one that was refused is known only when it is worked out, and
    then changes what stands beneath those above it; each round settles one refusal or ends.
    """
    desired = [queue.desired for queue in queues]
    stuck = frozenset(queue.key for queue in desired if _is_refused(queue.key, queue.spec, memory))
    while True:
        shape = envelopes(groups, desired, stuck, world, options.materialize.manager)
        more = {
            key
            for node in groups
            if (key := Key(COHORT, "", node.name)) in memory.refused
            and _is_refused(key, _cohort_spec(node, shape), memory)
        }
        if more <= stuck:
            return shape
        stuck |= more


def _is_refused(key: Key, spec: Mapping[str, Any], memory: Memory) -> bool:
    refusal = memory.refused.get(key)
    return refusal is not None and refusal.spec == spec


def _is_cover_listed(world: World) -> bool:
    return any(
        pair.flavor == COVER_FLAVOR
        for key, live in world.live.items()
        if key.kind == CLUSTER_QUEUE
        for pair in cells(live.spec)
    )
