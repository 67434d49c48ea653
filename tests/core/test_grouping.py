"""Nodes that measuring cannot tell apart, grouped; what was grouped last time shows in nothing."""

from random import Random

import msgspec

from quota_translator.core.grouping import _STRETCH, alike_groups
from quota_translator.core.quantity import Quantity
from quota_translator.core.world import Node

EIGHT, FOUR = {"nvidia.com/gpu": Quantity.of(8)}, {"nvidia.com/gpu": Quantity.of(4)}
KEYS = ("pool",)


def made(count: int, seed: int = 0) -> list[Node]:
    rng = Random(seed)
    return [
        Node(
            f"n{index}",
            {"pool": rng.choice("ab"), "host": f"n{index}"},
            EIGHT,
            rng.choice((EIGHT, FOUR)),
            cordoned=rng.random() < 0.1,
            ready=rng.random() < 0.9,
        )
        for index in range(count)
    ]


def plainly(nodes: list[Node]) -> list[list[str]]:
    """The same by asking every node for everything."""
    groups: dict[object, list[str]] = {}
    for node in nodes:
        told = (node.labels["pool"], node.allocatable is EIGHT, node.cordoned, node.ready)
        groups.setdefault(told, []).append(node.name)
    return list(groups.values())


def grouped(nodes: list[Node]) -> list[list[str]]:
    return [[node.name for node in alike] for alike in alike_groups(tuple(nodes), KEYS)]


def test_groups_run_over_stretches() -> None:
    nodes = made(2 * _STRETCH + 10)
    assert grouped(nodes) == plainly(nodes)


def test_whatever_changes_is_seen() -> None:
    rng, nodes = Random(1), made(2 * _STRETCH + 10)
    for _ in range(30):
        at = rng.randrange(len(nodes))
        change = rng.choice(("edit", "drop", "add", "nothing"))
        if change == "edit":
            nodes[at] = msgspec.structs.replace(nodes[at], cordoned=not nodes[at].cordoned)
        elif change == "drop":
            del nodes[at]
        elif change == "add":
            nodes.append(made(1, rng.randrange(100))[0])
        assert grouped(nodes) == plainly(nodes)


def test_other_labels_make_other_groups() -> None:
    nodes = made(20)
    grouped(nodes)
    by_host = list(alike_groups(tuple(nodes), ("host",)))
    assert [len(alike) for alike in by_host] == [1] * 20
    assert grouped([]) == []
