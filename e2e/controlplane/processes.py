"""Child processes that never outlive the test run, and ports for them.

Three layers see to that: an orderly ``stop``, an exit hook, and for ``kill -9`` of the run the
kernel itself, which is asked to kill the child when its parent dies (Linux only). Each child is in
a session of its own, so that a Ctrl-C on the terminal reaches us first and the children are ended
in the right order.
"""

from __future__ import annotations

import ctypes
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

PR_SET_PDEATHSIG = 1
# Below the range from which Linux takes the ports of outgoing connections: a port that was free a
# moment ago cannot be lost to a connection of one of our own processes.
PORTS = range(20000, 32000)
TAIL_LINES = 30


class ControlPlaneError(Exception):
    """The control plane could not be started, or did not do what was waited for."""


def _load_libc() -> ctypes.CDLL | None:
    if sys.platform != "linux":
        return None
    return ctypes.CDLL(None, use_errno=True)


_LIBC = _load_libc()


def die_with(parent: int) -> Callable[[], None]:
    """What a new child does before it becomes another program: ask to be killed with its parent."""

    def ask_kernel() -> None:
        if _LIBC is None:
            return
        _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # the parent died before the kernel knew
            os._exit(1)

    return ask_kernel


class Process:
    """One child process with a log file."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        cwd: Path,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.log = log
        with log.open("ab") as sink:
            self._process = subprocess.Popen(
                command,
                cwd=cwd,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=die_with(os.getpid()),
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    @property
    def status(self) -> int | None:
        """How it ended; None while it runs."""
        return self._process.poll()

    def check(self) -> None:
        """Raise, with the end of its log, if the process is gone."""
        if not self.running:
            raise ControlPlaneError(
                f"{self.name} ended with status {self._process.returncode}; "
                f"the end of {self.log}:\n{self.tail()}"
            )

    def tail(self, lines: int = TAIL_LINES) -> str:
        try:
            text = self.log.read_text(errors="replace")
        except OSError as error:
            return f"(no log: {error})"
        return "\n".join(text.rstrip().splitlines()[-lines:])

    def resident_megabytes(self) -> float | None:
        """Memory held in RAM, where the system tells it (Linux)."""
        try:
            status = Path(f"/proc/{self.pid}/status").read_text()
        except OSError:
            return None
        values = [line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:")]
        return int(values[0]) / 1024 if values else None

    def terminate(self) -> None:
        """Ask it to end, without waiting."""
        if self.running:
            self._process.terminate()

    def stop(self, patience: float) -> None:
        """Ask it to end, wait, and kill it when the patience is over."""
        self.terminate()
        try:
            self._process.wait(timeout=patience)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(timeout=10)

    def kill(self) -> None:
        """End it at once, as ``kill -9`` does."""
        if self.running:
            self._process.kill()
        self._process.wait(timeout=10)


def free_ports(count: int) -> list[int]:
    """Ports on which nothing listens, all different."""
    chosen: list[int] = []
    for port in random.sample(PORTS, 1000):
        if _is_free(port):
            chosen.append(port)
        if len(chosen) == count:
            return chosen
    raise ControlPlaneError(f"found only {len(chosen)} free ports of {count} on 127.0.0.1")


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def wait_until(
    what: str,
    look: Callable[[], str | None],
    *,
    timeout: float,
    alive: Mapping[str, Process] | None = None,
    interval: float = 0.05,
) -> float:
    """Poll ``look`` until it returns None; its text is what was seen instead.

    Returns the seconds it took. A process of ``alive`` that dies meanwhile ends the wait at once.
    """
    started = time.monotonic()
    while True:
        seen = look()
        spent = time.monotonic() - started
        if seen is None:
            return spent
        for process in (alive or {}).values():
            process.check()
        if spent > timeout:
            raise ControlPlaneError(f"waited {timeout:.0f} s for {what}; last seen: {seen}")
        time.sleep(interval)
