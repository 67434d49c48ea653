"""What a pass looks at, and when there is nothing to look at yet."""

from typing import Any

import pytest
import structlog

from quota_translator.core.names import ROOT
from quota_translator.core.results import SyncState
from quota_translator.core.world import Clock, QuotaNode, World
from quota_translator.errors import Forbidden
from quota_translator.view import View, has_root
from tests.test_controller import Time

TEAM = QuotaNode(name="team", role="ClusterQueue", parent=ROOT)
TOP = QuotaNode(name=ROOT, role="Cohort")


class Few:
    """As much of a cluster as a view needs."""

    def __init__(self) -> None:
        self.world = World(quotas=(TOP, TEAM))
        self.states: dict[str, SyncState] = {}
        self.forbidden = False
        self.created = 0

    def snapshot(self) -> World:
        return self.world

    def sync_states(self) -> dict[str, SyncState]:
        return self.states

    async def create_root(self) -> None:
        self.created += 1
        if self.forbidden:
            raise Forbidden("cannot create", verb="create", resource="acceleratorquotas")
        self.world = World(quotas=(TOP, *(self.world.quotas or ())))


class Setting:
    def __init__(self) -> None:
        self.cluster = Few()
        self.time = Time()
        cluster: Any = self.cluster
        self.view = View(cluster, self.time, lambda: 1.0)

    def now(self) -> Clock:
        return self.time()


@pytest.fixture
async def setting() -> Setting:
    return Setting()


async def test_a_start_waits_for_kinds_of_which_nothing_was_heard(setting: Setting) -> None:
    setting.cluster.states = {"Node": SyncState("Node", False, "not listed yet", decided=False)}
    assert await setting.view.world() is None
    assert setting.view.wake_at == pytest.approx(setting.now().steady + 30, abs=1)
    setting.cluster.states = {"Node": SyncState("Node", False, "no permission")}
    assert await setting.view.world() == setting.cluster.world
    assert setting.view.wake_at is None


async def test_it_does_not_wait_for_ever_nor_again(setting: Setting) -> None:
    setting.cluster.states = {"Node": SyncState("Node", False, "not listed yet", decided=False)}
    assert await setting.view.world() is None
    setting.time.ahead += 31
    assert await setting.view.world() is not None


async def test_without_the_tree_there_is_nothing_to_see(setting: Setting) -> None:
    setting.cluster.world = World(quotas=None)
    assert await setting.view.world() is None
    assert setting.cluster.created == 0


@pytest.mark.case("A-99")
async def test_root_is_created_before_anything_is_judged(setting: Setting) -> None:
    setting.cluster.world = World(quotas=(TEAM,))
    world = await setting.view.world()
    assert world is not None
    assert has_root(world)


@pytest.mark.case("A-99")
async def test_a_root_that_cannot_be_created_is_tried_again_with_pauses(setting: Setting) -> None:
    setting.cluster.world = World(quotas=(TEAM,))
    setting.cluster.forbidden = True
    with structlog.testing.capture_logs() as logs:
        for _ in range(3):
            world = await setting.view.world()
            assert world is not None
            assert not has_root(world)
    assert [(line["event"], line["log_level"]) for line in logs] == [
        ("root not created", "warning")
    ]
    assert setting.cluster.created == 1
    assert setting.view.wake_at == pytest.approx(setting.now().steady + 0.5, abs=0.2)
    setting.time.ahead += 1
    await setting.view.world()
    assert setting.cluster.created == 2
    setting.cluster.world = World(quotas=(TOP, TEAM))
    await setting.view.world()
    assert setting.view.wake_at is None
