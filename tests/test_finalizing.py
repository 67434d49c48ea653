"""Our finalizer before the first write for a node, and its end when nothing of the node is left."""

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
import structlog

from quota_translator.core.actions import Action, Plan
from quota_translator.core.names import (
    CLUSTER_QUEUE,
    FINALIZER,
    ROOT,
    SWEEP_ORPHANS,
    Key,
)
from quota_translator.core.options import MaterializeOptions
from quota_translator.core.orphans import Orphans
from quota_translator.core.results import Outcome, Results, StatusResult
from quota_translator.core.translate import translate
from quota_translator.core.world import Memory, Observed, QuotaNode, World
from quota_translator.errors import Unavailable
from quota_translator.finalizing import Finalizers
from tests.core.build import node, root, team
from tests.core.rendering import BARE, a_world, an_option, at, stands
from tests.test_controller import Harness, Time, folder  # noqa: F401  a fixture

OPTIONS = an_option(**BARE)
OTHER = "example.com/hold"


class Server:
    """The nodes of a tree, and what was written to their metadata."""

    def __init__(self, *nodes: QuotaNode, live: tuple[Observed, ...] = ()) -> None:
        self.nodes = {one.name: one for one in nodes}
        self.live = live
        self.wrote: list[tuple[str, Mapping[str, Any]]] = []
        self.refusals: dict[str, Outcome] = {}
        self.stays: bool | None = True
        self.asked = 0
        self.at_once = self.most = 0

    def world(self, **fields: Any) -> World:
        return a_world(*self.nodes.values(), live=self.live, **fields)

    async def write_metadata(self, node_: QuotaNode, metadata: Mapping[str, Any]) -> StatusResult:
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        outcome = self.refusals.get(node_.name)
        if outcome is not None:
            return StatusResult(node_.name, outcome, "no", retry_after=None)
        self.wrote.append((node_.name, metadata))
        after = msgspec.structs.replace(node_, resource_version="next")
        if "finalizers" in metadata:
            after = msgspec.structs.replace(after, finalizers=tuple(metadata["finalizers"]))
        self.nodes[node_.name] = after
        return StatusResult(node_.name, "written", record=after)

    async def tree_stays(self) -> bool:
        self.asked += 1
        if self.stays is None:
            raise Unavailable("no answer")
        return self.stays


class Setting:
    def __init__(
        self,
        server: Server,
        options: MaterializeOptions = OPTIONS.materialize,
        concurrency: int = 4,
    ) -> None:
        self.server, self.time = server, Time()
        cluster: Any = server
        self.finalizers = Finalizers(cluster, options, self.time, lambda: 1.0, concurrency)

    async def begin(self, **world: Any) -> World | None:
        return await self.finalizers.begin(self.server.world(**world))

    async def release(self, **changed: Any) -> list[str]:
        world = self.server.world()
        found = translate(world, Memory(), OPTIONS, at())
        found = msgspec.structs.replace(found, **changed)
        return [one.name for one in await self.finalizers.release(world, found)]

    def may(self, name: str) -> bool:
        key = Key(CLUSTER_QUEUE, "", name)
        return self.finalizers.may(Action("create", key, 2, nodes=frozenset({name})))


def going(one: QuotaNode, *finalizers: str) -> QuotaNode:
    return msgspec.structs.replace(
        one, deleting=True, uid=f"u-{one.name}", finalizers=finalizers or (FINALIZER,)
    )


# --- claims -----------------------------------------------------------------------------------


@pytest.mark.case("A-97")
async def test_every_node_is_claimed_once_and_keeps_what_others_put_there() -> None:
    server = Server(team("a", parent="ml", finalizers=(OTHER,)), node("ml"), root())
    setting = Setting(server)
    world = await setting.begin()
    assert world is not None
    assert server.wrote == [
        (ROOT, {"finalizers": [FINALIZER]}),
        ("ml", {"finalizers": [FINALIZER]}),
        ("a", {"finalizers": [OTHER, FINALIZER]}),
    ]
    # The pass goes on with the nodes as they are now.
    assert {one.resource_version for one in world.quotas or ()} == {"next"}
    assert setting.may("a")
    same = server.world()
    assert await setting.finalizers.begin(same) is same
    assert len(server.wrote) == 3
    assert setting.finalizers.wake_at is None


async def test_claims_go_side_by_side_and_a_large_tree_in_parts() -> None:
    server = Server(root(), *(team(f"t{number}") for number in range(300)))
    setting = Setting(server)
    await setting.begin()
    assert server.most == 4
    assert len(server.wrote) == 256
    assert server.wrote[0][0] == ROOT
    assert setting.finalizers.wake_at is not None
    assert setting.finalizers.wake_at <= setting.time().steady
    last = sorted(server.nodes.keys() - {name for name, _ in server.wrote})
    assert not setting.may(last[0])
    assert setting.finalizers.notes() == ()  # it is on its way, and no fault
    await setting.begin()
    assert len(server.wrote) == 301
    assert setting.may(last[0])


async def test_nothing_is_made_for_a_deleted_node_that_never_bore_it() -> None:
    """None can be added to it any more; what there is of it may be changed, and taken away."""
    setting = Setting(Server(root(), going(team("a"), "example.com/hold")))
    await setting.begin()
    assert not setting.may("a")
    key = Key(CLUSTER_QUEUE, "", "a")
    assert setting.finalizers.may(Action("delete", key, 4, nodes=frozenset({"a"})))


@pytest.mark.case("A-98")
async def test_a_claim_that_fails_costs_that_node_alone_and_is_tried_again() -> None:
    server = Server(root(), team("a"), team("b"))
    server.refusals["a"] = "failed"
    setting = Setting(server)
    with structlog.testing.capture_logs() as logs:
        await setting.begin()
        await setting.begin()  # not before its pause is over
    assert [line["quota"] for line in logs] == ["a"]
    assert (setting.may("a"), setting.may("b")) == (False, True)
    (note,) = setting.finalizers.notes()
    assert (note.node, note.reason) == ("a", "MaterializationFailed")
    assert note.message == "its finalizers could not be written: no"
    # What belongs to others too is written.
    shared = Action("create", Key(CLUSTER_QUEUE, "", "x"), 2, nodes=frozenset({"a", "b"}))
    assert setting.finalizers.may(shared)
    assert setting.finalizers.wake_at is not None
    assert setting.finalizers.wake_at > setting.time().steady
    del server.refusals["a"]
    setting.time.ahead += 1
    await setting.begin()
    assert setting.may("a")
    assert setting.finalizers.notes() == ()


async def test_a_node_that_changed_meanwhile_is_claimed_in_the_next_pass() -> None:
    server = Server(root(), team("a"))
    server.refusals["a"] = "conflict"
    setting = Setting(server)
    await setting.begin()
    assert not setting.may("a")
    assert setting.finalizers.notes() == ()
    del server.refusals["a"]
    await setting.begin()
    assert setting.may("a")


@pytest.mark.parametrize(
    ("options", "world"),
    [
        pytest.param(MaterializeOptions(), {}, id="nothing is written to Kueue"),
        pytest.param(OPTIONS.materialize, {"has_finalizers": False}, id="files"),
    ],
)
async def test_what_needs_no_finalizer_gets_none(
    options: MaterializeOptions, world: dict[str, Any]
) -> None:
    setting = Setting(Server(root(), team("a")), options)
    assert await setting.begin(**world) is not None
    assert setting.server.wrote == []
    assert setting.may("a")


# --- releases ---------------------------------------------------------------------------------


@pytest.mark.case("A-97")
async def test_a_node_goes_when_nothing_of_it_is_left() -> None:
    left = stands(CLUSTER_QUEUE, "b", "gpu a100 1", deleting=True)
    server = Server(
        root(finalizers=(FINALIZER,)),
        going(team("a"), OTHER, FINALIZER),
        going(team("b")),
        live=(left,),
    )
    setting = Setting(server)
    assert await setting.begin() is not None
    assert await setting.release() == ["a"]
    assert server.wrote == [("a", {"finalizers": [OTHER]})]
    server.live = ()
    assert await setting.release() == ["b"]


async def test_a_release_that_fails_is_told() -> None:
    server = Server(root(finalizers=(FINALIZER,)), going(team("a")))
    server.refusals["a"] = "unavailable"
    setting = Setting(server)
    assert await setting.release() == []
    assert [note.node for note in setting.finalizers.notes()] == ["a"]
    assert setting.finalizers.wake_at is not None


async def test_a_confirmation_that_is_spent_is_taken_off_root() -> None:
    """At the beginning of the next pass, which comes at once."""
    server = Server(root(finalizers=(FINALIZER,), annotations={SWEEP_ORPHANS: "7", "other": "x"}))
    setting = Setting(server)
    await setting.release(orphans=Orphans(spent=True))
    assert setting.finalizers.wake_at is not None
    await setting.begin()
    await setting.begin()
    assert server.wrote == [(ROOT, {"annotations": {SWEEP_ORPHANS: None}})]


async def test_a_confirmation_that_cannot_be_taken_off_is_waited_with_and_told() -> None:
    """Asking for a pass at once, again and again, would starve the Lease and the probes."""
    server = Server(root(finalizers=(FINALIZER,), annotations={SWEEP_ORPHANS: "7"}))
    server.refusals[ROOT] = "unavailable"
    setting = Setting(server)
    await setting.release(orphans=Orphans(spent=True))
    await setting.begin()
    for _ in range(5):
        await setting.release(orphans=Orphans(spent=True))
        assert setting.finalizers.wake_at is not None
        assert setting.finalizers.wake_at > setting.time().steady
        await setting.begin()
    assert server.wrote == [], "it is not tried again before its pause is over"
    (note,) = setting.finalizers.notes()
    assert f"its annotation {SWEEP_ORPHANS}, which is done with, could not be taken off" in (
        note.message
    )


# --- deletions that are none ------------------------------------------------------------------


async def test_nodes_whose_kind_is_taken_away_are_let_go_as_they_are() -> None:
    live = (stands(CLUSTER_QUEUE, "a", "gpu a100 1"),)
    server = Server(going(root()), going(team("a")), going(team("c"), OTHER), team("b"), live=live)
    server.stays = False
    setting = Setting(server)
    assert await setting.begin() is None
    assert server.wrote == [(ROOT, {"finalizers": []}), ("a", {"finalizers": []})]
    assert setting.finalizers.wake_at is not None


async def test_while_nobody_knows_whether_the_tree_stays_nothing_is_done() -> None:
    server = Server(root(), going(team("a")))
    server.stays = None
    setting = Setting(server)
    assert await setting.begin() is None
    assert server.wrote == []
    server.stays = True
    assert await setting.begin() is not None


async def test_the_question_is_asked_once_for_each_deletion() -> None:
    server = Server(root(), going(team("a")))
    setting = Setting(server)
    await setting.begin()
    await setting.begin()
    assert server.asked == 1
    server.nodes["b"] = going(team("b"))
    await setting.begin()
    assert server.asked == 2
    server.stays = False  # those that were ordered before go on being so
    assert await setting.begin() is not None


# --- in a pass --------------------------------------------------------------------------------


@pytest.mark.case("A-98")
async def test_a_pass_goes_on_without_the_node_that_cannot_be_claimed(
    folder: Any,  # noqa: F811
) -> None:
    async with Harness(folder).started() as harness:
        nodes: dict[str, tuple[str, ...]] = {}
        snapshot, applied = harness.cluster.snapshot, harness.cluster.apply
        order: list[str] = []

        def seen() -> World:
            world = snapshot()
            quotas = tuple(
                msgspec.structs.replace(one, finalizers=nodes.get(one.name, ()))
                for one in world.quotas or ()
            )
            return msgspec.structs.replace(world, quotas=quotas, has_finalizers=True)

        async def write(one: QuotaNode, metadata: Mapping[str, Any]) -> StatusResult:
            if one.name == "team-beta":
                return StatusResult(one.name, "failed", "forbidden")
            order.append(f"claim {one.name}")
            nodes[one.name] = tuple(metadata["finalizers"])
            return StatusResult(one.name, "written", record=one)

        async def apply(plan: Plan) -> Results:
            order.extend(f"{action.verb} {action.key.name}" for action in plan.actions)
            return await applied(plan)

        harness.cluster.snapshot = seen  # type: ignore[method-assign]
        harness.cluster.write_metadata = write  # type: ignore[method-assign,assignment]
        harness.cluster.apply = apply  # type: ignore[method-assign]
        await harness.settle()
        assert order.index("claim team-alpha") < order.index("create team-alpha")
        assert "create team-beta" not in order
        assert harness.condition("team-alpha", "Materialized") == ("True", "Admitted")
        told = harness.condition("team-beta", "Materialized")
        assert told == ("False", "MaterializationFailed")
