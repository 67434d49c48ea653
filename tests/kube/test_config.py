"""Finding the cluster and its credentials, by the client library's loaders."""

import os
import ssl
import stat
import sys
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml

from quota_translator.errors import ConfigurationError
from quota_translator.kube import kubeconfig as kubeconfig_module
from quota_translator.kube.client import Client
from quota_translator.kube.config import connect
from quota_translator.kube.resources import NODES
from tests.kube.scripted import Scripted, failed, reply

NODE = "/api/v1/nodes/a"


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither a pod nor a person's own kubeconfig."""
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def kubeconfig(folder: Path, server: str, user: dict[str, Any], **cluster: Any) -> Path:
    path = folder / "kubeconfig"
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [
            {"name": "here", "context": {"cluster": "c", "user": "u"}},
            {"name": "there", "context": {"cluster": "far", "user": "u"}},
        ],
        "clusters": [
            {"name": "c", "cluster": {"server": server} | cluster},
            {"name": "far", "cluster": {"server": "http://far.example"}},
        ],
        "users": [{"name": "u", "user": user}],
    }
    path.write_text(yaml.safe_dump(content))
    return path


def plugin(folder: Path, expiry: str | None = None) -> dict[str, Any]:
    """An exec plugin whose token is "t" and the number of its runs."""
    runs = folder / "runs"
    status = f', "expirationTimestamp": "{expiry}"' if expiry else ""
    script = folder / "plugin"
    script.write_text(
        f"#!{sys.executable}\n"
        f"import pathlib\nruns = pathlib.Path({str(runs)!r})\n"
        "number = len(runs.read_text()) + 1 if runs.exists() else 1\n"
        "runs.write_text('x' * number)\n"
        'print(\'{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", \'\n'
        f'      \'"status": {{"token": "t%d"{status}}}}}\' % number)\n'
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "plugin"}}


@pytest.fixture
def on_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Commands of the test's folder are on the PATH."""
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")


async def test_a_kubeconfig_gives_server_and_token(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, "http://near.example/", {"token": "secret"})
    found = await connect(path)
    assert found.host == "http://near.example"
    assert found.tls() is None
    assert await found.credentials(False) == "Bearer secret"


async def test_another_context_may_be_chosen(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, "http://near.example", {"token": "secret"})
    assert (await connect(path, "there")).host == "http://far.example"


async def test_the_environment_names_a_kubeconfig(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = kubeconfig(tmp_path, "http://near.example", {})
    monkeypatch.setenv("KUBECONFIG", str(path))
    found = await connect()
    assert found.host == "http://near.example"
    assert await found.credentials(False) == ""


@pytest.mark.parametrize(
    ("content", "words"),
    [
        pytest.param(None, "no kubeconfig at", id="no-file"),
        pytest.param("{", "cannot use", id="not-yaml"),
        pytest.param("", "cannot use", id="empty"),
        pytest.param("clusters: []\n", "cannot use", id="no-context"),
        pytest.param("[]", "cannot use", id="no-map"),
    ],
)
async def test_a_kubeconfig_that_cannot_be_used_is_one_clear_error(
    tmp_path: Path, content: str | None, words: str
) -> None:
    path = tmp_path / "kubeconfig"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigurationError, match=words) as caught:
        await connect(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


async def test_a_context_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, "http://near.example", {})
    with pytest.raises(ConfigurationError, match="nonsense"):
        await connect(path, "nonsense")


async def test_an_exec_plugin_runs_again_when_its_token_is_not_accepted(
    tmp_path: Path, server: Scripted, on_path: None
) -> None:
    path = kubeconfig(tmp_path, server.host, plugin(tmp_path))
    found = await connect(path, exec_commands=("plugin",))
    server.on("get", NODE, reply({}), failed(401), reply({}), reply({}))
    async with Client(found) as client:
        for _ in range(3):
            await client.get(NODES, "a")
    sent = [asked.headers["Authorization"] for asked in server.asked]
    assert sent == ["Bearer t1", "Bearer t1", "Bearer t2", "Bearer t2"]


async def test_credentials_that_expire_are_looked_at_each_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_path: None
) -> None:
    path = kubeconfig(tmp_path, "http://near.example", plugin(tmp_path, "2020-01-01T00:00:00Z"))
    found = await connect(path, exec_commands=("plugin",))
    assert await found.credentials(False) == "Bearer t1"
    monkeypatch.setattr(kubeconfig_module, "REFRESH_SECONDS", 0.0)
    assert await found.credentials(False) == "Bearer t2"
    (tmp_path / "plugin").write_text("#!/bin/false\n")
    assert await found.credentials(False) == "Bearer t2"  # still accepted, so still used
    with pytest.raises(ConfigurationError, match="renew"):
        await found.credentials(True)


async def test_tls_by_the_authority_of_the_kubeconfig(tmp_path: Path) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    bundle = tmp_path / "ca.crt"
    authority.cert_pem.write_to_path(str(bundle))
    server = Scripted()
    await server.start(context)
    server.always("get", NODE, reply({"secure": True}))
    try:
        path = kubeconfig(tmp_path, server.host, {}, **{"certificate-authority": str(bundle)})
        async with Client(await connect(path)) as client:
            assert await client.get(NODES, "a") == b'{"secure": true}'
        path = kubeconfig(tmp_path, server.host, {}, **{"insecure-skip-tls-verify": True})
        async with Client(await connect(path)) as client:
            assert await client.get(NODES, "a") == b'{"secure": true}'
    finally:
        await server.stop()
