"""The whole of `kube/` behind the port: what is known, what is not, and why."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from quota_translator.core.actions import Action, Plan
from quota_translator.core.names import CLUSTER_QUEUE, COHORT, KINDS, RESOURCE_FLAVOR, Key
from quota_translator.core.ports import Cluster
from quota_translator.kube.client import Client, Retries
from quota_translator.kube.cluster import KubeCluster
from quota_translator.kube.config import Connection
from quota_translator.kube.reflector import Reflector, Timing
from quota_translator.kube.resources import KUEUE, NAMESPACES, NODES, QUOTAS
from tests.kube.objects import kueue, node, quota
from tests.kube.scripted import (
    FakeTime,
    Reply,
    Scripted,
    event,
    failed,
    listed,
    reply,
    until,
    watched,
)

GROUP = "/apis/kueue.x-k8s.io"
ALL: frozenset[str] = frozenset(KINDS)
ABSENT = Reply(404, [b"404 page not found\n"])
SERVED = reply({"resources": [{"name": kind.lower(), "kind": kind} for kind in KINDS]})


class Bench:
    def __init__(self, server: Scripted, fake: FakeTime) -> None:
        self.server, self.fake = server, fake
        self.dirty: list[str] = []
        self.clusters: list[KubeCluster] = []
        server.always("get", GROUP, reply({"versions": [{"version": "v1beta2"}]}))
        server.always("get", f"{GROUP}/v1beta2", SERVED)

    async def start(self, **options: Any) -> KubeCluster:
        client = Client(Connection(self.server.host), retries=Retries(attempts=1))
        cluster = KubeCluster(
            client,
            "quota-translator",
            now=self.fake.now,
            sleep=self.fake.sleep,
            rand=lambda: 0.5,
            **options,
        )
        self.clusters.append(cluster)
        await cluster.start(self.dirty.append)
        return cluster

    def without_kueue(self) -> None:
        self.server.always("get", GROUP, ABSENT)
        for resource in KUEUE.values():
            self.server.always("list", resource.path(), ABSENT)

    def with_kueue(self) -> None:
        self.server.always("get", GROUP, reply({"versions": [{"version": "v1beta2"}]}))
        for resource in KUEUE.values():
            self.server.always("list", resource.path(), listed())


@pytest.fixture
async def bench(server: Scripted, fake: FakeTime) -> AsyncIterator[Bench]:
    found = Bench(server, fake)
    yield found
    for cluster in found.clusters:
        await cluster.stop()


def synced(cluster: KubeCluster) -> Callable[[], bool]:
    return lambda: all(state.synced for state in cluster.sync_states().values())


async def test_everything_is_seen(bench: Bench) -> None:
    server, team = bench.server, Key(CLUSTER_QUEUE, "", "team")
    server.on("list", QUOTAS.path(), listed(quota("root")))
    server.on("list", NODES.path(), listed(node("a")))
    server.on("list", NAMESPACES.path(), listed({"metadata": {"name": "ns"}}))
    flavor = Key(RESOURCE_FLAVOR, "", "a100")
    server.on("list", KUEUE[RESOURCE_FLAVOR].path(), listed(kueue(flavor, manager=None)))
    server.on("list", KUEUE[CLUSTER_QUEUE].path(), listed(kueue(team)))
    cluster = await bench.start()
    await until(synced(cluster), cluster.sync_states)
    await until(lambda: cluster.snapshot().facts.served == ALL)
    world = cluster.snapshot()
    assert [q.name for q in world.quotas or ()] == ["root"]
    assert [n.name for n in world.nodes or ()] == ["a"]
    assert [f.name for f in world.flavors or ()] == ["a100"]
    assert [n.name for n in world.namespaces or ()] == ["ns"]
    assert set(world.live) == {flavor, team}
    assert world.known == ALL
    assert world.facts.kueue_versions == ("v1beta2",)
    assert world.heard
    assert set(bench.dirty) >= {"AcceleratorQuota", "Node", "Namespace", *KINDS}
    state = cluster.sync_states()["Node"]
    assert (state.objects, state.reason, state.served) == (1, "", True)


def test_it_is_a_cluster() -> None:
    port: type[Cluster] = KubeCluster
    assert port is KubeCluster


async def test_nothing_is_known_at_the_start(bench: Bench) -> None:
    for resource in (QUOTAS, NODES, NAMESPACES, *KUEUE.values()):
        bench.server.always("list", resource.path(), Reply(then="hang"))
    cluster = await bench.start()
    world = cluster.snapshot()
    assert (world.quotas, world.nodes, world.flavors, world.namespaces) == (None,) * 4
    assert world.known == frozenset()
    assert world.facts.served is None
    assert not world.heard
    assert not any(state.synced for state in cluster.sync_states().values())


async def test_an_unchanged_world_is_the_same_objects(bench: Bench) -> None:
    bench.server.on("list", NODES.path(), listed(node("a")))
    cluster = await bench.start()
    await until(synced(cluster), cluster.sync_states)
    one, two = cluster.snapshot(), cluster.snapshot()
    assert one.nodes is two.nodes
    assert one.live is two.live


async def test_kueues_crds_absent_at_the_start_and_installed_later(bench: Bench) -> None:
    bench.without_kueue()
    cluster = await bench.start()
    await until(lambda: cluster.snapshot().facts.served == frozenset())
    await until(lambda: not any(cluster.sync_states()[kind].served for kind in KINDS))
    assert cluster.snapshot().known == frozenset()
    assert cluster.snapshot().flavors is None
    state = cluster.sync_states()[COHORT]
    assert "Cohort is not served in kueue.x-k8s.io/v1beta2" in state.reason
    bench.with_kueue()
    await until(lambda: cluster.snapshot().known == ALL, cluster.sync_states)
    await until(lambda: cluster.snapshot().facts.served == ALL)


async def test_a_kueue_that_serves_an_old_version_only_is_named(bench: Bench) -> None:
    bench.without_kueue()
    bench.server.always("get", GROUP, reply({"versions": [{"version": "v1beta1"}]}))
    cluster = await bench.start()
    await until(lambda: "served versions: v1beta1" in cluster.sync_states()[COHORT].reason)
    facts = cluster.snapshot().facts
    assert (facts.served, facts.kueue_versions) == (frozenset(), ("v1beta1",))


async def test_a_kind_that_disappears_is_looked_for_until_it_is_back(bench: Bench) -> None:
    cohorts = KUEUE[COHORT].path()
    cluster = await bench.start(timing=Timing(silence=(0.05, 0.05)))
    await until(synced(cluster), cluster.sync_states)
    await until(lambda: cluster.snapshot().facts.served == ALL)
    bench.server.always("watch", cohorts, ABSENT)
    bench.server.always("list", cohorts, ABSENT)
    fewer = {"resources": [{"name": k, "kind": k} for k in KINDS if k != COHORT]}
    bench.server.always("get", f"{GROUP}/v1beta2", reply(fewer))
    await until(lambda: cluster.snapshot().facts.served == ALL - {COHORT})
    assert COHORT not in cluster.snapshot().known
    bench.server.always("watch", cohorts, Reply(then="hang"))
    bench.server.always("list", cohorts, listed())
    bench.server.always("get", f"{GROUP}/v1beta2", SERVED)
    await until(lambda: cluster.snapshot().facts.served == ALL, cluster.sync_states)


@pytest.mark.parametrize(
    ("answer", "release"),
    [
        pytest.param(reply({"queueingStrategy": {}}), (0, 17), id="0.17"),
        pytest.param(
            reply({"queueingStrategy": {}, "concurrentAdmissionPolicy": {}}), (0, 18), id="newer"
        ),
        pytest.param(reply({"paths": {}}), None, id="another document"),
        pytest.param(ABSENT, None, id="no document"),
        pytest.param(failed(403, "Forbidden"), None, id="not ours to read"),
        pytest.param(Reply(500, [b"<html>"]), None, id="HTML"),
    ],
)
@pytest.mark.case("A-107")
async def test_the_release_of_kueue_is_told_by_its_schema(
    bench: Bench, answer: Reply, release: tuple[int, int] | None
) -> None:
    bench.server.always("get", f"/openapi/v3{GROUP}/v1beta2", answer)
    cluster = await bench.start()
    await until(lambda: cluster.snapshot().facts.served == ALL)
    assert cluster.snapshot().facts.kueue_release == release


async def test_a_schema_that_cannot_be_had_just_now_is_asked_for_again(bench: Bench) -> None:
    path = f"/openapi/v3{GROUP}/v1beta2"
    bench.server.on("get", path, Reply(503, [b"busy"]), reply({"queueingStrategy": {}}))
    cluster = await bench.start()
    await until(lambda: cluster.snapshot().facts.served == ALL)
    await until(lambda: cluster.snapshot().facts.kueue_release == (0, 17))


async def test_silence_of_discovery_while_everything_is_served(bench: Bench) -> None:
    cluster = await bench.start()
    await until(lambda: cluster.snapshot().facts.served == ALL)
    await until(synced(cluster), cluster.sync_states)
    before = bench.server.count("get", "list")
    bench.fake.t += 3600
    for _ in range(20):
        await asyncio.sleep(0.001)
    assert bench.server.count("get", "list") == before


async def test_without_measuring_nodes_are_not_even_asked_for(bench: Bench) -> None:
    cluster = await bench.start(measure=False)
    await until(synced(cluster), cluster.sync_states)
    assert cluster.snapshot().nodes is None
    assert "Node" not in cluster.sync_states()
    assert not [asked for asked in bench.server.asked if asked.path == NODES.path()]
    assert cluster.snapshot().heard


async def test_nodes_that_nobody_watches_are_not_measured(bench: Bench) -> None:
    bench.server.on("list", NODES.path(), listed(node("a")))
    bench.server.always("watch", NODES.path(), failed(503))
    cluster = await bench.start()
    await until(synced(cluster), cluster.sync_states)
    await until(lambda: cluster.snapshot().nodes is None)
    assert cluster.sync_states()["Node"].synced
    bench.server.always("watch", NODES.path(), Reply(then="hang"))
    await until(lambda: cluster.snapshot().nodes is not None)


async def test_not_heard_from_after_150_seconds(bench: Bench) -> None:
    cluster = await bench.start()
    await until(synced(cluster), cluster.sync_states)
    await until(lambda: bench.server.count("watch") == 7)
    assert cluster.snapshot().heard
    bench.fake.t += 151
    assert not cluster.snapshot().heard


async def test_a_mistake_in_following_one_kind_leaves_the_others(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Reflector.run
    broken: list[str] = []

    async def sometimes(self: Reflector[Any, Any]) -> None:
        if self.store.kind == COHORT and not broken:
            broken.append(COHORT)
            raise RuntimeError("a mistake of this program")
        await run(self)

    monkeypatch.setattr(Reflector, "run", sometimes)
    cluster = await bench.start()
    await until(synced(cluster), cluster.sync_states)
    assert broken == [COHORT]
    assert 30.0 in bench.fake.slept


async def test_it_writes_through_the_same_stores(bench: Bench) -> None:
    team = Key(COHORT, "", "team")
    bench.server.on("create", KUEUE[COHORT].path(), reply(kueue(team, "200")))
    bench.server.on("create", QUOTAS.path(), reply(quota("root", "150")))
    after = quota("root", "160", {"summary": "s"})
    bench.server.on("patch", QUOTAS.path("root", "", "status"), reply(after))
    cluster = await bench.start()
    await until(synced(cluster), cluster.sync_states)
    plan = Plan(actions=(Action("create", team, 2, quota="team", nodes=frozenset({"team"})),))
    assert (await cluster.apply(plan)).written == 1
    await cluster.create_root()
    root = (cluster.snapshot().quotas or ())[0]
    assert (await cluster.write_status(root, {"summary": "s"})).outcome == "written"
    world = cluster.snapshot()
    assert team in world.live
    assert [q.status for q in world.quotas or ()] == [{"summary": "s"}]


TREE = "/apis/quota-translator.dev/v1beta1"
TEAM = Key(COHORT, "", "team")
AWAY = Plan(
    actions=(Action("delete", TEAM, 4, quota="team", nodes=frozenset({"team"}), uid="u-team"),)
)


def served(*verbs: str) -> Reply:
    found = {"name": "acceleratorquotas", "kind": "AcceleratorQuota", "verbs": list(verbs)}
    return reply({"resources": [found, {**found, "name": "acceleratorquotas/status"}]})


async def test_what_the_tree_no_longer_names_is_deleted(bench: Bench) -> None:
    bench.server.on("list", KUEUE[COHORT].path(), listed(kueue(TEAM)))
    bench.server.always("get", TREE, served("create", "delete"))
    bench.server.on("delete", KUEUE[COHORT].path("team"), reply({"kind": "Status"}))
    cluster = await bench.start()
    await until(synced(cluster), cluster.sync_states)
    assert (await cluster.apply(AWAY)).written == 1


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(served("delete", "get", "list", "watch"), id="the CRD is being deleted"),
        pytest.param(ABSENT, id="the CRD is gone"),
    ],
)
async def test_deleting_the_crd_deletes_no_queue(bench: Bench, answer: Reply) -> None:
    bench.server.on("list", QUOTAS.path(), listed(quota("root")))
    bench.server.on("list", KUEUE[COHORT].path(), listed(kueue(TEAM)))
    bench.server.always("get", TREE, answer)
    cluster = await bench.start()
    await until(synced(cluster), cluster.sync_states)
    (result,) = (await cluster.apply(AWAY)).results
    assert (result.outcome, bench.server.count("delete")) == ("skipped", 0)
    assert "is being removed from the server" in result.message
    assert cluster.snapshot().quotas is None  # no pass until it is back
    assert TEAM in cluster.snapshot().live


async def test_nothing_is_deleted_when_nobody_can_tell(bench: Bench) -> None:
    bench.server.on("list", KUEUE[COHORT].path(), listed(kueue(TEAM)))
    bench.server.always("get", TREE, failed(503))
    cluster = await bench.start()
    await until(synced(cluster), cluster.sync_states)
    (result,) = (await cluster.apply(AWAY)).results
    assert (result.outcome, bench.server.count("delete")) == ("skipped", 0)


async def test_it_stops_twice_and_without_a_start(bench: Bench) -> None:
    cluster = await bench.start()
    await cluster.stop()
    await cluster.stop()
    client = Client(Connection(bench.server.host))
    await KubeCluster(client, "m").stop()
    names = {task.get_name() for task in asyncio.all_tasks()}
    assert not [name for name in names if name.startswith(("follow", "discovery"))]


async def test_an_event_reaches_the_world(bench: Bench) -> None:
    added = event("ADDED", node("late", version="101"))
    bench.server.on("watch", NODES.path(), watched(added))
    cluster = await bench.start()
    await until(lambda: [n.name for n in cluster.snapshot().nodes or ()] == ["late"])
