"""The command line as a process: exit codes, streams, help."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

TOP = Path(__file__).parent.parent
COMMAND = [sys.executable, "-m", "quota_translator"]


def call(*arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        cwd=TOP,
        env={k: v for k, v in os.environ.items() if not k.startswith("QUOTA_TRANSLATOR_")}
        | (env or {}),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_a_sound_tree_exits_0() -> None:
    done = call("plan", "examples/guide")
    assert done.returncode == 0, done.stderr
    assert "Sound: 4 nodes, no violation" in done.stdout
    assert done.stderr == ""


def test_a_broken_tree_exits_2_with_the_report_on_stdout() -> None:
    done = call("plan", "examples/broken", "-o", "json")
    assert done.returncode == 2, done.stderr
    report = json.loads(done.stdout)
    assert report["kind"] == "Plan"
    assert report["violations"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("plan", "no/such/folder"), "no/such/folder"),
        (("plan", "examples/guide", "-o", "xml"), "--output: 'xml' is not one of"),
        (("plan", "examples/guide", "--mark", "gpu"), "--mark"),
        ((), "Missing command. (see --help)"),
        (("plan",), "PATH"),
        (("run", "--once"), "--once and --output go with --local"),
        (("run", "--local", "no/such/folder"), "is not a folder"),
        (("run", "--capacity-drop-after", "soon"), "--capacity-drop-after: 'soon'"),
        (("run", "--no-such-flag"), "--no-such-flag"),
        (("run", "--kubeconfig", "no/such/file"), "no kubeconfig at no/such/file; name one by"),
        (("bogus",), "bogus"),
    ],
)
def test_what_cannot_be_done_is_one_line_on_stderr_and_exit_1(
    arguments: tuple[str, ...], says: str
) -> None:
    done = call(*arguments)
    assert done.returncode == 1
    assert done.stdout == ""
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_help_teaches() -> None:
    assert "without a cluster" in call("plan", "--help").stdout
    run = call("run", "--help").stdout
    assert "--capacity-hysteresis-percent" in run
    assert "[default: 10]" in run


def test_version() -> None:
    assert call("--version").stdout.startswith("quota-translator 0.")


def test_local_mode_once_prints_the_verdict_and_where_the_objects_are(tmp_path: Path) -> None:
    done = call("run", "--local", "examples/guide", "--output", str(tmp_path), "--once")
    assert done.returncode == 0, done.stderr
    assert "Sound: 4 nodes, no violation; nothing to change." in done.stdout
    assert f"The 7 Kueue objects are in {tmp_path}/objects" in done.stdout
    assert (tmp_path / "objects/ClusterQueue/team-beta.yaml").is_file()


def test_local_mode_counts_the_objects_of_frozen_nodes_too(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for file in (TOP / "examples/guide").glob("*.yaml"):
        (tmp_path / "in" / file.name).write_text(file.read_text())
    arguments = ("run", "--local", str(tmp_path / "in"), "--output", str(tmp_path / "out"))
    assert call(*arguments, "--once").returncode == 0
    tree = tmp_path / "in" / "tree.yaml"
    tree.write_text(tree.read_text().replace('nominal: "16"', 'nominal: "20"'))
    done = call(*arguments, "--once")
    assert done.returncode == 2, done.stderr
    assert "3 node(s) are frozen" in done.stdout
    assert "The 7 Kueue objects are in" in done.stdout


def test_an_empty_folder_is_an_empty_cluster(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    done = call("run", "--local", str(tmp_path / "in"), "--output", str(tmp_path / "out"), "--once")
    assert done.returncode == 0, done.stderr
    assert "Sound: 1 node, no violation; nothing to change." in done.stdout
    assert "The Kueue object is in" in done.stdout


def test_local_mode_follows_the_folder_and_stops_on_sigterm(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for file in (TOP / "examples/guide").glob("*.yaml"):
        (tmp_path / "in" / file.name).write_text(file.read_text())
    queue = tmp_path / "out/objects/ClusterQueue/team-beta.yaml"
    process = subprocess.Popen(
        [*COMMAND, "run", "--local", str(tmp_path / "in"), "--output", str(tmp_path / "out")],
        cwd=TOP,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert until(queue.is_file), "no queue was written"
        tree = tmp_path / "in" / "tree.yaml"
        good = tree.read_text()
        tree.write_text(good.replace('borrowingLimit: "4"', 'borrowingLimit: "7"'))
        assert until(lambda: "borrowingLimit: '7'" in queue.read_text().replace('"', "'"))
        tree.write_text(good[: len(good) // 2] + "\n  : [half")
        tree.write_text(good.replace('borrowingLimit: "4"', 'borrowingLimit: "5"'))
        assert until(lambda: "borrowingLimit: '5'" in queue.read_text().replace('"', "'"))
    finally:
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=20)
    assert process.returncode == 0, errors
    assert "Traceback" not in errors


def until(look: object, limit: float = 20.0) -> bool:
    """Bounded: whether `look` came true."""
    end = time.monotonic() + limit
    while time.monotonic() < end:
        if look():  # type: ignore[operator]
            return True
        time.sleep(0.05)
    return False
