"""The webhook, the controller and `plan` judge alike: all three call one `check`."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from quota_translator.core.admission import Review, decide
from quota_translator.core.check import check
from quota_translator.core.names import FINALIZER
from quota_translator.core.options import Options
from quota_translator.core.quantity import ZERO
from quota_translator.core.translate import remember, translate
from quota_translator.core.tree import grow
from quota_translator.core.verdict import (
    CAPACITY_EXCEEDED,
    CONTAINMENT_VIOLATED,
    DEPTH_EXCEEDED,
    PARENT_CYCLE,
    PARENT_MISSING,
    UNREACHABLE,
    Context,
    Verdict,
)
from quota_translator.core.world import Clock, QuotaNode, World
from tests.core.build import FLAVORS, node, root, team

NAMES = ("a", "b", "c", "d")
OPTIONS = Options()
CLOCK = Clock(datetime(2026, 10, 5, tzinfo=UTC), 100.0)
CONTEXT = Context(flavors=FLAVORS, options=OPTIONS)

amounts = st.integers(-1, 12).map(str)
parents = st.sampled_from((*NAMES, "root", "nowhere"))


@st.composite
def nodes(draw: st.DrawFn, name: str | None = None) -> QuotaNode:
    name = draw(st.sampled_from(NAMES)) if name is None else name
    share, limit = draw(amounts), draw(st.sampled_from(("", " +4", " -2", " -20", " !")))
    if draw(st.booleans()):
        return team(name, f"gpu a100 {share}{limit}", parent=draw(parents))
    return node(name, f"gpu a100 {share}{limit}", parent=draw(parents))


trees = st.lists(st.sampled_from(NAMES), unique=True).flatmap(
    lambda names: st.tuples(*(nodes(name) for name in names))
)


def added(old: Verdict, new: Verdict) -> set[tuple[str, str, str]]:
    """Identities that are new, or whose excess grew; capacity, which is not denied, apart."""
    known = {v.identity: v.excess or ZERO for v in old.violations}
    return {
        v.identity
        for v in new.violations
        if v.reason != CAPACITY_EXCEEDED
        and (v.identity not in known or (v.excess or ZERO) > known[v.identity])
    }


def brought_to_light(old: Verdict, new: Verdict, name: str) -> set[tuple[str, str, str]]:
    """What could not be judged of other nodes as long as they had no place in the tree."""
    lost = {
        v.node for v in old.violations if v.reason in (PARENT_MISSING, PARENT_CYCLE, UNREACHABLE)
    }
    reasons = (DEPTH_EXCEEDED, CONTAINMENT_VIOLATED)
    return {v.identity for v in new.violations if v.node in lost - {name} and v.reason in reasons}


@pytest.mark.case("fault 38")
@settings(max_examples=300, deadline=None)
@given(trees, nodes())
def test_the_webhook_denies_what_the_controller_would_freeze_anew(
    live: tuple[QuotaNode, ...], incoming: QuotaNode
) -> None:
    tree = (root(), *live)
    stored = next((n for n in tree if n.name == incoming.name), None)
    decision = decide(tree, Review("UPDATE" if stored else "CREATE", incoming, stored), CONTEXT)
    after = (*(n for n in tree if n.name != incoming.name), incoming)
    # The controller's own verdict, by way of the whole translation; `plan` prints that one.
    old, new = (
        translate(World(quotas=q, flavors=FLAVORS), remember(q), OPTIONS, CLOCK).verdict
        for q in (tree, after)
    )
    if stored is not None and stored.role != incoming.role:
        assert not decision.allowed
    elif stored is not None and stored.budgets == incoming.budgets and stored == incoming:
        assert decision.allowed
    else:
        caused = added(old, new) - brought_to_light(old, new, incoming.name)
        assert decision.allowed == (not caused), (decision, new.violations)
    if decision.allowed:
        assert new.frozen.keys() - old.frozen.keys() <= {
            name
            for name, frozen in new.frozen.items()
            if frozen.origin in old.frozen or frozen.origin == incoming.name
        }


@settings(max_examples=200, deadline=None)
@given(trees, st.sets(st.sampled_from(NAMES)), nodes())
def test_beside_nodes_in_deletion_the_webhook_is_stricter_and_never_laxer(
    live: tuple[QuotaNode, ...], deleted: set[str], incoming: QuotaNode
) -> None:
    """To the webhook they count until they are gone: a share that drains is not free yet."""
    going = {"deleting": True, "finalizers": (FINALIZER,)}
    tree = (root(), *(replace(n, **going) if n.name in deleted else n for n in live))
    stored = next((n for n in tree if n.name == incoming.name), None)
    if stored is not None and stored.deleting:
        return
    decision = decide(tree, Review("UPDATE" if stored else "CREATE", incoming, stored), CONTEXT)
    after = (*(n for n in tree if n.name != incoming.name), incoming)
    old, new = (
        translate(World(quotas=q, flavors=FLAVORS), remember(q), OPTIONS, CLOCK).verdict
        for q in (tree, after)
    )
    if decision.allowed:
        assert not added(old, new) - brought_to_light(old, new, incoming.name)


@settings(max_examples=200, deadline=None)
@given(trees, st.sampled_from(NAMES))
def test_a_deletion_is_denied_exactly_when_somebody_loses_a_parent(
    live: tuple[QuotaNode, ...], name: str
) -> None:
    tree = (root(), *live)
    stored = next((n for n in tree if n.name == name), None)
    if stored is None:
        return
    decision = decide(tree, Review("DELETE", None, stored), CONTEXT)
    orphans = [n for n in live if n.parent == name and n.name != name]
    assert decision.allowed == (not orphans)
    if decision.allowed:
        old = check(grow(tree), CONTEXT)
        new = check(grow(n for n in tree if n.name != name), CONTEXT)
        assert not added(old, new)
