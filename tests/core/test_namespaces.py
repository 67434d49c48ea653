"""Which namespaces are enrolled, and what a ClusterQueue says about them."""

from collections.abc import Iterable
from typing import Any

import pytest

from quota_translator.core.namespaces import enrolled, queue_selector
from quota_translator.core.options import MaterializeOptions
from quota_translator.core.world import Namespace

NAME = "kubernetes.io/metadata.name"
NAMESPACES = (
    Namespace("web", {"team": "web"}),
    Namespace("ml", {"team": "ml", "gpu": "true"}),
    Namespace("old", {"team": "ml"}, terminating=True),
    Namespace("bare"),
)


def names(found: Iterable[Namespace]) -> tuple[str, ...]:
    return tuple(one.name for one in found)


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.case("A-63")
def test_a_list_takes_those_that_exist_and_stay() -> None:
    options = MaterializeOptions(enrolled_namespaces=("web", "old", "gone", "ml", "web"))
    assert names(enrolled(NAMESPACES, options)) == ("ml", "web")


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        pytest.param({}, ("bare", "ml", "web"), id="everything"),
        pytest.param({"matchLabels": {"team": "ml"}}, ("ml",), id="not what is being deleted"),
        pytest.param(expression("team", "In", "ml", "web"), ("ml", "web"), id="in"),
        pytest.param(expression("team", "NotIn", "ml"), ("bare", "web"), id="not in, or absent"),
        pytest.param(expression("gpu", "Exists"), ("ml",), id="exists"),
        pytest.param(expression("team", "DoesNotExist"), ("bare",), id="does not exist"),
        pytest.param(expression(NAME, "In", "bare"), ("bare",), id="by name without the label"),
        pytest.param(
            {"matchLabels": {"team": "ml"}} | expression("gpu", "DoesNotExist"), (), id="both hold"
        ),
    ],
)
def test_a_selector_takes_those_that_match(
    selector: dict[str, Any], found: tuple[str, ...]
) -> None:
    assert names(enrolled(NAMESPACES, MaterializeOptions(namespace_selector=selector))) == found


@pytest.mark.case("A-63")
def test_a_list_is_rendered_by_name_sorted_and_without_repeats() -> None:
    options = MaterializeOptions(enrolled_namespaces=("web", "gone", "ml", "web"))
    assert queue_selector(options) == expression(NAME, "In", "gone", "ml", "web")


@pytest.mark.parametrize(
    ("selector", "stored"),
    [
        ({}, {}),
        ({"matchLabels": {"team": "ml"}, "matchExpressions": []}, {"matchLabels": {"team": "ml"}}),
        (
            {"matchLabels": {}} | expression("gpu", "Exists"),
            {"matchExpressions": [{"key": "gpu", "operator": "Exists"}]},
        ),
    ],
)
def test_a_selector_is_rendered_as_the_server_stores_it(
    selector: dict[str, Any], stored: dict[str, Any]
) -> None:
    assert queue_selector(MaterializeOptions(namespace_selector=selector)) == stored
