"""Which commands a kubeconfig may run, and what happens when its files change."""

import asyncio
import os
import ssl
import sys
from pathlib import Path
from typing import Any

import pytest
import trustme

from quota_translator.errors import ConfigurationError, Unauthorized
from quota_translator.kube import kubeconfig as module
from quota_translator.kube.client import Client
from quota_translator.kube.config import connect
from quota_translator.kube.resources import NODES
from tests.kube.scripted import Scripted, failed, reply
from tests.kube.test_config import kubeconfig

SERVER = "http://near.example"
API = "client.authentication.k8s.io/v1"
NODE = "/api/v1/nodes/a"


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither a pod nor a person's own kubeconfig; and `bin` is the first folder of the PATH."""
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")


def canary(path: Path, token: str = "t") -> Path:
    """A command that leaves a trace next to itself when it runs, and gives a token."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(
        f"#!{sys.executable}\n"
        f"open({str(path)!r} + '.ran', 'w').close()\n"
        f'print(\'{{"apiVersion": "{API}", "kind": "ExecCredential", \'\n'
        f'      \'"status": {{"token": "{token}"}}, "credential": {{"access_token": "{token}", \'\n'
        '      \'"token_expiry": "2100-01-01T00:00:00Z"}}\')\n'
    )
    path.chmod(0o755)
    return path


def ran(path: Path) -> bool:
    return Path(f"{path}.ran").exists()


def plugin(command: str, **more: Any) -> dict[str, Any]:
    return {"exec": {"apiVersion": API, "command": command} | more}


def gcloud(command: str) -> dict[str, Any]:
    arguments = {"cmd-path": command, "cmd-args": "config config-helper --format=json"}
    return {"auth-provider": {"name": "gcp", "config": arguments}}


@pytest.mark.case("fault 44")
@pytest.mark.parametrize("entry", [plugin, gcloud])
async def test_a_command_that_was_not_allowed_does_not_run(tmp_path: Path, entry: Any) -> None:
    command = canary(tmp_path / "bin" / "aws")
    path = kubeconfig(tmp_path, SERVER, entry("aws"))
    with pytest.raises(ConfigurationError) as caught:
        await connect(path, exec_commands=("gke-gcloud-auth-plugin",))
    assert str(caught.value) == (
        f"{path}: user 'u' wants to run 'aws' for its credentials, which is not allowed; "
        "if you trust this file: --kubeconfig-exec-commands=aws"
    )
    assert not ran(command)


@pytest.mark.case("fault 44")
@pytest.mark.parametrize("entry", [plugin, gcloud])
async def test_an_allowed_command_runs(tmp_path: Path, entry: Any) -> None:
    command = canary(tmp_path / "bin" / "aws")
    for named in ("aws", str(command)):
        path = kubeconfig(tmp_path, SERVER, entry(named))
        found = await connect(path, exec_commands=("aws",))
        assert await found.credentials(False) == "Bearer t"
        assert ran(command)


@pytest.mark.case("fault 44")
async def test_a_program_of_an_allowed_name_elsewhere_does_not_run(tmp_path: Path) -> None:
    canary(tmp_path / "bin" / "aws")
    other = canary(tmp_path / "brought" / "aws")
    path = kubeconfig(tmp_path, SERVER, plugin(str(other)))
    with pytest.raises(ConfigurationError, match="only that one is allowed; put its folder on"):
        await connect(path, exec_commands=("aws",))
    assert not ran(other)


@pytest.mark.case("fault 44")
async def test_the_path_in_the_file_does_not_say_where_a_command_is(tmp_path: Path) -> None:
    command = canary(tmp_path / "bin" / "aws")
    other = canary(tmp_path / "brought" / "aws")
    env = [{"name": "PATH", "value": str(other.parent)}]
    found = await connect(
        kubeconfig(tmp_path, SERVER, plugin("aws", env=env)), exec_commands=("aws",)
    )
    assert await found.credentials(False) == "Bearer t"
    assert ran(command)
    assert not ran(other)


async def test_a_command_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, SERVER, plugin("no-such-command"))
    with pytest.raises(ConfigurationError, match="'no-such-command', which is not on the PATH"):
        await connect(path, exec_commands=("no-such-command",))


async def test_no_command_is_needed_where_the_file_names_none(tmp_path: Path) -> None:
    found = await connect(kubeconfig(tmp_path, SERVER, {"token": "t"}))
    assert await found.credentials(False) == "Bearer t"


async def test_a_command_that_does_not_answer_is_ended_and_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "COMMAND_SECONDS", 0.5)
    command = tmp_path / "bin" / "hangs"
    written = tmp_path / "pid"
    command.write_text(f"#!/bin/sh\necho $$ > {written}\nexec sleep 30\n")
    command.chmod(0o755)
    path = kubeconfig(tmp_path, SERVER, plugin("hangs"))
    with pytest.raises(ConfigurationError, match=r"took over 0\.5 s"):
        await asyncio.wait_for(connect(path, exec_commands=("hangs",)), 20)
    process = Path(f"/proc/{written.read_text().strip()}")
    async with asyncio.timeout(10):
        while process.exists():  # noqa: ASYNC240 - /proc does not block
            await asyncio.sleep(0.02)


# --- files that change ------------------------------------------------------------------------


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are looked at with every request, and not each minute."""
    monkeypatch.setattr(module, "REFRESH_SECONDS", 0.0)


async def test_a_kubeconfig_that_is_written_again_is_read_again(
    tmp_path: Path, hurried: None
) -> None:
    found = await connect(kubeconfig(tmp_path, SERVER, {"token": "first"}))
    kubeconfig(tmp_path, SERVER, {"token": "second"})
    assert await found.credentials(False) == "Bearer second"


async def test_while_a_new_kubeconfig_cannot_be_read_the_old_token_stays(
    tmp_path: Path, hurried: None
) -> None:
    path = kubeconfig(tmp_path, SERVER, {"token": "first"})
    found = await connect(path)
    path.write_text("{")
    assert await found.credentials(False) == "Bearer first"
    with pytest.raises(ConfigurationError, match="cannot renew the credentials"):
        await found.credentials(True)
    kubeconfig(tmp_path, SERVER, {"token": "second"})
    assert await found.credentials(False) == "Bearer second"


async def test_the_token_of_another_server_is_not_sent_to_this_one(
    tmp_path: Path, hurried: None
) -> None:
    found = await connect(kubeconfig(tmp_path, SERVER, {"token": "first"}))
    kubeconfig(tmp_path, "http://other.example", {"token": "second"})
    assert await found.credentials(False) == "Bearer first"
    with pytest.raises(ConfigurationError, match=r"another server now \(http://other"):
        await found.credentials(True)


async def test_a_command_that_came_with_a_new_kubeconfig_does_not_run(
    tmp_path: Path, hurried: None
) -> None:
    command = canary(tmp_path / "bin" / "aws")
    found = await connect(kubeconfig(tmp_path, SERVER, {"token": "first"}))
    kubeconfig(tmp_path, SERVER, plugin("aws"))
    assert await found.credentials(False) == "Bearer first"
    with pytest.raises(ConfigurationError, match="not allowed"):
        await found.credentials(True)
    assert not ran(command)


def pair(authority: trustme.CA, folder: Path, name: str) -> None:
    """A client certificate for `name`, in folder/client.crt and folder/client.key."""
    issued = authority.issue_cert(f"{name}.example", common_name=name)
    issued.cert_chain_pems[0].write_to_path(str(folder / "client.crt"))
    issued.private_key_pem.write_to_path(str(folder / "client.key"))


@pytest.fixture
async def mutual(tmp_path: Path) -> Any:
    """An authority, and a server that wants a certificate of it from each client."""
    authority, server = trustme.CA(), Scripted()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_REQUIRED
    authority.configure_trust(context)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    await server.start(context)
    server.always("get", NODE, reply({}))
    authority.cert_pem.write_to_path(str(tmp_path / "ca.crt"))
    yield authority, server
    await server.stop()


async def test_a_client_certificate_that_is_exchanged_serves_the_next_connection(
    tmp_path: Path, hurried: None, mutual: tuple[trustme.CA, Scripted]
) -> None:
    authority, server = mutual
    pair(authority, tmp_path, "first")
    files = {"client-certificate": "client.crt", "client-key": "client.key"}
    path = kubeconfig(tmp_path, server.host, files, **{"certificate-authority": "ca.crt"})
    async with Client(await connect(path)) as client:
        await client.get(NODES, "a")
        pair(authority, tmp_path, "second")
        await client.get(NODES, "a")
        assert [asked.peer for asked in server.asked] == ["first", "second"]
        (tmp_path / "client.key").write_text("half a key")
        server.on("get", NODE, failed(401))
        with pytest.raises(Unauthorized, match="cannot renew"):
            await client.get(NODES, "a")
        await client.get(NODES, "a")  # with the pair that was whole
        assert server.asked[-1].peer == "second"


async def test_a_client_certificate_that_expired_meanwhile_is_exchanged_at_once(
    tmp_path: Path, mutual: tuple[trustme.CA, Scripted]
) -> None:
    authority, server = mutual
    pair(authority, tmp_path, "first")
    files = {"client-certificate": "client.crt", "client-key": "client.key"}
    path = kubeconfig(tmp_path, server.host, files, **{"certificate-authority": "ca.crt"})
    async with Client(await connect(path)) as client:
        await client.get(NODES, "a")
        pair(authority, tmp_path, "second")
        server.on("get", NODE, failed(401), reply({}))
        await client.get(NODES, "a")
        assert [asked.peer for asked in server.asked] == ["first", "first", "second"]
