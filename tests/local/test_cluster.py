"""A folder as a cluster: edits are seen, broken files keep their last good state, restarts are
silent, and writes are answered as a server would answer them."""

import asyncio
import contextlib
import json
import shutil
import time
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from quota_translator.controller import Controller
from quota_translator.core.actions import Action, Plan
from quota_translator.core.names import Key
from quota_translator.core.options import MaterializeOptions, Options
from quota_translator.core.quantity import Quantity
from quota_translator.core.world import Clock, QuotaNode, World
from quota_translator.local.cluster import WATCHED, LocalCluster
from quota_translator.local.run_plan import run_plan
from quota_translator.local.yaml_text import dump

COHORT = Key("Cohort", "", "ml")
QUEUE = Key("ClusterQueue", "", "team")
LOCAL = Key("LocalQueue", "work", "team")


def quota(name: str, amount: int = 8) -> str:
    return f"""\
---
apiVersion: quota-translator.dev/v1beta1
kind: AcceleratorQuota
metadata: {{name: {name}}}
spec:
  role: ClusterQueue
  parentRef: {{name: root}}
  budgets: [{{resourceName: nvidia.com/gpu, resourceFlavor: a100, nominal: {amount}}}]
"""


def action(verb: Any, key: Key, spec: dict[str, Any] | None = None, **more: Any) -> Action:
    return Action(
        verb=verb, key=key, stage=2, spec=spec or {}, nodes=frozenset({key.name}),
        quota=key.name, **more,
    )  # fmt: skip


def cells(nominal: str) -> list[dict[str, Any]]:
    cell = {"name": "nvidia.com/gpu", "nominalQuota": Quantity.parse(nominal)}
    return [
        {"coveredResources": ["nvidia.com/gpu"], "flavors": [{"name": "a", "resources": [cell]}]}
    ]


class Setting:
    """A cluster over a folder, what it reported, and which kinds it called dirty."""

    def __init__(self, folder: Path, **more: Any) -> None:
        self.folder = folder
        self.reports: list[str] = []
        self.dirty: list[str] = []
        self.cluster = LocalCluster(folder, report=self.reports.append, **more)

    async def start(self) -> None:
        await self.cluster.start(self.dirty.append)

    async def until(self, seen: Callable[[], bool]) -> None:
        """Within a second (and a generous margin for a loaded machine)."""
        for _ in range(1000):
            if seen():
                return
            await asyncio.sleep(0.02)
        raise AssertionError(f"not seen; reports {self.reports}, dirty {self.dirty}")

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def read(self, name: str) -> str:
        return (self.folder / name).read_text()

    @property
    def world(self) -> World:
        return self.cluster.snapshot()

    def quota(self, name: str) -> QuotaNode:
        return next(node for node in self.world.quotas or () if node.name == name)

    def has(self, *names: str) -> bool:
        return {node.name for node in self.world.quotas or ()} == set(names)


@pytest.fixture(params=[False, True], ids=["notified", "polling"])
async def setting(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Setting]:
    found = Setting(tmp_path, force_polling=request.param)
    found.write("tree.yaml", quota("team"))
    await found.start()
    yield found
    await found.cluster.stop()


@pytest.fixture
async def plain(tmp_path: Path) -> AsyncIterator[Setting]:
    found = Setting(tmp_path)
    found.write("tree.yaml", quota("team"))
    await found.start()
    yield found
    await found.cluster.stop()


def again(setting: Setting) -> Setting:
    return Setting(setting.folder)


# --- reading ----------------------------------------------------------------------------------


async def test_all_kinds_are_dirty_at_first(plain: Setting) -> None:
    assert set(plain.dirty) == set(WATCHED)
    assert plain.has("team")
    assert {state.synced for state in plain.cluster.sync_states().values()} == {True}
    assert plain.cluster.sync_states()["AcceleratorQuota"].objects == 1
    assert plain.world.nodes is None


async def test_an_edit_a_new_file_and_a_deletion_are_seen(setting: Setting) -> None:
    setting.dirty.clear()
    setting.write("tree.yaml", quota("team", 9))
    await setting.until(lambda: setting.quota("team").budgets[0].nominal == Quantity.of(9))
    assert setting.dirty == ["AcceleratorQuota"]
    assert setting.quota("team").generation == 1  # no status was ever written for the first
    setting.write("more.yaml", quota("other"))
    await setting.until(lambda: setting.has("team", "other"))
    (setting.folder / "tree.yaml").unlink()
    await setting.until(lambda: setting.has("other"))


async def test_a_new_folder_is_watched_too(setting: Setting) -> None:
    (setting.folder / "deep/er").mkdir(parents=True)
    setting.write("deep/er/more.yaml", quota("other"))
    await setting.until(lambda: setting.has("team", "other"))


async def test_a_broken_file_keeps_its_last_good_state_and_is_reported_once(
    setting: Setting,
) -> None:
    setting.write("tree.yaml", quota("team", 9) + "---\nkind: [\n")
    await setting.until(lambda: bool(setting.reports))
    (report,) = setting.reports
    assert report.startswith(f"{setting.folder}/tree.yaml:")
    assert "not YAML" in report
    assert report.endswith("(its last good state stays)")
    assert setting.quota("team").budgets[0].nominal == Quantity.of(8)
    assert not setting.world.heard
    setting.write("tree.yaml", quota("team", 9))
    await setting.until(lambda: len(setting.reports) == 2)
    assert setting.reports[1] == f"{setting.folder}/tree.yaml: reads well again"
    assert setting.quota("team").budgets[0].nominal == Quantity.of(9)
    assert setting.world.heard


async def test_an_emptied_file_is_taken_for_a_half_written_one(plain: Setting) -> None:
    plain.write("tree.yaml", "")
    await plain.until(lambda: bool(plain.reports))
    assert "is empty: its 1 object(s) stay" in plain.reports[0]
    assert plain.has("team")
    (plain.folder / "tree.yaml").unlink()
    await plain.until(lambda: plain.has())
    assert plain.reports[1:] == [f"{plain.folder}/tree.yaml: is gone, and its fault with it"]


async def test_a_file_that_never_made_sense_leaves_everything_unknown(tmp_path: Path) -> None:
    setting = Setting(tmp_path)
    setting.write("a.yaml", quota("team"))
    setting.write("b.yaml", "a:\n\tb: 1\n")
    await setting.start()
    try:
        assert setting.world.quotas is None
        states = setting.cluster.sync_states()
        assert {state.synced for state in states.values()} == {False}
        assert "b.yaml:2: not YAML: a tab" in states["Node"].reason
        assert [str(problem) for problem in setting.cluster.problems] == [states["Node"].reason]
        setting.write("b.yaml", "")
        await setting.until(lambda: setting.has("team"))
    finally:
        await setting.cluster.stop()


async def test_an_object_that_stands_twice_is_reported_and_the_first_counts(plain: Setting) -> None:
    space = "apiVersion: v1\nkind: Namespace\nmetadata: {name: work}\n"
    plain.write("a.yaml", space)
    plain.write("b.yaml", space)
    await plain.until(lambda: bool(plain.reports))
    assert "Namespace work stands here and at" in plain.reports[0]
    await plain.until(lambda: len(plain.world.namespaces or ()) == 1)


async def test_fields_have_lines(plain: Setting) -> None:
    source = plain.quota("team").source
    assert plain.cluster.where(source, "spec.parentRef") == f"{plain.folder}/tree.yaml:7"


# --- root and statuses ------------------------------------------------------------------------


async def test_root_is_there_once_it_is_created_and_stays(plain: Setting) -> None:
    await plain.cluster.create_root()
    await plain.cluster.create_root()
    assert plain.has("root", "team")
    await plain.cluster.stop()
    other = again(plain)
    await other.start()
    assert other.has("root", "team")
    await other.cluster.stop()


async def test_statuses_and_generations_survive_a_restart(plain: Setting) -> None:
    result = await plain.cluster.write_status(plain.quota("team"), {"summary": "8"})
    assert result.outcome == "written"
    plain.write("tree.yaml", quota("team", 9))
    await plain.until(lambda: plain.quota("team").generation == 2)
    await plain.cluster.write_status(plain.quota("team"), {"summary": "9"})
    await plain.cluster.stop()
    other = again(plain)
    await other.start()
    assert (other.quota("team").generation, other.quota("team").status) == (2, {"summary": "9"})
    await other.cluster.stop()


async def test_the_status_of_a_node_that_went_is_forgotten(plain: Setting) -> None:
    node = plain.quota("team")
    await plain.cluster.write_status(node, {"summary": "8"})
    plain.write("tree.yaml", quota("other"))
    await plain.until(lambda: plain.has("other"))
    assert (await plain.cluster.write_status(node, {})).outcome == "conflict"
    await plain.cluster.stop()
    assert "summary" not in (plain.cluster.output.folder / "state.yaml").read_text()


async def test_a_status_in_the_input_is_where_one_starts(tmp_path: Path) -> None:
    setting = Setting(tmp_path)
    setting.write("tree.yaml", quota("team") + "status: {summary: old}\n")
    await setting.start()
    assert setting.quota("team").status == {"summary": "old"}
    await setting.cluster.stop()


async def test_a_state_file_that_cannot_be_read_is_reported(tmp_path: Path) -> None:
    (tmp_path / ".quota-translator").mkdir()
    (tmp_path / ".quota-translator/state.yaml").write_text("nodes: 7\n")
    setting = Setting(tmp_path)
    await setting.start()
    assert "state cannot be read" in setting.reports[0]
    await setting.cluster.stop()


# --- Kueue's objects --------------------------------------------------------------------------


async def done(setting: Setting, *actions: Action) -> list[str]:
    results = await setting.cluster.apply(Plan(actions=actions))
    return [result.outcome for result in results.results]


CREATED = (
    action("create", COHORT, {"parentName": "root"}),
    action("create", QUEUE, {"cohortName": "ml", "resourceGroups": cells("8")}, requires=COHORT),
    action("create", LOCAL, {"clusterQueue": "team"}),
)


async def test_what_is_written_is_live_at_once_and_after_a_restart(plain: Setting) -> None:
    plain.dirty.clear()
    assert await done(plain, *CREATED) == ["written"] * 3
    assert set(plain.dirty) == {"Cohort", "ClusterQueue", "LocalQueue"}
    queue = plain.world.live[QUEUE]
    assert (queue.active, queue.active_generation, queue.generation) == (True, 1, 1)
    assert queue.usage == {}
    files = sorted(str(p.relative_to(plain.cluster.output.objects))
                   for p in plain.cluster.output.objects.rglob("*.yaml"))  # fmt: skip
    assert files == ["ClusterQueue/team.yaml", "Cohort/ml.yaml", "LocalQueue/work/team.yaml"]
    await plain.cluster.stop()
    other = again(plain)
    await other.start()
    assert other.world.live.keys() == plain.world.live.keys()
    for key, record in other.world.live.items():
        before = plain.world.live[key]
        assert (record.spec, record.managed_by, record.quota) == (
            before.spec, before.managed_by, before.quota,
        )  # fmt: skip
    await other.cluster.stop()


async def test_updates_count_generations_and_deletes_end(plain: Setting) -> None:
    await done(plain, *CREATED)
    uid = plain.world.live[QUEUE].uid
    spec = {"cohortName": "ml", "resourceGroups": cells("9")}
    assert await done(plain, action("update", QUEUE, spec, uid=uid)) == ["written"]
    queue = plain.world.live[QUEUE]
    assert (queue.generation, queue.active_generation, queue.uid) == (2, 2, uid)
    assert await done(plain, action("delete", QUEUE, uid=uid)) == ["written"]
    assert QUEUE not in plain.world.live
    assert await done(plain, action("delete", QUEUE, uid=uid)) == ["unchanged"]


async def test_a_write_is_refused_as_a_server_would(plain: Setting) -> None:
    queue = action("create", QUEUE, {"cohortName": "ml"}, requires=COHORT)
    results = await plain.cluster.apply(Plan(actions=(queue,)))
    assert [(r.outcome, r.needs_parent) for r in results.results] == [("skipped", True)]
    assert await done(plain, action("update", QUEUE, {})) == ["conflict"]
    await done(plain, *CREATED)
    assert await done(plain, action("update", QUEUE, {}, uid="another")) == ["conflict"]
    assert await done(plain, action("delete", COHORT)) == ["skipped"]
    bad = action("create", Key("LocalQueue", "../..", "team"), {"clusterQueue": "team"})
    assert await done(plain, bad) == ["refused"]


async def test_a_disk_that_fails_is_a_failed_write(plain: Setting) -> None:
    (plain.cluster.output.objects / "Cohort").write_text("in the way")
    results = await plain.cluster.apply(Plan(actions=(CREATED[0],)))
    assert results.results[0].outcome == "failed"
    assert "cannot write" in results.results[0].message


async def test_what_a_person_does_to_an_object_is_seen_and_the_rest_of_it_stays(
    plain: Setting,
) -> None:
    await done(plain, *CREATED)
    path = plain.cluster.output.objects / "ClusterQueue/team.yaml"
    text = path.read_text()
    path.write_text(text.replace("'8'", "'3'").replace('"8"', '"3"') + "  stopPolicy: Hold\n")
    await plain.until(lambda: plain.world.live[QUEUE].stop_policy == "Hold")
    assert plain.world.live[QUEUE].spec["resourceGroups"] == cells("3")
    spec = {"cohortName": "ml", "resourceGroups": cells("8")}
    assert await done(plain, action("update", QUEUE, spec)) == ["written"]
    assert "stopPolicy: Hold" in path.read_text()
    path.unlink()
    await plain.until(lambda: QUEUE not in plain.world.live)


async def test_objects_of_the_input_are_live_and_what_we_write_wins(plain: Setting) -> None:
    labels = {"quota-translator.dev/managed-by": "quota-translator"}
    labels["quota-translator.dev/quota"] = "team"
    used = {"name": "nvidia.com/gpu", "total": "5", "borrowed": "0"}
    given = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ClusterQueue",
        "metadata": {"name": "team", "labels": labels},
        "spec": {"cohortName": "elsewhere"},
        "status": {"flavorsUsage": [{"name": "a", "resources": [used]}]},
    }
    plain.write("queue.yaml", dump(given))
    await plain.until(lambda: QUEUE in plain.world.live)
    assert plain.world.live[QUEUE].spec == {"cohortName": "elsewhere"}
    await done(plain, action("update", QUEUE, {"cohortName": "ml"}))
    queue = plain.world.live[QUEUE]
    assert queue.spec == {"cohortName": "ml"}
    assert [amount.total for amount in (queue.usage or {}).values()] == [Quantity.of(5)]
    await done(plain, action("delete", QUEUE))
    assert QUEUE not in plain.world.live
    await plain.cluster.stop()
    other = again(plain)
    await other.start()
    assert QUEUE not in other.world.live  # the input's file is not ours to delete
    await other.cluster.stop()


async def test_a_strangers_object_is_left_alone(plain: Setting) -> None:
    given = "apiVersion: kueue.x-k8s.io/v1beta2\nkind: ClusterQueue\nmetadata: {name: team}\n"
    plain.write("queue.yaml", given)
    await plain.until(lambda: QUEUE in plain.world.live)
    assert await done(plain, *CREATED) == ["written", "conflict", "written"]
    assert not (plain.cluster.output.objects / "ClusterQueue").exists()


async def test_another_output_folder_may_be_given(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    setting = Setting(tmp_path / "in", output=tmp_path / "out")
    setting.write("tree.yaml", quota("team"))
    await setting.start()
    await done(setting, *CREATED)
    await setting.cluster.create_root()
    await setting.cluster.stop()
    assert (tmp_path / "out/objects/Cohort/ml.yaml").is_file()
    assert (tmp_path / "out/state.yaml").is_file()
    assert [path.name for path in (tmp_path / "in").iterdir()] == ["tree.yaml"]


async def test_stop_may_be_called_twice_and_without_a_start(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path)
    assert cluster.snapshot().quotas is None
    assert not cluster.sync_states()["Node"].synced
    await cluster.stop()
    await cluster.start(lambda _kind: None)
    await cluster.stop()
    await cluster.stop()


# --- with the controller ----------------------------------------------------------------------


def written(setting: Setting) -> dict[str, tuple[str, int]]:
    """The files of the objects: what they say, and when they were written."""
    root = setting.cluster.output.objects
    return {
        str(path.relative_to(root)): (path.read_text(), path.stat().st_mtime_ns)
        for path in root.rglob("*.yaml")
    }


def names(before: dict[str, Any], after: dict[str, Any]) -> set[str]:
    return {name for name in before | after if before.get(name) != after.get(name)}


@pytest.fixture
async def guide(tmp_path: Path) -> AsyncIterator[Setting]:
    shutil.copytree("examples/guide", tmp_path, dirs_exist_ok=True)
    found = Setting(tmp_path)
    yield found
    await found.cluster.stop()


async def running(setting: Setting) -> asyncio.Task[None]:
    def now() -> Clock:
        return Clock(datetime.now(UTC), time.monotonic())

    chosen = MaterializeOptions(enrolled_namespaces=("ml-serving",))
    observer = SimpleNamespace(passed=lambda *_: None, failed=lambda: None)
    controller = Controller(setting.cluster, Options(materialize=chosen), now, observer)
    task = asyncio.create_task(controller.run())
    await setting.until(lambda: len(written(setting)) == 7 and _is_told(setting))
    return task


def _is_told(setting: Setting) -> bool:
    """Every node's status says that Kueue has it."""
    found = [node.status.get("conditions", []) for node in setting.world.quotas or ()]
    return len(found) == 4 and all(
        {row["type"]: row["status"] for row in rows}.get("Materialized") == "True" for rows in found
    )


async def test_an_edit_changes_the_objects_that_it_is_about_and_a_restart_none(
    guide: Setting,
) -> None:
    task = await running(guide)
    before = written(guide)
    objects = run_plan([guide.folder], output="json", enrolled=["ml-serving"])[1]
    wanted = {json.dumps(o, sort_keys=True) for o in json.loads(objects)["objects"]}
    found = {json.dumps(yaml.safe_load(text), sort_keys=True) for text, _ in before.values()}
    assert found == wanted

    tree = guide.read("tree.yaml")
    guide.write("tree.yaml", tree.replace('"16"', '"14"'))
    await guide.until(lambda: names(before, written(guide)) == {"ClusterQueue/team-alpha.yaml"})
    guide.write("tree.yaml", tree.replace('"16"', '"18"'))  # 26 do not fit into 24
    await guide.until(lambda: guide.quota("team-alpha").status["materialization"]["frozen"])
    assert names(before, written(guide)) == {"ClusterQueue/team-alpha.yaml"}
    guide.write("tree.yaml", tree.replace('"16"', '"14"'))
    await guide.until(lambda: _is_told(guide))
    await ended(task)

    settled = written(guide)
    other = again(guide)
    task = await running(other)
    await ended(task)
    assert names(settled, written(other)) == set()


async def ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
