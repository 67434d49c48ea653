"""Label selectors: text, stored form, and what they match."""

import pytest

from quota_translator.core.selector import SelectorError, matches, parse_selector


@pytest.mark.parametrize(
    ("text", "selector"),
    [
        ("team=alpha", {"matchLabels": {"team": "alpha"}}),
        ("team==alpha", {"matchLabels": {"team": "alpha"}}),
        (
            "team in (b, a),gpu",
            {
                "matchExpressions": [
                    {"key": "team", "operator": "In", "values": ["a", "b"]},
                    {"key": "gpu", "operator": "Exists"},
                ]
            },
        ),
        (
            "team notin (a),!old",
            {
                "matchExpressions": [
                    {"key": "team", "operator": "NotIn", "values": ["a"]},
                    {"key": "old", "operator": "DoesNotExist"},
                ]
            },
        ),
        (
            "env!=dev",
            {"matchExpressions": [{"key": "env", "operator": "NotIn", "values": ["dev"]}]},
        ),
    ],
)
def test_text_as_kubectl_writes_it(text: str, selector: dict) -> None:
    assert parse_selector(text) == selector


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ("te am", "is not a label key"),
        ("team=a b", "is not a label value"),
        ("a=1,,b=2", "an empty term"),
        ({"labels": {}}, "labels is not a field"),
        ({"matchExpressions": [{"key": "a", "operator": "Like"}]}, "'Like' is not one of"),
        ({"matchExpressions": [{"key": "a", "operator": "In"}]}, "In with values []"),
        (7, "neither selector text nor a LabelSelector"),
    ],
)
def test_what_is_no_selector_is_refused_by_name(bad: object, says: str) -> None:
    with pytest.raises(SelectorError, match=says.replace("[", r"\[").replace("]", r"\]")):
        parse_selector(bad)


@pytest.mark.parametrize(
    ("selector", "labels", "result"),
    [
        ({}, {}, True),
        ({"matchLabels": {"a": "1"}}, {"a": "1", "b": "2"}, True),
        ({"matchLabels": {"a": "1"}}, {"a": "2"}, False),
        ("a in (1,2)", {"a": "2"}, True),
        ("a in (1,2)", {}, False),
        ("a notin (1)", {}, True),
        ("a notin (1)", {"a": "1"}, False),
        ("a", {"a": ""}, True),
        ("a", {}, False),
        ("!a", {}, True),
        ("!a", {"a": "1"}, False),
        ("a=1,b notin (2)", {"a": "1", "b": "3"}, True),
    ],
)
def test_matching_is_kubernetes_own(selector: object, labels: dict, result: bool) -> None:
    assert matches(parse_selector(selector), labels) is result
