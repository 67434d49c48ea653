"""Values that nobody thought of: refused in words, or rendered into what the controller takes."""

import copy
import json
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from docs.chart import VALUES
from quota_translator.settings import SettingsError, load_settings
from tests.helm.rendering import CHART, Refused, flags, render

SCHEMA = json.loads((CHART / "values.schema.json").read_text())
DEFAULTS = yaml.safe_load((CHART / "values.yaml").read_text())
PATHS = [value.path for value in VALUES] + sorted({v.path.split(".")[0] for v in VALUES})
DURATIONS = ("0", "5m", "1h30m", "400d", "never", "-1", "1e3")
NAMES = ("a", "x,y", "a:b", "team in (a,b)", "nvidia.com/gpu", "ünïcode", "quota\ntranslator")
CHOICES = ("OverMark", "self", "mounted", "certManager", "Usable", "management", "16Pi")
SIGNS = ("", " ", '"', "{{ 1 }}", "#", "- a", "sha256:" + "0" * 64)
WORDS = st.sampled_from([*DURATIONS, *NAMES, *CHOICES, *SIGNS])
PRINTED = st.characters(min_codepoint=32, exclude_categories=["Cs", "Cc", "Cn", "Co"])
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 70000),
    st.floats(-1, 1e6),
    WORDS,
    st.text(PRINTED, max_size=8),
)
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(WORDS | st.sampled_from(["matchLabels", "name"]), inner, max_size=2),
    ),
    max_leaves=4,
)


def with_value(path: str, value: Any) -> dict[str, Any]:
    values: dict[str, Any] = {"mode": "workload"}
    place = values
    *groups, name = path.split(".")
    for group in groups:
        place = place.setdefault(group, {})
    place[name] = value
    return values


def merged(values: dict[str, Any]) -> dict[str, Any]:
    """As helm does it: maps are merged, and null takes away."""

    def merge(base: Any, over: dict[str, Any]) -> dict[str, Any]:
        found = copy.deepcopy(base) if isinstance(base, dict) else {}
        for key, value in over.items():
            if value is None:
                found.pop(key, None)
            else:
                found[key] = merge(found.get(key), value) if isinstance(value, dict) else value
        return found

    return merge(DEFAULTS, values)


@settings(max_examples=120, suppress_health_check=list(HealthCheck))
@example(path="capacity.dropAfter", value="8d")
@example(path="name", value='quota"translator')
@example(path="labels", value={"a": "b: c"})
@given(path=st.sampled_from(PATHS), value=ANYTHING)
def test_any_value_is_refused_or_understood(path: str, value: Any) -> None:
    values = with_value(path, value)
    try:
        documents = render(values)
    except Refused as error:
        said = str(error)
        assert "Error: " in said, said
        # Never a fault of the templates: an answer that names no value helps nobody.
        for fault in ("nil pointer", "wrong type", "error converting YAML", "can't evaluate"):
            assert fault not in said, said
        return
    jsonschema.validate(merged(values), SCHEMA)  # or helm reads the schema otherwise than we do
    given = {name[2:].replace("-", "_"): text for name, text in flags(documents).items()}
    try:
        load_settings(given, None)
    except SettingsError as error:
        raise AssertionError(f"{values} is rendered, but the controller says: {error}") from None
