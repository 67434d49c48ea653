"""Writes that are refused, put off, or lost on the way: each is done in the end, and done once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from e2e.controller import QUOTAS, wait_seconds
from e2e.controlplane.nodes import cordon, uncordon
from e2e.faults.actions import Action, hang, html, reset, status
from e2e.faults.bed import FOLLOWED, KUEUE_PATH, TREE, Bed, told
from e2e.faults.conftest import Lab
from e2e.shapes import nominal
from e2e.trees import (
    KUEUE,
    NAMESPACE,
    budget,
    condition,
    edit,
    guide_tree,
    names,
    put,
    queue,
    team,
    wait_sound,
    wait_told,
)
from e2e.waiting import eventually

pytestmark = pytest.mark.e2e
BETA = "/clusterqueues/team-beta$"
QUEUE = f"{KUEUE}/namespaces/{NAMESPACE}/localqueues/team-beta"


@pytest.fixture
def bed(lab: Lab, long_running: Bed) -> Iterator[Bed]:
    with lab.unchanged(long_running):
        yield long_running


def wait_nominal(bed: Bed, queue: str, wanted: str, timeout: float = 30) -> None:
    eventually(lambda: nominal(bed.cp, queue) == wanted, timeout, f"{queue} to have {wanted}")


# --- answers ------------------------------------------------------------------------------------


@pytest.mark.case("fault 14")
def test_a_conflict_on_a_status_is_read_and_written_again(bed: Bed) -> None:
    for name in ("root", "team-beta"):
        path = f"/acceleratorquotas/{name}(/status)?$"
        bed.proxy.when("patch", f"{path}", do=status(409, "Conflict", "it has been modified"))
        mark = bed.proxy.mark()
        if name == "root":
            cordon(bed.cp, "gpu-4")
        else:
            edit(bed.cp, name, budget(7, 4))
        eventually(lambda: bed.proxy.count("patch", path, mark) == 2, what="a second write")  # noqa: B023
        wait_seconds(1)
        asked = [f"{seen.verb} {seen.outcome}" for seen in bed.proxy.seen("", path, mark)]
        assert [one for one in asked if not one.startswith("watch")] == [
            "patch 409",
            "get 200",
            "patch 200",
        ]
    uncordon(bed.cp, "gpu-4")
    edit(bed.cp, "team-beta", budget(8, 4))


@pytest.mark.case("fault 15")
@pytest.mark.parametrize(
    ("busy", "pause"),
    [
        pytest.param(status(429, "TooManyRequests", header=2), 2.0, id="in-the-header"),
        pytest.param(status(429, "TooManyRequests", body=2), 2.0, id="in-the-body"),
        pytest.param(status(429, "TooManyRequests"), 1.0, id="nowhere"),
    ],
)
def test_429_pauses_every_write_of_kueues_objects(bed: Bed, busy: Action, pause: float) -> None:
    mark = bed.proxy.mark()
    with bed.proxy.when("patch", BETA, do=busy) as rule:
        edit(bed.cp, "team-beta", budget(7, 4))
        refused = rule.wait().seen[0]
        edit(bed.cp, "team-alpha", budget(15))  # must wait, too
        wait_nominal(bed, "team-beta", "7")
        wait_nominal(bed, "team-alpha", "15")
    later = [s for s in bed.proxy.seen("write", KUEUE_PATH, mark) if s is not refused]
    assert Counter(map(told, later)) == {
        "patch clusterqueues team-alpha": 1,
        "patch clusterqueues team-beta": 1,
    }
    assert pause <= min(seen.at for seen in later) - refused.at < pause + 2
    edit(bed.cp, "team-alpha", budget(16))
    edit(bed.cp, "team-beta", budget(8, 4))


# --- what the server did, and did not tell ------------------------------------------------------


@pytest.mark.case("fault 17")
@pytest.mark.parametrize(
    "lose",
    [pytest.param(reset(after=True), id="reset"), pytest.param(hang(after=True), id="timeout")],
)
def test_a_create_of_which_no_answer_came_is_looked_at_and_not_repeated(
    bed: Bed, lose: Action
) -> None:
    path = "/localqueues"
    mark = bed.proxy.mark()
    bed.proxy.when("create", path, do=lose)
    bed.cp.api.delete(QUEUE)
    eventually(lambda: bed.proxy.count("get", path, mark), what="a look at the object")
    made = bed.cp.api.get(QUEUE)
    wait_seconds(1)
    bed.wait_converged()
    assert bed.writes(mark) == {"create localqueues team-beta": 1}
    assert bed.proxy.count("get", path, mark) == 1
    assert bed.cp.api.get(QUEUE)["metadata"]["uid"] == made["metadata"]["uid"]


@pytest.mark.case("fault 17")
def test_a_patch_of_which_no_answer_came_is_not_made_twice(bed: Bed) -> None:
    mark = bed.proxy.mark()
    bed.proxy.when("patch", BETA, do=reset(after=True))
    before = queue(bed.cp, "team-beta")["metadata"]["generation"]
    edit(bed.cp, "team-beta", budget(7, 4))
    wait_nominal(bed, "team-beta", "7")
    bed.wait_converged()
    wait_seconds(1)
    assert bed.writes(mark) == {"patch clusterqueues team-beta": 1}  # the watch told that it stands
    assert queue(bed.cp, "team-beta")["metadata"]["generation"] == before + 1
    edit(bed.cp, "team-beta", budget(8, 4))


@pytest.mark.case("fault 17")
def test_deletes_of_which_no_answer_came_end_once(bed: Bed) -> None:
    mark = bed.proxy.mark()
    bed.proxy.when("delete", "/localqueues/team-beta$", do=reset(after=True))
    bed.proxy.when("delete", BETA, do=reset(after=True))
    bed.cp.api.delete(f"{QUOTAS}/team-beta")
    eventually(lambda: names(bed.cp, "clusterqueues") == {"team-alpha"}, what="the team to go")
    eventually(lambda: bed.cp.api.find(f"{QUOTAS}/team-beta") is None, what="its node to go")
    assert "team-beta" not in str(names(bed.cp, "localqueues"))
    counts = bed.writes(mark)
    assert set(counts) == {"delete localqueues team-beta", "delete clusterqueues team-beta"}
    assert max(counts.values()) <= 2
    put(bed.cp, *(one for one in guide_tree() if one["metadata"]["name"] == "team-beta"))


# --- some of many -------------------------------------------------------------------------------

MANY = 30
DENIED = (
    'admission webhook "vclusterqueue.kb.io" denied the request: '
    "spec.resourceGroups: Invalid value: scripted"
)
DOWN = (
    'Internal error occurred: failed calling webhook "mclusterqueue.kb.io": failed to call '
    'webhook: Post "https://kueue-webhook-service.kueue-system.svc:443/": connection refused'
)


@contextmanager
def many_teams(bed: Bed) -> Iterator[list[str]]:
    """Teams that are gone again at the end; their names."""
    found = [f"many-{number:02}" for number in range(MANY)]
    try:
        yield found
    finally:
        for name in found:
            bed.cp.api.delete(f"{QUOTAS}/{name}")
        gone = {"team-alpha", "team-beta"}
        eventually(lambda: names(bed.cp, "clusterqueues") == gone, 60, "the teams to go")
        eventually(lambda: len(bed.cp.api.items(QUOTAS)) == TREE, 30, "their nodes to go")


def _apply(bed: Bed, teams: list[str]) -> None:
    put(bed.cp, *(team(name, budget(0), parent="ml-research") for name in teams))


@pytest.mark.case("fault 18")
def test_three_queues_that_kueue_refuses_stop_nobody_else(bed: Bed) -> None:
    with many_teams(bed) as teams:
        bad = {"many-03", "many-14", "many-29"}
        mark = bed.proxy.mark()
        refusing = bed.proxy.when(
            "create",
            "/clusterqueues$",
            do=status(403, "Forbidden", DENIED),
            times=None,
            where=lambda seen: seen.name in bad,
        )
        _apply(bed, teams)
        wait_sound(bed.cp, *(set(teams) - bad), timeout=60)
        for name in bad:
            told = wait_told(bed.cp, name, "Materialized", "MaterializationFailed")
            assert "denied the request: spec.resourceGroups: Invalid value: scripted" in told
        wait_seconds(2)  # a refusal is not asked for again while nothing changes
        made = Counter({f"create clusterqueues {name}": 1 for name in teams})
        made += Counter({f"create localqueues {name}": 1 for name in set(teams) - bad})
        assert bed.writes(mark) == made
        refusing.end()
        mark = bed.proxy.mark()
        for name in bad:
            edit(bed.cp, name, budget(0, 1))
        wait_sound(bed.cp, *teams)
        again = Counter({f"create clusterqueues {name}": 1 for name in bad})
        assert bed.writes(mark) == again + Counter({f"create localqueues {n}": 1 for n in bad})


@pytest.mark.case("fault 19", "FC-H01")
def test_kueues_webhook_that_fails_is_waited_for_without_a_storm(bed: Bed) -> None:
    """From the eleventh queue on; ten seconds of the case's four minutes."""
    with many_teams(bed) as teams:
        mark = bed.proxy.mark()
        failing = bed.proxy.when(
            "create", "/clusterqueues$", do=status(500, "InternalError", DOWN), skip=10, times=None
        )
        _apply(bed, teams)
        failing.wait()

        def ten() -> set[str]:
            found = names(bed.cp, "clusterqueues") & set(teams)
            assert len(found) == 10, found
            return found

        made = eventually(ten, what="those before the eleventh")
        wait_seconds(9)
        assert names(bed.cp, "clusterqueues") & set(teams) == made
        assert len(made) == 10
        # Those that were on their way; then one an attempt, after pauses that grow.
        assert len(failing.seen) <= 16 + 8
        for name in set(teams) - made:
            told = wait_told(bed.cp, name, "Materialized", "KueueUnavailable")
            assert "failed calling webhook" in told
            assert condition(bed.cp, name, "Ready")["status"] == "True"
        statuses = bed.writes(mark, "/acceleratorquotas/many-.*/status$")
        assert max(statuses.values()) <= 3
        edit(bed.cp, "team-beta", budget(7, 4))
        wait_nominal(bed, "team-beta", "7")  # what exists goes on: only creations fail here
        assert not [one for one in bed.writes(mark) if one.startswith("delete")]
        failing.end()
        wait_sound(bed.cp, *teams, timeout=60)
        assert max(bed.writes(mark, "/acceleratorquotas/many-.*/status$").values()) <= 5
        edit(bed.cp, "team-beta", budget(8, 4))


# --- no answers, for a while; the last of the file, because the watches suffer, too ---------------


@pytest.mark.case("fault 16")
def test_an_outage_costs_few_requests_and_ends_converged(bed: Bed) -> None:
    """First nobody listens, then a balancer answers for a server that is not there."""
    files = _open_files(bed)
    with bed.proxy.down():
        wait_seconds(4)
    mark = bed.proxy.mark()
    answers = [
        html(502),
        status(503, "ServiceUnavailable"),
        html(504),
        status(500, "InternalError"),
    ]
    rules = [bed.proxy.when(do=answer, times=12) for answer in answers]
    rules.append(bed.proxy.when(do=html(503), times=None))
    edit(bed.cp, "team-beta", budget(7, 4))
    edit(bed.cp, "team-alpha", budget(15))
    wait_seconds(5)
    asked = {path: len(bed.asked(path, mark)) for path in FOLLOWED}
    assert {path: count for path, count in asked.items() if count > 12} == {}
    assert sum(bed.writes_of_all(mark).values()) < 20
    for rule in rules:
        rule.end()
    wait_nominal(bed, "team-beta", "7", 60)
    wait_nominal(bed, "team-alpha", "15")
    bed.wait_watching()
    edit(bed.cp, "team-beta", budget(8, 4))
    edit(bed.cp, "team-alpha", budget(16))
    bed.wait_converged()
    assert _open_files(bed) <= files + 8  # connections that are kept for the next writes


def _open_files(bed: Bed) -> int:
    return len(list(Path(f"/proc/{bed.controller.pid}/fd").iterdir()))
