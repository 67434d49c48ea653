"""The alerts: they speak of series that there are, and a real promtool finds them firing in time.

What promtool gets is recorded from the program's own metrics, scrape by scrape, so that a rule and
a metric cannot drift apart.
"""

import re
import subprocess
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
import yaml
from prometheus_client.registry import CollectorRegistry

from quota_translator.core.actions import Action, Plan
from quota_translator.core.capacity import measure
from quota_translator.core.names import Key, Pair
from quota_translator.core.notes import PRECEDENCE
from quota_translator.core.options import Options
from quota_translator.core.quantity import Quantity
from quota_translator.core.results import Outcome, Result, Results
from quota_translator.core.translate import translate
from quota_translator.core.tree import grow
from quota_translator.core.usage import Use
from quota_translator.core.verdict import Oversubscription, Verdict
from quota_translator.core.world import Clock, Flavor, Memory, Node, World
from quota_translator.families import FAMILIES, PREFIX
from quota_translator.metrics import Metrics
from tests.core.build import node, root, rows, team
from tests.prometheus import PROMTOOL, needs_prometheus
from tests.test_docs import anchors

TOP = Path(__file__).parent.parent
RULES = TOP / "helm" / "quota-translator" / "files" / "alerts.yaml"
GROUPS: Final = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
ALERTS: Final = {rule["alert"]: rule for g in GROUPS for rule in g["rules"] if "alert" in rule}
RECORDS: Final = [rule for group in GROUPS for rule in group["rules"] if "record" in rule]

GPU, A100 = "nvidia.com/gpu", Pair("nvidia.com/gpu", "a100")
TREE = grow((root(), node("ml", gpu=24), team("a", gpu="8 +4", parent="ml"), team("b", gpu=8)))
START = datetime(2026, 11, 30, tzinfo=UTC)
HOUR = 60  # minutes


# --- what they speak of ---------------------------------------------------------------------------


@pytest.mark.parametrize("rule", [*ALERTS.values(), *RECORDS], ids=lambda r: r.get("alert", "rec"))
def test_a_rule_speaks_of_series_and_labels_that_there_are(rule: Mapping[str, Any]) -> None:
    shown = {family.shown: family for family in FAMILIES.values()}
    shown |= {f"{f.shown}_bucket": f for f in FAMILIES.values() if f.kind == "histogram"}
    found = re.findall(rf"({PREFIX}_[a-z_]+)(?:\{{([^}}]*)\}})?", rule["expr"])
    assert found
    for name, selector in found:
        assert name in shown
        assert set(re.findall(r"(\w+)\s*(?:=|!=|=~|!~)\s*\"", selector)) <= set(shown[name].labels)


def test_the_reasons_in_the_rules_are_those_of_conditions() -> None:
    found = re.findall(r'condition="Materialized",\s*reason!?=?~?"([\w|]+)"', RULES.read_text())
    named = {reason for group in found for reason in group.split("|")}
    assert {"KueueUnavailable", "DriftContested", "Draining", "Frozen"} <= named
    assert named <= {*PRECEDENCE, "Admitted"}


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_says_what_is_wrong_and_where_the_remedy_stands(name: str) -> None:
    rule = ALERTS[name]
    assert name.startswith("QuotaTranslator")
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    assert set(rule["annotations"]) == {"summary", "description", "runbook"}
    page, _, anchor = rule["annotations"]["runbook"].partition("#")
    assert anchor == name.lower()
    assert anchor in anchors(TOP / page)


def test_every_runbook_is_that_of_an_alert_in_the_order_of_the_rules() -> None:
    heads = re.findall(
        r"^## (QuotaTranslator\w+)$", (TOP / "docs/runbooks.md").read_text(), re.MULTILINE
    )
    assert heads == list(ALERTS)


# --- series, recorded -----------------------------------------------------------------------------


class Lab:
    """A controller's metrics, and the moment that the test is at."""

    def __init__(self) -> None:
        self.minute = 0
        self.metrics = Metrics(self.now)
        self.metrics.leading(True, 0)
        self.reason = {"ml": "Admitted", "a": "Admitted", "b": "Admitted"}
        self.materialized = dict(self.reason)
        self.used = {"a": 4, "b": 7}
        self.mark = 32
        self.over_since: datetime | None = None
        self.oversubscribed = False
        self.failed: tuple[str, ...] = ()
        self.stray = 0
        self.is_scraped = True

    def now(self) -> Clock:
        return Clock(START + timedelta(minutes=self.minute), 60.0 * self.minute)

    def scrape(self) -> Mapping[tuple[str, tuple[tuple[str, str], ...]], float]:
        return samples(self.metrics.registry) if self.is_scraped else {}

    def one_pass(self, outcome: Outcome = "written") -> None:
        """The result of a pass over this world."""
        empty = translate(World(quotas=()), Memory(), Options(), self.now())
        nodes = [_machine(f"n{number}", "a100") for number in range(self.mark // 8)]
        nodes += [_machine(f"s{number}", "h100") for number in range(self.stray)]
        flavors = (Flavor("a100", node_labels={"gpu": "a100"}),)
        excess = Oversubscription(A100, Quantity.of(40), Quantity.of(32))
        over = {("a", A100): self.over_since} if self.over_since else {}
        uses = {name: Quantity.of(used) for name, used in self.used.items()}
        keys = [Key("ClusterQueue", "", name) for name in self.failed]
        found = msgspec.structs.replace(
            empty,
            tree=TREE,
            usage={name: {A100: Use(used, used, used - used)} for name, used in uses.items()},
            capacity=rows(gpu=self.mark),
            reading=measure(nodes, flavors, (GPU,), frozenset()),
            measured=True,
            verdict=Verdict(oversubscribed=(excess,) if self.oversubscribed else ()),
            memory=Memory(over_since=over),
            plan=Plan(tuple(Action("update", key, 1) for key in keys)),
        )
        results = Results(tuple(_result(key, outcome) for key in keys))
        self.metrics.observe(found, results, {name: self._status(name) for name in self.reason})

    def _status(self, name: str) -> Mapping[str, object]:
        reasons = {"Ready": self.reason[name], "Materialized": self.materialized[name]}
        return {"conditions": [{"type": t, "reason": r} for t, r in reasons.items()]}


def _machine(name: str, label: str) -> Node:
    devices = {GPU: Quantity.of(8)}
    return Node(name, {"gpu": label}, devices, devices)


def _result(key: Key, outcome: Outcome) -> Result:
    return Result(key, "update", 1, frozenset({key.name}), {}, outcome)


def samples(registry: CollectorRegistry) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in registry.collect()
        for sample in family.samples
        if sample.name.startswith(PREFIX)
    }


Change = Callable[[Lab], None]


def record(change: Change, step: int, steps: int) -> list[dict[str, str]]:
    """promtool's input series: a scrape every `step` minutes, after the change of that moment."""
    lab = Lab()
    scrapes = []
    for number in range(steps + 1):
        lab.minute = number * step
        change(lab)
        scrapes.append(lab.scrape())
    found = []
    for name, labels in sorted({key for scrape in scrapes for key in scrape}):
        values = [scrape.get((name, labels)) for scrape in scrapes]
        shown = {**dict(labels), "namespace": "platform", "pod": "qt-0"}
        text = ",".join(f'{key}="{value}"' for key, value in shown.items())
        found.append(
            {
                "series": f"{name}{{{text}}}",
                "values": " ".join("_" if value is None else f"{value:g}" for value in values),
            }
        )
    return found


# --- when each of them fires ----------------------------------------------------------------------


def sound(lab: Lab) -> None:
    lab.one_pass()


def changed(at: int, **fields: Any) -> Change:
    """Sound until the minute, and then with these fields."""

    def change(lab: Lab) -> None:
        if lab.minute >= at:
            for name, value in fields.items():
                setattr(lab, name, value)
        lab.one_pass()

    return change


def reason_of(at: int, condition: str, name: str, reason: str) -> Change:
    fields = {"Ready": "reason", "Materialized": "materialized"}
    base = {"ml": "Admitted", "a": "Admitted", "b": "Admitted"}
    return changed(at, **{fields[condition]: base | {name: reason}})


def told(at: int, tell: Callable[[Metrics, int], object]) -> Change:
    """Sound, and from the minute on the metrics are told this, too."""

    def change(lab: Lab) -> None:
        lab.one_pass()
        if lab.minute >= at:
            tell(lab.metrics, lab.minute)

    return change


def not_measured(lab: Lab) -> None:
    if lab.minute < 5:
        lab.one_pass()


def failing(lab: Lab) -> None:
    lab.failed = ("a", "b") if lab.minute >= 5 else ()
    lab.one_pass("unavailable")


def expiring(metrics: Metrics, _minute: int) -> None:
    metrics.certificate(datetime.fromtimestamp(4 * 86400, UTC))  # promtool begins at 0


class Case(msgspec.Struct, frozen=True):
    """`quiet` and `fires`: at which minutes. `value`: as the annotations show it."""

    change: Change
    quiet: int
    fires: int
    value: str = ""
    step: int = 1
    labels: Mapping[str, str] = msgspec.field(default_factory=lambda: {"namespace": "platform"})


PAIR = {"resource": GPU, "flavor": "a100"}
CASES: Final[Mapping[str, Case]] = {
    "NoLeader": Case(told(5, lambda m, _: m.leading(False, 1)), 6, 8),
    "TwoControllers": Case(told(5, lambda m, _: m.rival(True)), 4, 7),
    "Stuck": Case(told(5, lambda m, _: m.follow(lambda: 240.0)), 10, 13, "9m 0s"),
    "PassesFailing": Case(told(5, lambda m, _: m.passed("failed")), 4, 6, "2"),
    "NotMeasuring": Case(not_measured, 19, 21, "17m 0s"),
    "WatchSilent": Case(
        told(0, lambda m, _: m.sync("Node", True, 60.0)),
        6,
        9,
        "8m 0s",
        labels={"namespace": "platform", "kind": "Node"},
    ),
    "WritesFailing": Case(failing, 14, 16, "2"),
    "WebhookFailing": Case(
        told(5, lambda m, _: m.webhook("UPDATE", "failed", "Unavailable", 0.1)), 9, 12, "8"
    ),
    "WebhookSlow": Case(
        told(5, lambda m, _: m.webhook("UPDATE", "allowed", "", 3.0)), 9, 13, "4.8"
    ),
    "CertificateExpiring": Case(told(0, expiring), 24 * HOUR, 26 * HOUR, "2d 22h 0m 0s", step=60),
    "NodeFrozen": Case(
        reason_of(5, "Ready", "ml", "ContainmentViolated"),
        9,
        11,
        labels={"quota": "ml", "reason": "ContainmentViolated"},
    ),
    "NotMaterialized": Case(
        reason_of(5, "Materialized", "a", "ObjectConflict"),
        19,
        21,
        labels={"quota": "a", "reason": "ObjectConflict"},
    ),
    "Draining": Case(
        reason_of(60, "Materialized", "a", "Draining"),
        24 * HOUR,
        26 * HOUR,
        step=60,
        labels={"quota": "a"},
    ),
    "KueueUnavailable": Case(
        reason_of(5, "Materialized", "a", "KueueUnavailable"),
        9,
        11,
        "1",
        labels={"reason": "KueueUnavailable"},
    ),
    "DriftContested": Case(
        reason_of(5, "Materialized", "a", "DriftContested"), 4, 5, labels={"quota": "a"}
    ),
    "OverShare": Case(
        changed(60, over_since=START + timedelta(hours=1)),
        25 * HOUR,
        26 * HOUR,
        "1d 1h 0m 0s",
        step=60,
        labels={"quota": "a", **PAIR},
    ),
    "TeamAtLimit": Case(
        changed(60, used={"a": 12, "b": 7}),
        72 * HOUR,
        74 * HOUR,
        "12",
        step=60,
        labels={"quota": "a", **PAIR},
    ),
    "IdleShare": Case(
        changed(60, used={"a": 4, "b": 2}),
        72 * HOUR,
        74 * HOUR,
        "75%",
        step=60,
        labels={"quota": "b", **PAIR},
    ),
    "Oversubscribed": Case(changed(5, oversubscribed=True), 14, 16, "8", labels=PAIR),
    "CapacityFell": Case(changed(5, mark=24), 4, 6, "8", labels=PAIR),
    "Unattributed": Case(
        changed(5, stray=2),
        64,
        66,
        "16",
        labels={"resource": GPU, "reason": "NoMatchingFlavor"},
    ),
}


# Of an alert that has two causes, the second one.
MORE: Final[Mapping[str, Case]] = {
    "NoLeader": Case(changed(5, is_scraped=False), 10, 13, labels={}),
}


def expected(name: str, case: Case) -> list[dict[str, Any]]:
    rule = ALERTS[name]
    annotations = {key: _filled(text, case) for key, text in rule["annotations"].items()}
    labels = {**case.labels, "severity": rule["labels"]["severity"]}
    return [{"exp_labels": labels, "exp_annotations": annotations}]


def _filled(text: str, case: Case) -> str:
    text = re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda found: case.labels[found[1]], text)
    return re.sub(r"\{\{[^}]*\$value[^}]*\}\}", case.value, text)


def fires(name: str, case: Case) -> dict[str, Any]:
    """Alone: at the one moment no alert at all, at the other this one. promtool's own test."""
    others = [other for other in ALERTS if other != name]
    at = f"{case.fires}m"
    return {
        "name": name,
        "interval": f"{case.step}m",
        "input_series": record(case.change, case.step, case.fires // case.step),
        "alert_rule_test": [
            {"eval_time": f"{case.quiet}m", "alertname": name, "exp_alerts": []},
            {"eval_time": at, "alertname": name, "exp_alerts": expected(name, case)},
            *({"eval_time": at, "alertname": other, "exp_alerts": []} for other in others),
        ],
    }


# Only the leader shows the tree; these wait for days, in which it changes now and then.
PATIENT: Final = ("Draining", "TeamAtLimit", "IdleShare")


def handed_over(name: str, case: Case) -> dict[str, Any]:
    """The leader goes, for five minutes nobody shows the tree, and then another one does."""
    step, scrapes = 5, case.fires // 5
    at = scrapes // 2
    series = []
    for one in record(case.change, step, scrapes):
        values = one["values"].split()
        first, second = [*values[:at], "stale"], ["_"] * (at + 1) + values[at + 1 :]
        other = one["series"].replace('pod="qt-0"', 'pod="qt-1"')
        series.append({"series": one["series"], "values": " ".join(first)})
        series.append({"series": other, "values": " ".join(second)})
    alert = f"QuotaTranslator{name}"
    return {
        "name": f"{name}, handed over",
        "interval": f"{step}m",
        "input_series": series,
        "alert_rule_test": [
            {"eval_time": f"{case.quiet}m", "alertname": alert, "exp_alerts": []},
            {
                "eval_time": f"{case.fires}m",
                "alertname": alert,
                "exp_alerts": expected(alert, case),
            },
        ],
    }


def unreadable() -> dict[str, Any]:
    """Bodies that are no reviews come from whoever reaches the port: they are no alert."""
    change = told(5, lambda m, _: m.webhook("unknown", "failed", "Unreadable", 0.1))
    return {
        "name": "unreadable",
        "interval": "1m",
        "input_series": record(change, 1, 30),
        "alert_rule_test": [
            {"eval_time": f"{minute}m", "alertname": alert, "exp_alerts": []}
            for minute in (6, 12, 30)
            for alert in ALERTS
        ],
    }


def quiet() -> dict[str, Any]:
    """A sound tree for four days: no alert, and sums over the teams alone."""
    moments = [f"{minute}m" for minute in (60, 24 * HOUR, 96 * HOUR)]
    sums = {"nominal": 16, "admitted": 11, "reserved": 11, "borrowed": 0, "idle": 5}
    return {
        "name": "sound",
        "interval": "60m",
        "input_series": record(sound, 60, 96),
        "alert_rule_test": [
            {"eval_time": at, "alertname": alert, "exp_alerts": []}
            for at in moments
            for alert in ALERTS
        ],
        "promql_expr_test": [
            {
                "expr": f"quota_translator:teams_{name}:sum",
                "eval_time": "24h",
                "exp_samples": [
                    {
                        "labels": f"quota_translator:teams_{name}:sum"
                        f'{{plane="workload", resource="{GPU}", flavor="a100"}}',
                        "value": value,
                    }
                ],
            }
            for name, value in sums.items()
        ],
    }


def test_every_alert_has_a_case() -> None:
    assert [f"QuotaTranslator{name}" for name in CASES] == list(ALERTS)
    assert {rule["record"] for rule in RECORDS} == {
        f"quota_translator:teams_{name}:sum"
        for name in ("nominal", "admitted", "reserved", "borrowed", "idle")
    }


@needs_prometheus
@pytest.mark.case("A-94")
@pytest.mark.case("FC-K01")
def test_a_real_promtool_takes_the_rules_and_finds_each_alert_in_time(tmp_path: Path) -> None:
    promtool("check", "rules", str(RULES))
    for step in sorted({case.step for case in CASES.values()}):
        cases = [*CASES.items(), *MORE.items()]
        tests = [fires(f"QuotaTranslator{n}", case) for n, case in cases if case.step == step]
        document = {
            "rule_files": [str(RULES)],
            # Where scrapes are an hour apart, nothing is seen between them.
            "evaluation_interval": f"{step}m",
            "tests": [*tests, quiet() if step == HOUR else unreadable()],
        }
        file = tmp_path / f"every-{step}-minutes.yaml"
        file.write_text(yaml.safe_dump(document, width=10_000))
        promtool("test", "rules", str(file))


@needs_prometheus
@pytest.mark.case("A-94")
def test_alerts_that_wait_for_days_outlive_a_change_of_leaders(tmp_path: Path) -> None:
    document = {
        "rule_files": [str(RULES)],
        "evaluation_interval": "5m",
        "tests": [handed_over(name, CASES[name]) for name in PATIENT],
    }
    file = tmp_path / "handed-over.yaml"
    file.write_text(yaml.safe_dump(document, width=10_000))
    promtool("test", "rules", str(file))


def promtool(*command: str) -> None:
    done = subprocess.run([PROMTOOL, *command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
