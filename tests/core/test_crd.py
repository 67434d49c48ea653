"""The CRD that follows from the models."""

from collections.abc import Iterator
from typing import Any

import yaml

from docs.generate import CRD, generated
from quota_translator.core.crd import crd

SCHEMA = crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


def walk(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        yield schema
        for inner in schema.values():
            yield from walk(inner)


def test_the_committed_files_are_what_the_models_give() -> None:
    for path, text in generated().items():
        assert path.read_text(encoding="utf-8") == text, f"{path} differs: run make manifests"


def test_the_committed_crd_is_read_back_as_the_same_object() -> None:
    assert yaml.safe_load(CRD.read_text(encoding="utf-8")) == crd()


def test_the_schema_is_structural() -> None:
    """No references or unions, and every property has a type or is int-or-string."""
    for schema in walk(SCHEMA):
        assert not {"$ref", "anyOf", "oneOf", "title", "default", "nullable"} & schema.keys()
        for name, field in schema.get("properties", {}).items():
            if isinstance(field, dict):
                assert "type" in field or "x-kubernetes-int-or-string" in field, name


def test_budgets_are_a_map_keyed_by_pair_of_at_most_sixteen() -> None:
    budgets = SCHEMA["properties"]["spec"]["properties"]["budgets"]
    assert budgets["x-kubernetes-list-type"] == "map"
    assert budgets["x-kubernetes-list-map-keys"] == ["resourceName", "resourceFlavor"]
    assert budgets["maxItems"] == 16
    assert set(budgets["items"]["required"]) == {"resourceName", "resourceFlavor", "nominal"}


def test_columns_show_one_row_a_node() -> None:
    columns = crd()["spec"]["versions"][0]["additionalPrinterColumns"]
    wide = [c["name"] for c in columns if c.get("priority")]
    assert wide == ["ReadyReason", "MaterializedReason"]
    assert [c["name"] for c in columns if not c.get("priority")] == [
        "Role",
        "Parent",
        "Nominal",
        "Admitted",
        "Summary",
        "Ready",
        "Materialized",
        "Age",
    ]


def test_fields_of_later_features_are_not_there_yet() -> None:
    spec = SCHEMA["properties"]["spec"]["properties"]
    assert set(spec) == {
        "role",
        "parentRef",
        "budgets",
        "namespaces",
        "namespaceSelector",
        "expectedCapacity",
        "preemption",
        "fairSharing",
        "stopPolicy",
        "priorityTier",
        "distribution",
    }


def test_every_field_of_the_spec_and_status_says_what_it_means() -> None:
    for part in ("spec", "status"):
        for schema in walk(SCHEMA["properties"][part]):
            for name, field in schema.get("properties", {}).items():
                if isinstance(field, dict):
                    assert field.get("description"), f"{part}: {name}"
