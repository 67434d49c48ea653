"""Merge patches: what must go needs an explicit null, and only what differs is sent."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quota_translator.core.actions import Action
from quota_translator.core.kueue import normal
from quota_translator.core.names import CLUSTER_QUEUE, COHORT, LABEL_PART, LABEL_QUOTA, Key
from quota_translator.core.world import Observed
from quota_translator.kube import bodies
from quota_translator.kube.decode import read_quota
from tests.machine.server import merged

KEY = Key(CLUSTER_QUEUE, "", "team")


def action(spec: Mapping[str, Any], *fields: str, uid: str = "u") -> Action:
    return Action("update", KEY, 1, normal(spec), fields, frozenset({"team"}), "team", uid=uid)


def live(spec: Mapping[str, Any], part: str | None = None) -> Observed:
    return Observed(KEY, "u", "5", spec=normal(spec), part=part)


def test_only_the_fields_that_differ_are_sent_with_the_uid() -> None:
    held = live({"cohortName": "ml", "preemption": {"withinClusterQueue": "Never"}})
    patch = bodies.update(action({"cohortName": "root"}, "cohortName"), held, "m")
    assert patch == {"metadata": {"uid": "u"}, "spec": {"cohortName": "root"}}


def test_a_field_that_goes_is_null() -> None:
    held = live({"cohortName": "ml", "resourceGroups": [{}]})
    patch = bodies.update(action({}, "cohortName", "resourceGroups"), held, "m")
    assert patch["spec"] == {"cohortName": None, "resourceGroups": None}


def test_quantities_are_sent_in_canonical_text() -> None:
    groups = [{"flavors": [{"name": "f", "resources": [{"name": "g", "nominalQuota": "1000"}]}]}]
    patch = bodies.update(action({"resourceGroups": groups}, "resourceGroups"), live({}), "m")
    assert json.dumps(patch).count('"nominalQuota": "1k"') == 1


def test_a_selector_that_changes_its_form_loses_the_old_one() -> None:
    old = {"matchLabels": {"a": "1", "b": "2"}}
    new = {"matchLabels": {"a": "1"}, "matchExpressions": []}
    held = live({"namespaceSelector": old})
    patch = bodies.update(action({"namespaceSelector": new}, "namespaceSelector"), held, "m")
    assert patch["spec"]["namespaceSelector"] == {
        "matchLabels": {"b": None, "a": "1"},
        "matchExpressions": [],
    }


def test_labels_are_put_back_and_a_stray_part_goes() -> None:
    patch = bodies.update(action({}, "labels"), live({}, part="old"), "m")
    assert patch["metadata"]["labels"][LABEL_QUOTA] == "team"
    assert patch["metadata"]["labels"][LABEL_PART] is None
    assert "spec" not in patch


def test_an_update_after_a_create_of_the_same_plan_takes_the_live_uid() -> None:
    patch = bodies.update(action({"cohortName": "x"}, "cohortName", uid=""), live({}), "m")
    assert patch["metadata"]["uid"] == "u"


def test_root_is_a_group_without_a_parent_or_budgets() -> None:
    root = read_quota(json.dumps(bodies.root()).encode())
    assert (root.name, root.role, root.parent, root.budgets) == ("root", COHORT, None, ())
    assert root.faults == ()


_leaf = st.one_of(st.integers(0, 3), st.text("ab", max_size=2), st.lists(st.integers(0, 2)))
_json = st.recursive(
    _leaf, lambda inner: st.dictionaries(st.sampled_from("abc"), inner), max_leaves=8
)


@given(
    st.dictionaries(st.sampled_from("abc"), _json), st.dictionaries(st.sampled_from("abc"), _json)
)
def test_merging_the_patch_gives_exactly_what_is_wanted(old: Any, new: Any) -> None:
    assert merged(old, bodies.replacing(old, new)) == new


@pytest.mark.parametrize("old", [None, "text", ["list"], {}])
def test_what_was_no_map_is_replaced(old: Any) -> None:
    assert bodies.replacing(old, {"a": {"b": 1}}) == {"a": {"b": 1}}
