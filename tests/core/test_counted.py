"""Kueue's figures against the workloads that hold quota."""

from typing import Any

import pytest

from quota_translator.core.counted import Difference, Differences, Holdings, differences, messages
from quota_translator.core.names import CLUSTER_QUEUE, COHORT
from quota_translator.core.quantity import ZERO, Quantity
from quota_translator.core.world import Amount, Holding, Observed
from tests.core.build import pair, root, team
from tests.core.rendering import MANAGER, a_world, stands

GPU, CPU = pair("gpu a100"), pair("cpu cover")
WHEN = "2026-11-30T10:00:00Z"
TEAM = team("a", "gpu a100 8")


def queue(gpus: int | None, **fields: Any) -> Observed:
    use = {} if gpus is None else {GPU: Amount(Quantity.of(gpus), ZERO)}
    use[CPU] = Amount(Quantity.of(64), ZERO)
    given: dict[str, Any] = {"reservation": use} | fields
    return stands(CLUSTER_QUEUE, "a", "gpu a100 8", **given)


def held(*gpus: int) -> Holdings:
    return {"a": tuple(Holding("a", f"Job {n}", WHEN, {GPU: Quantity.of(n)}) for n in gpus)}


def found(live: Observed, holdings: Holdings) -> Differences:
    return differences(a_world(root(), TEAM, live=(live,)), MANAGER, holdings)


@pytest.mark.case("A-95")
@pytest.mark.parametrize(
    ("told", "workloads", "counted", "number"),
    [(8, (4,), 4, 1), (0, (4, 2), 6, 2), (None, (4,), 4, 1), (3, (), 0, 0)],
)
def test_another_sum_than_kueues_is_told(
    told: int | None, workloads: tuple[int, ...], counted: int, number: int
) -> None:
    wanted = Difference("a", Quantity.of(told or 0), Quantity.of(counted), number)
    assert found(queue(told), held(*workloads)) == {("a", GPU): wanted}


@pytest.mark.parametrize(
    ("live", "holdings"),
    [
        pytest.param(queue(6), held(4, 2), id="the-same"),
        pytest.param(queue(None), held(), id="nothing-and-nothing"),
        pytest.param(queue(8), {}, id="not-looked-up"),
        pytest.param(queue(8, deleting=True), held(4), id="in-deletion"),
        pytest.param(queue(8, reservation=None), held(4), id="no-status-yet"),
        pytest.param(queue(8, managed_by="somebody"), held(4), id="a-strangers"),
        pytest.param(stands(COHORT, "a", "gpu a100 8"), held(4), id="no-queue"),
    ],
)
def test_where_nothing_differs_or_nothing_is_known_nothing_is_told(
    live: Observed, holdings: Holdings
) -> None:
    assert found(live, holdings) == {}


def test_the_message_names_queue_pair_and_both_numbers() -> None:
    one = Difference("a", Quantity.of(8), Quantity.of(4), 1)
    two = Difference("a", ZERO, Quantity.of(6), 2)
    said = messages({("a", GPU): one, ("a", pair("tpu v5e")): two, ("b", GPU): two})
    assert said["a"] == (
        "in ClusterQueue a Kueue counts 0 google.com/tpu on v5e as reserved, but 2 workloads hold "
        "6; in ClusterQueue a Kueue counts 8 nvidia.com/gpu on a100 as reserved, but 1 workload "
        "holds 4: figures here are Kueue's, and wrong until it counts again"
    )
    assert set(said) == {"a", "b"}
