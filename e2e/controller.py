"""Our controller as a process of its own, started as a person starts it, with its own user."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from e2e.controlplane.cluster import ControlPlane
from e2e.waiting import eventually
from quota_translator.core.crd import crd

USER = "quota-translator"
QUOTAS = "/apis/quota-translator.dev/v1beta1/acceleratorquotas"
STOP_LIMIT = 20.0
# Without a Lease to wait for, and without a claim on the tree to wait out after a kill: whatever
# ran in the test before. Tests of the Lease and of claims say otherwise by flags of their own.
ALONE = ("--leader-election-enabled", "false", "--take-over", "true")


CRD = (
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/acceleratorquotas.quota-translator.dev"
)


def install_crd(cp: ControlPlane) -> None:
    cp.apply(crd())
    eventually(lambda: cp.api.find(QUOTAS), 30, "the CRD to be served")


def remove_crd(cp: ControlPlane) -> None:
    """As on a cluster that has never seen us; tests before may have installed it."""
    cp.api.delete(CRD)
    eventually(lambda: cp.api.find(CRD) is None, 30, "the CRD to be gone")


class Controller:
    """`quota-translator run` on a control plane. A context manager that ends it for certain."""

    def __init__(
        self,
        cp: ControlPlane,
        *flags: str,
        namespaces: str = "ml-serving",
        kubeconfig: Path | None = None,
    ) -> None:
        """`kubeconfig`: of another user, or the way through a proxy. A later flag beats ours."""
        self._cp = cp
        self._port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None
        self.log_file = Path(cp.logs) / f"controller-{self._port}.log"
        address = f"127.0.0.1:{self._port}"
        self._command = [
            sys.executable,
            "-m",
            "quota_translator",
            "run",
            "--kubeconfig",
            str(kubeconfig or cp.new_kubeconfig(USER, groups=("system:masters",))),
            "--health-bind-address",
            address,
            "--metrics-bind-address",
            address,
            "--log-format",
            "json",
            *ALONE,
            *(("--materialize-enrolled-namespaces", namespaces) if namespaces else ()),
            *flags,
        ]

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.kill()  # nobody else ends what was never entered
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            print(f"the end of {self.log_file}:\n{self.log()[-8000:]}")
        self.stop()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self, *, ready: bool = True) -> Self:
        self._log = self.log_file.open("ab")
        environment = {k: v for k, v in os.environ.items() if not k.startswith("QUOTA_TRANSLATOR")}
        self._process = subprocess.Popen(
            self._command,
            stdout=self._log,
            stderr=self._log,
            stdin=subprocess.DEVNULL,
            env=environment,
            cwd=Path(__file__).parent.parent,
        )
        if ready:
            eventually(self.is_ready, 60, f"the controller to be ready (log: {self.log_file})")
        return self

    def is_ready(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise AssertionError(f"the controller ended: {self.log()[-2000:]}")
        return self.get("/readyz")[0] == 200

    def get(self, path: str) -> tuple[int, str]:
        """A page of the controller's own server: status and text; 0 when nobody answers."""
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{self._port}{path}", timeout=5
            ) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError as error:
            return 0, str(error)

    def stop(self) -> int:
        """SIGTERM, and its exit code. Nothing to do when it has ended already."""
        return self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> int:
        process = self._process
        if process is None:
            return 0
        if process.poll() is None:
            process.send_signal(number)
        try:
            code = process.wait(STOP_LIMIT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise AssertionError(f"it did not end {STOP_LIMIT:g} s after {number.name}") from None
        finally:
            self._process = None
            if self._log is not None:
                self._log.close()
        return code

    def log(self) -> str:
        return self.log_file.read_text(encoding="utf-8", errors="replace")


@contextmanager
def running(
    cp: ControlPlane,
    *flags: str,
    namespaces: str = "ml-serving",
    kubeconfig: Path | None = None,
) -> Iterator[Controller]:
    """The CRD installed, and the controller ready."""
    install_crd(cp)
    with Controller(cp, *flags, namespaces=namespaces, kubeconfig=kubeconfig) as controller:
        yield controller


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_seconds(seconds: float) -> None:
    """For tests of what must *not* happen in a stretch of time; all else waits for a state."""
    time.sleep(seconds)
