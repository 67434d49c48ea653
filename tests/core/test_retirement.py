"""Hardware that is gone for good: its mark goes when a person says so, and not before."""

from datetime import UTC, datetime

import pytest

from quota_translator.core.names import RETIRE, Pair
from quota_translator.core.options import CapacityOptions, Options
from quota_translator.core.quantity import Quantity
from quota_translator.core.retirement import read_pair, written
from quota_translator.core.rootstatus import capacity_rows
from quota_translator.core.translate import Translation, remember, translate
from quota_translator.core.world import Clock, Flavor, Memory, Node, QuotaNode, World
from tests.core.build import pair, root, rows, team

GPU = pair("gpu a100")
V100 = pair("gpu v100")
CLOCK = Clock(datetime(2026, 11, 1, tzinfo=UTC), 100.0)
FLAVORS = (
    Flavor("a100", node_labels={"card": "a100"}),
    Flavor("v100", node_labels={"card": "v100"}),
)
OPTIONS = Options(capacity=CapacityOptions(resources=("nvidia.com/gpu",)))


def machine(name: str, card: str, gpus: int, *, ready: bool = True) -> Node:
    amount = {"nvidia.com/gpu": Quantity.of(gpus)}
    return Node(name, {"card": card}, amount, amount, ready=ready)


def asking(text: str, **status: object) -> QuotaNode:
    return root(annotations={RETIRE: text}, status=status)


def look(
    node: QuotaNode, *nodes: Node, memory: Memory | None = None, known: bool = True
) -> Translation:
    world = World(
        (node, team("a", "gpu v100 8", parent="root")),
        nodes=nodes if known else None,
        flavors=FLAVORS,
    )
    believed = memory or Memory(capacity=rows("gpu a100 8", "gpu v100 32"))
    return translate(world, believed, OPTIONS, CLOCK)


A100 = machine("n1", "a100", 8)


@pytest.mark.case("A-40")
def test_a_pair_that_no_node_reports_keeps_its_mark_until_it_is_retired() -> None:
    kept = look(root(), A100)
    assert str(kept.capacity[V100].mark) == "32"
    assert kept.verdict.frozen == {}
    gone = look(asking("nvidia.com/gpu@v100"), A100)
    assert (str(gone.capacity[V100].mark), gone.capacity[V100].ever_seen) == ("0", False)
    assert str(gone.capacity[GPU].mark) == "8"
    assert gone.verdict.frozen["a"].reason == "CapacityExceeded"


def test_the_annotation_is_spent_only_when_roots_stored_status_shows_it() -> None:
    """Else a crash between the two would bring the mark back."""
    before = {"capacity": capacity_rows(rows("gpu v100 32"))}
    asked = asking("nvidia.com/gpu@v100", **before)
    first = look(asked, A100, memory=remember([asked]))
    assert first.spent == ()
    assert first.wake_at is not None
    assert first.wake_at <= CLOCK.steady + 1.0, "our own write of a status is no event"
    after = asking("nvidia.com/gpu@v100", capacity=capacity_rows(first.capacity))
    second = look(after, A100, memory=remember([after]))
    assert second.spent == (RETIRE,)
    assert second.retirement.refused == {}


@pytest.mark.parametrize(
    ("nodes", "why"),
    [
        ((machine("n2", "v100", 4),), "1 node(s) report 4"),
        ((machine("n2", "v100", 4, ready=False),), "1 node(s) report 4"),
        ((machine("n2", "v100", 0),), "nodes report it, with 0"),
    ],
)
def test_a_pair_that_nodes_report_is_not_retired(nodes: tuple[Node, ...], why: str) -> None:
    found = look(asking("nvidia.com/gpu@v100"), A100, *nodes)
    assert str(found.capacity[V100].mark) == "32"
    assert found.retirement.refused == {"nvidia.com/gpu@v100": why}
    assert found.spent == (RETIRE,)


def test_several_are_asked_for_at_once_and_what_is_no_pair_is_told() -> None:
    found = look(asking(" nvidia.com/gpu@v100 , gpu,nvidia.com/gpu@a100,"), A100)
    assert found.retirement.pairs == {V100}
    assert found.retirement.refused == {
        "gpu": "is not RESOURCE@FLAVOR",
        "nvidia.com/gpu@a100": "1 node(s) report 8",
    }


def test_without_a_measurement_nothing_is_given_up() -> None:
    found = look(asking("nvidia.com/gpu@v100"), known=False)
    assert str(found.capacity[V100].mark) == "32"
    assert found.spent == ()


def test_a_pair_of_a_flavor_that_is_gone_too_loses_its_row() -> None:
    found = look(asking("nvidia.com/gpu@k80"), A100, memory=Memory(capacity=rows("gpu k80 16")))
    assert pair("gpu k80") not in found.capacity


def test_hardware_that_comes_back_later_is_believed_as_any_new_one() -> None:
    gone = look(asking("nvidia.com/gpu@v100"), A100)
    back = look(root(), A100, machine("n2", "v100", 4), memory=gone.memory)
    assert str(back.capacity[V100].mark) == "4"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("nvidia.com/gpu@v100", V100),
        ("cpu@a", Pair("cpu", "a")),
        ("nvidia.com/gpu", None),
        ("@v100", None),
        ("a@", None),
        ("a@b@c", None),
    ],
)
def test_pairs_are_written_with_an_at(text: str, found: Pair | None) -> None:
    assert read_pair(text) == found
    if found is not None:
        assert written(found) == text
