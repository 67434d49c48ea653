"""A team's own namespaces: within what is enrolled, by name or by label, as they come and go."""

from typing import Any

import msgspec
import pytest

from quota_translator.core.names import CLUSTER_QUEUE, LOCAL_QUEUE, Key
from quota_translator.core.namespaces import by_name, named
from quota_translator.core.reading import read_quota
from quota_translator.core.render import Rendering
from quota_translator.core.wire import WireKueue, to_observed
from quota_translator.core.world import Memory, Namespace, Observed, QuotaNode
from tests.core.build import identities, judged, node, root, team
from tests.core.rendering import as_live, flavors, rendered

ALL = (
    Namespace("a-dev", {"team": "a", "stage": "dev"}),
    Namespace("a-prod", {"team": "a", "stage": "prod"}),
    Namespace("b-prod", {"team": "b", "stage": "prod"}),
    Namespace("elsewhere", {"team": "a"}),
)
PROD: dict[str, Any] = {"namespace_selector": {"matchLabels": {"stage": "prod"}}}
LISTED: dict[str, Any] = {"enrolled_namespaces": ("a-dev", "a-prod", "b-prod")}
OF_A = {"matchLabels": {"team": "a"}}


def trees(own: Any = None, **fields: Any) -> tuple[QuotaNode, ...]:
    return (root(), team("a", gpu="8", parent="root", namespaces=own, **fields))


def render(options: dict[str, Any], *nodes: QuotaNode, **fields: Any) -> Rendering:
    return rendered(*nodes, options=options, namespaces=fields.pop("namespaces", ALL), **fields)


def local_queues(found: Rendering) -> list[str]:
    return sorted(key.namespace for key in found.desired if key.kind == LOCAL_QUEUE)


def selector(found: Rendering) -> Any:
    return found.desired[Key(CLUSTER_QUEUE, "", "a")].spec["namespaceSelector"]


@pytest.mark.parametrize(
    ("options", "own", "expected"),
    [
        pytest.param(LISTED, None, ["a-dev", "a-prod", "b-prod"], id="all that are enrolled"),
        pytest.param(LISTED, OF_A, ["a-dev", "a-prod"], id="a list and a selector"),
        pytest.param(LISTED, by_name(["b-prod", "elsewhere"]), ["b-prod"], id="two lists"),
        pytest.param(PROD, OF_A, ["a-prod"], id="two selectors"),
        pytest.param(PROD, by_name(["a-dev"]), [], id="nothing in common"),
        pytest.param(PROD, {}, ["a-prod", "b-prod"], id="an empty selector takes all"),
    ],
)
def test_a_team_has_queues_where_it_may_submit_and_it_is_enrolled(
    options: dict[str, Any], own: Any, expected: list[str]
) -> None:
    assert local_queues(render(options, *trees(own))) == expected


def test_the_cluster_queue_says_both() -> None:
    both = selector(render(PROD, *trees(OF_A)))
    assert both == {"matchLabels": {"stage": "prod", "team": "a"}}
    listed = selector(render(LISTED, *trees(by_name(["a-dev"]))))
    assert listed == {
        "matchExpressions": [
            *by_name(LISTED["enrolled_namespaces"])["matchExpressions"],
            *by_name(["a-dev"])["matchExpressions"],
        ]
    }
    # One label cannot have two values, and then no namespace may submit.
    never = selector(render(PROD, *trees({"matchLabels": {"stage": "dev"}})))
    assert never == {
        "matchLabels": {"stage": "prod"},
        "matchExpressions": [{"key": "stage", "operator": "In", "values": ["dev"]}],
    }


def busy(found: Rendering, namespace: str, **status: int) -> Observed:
    live = as_live(found.desired[Key(LOCAL_QUEUE, namespace, "a")])
    return msgspec.structs.replace(live, is_idle=not status)


@pytest.mark.case("FC-I07")
def test_a_namespace_that_is_a_teams_no_more_keeps_its_queue_until_it_is_empty() -> None:
    first = render(LISTED, *trees(OF_A))
    relabelled = (msgspec.structs.replace(ALL[0], labels={"team": "b"}), *ALL[1:])
    later: dict[str, Any] = {"namespaces": relabelled, "memory": Memory(rendered=first.queues)}
    working = busy(first, "a-dev", pendingWorkloads=1)
    assert local_queues(render(LISTED, *trees(OF_A), live=[working], **later)) == [
        "a-dev",
        "a-prod",
    ]
    # Kueue counts a workload a second after it came: an idle queue is believed after three.
    idle, both = busy(first, "a-dev"), ["a-dev", "a-prod"]
    fresh = render(LISTED, *trees(OF_A), live=[idle], steady=10, **later)
    assert (local_queues(fresh), fresh.wake_at) == (both, 13)
    later["memory"] = Memory(rendered=fresh.queues, lingering=fresh.lingering)
    still = render(LISTED, *trees(OF_A), live=[working], steady=60, **later)
    assert (local_queues(still), still.wake_at) == (both, None)
    gone = render(LISTED, *trees(OF_A), live=[idle], steady=13, **later)
    assert (local_queues(gone), gone.lingering) == (["a-prod"], {})


def test_what_is_not_enrolled_or_not_ours_does_not_linger() -> None:
    first = render(LISTED, *trees(OF_A))
    working = busy(first, "a-dev", pendingWorkloads=1)
    fewer: dict[str, Any] = {"enrolled_namespaces": ("a-prod",)}
    assert local_queues(render(fewer, *trees(OF_A), live=[working])) == ["a-prod"]
    narrower = trees(by_name(["a-prod"]))
    other = msgspec.structs.replace(working, managed_by="somebody")
    assert local_queues(render(LISTED, *narrower, live=[other])) == ["a-prod"]
    assert local_queues(render(LISTED, *narrower, live=[working])) == ["a-dev", "a-prod"]
    # Without a team there is nothing to keep it for.
    assert local_queues(render(LISTED, root(), live=[working])) == []


@pytest.mark.parametrize("field", ["pendingWorkloads", "reservingWorkloads", "admittedWorkloads"])
def test_a_local_queue_is_idle_when_nothing_waits_or_runs_in_it(field: str) -> None:
    def idle(status: dict[str, Any] | None) -> bool:
        raw = {"metadata": {"name": "a", "namespace": "x"}, "status": status}
        return to_observed(LOCAL_QUEUE, msgspec.convert(raw, WireKueue)).is_idle

    assert idle(None)
    assert idle({})
    assert idle({field: 0})
    assert not idle({field: 1})


def test_teams_without_namespaces_of_their_own_are_rendered_once() -> None:
    seen = flavors("a100")
    first = render(LISTED, *trees(OF_A), flavors=seen)
    nodes = trees(OF_A)
    again = render(LISTED, *nodes, flavors=seen, memory=Memory(rendered=first.queues))
    assert again == render(LISTED, *nodes, flavors=seen)


def test_a_name_that_nobody_can_submit_from_is_told() -> None:
    found = render(LISTED, *trees(by_name(["a-dev", "elsewhere", "typo"])))
    assert found.queues.teams["a"].outside == ("elsewhere", "typo")
    assert render(LISTED, *trees(OF_A)).queues.teams["a"].outside == ()
    unread = render(LISTED, *trees(by_name(["a-dev"])), namespaces=None)
    assert unread.queues.teams["a"].outside == ()


@pytest.mark.parametrize(
    ("spec", "own"),
    [
        ({}, None),
        ({"namespaces": ["b", "a"]}, by_name(["a", "b"])),
        ({"namespaceSelector": {}}, {}),
        ({"namespaceSelector": OF_A}, OF_A),
    ],
)
def test_it_is_read_as_a_selector(spec: dict[str, Any], own: Any) -> None:
    found = read_quota({"spec": spec})
    assert (found.namespaces, found.faults) == (own, ())


@pytest.mark.parametrize(
    ("spec", "field", "words"),
    [
        ({"namespaces": []}, "namespaces", "is not a list of names"),
        ({"namespaces": "a"}, "namespaces", "is not a list of names"),
        ({"namespaces": [1]}, "namespaces", "is not a list of names"),
        ({"namespaces": ["a"], "namespaceSelector": {}}, "namespaceSelector", "keep one"),
        ({"namespaceSelector": "a=b"}, "namespaceSelector", "is not a LabelSelector"),
        ({"namespaceSelector": {"matchLabels": "x"}}, "namespaceSelector", ""),
        ({"namespaceSelector": {"matchExpressions": [7]}}, "namespaceSelector", ""),
        ({"namespaceSelector": {"labels": {}}}, "namespaceSelector", "labels is not a field"),
        (
            {"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}},
            "namespaceSelector",
            "In with values [] on 'a'",
        ),
    ],
)
def test_what_cannot_be_read_is_a_fault(spec: dict[str, Any], field: str, words: str) -> None:
    (fault,) = read_quota({"spec": spec}).faults
    assert fault.path == f"spec.{field}"
    assert words in fault.message


def test_a_group_has_none() -> None:
    found = judged(root(), node("ml", namespaces=OF_A))
    assert identities(found) == [("ml", "NodeKindInvalid", "spec.namespaces")]


def test_names_are_told_from_any_other_selector() -> None:
    assert named(by_name(["b", "a"])) == ("a", "b")
    for other in (None, {}, OF_A, {"matchExpressions": [{"key": "x", "operator": "Exists"}]}):
        assert named(other) == ()
