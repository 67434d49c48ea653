"""Values and options are the same thing: defaults, names, and what the controller takes."""

import json
from typing import Any

import pytest
import yaml

from docs.chart import VALUES
from quota_translator import __version__
from quota_translator.core.crd import crd
from quota_translator.core.webhookconfig import CONFIGURATION, admission_configuration
from quota_translator.settings import Settings, flag, load_settings
from tests.helm.rendering import CHART, ENROLLED, NAMESPACE, find, flags, refusal, render
from tests.helm.scenarios import SCENARIOS

# Options that are no value: where things are and what they are called follows from other values,
# and in a pod there is no kubeconfig.
FOLLOWS = {
    "namespace",
    "health_bind_address",
    "metrics_bind_address",
    "webhook_bind_address",
    "webhook_certificate_folder",
    "webhook_certificate_secret",
    "webhook_configuration_name",
    "webhook_service_name",
    "leader_election_lease_name",
    "kubeconfig",
    "kubeconfig_exec_commands",
    "context",
}
# Where the chart decides otherwise: it registers the webhook, and there is no terminal.
OTHERWISE = {"webhook_enabled": True, "log_format": "json"}


def settings(values: dict[str, Any]) -> Settings:
    """What the controller makes of the flags that are rendered for these values."""
    found = {
        name.removeprefix("--").replace("-", "_"): t for name, t in flags(render(values)).items()
    }
    assert set(found) <= set(Settings.model_fields)
    return load_settings(found, None)


def test_every_option_is_a_value_or_follows_from_one() -> None:
    values = {value.setting for value in VALUES if value.is_option}
    assert values | FOLLOWS == set(Settings.model_fields)
    assert not values & FOLLOWS


def test_the_defaults_are_those_of_the_controller() -> None:
    found = settings({})
    expected = Settings()
    names = set(Settings.model_fields) - FOLLOWS - set(OTHERWISE)
    assert {n: getattr(found, n) for n in names} == {n: getattr(expected, n) for n in names}
    assert {n: getattr(found, n) for n in OTHERWISE} == OTHERWISE
    for name in (
        "webhook_service_name",
        "webhook_certificate_secret",
        "leader_election_lease_name",
    ):
        assert getattr(found, name) == getattr(expected, name)
    assert found.webhook_configuration_name == expected.webhook_configuration_name == CONFIGURATION
    assert found.namespace == NAMESPACE


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_controller_takes_what_is_rendered(name: str) -> None:
    assert settings(SCENARIOS[name]).namespace == NAMESPACE


def test_what_is_set_arrives() -> None:
    found = settings(SCENARIOS["everything"])
    assert found.capacity_growth == "Usable"
    assert found.capacity_settle_after is None
    assert found.capacity_report_interval == 0
    assert found.max_tree_depth == 0
    assert found.materialize_field_manager == "platform"
    assert found.materialize_namespace_selector == {
        "matchLabels": {"gpu": "true"},
        "matchExpressions": [
            {"key": "team", "operator": "In", "values": ["a", "b"]},
            {"key": "old", "operator": "DoesNotExist"},
        ],
    }
    cover = {name: str(amount) for name, amount in found.materialize_cover_resources.items()}
    assert cover == {
        "cpu": "16M",
        "memory": "16Pi",
        "ephemeral-storage": "16Pi",
        "example.com/fpga": "1k",
        "hugepages-2Mi": "1M",
    }
    assert found.webhook_deny == ("NeverSeen", "OverMark")
    assert found.webhook_extra_names == ("192.0.2.7", "quotas.example.com")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, "kubernetes.io/metadata.name"),
        ("team in (a,b)", "team in (a,b)"),
        ({"matchExpressions": [{"key": "x", "operator": "NotIn", "values": ["1"]}]}, "x notin (1)"),
        ({"matchExpressions": [{"key": "x", "operator": "Exists"}]}, "x"),
    ],
)
def test_a_selector_is_written_as_text(given: Any, text: str) -> None:
    found = settings({"materialize": {"namespaceSelector": given}})
    assert found.materialize_namespace_selector is not None
    rendered = flags(render({"materialize": {"namespaceSelector": given}}))
    assert rendered["--materialize-namespace-selector"] == text


def test_the_webhook_is_the_one_that_the_controller_serves() -> None:
    documents = render(ENROLLED)
    found = find(documents, "ValidatingWebhookConfiguration")
    del found["metadata"]["labels"]
    service = {
        "name": "quota-translator-webhook",
        "namespace": NAMESPACE,
        "path": "/validate-quota-translator-dev-v1beta1-acceleratorquota",
        "port": 443,
    }
    assert found == admission_configuration({"service": service})


def test_the_crd_is_the_one_of_the_models_and_is_kept() -> None:
    found = find(render({}), "CustomResourceDefinition")
    assert found["metadata"].pop("annotations") == {
        "helm.sh/resource-policy": "keep",
        **crd()["metadata"].get("annotations", {}),
    }
    expected = crd()
    expected["metadata"].pop("annotations", None)
    assert found == expected


def test_versions_agree() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == chart["version"] == __version__


def test_the_schema_is_strict_everywhere() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())

    def walk(part: dict[str, Any]) -> None:
        if "properties" in part:
            assert part["additionalProperties"] is False
            for inner in part["properties"].values():
                walk(inner)

    walk(schema)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"webhok": {}}, ["webhok"]),
        ({"webhook": {"enable": False}}, ["webhook", "enable"]),
        ({"capacity": {"dropAfter": "soon"}}, ["dropAfter"]),
        ({"capacity": {"hysteresisPercent": -1}}, ["hysteresisPercent"]),
        ({"capacity": {"resources": ["cpu"]}}, ["resources"]),
        ({"webhook": {"deny": ["Everything"]}}, ["deny"]),
        ({"image": {"digest": "latest"}}, ["digest"]),
        ({"metrics": {"port": 0}}, ["port"]),
    ],
)
def test_the_schema_refuses(values: dict[str, Any], words: list[str]) -> None:
    said = refusal(values)
    assert "values don't meet the specifications of the schema" in said
    assert all(word in said for word in words), said


def test_every_value_has_a_flag_of_its_setting() -> None:
    """No typo in a path can make a value that does nothing."""
    rendered = flags(render(SCENARIOS["everything"]))
    rendered |= flags(render(ENROLLED))
    expected = {flag(value.setting) for value in VALUES if value.is_option}
    assert expected <= set(rendered)
