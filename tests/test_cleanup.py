"""`cleanup`, on a server that remembers what was taken away."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from quota_translator.cleanup import Cleanup
from quota_translator.core.names import (
    CLUSTER_QUEUE,
    COHORT,
    COVER_FLAVOR,
    FINALIZER,
    KINDS,
    KUEUE_GROUP,
    KUEUE_VERSION,
    LABEL_PART,
    LOCAL_QUEUE,
    RESOURCE_FLAVOR,
    ROOT,
    Key,
)
from quota_translator.core.removal import Inventory, Outcome, document, shown_plan
from quota_translator.core.world import Clock
from quota_translator.errors import ApiError, ConfigurationError
from quota_translator.kube.client import Client, Retries
from quota_translator.kube.config import Connection
from quota_translator.kube.resources import (
    KUEUE,
    LEASES,
    QUOTAS,
    SECRETS,
    WEBHOOKS,
    WORKLOADS,
    Resource,
)
from quota_translator.kube.secrets import LABELS
from quota_translator.kube.survey import ControllerAlive, Names
from tests.kube.objects import kueue, quota
from tests.kube.scripted import Asked, FakeTime, Reply, Scripted, failed, listed, reply
from tests.kube.test_workloads import workload

NAMES = Names("quota-translator", "quota", True, "hook", "cert", "lease")
COVER = f"ResourceFlavor {COVER_FLAVOR}"
Item = dict[str, Any]


def spot(item: Item) -> tuple[str, str]:
    return item["metadata"].get("namespace", ""), item["metadata"]["name"]


class Shop:
    """Lists what there is; what is deleted is gone, or going where a finalizer of Kueue's is."""

    def __init__(self, server: Scripted) -> None:
        self.server = server
        self.items: dict[str, dict[tuple[str, str], Item]] = {}
        self.order: list[str] = []
        for resource in (*KUEUE.values(), QUOTAS, WORKLOADS):
            self._serve(resource)

    def _serve(self, resource: Resource) -> None:
        there = self.items.setdefault(resource.kind, {})
        self.server.always("list", resource.path(), lambda _: listed(*there.values()))

    def put(self, resource: Resource, item: Item, *, sticky: bool = False) -> None:
        there = self.items.setdefault(resource.kind, {})
        namespace, name = spot(item)
        there[namespace, name] = item
        item["metadata"].setdefault("uid", f"u-{name}")
        path = resource.path(name, namespace)

        def get(_: Asked) -> Reply:
            found = there.get((namespace, name))
            return reply(found) if found else failed(404, "NotFound")

        def delete(asked: Asked) -> Reply:
            assert asked.body["preconditions"] == {"uid": item["metadata"]["uid"]}
            self.order.append(f"{resource.kind} {name}")
            if sticky:
                item["metadata"]["deletionTimestamp"] = "2026-11-30T10:00:00Z"
                return reply(item)
            del there[namespace, name]
            return reply({"kind": "Status", "status": "Success"})

        def patch(asked: Asked) -> Reply:
            if "status" in asked.body:
                self.order.append(f"claim {name}")
                item["status"]["controller"] |= asked.body["status"]["controller"]
                return reply(item)
            self.order.append(f"release {name}")
            item["metadata"]["finalizers"] = asked.body["metadata"]["finalizers"]
            if "deletionTimestamp" in item["metadata"] and not item["metadata"]["finalizers"]:
                del there[namespace, name]
            return reply(item)

        self.server.always("get", path, get)
        self.server.always("delete", path, delete)
        self.server.always("patch", path, patch)
        self.server.always("patch", f"{path}/status", patch)

    def tree(self, *, sticky: bool = False) -> None:
        """root > ml > a, with everything that belongs to it."""
        for name in (ROOT, "ml", "a"):
            item = quota(name)
            item["metadata"]["finalizers"] = ["example.com/hold", FINALIZER]
            self.put(QUOTAS, item)
        self.put(KUEUE[COHORT], kueue(Key(COHORT, "", ROOT)))
        self.put(KUEUE[COHORT], kueue(Key(COHORT, "", "ml"), spec={"parentName": ROOT}))
        queue = kueue(Key(CLUSTER_QUEUE, "", "a"), spec={"cohortName": "ml"})
        self.put(KUEUE[CLUSTER_QUEUE], queue, sticky=sticky)
        self.put(KUEUE[LOCAL_QUEUE], kueue(Key(LOCAL_QUEUE, "ns", "a")))
        cover = kueue(Key(RESOURCE_FLAVOR, "", COVER_FLAVOR))
        labels = {"quota-translator.dev/quota": ROOT, LABEL_PART: "cover"}
        cover["metadata"]["labels"] |= labels
        self.put(KUEUE[RESOURCE_FLAVOR], cover)
        self.put(KUEUE[RESOURCE_FLAVOR], kueue(Key(RESOURCE_FLAVOR, "", "a100"), manager=None))
        rules = [{"apiGroups": ["quota-translator.dev"]}]
        self.put(WEBHOOKS, {"metadata": {"name": "hook"}, "webhooks": [{"rules": rules}]})
        owned = {"name": "cert", "namespace": "quota", "labels": dict(LABELS)}
        self.put(SECRETS, {"metadata": owned, "data": {"k": "x"}})
        self.put(LEASES, {"metadata": {"name": "lease", "namespace": "quota"}, "spec": {}})

    def left(self) -> set[str]:
        return {f"{kind} {name}" for kind, there in self.items.items() for _, name in there}


class Bench:
    def __init__(self, server: Scripted, client: Client, fake: FakeTime) -> None:
        self.server, self.client, self.fake = server, client, fake
        self.shop = Shop(server)
        self.told: list[str] = []

    def now(self) -> Clock:
        return Clock(
            datetime(2026, 11, 30, tzinfo=UTC) + timedelta(seconds=self.fake.t), self.fake.t
        )

    async def run(
        self, *, yes: bool = True, force: bool = False, names: Names = NAMES
    ) -> tuple[Inventory, Outcome]:
        cleanup = Cleanup(self.client, names, self.told.append, now=self.now, sleep=self.fake.sleep)
        found, outcome = await cleanup.run(yes=yes, force=force)
        return found, outcome or Outcome([], [], [], [])


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    server, fake = Scripted(), FakeTime()
    await server.start()
    connection = Connection(server.host)
    async with Client(connection, retries=Retries(attempts=1), sleep=fake.sleep) as client:
        yield Bench(server, client, fake)
    await server.stop()


@pytest.mark.case("A-101")
async def test_without_yes_nothing_is_written(bench: Bench) -> None:
    bench.shop.tree()
    found, _ = await bench.run(yes=False)
    assert str(found.removed()[0]) == "ValidatingWebhookConfiguration hook"
    assert bench.server.count("patch", "delete", "create") == 0


@pytest.mark.case("A-101")
async def test_everything_of_ours_goes_and_nothing_else(bench: Bench) -> None:
    bench.shop.tree()
    _, outcome = await bench.run()
    assert outcome.is_complete
    assert bench.shop.order[:6] == [
        "ValidatingWebhookConfiguration hook",
        "LocalQueue a",
        "ClusterQueue a",
        "Cohort ml",
        "Cohort root",
        f"ResourceFlavor {COVER_FLAVOR}",
    ]
    assert set(bench.shop.order[6:9]) == {"release root", "release ml", "release a"}
    assert bench.shop.order[9:] == ["Secret cert", "Lease lease"]
    assert bench.shop.left() == {
        "AcceleratorQuota root",
        "AcceleratorQuota ml",
        "AcceleratorQuota a",
        "ResourceFlavor a100",
    }
    for item in bench.shop.items["AcceleratorQuota"].values():
        assert item["metadata"]["finalizers"] == ["example.com/hold"]
    before = len(bench.shop.order)
    _, again = await bench.run()
    assert again.is_complete
    assert len(bench.shop.order) == before


async def test_a_queue_with_work_stays_until_the_work_ends(bench: Bench) -> None:
    bench.shop.tree(sticky=True)
    bench.shop.put(WORKLOADS, workload("job-train", queue="a"))
    _, outcome = await bench.run()
    assert outcome.failed == []
    assert outcome.waiting == [
        "ClusterQueue a is being deleted; 1 workload still runs in it: Job ml/train",
        "Cohort ml stays while it is the parent of ClusterQueue a",
        "Cohort root stays while it is the parent of Cohort ml",
    ]
    assert len(outcome.released) == 3
    bench.shop.items["ClusterQueue"].clear()
    bench.shop.items["Workload"].clear()
    _, again = await bench.run()
    assert again.is_complete
    assert again.removed == ["Cohort ml", "Cohort root"]


async def test_a_flavor_that_a_queue_still_lists_is_told_and_nodes_that_went_are_not(
    bench: Bench,
) -> None:
    bench.shop.tree(sticky=True)
    bench.shop.put(WORKLOADS, workload("job-train", queue="a"))
    cover = bench.shop.items[RESOURCE_FLAVOR]["", COVER_FLAVOR]
    bench.shop.put(KUEUE[RESOURCE_FLAVOR], cover, sticky=True)
    going = {"deletionTimestamp": "2026-11-30T09:00:00Z", "finalizers": [FINALIZER]}
    bench.shop.items[QUOTAS.kind]["", "a"]["metadata"] |= going
    found, outcome = await bench.run()
    told = f"{COVER} is being deleted; Kueue keeps it while a ClusterQueue lists it"
    assert outcome.waiting[-1] == told
    assert {node.name for node in found.nodes} == {ROOT, "ml"}


async def test_what_cannot_go_yet_is_said_before_anything_is_done(bench: Bench) -> None:
    bench.shop.tree(sticky=True)
    bench.shop.items["ClusterQueue"]["", "a"]["metadata"]["deletionTimestamp"] = "2026-11-30T09:00Z"
    cover = bench.shop.items[RESOURCE_FLAVOR]["", COVER_FLAVOR]
    cover["metadata"]["deletionTimestamp"] = "2026-11-30T09:00Z"
    found, _ = await bench.run(yes=False)
    removed = [str(one) for one in found.removed()]
    assert removed[:2] == ["ValidatingWebhookConfiguration hook", "LocalQueue ns/a"]
    assert not [one for one in removed if one.startswith(("Cohort", "ClusterQueue"))]
    assert found.waiting() == [
        "ClusterQueue a is being deleted; it goes when its workloads have ended",
        f"{COVER} is being deleted; Kueue keeps it while a ClusterQueue lists it",
        "Cohort ml stays while it is the parent of ClusterQueue a",
        "Cohort root stays while it is the parent of Cohort ml",
    ]
    assert "Cannot go yet:\n  ClusterQueue a is being deleted" in shown_plan(found)
    assert document(found, None)["waiting"] == found.waiting()


async def test_cohorts_above_somebody_elses_queue_are_not_promised_to_go(bench: Bench) -> None:
    bench.shop.tree()
    other = kueue(Key(CLUSTER_QUEUE, "", "theirs"), manager=None, spec={"cohortName": "ml"})
    bench.shop.put(KUEUE[CLUSTER_QUEUE], other)
    found, _ = await bench.run(yes=False)
    assert not [one for one in found.removed() if one.kind == COHORT]
    assert found.waiting() == [
        "Cohort ml stays while it is the parent of ClusterQueue theirs (not ours)",
        "Cohort root stays while it is the parent of Cohort ml",
    ]


async def test_where_kueue_does_not_run_that_is_said(bench: Bench) -> None:
    """Nobody takes its finalizers off then, and we never do."""
    bench.shop.tree(sticky=True)
    _, outcome = await bench.run()
    assert outcome.waiting[0].endswith("does Kueue run?")
    assert bench.told == ["ClusterQueues on their way out: 1"]
    assert bench.fake.t >= 1020


async def test_what_fails_is_told_and_the_rest_goes_on(bench: Bench) -> None:
    bench.shop.tree()
    path = KUEUE[LOCAL_QUEUE].path("a", "ns")
    bench.server.always("delete", path, failed(403, "Forbidden", "no deleting"))
    bench.server.always("patch", QUOTAS.path("ml"), failed(403, "Forbidden", "no patching"))
    _, outcome = await bench.run()
    assert [line.partition(": ")[0] for line in outcome.failed] == [
        "delete LocalQueue ns/a",
        "take our finalizer off AcceleratorQuota ml",
    ]
    assert "Secret cert" not in bench.shop.left()


async def test_kueues_objects_that_cannot_be_read_again_are_told(bench: Bench) -> None:
    bench.shop.tree()
    bench.server.on("list", KUEUE[CLUSTER_QUEUE].path(), listed(), failed(403, "Forbidden", "no"))
    _, outcome = await bench.run()
    assert [line.partition(": ")[0] for line in outcome.failed] == ["read Kueue's objects"]
    assert len(outcome.released) == 3


async def test_a_node_that_somebody_writes_meanwhile_is_read_again(bench: Bench) -> None:
    bench.shop.tree()
    path = QUOTAS.path("ml")
    bench.server.on("patch", path, failed(409, "Conflict"), failed(409, "Conflict"))
    _, outcome = await bench.run()
    assert outcome.is_complete
    bench.server.on("patch", path, *[failed(409, "Conflict", "again")] * 3)
    bench.shop.items["AcceleratorQuota"]["", "ml"]["metadata"]["finalizers"] = [FINALIZER]
    _, outcome = await bench.run()
    assert outcome.failed == ["take our finalizer off AcceleratorQuota ml: again"]


async def test_kinds_that_are_gone_are_nothing_to_do(bench: Bench) -> None:
    bench.shop.tree()
    for resource in (QUOTAS, *KUEUE.values()):
        bench.server.always("list", resource.path(), failed(404, "NotFound"))
    found, outcome = await bench.run()
    assert outcome.is_complete
    assert found.notes[0] == "AcceleratorQuota is not served: its CRD is gone already"
    assert found.notes[1].startswith(", ".join(KINDS))
    assert "Secret cert" not in bench.shop.left()


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
async def test_a_kueue_that_serves_another_version_alone_may_hold_queues_of_ours(
    bench: Bench, version: str
) -> None:
    bench.shop.tree()
    for resource in KUEUE.values():
        bench.server.always("list", resource.path(), failed(404, "NotFound"))
    served = {"versions": [{"version": version}, {"version": "v1alpha1"}]}
    bench.server.always("get", f"/apis/{KUEUE_GROUP}", reply(served))
    if version == KUEUE_VERSION:  # the group is there, and these kinds are not
        _, outcome = await bench.run()
        assert outcome.is_complete
        return
    for yes in (False, True):
        with pytest.raises(ConfigurationError, match="is served as v1beta1, v1alpha1 alone"):
            await bench.run(yes=yes, force=True)
    assert bench.shop.order == []


async def test_a_webhook_of_more_than_ours_is_left(bench: Bench) -> None:
    bench.shop.tree()
    hook = bench.shop.items[WEBHOOKS.kind]["", "hook"]
    hook["webhooks"].append({"rules": [{"apiGroups": ["apps"]}]})
    found, _ = await bench.run()
    assert found.webhook is None
    assert "it is not ours" in found.notes[0]


@pytest.mark.parametrize("labels", [None, {}, {"app.kubernetes.io/managed-by": "cert-manager"}])
async def test_a_secret_of_the_name_that_is_anothers_is_left(
    bench: Bench, labels: dict[str, str] | None
) -> None:
    bench.shop.tree()
    bench.shop.items["Secret"]["quota", "cert"]["metadata"]["labels"] = labels
    found, outcome = await bench.run()
    assert outcome.is_complete
    assert "Secret cert" in bench.shop.left()
    assert found.notes[-1] == (
        "Secret quota/cert does not bear app.kubernetes.io/managed-by=quota-translator: "
        "it is not ours"
    )


# --- a controller that is alive ---------------------------------------------------------------


def hold(bench: Bench, **spec: Any) -> Item:
    lease = bench.shop.items["Lease"]["quota", "lease"]
    lease["spec"] = {"holderIdentity": "pod-1", "leaseDurationSeconds": 15, "renewTime": "1"} | spec
    return lease


async def test_a_controller_that_renews_its_lease_is_not_worked_against(bench: Bench) -> None:
    bench.shop.tree()
    lease = hold(bench)
    shown = [reply(lease), reply(lease), reply(hold(bench, renewTime="2"))]
    bench.server.on("get", LEASES.path("lease", "quota"), *shown)
    with pytest.raises(ControllerAlive, match="pod-1 renews Lease quota/lease; stop it first"):
        await bench.run()
    assert bench.shop.order == []
    assert bench.told == ["looking for up to 15 s whether pod-1 is alive"]


@pytest.mark.parametrize(("term", "watched"), [(15, 15), (90, 90), (3600, 600)])
async def test_a_lease_is_watched_for_as_long_as_its_holder_may_be_silent(
    bench: Bench, term: int, watched: float
) -> None:
    bench.shop.tree()
    hold(bench, leaseDurationSeconds=term)
    claim(bench, 10, namespace="quota", lease="lease")  # it names the Lease that was watched
    started = bench.fake.t
    _, outcome = await bench.run()
    assert outcome.is_complete
    assert bench.fake.t - started == watched


@pytest.mark.parametrize("first", ["given back", "deleted"])
async def test_a_lease_that_a_standby_takes_in_a_moment_is_not_free(
    bench: Bench, first: str
) -> None:
    bench.shop.tree()
    empty = bench.shop.items["Lease"]["quota", "lease"]
    before = reply(empty) if first == "given back" else failed(404)
    taken = reply({**empty, "spec": {"holderIdentity": "pod-2", "renewTime": "3"}})
    bench.server.on("get", LEASES.path("lease", "quota"), before, before, before, taken)
    with pytest.raises(ControllerAlive, match="pod-2 renews Lease"):
        await bench.run()
    assert bench.shop.order == []


@pytest.mark.parametrize("ending", ["silence", "release", "deletion"])
async def test_a_lease_that_nobody_renews_holds_nobody_up(bench: Bench, ending: str) -> None:
    bench.shop.tree()
    lease = hold(bench)
    end = {"release": reply({**lease, "spec": {}}), "deletion": failed(404)}.get(ending)
    if end is not None:
        bench.server.on(
            "get", LEASES.path("lease", "quota"), reply(lease), reply(lease), *[end] * 4
        )
    _, outcome = await bench.run()
    assert outcome.is_complete


async def test_with_force_nobody_looks(bench: Bench) -> None:
    bench.shop.tree()
    hold(bench)
    _, outcome = await bench.run(force=True)
    assert outcome.is_complete
    assert bench.told == []


def claim(bench: Bench, ago: float, namespace: str = "elsewhere", **more: str) -> None:
    at = (bench.now().wall - timedelta(seconds=ago)).isoformat().replace("+00:00", "Z")
    root = bench.shop.items["AcceleratorQuota"]["", ROOT]
    row = {"uid": "u", "namespace": namespace, "seenAt": at}
    root["status"] = {"controller": row | more}


async def test_without_a_lease_the_claim_on_root_decides(bench: Bench) -> None:
    bench.shop.tree()
    claim(bench, 97)  # and for three seconds it was looked whether somebody takes the Lease
    with pytest.raises(ControllerAlive, match=r"100 s ago .* wait 80 s or use --force"):
        await bench.run()
    claim(bench, 200)
    _, outcome = await bench.run()
    assert outcome.is_complete


async def test_the_claim_goes_with_the_lease_so_that_a_second_run_waits_for_nothing(
    bench: Bench,
) -> None:
    bench.shop.tree()
    hold(bench)
    claim(bench, 10, namespace="quota", lease="lease")
    _, outcome = await bench.run()
    assert outcome.is_complete
    assert f"claim {ROOT}" in bench.shop.order
    assert "Lease lease" in bench.shop.order
    _, outcome = await bench.run()
    assert outcome.is_complete


async def test_a_lease_that_nobody_renews_says_nothing_of_a_claim_by_another(bench: Bench) -> None:
    bench.shop.tree()
    hold(bench)
    claim(bench, 10, lease="theirs")
    with pytest.raises(ControllerAlive, match="Lease theirs in namespace elsewhere"):
        await bench.run()
    assert bench.shop.order == []


async def test_a_claim_is_read_again_after_a_lease_was_watched(bench: Bench) -> None:
    """Whoever lives renewed it meanwhile."""
    bench.shop.tree()
    hold(bench, leaseDurationSeconds=300)
    claim(bench, 10)
    fresh = quota(ROOT)
    seen = (bench.now().wall + timedelta(seconds=280)).isoformat().replace("+00:00", "Z")
    fresh["status"] = {"controller": {"uid": "u", "namespace": "elsewhere", "seenAt": seen}}
    bench.server.on("get", QUOTAS.path(ROOT), reply(fresh))
    with pytest.raises(ControllerAlive, match="20 s ago"):
        await bench.run()


async def test_root_says_where_the_controller_lived(bench: Bench) -> None:
    bench.shop.tree()
    claim(bench, 200)
    unasked = Names("quota-translator", "default", False, "hook", "cert", "lease")
    found, _ = await bench.run(yes=False, names=unasked)
    assert (found.namespace, found.secret, found.lease) == ("elsewhere", None, None)
    root = bench.shop.items["AcceleratorQuota"]["", ROOT]
    root["status"] = {"controller": {"namespace": "elsewhere"}}  # it was stopped, and gave it up
    found, _ = await bench.run(yes=False, names=unasked)
    assert found.namespace == "elsewhere"
    found, _ = await bench.run(yes=False)
    assert found.namespace == "quota"
    assert found.secret is not None


async def test_what_cannot_be_read_at_all_is_an_error(bench: Bench) -> None:
    bench.server.always("list", QUOTAS.path(), failed(403, "Forbidden", "no"))
    with pytest.raises(ApiError):
        await bench.run()
