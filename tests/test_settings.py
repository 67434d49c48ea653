"""Settings: one name in four spellings, every bound checked, one line for each mistake."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from quota_translator.cli import application
from quota_translator.core.quantity import Quantity
from quota_translator.settings import (
    Settings,
    SettingsError,
    default_text,
    flag,
    load_settings,
    metavar,
    seconds,
)


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for name in os.environ:
        if name.startswith("QUOTA_TRANSLATOR_"):
            monkeypatch.delenv(name)


def test_the_defaults_are_the_documented_ones() -> None:
    options = load_settings({}, None).options()
    assert options.capacity.resources == ("google.com/tpu", "nvidia.com/gpu")
    assert options.capacity.hysteresis_percent == 10
    assert options.capacity.drop_after == 30
    assert options.capacity.settle_after == 24 * 3600
    assert options.capacity.report_interval == 60
    assert options.max_tree_depth == 5
    assert options.materialize.enabled is False


def test_a_flag_beats_the_environment_beats_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("capacity: {hysteresisPercent: 20}\nmaxTreeDepth: 7\nresyncInterval: 1m\n")
    monkeypatch.setenv("QUOTA_TRANSLATOR_MAX_TREE_DEPTH", "8")
    monkeypatch.setenv("QUOTA_TRANSLATOR_RESYNC_INTERVAL", "2m")
    settings = load_settings({"resync_interval": "3m"}, file)
    assert settings.capacity_hysteresis_percent == 20
    assert settings.max_tree_depth == 8
    assert settings.resync_interval == 180


@pytest.mark.parametrize(
    ("text", "value"),
    [("30s", 30), ("1m30s", 90), ("24h", 86400), ("250ms", 0.25), ("0", 0), ("", 0), ("0s", 0)],
)
def test_durations_are_written_as_kubernetes_writes_them(text: str, value: float) -> None:
    assert seconds(text) == value


def test_never_is_a_wait_without_end() -> None:
    settings = load_settings({"capacity_settle_after": "never"}, None)
    assert settings.options().capacity.settle_after is None


@pytest.mark.case("A-62")
def test_cover_resources_are_added_to_the_defaults() -> None:
    settings = load_settings({"materialize_cover_resources": "rdma/hca=1M,cpu=1k"}, None)
    assert settings.materialize_cover_resources == {
        "cpu": Quantity.parse("1k"),
        "ephemeral-storage": Quantity.parse("16Pi"),
        "memory": Quantity.parse("16Pi"),
        "rdma/hca": Quantity.parse("1M"),
    }


@pytest.mark.case("A-63")
def test_enrolled_namespaces_are_sorted_and_unique() -> None:
    settings = load_settings({"materialize_enrolled_namespaces": " b,a , b"}, None)
    assert settings.materialize_enrolled_namespaces == ("a", "b")


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("capacity_hysteresis_percent", "ten", "valid integer"),
        ("capacity_hysteresis_percent", "-1", "greater than or equal to 0"),
        ("capacity_drop_after", "5 parsecs", "is not a duration; write one such as 30s"),
        ("capacity_drop_after", "-5s", "is not a duration"),
        ("capacity_report_interval", "2d", "less than or equal to"),
        pytest.param(
            "capacity_report_interval", "-1m", "is not a duration", marks=pytest.mark.case("A-35")
        ),
        ("capacity_growth", "Big", "'Installed' or 'Usable'"),
        ("capacity_resources", "nvidia.com/", "is not the name of a resource"),
        ("capacity_resources", "nvidia.com/gpu,cpu", "'cpu' is no extended resource"),
        ("materialize_enrolled_namespaces", "Prod", "is not the name of a namespace"),
        ("materialize_namespace_selector", "te am", "is not a label key"),
        ("materialize_cover_resources", "cpu=0", "a ceiling is above 0"),
        ("materialize_cover_resources", "cpu=x", "is not a Kubernetes quantity"),
        ("materialize_cover_resources", "bad key=1", "is not the name of a resource"),
        ("materialize_field_manager", "two words", "is not a label value"),
        ("max_tree_depth", "65", "less than or equal to 64"),
        ("status_usage_interval", "1ms", "greater than or equal to 0.1"),
        ("health_bind_address", "8081", "write host:port"),
        ("metrics_bind_address", "a:b", "write host:port"),
        ("write_concurrency", "0", "greater than or equal to 1"),
        ("log_level", "loud", "'debug', 'info', 'warning' or 'error'"),
    ],
)
def test_every_bound_is_checked_in_one_line_that_names_the_option(
    name: str, text: str, says: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings({name: text}, None)
    message = str(caught.value)
    assert message.startswith(flag(name) + ":")
    assert says in message
    assert "\n" not in message


def _too_much(name: str) -> list[str]:
    """Texts just outside every bound of a setting."""
    field = Settings.model_fields[name]
    bounds = {
        kind: getattr(part, kind)
        for part in field.metadata
        for kind in ("ge", "le", "max_length")
        if hasattr(part, kind)
    }
    unit = "ms" if "float" in str(field.annotation) else ""
    scale = 1000 if unit else 1
    texts = [f"{int(bounds['ge'] * scale) - 1}{unit}"] if "ge" in bounds else []
    texts += [f"{int(bounds['le'] * scale) + 1}{unit}"] if "le" in bounds else []
    if "max_length" in bounds:
        most = bounds["max_length"]
        many = "dict" in str(field.annotation) or "tuple" in str(field.annotation)
        names = (f"example.com/n{number}" for number in range(most + 1))
        texts += [",".join(f"{n}=1" for n in names) if many else "n" * (most + 1)]
    if field.annotation is bool or "Literal" in str(field.annotation):
        texts += ["nonsense"]
    if name == "materialize_namespace_selector":
        texts += ["n" * 16385]
    return texts


@pytest.mark.case("fault 44")
@pytest.mark.parametrize("name", Settings.model_fields)
def test_every_setting_is_bounded_and_every_bound_is_one_line_and_exit_code_1(name: str) -> None:
    beyond = _too_much(name)
    kind = str(Settings.model_fields[name].annotation)
    assert len(beyond) == (2 if "int" in kind or "float" in kind else 1)
    for text in beyond:
        result = CliRunner().invoke(application, ["run", f"{flag(name)}={text}"])
        assert result.exit_code == 1
        assert result.stdout == ""
        assert result.stderr.startswith(f"quota-translator: {flag(name)}: ")
        assert result.stderr.count("\n") == 1
        assert len(result.stderr) < 400


def test_a_mistake_in_the_environment_names_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUOTA_TRANSLATOR_MAX_TREE_DEPTH", "deep")
    with pytest.raises(SettingsError, match=r"^QUOTA_TRANSLATOR_MAX_TREE_DEPTH:"):
        load_settings({}, None)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("capacity: {hysterisis: 1}", "capacity.hysterisis is not a setting"),
        ("- a\n- b", "is not a map of settings"),
        ("a: [", "is not YAML"),
        ("maxTreeDepth: -1", "--max-tree-depth (from "),
        ("capacity: {dropAfter: 45}", "'45' is not a duration"),
        ("capacity: {dropAfter: 4.5}", "'4.5' is not a duration"),
    ],
)
def test_a_mistake_in_the_file_names_the_file(tmp_path: Path, content: str, says: str) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(content)
    with pytest.raises(SettingsError) as caught:
        load_settings({}, file)
    assert says in str(caught.value)
    assert str(file) in str(caught.value)


def test_what_is_left_empty_in_the_file_is_not_given(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("capacity: {settleAfter: , dropAfter: 45s}\nmaterialize:\nlogLevel:\n")
    settings = load_settings({}, file)
    assert settings.capacity_settle_after == 24 * 3600  # and not "never"
    assert settings.capacity_drop_after == 45
    assert settings.log_level == "info"


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="No such file"):
        load_settings({}, tmp_path / "none.yaml")


def test_a_list_and_a_selector_of_all_exclude_each_other(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("materialize: {enrolledNamespaces: [a], namespaceSelector: {}}")
    with pytest.raises(SettingsError, match="exclude each other"):
        load_settings({}, file)


def test_a_list_and_a_selector_exclude_each_other() -> None:
    flags = {"materialize_enrolled_namespaces": "a", "materialize_namespace_selector": "gpu"}
    with pytest.raises(SettingsError, match="exclude each other"):
        load_settings(flags, None)


def test_help_shows_every_default_and_kind() -> None:
    assert default_text("capacity_settle_after") == "24h"
    assert default_text("capacity_drop_after") == "30s"
    assert default_text("materialize_cover") == "true"
    assert metavar("capacity_growth") == "Installed|Usable"
    assert metavar("max_tree_depth") == "N"
    assert all(field.description for field in Settings.model_fields.values())
