"""Fields of Kueue's objects that the tree states at times: stopPolicy and fairSharing.

While the tree has no opinion they belong to people. An annotation on the object remembers that the
tree stated one, so that a field that it states no more is given back exactly once.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from quota_translator.core.actions import Plan
from quota_translator.core.kueue import body
from quota_translator.core.names import CLUSTER_QUEUE, COHORT, STATES, Key, Kind
from quota_translator.core.plan import plan
from quota_translator.core.quantity import Quantity
from quota_translator.core.reading import read_quota
from quota_translator.core.tree import grow
from quota_translator.core.wire import WireKueue, to_observed
from quota_translator.core.world import Memory, Observed, QuotaNode
from quota_translator.kube import bodies
from tests.core.build import node, root, team
from tests.core.rendering import MANAGER, a_world, an_option, at, rendered
from tests.machine.server import merged

QUEUE = Key(CLUSTER_QUEUE, "", "a")
GROUP = Key(COHORT, "", "ml")
DEFAULTS = {"stopPolicy": "None"}  # what the API server fills in


def tree(group: dict[str, Any] | None = None, **of_team: Any) -> tuple[QuotaNode, ...]:
    return (root(), node("ml", **(group or {})), team("a", gpu="8", parent="ml", **of_team))


class Server:
    """Keeps the documents as an API server would, and reads them as the watch does."""

    def __init__(self) -> None:
        self.documents: dict[Key, dict[str, Any]] = {}
        self.sent: list[Mapping[str, Any]] = []

    def live(self) -> list[Observed]:
        return [
            to_observed(key.kind, msgspec.convert(document, WireKueue))
            for key, document in self.documents.items()
        ]

    def settle(self, *nodes: QuotaNode) -> list[Mapping[str, Any]]:
        """Write what the tree wants until nothing is left to write; what was sent."""
        self.sent = []
        for _ in range(8):
            planned = self._plan(nodes)
            if not planned.actions:
                return self.sent
            for action in planned.actions:
                self._write(action)
        raise AssertionError(f"it never ends: {self.sent[-3:]}")

    def _plan(self, nodes: tuple[QuotaNode, ...]) -> Plan:
        world, options = a_world(*nodes, live=self.live()), an_option()
        wanted = rendered(*nodes, live=self.live())
        return plan(wanted.desired, frozenset(), grow(nodes), world, Memory(), options, at(9.0))

    def _write(self, action: Any) -> None:
        key = action.key
        if action.verb == "create":
            document = body(bodies.desired(action), MANAGER)
            document["metadata"]["uid"] = str(key)
        else:
            found = next(live for live in self.live() if live.key == key)
            patch = bodies.update(action, found, MANAGER)
            self.sent.append(patch)
            document = merged(self.documents[key], patch)
        if key.kind == CLUSTER_QUEUE:
            document["spec"] = DEFAULTS | document["spec"]
        self.documents[key] = document

    def field(self, key: Key, name: str) -> Any:
        return self.documents[key]["spec"].get(name)

    def states(self, key: Key) -> Any:
        return (self.documents[key]["metadata"].get("annotations") or {}).get(STATES)


@pytest.fixture
def server() -> Server:
    found = Server()
    found.settle(*tree())
    assert found.states(QUEUE) is None
    return found


def test_what_the_tree_states_is_written_with_a_note_that_it_did(server: Server) -> None:
    sent = server.settle(*tree(stop_policy="Hold"))
    assert [patch["spec"] for patch in sent] == [{"stopPolicy": "Hold"}]
    assert server.states(QUEUE) == "stopPolicy"
    weighty = tree({"fair_weight": Quantity.parse("2")}, fair_weight=Quantity.parse("500m"))
    sent = server.settle(*weighty)
    assert len(sent) == 2
    assert server.field(GROUP, "fairSharing") == {"weight": "2"}
    assert server.field(QUEUE, "fairSharing") == {"weight": "500m"}
    assert (server.states(GROUP), server.states(QUEUE)) == ("fairSharing", "fairSharing")
    assert server.field(QUEUE, "stopPolicy") == "None", "the stop is taken back"


def test_a_new_queue_has_them_from_the_beginning() -> None:
    server = Server()
    assert server.settle(*tree(stop_policy="Hold", fair_weight=Quantity.parse("3"))) == []
    assert server.states(QUEUE) == "fairSharing,stopPolicy"


def test_a_field_that_the_tree_states_no_more_is_given_back_once(server: Server) -> None:
    server.settle(*tree(stop_policy="Hold", fair_weight=Quantity.parse("2")))
    (patch,) = server.settle(*tree())
    assert patch["spec"] == {"fairSharing": None, "stopPolicy": None}
    assert patch["metadata"]["annotations"] == {STATES: None}
    assert server.field(QUEUE, "stopPolicy") == "None"
    # From now on it is people's, and stays as they set it.
    server.documents[QUEUE]["spec"]["stopPolicy"] = "HoldAndDrain"
    assert server.settle(*tree()) == []


def test_a_persons_brake_is_left_alone_unless_the_tree_states_one(server: Server) -> None:
    server.documents[QUEUE]["spec"]["stopPolicy"] = "Hold"
    assert server.settle(*tree()) == []
    server.settle(*tree(stop_policy="None"))
    assert server.field(QUEUE, "stopPolicy") == "None"
    server.documents[QUEUE]["spec"]["stopPolicy"] = "Hold"
    server.settle(*tree(stop_policy="None"))
    assert server.field(QUEUE, "stopPolicy") == "None", "the tree says that it does not stop"


@pytest.mark.parametrize("annotations", [{}, {STATES: "unknown,resourceGroups"}, {STATES: ""}])
def test_an_annotation_that_somebody_spoilt_is_written_again(
    server: Server, annotations: dict[str, str]
) -> None:
    wanted = tree(stop_policy="Hold")
    server.settle(*wanted)
    server.documents[QUEUE]["metadata"]["annotations"] = annotations
    server.settle(*wanted)
    assert server.states(QUEUE) == "stopPolicy"
    assert server.settle(*wanted) == []


def test_the_same_weight_in_another_spelling_is_no_difference(server: Server) -> None:
    wanted = tree(fair_weight=Quantity.parse("1500m"))
    server.settle(*wanted)
    server.documents[QUEUE]["spec"]["fairSharing"]["weight"] = "1.5"
    assert server.settle(*wanted) == []


@pytest.mark.parametrize(
    ("spec", "path", "words"),
    [
        ({"stopPolicy": "Stop"}, "spec.stopPolicy", "'Stop' is none of None, Hold, HoldAndDrain"),
        ({"stopPolicy": True}, "spec.stopPolicy", "is none of"),
        ({"fairSharing": {}}, "spec.fairSharing.weight", "is required"),
        ({"fairSharing": {"weight": "-1"}}, "spec.fairSharing.weight", "0, or more than"),
        ({"fairSharing": {"weight": "1n"}}, "spec.fairSharing.weight", "0, or more than"),
        ({"fairSharing": {"weight": "much"}}, "spec.fairSharing.weight", "much"),
        ({"fairSharing": {"weight": "1e16"}}, "spec.fairSharing.weight", "at most 1e15"),
    ],
)
def test_what_kueue_would_refuse_is_a_fault_with_its_path(
    spec: dict[str, Any], path: str, words: str
) -> None:
    (fault,) = read_quota({"metadata": {"name": "a"}, "spec": {"role": "Cohort", **spec}}).faults
    assert fault.path == path
    assert words in fault.message


@pytest.mark.parametrize("weight", ["0", "2n", "1", 3, "1e15"])
def test_a_weight_that_kueue_takes_is_read(weight: str | int) -> None:
    found = read_quota({"spec": {"fairSharing": {"weight": weight}}})
    assert found.faults == ()
    assert found.fair_weight == Quantity.parse(str(weight))


def test_only_kinds_that_have_the_field_are_asked_for_it() -> None:
    kinds: tuple[Kind, ...] = ("LocalQueue", "ResourceFlavor", "Cohort")
    raw = {"metadata": {"annotations": {STATES: "stopPolicy"}}, "spec": {"stopPolicy": "Hold"}}
    for kind in kinds:
        assert to_observed(kind, msgspec.convert(raw, WireKueue)).spec == {}
