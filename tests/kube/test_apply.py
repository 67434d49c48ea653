"""Plans against a server that refuses, hangs, throttles, and holds strangers' objects."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest

from quota_translator.core.actions import Action, Plan
from quota_translator.core.kueue import normal
from quota_translator.core.names import (
    CLUSTER_QUEUE,
    COHORT,
    LOCAL_QUEUE,
    RESOURCE_FLAVOR,
    Key,
    Kind,
)
from quota_translator.core.results import Result, Results
from quota_translator.core.world import Observed
from quota_translator.kube import apply as apply_module
from quota_translator.kube.apply import Applier
from quota_translator.kube.client import Client, Retries, Timeouts
from quota_translator.kube.config import Connection
from quota_translator.kube.decode import WATCHED_FLAVORS, FlavorRecord, watched_kueue
from quota_translator.kube.live import Live
from quota_translator.kube.resources import KUEUE
from quota_translator.kube.store import Store
from tests.kube.objects import kueue
from tests.kube.scripted import Asked, FakeTime, Reply, Scripted, failed, reply

OTHERS: tuple[Kind, ...] = (COHORT, CLUSTER_QUEUE, LOCAL_QUEUE)
DOWN = 'failed calling webhook "vcohort.kb.io": connection refused'
DENIED = 'admission webhook "vclusterqueue.kb.io" denied the request: too many'
TERMINATING = "unable to create new content in namespace ns because it is being terminated"
RBAC = 'User "u" cannot create resource "clusterqueues" in API group "kueue.x-k8s.io"'
MANAGER = "quota-translator"


def key(kind: Kind, name: str, namespace: str = "") -> Key:
    return Key(kind, namespace, name)


def path(of: Key, *, one: bool = True) -> str:
    return KUEUE[of.kind].path(of.name if one else "", of.namespace)


def create(of: Key, requires: Key | None = None, **spec: Any) -> Action:
    nodes = frozenset({of.name})
    return Action("create", of, 2, normal(spec), (), nodes, of.name, requires=requires)


def update(of: Key, *fields: str, stage: int = 1, uid: str = "", **spec: Any) -> Action:
    nodes = frozenset({of.name})
    uid = uid or f"u-{of.name}"
    return Action("update", of, stage, normal(spec), fields, nodes, of.name, uid=uid)


def delete(of: Key) -> Action:
    return Action("delete", of, 4, nodes=frozenset({of.name}), quota=of.name, uid=f"u-{of.name}")


class Bench:
    """A server that stores nothing but answers writes like one, and the stores beside it."""

    def __init__(self, server: Scripted, fake: FakeTime) -> None:
        self.server, self.fake = server, fake
        self.client = Client(
            Connection(server.host), retries=Retries(attempts=1), timeouts=Timeouts(write=0.3)
        )
        flavors = Store[Key, FlavorRecord](
            RESOURCE_FLAVOR, WATCHED_FLAVORS.key, WATCHED_FLAVORS.version
        )
        others = {
            kind: Store[Key, Observed](kind, watched_kueue(kind).key, watched_kueue(kind).version)
            for kind in OTHERS
        }
        self.live = Live(flavors, others)
        self.version = 1000
        self.applier = Applier(
            self.client, self.live, MANAGER, concurrency=4, now=fake.now, sleep=fake.sleep
        )

    def holds(self, of: Key, **options: Any) -> None:
        """The object is live, and the store knows it."""
        body = kueue(of, **options)
        self.live.answer(of.kind, reply(body).chunks[0])

    def accepts(self, *keys: Key) -> None:
        for of in keys:
            self.server.always("create", path(of, one=False), self._created)
            self.server.always("patch", path(of), partial(self._patched, of))
            self.server.always("delete", path(of), reply({"kind": "Status", "status": "Success"}))

    def _created(self, asked: Asked) -> Reply:
        self.version += 1
        metadata = {"uid": f"u-{asked.body['metadata']['name']}"}
        metadata |= {"resourceVersion": str(self.version)} | asked.body["metadata"]
        return reply(asked.body | {"metadata": metadata})

    def _patched(self, of: Key, asked: Asked) -> Reply:
        self.version += 1
        return reply(kueue(of, str(self.version), spec=asked.body.get("spec")))

    async def apply(self, *actions: Action) -> Results:
        return await self.applier.apply(Plan(actions=actions))

    async def one(self, action: Action) -> Result:
        return (await self.apply(action)).results[0]


@pytest.fixture
async def bench(server: Scripted, fake: FakeTime) -> AsyncIterator[Bench]:
    found = Bench(server, fake)
    yield found
    await found.client.close()


TOP, MID = key(COHORT, "top"), key(COHORT, "mid")
TEAM, OTHER = key(CLUSTER_QUEUE, "team"), key(CLUSTER_QUEUE, "other")
QUEUE = key(LOCAL_QUEUE, "team", "ns")
FLAVOR = key(RESOURCE_FLAVOR, "f")


# --- the order, and what hangs on what ----------------------------------------------------------


@pytest.mark.case("A-71")
async def test_a_subtree_is_created_from_the_top(bench: Bench) -> None:
    bench.accepts(TOP, MID, TEAM, QUEUE)
    results = await bench.apply(
        create(QUEUE, TEAM, clusterQueue="team"),
        create(TEAM, MID, cohortName="mid"),
        create(MID, TOP, parentName="top"),
        create(TOP),
    )
    assert results.all_done
    assert results.written == 4
    assert [r.key for r in results.results] == [QUEUE, TEAM, MID, TOP]  # in the plan's order
    names = [(a.body["kind"], a.body["metadata"]["name"]) for a in bench.server.asked]
    assert names == [
        (COHORT, "top"),
        (COHORT, "mid"),
        (CLUSTER_QUEUE, "team"),
        (LOCAL_QUEUE, "team"),
    ]


@pytest.mark.parametrize(
    ("parent", "why"),
    [
        pytest.param(None, "is not there", id="missing"),
        pytest.param({"manager": None}, "is not ours", id="a-strangers"),
        pytest.param({"deleting": True}, "is being deleted", id="in-deletion"),
    ],
)
async def test_nothing_is_put_beneath_a_cohort_that_is_not_there_as_ours(
    bench: Bench, parent: dict[str, Any] | None, why: str
) -> None:
    bench.accepts(TEAM)
    if parent is not None:
        bench.holds(TOP, **parent)
    result = await bench.one(create(TEAM, TOP))
    assert (result.outcome, result.needs_parent) == ("skipped", True)
    assert why in result.message
    assert bench.server.asked == []


@pytest.mark.case("A-69")
async def test_a_refused_parent_stops_its_children_and_nobody_else(bench: Bench) -> None:
    bench.accepts(OTHER)
    bench.server.on("create", path(TOP, one=False), failed(422, "Invalid", "no"))
    results = await bench.apply(create(TOP), create(TEAM, TOP), create(OTHER))
    assert [r.outcome for r in results.results] == ["refused", "skipped", "written"]


@pytest.mark.case("A-69")
async def test_three_refusals_of_a_hundred_stop_nobody(bench: Bench) -> None:
    def answer(asked: Asked) -> Reply:
        if asked.body["metadata"]["name"] in {"q3", "q50", "q99"}:
            return failed(403, "Forbidden", DENIED)
        return bench._created(asked)

    bench.server.always("create", path(TEAM, one=False), answer)
    keys = [key(CLUSTER_QUEUE, f"q{number}") for number in range(100)]
    results = await bench.apply(*map(create, keys))
    refused = [r for r in results.results if r.outcome == "refused"]
    assert {r.key.name for r in refused} == {"q3", "q50", "q99"}
    assert {r.message for r in refused} == {DENIED}
    assert results.written == 97


async def test_a_later_write_of_an_object_waits_for_the_earlier_to_succeed(bench: Bench) -> None:
    bench.holds(TEAM)
    bench.server.on("patch", path(TEAM), failed(422, "Invalid", "no"))
    results = await bench.apply(
        update(TEAM, "cohortName", cohortName="a"), update(TEAM, "cohortName", stage=3)
    )
    assert [r.outcome for r in results.results] == ["refused", "skipped"]
    assert bench.server.count("patch") == 1


async def test_writes_are_bounded_in_number(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    running = 0
    most = 0
    bench.accepts(TEAM)
    sent = bench.client.create

    async def counted(*args: Any) -> bytes:
        nonlocal running, most
        running, most = running + 1, max(most, running + 1)
        await asyncio.sleep(0.001)
        try:
            return await sent(*args)
        finally:
            running -= 1

    monkeypatch.setattr(bench.client, "create", counted)
    await bench.apply(*(create(key(CLUSTER_QUEUE, f"q{n}")) for n in range(30)))
    assert most == 4


# --- creating -----------------------------------------------------------------------------------


async def test_the_answer_of_a_create_is_in_the_store_at_once(bench: Bench) -> None:
    bench.accepts(TEAM)
    result = await bench.one(create(TEAM, cohortName="top"))
    assert result.record is not None
    assert bench.live.get(TEAM) == result.record
    assert result.record.spec == {"cohortName": "top"}


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(failed(409, "AlreadyExists"), id="it-exists"),
        pytest.param(Reply(delay=2), id="no-answer-in-time"),
        pytest.param(failed(504, "Timeout"), id="the-server-does-not-know"),
        pytest.param(Reply(then="reset", status=500), id="the-connection-broke"),
    ],
)
async def test_a_create_of_unknown_outcome_looks_once_and_finds_ours(
    bench: Bench, first: Reply
) -> None:
    bench.server.on("create", path(TEAM, one=False), first)
    bench.server.on("get", path(TEAM), reply(kueue(TEAM, "7", spec={"cohortName": "old"})))
    result = await bench.one(create(TEAM, cohortName="new"))
    assert result.outcome in {"written", "unchanged"}
    held = bench.live.get(TEAM)
    assert held is not None
    assert held.spec == {"cohortName": "old"}  # the next pass sees the difference
    assert bench.server.verbs() == ["create", "get"]


@pytest.mark.case("A-67")
@pytest.mark.parametrize("kind", [RESOURCE_FLAVOR, *OTHERS])
async def test_a_strangers_object_is_a_conflict_and_left_alone(bench: Bench, kind: Kind) -> None:
    theirs = Key(kind, "ns" if kind == LOCAL_QUEUE else "", "team")
    bench.server.on("create", path(theirs, one=False), failed(409, "AlreadyExists"))
    bench.server.on("get", path(theirs), reply(kueue(theirs, manager=None)))
    result = await bench.one(create(theirs))
    assert result.outcome == "conflict"
    assert "not ours" in result.message
    assert bench.live.get(theirs) is not None
    assert bench.server.verbs() == ["create", "get"]


async def test_a_create_that_was_not_done_is_unavailable(bench: Bench) -> None:
    bench.server.on("create", path(TEAM, one=False), failed(504, "Timeout", "etcd hangs"))
    result = await bench.one(create(TEAM))
    assert (result.outcome, result.message) == ("unavailable", "etcd hangs")


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(failed(404, "NotFound", 'namespaces "ns" not found'), id="absent"),
        pytest.param(failed(403, "Forbidden", TERMINATING), id="terminating"),
    ],
)
async def test_a_namespace_that_is_not_there_skips_its_queue(bench: Bench, answer: Reply) -> None:
    bench.server.on("create", path(QUEUE, one=False), answer)
    assert (await bench.one(create(QUEUE))).outcome == "skipped"


# --- updating -----------------------------------------------------------------------------------


async def test_an_update_sends_what_differs_over_the_very_object(bench: Bench) -> None:
    bench.accepts(TEAM)
    bench.holds(TEAM, spec={"cohortName": "a", "preemption": {"x": "y"}})
    result = await bench.one(update(TEAM, "cohortName", cohortName="b"))
    assert result.outcome == "written"
    assert bench.server.last("patch").body == {
        "metadata": {"uid": "u-team"},
        "spec": {"cohortName": "b"},
    }


async def test_an_update_that_changes_nothing_is_not_a_write(bench: Bench) -> None:
    bench.holds(TEAM, version="5")
    bench.server.on("patch", path(TEAM), reply(kueue(TEAM, "5")))
    results = await bench.apply(update(TEAM, "cohortName"))
    assert [r.outcome for r in results.results] == ["unchanged"]
    assert results.written == 0


@pytest.mark.parametrize(
    ("held", "outcome"),
    [
        pytest.param(None, "conflict", id="gone"),
        pytest.param({"uid": "another"}, "conflict", id="another-uid"),
        pytest.param({"manager": "somebody"}, "conflict", id="not-ours-any-more"),
    ],
)
async def test_what_changed_since_the_plan_is_not_touched(
    bench: Bench, held: dict[str, Any] | None, outcome: str
) -> None:
    if held is not None:
        bench.holds(TEAM, **held)
    assert (await bench.one(update(TEAM, "cohortName"))).outcome == outcome
    assert bench.server.asked == []


async def test_another_uid_at_the_server_is_a_conflict(bench: Bench) -> None:
    bench.holds(TEAM)
    uid = "metadata.uid: Invalid value: field is immutable"
    bench.server.on("patch", path(TEAM), failed(422, "Invalid", uid))
    assert (await bench.one(update(TEAM, "cohortName"))).outcome == "conflict"


async def test_an_object_that_is_gone_leaves_the_store(bench: Bench) -> None:
    bench.holds(TEAM)
    result = await bench.one(update(TEAM, "cohortName"))
    assert result.outcome == "conflict"
    assert bench.live.get(TEAM) is None


async def test_a_grow_follows_the_create_of_its_own_plan(bench: Bench) -> None:
    bench.accepts(TOP)
    grow = Action("update", TOP, 3, normal({"parentName": "x"}), ("parentName",), quota="top")
    results = await bench.apply(create(TOP), grow)
    assert results.written == 2
    assert bench.server.last("patch").body["metadata"] == {"uid": "u-top"}


# --- deleting -----------------------------------------------------------------------------------


@pytest.mark.case("A-70")
async def test_a_delete_names_the_uid_and_takes_the_object_out(bench: Bench) -> None:
    bench.accepts(QUEUE)
    bench.holds(QUEUE)
    assert (await bench.one(delete(QUEUE))).outcome == "written"
    assert bench.server.last("delete").body["preconditions"] == {"uid": "u-team"}
    assert bench.live.get(QUEUE) is None


async def test_an_object_that_a_finalizer_holds_stays_in_deletion(bench: Bench) -> None:
    bench.holds(TEAM)
    bench.server.on("delete", path(TEAM), reply(kueue(TEAM, "9", deleting=True)))
    assert (await bench.one(delete(TEAM))).outcome == "written"
    held = bench.live.get(TEAM)
    assert held is not None
    assert held.deleting


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        pytest.param(failed(404, "NotFound"), "unchanged", id="gone-is-done"),
        pytest.param(failed(409, "Conflict", "uid"), "conflict", id="another-uid"),
    ],
)
async def test_answers_to_deletes(bench: Bench, answer: Reply, outcome: str) -> None:
    bench.holds(TEAM)
    bench.server.on("delete", path(TEAM), answer)
    assert (await bench.one(delete(TEAM))).outcome == outcome


async def test_what_is_not_ours_is_never_deleted(bench: Bench) -> None:
    bench.holds(TEAM, manager=None)
    bench.holds(OTHER, uid="another")
    results = await bench.apply(delete(TEAM), delete(OTHER), delete(TOP))
    assert [r.outcome for r in results.results] == ["conflict", "conflict", "unchanged"]
    assert bench.server.asked == []


@pytest.mark.parametrize("manager", ["quota-translator", None])
async def test_a_cohort_that_somebody_names_is_kept(bench: Bench, manager: str | None) -> None:
    bench.accepts(TOP)
    bench.holds(TOP)
    bench.holds(OTHER, manager=manager, spec={"cohortName": "top"})
    result = await bench.one(delete(TOP))
    assert result.outcome == "skipped"
    assert "ClusterQueue other still names" in result.message
    assert bench.server.asked == []


async def test_a_subtree_is_deleted_from_the_leaves(bench: Bench) -> None:
    bench.accepts(TOP, MID, TEAM, QUEUE)
    bench.holds(TOP)
    bench.holds(MID, spec={"parentName": "top"})
    bench.holds(TEAM, spec={"cohortName": "mid"})
    bench.holds(QUEUE, spec={"clusterQueue": "team"})
    results = await bench.apply(*map(delete, (TOP, MID, TEAM, QUEUE)))
    assert results.all_done
    assert [asked.path for asked in bench.server.asked] == [*map(path, (QUEUE, TEAM, MID, TOP))]


# --- what stops more than one write -------------------------------------------------------------


async def test_kueues_webhook_down_stops_the_writes_of_that_kind_only(bench: Bench) -> None:
    bench.accepts(OTHER, MID)
    bench.server.always("create", path(TOP, one=False), failed(500, "InternalError", DOWN))
    bench.holds(MID)
    many = [create(key(COHORT, f"c{number}")) for number in range(40)]
    results = await bench.apply(*many, create(OTHER), delete(MID))
    down = results.results[:40]
    assert {(r.outcome, r.kueue_down) for r in down} == {("unavailable", True)}
    assert [r.outcome for r in results.results[40:]] == ["written", "written"]
    assert bench.server.count("create") <= 4 + 1  # those in flight, and the queue


@pytest.mark.case("fault 19", "FC-H01")
async def test_while_kueues_webhook_is_down_one_write_asks_whether_it_is_back(
    bench: Bench,
) -> None:
    many = [create(key(CLUSTER_QUEUE, f"q{number}")) for number in range(40)]
    bench.accepts(TEAM)
    bench.server.always("create", path(TEAM, one=False), failed(500, "InternalError", DOWN))
    await bench.apply(*many)
    assert bench.server.count("create") == 4  # those in flight
    for attempts in (1, 2, 3):
        results = await bench.apply(*many)
        assert {r.kueue_down for r in results.results} == {True}
        assert bench.server.count("create") == 4 + attempts
    bench.accepts(TEAM)
    assert (await bench.apply(*many)).all_done
    assert bench.server.count("create") == 4 + 3 + 40


@pytest.mark.case("fault 19")
async def test_a_write_that_was_on_its_way_does_not_say_that_kueues_webhook_is_back(
    bench: Bench,
) -> None:
    many = [create(key(CLUSTER_QUEUE, f"q{number}")) for number in range(40)]

    def slow_for_the_second(asked: Asked) -> Reply:
        if asked.body["metadata"]["name"] == "q1":
            late = bench._created(asked)
            late.delay = 0.1
            return late
        return failed(500, "InternalError", DOWN)

    bench.server.always("create", path(TEAM, one=False), slow_for_the_second)
    results = await bench.apply(*many)
    assert results.written == 1
    sent = bench.server.count("create")
    await bench.apply(*many[2:])
    assert bench.server.count("create") == sent + 1


async def test_a_missing_permission_is_met_once_and_named(bench: Bench) -> None:
    bench.server.always("create", path(TEAM, one=False), failed(403, "Forbidden", RBAC))
    results = await bench.apply(*(create(key(CLUSTER_QUEUE, f"q{n}")) for n in range(40)))
    assert {(r.outcome, r.message) for r in results.results} == {("failed", RBAC)}
    assert bench.server.count("create") <= 4


async def test_429_pauses_all_writes_as_long_as_asked_and_goes_on(
    bench: Bench, fake: FakeTime
) -> None:
    bench.accepts(TEAM)
    bench.server.on("create", path(TEAM, one=False), failed(429, retryAfterSeconds=5))
    results = await bench.apply(create(TEAM), create(OTHER))
    assert results.written == 2
    assert fake.slept[0] == 5
    assert results.retry_after is None


@pytest.mark.parametrize("answer", [failed(429), failed(429, retryAfterSeconds=1)])
async def test_a_server_that_stays_busy_is_left_alone(bench: Bench, answer: Reply) -> None:
    bench.server.always("create", path(TEAM, one=False), answer)
    result = await bench.one(create(TEAM))
    assert result.outcome == "throttled"
    assert bench.server.count("create") == 4


async def test_a_long_pause_is_the_next_passes(bench: Bench, fake: FakeTime) -> None:
    bench.server.always("create", path(TEAM, one=False), failed(429, retryAfterSeconds=120))
    results = await bench.apply(*(create(key(CLUSTER_QUEUE, f"q{n}")) for n in range(40)))
    assert {r.outcome for r in results.results} == {"throttled"}
    assert results.retry_after == 120
    assert bench.server.count("create") <= 4
    assert (await bench.one(create(TEAM))).outcome == "throttled"  # the pause outlives the plan
    fake.t += 121
    bench.accepts(TEAM)
    assert (await bench.one(create(TEAM))).outcome == "written"


async def test_a_server_that_does_not_answer_is_not_asked_for_every_object(bench: Bench) -> None:
    bench.server.always("create", path(TEAM, one=False), failed(503))
    results = await bench.apply(*(create(key(CLUSTER_QUEUE, f"q{n}")) for n in range(200)))
    assert {r.outcome for r in results.results} == {"unavailable"}
    assert bench.server.count("create") <= apply_module.MISSES + 4


async def test_an_empty_plan_sends_nothing(bench: Bench) -> None:
    results = await bench.apply()
    assert (results.results, results.all_done, results.written) == ((), True, 0)
    assert bench.server.asked == []


# --- the view over the four kinds ---------------------------------------------------------------


def test_one_view_over_the_kinds(bench: Bench) -> None:
    bench.holds(FLAVOR)
    bench.holds(TEAM, spec={"cohortName": "mid"})
    bench.holds(MID, spec={"parentName": "top"})
    first = bench.live.snapshot()
    assert set(first) == {FLAVOR, TEAM, MID}
    assert bench.live.snapshot() is first
    assert bench.live.holders() == {"mid": TEAM, "top": MID}
    bench.live.gone(FLAVOR)
    assert set(bench.live.snapshot()) == {TEAM, MID}
    assert set(first) == {FLAVOR, TEAM, MID}
    assert bench.live.known() == frozenset()
