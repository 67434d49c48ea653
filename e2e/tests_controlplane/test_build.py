"""The builder, with a go command that only pretends: what is built, what is not, what is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from e2e.controlplane import build

GO = """\
#!/bin/sh
echo "$@" >> {calls}
case "$1" in
  env) echo {version} ;;
  build) {compiler} ;;
  list) echo {source} ;;
esac
"""
WRITES = 'echo "program of $CGO_ENABLED" > "$3"'


class Machine:
    """A cache, a PATH with a go command or without one, and what was said and called."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.cache = root / "cache"
        self.calls = root / "calls"
        self.said: list[str] = []
        self._path = root / "path"
        self._path.mkdir()
        self.source = root / "source"
        monkeypatch.setenv("PATH", f"{self._path}:/usr/bin:/bin")
        monkeypatch.setenv(build.CACHE_VARIABLE, str(self.cache))
        monkeypatch.delenv(build.ENVTEST_VARIABLE, raising=False)
        monkeypatch.delenv(build.OWN_BINARIES_VARIABLE, raising=False)
        for module in build.MODULES:
            for asset in module.assets:
                file = self.source / asset.pattern.replace("*", "fast")
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(asset.name)

    def install_go(self, version: str = "go1.26.8", compiler: str = WRITES) -> None:
        command = self._path / "go"
        command.write_text(
            GO.format(calls=self.calls, version=version, compiler=compiler, source=self.source)
        )
        command.chmod(0o755)

    def remove_go(self) -> None:
        (self._path / "go").unlink()

    def ensure(self) -> build.Binaries:
        self.said = []
        return build.ensure(self.said.append)

    def builds(self) -> list[str]:
        if not self.calls.exists():
            return []
        return [line for line in self.calls.read_text().splitlines() if line.startswith("build")]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def test_everything_is_built_once(machine: Machine) -> None:
    machine.install_go()
    found = machine.ensure()
    assert sorted(found.programs) == sorted(build.TOOL_NAMES)
    assert {path.read_text() for path in found.programs.values()} == {"program of 0\n"}
    assert all(list(path.iterdir()) for path in found.assets.values())
    assert "building kube-apiserver (2 of 8) …" in machine.said
    assert machine.said[-1].startswith("built 8 programs in ")

    assert machine.ensure() == found
    assert len(machine.builds()) == 8
    (line,) = machine.said
    assert line.startswith("not building what is in the cache already: etcd, kube-apiserver, ")


def test_programs_are_executable_and_nothing_half_done_is_left(machine: Machine) -> None:
    machine.install_go()
    machine.ensure()
    assert list(machine.cache.glob(".tmp-*")) == []


def test_a_failed_build_shows_what_go_said_and_is_tried_again(machine: Machine) -> None:
    machine.install_go(compiler="echo missing go.sum entry; exit 1")
    with pytest.raises(build.BuildError, match=r"(?s)etcd \(1 of 8\).*missing go\.sum entry"):
        machine.ensure()
    machine.install_go()
    machine.ensure()
    assert len(machine.builds()) == 9


def test_a_warm_cache_needs_no_go(machine: Machine) -> None:
    machine.install_go("go1.27.0")
    found = machine.ensure()
    machine.remove_go()
    assert machine.ensure() == found
    assert build.locate() == found


def test_another_go_builds_its_own(machine: Machine) -> None:
    machine.install_go("go1.26.8")
    first = machine.ensure()
    machine.install_go("go1.27.0")
    assert machine.ensure().programs["etcd"] != first.programs["etcd"]


def test_the_users_own_programs_are_used_and_reported(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.install_go()
    own, envtest = machine.root / "own", machine.root / "envtest"
    for path in (own / "kueue", own / "etcd", envtest / "etcd", envtest / "kube-apiserver"):
        path.parent.mkdir(exist_ok=True)
        path.touch()
    (envtest / "kueue").touch()
    monkeypatch.setenv(build.OWN_BINARIES_VARIABLE, str(own))
    monkeypatch.setenv(build.ENVTEST_VARIABLE, str(envtest))
    found = machine.ensure()
    assert found.programs["kueue"] == own / "kueue"
    assert found.programs["etcd"] == own / "etcd"
    assert found.programs["kube-apiserver"] == envtest / "kube-apiserver"
    assert len(machine.builds()) == 5
    assert f"using your kueue: {own / 'kueue'}" in machine.said


@pytest.mark.parametrize("version", ["go1.25.9", "devel +abc", ""])
def test_an_old_or_strange_go_is_not_used(machine: Machine, version: str) -> None:
    machine.install_go(version)
    assert build.go_on_path() is None


def test_no_go_at_all(machine: Machine) -> None:
    assert build.go_on_path() is None
    assert not any(path.exists() for path in build.locate().programs.values())


def test_what_decides_the_result_is_in_the_hash(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = machine.root / "modules"
    for module in build.MODULES:
        (copy / module.name).mkdir(parents=True)
        for name in ("go.mod", "go.sum"):
            (copy / module.name / name).write_bytes((module.folder / name).read_bytes())
    before = build.source_hash(build.MAIN)
    monkeypatch.setattr(build, "GO_MODULES", copy)
    assert build.source_hash(build.MAIN) == before
    with (copy / "main" / "go.sum").open("a") as file:
        file.write("more\n")
    assert build.source_hash(build.MAIN) != before


def test_the_pinned_versions_are_those_of_the_modules() -> None:
    text = (build.MAIN.folder / "go.mod").read_text()
    assert f"\tk8s.io/kubernetes {build.KUBERNETES} " in text
    assert f"\tsigs.k8s.io/kueue {build.KUEUE} " in text
    assert f"\thelm.sh/helm/v4 {build.HELM} " in text
    for module in build.MODULES:
        listed = (module.folder / "go.mod").read_text()
        for tool in module.tools:
            assert tool.package in listed


def test_the_cache_is_outside_the_tree(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(build.CACHE_VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert build.cache_root() == tmp_path / "quota-translator" / "controlplane"
