"""Kueue's own limits, on the shape of what is (or would be) rendered.

Kueue refuses an object beyond most of them; two it accepts and then fails at: more flavors than a
status may list, and, before 0.18, sums that overflow 64 bits. Sources: the types and webhooks of
Kueue's v1beta2, and what running 0.17 and 0.19 do.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from quota_translator.core.groups import Cell, merge
from quota_translator.core.names import CLUSTER_QUEUE, COHORT, COVER_FLAVOR, ROOT, Pair
from quota_translator.core.quantity import ZERO, Quantity
from quota_translator.core.tree import Tree
from quota_translator.core.verdict import KUEUE_LIMIT_EXCEEDED, Context, Violation, shown
from quota_translator.core.world import Flavor, QuotaNode

MAX_GROUPS: Final = 16  # resource groups of an object
MAX_GROUP_RESOURCES: Final = 64
MAX_CELLS: Final = 512  # of a group: flavors times resources
MAX_RESOURCES: Final = 256  # of all groups of a queue
# A queue may declare 256 flavors, but with more than these its status can no longer be written.
MAX_FLAVORS: Final = 64
# Before 0.18 the status of a LocalQueue is narrower than that of its ClusterQueue.
MAX_FLAVORS_BEFORE_0_18: Final = 16
MAX_FLAVOR_ENTRIES: Final = 8  # labels, taints, and tolerations, each

_SATURATING: Final = (0, 18)  # the first release whose sums stop at the end instead of wrapping
_MAX_INT64: Final = 2**63 - 1
_SPLIT: Final = "remove budgets, or spread them over several nodes"


class Shape(msgspec.Struct, frozen=True):
    """A resource group without its amounts: every flavor has a cell for every resource."""

    resources: tuple[str, ...]
    flavors: tuple[str, ...]


class Excess(msgspec.Struct, frozen=True):
    """A limit that is exceeded: what is counted, its maximum, and how many there are."""

    counted: str
    maximum: int
    found: int

    @property
    def message(self) -> str:
        return f"{self.found} {self.counted}, and Kueue takes at most {self.maximum}"


class Overflow(msgspec.Struct, frozen=True):
    """The number of teams from which on a ceiling, summed over them, wraps around in Kueue."""

    resource: str
    teams: int


def shapes_of(resource_groups: Sequence[Mapping[str, Any]]) -> tuple[Shape, ...]:
    """The shape of rendered `spec.resourceGroups`."""
    return tuple(
        Shape(
            tuple(group.get("coveredResources") or ()),
            tuple(flavor.get("name", "") for flavor in group.get("flavors") or ()),
        )
        for group in resource_groups
    )


def shapes_for(pairs: Iterable[Pair], hint: str = "") -> tuple[Shape, ...]:
    """The shape of what these pairs are rendered to; with a hint it is one group."""
    return shapes_of(merge(Cell("", pair, ZERO, hint=hint) for pair in pairs))


def queue_shapes(
    pairs: Sequence[Pair], cover: Iterable[str], with_topology: frozenset[str]
) -> tuple[Shape, ...]:
    """The groups of a team's queue: its budgets' and those of the cover resources.

    Cover resources that the team budgets itself are its own. They stand on a flavor of theirs; with
    a topology on any of the team's flavors they stand on all of these, in one group.
    """
    budgeted = {pair.resource for pair in pairs}
    flavors = dict.fromkeys(pair.flavor for pair in pairs)
    wide = bool(with_topology & flavors.keys())
    covered = [Pair(name, on) for on in (flavors if wide else (COVER_FLAVOR,)) for name in cover]
    added = (pair for pair in covered if pair.resource not in budgeted)
    return shapes_for([*pairs, *added], "topology" if wide else "")


def exceeded(shapes: Sequence[Shape], most_flavors: int = MAX_FLAVORS) -> tuple[Excess, ...]:
    """Which limits an object of these groups exceeds; of the groups the worst is told."""
    resources = [len(shape.resources) for shape in shapes]
    flavors = sum(len(shape.flavors) for shape in shapes)
    cells = [len(shape.resources) * len(shape.flavors) for shape in shapes]
    counts = (
        Excess("resource groups", MAX_GROUPS, len(shapes)),
        Excess("flavors", most_flavors, flavors),
        Excess("resources in one group", MAX_GROUP_RESOURCES, max(resources, default=0)),
        Excess("resources", MAX_RESOURCES, sum(resources)),
        Excess("flavor-resource pairs in one group", MAX_CELLS, max(cells, default=0)),
    )
    return tuple(count for count in counts if count.found > count.maximum)


def most_flavors(release: tuple[int, int] | None) -> int:
    """How many flavors a queue may have so that it and its LocalQueues can report."""
    before = release is not None and release < _SATURATING
    return MAX_FLAVORS_BEFORE_0_18 if before else MAX_FLAVORS


def flavor_excess(flavor: Flavor) -> tuple[Excess, ...]:
    """The limits that a ResourceFlavor itself exceeds."""
    counts = (
        Excess("node labels", MAX_FLAVOR_ENTRIES, len(flavor.node_labels)),
        Excess("node taints", MAX_FLAVOR_ENTRIES, flavor.taints),
        Excess("tolerations", MAX_FLAVOR_ENTRIES, flavor.tolerations),
    )
    return tuple(count for count in counts if count.found > count.maximum)


def ceiling_overflow(
    ceilings: Mapping[str, Quantity], release: tuple[int, int] | None
) -> Overflow | None:
    """The ceiling that overflows first when every team has it, or None when none ever does.

    From 0.18 on Kueue's sums saturate; of an unknown release the same is believed. Before that they
    are plain 64-bit integers, in thousandths for cpu and in whole units for all else.
    """
    if release is None or release >= _SATURATING:
        return None
    breaking = [
        Overflow(resource, _MAX_INT64 // units + 1)
        for resource, amount in ceilings.items()
        if (units := (amount * 1000 if resource == "cpu" else amount).ceil()) > 0
    ]
    return min(breaking, key=lambda found: (found.teams, found.resource), default=None)


def kueue_limits(tree: Tree, context: Context) -> Iterator[Violation]:
    """What a node would be rendered to stays within Kueue's limits, the cover group counted.

    Every declared pair counts, whether its flavor exists yet or not: creating a flavor must not be
    what breaks a queue.
    """
    flavors = context.flavors or ()
    with_topology = frozenset(flavor.name for flavor in flavors if flavor.topology)
    overfull = {flavor.name: excess for flavor in flavors if (excess := flavor_excess(flavor))}
    settings = context.options.materialize
    cover = tuple(settings.cover_resources) if settings.cover else ()
    most = most_flavors(context.kueue_release)
    for name, node in tree.nodes.items():
        if node.role == CLUSTER_QUEUE and name != ROOT:
            if _may_exceed(len(node.budgets), len(cover), most):
                shapes = queue_shapes([b.pair for b in node.budgets], cover, with_topology)
                yield from _of(node, "spec.budgets", "its queue", exceeded(shapes, most), _SPLIT)
            for used in sorted({b.flavor for b in node.budgets} & overfull.keys()):
                what = f"the ResourceFlavor {shown(used)}"
                yield from _of(node, f"flavor {used}", what, overfull[used], "remove some")
        elif node.role == COHORT and name != ROOT and len(node.budgets) > MAX_GROUPS:
            shapes = shapes_for(b.pair for b in node.budgets if b.enforced)
            yield from _of(node, "spec.budgets", "its Cohort", exceeded(shapes), _SPLIT)


def _may_exceed(budgets: int, cover: int, most_flavors: int) -> bool:
    """Whether so many budgets can exceed anything, however they form groups. Most teams cannot."""
    flavors, resources = budgets + 1, budgets + cover
    return (
        flavors > min(MAX_GROUPS, most_flavors)
        or resources > MAX_GROUP_RESOURCES
        or flavors * resources > MAX_CELLS
    )


def _of(
    node: QuotaNode, subject: str, what: str, found: Iterable[Excess], remedy: str
) -> Iterator[Violation]:
    for excess in found:
        yield Violation(
            node.name,
            KUEUE_LIMIT_EXCEEDED,
            f"{subject}: {excess.counted}",
            f"{what} would have {excess.message}: {remedy}",
            "spec.budgets",
            node.source,
            Quantity.of(excess.found - excess.maximum),
        )
