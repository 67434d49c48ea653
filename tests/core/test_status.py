"""What the statuses say of every node."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from quota_translator.core.actions import Action, Plan
from quota_translator.core.capacity import Reading, measure
from quota_translator.core.envelope import Overdraft
from quota_translator.core.inforce import is_settled
from quota_translator.core.model_status import AcceleratorQuotaStatus
from quota_translator.core.names import (
    CLUSTER_QUEUE,
    COHORT,
    KINDS,
    LOCAL_QUEUE,
    ROOT,
    Key,
    Pair,
)
from quota_translator.core.notes import (
    DRIFT_CONTESTED,
    FLAVOR_MISSING,
    KUEUE_UNAVAILABLE,
    OBJECT_CONFLICT,
    Note,
)
from quota_translator.core.options import CapacityOptions, MaterializeOptions, Options
from quota_translator.core.plan import plan
from quota_translator.core.quantity import ZERO, Quantity
from quota_translator.core.remembered import (
    advance_frozen,
    frozen_since_from,
    over_since_from,
)
from quota_translator.core.render import Rendering, render
from quota_translator.core.status import Status, statuses, summary
from quota_translator.core.statusdiff import same
from quota_translator.core.times import stamp
from quota_translator.core.tree import grow
from quota_translator.core.usage import Use, read_usage
from quota_translator.core.verdict import Frozen, Oversubscription, Verdict
from quota_translator.core.world import (
    Amount,
    CapacityRow,
    Clock,
    Facts,
    Flavor,
    Holder,
    Memory,
    Namespace,
    Node,
    Observed,
    QuotaNode,
    World,
)
from tests.core.build import judged, node, root, rows, team

OURS = "quota-translator"
GPU = Pair("nvidia.com/gpu", "a100")
WALL = datetime(2026, 10, 5, 9, 41, 12, tzinfo=UTC)
NOW = "2026-10-05T09:41:12Z"
BEFORE = "2026-10-01T00:00:00Z"
CLOCK = Clock(WALL, 1000.0)
ON = Options(materialize=MaterializeOptions(enrolled_namespaces=("ml-serving",)))
NOTHING_WRITTEN = Options()
FLAVORS = (Flavor("a100", node_labels={"gpu": "a100"}),)


def q(amount: int) -> Quantity:
    return Quantity.of(amount)


def guide(**of_team: Any) -> tuple[QuotaNode, ...]:
    of_team = {"gpu": "8 +4", "generation": 3} | of_team
    return (root(generation=1), node("ml", gpu=24), team("beta", parent="ml", **of_team))


class Scene:
    """A tree in a world, and its statuses. By default everything is in Kueue as it should be."""

    def __init__(
        self,
        *quotas: QuotaNode,
        options: Options = ON,
        marks: Mapping[Pair, CapacityRow] | None = None,
    ) -> None:
        self.options = options
        self.tree = grow(quotas)
        self.capacity = marks or {}
        self.verdict = judged(*quotas, capacity=self.capacity)
        self.world = World(
            quotas=quotas,
            flavors=FLAVORS,
            namespaces=(Namespace("ml-serving"),),
            known=frozenset(KINDS),
        )
        self.memory = Memory()
        self.rendering = self._rendered()
        live = {
            key: Observed(
                key,
                generation=1,
                managed_by=OURS,
                quota=wanted.quota,
                part=wanted.part,
                spec=wanted.spec,
                active=True,
                active_generation=1,
                usage={},
                reservation={},
            )
            for key, wanted in self.rendering.desired.items()
        }
        self.world = msgspec.structs.replace(self.world, live=live)
        self.plan = Plan()
        self.reading: Reading | None = None
        self.notes: tuple[Note, ...] = ()
        self.written: frozenset[Key] = frozenset()

    def _rendered(self) -> Rendering:
        return render(self.tree, self.verdict.frozen, self.world, self.memory, self.options, CLOCK)

    def replan(self) -> None:
        """The plan that this world really leads to."""
        self.plan = plan(
            self.rendering.desired,
            self.rendering.kept,
            self.tree,
            self.world,
            self.memory,
            self.options,
            CLOCK,
        )

    def see(self, key: Key, **fields: Any) -> None:
        """Change what the store shows of an object; `gone=True` takes it away."""
        live = dict(self.world.live)
        if fields.pop("gone", False):
            del live[key]
        else:
            live[key] = msgspec.structs.replace(live[key], **fields)
        self.world = msgspec.structs.replace(self.world, live=live)

    def use(self, name: str, admitted: int, reserved: int = 0, borrowed: int = 0) -> None:
        self.see(
            queue(name),
            usage={GPU: Amount(q(admitted), q(borrowed))},
            reservation={GPU: Amount(q(reserved), ZERO)},
        )

    def forget_kinds(self) -> None:
        self.world = msgspec.structs.replace(self.world, known=frozenset(), live={})

    def statuses(self, clock: Clock = CLOCK) -> dict[str, Status]:
        found = statuses(
            self.tree,
            self.verdict,
            self.rendering,
            self.plan,
            read_usage(self.tree, self.world, OURS),
            self.capacity,
            self.reading,
            self.world,
            self.memory,
            self.options,
            clock,
            self.notes,
            self.written,
        )
        for status in found.values():
            AcceleratorQuotaStatus.model_validate(status)  # what the API server would refuse
        return found

    def status(self, name: str, clock: Clock = CLOCK) -> Status:
        return self.statuses(clock)[name]

    def conditions(self, name: str) -> dict[str, dict[str, Any]]:
        return {one["type"]: one for one in self.status(name)["conditions"]}

    def told(self, name: str) -> list[str]:
        """As the guide prints conditions."""
        return [
            f"{one['type']}={one['status']} {one['reason']}: {one['message']}"
            for one in self.status(name)["conditions"]
        ]


def queue(name: str) -> Key:
    return Key(CLUSTER_QUEUE, "", name)


def cohort(name: str) -> Key:
    return Key(COHORT, "", name)


SOUND = [
    "Ready=True Admitted: node is a valid member of the quota tree",
    "Degraded=False Admitted: no invariant violated",
    "Materialized=True Admitted: enforcement objects match this node's budget",
]


# --- the three conditions ---------------------------------------------------------------------


@pytest.mark.parametrize("name", ["root", "ml", "beta"])
def test_a_sound_node_that_kueue_has_says_so_in_three_lines(name: str) -> None:
    assert Scene(*guide()).told(name) == SOUND


def test_materialized_is_there_only_while_something_may_be_written() -> None:
    assert Scene(*guide(), options=NOTHING_WRITTEN).told("beta") == SOUND[:2]


@pytest.mark.case("A-16")
def test_a_descendant_says_what_its_ancestor_says_and_its_own_fault_wins() -> None:
    scene = Scene(
        root(),
        node("ml", gpu=4, parent="gone"),
        team("beta", gpu=4, parent="ml"),
        team("empty", parent="ml"),
    )

    above, beneath = scene.conditions("ml"), scene.conditions("beta")
    assert above["Ready"]["reason"] == "ParentMissing"
    for kind in ("Ready", "Degraded"):
        for field in ("status", "reason", "message"):
            expected = scene.verdict.frozen["beta"]
            assert (
                beneath[kind][field]
                == {
                    "status": "False" if kind == "Ready" else "True",
                    "reason": expected.reason,
                    "message": expected.message,
                }[field]
            )
    assert scene.conditions("empty")["Ready"]["message"] == scene.verdict.frozen["empty"].message


@pytest.mark.case("A-17")
def test_several_faults_show_the_structural_one_first_and_all_in_the_message() -> None:
    scene = Scene(root(), node("ml", gpu=64), team("beta", gpu=80, parent="ml"), marks=rows(gpu=32))

    told = scene.conditions("ml")["Ready"]

    assert told["reason"] == "ContainmentViolated"
    assert "64" in told["message"]
    assert "80" in told["message"]
    assert "32" in told["message"]
    assert scene.told("ml") == Scene(
        *reversed(list(scene.tree.nodes.values())), marks=rows(gpu=32)
    ).told("ml")


@pytest.mark.parametrize("name", ["ml", "beta"])
def test_degraded_is_the_exact_opposite_of_ready(name: str) -> None:
    scene = Scene(*guide(), marks=rows(gpu=16))

    ready, degraded = scene.conditions(name)["Ready"], scene.conditions(name)["Degraded"]

    assert (ready["status"], degraded["status"]) == ("False", "True")
    assert ready["reason"] == degraded["reason"] == "CapacityExceeded"
    assert ready["message"] == degraded["message"]


def test_a_frozen_node_says_that_its_objects_stay_whatever_else_is_noted() -> None:
    scene = Scene(*guide(), marks=rows(gpu=16))
    scene.notes = (Note("beta", KUEUE_UNAVAILABLE, "Kueue's webhook is down"),)

    assert scene.told("beta")[2] == (
        "Materialized=False Frozen: held at its last good state, nothing is written or removed "
        "(CapacityExceeded)"
    )


def test_each_condition_speaks_of_the_generation_that_was_looked_at() -> None:
    status = Scene(*guide()).status("beta")

    assert status["observedGeneration"] == 3
    assert {one["observedGeneration"] for one in status["conditions"]} == {3}


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        pytest.param([], NOW, id="none before"),
        pytest.param([{"status": "True", "lastTransitionTime": BEFORE}], BEFORE, id="no flip"),
        pytest.param([{"status": "False", "lastTransitionTime": BEFORE}], NOW, id="a flip"),
        pytest.param([{"status": "True"}], NOW, id="a condition without a time"),
        pytest.param("odd", NOW, id="conditions that are none"),
    ],
)
def test_a_condition_keeps_its_time_until_its_status_flips(before: Any, expected: str) -> None:
    if isinstance(before, list):
        before = [{"type": "Ready", "reason": "Another", "message": "other"} | c for c in before]
    scene = Scene(*guide(status={"conditions": before}))

    assert scene.conditions("beta")["Ready"]["lastTransitionTime"] == expected


def test_a_message_longer_than_the_api_takes_is_cut_and_says_so() -> None:
    scene = Scene(*guide())
    scene.verdict = Verdict(frozen={"beta": Frozen("BudgetInvalid", "x" * 40000, "beta")})

    message = scene.conditions("beta")["Ready"]["message"]

    assert len(message) == 32768
    assert message.endswith("(cut)")


# --- Materialized -----------------------------------------------------------------------------


def test_the_foremost_reason_is_shown_with_all_messages_of_that_reason() -> None:
    scene = Scene(*guide())
    scene.rendering = msgspec.structs.replace(
        scene.rendering, notes=(Note("beta", FLAVOR_MISSING, "flavor h100 does not exist"),)
    )
    scene.plan = Plan(notes=(Note("beta", OBJECT_CONFLICT, "ClusterQueue beta is another's"),))
    scene.notes = (
        Note("beta", DRIFT_CONTESTED, "resourceGroups"),
        Note("beta", OBJECT_CONFLICT, "LocalQueue ml-serving/beta is another's"),
        Note("ml", DRIFT_CONTESTED, "parentName"),
    )

    assert scene.told("beta")[2] == (
        "Materialized=False ObjectConflict: ClusterQueue beta is another's; "
        "LocalQueue ml-serving/beta is another's"
    )
    assert scene.told("ml")[2] == "Materialized=False DriftContested: parentName"
    assert scene.told("root") == SOUND


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param({"active": None}, SOUND[2], id="Kueue has not told yet"),
        pytest.param(
            {"active": False, "active_reason": "FlavorNotFound", "active_message": "no h100"},
            "Materialized=False QueueInactive: Kueue holds ClusterQueue beta inactive "
            "(FlavorNotFound): no h100",
            id="inactive for a reason of Kueue's",
        ),
        pytest.param(
            {"active": False},
            "Materialized=False QueueInactive: Kueue holds ClusterQueue beta inactive "
            "(no reason given)",
            id="inactive without one",
        ),
        pytest.param(
            {"active": False, "active_reason": "Stopped", "stop_policy": "HoldAndDrain"},
            f"{SOUND[2]}; ClusterQueue beta is stopped by a person (stopPolicy HoldAndDrain): "
            "nothing new is admitted",
            id="a stop is no fault",
        ),
        pytest.param(
            {"stop_policy": "Hold"},
            f"{SOUND[2]}; ClusterQueue beta is stopped by a person (stopPolicy Hold): nothing new "
            "is admitted; what runs goes on, keeps what it borrowed, and cannot be evicted by "
            "those who lent it, who need HoldAndDrain or patience",
            id="a stop that Kueue has not taken yet",
        ),
        pytest.param(
            {"stop_policy": "HoldAndDrain", "spec": {"stopPolicy": "HoldAndDrain"}},
            f"{SOUND[2]}; ClusterQueue beta is stopped as spec.stopPolicy says (stopPolicy "
            "HoldAndDrain): nothing new is admitted",
            id="a stop that the tree asks for",
        ),
        pytest.param({"stop_policy": "None"}, SOUND[2], id="no stop"),
        pytest.param(
            {"peoples": ("queueingStrategy StrictFIFO", "admissionScope")},
            f"{SOUND[2]}; ClusterQueue beta has what people set: queueingStrategy StrictFIFO, "
            "admissionScope",
            id="what people set is theirs, and shown",
        ),
        pytest.param(
            {"deleting": True},
            "Materialized=False QueueInactive: ClusterQueue beta is being deleted and admits "
            "nothing new; Kueue ends it when idle",
            id="a queue on its way out, which older Kueues call active",
        ),
    ],
)
def test_what_kueue_says_of_the_queue_decides(fields: Any, expected: str) -> None:
    scene = Scene(*guide())
    scene.see(queue("beta"), **fields)

    assert scene.told("beta")[2] == expected


LOCAL = Key(LOCAL_QUEUE, "ml-serving", "beta")


def test_a_node_whose_objects_are_not_all_there_is_on_its_way() -> None:
    scene = Scene(*guide())
    scene.see(LOCAL, gone=True)
    assert scene.told("beta")[2] == (
        "Materialized=False Progressing: LocalQueue ml-serving/beta being written"
    )
    scene.see(queue("beta"), gone=True)
    assert scene.told("beta")[2] == (
        "Materialized=False Progressing: ClusterQueue beta and 1 more being written"
    )
    assert scene.told("ml") == SOUND


def test_a_foreign_object_of_the_same_name_does_not_count_as_there() -> None:
    scene = Scene(*guide())
    scene.see(queue("beta"), managed_by="another")

    assert scene.conditions("beta")["Materialized"]["reason"] == "Progressing"


def test_a_planned_write_keeps_a_node_on_its_way_until_it_has_succeeded() -> None:
    scene = Scene(*guide())
    wanted = scene.rendering.desired[queue("beta")]
    whole = Action("update", queue("beta"), 3, spec=wanted.spec, nodes=frozenset({"beta"}))
    interim = msgspec.structs.replace(whole, spec={"cohortName": "ml"}, stage=1)
    scene.see(queue("beta"), spec={"cohortName": "ml"})

    scene.plan = Plan(actions=(whole,))
    assert scene.conditions("beta")["Materialized"]["reason"] == "Progressing"
    scene.written = frozenset({queue("beta")})
    assert scene.told("beta") == SOUND
    scene.plan = Plan(actions=(interim,))
    assert scene.conditions("beta")["Materialized"]["reason"] == "Progressing"


def test_an_object_that_was_created_after_the_snapshot_is_there() -> None:
    scene = Scene(*guide())
    scene.see(LOCAL, gone=True)
    scene.written = frozenset({LOCAL})

    assert scene.told("beta") == SOUND


def test_a_deletion_that_is_planned_keeps_its_node_on_its_way() -> None:
    scene = Scene(*guide())
    old = Key(LOCAL_QUEUE, "old", "beta")
    scene.plan = Plan(actions=(Action("delete", old, 4, nodes=frozenset({"beta"})),))
    assert scene.told("beta")[2] == (
        "Materialized=False Progressing: LocalQueue old/beta being written"
    )
    scene.written = frozenset({old})
    assert scene.told("beta") == SOUND


def test_an_object_that_waits_keeps_its_node_on_its_way() -> None:
    scene = Scene(*guide())
    scene.plan = Plan(waiting={queue("beta"): "Kueue takes the shrink of ClusterQueue alpha"})

    assert scene.told("beta")[2] == (
        "Materialized=False Progressing: Kueue takes the shrink of ClusterQueue alpha"
    )


def test_a_first_pass_is_on_its_way_until_all_that_it_planned_is_written() -> None:
    scene = Scene(*guide())
    scene.world = msgspec.structs.replace(scene.world, live={})
    scene.replan()
    keys = frozenset(action.key for action in scene.plan.actions)
    assert keys == set(scene.rendering.desired)

    assert {scene.conditions(name)["Materialized"]["reason"] for name in scene.tree.nodes} == {
        "Progressing"
    }
    scene.written = keys - {queue("beta"), cohort("ml")}
    assert scene.told("beta")[2] == (
        "Materialized=False Progressing: ClusterQueue beta being written"
    )
    assert scene.told(ROOT) == SOUND


def test_an_object_that_cannot_go_yet_is_told_on_its_node_or_on_root() -> None:
    scene = Scene(*guide())
    gone, stays = cohort("gone"), cohort("ml")
    scene.world = msgspec.structs.replace(
        scene.world,
        live={
            **scene.world.live,
            gone: Observed(gone, managed_by=OURS, quota="gone"),
        },
    )
    scene.plan = Plan(held={gone: "ClusterQueue x names it", stays: "Cohort y names it"})

    assert scene.told(ROOT)[2] == (
        f"{SOUND[2]}; no longer wanted and still there: Cohort gone: ClusterQueue x names it"
    )
    assert scene.told("ml")[2].endswith("Cohort ml: Cohort y names it")


@pytest.mark.case("FC-G05")
@pytest.mark.parametrize(("use", "is_told"), [(q(6), True), (q(0), False), (None, False)])
def test_a_pair_that_was_dropped_in_use_is_told_until_it_is_free(
    use: Quantity | None, is_told: bool
) -> None:
    scene = Scene(*guide())
    held = {("beta", Pair("nvidia.com/gpu", "l4")): use}
    scene.rendering = msgspec.structs.replace(scene.rendering, held=held)

    more = "nvidia.com/gpu on l4 is budgeted no more and stays in the queue at 0 until"
    assert scene.told("beta")[2] == (f"{SOUND[2]}; {more} nothing uses it" if is_told else SOUND[2])
    assert scene.told("ml") == SOUND


def test_many_objects_that_cannot_go_are_told_in_one_bounded_line() -> None:
    scene = Scene(*guide())
    scene.plan = Plan(held={cohort(f"old-{n}"): "ClusterQueue x names it" for n in range(9)})

    assert scene.told(ROOT)[2].endswith("Cohort old-3: ClusterQueue x names it; and 5 more")


def test_kinds_that_cannot_be_read_are_named() -> None:
    scene = Scene(*guide())
    scene.forget_kinds()

    assert scene.told("beta")[2].startswith(
        "Materialized=False KueueUnavailable: ClusterQueue, LocalQueue"
    )
    assert scene.told("ml")[2].startswith("Materialized=False KueueUnavailable: Cohort")


def test_a_team_is_not_in_kueue_while_namespaces_cannot_be_read() -> None:
    scene = Scene(*guide())
    scene.world = msgspec.structs.replace(scene.world, namespaces=None)
    assert scene.conditions("beta")["Materialized"]["status"] == "True"  # files: there are none

    scene.world = msgspec.structs.replace(scene.world, facts=Facts(served=frozenset(KINDS)))
    assert scene.told("beta")[2] == (
        "Materialized=False KueueUnavailable: namespaces cannot be read, so no LocalQueue is "
        "written or deleted"
    )
    assert scene.conditions("ml")["Materialized"]["status"] == "True"


def test_a_node_for_which_nothing_is_rendered_is_not_called_materialized() -> None:
    scene = Scene(*guide())
    scene.rendering = Rendering()

    assert scene.conditions("beta")["Materialized"]["reason"] == "Progressing"


# --- place, summary, budgets ------------------------------------------------------------------


def test_place_and_path_are_there_as_far_as_they_are_known() -> None:
    scene = Scene(*guide(), team("lost", gpu=1, parent="gone"))

    found = {
        name: (status.get("parent"), status.get("path"))
        for name, status in scene.statuses().items()
    }

    assert found == {
        "root": (None, "root"),
        "ml": ("root", "root/ml"),
        "beta": ("ml", "root/ml/beta"),
        "lost": ("gone", None),
    }


@pytest.mark.parametrize(
    ("budgets", "uses", "expected"),
    [
        pytest.param(("gpu a100 8 +4",), {GPU: 4}, "nvidia.com/gpu a100 4/8+4", id="with a limit"),
        pytest.param(("gpu a100 8 +0",), {GPU: 0}, "nvidia.com/gpu a100 0/8", id="none to borrow"),
        pytest.param(("gpu a100 8",), {}, "nvidia.com/gpu a100 ?/8", id="use not known"),
        pytest.param(
            ("gpu a100 8", "tpu v5p 2000"),
            {GPU: 3},
            "google.com/tpu v5p ?/2k, nvidia.com/gpu a100 3/8",
            id="several pairs in their order",
        ),
        pytest.param((), {}, "", id="none"),
    ],
)
def test_the_summary_is_used_by_share(
    budgets: tuple[str, ...], uses: dict[Pair, int], expected: str
) -> None:
    figures = {pair: Use(q(n), q(n), ZERO) for pair, n in uses.items()}

    assert summary(team("a", *budgets), figures) == expected


@pytest.mark.case("A-88")
def test_a_node_without_budgets_has_no_rows_and_a_row_at_zero_stays() -> None:
    scene = Scene(*guide())
    scene.use("beta", 0)

    assert "budgets" not in scene.status(ROOT)
    assert "summary" not in scene.status(ROOT)
    assert scene.status("beta")["budgets"] == [
        {
            "resourceName": "nvidia.com/gpu",
            "resourceFlavor": "a100",
            "nominal": "8",
            "inForce": "8",
            "admitted": "0",
            "reserved": "0",
            "borrowed": "0",
            "over": "0",
        }
    ]


def test_a_use_that_is_not_known_is_absent_and_not_zero() -> None:
    scene = Scene(*guide())
    scene.see(queue("beta"), gone=True)

    (row,) = scene.status("beta")["budgets"]

    assert row == {"resourceName": "nvidia.com/gpu", "resourceFlavor": "a100", "nominal": "8"}


def test_two_budgets_on_one_pair_make_one_row() -> None:
    scene = Scene(root(), team("beta", "gpu a100 8", "gpu a100 9"))

    assert [row["nominal"] for row in scene.status("beta")["budgets"]] == ["8"]


def test_over_says_by_how_much_and_since_when() -> None:
    scene = Scene(*guide(gpu="4 +1"))
    scene.use("beta", 8, 8, 4)
    assert scene.status("beta")["budgets"][0]["over"] == "3"
    assert scene.status("beta")["budgets"][0]["overSince"] == NOW

    scene.memory = Memory(over_since={("beta", GPU): WALL - timedelta(days=1)})
    row = scene.status("beta")["budgets"][0]
    assert row["overSince"] == "2026-10-04T09:41:12Z"
    assert over_since_from([team("beta", status={"budgets": [row]})]) == {
        ("beta", GPU): WALL - timedelta(days=1)
    }


# --- in force ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seen", "last", "expected"),
    [
        pytest.param({}, None, "8", id="Kueue speaks of this spec"),
        pytest.param({"generation": 2}, "6", "6", id="not yet: what was seen last stands"),
        pytest.param({"generation": 2}, None, None, id="not yet, and nothing was seen before"),
        pytest.param({"active": None}, None, None, id="Kueue has told nothing"),
        pytest.param({"active": False}, None, "8", id="inactive, and taken all the same"),
        pytest.param({"spec": {"cohortName": "ml"}}, None, "0", id="the queue lacks the pair"),
        pytest.param({"gone": True}, "6", None, id="no queue"),
        pytest.param({"managed_by": "another"}, "6", None, id="another's queue"),
        pytest.param({"generation": 2}, "odd", None, id="a last figure that is none"),
    ],
)
def test_in_force_is_what_kueue_is_seen_to_enforce(
    seen: Any, last: str | None, expected: str | None
) -> None:
    before = {"resourceName": "nvidia.com/gpu", "resourceFlavor": "a100", "inForce": last}
    scene = Scene(*guide(status={"budgets": [before]} if last else {}))
    scene.see(queue("beta"), **dict(seen))

    assert scene.status("beta")["budgets"][0].get("inForce") == expected


def test_in_force_is_not_known_while_queues_cannot_be_read() -> None:
    scene = Scene(*guide())
    scene.forget_kinds()

    assert "inForce" not in scene.status("beta")["budgets"][0]


@pytest.mark.parametrize(
    ("name", "seen", "expected"),
    [
        pytest.param("beta", {}, True, id="Kueue speaks of this spec"),
        pytest.param("beta", {"generation": 2}, False, id="not yet"),
        pytest.param("beta", {"active": None}, False, id="Kueue has told nothing"),
        pytest.param("beta", {"gone": True}, True, id="no queue"),
        pytest.param("ml", {"generation": 2}, True, id="a group has no queue"),
    ],
)
def test_a_node_is_settled_when_kueue_has_taken_its_queue(
    name: str, seen: Any, expected: bool
) -> None:
    scene = Scene(*guide())
    scene.see(queue("beta"), **dict(seen))

    assert is_settled(name, scene.world) is expected


def envelope(**of_team: Any) -> Scene:
    return Scene(root(), node("ml", "gpu a100 24 !"), team("beta", gpu=8, parent="ml", **of_team))


def test_the_share_of_an_enforced_group_is_its_cohorts_and_all_beneath_it() -> None:
    scene = envelope()
    assert scene.status("ml")["budgets"][0]["inForce"] == "24"

    foreign = queue("stranger")
    scene.world = msgspec.structs.replace(
        scene.world,
        live={
            **scene.world.live,
            foreign: msgspec.structs.replace(
                scene.world.live[queue("beta")], key=foreign, managed_by=None, quota=None
            ),
        },
    )
    assert scene.status("ml")["budgets"][0]["inForce"] == "32"
    scene.see(foreign, generation=9)
    assert "inForce" not in scene.status("ml")["budgets"][0]


def test_the_share_of_a_group_that_is_not_enforced_is_enforced_by_nobody() -> None:
    assert "inForce" not in Scene(*guide()).status("ml")["budgets"][0]


@pytest.mark.parametrize("fields", [{"gone": True}, {"managed_by": "another"}])
def test_without_our_cohort_no_share_of_a_group_is_in_force(fields: Any) -> None:
    scene = envelope()
    scene.see(cohort("ml"), **dict(fields))

    assert "inForce" not in scene.status("ml")["budgets"][0]


def test_a_loop_of_cohorts_ends() -> None:
    scene = envelope()
    loop = cohort("x")
    scene.world = msgspec.structs.replace(
        scene.world,
        live={
            **scene.world.live,
            loop: Observed(loop, spec={"parentName": "ml"}),
            cohort("ml"): msgspec.structs.replace(
                scene.world.live[cohort("ml")],
                spec={**scene.world.live[cohort("ml")].spec, "parentName": "x"},
            ),
        },
    )

    assert scene.status("ml")["budgets"][0]["inForce"] == "24"


# --- materialization --------------------------------------------------------------------------


def test_a_frozen_node_says_since_when_and_why_and_what_kueue_last_had() -> None:
    before = {"materialization": {"frozen": False, "lastAppliedGeneration": 2}}
    scene = Scene(*guide(status=before), marks=rows(gpu=16))

    status = scene.status("beta")
    assert status["materialization"] == {
        "frozen": True,
        "frozenAt": NOW,
        "reason": "CapacityExceeded",
        "lastAppliedGeneration": 2,
    }
    later = Clock(WALL + timedelta(hours=1), 4600.0)
    again = Scene(*guide(status=status), marks=rows(gpu=16))
    assert again.status("beta", later)["materialization"]["frozenAt"] == NOW
    again.memory = Memory(frozen_since={"beta": WALL - timedelta(hours=2)})
    assert again.status("beta", later)["materialization"]["frozenAt"] == "2026-10-05T07:41:12Z"


def test_the_generation_that_kueue_has_moves_only_when_it_has_all_of_it() -> None:
    before = {"materialization": {"lastAppliedGeneration": 2}}
    scene = Scene(*guide(status=before))
    assert scene.status("beta")["materialization"] == {"frozen": False, "lastAppliedGeneration": 3}

    scene.see(LOCAL, gone=True)
    assert scene.status("beta")["materialization"]["lastAppliedGeneration"] == 2


def test_times_of_freezing_are_read_back_and_carried_on() -> None:
    def stored(name: str, **materialization: Any) -> QuotaNode:
        return team(name, status={"materialization": materialization})

    nodes = (
        stored("a", frozen=True, frozenAt=BEFORE),
        stored("b", frozen=False, frozenAt=BEFORE),
        stored("c", frozen=True, frozenAt="once"),
        team("d", status={"materialization": "odd"}),
    )
    since = frozen_since_from(nodes)
    assert since == {"a": datetime(2026, 10, 1, tzinfo=UTC)}

    fault = Frozen("ParentMissing", "x", "a")
    assert advance_frozen(Verdict(frozen={"a": fault, "c": fault}), since, CLOCK) == {
        "a": datetime(2026, 10, 1, tzinfo=UTC),
        "c": WALL,
    }
    assert advance_frozen(Verdict(), since, CLOCK) == {}


# --- conditions while they hold ---------------------------------------------------------------


def test_an_overdrawn_envelope_is_told_with_its_numbers_and_touches_nothing_else() -> None:
    scene = envelope()
    scene.rendering = msgspec.structs.replace(
        scene.rendering,
        overdrawn={("ml", GPU): Overdraft(q(24), q(30), q(6), q(4), ZERO)},
        foreign_members={"ml": ("ClusterQueue y", "ClusterQueue x")},
    )

    found = scene.conditions("ml")

    assert found["Ready"]["status"] == "True"
    assert found["EnvelopeOverdrawn"]["status"] == "True"
    for number in ("30", "24", "6", "4"):
        assert number in found["EnvelopeOverdrawn"]["message"]
    assert str(GPU) in found["EnvelopeOverdrawn"]["message"]
    assert found["ForeignMember"]["message"].startswith("ClusterQueue x, ClusterQueue y ")
    assert "EnvelopeOverdrawn" not in scene.conditions("beta")


def test_oversubscription_is_told_on_root_and_goes_when_it_ends() -> None:
    scene = Scene(*guide())
    scene.verdict = Verdict(oversubscribed=(Oversubscription(GPU, q(40), q(32)),))

    told = scene.conditions(ROOT)["Oversubscribed"]
    assert told["status"] == "True"
    assert "40" in told["message"]
    assert "32" in told["message"]
    assert told["message"].endswith("(the largest: ml 24)")
    assert scene.conditions(ROOT)["Ready"]["status"] == "True"

    stored = scene.status(ROOT)
    after = Scene(root(status=stored), *guide()[1:])
    assert "Oversubscribed" not in after.conditions(ROOT)


def twins() -> Reading:
    flavors = (Flavor("a100", node_labels={"g": "1"}), Flavor("copy", node_labels={"g": "1"}))
    devices = {"nvidia.com/gpu": q(8)}
    return measure([Node("n1", {"g": "1"}, devices, devices)], flavors, [GPU.resource], frozenset())


def test_torn_nodes_are_told_on_root_until_a_measurement_finds_none() -> None:
    scene = Scene(*guide())
    scene.reading = twins()
    torn = scene.status(ROOT)
    assert torn["unattributed"][0]["flavors"] == ["a100", "copy"]
    assert scene.conditions(ROOT)["AmbiguousFlavor"]["message"].startswith("8 nvidia.com/gpu on 1")

    unread = Scene(root(status=torn), *guide()[1:])
    assert unread.status(ROOT)["unattributed"] == torn["unattributed"]
    assert unread.conditions(ROOT)["AmbiguousFlavor"] == torn["conditions"][-1]

    unread.reading = Reading({})
    assert "unattributed" not in unread.status(ROOT)
    assert "AmbiguousFlavor" not in unread.conditions(ROOT)


def test_with_measuring_off_nothing_of_an_earlier_measurement_is_told() -> None:
    scene = Scene(*guide())
    scene.reading = twins()
    off = msgspec.structs.replace(ON, capacity=CapacityOptions(resources=()))

    after = Scene(root(status=scene.status(ROOT)), *guide()[1:], options=off)

    assert "unattributed" not in after.status(ROOT)
    assert "AmbiguousFlavor" not in after.conditions(ROOT)


# --- the whole --------------------------------------------------------------------------------


def test_root_alone_says_who_writes_the_tree() -> None:
    scene = Scene(*guide())
    assert not any("controller" in status for status in scene.statuses().values())
    scene.memory = Memory(holder=Holder("platform", "quota-translator", "lease-1"))
    found = scene.statuses()
    assert [name for name, status in found.items() if "controller" in status] == ["root"]
    assert found["root"]["controller"] == {
        "namespace": "platform",
        "lease": "quota-translator",
        "uid": "lease-1",
        "seenAt": NOW,
    }


@pytest.mark.parametrize("report_interval", [0.0, 60.0, 600.0])
def test_the_claim_is_renewed_as_often_whatever_the_stamps_do(report_interval: float) -> None:
    """Another controller has settings of its own, and must know when this claim is overdue."""
    options = msgspec.structs.replace(ON, capacity=CapacityOptions(report_interval=report_interval))
    holder = Holder("platform", "quota-translator", "lease-1")
    for age, is_new in ((74, False), (75, True)):
        seen = stamp(WALL - timedelta(seconds=age))
        row = {"namespace": "platform", "lease": "quota-translator", "uid": "lease-1"}
        scene = Scene(root(status={"controller": row | {"seenAt": seen}}), options=options)
        scene.memory = Memory(holder=holder)
        assert scene.status(ROOT)["controller"]["seenAt"] == (NOW if is_new else seen)


def test_only_root_has_rows_of_capacity_and_a_tree_without_root_has_none() -> None:
    scene = Scene(*guide(), marks=rows("tpu a100 never", "gpu a100 32"))
    found = scene.statuses()
    assert [row["resourceName"] for row in found[ROOT]["capacity"]] == [
        "google.com/tpu",
        "nvidia.com/gpu",
    ]
    assert "capacity" not in found["ml"]
    assert set(Scene(*guide()[1:], marks=rows(gpu=32)).statuses()) == {"ml", "beta"}


@pytest.mark.case("A-37", "A-89")
def test_a_pass_that_changes_nothing_gives_the_same_statuses_and_use_another() -> None:
    first = Scene(*guide(), marks=rows(gpu=32))
    first.reading = twins()
    first.use("beta", 13, 13, 5)
    stored = first.statuses()

    again = Scene(
        *(msgspec.structs.replace(n, status=stored[n.name]) for n in first.tree.nodes.values()),
        marks=rows(gpu=32),
    )
    again.memory = Memory(over_since=over_since_from(again.tree.nodes.values()))
    again.use("beta", 13, 13, 5)
    later = again.statuses(Clock(WALL + timedelta(days=1), 87400.0))
    assert later == stored
    assert all(same(stored[name], later[name]) for name in stored)

    again.use("beta", 14, 14, 6)
    changed = again.statuses()
    assert not same(stored["beta"], changed["beta"])
    assert not same(stored["ml"], changed["ml"])
    assert same(stored[ROOT], changed[ROOT])


@pytest.mark.case("FC-A04")
def test_a_flapping_node_costs_a_write_only_when_a_number_moves() -> None:
    def seen(ready: bool, pool: int = 4) -> Status:
        devices = {"nvidia.com/gpu": q(8)}
        nodes = [
            Node(f"n{i}", {"gpu": "a100"}, devices, devices, ready=ready or i != 3)
            for i in range(pool)
        ]
        scene = Scene(*guide(), marks=_marks(nodes))
        return scene.status(ROOT)

    calm, flapped = seen(True), seen(False)
    assert not same(calm, flapped)
    assert same(flapped, seen(False))
    assert {row["highWaterMark"] for row in (calm["capacity"][0], flapped["capacity"][0])} == {"32"}
    ready = [one for one in flapped["conditions"] if one["type"] == "Ready"]
    assert ready[0]["status"] == "True"


def _marks(nodes: list[Node]) -> dict[Pair, CapacityRow]:
    reading = measure(nodes, FLAVORS, [GPU.resource], frozenset())
    return {
        pair: CapacityRow(
            pair,
            seen.allocatable,
            seen.unavailable,
            seen.unhealthy,
            seen.installed,
            seen.installed,
            seen.nodes,
            seen.unavailable_nodes,
        )
        for pair, seen in reading.pairs.items()
    }


def test_the_status_of_root_fits_where_15000_nodes_match_nothing() -> None:
    resources = ["amd.com/gpu", "google.com/tpu", "nvidia.com/gpu"]
    flavors = tuple(Flavor(f"flavor-{n}", node_labels={"pool": str(n)}) for n in range(12))
    devices = {name: q(8) for name in resources}
    nodes = [
        Node(f"gke-cluster-with-a-long-name-pool-{n:05}", {}, devices, devices)
        for n in range(15000)
    ]
    reading = measure(nodes, flavors, resources, frozenset())
    scene = Scene(
        *guide(),
        marks={
            pair: CapacityRow(pair, ZERO, ZERO, ZERO, ZERO, q(10**9), observed_at=WALL)
            for pair in reading.pairs
        },
    )
    scene.reading = reading

    status = scene.status(ROOT)

    assert len(status["capacity"]) == 36
    assert [row["nodes"] for row in status["unattributed"]] == [15000] * 3
    assert len(json.dumps(status)) < 2**20 // 16


def test_a_tree_of_any_faults_has_a_status_for_every_node() -> None:
    scene = Scene(
        node("x", parent="y"),
        node("y", parent="x"),
        team("beta", "gpu a100 -3", parent="x", status={"conditions": [3], "budgets": {}}),
        node("odd", role="Tenant", parent=None, status={"materialization": 3}),
        marks=rows(gpu=8),
    )

    found = scene.statuses()

    assert set(found) == {"x", "y", "beta", "odd"}
    assert {status["conditions"][0]["status"] for status in found.values()} == {"False"}
