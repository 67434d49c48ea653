"""What the answers to a pass's writes teach."""

from datetime import UTC, datetime

from quota_translator.core.absorb import absorb
from quota_translator.core.actions import Action, Plan
from quota_translator.core.names import CLUSTER_QUEUE, Key
from quota_translator.core.render import Rendering
from quota_translator.core.results import Outcome, Result, Results
from quota_translator.core.world import Clock, Desired, Memory, Observed, Refusal, World

KEY = Key(CLUSTER_QUEUE, "", "team")
CLOCK = Clock(datetime(2026, 10, 5, tzinfo=UTC), 100.0)
LIVE = World(quotas=(), live={KEY: Observed(KEY, uid="u", quota="team")})
GONE = World(quotas=())
WANTED = Rendering(desired={KEY: Desired(KEY, "team", frozenset({"team"}), {"cohortName": "ml"})})


def after(
    world: World, rendering: Rendering, memory: Memory, action: Action, outcome: Outcome
) -> Memory:
    answer = Result(action.key, action.verb, action.stage, action.nodes, action.spec, outcome, "no")
    plan, results = Plan(actions=(action,)), Results((answer,))
    return absorb(memory, world, rendering, plan, results, CLOCK)


def idle(world: World, rendering: Rendering, memory: Memory) -> Memory:
    return absorb(memory, world, rendering, Plan(), Results(), CLOCK)


def test_a_refused_deletion_is_remembered_until_the_object_is_gone_or_wanted() -> None:
    delete = Action("delete", KEY, 4, uid="u")
    memory = after(LIVE, Rendering(), Memory(), delete, "refused")
    for _ in range(3):
        memory = idle(LIVE, Rendering(), memory)
        assert memory.refused == {KEY: Refusal({}, "no")}
    assert idle(GONE, Rendering(), memory).refused == {}


def test_a_refused_creation_is_forgotten_with_the_wish() -> None:
    create = Action("create", KEY, 2, {"cohortName": "ml"})
    memory = after(GONE, WANTED, Memory(), create, "refused")
    memory = idle(GONE, WANTED, memory)
    assert memory.refused == {KEY: Refusal({"cohortName": "ml"}, "no")}
    assert idle(GONE, Rendering(), memory).refused == {}


def test_a_write_that_the_server_took_ends_the_refusal() -> None:
    memory = Memory(refused={KEY: Refusal({"cohortName": "ml"}, "no")})
    update = Action("update", KEY, 1, {"cohortName": "other"}, ("cohortName",), uid="u")
    assert after(LIVE, WANTED, memory, update, "unavailable").refused == memory.refused
    assert after(LIVE, WANTED, memory, update, "written").refused == {}
