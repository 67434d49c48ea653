"""The small parts of the runner: certificates, processes, waiting, the audit log."""

from __future__ import annotations

import json
import os
import socket
import ssl
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from e2e.controlplane import __main__ as command
from e2e.controlplane import audit, certificates, cluster, processes
from e2e.waiting import eventually


def test_a_client_certificate_names_the_user_and_the_groups() -> None:
    pair = certificates.Authority().client("somebody", ["one", "two"])
    subject = x509.load_pem_x509_certificate(pair.certificate).subject
    names = subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    groups = subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    assert [item.value for item in names] == ["somebody"]
    assert [item.value for item in groups] == ["one", "two"]


def test_python_and_openssl_trust_a_server_strictly(tmp_path: Path) -> None:
    authority = certificates.Authority()
    certificate, key = authority.server("server", ["localhost"], ["127.0.0.1"]).write(tmp_path)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate, key)
    client = ssl.create_default_context(cadata=authority.certificate.decode())
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    near, far = socket.socketpair()

    def serve() -> None:
        with server.wrap_socket(far, server_side=True) as wrapped:
            wrapped.recv(1)

    thread = threading.Thread(target=serve)
    thread.start()
    with client.wrap_socket(near, server_hostname="127.0.0.1") as wrapped:
        wrapped.send(b"x")
    thread.join()


def test_keys_are_private(tmp_path: Path) -> None:
    _, key = certificates.Authority().client("somebody", []).write(tmp_path)
    assert key.stat().st_mode & 0o777 == 0o600


def test_a_pair_is_usable_when_it_fits_together(tmp_path: Path) -> None:
    authority = certificates.Authority()
    assert not certificates.is_usable(tmp_path)
    _, key = authority.client("somebody", []).write(tmp_path)
    assert certificates.is_usable(tmp_path)
    certificates.write_private(key, authority.client("somebody", []).key)
    assert not certificates.is_usable(tmp_path)


def test_missing_rights_are_told_with_the_command_that_helps(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    folder = tmp_path / "file" / "certs"  # cannot be made, not even by root
    with pytest.raises(processes.ControlPlaneError, match=r'sudo install -d -o "\$USER" '):
        cluster.check_kueue_certificates(folder)


def test_a_writable_place_for_certificates_is_fine(tmp_path: Path) -> None:
    cluster.check_kueue_certificates(tmp_path / "a" / "b")


def python(code: str, log: Path) -> processes.Process:
    return processes.Process("part", [sys.executable, "-c", code], log, log.parent)


def test_a_process_that_dies_shows_the_end_of_its_log(tmp_path: Path) -> None:
    code = "import sys; [print('line', n) for n in range(100)]; sys.exit(3)"
    process = python(code, tmp_path / "log")
    with pytest.raises(processes.ControlPlaneError, match=r"(?s)status 3.*line 99") as error:
        processes.wait_until(
            "the impossible", lambda: "nothing", timeout=20, alive={"part": process}
        )
    assert "line 70\n" in str(error.value)
    assert "line 69\n" not in str(error.value)


def test_a_process_that_ignores_the_signal_is_killed(tmp_path: Path) -> None:
    code = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True)"
    process = python(f"{code}; time.sleep(60)", tmp_path / "log")
    eventually(lambda: "up" in process.tail(), what="the process to ignore signals")
    started = time.monotonic()
    process.stop(patience=0.2)
    assert not process.running
    assert time.monotonic() - started < 10


def test_a_wait_says_what_it_saw() -> None:
    with pytest.raises(processes.ControlPlaneError, match=r"waited 0 s for tea; last seen: water"):
        processes.wait_until("tea", lambda: "water", timeout=0)


def test_ports_differ_and_are_free() -> None:
    ports = processes.free_ports(5)
    assert len(set(ports)) == 5
    with socket.create_server(("127.0.0.1", ports[0])):
        assert ports[0] not in processes.free_ports(5)


def test_eventually_returns_what_came_true() -> None:
    values = iter([None, 0, "ready"])
    assert eventually(lambda: next(values), timeout=5) == "ready"


def test_eventually_says_what_was_last_seen() -> None:
    with pytest.raises(AssertionError, match=r"for the queue; last seen: \['a'\]|: False"):
        eventually(lambda: False, timeout=0, what="the queue")

    def look() -> bool:
        raise ValueError("three of four")

    with pytest.raises(AssertionError, match="look; last seen: ValueError: three of four"):
        eventually(look, timeout=0)


def event(verb: str, stage: str, **more: Any) -> bytes:
    known: dict[str, Any] = {
        "verb": verb,
        "stage": stage,
        "requestURI": "/api/v1/nodes",
        "user": {"username": "somebody"},
        "userAgent": "agent/1",
        "stageTimestamp": "2026-01-01T00:00:00.000000Z",
    }
    return json.dumps(known | more).encode()


def test_each_request_is_one_record() -> None:
    target = {"resource": "cohorts", "apiGroup": "g", "name": "a", "subresource": "status"}
    lines = [
        event("watch", "ResponseStarted"),
        event("watch", "ResponseComplete"),
        event("patch", "ResponseComplete", objectRef=target, responseStatus={"code": 200}),
        event("get", "ResponseComplete", requestURI=f"{audit.MARK_PATH}1"),
    ]
    watch, patch = audit.parse(lines)
    assert (watch.verb, watch.is_write) == ("watch", False)
    assert (patch.group, patch.code, patch.is_write) == ("g", 200, True)
    assert audit.count([patch, patch]) == {"patch cohorts/status a": 2}


class Recorded:
    """A log, and an API whose requests end up in it: whole, or not at all."""

    def __init__(self, log: Path) -> None:
        self.audit_log = log
        self.api: Any = self

    def get(self, uri: str) -> None:
        with self.audit_log.open("ab") as log:
            text = event("get", "ResponseComplete", requestURI=uri)
            log.write(text.replace(b'": "', b'":"') + b"\n")


def test_requests_between_marks_are_selected(tmp_path: Path) -> None:
    log = tmp_path / "audit"
    log.write_bytes(event("list", "ResponseComplete") + b"\n")
    recorded = Recorded(log)
    reader = audit.Audit(recorded)
    start = reader.mark()
    with log.open("ab") as file:
        file.write(event("create", "ResponseComplete") + b"\n")
    assert [record.verb for record in reader.since(start)] == ["create"]
    assert reader.since(start, user="nobody") == []
    assert len(reader.since(start, user="somebody", user_agent="agent")) == 1


def test_the_command_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(["--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    for word in ("up", "build", "where", "KUBEBUILDER_ASSETS", "QUOTA_TRANSLATOR_BIN_CACHE"):
        assert word in text


def test_nothing_runs_under_a_wrong_number(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["up", "--nodes", "-1"])
    assert "from 0 to 1000" in capsys.readouterr().err


def test_children_end_with_the_thread_that_started_them(tmp_path: Path) -> None:
    if sys.platform != "linux":
        pytest.skip("the kernel of this system does not offer it")
    log = tmp_path / "log"
    child = tmp_path / "child"
    code = (
        "import os, pathlib, sys; from e2e.controlplane.processes import Process;"
        f"p = Process('x', ['sleep', '60'], pathlib.Path({str(child)!r}), pathlib.Path('/'));"
        "print(p.pid, flush=True); os.kill(os.getpid(), 9)"
    )
    parent = processes.Process(
        "parent", [sys.executable, "-c", code], log, Path(__file__).parents[2]
    )
    pid = int(eventually(lambda: parent.tail(), what="the parent to tell its child"))

    def ended() -> bool:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        assert state in "ZX", f"process {pid} is in state {state}"
        return True

    eventually(ended, timeout=10, what="the child to be gone")
    parent.kill()
