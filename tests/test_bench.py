"""The benchmark measures what it says: its clusters have their sizes, and its fits are right."""

import gzip
import statistics
from pathlib import Path

import orjson
import pytest

from bench import measure, nodes, trees
from bench.fit import exponent
from bench.measure import Record
from bench.recording import record
from bench.replay import load, load_live
from bench.report import Report, growth, table
from bench.sizes import SIZES
from bench.webhook import edits
from quota_translator.core.admission import judge, stand
from quota_translator.core.admissionreview import read_review
from quota_translator.core.names import CLUSTER_QUEUE, COHORT, LOCAL_QUEUE
from quota_translator.core.verdict import Context

XS, S = SIZES["XS"], SIZES["S"]


@pytest.mark.parametrize(
    ("name", "cohorts", "queues", "local_queues"),
    [("XS", 3, 10, 20), ("S", 7, 50, 250), ("M", 23, 200, 2_000), ("L", 110, 1_000, 20_000)],
)
def test_a_size_counts_its_objects(name: str, cohorts: int, queues: int, local_queues: int) -> None:
    size = SIZES[name]
    assert size.cohorts == cohorts
    assert size.objects == cohorts + queues + local_queues + 13
    assert len(trees.quotas(size, 1)) == cohorts + queues


def test_nodes_are_as_heavy_and_as_hard_to_compress_as_real_ones() -> None:
    made = list(nodes.nodes(S, 1))
    assert len(made) == S.nodes
    assert 8_500 < statistics.mean(map(len, made)) < 10_500
    assert len(orjson.loads(made[0])["metadata"]["labels"]) == 38
    page = b",".join(made)
    assert 5 < len(page) / len(gzip.compress(page)) < 9


def test_the_seed_decides_everything() -> None:
    assert list(nodes.nodes(XS, 1)) == list(nodes.nodes(XS, 1))
    assert list(nodes.nodes(XS, 1)) != list(nodes.nodes(XS, 2))
    assert trees.quotas(S, 1) == trees.quotas(S, 1)
    assert trees.quotas(S, 1) != trees.quotas(S, 2)


def test_a_recording_is_a_cluster_in_which_nothing_is_left_to_do(tmp_path: Path) -> None:
    """`record` itself raises where something is; here it is read back, and is all there."""
    place = record(XS, tmp_path)
    world = load_live(place, load(place))
    assert len(world.nodes or ()) == XS.nodes
    assert len(world.quotas or ()) == XS.cohorts + XS.teams
    assert all(quota.status["conditions"] for quota in world.quotas or ())
    kinds = [key.kind for key in world.live]
    assert len(kinds) == XS.objects
    assert [kinds.count(kind) for kind in (COHORT, CLUSTER_QUEUE, LOCAL_QUEUE)] == [3, 10, 20]


def test_the_edits_that_the_webhook_is_measured_with_are_sound_and_change_something(
    tmp_path: Path,
) -> None:
    place = record(XS, tmp_path)
    standing = stand(load(place).quotas or (), Context())
    reviews = [read_review(body).review() for body in edits(place, "UPDATE")]
    assert len(reviews) == XS.teams
    for review in reviews:
        assert review is not None
        assert not review.changes_nothing
        assert judge(standing, review).allowed
    assert not any(read_review(body).is_ours for body in edits(place, "CONNECT"))


@pytest.mark.parametrize("power", [0.0, 1.0, 1.1, 2.0])
def test_the_fit_finds_the_exponent(power: float) -> None:
    sizes = [500.0, 5_000.0, 15_000.0]
    assert exponent(sizes, [3e-5 * size**power for size in sizes]) == pytest.approx(power)


def test_the_fit_is_the_nearest_line() -> None:
    """Through (0, 0), (1, 1), (2, 1) in log–log: the slope is 1/2."""
    assert exponent([1.0, 10.0, 100.0], [1.0, 10.0, 10.0]) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("sizes", "costs"), [([5.0], [1.0]), ([5.0, 5.0], [1.0, 2.0]), ([5.0, 6.0], [0.0, 1.0])]
)
def test_no_line_is_no_exponent(sizes: list[float], costs: list[float]) -> None:
    with pytest.raises(ValueError, match="no line"):
        exponent(sizes, costs)


def test_runs_are_summed_up_by_median_least_and_most() -> None:
    assert measure.summed_up("decode nodes", "S", "s", [3.0, 1.0, 8.0]) == Record(
        "decode nodes", "S", "s", median=3.0, least=1.0, most=8.0, n=3
    )


def test_the_table_marks_what_misses_its_target() -> None:
    def told(seconds: float) -> str:
        records = tuple(
            Record("measure + marks", name, "s", cost, cost, cost, 5)
            for name, cost in (("S", seconds / 30), ("M", seconds / 3), ("L", seconds))
        )
        about = measure.Machine("abc", "3.11", "some processor", 2, (0.1, 0.2), "2026-11-30")
        return table(Report(about, records, growth(records)))

    assert "**over**" not in told(0.006)
    assert "6 ms (6 ms, 6 ms; 5) | P1 M ≤ 2 ms · L ≤ 6 ms | 1.00 (≤ 1.1)" in told(0.006)
    assert "6.1 ms **over**" in told(0.0061)
