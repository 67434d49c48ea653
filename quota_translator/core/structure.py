"""The rules of the tree's shape: names that occur once, parents, loops, depth, and kinds of node.

Each rule yields the violations that it finds, in no particular order. None of them looks at an
amount. Fields that a kind of node may not carry are judged here, values of fields in `rules.py`.
"""

from collections.abc import Iterator, Sequence

from quota_translator.core.names import CLUSTER_QUEUE, COHORT, ROOT
from quota_translator.core.quantity import Quantity
from quota_translator.core.tree import Tree
from quota_translator.core.verdict import (
    DEPTH_EXCEEDED,
    DUPLICATE_NODE,
    NODE_KIND_INVALID,
    PARENT_CYCLE,
    PARENT_MISSING,
    UNREACHABLE,
    Context,
    Violation,
    listed,
    shown,
)
from quota_translator.core.world import Budget, QuotaNode

_PARENT_FIELD = "spec.parentRef.name"


def unique_names(tree: Tree, _context: Context) -> Iterator[Violation]:
    """A name is given once. Only the first of its nodes has a place in the tree."""
    for name, copies in tree.duplicates.items():
        places = tuple(dict.fromkeys(node.source for node in copies if node.source))
        where = f" ({listed(places)})" if places else ""
        message = f"{len(copies)} nodes have the name {shown(name)}{where}: keep one"
        yield _of(copies[0], DUPLICATE_NODE, name, message, "metadata.name")


def parents(tree: Tree, _context: Context) -> Iterator[Violation]:
    """Every node but root names a parent that exists. The child is blamed, not the absent."""
    for name in tree.tops:
        node = tree.nodes[name]
        if name == ROOT:
            continue
        if node.parent is None:
            unread = [fault for fault in node.faults if fault.path.startswith("spec.parentRef")]
            message = "only the reserved root may omit parentRef: name a parent"
            if unread:
                message = f"{unread[0].path}: {unread[0].message}"
            yield _of(node, PARENT_MISSING, ROOT, message, _PARENT_FIELD)
        else:
            message = f"parentRef {shown(node.parent)} does not resolve: no node has that name; "
            message += "create it or name another"
            yield _of(node, PARENT_MISSING, node.parent, message, _PARENT_FIELD)


def loops(tree: Tree, _context: Context) -> Iterator[Violation]:
    """No node is its own ancestor. What hangs from a loop is reported with it.

    All nodes of one loop share a subject, its alphabetically first member, and only that member's
    message spells the loop out.
    """
    settled = set(tree.forest)
    for name in tree.nodes:
        if name in settled:
            continue
        loop = _loop_above(tree, name)
        first, members = loop[0], set(loop)
        for hit in tree.subtree(first):
            settled.add(hit)
            if hit == first:
                message = (
                    f"its parents form a loop; give one of it another parent: {_spelled(loop)}"
                )
            elif hit in members:
                message = f"its parents form the loop of {shown(first)}"
            else:
                message = f"hangs from the loop of parents of {shown(first)}"
            yield _of(tree.nodes[hit], PARENT_CYCLE, first, message, _PARENT_FIELD)


def reachable(tree: Tree, _context: Context) -> Iterator[Violation]:
    """A chain of parents leads to root. The topmost ancestor, where it breaks, is the subject."""
    for top in tree.tops:
        if top == ROOT:
            continue
        message = (
            f"has no position because its ancestor {shown(top)} is unresolved: repair that one"
        )
        for name in tree.subtree(top)[1:]:
            yield _of(tree.nodes[name], UNREACHABLE, top, message)


def depth(tree: Tree, context: Context) -> Iterator[Violation]:
    """A bound against sprawl, not one of Kueue's. Nodes without a place are not judged."""
    most = context.options.max_tree_depth
    if most <= 0:
        return
    for name in tree.order:
        found = tree.depth(name)
        if found > most:
            message = (
                f"node is {found} levels below the root, exceeding the configured maximum of "
                f"{most}: move it up or raise --max-tree-depth"
            )
            node, excess = tree.nodes[name], Quantity.of(found - most)
            yield Violation(name, DEPTH_EXCEEDED, name, message, _PARENT_FIELD, node.source, excess)


def kinds(tree: Tree, _context: Context) -> Iterator[Violation]:
    """A node has a role that exists, a place that suits it, and only fields of its role."""
    for name, node in tree.nodes.items():
        if name == ROOT:
            yield from _root(node)
        elif node.role not in {COHORT, CLUSTER_QUEUE}:
            message = f"role {shown(node.role)} is unknown: it is Cohort or ClusterQueue"
            yield _of(node, NODE_KIND_INVALID, "spec.role", message, "spec.role")
        above = tree.parent(name)
        if above is not None and tree.is_leaf(above):
            message = (
                f"parent {shown(above)} is a ClusterQueue, which takes no children: name a Cohort"
            )
            yield _of(node, NODE_KIND_INVALID, above, message, _PARENT_FIELD)
        if node.expected and name != ROOT:
            message = "expectedCapacity is of the whole cluster: it belongs to root"
            yield _of(node, NODE_KIND_INVALID, "expected", message, "spec.expectedCapacity")
        if name == ROOT or node.role == COHORT:
            yield from _group(node)
        elif node.role == CLUSTER_QUEUE:
            yield from _team(node)


def _root(node: QuotaNode) -> Iterator[Violation]:
    if node.role != COHORT:
        message = f"root has the role {shown(node.role)}: it is always a Cohort"
        yield _of(node, NODE_KIND_INVALID, "spec.role", message, "spec.role")
    if node.parent is not None:
        message = f"root has the parentRef {shown(node.parent)}: the root has no parent"
        yield _of(node, NODE_KIND_INVALID, "spec.parentRef", message, _PARENT_FIELD)
    if node.fair_weight is not None:
        message = "root has fairSharing, which compares siblings, and it has none: remove it"
        yield _of(node, NODE_KIND_INVALID, "spec.fairSharing", message, "spec.fairSharing")


def _group(node: QuotaNode) -> Iterator[Violation]:
    for field, present in (
        ("priorityTier", node.priority_tier is not None),
        ("distribution", node.distribution),
        ("stopPolicy", node.stop_policy is not None),
        ("namespaces", node.namespaces is not None),
    ):
        if present:
            message = f"{field} belongs to a ClusterQueue, and this node is a Cohort: remove it"
            yield _of(node, NODE_KIND_INVALID, f"spec.{field}", message, f"spec.{field}")
    for budget in node.budgets:
        yield from _group_budget(node, budget)


def _group_budget(node: QuotaNode, budget: Budget) -> Iterator[Violation]:
    is_root = node.name == ROOT
    for field, present in (
        ("policy", budget.policy is not None),
        ("perCluster", budget.per_cluster),
    ):
        if present:
            yield _misplaced(node, budget, field, "belongs to a ClusterQueue's budget: remove it")
    if is_root and budget.enforced is not None:
        yield _misplaced(node, budget, "enforced", "has no meaning on root: remove it")
    if budget.enforced and not is_root:
        return
    remedy = "has no effect: set enforced to true, or remove it"
    if is_root:
        remedy = "has no meaning on root, which has no one to borrow from or lend to: remove it"
    if budget.borrowing_limit is not None:
        yield _misplaced(node, budget, "borrowingLimit", remedy)
    if budget.lending_limit is not None:
        yield _misplaced(node, budget, "lendingLimit", remedy)


def _team(node: QuotaNode) -> Iterator[Violation]:
    unread = any(fault.path.startswith("spec.budgets") for fault in node.faults)
    if not node.budgets and not unread:
        message = "a ClusterQueue needs at least one budget"
        yield _of(node, NODE_KIND_INVALID, "spec.budgets", message, "spec.budgets")
    for budget in node.budgets:
        if budget.enforced is not None:
            remedy = "belongs to a Cohort's budget: a ClusterQueue's is always enforced"
            yield _misplaced(node, budget, "enforced", remedy)


def _misplaced(node: QuotaNode, budget: Budget, field: str, remedy: str) -> Violation:
    path = f"spec.budgets[{budget.index}].{field}"
    subject = f"{budget.pair}: {field}"
    return _of(node, NODE_KIND_INVALID, subject, f"{path} {remedy}", path)


def _loop_above(tree: Tree, name: str) -> list[str]:
    """The loop that the parents of this node run into, from its first member by name, upwards."""
    walked: dict[str, int] = {}
    above: str | None = name
    while above is not None and above not in walked:
        walked[above] = len(walked)
        above = tree.parent(above)
    loop = list(walked)[walked[above] :] if above is not None else [name]
    start = loop.index(min(loop))
    return loop[start:] + loop[:start]


def _spelled(loop: Sequence[str]) -> str:
    return f"{listed(loop, ' → ')} → {listed(loop[:1])}"


def _of(node: QuotaNode, reason: str, subject: str, message: str, field: str = "") -> Violation:
    return Violation(node.name, reason, subject, message, field, node.source)
