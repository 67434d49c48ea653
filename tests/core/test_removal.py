"""What is taken away, in which order, and the words for it."""

import msgspec

from quota_translator.core.names import (
    CLUSTER_QUEUE,
    COHORT,
    COVER_FLAVOR,
    COVER_PART,
    FINALIZER,
    LOCAL_QUEUE,
    RESOURCE_FLAVOR,
    ROOT,
    Key,
)
from quota_translator.core.removal import (
    Inventory,
    Outcome,
    Thing,
    document,
    draining,
    held_cohorts,
    idle_cohorts,
    shown_outcome,
    shown_plan,
)
from quota_translator.core.world import Holding, Observed
from tests.core.build import root, team
from tests.core.rendering import MANAGER, stands

LOCAL = Observed(Key(LOCAL_QUEUE, "ml", "a"), managed_by=MANAGER, quota="a")
COVER = Observed(
    Key(RESOURCE_FLAVOR, "", COVER_FLAVOR), managed_by=MANAGER, quota=ROOT, part=COVER_PART
)
A100 = Observed(Key(RESOURCE_FLAVOR, "", "a100"))
QUEUE = stands(CLUSTER_QUEUE, "a", parent="ml")
COHORTS = (stands(COHORT, "ml", parent=ROOT), stands(COHORT, ROOT))
THEIRS = stands(CLUSTER_QUEUE, "theirs", ours=False)


def inventory(*live: Observed, **fields: object) -> Inventory:
    given: dict[str, object] = {
        "manager": MANAGER,
        "namespace": "quota",
        "kueue": {one.key: one for one in live},
        "nodes": (root(finalizers=(FINALIZER,)), team("a", finalizers=("other",))),
        "webhook": Thing("ValidatingWebhookConfiguration", "", "hook", "1"),
        "secret": Thing("Secret", "quota", "cert", "2"),
        "lease": Thing("Lease", "quota", "lease", "3"),
    }
    return Inventory(**(given | fields))  # type: ignore[arg-type]


FULL = inventory(LOCAL, COVER, A100, QUEUE, *COHORTS, THEIRS)


def test_only_what_is_ours_goes_and_what_hangs_on_others_goes_first() -> None:
    assert [str(one) for one in FULL.removed()] == [
        "ValidatingWebhookConfiguration hook",
        "LocalQueue ml/a",
        "ClusterQueue a",
        "Cohort ml",
        "Cohort root",
        f"ResourceFlavor {COVER_FLAVOR}",
        "Secret quota/cert",
        "Lease quota/lease",
    ]
    assert [node.name for node in FULL.claimed] == [ROOT]


def test_what_is_on_its_way_out_is_not_deleted_again() -> None:
    going = msgspec.structs.replace(QUEUE, deleting=True)
    assert inventory(going).ours(CLUSTER_QUEUE) == ()


def test_what_stays_is_said() -> None:
    text = shown_plan(FULL)
    assert "2 AcceleratorQuotas: kubectl delete aq --all" in text
    assert "kubectl delete crd acceleratorquotas.quota-translator.dev" in text
    assert "ResourceFlavors that people made: a100" in text
    assert "AcceleratorQuota root" in text
    assert text.endswith("Nothing was done. Run it again with --yes to do it.\n")


def test_nothing_left_is_said() -> None:
    empty = Inventory(MANAGER, "quota", notes=("a note",))
    assert shown_plan(empty) == "Nothing of ours is left to remove.\nNote:\n  a note\n"


def test_a_cohort_goes_when_nothing_names_it() -> None:
    kueue = FULL.kueue
    assert idle_cohorts(kueue, MANAGER) == []
    assert held_cohorts(kueue, MANAGER) == [
        "Cohort ml stays while it is the parent of ClusterQueue a",
        "Cohort root stays while it is the parent of Cohort ml",
    ]
    fewer = {key: live for key, live in kueue.items() if key != QUEUE.key}
    assert [live.key.name for live in idle_cohorts(fewer, MANAGER)] == ["ml"]
    foreign = stands(CLUSTER_QUEUE, "theirs", parent="ml", ours=False)
    (held, _) = held_cohorts({**fewer, foreign.key: foreign}, MANAGER)
    assert held == "Cohort ml stays while it is the parent of ClusterQueue theirs (not ours)"
    strange = stands(COHORT, "theirs", ours=False)
    assert idle_cohorts({strange.key: strange}, MANAGER) == []


def test_a_queue_says_what_keeps_it() -> None:
    work = tuple(Holding("a", f"Job ml/{n}", f"2026-11-30T1{n}:00:00Z", {}) for n in range(5))
    assert draining("a", work) == (
        "ClusterQueue a is being deleted; 5 workloads still run in it: Job ml/0, Job ml/1, "
        "Job ml/2, (2 more)"
    )
    assert "1 workload still runs in it: Job ml/0" in draining("a", work[:1])
    assert draining("a", ()).endswith("does Kueue run?")
    assert "when its workloads have ended" in draining("a", None)


def test_an_outcome_is_told_to_people_and_programs() -> None:
    done = Outcome(["ClusterQueue a"], [], ["Cohort ml stays"], ["delete Secret: forbidden"])
    text = shown_outcome(FULL, done)
    assert text.startswith("Removed 1 object; took our finalizer off 0 AcceleratorQuotas.\n")
    assert "Still there:\n  Cohort ml stays\nFailed:\n  delete Secret: forbidden\n" in text
    assert text.endswith("Run it again to go on from here.\n")
    found = document(FULL, done)
    assert (found["dryRun"], found["complete"]) == (False, False)
    assert found["waiting"] == ["Cohort ml stays"]
    plan = document(FULL, None)
    assert (plan["dryRun"], plan["complete"]) == (True, False)
    assert plan["removed"][1] == "LocalQueue ml/a"
    assert plan["released"] == ["AcceleratorQuota root"]
    assert document(FULL, Outcome([], [], [], []))["complete"]
