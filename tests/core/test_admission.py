"""What a write may do to the tree: nothing that was sound before may break, all else may change."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from quota_translator.core.admission import Review, decide
from quota_translator.core.decision import Decision
from quota_translator.core.options import WARNINGS
from quota_translator.core.quantity import Quantity
from quota_translator.core.verdict import Context
from quota_translator.core.world import Flavor, Node, QuotaNode
from tests.core.build import FLAVORS, node, root, rows, team

CONTEXT = Context(capacity=rows(gpu=32), flavors=FLAVORS)
GUIDE = (
    root(),
    node("ml-research", gpu=24),
    team("team-alpha", gpu=16, parent="ml-research"),
    team("team-beta", gpu="8 +4", parent="ml-research"),
)


def write(
    incoming: QuotaNode, *live: QuotaNode, deny: str = "", context: Context = CONTEXT, **more: Any
) -> Decision:
    before = next((n for n in live if n.name == incoming.name), None)
    review = Review("UPDATE" if before else "CREATE", incoming, before)
    return decide(live, review, context, frozenset(deny.split()), **more)


def delete(name: str, *live: QuotaNode) -> Decision:
    stored = next(n for n in live if n.name == name)
    return decide(live, Review("DELETE", None, stored), CONTEXT)


def admitted(found: QuotaNode, amount: int) -> QuotaNode:
    row = {"resourceName": "nvidia.com/gpu", "resourceFlavor": "a100", "admitted": str(amount)}
    return msgspec.structs.replace(found, status={"budgets": [row]})


# --- denied, and not ----------------------------------------------------------------------------


@pytest.mark.case("A-45")
def test_what_breaks_nothing_is_allowed() -> None:
    assert write(team("team-gamma", gpu=0, parent="ml-research"), *GUIDE) == Decision(True)
    assert delete("team-beta", *GUIDE) == Decision(True)
    broken = (*GUIDE, team("lost", gpu=1, parent="nowhere"))
    assert write(team("other", gpu=4, parent="root"), *broken) == Decision(True)


def test_a_tree_may_be_applied_before_root_is_made() -> None:
    """Whoever installs and applies in one go would be told that there is no parent."""
    assert write(node("ml", gpu=8)) == Decision(True)
    assert not write(team("a", gpu=8, parent="nowhere")).allowed
    assert write(root()) == Decision(True)


def test_what_is_too_deep_already_may_rise_and_not_sink() -> None:
    groups = [node(f"g{n}", parent=f"g{n - 1}" if n else "root") for n in range(8)]
    low, high = team("t", gpu=0, parent="g7"), team("t", gpu=0, parent="g5")
    assert write(high, root(), *groups, low) == Decision(True)
    assert "t: node is 9 levels below the root" in write(low, root(), *groups, high).message


@pytest.mark.case("A-46")
def test_an_overrun_names_the_parent_the_pair_and_both_totals() -> None:
    found = write(team("team-alpha", gpu=20, parent="ml-research"), *GUIDE)
    assert not found.allowed
    assert (found.code, found.reason) == (403, "ContainmentViolated")
    said = "ml-research: budget nvidia.com/gpu on a100 is 24 but its children total 28"
    assert found.message.startswith(said)
    assert found.causes == ()  # the field that is too small is the parent's


@pytest.mark.case("A-47")
def test_a_child_comes_after_its_parent() -> None:
    child = team("team", gpu=1, parent="new")
    found = write(child, root())
    assert (found.reason, found.causes[0].field) == ("ParentMissing", "spec.parentRef.name")
    assert found.message.startswith('team: parentRef "new" does not resolve')
    parent = node("new", gpu=1)
    assert write(parent, root()).allowed
    assert write(child, root(), parent).allowed


@pytest.mark.case("A-48", "FC-G08", "fault 40")
def test_a_node_with_children_stays() -> None:
    found = delete("ml-research", *GUIDE)
    assert not found.allowed
    assert found.message == (
        "ml-research: 2 node(s) name it as their parent: team-alpha, team-beta; delete them or "
        "give them another parent first"
    )
    going = tuple(msgspec.structs.replace(n, deleting=n.role == "ClusterQueue") for n in GUIDE)
    assert "team-alpha (being deleted)" in delete("ml-research", *going).message
    alone = (root(), node("ml-research", gpu=24))
    assert delete("ml-research", *alone).allowed
    # One that is being deleted already may be deleted again: nothing changes by it.
    gone = tuple(msgspec.structs.replace(n, deleting=n.name == "ml-research") for n in GUIDE)
    assert delete("ml-research", *gone).allowed


@pytest.mark.case("A-49")
def test_a_repair_is_allowed_while_other_faults_remain_and_a_new_overrun_is_not() -> None:
    live = (
        root(),
        node("ml", gpu=8, tpu=4),
        team("a", gpu=6, tpu=4, parent="ml"),
        team("b", gpu=6, parent="ml"),
        team("lost", gpu=1, parent="nowhere"),
    )
    assert write(team("a", gpu=2, tpu=4, parent="ml"), *live).allowed
    found = write(team("a", gpu=6, tpu=5, parent="ml"), *live)
    assert found.reason == "ContainmentViolated"
    assert "google.com/tpu on a100 is 4 but its children total 5" in found.message


@pytest.mark.case("A-50")
def test_an_overrun_may_shrink_and_may_not_grow() -> None:
    live = (root(), node("ml", gpu=8), team("a", gpu=6, parent="ml"), team("b", gpu=6, parent="ml"))
    assert write(team("a", gpu=5, parent="ml"), *live).allowed
    worse = write(team("a", gpu=7, parent="ml"), *live)
    assert "is 8 but its children total 13" in worse.message
    assert not write(team("c", gpu=1, parent="ml"), *live).allowed
    assert write(node("ml", gpu=10), *live).allowed


@pytest.mark.case("A-54", "FC-E10")
def test_a_role_never_changes_and_the_answer_says_who_would_be_hit() -> None:
    live = (*GUIDE[:2], admitted(GUIDE[2], 6), GUIDE[3])
    found = write(node("team-alpha", gpu=16, parent="ml-research"), *live)
    assert (found.code, found.reason) == (422, "NodeKindInvalid")
    assert [cause.field for cause in found.causes] == ["spec.role"]
    assert "cannot change from ClusterQueue to Cohort" in found.message
    assert "6 nvidia.com/gpu on a100" in found.message
    group = write(team("ml-research", gpu=24, parent="root"), *live)
    assert "it has the children team-alpha, team-beta" in group.message


def test_a_field_that_is_wrong_is_named() -> None:
    found = write(team("a", gpu="-4", parent="root"), root())
    assert (found.code, found.reason) == (422, "BudgetInvalid")
    assert found.causes[0].field == "spec.budgets[0].nominal"
    lending = write(team("a", "gpu a100 4 -8", parent="root"), root())
    assert [cause.field for cause in lending.causes] == ["spec.budgets[0].lendingLimit"]
    assert not write(team("default", gpu=1, parent="root"), root()).allowed


def test_a_write_that_leaves_the_spec_alone_is_never_judged() -> None:
    """Labels, finalizers: also of a node that breaks every rule."""
    broken = team("a", gpu=99, parent="nowhere")
    live = (root(), broken)
    labelled = msgspec.structs.replace(broken, annotations={"note": "x"}, resource_version="2")
    assert write(labelled, *live) == Decision(True)


def test_root_can_always_be_made_again() -> None:
    """It comes back above whatever hangs beneath it; else the controller itself would be wedged."""
    chain = [node(f"n{depth}", parent=f"n{depth - 1}" if depth else "root") for depth in range(8)]
    assert decide(chain, Review("CREATE", root(), None), CONTEXT).allowed
    late = node("n8", parent="n7")
    assert decide((root(), *chain), Review("CREATE", late, None), CONTEXT).reason == "DepthExceeded"


def test_a_loop_can_be_opened_whatever_comes_to_light() -> None:
    live = (
        root(),
        node("a", gpu=8, parent="b"),
        node("b", gpu=8, parent="a"),
        team("t", gpu=9, parent="a"),
    )
    assert write(node("b", gpu=8, parent="root"), *live).allowed


def test_a_long_list_of_violations_is_cut() -> None:
    live = (root(), *(node(f"group-{i:03}", parent=f"group-{i - 1:03}") for i in range(1, 300)))
    top = node("group-000", parent="group-299")
    found = decide(live, Review("CREATE", top, None), CONTEXT)
    assert not found.allowed
    assert len(found.message) < 4200
    assert "more)" in found.message


# --- warned about -------------------------------------------------------------------------------


def case(kind: str, *live: QuotaNode, incoming: QuotaNode, words: str, **more: Any) -> Any:
    return pytest.param(kind, live, incoming, words, more, id=kind)


A100, H100 = Flavor("a100", node_labels={"gpu": "a"}), Flavor("h100", node_labels={"gpu": "a"})
NODES = (
    Node("gpu-1", {"gpu": "a"}, {"nvidia.com/gpu": Quantity(8)}, {"nvidia.com/gpu": Quantity(8)}),
)


@pytest.mark.case("A-55", "FC-F08", "FC-G07")
@pytest.mark.parametrize(
    ("kind", "live", "incoming", "words", "more"),
    [
        case(
            "OverMark",
            root(),
            incoming=team("a", gpu=40, parent="root"),
            words="is 40 but the cluster's peak capacity is 32",
        ),
        case(
            "NeverSeen",
            root(),
            incoming=team("a", tpu=1, parent="root"),
            words="no capacity is measured for that pair: the node is frozen until it is measured",
        ),
        case(
            "FlavorMissing",
            root(),
            incoming=team("a", "gpu l40 1", parent="root"),
            words='ResourceFlavor "l40" does not exist',
        ),
        case(
            "BelowAdmitted",
            root(),
            admitted(team("a", gpu=16, parent="root"), 12),
            incoming=team("a", gpu=8, parent="root"),
            words="lowered from 16 to 8, below the 12 that are admitted: nothing is evicted",
        ),
        case(
            "Oversubscribed",
            root(),
            team("a", gpu=20, parent="root"),
            incoming=team("b", gpu=20, parent="root"),
            words="promises 40 of nvidia.com/gpu on a100",
        ),
        case(
            "AmbiguousFlavor",
            root(),
            team("a", gpu=1, parent="root"),
            incoming=team("b", "gpu h100 1", parent="root"),
            words="match a100, h100 equally well",
            context=Context(capacity=rows("gpu a100 32", "gpu h100 32"), flavors=(A100, H100)),
            hardware=NODES,
        ),
    ],
)
def test_what_is_warned_about_is_denied_where_the_settings_say_so(
    kind: str, live: tuple[QuotaNode, ...], incoming: QuotaNode, words: str, more: dict[str, Any]
) -> None:
    found = write(incoming, *live, **more)
    assert found.allowed
    assert any(words in warning for warning in found.warnings), found.warnings
    assert all(len(warning) <= 255 for warning in found.warnings)
    strict = write(incoming, *live, deny=kind, **more)
    assert (strict.allowed, strict.reason, strict.code) == (False, kind, 403)
    assert words in strict.message
    others = " ".join(set(WARNINGS) - {kind})
    if kind != "OverMark":  # which oversubscribes as well
        assert write(incoming, *live, deny=others, **more).allowed


@pytest.mark.case("A-57")
def test_only_the_lowering_of_a_share_below_what_is_admitted_warns() -> None:
    over = admitted(team("a", gpu="8 +8", parent="root"), 12)
    live = (root(), over)
    assert write(team("a", gpu="10 +8", parent="root"), *live).warnings == ()
    assert write(team("a", gpu="8 +4", parent="root"), *live).warnings == ()
    assert write(team("a", gpu="8 +8", tpu=0, parent="root"), *live).warnings == ()
    (warning,) = write(team("a", gpu="6 +8", parent="root"), *live).warnings
    assert "from 8 to 6, below the 12" in warning
    (gone,) = write(team("a", tpu=0, parent="root"), *live).warnings
    assert "taken away, below the 12" in gone


@pytest.mark.case("FC-G07")
def test_what_becomes_of_the_work_above_a_lowered_share_is_said() -> None:
    live = (root(), admitted(team("a", gpu="8 +8", parent="root"), 12))

    def said(gpu: str) -> str:
        (warning,) = write(team("a", gpu=gpu, parent="root"), *live).warnings
        return warning

    assert said("6 +8").endswith("below the 12 that are admitted: 6 count as borrowed")
    stays = "nothing is evicted, and nothing new is admitted until {} of them have ended"
    assert said("2 +2").endswith(stays.format(8))
    assert "is 8 and its borrowingLimit lowered to 2, below the 12" in said("8 +2")
    assert said("8 +2").endswith(stays.format(2))
    # A group that is not enforced stops nobody: its own share is only counted against.
    group = admitted(node("g", gpu=8), 12)
    (warning,) = write(node("g", gpu=6), root(), group).warnings
    assert warning.endswith("below the 12 that are admitted: 6 count as borrowed")


def test_a_team_that_is_at_work_may_go_and_it_is_said() -> None:
    live = (root(), admitted(team("a", gpu=8), 6))
    gone = delete("a", *live)
    assert (gone.allowed, gone.reason) == (True, "Going")
    assert gone.warnings[0].startswith("a: its workloads hold 6 nvidia.com/gpu on a100: they go on")


@pytest.mark.parametrize("resource", ["gpu-typo", "cpu", "hugepages-2Mi"])
def test_for_a_resource_that_nobody_measures_the_setting_is_named(resource: str) -> None:
    found = write(team("a", f"{resource} a100 1"), root())
    assert any("the resource is not in capacity.resources" in one for one in found.warnings)
    assert not any("no node has ever offered" in one for one in found.warnings)


def test_a_pair_that_no_node_has_offered_is_told_so() -> None:
    never = Context(capacity=rows("gpu a100 32", "tpu a100 never"), flavors=FLAVORS)
    (warning, *_) = write(team("a", tpu=1), root(), context=never).warnings
    assert "no node has ever offered that pair" in warning


def test_a_drain_of_a_team_is_warned_of_and_a_hold_is_not() -> None:
    live = (root(), team("a", gpu=8, stop_policy="Hold"))
    found = write(team("a", gpu=8, stop_policy="HoldAndDrain"), *live, deny=" ".join(WARNINGS))
    assert (found.allowed, found.reason) == (True, "Evicts")
    assert found.warnings == ('a: HoldAndDrain evicts everything that runs in "a", at once',)
    assert write(team("a", gpu=8, stop_policy="Hold"), root(), team("a", gpu=8)).warnings == ()
    # Nothing runs yet in a team that is new.
    assert write(team("b", gpu=8, stop_policy="HoldAndDrain"), *live).warnings == ()


def test_a_child_of_a_node_in_deletion_is_warned_of_it() -> None:
    live = (root(), node("ml", gpu=8, deleting=True))
    found = write(team("a", gpu=1, parent="ml"), *live, deny=" ".join(WARNINGS))
    assert found.warnings == ('a: parent "ml" is being deleted, and cannot go before this node',)
    child = team("a", gpu=1, parent="ml")
    assert write(team("a", gpu=2, parent="ml"), *live, child).warnings == ()


def test_no_word_has_what_a_header_must_not_have() -> None:
    """Warnings travel in one; and a line that somebody wrote must not look like one of ours."""
    budgets = team("a", gpu=1).budgets
    odd = msgspec.structs.replace(budgets[0], resource="example.org/x\r\nroot: fine")
    found = write(msgspec.structs.replace(team("a"), budgets=(odd,)), root())
    assert (found.code, found.message.isprintable()) == (422, True)
    assert all(cause.message.isprintable() for cause in found.causes)
    lost = msgspec.structs.replace(budgets[0], flavor="l4")
    going = node("ml\n", deleting=True)
    told = write(msgspec.structs.replace(team("a"), parent="ml\n", budgets=(lost,)), root(), going)
    assert len(told.warnings) == 2
    assert all(map(str.isprintable, told.warnings))


def test_a_wrong_field_beside_an_overrun_is_a_denial_that_tells_both() -> None:
    """Of an invalid object clients show the fields alone."""
    found = write(team("team-alpha", "gpu a100 20", "tpu a100 -1", parent="ml-research"), *GUIDE)
    assert found.code == 403
    assert "children total 28" in found.message
    assert [cause.field for cause in found.causes] == ["spec.budgets[1].nominal"]
    assert found.causes[0].message == (
        "(google.com/tpu on a100) is -1: an amount cannot be negative"
    )


def test_an_unrelated_edit_of_a_node_over_its_mark_says_nothing() -> None:
    live = (root(), team("a", "gpu a100 40", "gpu l40 1", parent="root"))
    edit = team("a", "gpu a100 40", "gpu l40 1", "tpu a100 0", parent="root")
    assert write(edit, *live).warnings == ()
    lower = team("a", "gpu a100 36", "gpu l40 1", parent="root")
    assert write(lower, *live, deny="OverMark Oversubscribed FlavorMissing").allowed


def test_while_flavors_cannot_be_read_only_measured_ones_are_held_to_their_marks() -> None:
    unread = Context(capacity=rows(gpu=32), flavors=None)
    assert write(team("a", "gpu l40 4"), root(), context=unread).warnings == ()
    said = write(team("a", "gpu a100 40"), root(), context=unread).warnings
    assert "a: budget nvidia.com/gpu on a100 is 40 but the cluster's peak" in said[0]


def test_with_no_capacity_nothing_is_said_about_it() -> None:
    unknown = Context(capacity=None, flavors=None)
    incoming = team("a", gpu=1000, parent="root")
    strict = " ".join(WARNINGS)
    assert write(incoming, root(), context=unknown, deny=strict) == Decision(True)


def test_an_oversubscription_of_a_pair_that_was_never_seen_only_warns() -> None:
    context = Context(capacity=rows("gpu a100 never"), flavors=FLAVORS)
    found = write(team("a", gpu=8, parent="root"), root(), context=context, deny="Oversubscribed")
    assert found.allowed
    assert any("promises 8" in warning for warning in found.warnings)


def test_fields_without_effect_and_amounts_that_are_hardly_meant_are_told_once() -> None:
    incoming = team("a", gpu="2Ki", parent="root", priority_tier="gold", distribution=True)
    told = write(incoming, root(), context=Context(), deny=" ".join(WARNINGS))
    assert told.allowed
    assert "a: 2Ki of nvidia.com/gpu on a100 are 2048 devices: did you mean 2?" in told.warnings
    assert [w for w in told.warnings if "spec.priorityTier is stored" in w]
    assert [w for w in told.warnings if "spec.distribution is stored" in w]
    many = write(team("a", gpu="2048", parent="root"), root(), context=Context())
    assert many.warnings == ()  # somebody has as many
    edit = msgspec.structs.replace(incoming, budgets=(*incoming.budgets, *team("b", tpu=1).budgets))
    assert write(edit, root(), incoming, context=Context()).warnings == ()


def test_fields_of_a_fleet_are_told_with_their_paths() -> None:
    budgets = tuple(
        msgspec.structs.replace(one, policy=policy, per_cluster=policy is None)
        for one, policy in zip(team("a", gpu=1, tpu=0).budgets, ("Proportional", None), strict=True)
    )
    incoming = msgspec.structs.replace(team("a"), budgets=budgets)
    found = write(incoming, root(), context=Context())
    assert found.warnings == (
        "a: spec.budgets[0].policy is for fleets, and has no effect on one cluster",
        "a: spec.budgets[1].perCluster is for fleets, and has no effect on one cluster",
    )
    other = msgspec.structs.replace(incoming, parent="ml")
    assert write(other, root(), node("ml"), incoming, context=Context()).warnings == ()


def test_many_warnings_are_counted_from_some_number_on() -> None:
    wide = team("a", *(f"gpu pool-{number} 1" for number in range(15)))
    found = write(wide, root(), context=Context(flavors=FLAVORS))
    assert len(found.warnings) == 13
    assert found.warnings[-1] == "a: 3 more warnings"
    assert sum(map(len, found.warnings)) < 4096  # more is cut on its way to the person


def test_naming_a_flavor_that_others_name_makes_no_tie() -> None:
    flavors = (A100, H100)
    context = Context(capacity=rows("gpu a100 32", "gpu h100 32"), flavors=flavors)
    live = (root(), team("a", gpu=1))
    assert write(team("b", gpu=1), *live, context=context, hardware=NODES).warnings == ()
    torn = (*live, team("c", "gpu h100 1"))  # a tie that is there already
    both = team("b", "gpu a100 1", "gpu h100 1")
    assert write(both, *torn, context=context, hardware=NODES).warnings == ()
    apart = (A100, Flavor("h100", node_labels={"gpu": "h"}))
    sound = Context(capacity=rows("gpu a100 32", "gpu h100 32"), flavors=apart)
    assert write(both, *live, context=sound, hardware=NODES).warnings == ()


def test_the_document_says_what_is_said() -> None:
    document = " ".join(Path("docs/webhook.md").read_text().split())
    found = write(team("team-alpha", gpu=20, parent="ml-research"), *GUIDE)
    assert f"denied the request: {found.message}" in document
    assert set(WARNINGS) == set(re.findall(r"\| `(\w+)` \|", document))
