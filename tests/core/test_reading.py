"""Reading AcceleratorQuotas: never raises, keeps every node, names every fault by its path."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quota_translator.core.model import field_errors
from quota_translator.core.quantity import Quantity
from quota_translator.core.reading import read_quota


def quota(*budgets: dict, role: str = "ClusterQueue", parent: object = "ml") -> dict:
    return {
        "apiVersion": "quota-translator.dev/v1beta1",
        "kind": "AcceleratorQuota",
        "metadata": {"name": "team-a", "generation": 3, "uid": "u-1"},
        "spec": {"role": role, "parentRef": {"name": parent}, "budgets": list(budgets)},
    }


def budget(**fields: object) -> dict:
    return {"resourceName": "nvidia.com/gpu", "resourceFlavor": "a100"} | fields


def test_a_whole_node_is_read_with_nothing_lost() -> None:
    node = read_quota(
        quota(budget(nominal="16", borrowingLimit=4, lendingLimit="8", enforced=True)),
        "tree.yaml:7",
    )
    assert (node.name, node.role, node.parent, node.generation) == (
        "team-a",
        "ClusterQueue",
        "ml",
        3,
    )
    (only,) = node.budgets
    assert only.nominal == Quantity.of(16)
    assert only.borrowing_limit == Quantity.of(4)
    assert only.lending_limit == Quantity.of(8)
    assert only.enforced is True
    assert node.faults == ()
    assert node.source == "tree.yaml:7"


@pytest.mark.case("FC-D05")
@pytest.mark.parametrize(
    ("value", "wrong"),
    [
        pytest.param(8, None, id="an integer is a quantity"),
        pytest.param("8.0", None, id="quoted text is a quantity"),
        pytest.param(8.0, "put it in quotes", id="a JSON fraction is not"),
        pytest.param(True, "put it in quotes", id="yes is a boolean"),
        pytest.param("8x", "'8x' is not a Kubernetes quantity", id="text that is no number"),
        pytest.param("", "'' is not a Kubernetes quantity", id="empty text"),
        pytest.param([1], "put it in quotes", id="a list"),
    ],
)
def test_an_amount_is_an_integer_or_text(value: object, wrong: str | None) -> None:
    node = read_quota(quota(budget(nominal=1), budget(nominal=value)))
    if wrong is None:
        assert node.faults == ()
    else:
        (fault,) = node.faults
        assert fault.path == "spec.budgets[1].nominal"
        assert wrong in fault.message


@pytest.mark.case("FC-D07")
def test_every_entry_is_read_not_only_the_first() -> None:
    node = read_quota(quota(budget(nominal=8), budget(nominal="x"), budget(nominal="y")))
    assert [f.path for f in node.faults] == ["spec.budgets[1].nominal", "spec.budgets[2].nominal"]


def test_a_missing_share_is_a_fault() -> None:
    (fault,) = read_quota(quota(budget())).faults
    assert (fault.path, fault.message) == ("spec.budgets[0].nominal", "is required")


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"parentRef": {"name": 7}}, "spec.parentRef.name"),
        ({"parentRef": "ml"}, "spec.parentRef.name"),
        ({"budgets": "16"}, "spec.budgets"),
        ({"budgets": [budget(nominal=1, enforced="yes")]}, "spec.budgets[0].enforced"),
    ],
)
def test_a_field_of_the_wrong_shape_is_named(change: dict, path: str) -> None:
    raw = quota()
    raw["spec"] |= change
    assert [f.path for f in read_quota(raw).faults] == [path]


json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["name", "role", "parentRef", "budgets", "nominal", "enforced", "resourceName"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(["metadata", "spec", "status"]), json))
def test_reading_never_raises(raw: dict) -> None:
    node = read_quota(raw)
    assert isinstance(node.name, str)
    assert isinstance(node.budgets, tuple)


amounts = st.sampled_from(["8", 8, "1500m", "1e3", 8.0, True, "x", None])


@given(st.lists(st.fixed_dictionaries({"nominal": amounts}, optional={"borrowingLimit": amounts})))
def test_the_strict_models_and_the_tolerant_reader_agree_on_shapes(entries: list[dict]) -> None:
    """What the models refuse for its type, the reader reports too, and never the other way round.

    The reader goes further: it also knows which text is a quantity.
    """
    raw = quota(*(budget(**entry) for entry in entries[:16]))
    strict = {path for path, _ in field_errors(raw["spec"])}
    tolerant = {f.path for f in read_quota(raw).faults}
    assert strict <= tolerant
    texts = {
        f"spec.budgets[{i}].{field}"
        for i, entry in enumerate(entries[:16])
        for field, value in entry.items()
        if value == "x"
    }
    assert tolerant <= strict | texts


def test_an_unknown_field_is_named_with_its_path() -> None:
    raw = quota(budget(nominal=8, nominel=9))
    assert field_errors(raw["spec"]) == [("spec.budgets[0].nominel", "unknown field")]
