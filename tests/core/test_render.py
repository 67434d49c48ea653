"""The tree into Kueue's objects."""

import json
import random
from typing import Any

import pytest

from quota_translator.core import notes
from quota_translator.core.kueue import body, cells
from quota_translator.core.names import (
    CLUSTER_QUEUE,
    COHORT,
    COVER_FLAVOR,
    COVER_PART,
    LOCAL_QUEUE,
    RESOURCE_FLAVOR,
    Key,
    Pair,
)
from quota_translator.core.quantity import Quantity
from quota_translator.core.render import Rendering
from quota_translator.core.world import Namespace, QuotaNode
from tests.core.build import node, root, team
from tests.core.rendering import (
    MANAGER,
    as_live,
    cohort,
    flavors,
    queue,
    rendered,
    spec_of,
    stands,
)

COVER = [
    f"cpu {COVER_FLAVOR} 16M",
    f"ephemeral-storage {COVER_FLAVOR} 16Pi",
    f"memory {COVER_FLAVOR} 16Pi",
]
TREE = (
    root("gpu a100 32"),
    node("ml", "gpu a100 24"),
    team("team-alpha", "gpu a100 16", parent="ml"),
    team("team-beta", "gpu a100 8 +4 -2", "gpu h100 2", parent="ml"),
)
ALPHA = (root(), team("a", "gpu a100 8", parent="root"))


def text_of(result: Rendering) -> str:
    return "\n".join(json.dumps(body(one, MANAGER)) for one in result.desired.values())


def keys(result: Rendering, kind: str) -> list[str]:
    return [str(key) for key in result.desired if key.kind == kind]


# --- objects ----------------------------------------------------------------------------------


@pytest.mark.case("A-60", "FC-F02")
def test_a_group_is_a_cohort_with_its_parent_only() -> None:
    result = rendered(*TREE)
    assert spec_of(result, COHORT, "root") == {}
    assert spec_of(result, COHORT, "ml") == {"parentName": "root"}
    nominal = sum(
        float(cell["nominalQuota"])
        for name in ("team-alpha", "team-beta")
        for pair, cell in cells(spec_of(result, CLUSTER_QUEUE, name)).items()
        if pair.flavor == "a100"
    )
    assert (cohort(result, "ml"), nominal) == ([], 24)


@pytest.mark.case("A-61", "FC-F01")
def test_a_team_is_a_queue_that_states_every_limit() -> None:
    result = rendered(*TREE)
    assert queue(result, "team-alpha") == [["gpu a100 16 +0"]]
    assert queue(result, "team-beta") == [["gpu a100 8 +4 -2", "gpu h100 2 +0"]]
    spec = spec_of(result, CLUSTER_QUEUE, "team-alpha")
    assert spec["cohortName"] == "ml"
    assert spec["preemption"] == {
        "reclaimWithinCohort": "Never",
        "withinClusterQueue": "Never",
        "borrowWithinCohort": {"policy": "Never"},
    }


@pytest.mark.case("A-61")
def test_a_cell_that_nobody_funded_is_zero() -> None:
    budgets = ["gpu a100 8", "gpu l4 4", "tpu l4 2 +1"]
    result = rendered(root(), team("a", *budgets, parent="root"))
    assert queue(result, "a") == [["tpu a100 0 +0", "gpu a100 8 +0", "tpu l4 2 +1", "gpu l4 4 +0"]]


@pytest.mark.case("A-63")
def test_a_local_queue_in_each_enrolled_namespace() -> None:
    names = ("web", "ml", "old", "other")
    result = rendered(
        *TREE,
        namespaces=tuple(Namespace(name, terminating=name == "old") for name in names),
        options={"cover": False, "enrolled_namespaces": ("web", "ml", "old", "gone", "ml")},
    )
    assert keys(result, LOCAL_QUEUE) == [
        f"LocalQueue {namespace}/{name}"
        for name in ("team-alpha", "team-beta")
        for namespace in ("ml", "web")
    ]
    assert spec_of(result, LOCAL_QUEUE, "team-beta", "web") == {"clusterQueue": "team-beta"}
    (listed,) = spec_of(result, CLUSTER_QUEUE, "team-beta")["namespaceSelector"]["matchExpressions"]
    assert listed["values"] == ["gone", "ml", "old", "web"]


def test_a_selector_enrols_and_is_rendered_as_it_is() -> None:
    selector = {"matchLabels": {"team": "ml"}}
    result = rendered(
        *ALPHA,
        namespaces=(Namespace("x", {"team": "ml"}), Namespace("y")),
        options={"cover": False, "namespace_selector": selector},
    )
    assert keys(result, LOCAL_QUEUE) == ["LocalQueue x/a"]
    assert spec_of(result, CLUSTER_QUEUE, "a")["namespaceSelector"] == selector


def test_without_namespaces_there_are_no_local_queues_and_that_is_said() -> None:
    result = rendered(*ALPHA, namespaces=None)
    assert keys(result, LOCAL_QUEUE) == []
    assert not result.namespaces_known
    assert rendered(*ALPHA, namespaces=()).namespaces_known


@pytest.mark.case("A-64")
def test_an_empty_enrolment_wants_nothing() -> None:
    assert rendered(*TREE, options={"enrolled_namespaces": ()}) == Rendering()


def test_every_object_says_which_node_it_comes_from() -> None:
    result = rendered(*TREE, options={})
    for key, wanted in result.desired.items():
        assert wanted.key == key
        if key.kind != RESOURCE_FLAVOR:
            assert (wanted.quota, wanted.nodes) == (key.name, frozenset((key.name,)))


def test_objects_carry_our_labels_and_no_owner() -> None:
    """An owner would take the queues along when the CRD is deleted."""
    result = rendered(*TREE, options={})
    prefix = "quota-translator.dev"
    for key, wanted in result.desired.items():
        metadata = body(wanted, "theirs")["metadata"]
        assert set(metadata) == {"name", "labels"} | ({"namespace"} if key.namespace else set())
        expected = {f"{prefix}/managed-by": "theirs", f"{prefix}/quota": wanted.quota}
        expected |= {f"{prefix}/part": wanted.part} if wanted.part else {}
        assert metadata["labels"] == expected


# --- the cover --------------------------------------------------------------------------------


@pytest.mark.case("A-62", "A-77", "FC-H05")
def test_the_cover_stands_apart_on_a_flavor_without_labels() -> None:
    result = rendered(*TREE, options={})
    # The groups share no flavor, so Kueue chooses for cpu and memory independently of the gpu.
    assert queue(result, "team-beta") == [["gpu a100 8 +4 -2", "gpu h100 2 +0"], COVER]
    flavor = result.desired[Key(RESOURCE_FLAVOR, "", COVER_FLAVOR)]
    assert (flavor.spec, flavor.quota, flavor.part) == ({}, "root", COVER_PART)
    assert flavor.nodes == {"team-alpha", "team-beta"}


@pytest.mark.case("A-62")
def test_resources_of_the_settings_are_covered_without_limits() -> None:
    ceilings = {"rdma/hca": Quantity.of(1000), "cpu": Quantity.of(5)}
    result = rendered(*ALPHA, options={"cover_resources": ceilings})
    rows = [f"cpu {COVER_FLAVOR} 5", f"rdma/hca {COVER_FLAVOR} 1k"]
    assert queue(result, "a") == [["gpu a100 8 +0"], rows]


def test_what_a_team_budgets_itself_is_not_covered() -> None:
    budgets = ["gpu a100 8", "cpu a100 64"]
    result = rendered(root(), team("a", *budgets, parent="root"), options={})
    assert queue(result, "a") == [["cpu a100 64 +0", "gpu a100 8 +0"], COVER[1:]]
    # Also while its flavor is missing: the team's cpu is limited, and does not become unlimited.
    result = rendered(root(), team("a", *budgets, parent="root"), options={}, flavors=())
    assert queue(result, "a") == [COVER[1:]]


def test_a_budget_on_the_covers_flavor_is_nobodys() -> None:
    """`check` refuses it; should it get here all the same, it must not tie the two groups."""
    budgets = ["gpu a100 8", f"gpu {COVER_FLAVOR} 1"]
    result = rendered(
        root(),
        team("a", *budgets, parent="root"),
        options={},
        flavors=flavors("a100", COVER_FLAVOR),
    )
    assert queue(result, "a") == [["gpu a100 8 +0"], COVER]


@pytest.mark.case("A-64")
def test_without_cover_there_is_no_cover_flavor() -> None:
    result = rendered(*TREE)
    assert keys(result, RESOURCE_FLAVOR) == []
    assert queue(result, "team-alpha") == [["gpu a100 16 +0"]]
    assert queue(rendered(*ALPHA, options={"cover_resources": {}}), "a") == [["gpu a100 8 +0"]]


def test_the_cover_flavor_stays_while_a_frozen_queue_lists_it() -> None:
    live = [stands(CLUSTER_QUEUE, "a", f"cpu {COVER_FLAVOR} 16M", parent="root")]
    result = rendered(*ALPHA, live=live, frozen=["a"])
    assert keys(result, RESOURCE_FLAVOR) == [f"ResourceFlavor {COVER_FLAVOR}"]


def test_with_a_topology_all_groups_are_one_with_the_cover_on_every_flavor() -> None:
    nodes = (root(), team("a", "gpu l4 8", "tpu v5 4", parent="root"))
    seen = flavors("l4", "v5", topology=["v5"])
    result = rendered(*nodes, flavors=seen, options={"cover_resources": {"cpu": Quantity.of(16)}})
    assert queue(result, "a") == [
        ["cpu l4 16", "tpu l4 0 +0", "gpu l4 8 +0", "cpu v5 16", "tpu v5 4 +0", "gpu v5 0 +0"]
    ]
    assert keys(result, RESOURCE_FLAVOR) == []
    without = rendered(*nodes, flavors=seen)
    assert queue(without, "a") == [["tpu l4 0 +0", "gpu l4 8 +0", "tpu v5 4 +0", "gpu v5 0 +0"]]


def test_the_shape_stays_while_flavors_cannot_be_read() -> None:
    options: dict[str, Any] = {"cover_resources": {"cpu": Quantity.of(16)}}
    wide = rendered(*ALPHA, options=options, flavors=flavors("a100", topology=["a100"]))
    for shape in (wide, rendered(*ALPHA, options=options)):
        live = [as_live(shape.desired[Key(CLUSTER_QUEUE, "", "a")])]
        unread = rendered(*ALPHA, options=options, flavors=None, live=live)
        assert queue(unread, "a") == queue(shape, "a")


# --- flavors that come and go -----------------------------------------------------------------

THREE = (root(), team("a", "gpu a100 8", "gpu l4 4", "tpu v5 2", "gpu h100 1", parent="root"))


@pytest.mark.case("A-65", "A-66")
@pytest.mark.parametrize(
    ("present", "written", "named"),
    [
        (
            ["a100", "l4", "v5", "h100"],
            [["gpu a100 8 +0", "gpu l4 4 +0", "gpu h100 1 +0"], ["tpu v5 2 +0"]],
            "",
        ),
        (["a100", "v5"], [["gpu a100 8 +0"], ["tpu v5 2 +0"]], "h100, l4"),
        (["l4"], [["gpu l4 4 +0"]], "a100, h100, v5"),
        ([], [], "a100, h100, l4, v5"),
    ],
    ids=["all there", "some", "one", "none, readably"],
)  # fmt: skip
def test_a_missing_flavor_drops_its_budget_only(
    present: list[str], written: list[list[str]], named: str
) -> None:
    result = rendered(*THREE, flavors=flavors(*present))
    assert queue(result, "a") == written
    found = [(note.node, note.reason) for note in result.notes]
    assert found == ([("a", notes.FLAVOR_MISSING)] if named else [])
    assert all(f"no ResourceFlavor {named}:" in note.message for note in result.notes)


@pytest.mark.case("A-65")
def test_the_note_names_the_fields_and_numbers() -> None:
    (note,) = rendered(*THREE, flavors=flavors("a100", "v5")).notes
    assert "spec.budgets[1] (nvidia.com/gpu 4)" in note.message
    assert "spec.budgets[3] (nvidia.com/gpu 1)" in note.message


@pytest.mark.case("A-66")
def test_flavors_that_cannot_be_read_drop_nothing() -> None:
    result = rendered(*THREE, flavors=None)
    assert len(cells(spec_of(result, CLUSTER_QUEUE, "a"))) == 4
    assert result.notes == ()


def test_a_flavor_in_deletion_is_held_at_zero_until_unused() -> None:
    seen = flavors("a100", deleting=["a100"])
    live = [stands(CLUSTER_QUEUE, "a", "gpu a100 8 +0", parent="root")]
    result = rendered(*ALPHA, flavors=seen, live=live)
    assert queue(result, "a") == [["gpu a100 0 +0"]]
    assert [(note.node, note.reason) for note in result.notes] == [("a", notes.FLAVOR_TERMINATING)]
    assert "a100" in result.notes[0].message
    # A queue that does not use it yet does not start to.
    fresh = rendered(*ALPHA, flavors=seen)
    assert (queue(fresh, "a"), len(fresh.notes)) == ([], 1)


# --- what is left alone -----------------------------------------------------------------------


@pytest.mark.case("A-68")
@pytest.mark.parametrize(
    ("nodes", "frozen", "kept", "wanted"),
    [
        pytest.param(
            TREE, ["ml", "team-alpha", "team-beta"], {"ml", "team-alpha", "team-beta"}, {"root"},
            id="a frozen subtree",
        ),
        pytest.param(TREE, ["team-beta"], {"team-beta"}, {"root", "ml", "team-alpha"}, id="a team"),
        pytest.param(
            (root(), team("lost", "gpu a100 1", parent="nowhere")), [], {"lost"}, {"root"},
            id="unreachable",
        ),
        pytest.param(
            (team("lost", "gpu a100 1", parent="nowhere"),), [], {"lost"}, set(), id="no root",
        ),
        pytest.param(
            (root(), node("odd", role="Pool")), [], {"odd"}, {"root"}, id="a role that is none",
        ),
    ],
)  # fmt: skip
def test_frozen_and_unreachable_nodes_want_nothing_and_are_kept(
    nodes: tuple[QuotaNode, ...], frozen: list[str], kept: set[str], wanted: set[str]
) -> None:
    result = rendered(*nodes, frozen=frozen)
    assert result.kept == kept
    assert {wanted.quota for wanted in result.desired.values()} == wanted


@pytest.mark.case("FC-E04")
def test_a_child_before_its_parent_waits_and_is_rendered_beneath_it_later() -> None:
    child = team("team-a", "gpu a100 4", parent="ml")
    before = rendered(root(), child)
    assert list(before.desired) == [Key(COHORT, "", "root")]
    assert before.kept == {"team-a"}
    after = rendered(child, root(), node("ml"))
    assert spec_of(after, CLUSTER_QUEUE, "team-a")["cohortName"] == "ml"


# --- the same for the same --------------------------------------------------------------------


@pytest.mark.case("A-18", "A-82")
@pytest.mark.parametrize("seed", range(5))
def test_any_order_of_objects_gives_the_same_bytes(seed: int) -> None:
    shuffled = random.Random(seed)
    nodes = [*TREE, node("ops", "gpu a100 8 !"), team("ci", "gpu a100 2", parent="ops")]
    seen = list(flavors("a100", "h100", "l4"))
    spaces = [Namespace(name) for name in ("a", "b", "ml-serving")]
    strangers = [
        stands(CLUSTER_QUEUE, name, "gpu a100 1", parent="ops", ours=False) for name in "xyz"
    ]
    options: dict[str, Any] = {"enrolled_namespaces": ("b", "a")}

    def now() -> Rendering:
        return rendered(
            *nodes,
            flavors=tuple(seen),
            namespaces=tuple(spaces),
            live=strangers,
            options=options,
        )

    before = now()
    for order in (nodes, seen, spaces, strangers):
        shuffled.shuffle(order)
    after = now()
    assert text_of(after) == text_of(before)
    assert (after.notes, after.foreign_members) == (before.notes, before.foreign_members)


@pytest.mark.case("A-18")
def test_the_order_of_a_teams_budgets_has_meaning() -> None:
    one = rendered(root(), team("a", "gpu a100 8", "gpu l4 4", parent="root"))
    other = rendered(root(), team("a", "gpu l4 4", "gpu a100 8", parent="root"))
    assert queue(one, "a") == [["gpu a100 8 +0", "gpu l4 4 +0"]]
    assert queue(other, "a") == [["gpu l4 4 +0", "gpu a100 8 +0"]]


def test_quantities_are_written_in_kubernetes_own_form() -> None:
    result = rendered(root(), team("a", "gpu a100 1000", "memory a100 1024Mi", parent="root"))
    text = text_of(result)
    assert '"nominalQuota": "1k"' in text
    assert '"nominalQuota": "1Gi"' in text


def test_twenty_thousand_local_queues_share_their_specs() -> None:
    teams = [team(f"t{number}", "gpu a100 1", parent="root") for number in range(100)]
    spaces = tuple(Namespace(f"n{number}") for number in range(200))
    result = rendered(root(), *teams, namespaces=spaces, options={"namespace_selector": {}})
    found = [one for key, one in result.desired.items() if key.kind == LOCAL_QUEUE]
    assert len(found) == 20_000
    assert len({id(one.spec) for one in found}) == 100
    assert Pair("cpu", COVER_FLAVOR) in cells(spec_of(result, CLUSTER_QUEUE, "t0"))
