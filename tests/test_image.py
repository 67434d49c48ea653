"""What the image holds and runs: the Dockerfile's own commands, without a container.

No container engine is needed. The steps of the build stage are run as they are written, with their
absolute paths moved, over what `.dockerignore` lets through; the base image's Python is ours.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
DOCKERFILE = ROOT / "Dockerfile"
PREFIX = "/opt/quota-translator"
LIMIT = 280.0


def instructions() -> list[tuple[str, str]]:
    """Of the Dockerfile, in order: continued lines as one, comments left out."""
    lines = [line for line in DOCKERFILE.read_text().splitlines() if not line.startswith("#")]
    text = re.sub(r"\\\n", " ", "\n".join(lines))
    pairs = [line.partition(" ") for line in text.splitlines() if line.strip()]
    return [(word, rest.strip()) for word, _, rest in pairs]


def stages() -> list[list[tuple[str, str]]]:
    found: list[list[tuple[str, str]]] = []
    for word, rest in instructions():
        if word == "FROM":
            found.append([])
        if found:
            found[-1].append((word, rest))
    return found


class Image:
    """The build stage, done in a folder."""

    def __init__(self, folder: Path) -> None:
        self.prefix = folder / "opt"
        self._source = folder / "src"
        self._source.mkdir()

    def build(self) -> None:
        build, _ = stages()
        for word, rest in build[1:]:
            if word == "COPY":
                source, target = rest.split()
                assert _in_context(source), f"{source} is not let through by .dockerignore"
                _copy(ROOT / source, self._source / target)
            elif word == "RUN":
                self._run(rest)
            else:
                assert (word, rest) == ("WORKDIR", "/src")

    def _run(self, command: str) -> None:
        # A builder's environment has none of this; tests may be started with it.
        plain = {name: value for name, value in os.environ.items() if name[:6] != "PYTHON"}
        tools = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        done = subprocess.run(
            ["sh", "-euc", command.replace(PREFIX, str(self.prefix))],
            cwd=self._source,
            env=plain | tools,
            capture_output=True,
            text=True,
            timeout=LIMIT,
        )
        assert done.returncode == 0, done.stderr

    def start(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """The entry point, with the image's environment and no other."""
        _, final = stages()
        entry = json.loads(next(rest for word, rest in final if word == "ENTRYPOINT"))
        pairs = [pair for word, rest in final if word == "ENV" for pair in rest.split()]
        command = [word.replace(PREFIX, str(self.prefix)) for word in entry]
        return subprocess.run(
            [*command, *arguments],
            cwd="/",
            env=dict(pair.split("=", 1) for pair in pairs) | {"PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            timeout=60,
        )


def _in_context(path: str) -> bool:
    kept = [
        line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] == "!"
    ]
    return path in kept


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copyfile(source, target)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    found = Image(tmp_path_factory.mktemp("image"))
    found.build()
    yield found
    shutil.rmtree(found.prefix)


def test_it_starts_and_says_what_it_is(image: Image) -> None:
    for arguments in (["--help"], ["run", "--help"], ["--version"]):
        done = image.start(*arguments)
        assert done.returncode == 0, done.stderr
        assert "quota-translator" in done.stdout


def test_it_does_its_work_on_a_folder(image: Image, tmp_path: Path) -> None:
    done = image.start(
        "run", "--local", str(ROOT / "examples/guide"), "--output", str(tmp_path / "out"), "--once"
    )
    assert done.returncode == 0, done.stderr
    assert "Sound: 4 nodes, no violation" in done.stdout
    kinds = {
        document["kind"]
        for file in (tmp_path / "out").rglob("*.yaml")
        for document in yaml.safe_load_all(file.read_text())
        if document and document.get("apiVersion", "").startswith("kueue")
    }
    assert kinds == {"ResourceFlavor", "Cohort", "ClusterQueue", "LocalQueue"}


def test_it_says_in_one_line_that_there_is_no_cluster(image: Image) -> None:
    done = image.start("run", "--kubeconfig", "/nowhere")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("quota-translator: no kubeconfig at /nowhere")
    assert len(done.stderr.splitlines()) == 1


def test_it_holds_what_is_locked_and_neither_pip_nor_tools(image: Image) -> None:
    code = (
        "import importlib.metadata as m, json; "
        "found = {d.name.lower().replace('_', '-'): d.version for d in m.distributions()}; "
        "print(json.dumps(found))"
    )
    python = image.prefix / "bin" / "python"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, cwd="/", check=True)
    lines = (ROOT / "requirements/run.txt").read_text()
    locked = dict(re.findall(r"^([a-z0-9-]+)==(\S+)", lines, re.MULTILINE))
    assert json.loads(done.stdout) == locked
    assert not {"pytest", "mypy", "pip", "setuptools", "hypothesis"} & set(locked)
    names = {path.name for path in (image.prefix / "bin").iterdir()}
    assert not [name for name in names if name.startswith(("pip", "gcc", "cc"))]


def test_whoever_runs_it_can_read_it_and_need_not_write(image: Image) -> None:
    """It is copied as root's; another user runs it, on a file system that is only read."""
    unreadable = [
        path
        for path in image.prefix.rglob("*")
        if not path.is_symlink() and not path.stat().st_mode & 0o004
    ]
    assert unreadable == []
    site = next(image.prefix.glob("lib/python3*/site-packages"))
    sources = list((site / "quota_translator").rglob("*.py"))
    for source in sources:
        assert list((source.parent / "__pycache__").glob(f"{source.stem}.*.pyc")), source


def test_the_last_stage_is_lean_and_nobodys() -> None:
    build, final = stages()
    (_, base), (_, last) = build[0], final[0]
    assert base == f"{last} AS build"
    (argument,) = [rest for word, rest in instructions() if word == "ARG"]
    assert re.fullmatch(r"BASE=python:\d+\.\d+\.\d+-slim-[a-z]+", argument)
    (user,) = [rest for word, rest in final if word == "USER"]
    assert re.fullmatch(r"[1-9]\d{3,}:[1-9]\d{3,}", user)
    assert [rest for word, rest in final if word == "COPY"] == [f"--from=build {PREFIX} {PREFIX}"]
    removed = " ".join(rest for word, rest in final if word == "RUN")
    assert "site-packages/pip*" in removed
    assert "ensurepip" in removed
    assert not re.search(r"apt|apk|curl|pip install", removed)


def test_hadolint_is_content() -> None:
    found = shutil.which("hadolint", path=str(Path(sys.executable).parent)) or "hadolint"
    done = subprocess.run([found, str(DOCKERFILE)], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "")
