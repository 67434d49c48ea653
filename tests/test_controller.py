"""The controller over a folder: the same code as on a cluster, with files in place of a server."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
import structlog
import yaml

from quota_translator.controller import Controller
from quota_translator.core.happenings import Told
from quota_translator.core.names import Key
from quota_translator.core.options import CapacityOptions, MaterializeOptions, Options
from quota_translator.core.results import Result, Results, StatusResult
from quota_translator.core.translate import Translation
from quota_translator.core.world import Clock, QuotaNode
from quota_translator.errors import Refused
from quota_translator.local.cluster import LocalCluster

GUIDE = Path(__file__).parent.parent / "examples" / "guide"
OPTIONS = Options(
    capacity=CapacityOptions(drop_after=0.0, report_interval=0.0),
    materialize=MaterializeOptions(enrolled_namespaces=("ml-serving",)),
    usage_interval=0.1,
)


class Time:
    """Both clocks, moved by the test on top of the loop's own time."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> Clock:
        steady = asyncio.get_running_loop().time() + self.ahead
        return Clock(datetime(2026, 11, 30, tzinfo=UTC) + timedelta(seconds=steady), steady)


class Passes:
    """An observer that keeps what it was told."""

    def __init__(self) -> None:
        self.seen: list[tuple[Translation, Results]] = []
        self.failures = 0

    def passed(
        self, translation: Translation, results: Results, seconds: float, told: Told
    ) -> None:
        del seconds, told
        self.seen.append((translation, results))

    def failed(self) -> None:
        self.failures += 1

    @property
    def written(self) -> int:
        return sum(results.written for _, results in self.seen)


class Harness:
    def __init__(self, folder: Path, options: Options = OPTIONS) -> None:
        self.folder = folder
        self.cluster = LocalCluster(folder, folder.parent / "out", force_polling=True)
        self.time = Time()
        self.passes = Passes()
        self.controller = Controller(
            self.cluster, options, self.time, self.passes, rand=lambda: 0.5
        )

    @asynccontextmanager
    async def started(self) -> AsyncIterator["Harness"]:
        await self.cluster.start(self.controller.mark)
        try:
            yield self
        finally:
            await self.cluster.stop()

    def edit(self, name: str, **fields: Any) -> None:
        """Change fields of the first budget of a node in tree.yaml."""
        file = self.folder / "tree.yaml"
        documents = list(yaml.safe_load_all(file.read_text()))
        for document in documents:
            if document["metadata"]["name"] == name:
                document["spec"]["budgets"][0] |= fields
        file.write_text(yaml.safe_dump_all(documents))

    async def settle(self) -> Translation:
        return await self.controller.settle(patience=10)

    async def settle_after_edit(self, name: str, **fields: Any) -> Translation:
        seen = len(self.passes.seen)
        self.edit(name, **fields)
        async with asyncio.timeout(10):
            while not self.controller.dirty:
                await asyncio.sleep(0.02)
        found = await self.settle()
        assert len(self.passes.seen) > seen
        return found

    def objects(self) -> dict[str, Any]:
        files = sorted((self.folder.parent / "out" / "objects").rglob("*.yaml"))
        return {
            f"{file.parent.name} {file.stem}": yaml.safe_load(file.read_text()) for file in files
        }

    def condition(self, name: str, kind: str) -> tuple[str, str]:
        for node in self.cluster.snapshot().quotas or ():
            if node.name == name:
                for condition in node.status.get("conditions", []):
                    if condition["type"] == kind:
                        return condition["status"], condition["reason"]
        return "", ""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copytree(GUIDE, tmp_path / "guide")
    return tmp_path / "guide"


@pytest.fixture
async def harness(folder: Path) -> AsyncIterator[Harness]:
    async with Harness(folder).started() as started:
        yield started


async def test_a_tree_converges_and_says_so(harness: Harness) -> None:
    await harness.settle()
    assert set(harness.objects()) == {
        "Cohort root",
        "Cohort ml-research",
        "ClusterQueue team-alpha",
        "ClusterQueue team-beta",
        "ml-serving team-alpha",
        "ml-serving team-beta",
        "ResourceFlavor quota-translator-cover",
    }
    for name in ("root", "ml-research", "team-alpha", "team-beta"):
        assert harness.condition(name, "Ready") == ("True", "Admitted")
        assert harness.condition(name, "Materialized") == ("True", "Admitted")


async def test_a_new_tree_is_told_its_state_once(harness: Harness) -> None:
    told: list[str] = []
    write = harness.cluster.write_status

    async def write_status(node: QuotaNode, status: Mapping[str, Any]) -> StatusResult:
        told.append(node.name)
        return await write(node, status)

    harness.cluster.write_status = write_status  # type: ignore[method-assign]
    await harness.settle()
    assert sorted(set(told) - {"root"}) == sorted(name for name in told if name != "root")


async def test_a_tree_that_lost_its_root_takes_nothing_out_of_kueue(harness: Harness) -> None:
    await harness.settle()
    before = harness.objects()
    world = harness.cluster.snapshot()

    async def create_root() -> None:
        raise Refused("create not allowed while custom resource definition is terminating")

    harness.cluster.snapshot = lambda: msgspec.structs.replace(  # type: ignore[method-assign]
        world, quotas=()
    )
    harness.cluster.create_root = create_root  # type: ignore[method-assign]
    assert await harness.controller.one_pass() is not None
    assert harness.passes.seen[-1][0].plan.actions
    assert harness.objects() == before


@pytest.mark.case("A-37", "A-73")
async def test_a_pass_that_changes_nothing_writes_nothing(harness: Harness) -> None:
    await harness.settle()
    before = harness.cluster.snapshot()
    written = harness.passes.written
    for _ in range(3):
        await harness.controller.one_pass()
    assert harness.passes.written == written
    assert harness.cluster.snapshot() == before


async def test_an_edit_costs_exactly_the_object_that_differs(harness: Harness) -> None:
    await harness.settle()
    written = harness.passes.written
    await harness.settle_after_edit("team-beta", borrowingLimit="6")
    assert harness.passes.written - written == 1


async def test_a_flavor_that_appears_goes_or_changes_is_measured_at_once(
    harness: Harness,
) -> None:
    file = harness.folder / "flavor.yaml"
    flavor = file.read_text()

    async def nodes_after(text: str) -> dict[str, tuple[int, str]]:
        file.write_text(text)
        async with asyncio.timeout(10):
            while not harness.controller.dirty:
                await asyncio.sleep(0.02)
        rows = (await harness.settle()).capacity.values()
        return {
            row.pair.flavor: (row.nodes, str(row.mark))
            for row in rows
            if "gpu" in row.pair.resource
        }

    await harness.settle()
    renamed = flavor.replace("name: a100", "name: other")
    assert renamed != flavor
    # What was believed of the old one stays, unmeasured.
    assert await nodes_after(renamed) == {"a100": (0, "32"), "other": (4, "32")}
    assert await nodes_after(flavor) == {"a100": (4, "32"), "other": (0, "32")}
    assert "NVIDIA" in flavor
    changed = await nodes_after(flavor.replace("NVIDIA", "NOBODY"))
    assert changed["a100"] == (0, "32")


@pytest.mark.case("A-15", "A-68")
async def test_a_bad_edit_freezes_and_a_repair_thaws(harness: Harness) -> None:
    await harness.settle()
    before = harness.objects()
    await harness.settle_after_edit("team-alpha", nominal="20")
    assert harness.condition("ml-research", "Ready") == ("False", "ContainmentViolated")
    assert harness.condition("team-beta", "Materialized") == ("False", "Frozen")
    assert harness.condition("root", "Ready") == ("True", "Admitted")
    assert harness.objects() == before
    await harness.settle_after_edit("team-alpha", nominal="12")
    assert harness.condition("ml-research", "Ready") == ("True", "Admitted")
    queue = harness.objects()["ClusterQueue team-alpha"]
    (cell,) = queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"]
    assert cell["nominalQuota"] == "12"


async def test_a_restart_writes_nothing(folder: Path) -> None:
    async with Harness(folder).started() as first:
        await first.settle()
    async with Harness(folder).started() as second:
        await second.settle()
        assert second.passes.written == 0
        assert second.condition("team-beta", "Materialized") == ("True", "Admitted")


async def test_nothing_is_written_while_nothing_is_enrolled(folder: Path) -> None:
    options = msgspec.structs.replace(OPTIONS, materialize=MaterializeOptions())
    async with Harness(folder, options).started() as harness:
        await harness.settle()
        assert harness.objects() == {}
        assert harness.condition("team-beta", "Ready") == ("True", "Admitted")
        assert harness.condition("team-beta", "Materialized") == ("", "")


@pytest.mark.case("A-69")
async def test_a_write_that_fails_is_told_and_tried_again(harness: Harness) -> None:
    carry_out = harness.cluster.apply
    failing = True

    async def apply(plan: Any) -> Results:
        if not failing:
            return await carry_out(plan)
        held = [action for action in plan.actions if action.key.name == "team-beta"]
        rest = tuple(action for action in plan.actions if action.key.name != "team-beta")
        done = await carry_out(msgspec.structs.replace(plan, actions=rest))
        lost = tuple(
            Result(a.key, a.verb, a.stage, a.nodes, a.spec, "unavailable", "no answer")
            for a in held
        )
        return Results(done.results + lost)

    harness.cluster.apply = apply  # type: ignore[method-assign]
    for _ in range(4):
        await harness.controller.one_pass()
    assert harness.condition("team-alpha", "Materialized")[0] == "True"
    assert harness.condition("team-beta", "Materialized") == ("False", "MaterializationFailed")
    failing = False
    harness.time.ahead += 60
    await harness.settle()
    assert harness.condition("team-beta", "Materialized") == ("True", "Admitted")


async def test_settling_ends_with_its_patience(harness: Harness) -> None:
    async def apply(plan: Any) -> Results:
        return Results(
            tuple(Result(a.key, a.verb, a.stage, a.nodes, a.spec, "refused") for a in plan.actions)
        )

    harness.cluster.apply = apply  # type: ignore[method-assign]
    async with asyncio.timeout(10):
        await harness.controller.settle(patience=1.0)
    assert harness.condition("team-beta", "Materialized")[0] == "False"


async def test_what_somebody_changed_is_put_back_and_told(harness: Harness) -> None:
    await harness.settle()
    await harness.controller.one_pass()  # it has seen by now that all is as wanted
    key = Key("ClusterQueue", "", "team-beta")
    world = harness.cluster.snapshot()
    edited = msgspec.structs.replace(
        world.live[key], spec={**world.live[key].spec, "cohortName": "x"}, last_manager="somebody"
    )
    changed = msgspec.structs.replace(world, live={**world.live, key: edited})
    sent: list[str] = []

    async def apply(plan: Any) -> Results:
        sent.extend(f"{a.verb} {a.key} {a.fields}" for a in plan.actions)
        return Results(
            tuple(Result(a.key, a.verb, a.stage, a.nodes, a.spec, "written") for a in plan.actions)
        )

    harness.cluster.snapshot = lambda: changed  # type: ignore[method-assign]
    harness.cluster.apply = apply  # type: ignore[method-assign]
    with structlog.testing.capture_logs() as logs:
        await harness.controller.one_pass()
    assert sent == ["update ClusterQueue team-beta ('cohortName',)"]
    assert logs == [
        {"event": "wrote", "log_level": "info", "written": 1, "of": 1},
        {
            "event": "put back what somebody changed",
            "log_level": "warning",
            "object": "ClusterQueue team-beta",
            "quota": ["team-beta"],
            "reason": "DriftRepaired",
            "manager": "somebody",
            "fields": ["cohortName"],
        },
    ]


async def test_a_fault_of_a_pass_is_not_the_end(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a mistake of this program")

    with monkeypatch.context() as patch:
        patch.setattr("quota_translator.controller.translate", broken)
        assert await harness.controller.attempt() is None
    assert harness.passes.failures == 1
    assert await harness.controller.attempt() is not None


async def test_a_wave_is_cut_and_edits_come_first(harness: Harness) -> None:
    await harness.settle()
    tree = harness.folder / "tree.yaml"
    extra = "".join(
        f"""---
apiVersion: quota-translator.dev/v1beta1
kind: AcceleratorQuota
metadata: {{name: t{number}}}
spec:
  role: ClusterQueue
  parentRef: {{name: root}}
  budgets: [{{resourceName: nvidia.com/gpu, resourceFlavor: a100, nominal: 0}}]
"""
        for number in range(300)
    )
    harness.edit("team-beta", borrowingLimit="5")
    tree.write_text(tree.read_text() + extra)
    seen = len(harness.passes.seen)
    async with asyncio.timeout(10):
        while not harness.controller.dirty:
            await asyncio.sleep(0.02)
    await harness.settle()
    first = harness.passes.seen[seen][1]
    assert len(first.results) == 256
    assert any(r.key.name == "team-beta" and r.verb == "update" for r in first.results)
    assert len(harness.objects()) == 7 + 2 * 300
