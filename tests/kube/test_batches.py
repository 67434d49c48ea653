"""The order of a plan's actions."""

import pytest

from quota_translator.core.actions import Action
from quota_translator.core.names import (
    CLUSTER_QUEUE,
    COHORT,
    LOCAL_QUEUE,
    RESOURCE_FLAVOR,
    Key,
    Kind,
)
from quota_translator.kube.batches import batches, waves


def act(verb: str, kind: Kind, name: str, stage: int, requires: str | None = None) -> Action:
    parent = Key(COHORT, "", requires) if requires else None
    return Action(verb, Key(kind, "", name), stage, requires=parent)  # type: ignore[arg-type]


@pytest.mark.case("A-70", "A-71")
def test_stages_then_kinds_then_deletes_in_reverse() -> None:
    actions = [
        act("delete", COHORT, "c", 4),
        act("delete", RESOURCE_FLAVOR, "f", 4),
        act("delete", LOCAL_QUEUE, "l", 4),
        act("delete", CLUSTER_QUEUE, "q", 4),
        act("update", CLUSTER_QUEUE, "grow", 3),
        act("create", LOCAL_QUEUE, "l", 2),
        act("create", CLUSTER_QUEUE, "q", 2),
        act("create", COHORT, "c", 2),
        act("create", RESOURCE_FLAVOR, "f", 2),
        act("update", CLUSTER_QUEUE, "shrink", 1),
    ]
    found = [(stage, batch[0].verb, batch[0].key.kind) for stage, batch in batches(actions)]
    assert found == [
        (1, "update", CLUSTER_QUEUE),
        (2, "create", RESOURCE_FLAVOR),
        (2, "create", COHORT),
        (2, "create", CLUSTER_QUEUE),
        (2, "create", LOCAL_QUEUE),
        (3, "update", CLUSTER_QUEUE),
        (4, "delete", LOCAL_QUEUE),
        (4, "delete", CLUSTER_QUEUE),
        (4, "delete", COHORT),
        (4, "delete", RESOURCE_FLAVOR),
    ]


@pytest.mark.case("A-71")
def test_parents_are_created_in_an_earlier_wave() -> None:
    batch = [
        act("create", COHORT, "leaf", 2, "mid"),
        act("create", COHORT, "mid", 2, "top"),
        act("create", COHORT, "other", 2, "elsewhere"),
        act("create", COHORT, "top", 2),
    ]
    found = [[a.key.name for a in wave] for wave in waves(list(batch), lambda _a: None)]
    assert found == [["other", "top"], ["mid"], ["leaf"]]


def test_a_ring_of_requirements_ends() -> None:
    batch = [act("create", COHORT, "a", 2, "b"), act("create", COHORT, "b", 2, "a")]
    assert [len(wave) for wave in waves(list(batch), lambda _a: None)] == [2]


def test_children_are_deleted_in_an_earlier_wave() -> None:
    parents = {"leaf": "mid", "mid": "top"}
    batch = [act("delete", COHORT, name, 4) for name in ("top", "mid", "leaf", "other")]
    found = [
        [a.key.name for a in wave] for wave in waves(list(batch), lambda a: parents.get(a.key.name))
    ]
    assert found == [["leaf", "other"], ["mid"], ["top"]]


def test_queues_go_all_at_once() -> None:
    batch = [act("create", CLUSTER_QUEUE, str(n), 2, "c") for n in range(50)]
    assert [len(wave) for wave in waves(list(batch), lambda _a: None)] == [50]
