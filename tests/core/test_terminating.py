"""What a node says between its deletion and its end."""

from typing import Any

import pytest

from quota_translator.core.counted import Holdings
from quota_translator.core.names import (
    CLUSTER_QUEUE,
    COHORT,
    COVER_FLAVOR,
    COVER_PART,
    FINALIZER,
    KINDS,
    LOCAL_QUEUE,
    RESOURCE_FLAVOR,
    ROOT,
    Key,
)
from quota_translator.core.notes import MATERIALIZATION_FAILED, Note
from quota_translator.core.options import Options
from quota_translator.core.quantity import ZERO, Quantity
from quota_translator.core.report import report
from quota_translator.core.translate import translate
from quota_translator.core.world import (
    Amount,
    Facts,
    Holder,
    Holding,
    Memory,
    Observed,
    QuotaNode,
    Refusal,
)
from tests.core.build import node, pair, root, team
from tests.core.rendering import BARE, MANAGER, a_world, an_option, at, stands

GPU, CPU = pair("gpu a100"), pair(f"cpu {COVER_FLAVOR}")
OPTIONS = an_option(**BARE)
WHEN = "2026-11-30T10:00:00Z"
READY = {"type": "Ready", "status": "True", "reason": "Admitted", "message": "m"}


def going(name: str = "a", **fields: Any) -> QuotaNode:
    given: dict[str, Any] = {
        "deleting": True,
        "deleted": WHEN,
        "finalizers": (FINALIZER,),
        "generation": 3,
        "status": {"conditions": [READY], "summary": "last words", "path": "root/a"},
    }
    return team(name, "gpu a100 8", **(given | fields))


def queue(reserving: int = 0, gpus: int = 0, **fields: Any) -> Observed:
    use = {GPU: Amount(Quantity.of(gpus), ZERO), CPU: Amount(Quantity.of(3), ZERO)}
    given: dict[str, Any] = {
        "deleting": True,
        "reserving_workloads": reserving,
        "reservation": use,
        "parent": ROOT,
    }
    return stands(CLUSTER_QUEUE, "a", "gpu a100 8", **(given | fields))


class Said:
    """The status of one node, from a whole pass over these nodes and objects."""

    def __init__(
        self,
        *live: Observed,
        nodes: tuple[QuotaNode, ...] = (root(), going()),
        name: str = "a",
        notes: tuple[Note, ...] = (),
        holdings: Holdings | None = None,
        memory: Memory | None = None,
        options: Options = OPTIONS,
        **world: Any,
    ) -> None:
        seen = a_world(*nodes, live=live, **world)
        found = translate(seen, memory or Memory(), options, at())
        made = report(found, seen, options, at(), notes, holdings=holdings)
        self.status = made[name]
        self.rows = {row["type"]: row for row in self.status["conditions"]}

    @property
    def materialized(self) -> tuple[str, str, str]:
        row = self.rows["Materialized"]
        return row["status"], row["reason"], row["message"]


def test_everything_else_stays_as_it_was_last_said() -> None:
    said = Said(queue())
    assert said.rows["Ready"] == READY
    assert "Degraded" not in said.rows
    assert said.status["summary"] == "last words"
    assert said.status["observedGeneration"] == 3
    row = said.rows["Terminating"]
    assert (row["status"], row["reason"]) == ("True", "Draining")
    assert row["message"].startswith(f"it was deleted at {WHEN}: ClusterQueue a is being deleted")


@pytest.mark.case("FC-G01", "FC-G02")
def test_kueues_last_figures_are_told_as_such() -> None:
    """Of a queue in deletion it counts nothing any more."""
    said = Said(queue(3, 8)).materialized
    assert said[:2] == ("False", "Draining")
    assert said[2] == (
        "ClusterQueue a is being deleted; 3 workloads held 8 nvidia.com/gpu on a100 when Kueue "
        "counted them last, which it does no more; it goes when they have ended (kubectl get "
        "workloads -A)"
    )
    assert "it goes when no workload holds anything of it" in Said(queue()).materialized[2]


def holding(number: int, gpus: int = 2, since: str = WHEN) -> Holding:
    return Holding("a", f"Job ml/train-{number}", since, {GPU: Quantity.of(gpus)})


@pytest.mark.case("FC-G01", "FC-G02")
def test_the_workloads_themselves_are_counted_where_they_may_be_listed() -> None:
    """The oldest are named, whatever Kueue counted last."""
    five = tuple(holding(n, since=f"2026-11-30T0{9 - n}:00:00Z") for n in range(5))
    assert Said(queue(3, 8), holdings={"a": five}).materialized[2] == (
        "ClusterQueue a is being deleted; 5 workloads still hold 10 nvidia.com/gpu on a100: "
        "Job ml/train-4 since 2026-11-30T05:00:00Z, Job ml/train-3 since 2026-11-30T06:00:00Z, "
        "Job ml/train-2 since 2026-11-30T07:00:00Z and 2 more; it goes when they have ended"
    )
    one = Said(queue(3, 8), holdings={"a": (holding(1),)}).materialized[2]
    assert "1 workload still holds 2 nvidia.com/gpu on a100: Job ml/train-1" in one
    none = Said(queue(3, 8), holdings={"a": ()}).materialized[2]
    assert "no workload holds anything of it any more" in none


def test_what_the_node_does_not_budget_is_told_when_there_is_nothing_else() -> None:
    assert "1 workload held 3 cpu on quota-translator-cover" in Said(queue(1)).materialized[2]


def test_a_group_waits_for_whatever_still_names_its_cohort() -> None:
    group = node("ml", deleting=True, finalizers=(FINALIZER,))
    live = (stands(COHORT, "ml", parent=ROOT), queue(parent="ml"))
    nodes = (root(), group, going(parent="ml"))
    assert Said(*live, nodes=nodes, name="ml").materialized[:2] == ("False", "Draining")
    told = Said(*live, nodes=nodes, name="ml").materialized[2]
    assert "Cohort ml" in told
    assert "ClusterQueue a still uses it" in told


def test_many_objects_are_not_listed_one_by_one() -> None:
    local = [
        Observed(Key(LOCAL_QUEUE, f"ns-{n}", "a"), managed_by=MANAGER, quota="a") for n in range(5)
    ]
    told = Said(queue(), *local).materialized[2]
    assert told.startswith("ClusterQueue a is being deleted")
    assert "LocalQueue ns-0/a is still there" in told
    assert told.endswith("and 3 more objects")


def test_finalizers_of_others_are_named() -> None:
    said = Said(nodes=(root(), going(finalizers=("example.com/hold",))))
    assert said.materialized[2] == (
        "nothing of it is left in Kueue; what holds it are finalizers of others: example.com/hold"
    )


def test_the_cover_flavor_waits_for_whoever_lists_it() -> None:
    top = root(deleting=True, finalizers=(FINALIZER,))
    flavor = Key(RESOURCE_FLAVOR, "", COVER_FLAVOR)
    cover = Observed(flavor, managed_by=MANAGER, quota=ROOT, part=COVER_PART)
    foreign = stands(CLUSTER_QUEUE, "theirs", f"cpu {COVER_FLAVOR} 4", ours=False)
    told = Said(cover, foreign, nodes=(top,), name=ROOT).materialized[2]
    assert told == f"{flavor} is still listed by ClusterQueue theirs"


def test_root_goes_on_saying_who_holds_the_tree() -> None:
    top = root(deleting=True, finalizers=(FINALIZER,), status={"summary": "x"})
    memory = Memory(holder=Holder("ns", "lease", "uid"))
    said = Said(stands(COHORT, ROOT), nodes=(top,), name=ROOT, memory=memory)
    assert said.status["controller"]["uid"] == "uid"


def test_faults_come_before_waiting() -> None:
    refused = Memory(refused={queue().key: Refusal({}, "the webhook says no")})
    said = Said(queue(deleting=False), memory=refused)
    assert said.materialized == (
        "False",
        "MaterializationFailed",
        "ClusterQueue a was refused: the webhook says no",
    )
    note = Note("a", MATERIALIZATION_FAILED, "its finalizers could not be written: no")
    assert Said(notes=(note,)).materialized[2] == note.message


def test_what_cannot_be_read_is_told() -> None:
    facts = Facts(served=frozenset(), kueue_versions=("v1beta1",))
    said = Said(queue(), known=frozenset(KINDS) - {COHORT}, facts=facts)
    assert said.materialized[1] == "KueueUnavailable"
    assert "Kueue's Cohort objects are not served as kueue.x-k8s.io/v1beta2" in said.materialized[2]


def test_a_queue_that_cannot_be_deleted_while_a_kind_is_gone_says_which() -> None:
    facts = Facts(served=frozenset(KINDS) - {COHORT}, kueue_versions=("v1beta2",))
    live = stands(CLUSTER_QUEUE, "a", "gpu a100 8")
    said = Said(live, known=frozenset(KINDS) - {COHORT}, facts=facts).materialized
    assert said[1] == "KueueUnavailable"
    assert "Kueue's Cohort objects are not served" in said[2]
    assert said[2].endswith("its ClusterQueue cannot be deleted before they are back")


def test_where_nothing_is_written_nothing_is_said_of_it() -> None:
    said = Said(options=Options())
    assert said.rows.keys() == {"Ready", "Terminating"}


@pytest.mark.case("FC-G08", "fault 40")
def test_a_group_that_stays_for_its_children_is_judged_as_before_and_says_so() -> None:
    group = node("ml", "gpu a100 8", deleting=True, finalizers=(FINALIZER,))
    said = Said(nodes=(root(), group, team("b", "gpu a100 9", parent="ml")), name="ml")
    assert said.rows["Ready"]["reason"] == "ContainmentViolated"
    row = said.rows["Terminating"]
    assert (row["status"], row["reason"]) == ("True", "WaitingForChildren")
    assert "delete b too, or give them another parent" in row["message"]


def test_too_many_orphans_are_told_on_root() -> None:
    live = [stands(CLUSTER_QUEUE, name, parent=ROOT) for name in "bcde"]
    said = Said(*live, nodes=(root(),), name=ROOT)
    row = said.rows["OrphansHeld"]
    assert (row["status"], row["reason"]) == ("True", "OrphansHeld")
    assert "b, c, d and 1 more" in row["message"]
    assert "OrphansHeld" not in Said(*live[:1], nodes=(root(),), name=ROOT).rows


def test_what_nobody_else_can_tell_is_told_by_root() -> None:
    """A deletion that the server refuses for good, of an object whose node is gone."""
    options = an_option(**BARE, orphan_after=0.0)
    memory = Memory(refused={queue().key: Refusal({}, "no")})
    said = Said(queue(deleting=False), nodes=(root(),), name=ROOT, memory=memory, options=options)
    assert said.materialized[1:] == ("MaterializationFailed", "ClusterQueue a was refused: no")
    note = Note("gone", MATERIALIZATION_FAILED, "delete ClusterQueue gone: forbidden")
    told = Said(stands(COHORT, ROOT), nodes=(root(),), name=ROOT, notes=(note,), options=options)
    assert told.materialized[1:] == ("MaterializationFailed", note.message)


def test_a_team_that_leaves_makes_room_in_the_tree_at_once_and_in_kueue_when_it_is_gone() -> None:
    """Its share goes on counting in Kueue: whoever shall have it waits."""
    nodes = (root("gpu a100 8"), going(), team("b", "gpu a100 8"))
    said = Said(stands(COHORT, ROOT), queue(2, 8), nodes=nodes, name="b")
    assert said.rows["Ready"]["status"] == "True"
    assert said.materialized[1] == "WaitingForShrink"
    assert "ClusterQueue a (8, terminating)" in said.materialized[2]
