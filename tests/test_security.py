"""Promises of SECURITY.md that no other test has: what is received, and what is said of it."""

import re
from pathlib import Path

import aiohttp
import pytest

from quota_translator.health import Endpoints
from quota_translator.settings import Settings

ROOT = Path(__file__).parent.parent
ADDRESS = "127.0.0.1:0"


async def exposition(_accept: str) -> tuple[bytes, str]:
    return b"", "text/plain"


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
async def test_the_small_endpoints_take_nothing(path: str) -> None:
    endpoints = Endpoints(ADDRESS, ADDRESS, tuple, exposition)
    await endpoints.start()
    host, port = endpoints.bound(ADDRESS)
    try:
        async with aiohttp.ClientSession() as session:
            url = f"http://{host}:{port}{path}"
            for method in ("POST", "PUT", "DELETE", "PATCH"):
                async with session.request(method, url, data=b"x" * 1000) as answer:
                    assert answer.status == 405
            async with session.get(url) as answer:
                assert answer.status == 200
    finally:
        await endpoints.stop()


def test_what_is_risky_is_off_unless_somebody_turns_it_on() -> None:
    defaults = Settings()
    assert defaults.kubeconfig_exec_commands == ()
    assert defaults.take_over is False
    assert defaults.status_workload_names is False


def test_no_person_and_no_address_is_named_to_whom_a_report_would_go() -> None:
    text = (ROOT / "SECURITY.md").read_text()
    assert "private vulnerability reporting" in text
    assert not re.search(r"\S+@\S+\.\S+", text)


def test_the_threat_model_speaks_of_every_right_that_the_chart_gives() -> None:
    templates = ROOT / "helm" / "quota-translator" / "templates"
    granted = {
        word.strip()
        for name in ("rbac-cluster.yaml", "rbac-namespace.yaml")
        for line in re.findall(r"resources: \[(.*)\]", (templates / name).read_text())
        for word in line.split(",")
    }
    text = (ROOT / "docs" / "threat-model.md").read_text().lower()
    told = {"validatingwebhookconfigurations": "webhook configuration"}
    singular = {word: told.get(word, word.split("/")[0].removesuffix("s")) for word in granted}
    missing = [word for word, name in singular.items() if name not in text]
    assert len(granted) > 10
    assert missing == []
