"""A pod's ServiceAccount: found, read, and read again as the kubelet exchanges it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import trustme

from quota_translator.errors import ConfigurationError
from quota_translator.kube import config, incluster
from quota_translator.kube.incluster import ServiceAccount, in_a_pod

ADDRESS = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "token").write_text("first\n")
    (tmp_path / "namespace").write_text("qt")
    (tmp_path / "ca.crt").write_bytes(trustme.CA().cert_pem.bytes())
    return tmp_path


def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incluster, "REFRESH_SECONDS", 0.0)


async def test_in_a_pod_the_service_account_is_used(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config, "FOLDER", folder)
    monkeypatch.delenv("KUBECONFIG", raising=False)
    for name, value in ADDRESS.items():
        monkeypatch.setenv(name, value)
    found = await config.connect()
    assert (found.host, found.namespace) == ("https://10.0.0.1:443", "qt")
    assert found.tls() is not None
    assert await found.credentials(False) == "Bearer first"


async def test_the_token_is_read_again_each_minute_and_when_it_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = ServiceAccount(folder, ADDRESS)
    (folder / "token").write_text("second\n")
    assert await account.credentials(False) == "Bearer first"
    assert await account.credentials(True) == "Bearer second"
    at_once(monkeypatch)
    (folder / "token").write_text("third\n")
    assert await account.credentials(False) == "Bearer third"


@pytest.mark.parametrize("text", ["", " \n", None])
async def test_a_token_that_cannot_be_read_does_not_replace_the_last_one(
    folder: Path, text: str | None
) -> None:
    account = ServiceAccount(folder, ADDRESS)
    if text is None:
        (folder / "token").unlink()
    else:
        (folder / "token").write_text(text)
    assert await account.credentials(True) == "Bearer first"


async def test_another_authority_is_another_context_and_a_broken_one_is_not(folder: Path) -> None:
    account = ServiceAccount(folder, ADDRESS)
    first = account.tls()
    await account.credentials(True)
    assert account.tls() is first
    (folder / "ca.crt").write_text("no certificate")
    await account.credentials(True)
    assert account.tls() is first
    (folder / "ca.crt").unlink()
    await account.credentials(True)
    assert account.tls() is first
    (folder / "ca.crt").write_bytes(trustme.CA().cert_pem.bytes())
    await account.credentials(True)
    assert account.tls() is not first


@pytest.mark.parametrize(
    ("host", "expected"), [("::1", "https://[::1]:6443"), ("api.local", "https://api.local:6443")]
)
def test_the_address_comes_from_the_environment(folder: Path, host: str, expected: str) -> None:
    asked = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": "6443"}
    assert ServiceAccount(folder, asked).host == expected


@pytest.mark.parametrize("name", ["token", "ca.crt"])
@pytest.mark.parametrize("text", ["", None])
def test_at_the_start_a_missing_file_or_an_empty_one_is_named(
    folder: Path, name: str, text: str | None
) -> None:
    if text is None:
        (folder / name).unlink()
    else:
        (folder / name).write_text(text)
    with pytest.raises(ConfigurationError, match=name):
        ServiceAccount(folder, ADDRESS)


def test_a_port_that_is_none_is_named(folder: Path) -> None:
    with pytest.raises(ConfigurationError, match="KUBERNETES_SERVICE_PORT is 'tcp'"):
        ServiceAccount(folder, ADDRESS | {"KUBERNETES_SERVICE_PORT": "tcp"})


def test_without_a_token_or_an_address_this_is_no_pod(folder: Path) -> None:
    assert in_a_pod(folder, ADDRESS)
    assert not in_a_pod(folder, {})
    assert not in_a_pod(folder / "elsewhere", ADDRESS)


def test_a_pod_does_not_pay_for_the_client_library(folder: Path) -> None:
    program = (
        "import asyncio, sys; from pathlib import Path; from quota_translator.kube import config; "
        "config.FOLDER = Path(sys.argv[1]); asyncio.run(config.connect()); "
        "import quota_translator.app; "
        "sys.exit('kubernetes_asyncio' in sys.modules)"
    )
    asked = [sys.executable, "-c", program, str(folder)]
    environment = {k: v for k, v in os.environ.items() if k != "KUBECONFIG"} | ADDRESS
    subprocess.run(asked, env=environment, check=True, timeout=60)
