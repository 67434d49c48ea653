"""A real Prometheus that scrapes one controller, as a process of its own on the loopback."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from e2e.waiting import eventually
from tests.prometheus import PROMETHEUS

RULES = Path(__file__).parent.parent / "helm" / "quota-translator" / "files" / "alerts.yaml"
STOP_LIMIT = 20.0


class Prometheus:
    """Questions to a Prometheus that runs."""

    def __init__(self, port: int) -> None:
        self._base = f"http://127.0.0.1:{port}"

    def ask(self, path: str, **query: str) -> Any:
        """The data of an answer of its HTTP API."""
        url = f"{self._base}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=5) as answer:
            return json.load(answer)["data"]

    def values(self, expression: str) -> dict[str, float]:
        """What an expression is now, by its labels as text (``quota="a"``, sorted)."""
        found = self.ask("query", query=expression)["result"]
        return {_shown(one["metric"]): float(one["value"][1]) for one in found}

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self._base}/-/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False


def _shown(labels: Mapping[str, str]) -> str:
    own = {"__name__", "instance", "job"}
    return ",".join(f'{k}="{v}"' for k, v in sorted(labels.items()) if k not in own)


@contextmanager
def scraping(folder: Path, scrape: Mapping[str, Any]) -> Iterator[Prometheus]:
    """Scrapes and evaluates the chart's rules each second. `scrape`: fields of the scrape job."""
    configuration = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s", "scrape_timeout": "1s"},
        "rule_files": [str(RULES)],
        "scrape_configs": [{"job_name": "quota-translator", **scrape}],
    }
    file = folder / "prometheus.yml"
    file.write_text(yaml.safe_dump(configuration))
    port = free_port()
    command = [
        PROMETHEUS,
        f"--config.file={file}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=warn",
    ]
    log_file = folder / "prometheus.log"
    with log_file.open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        try:
            found = Prometheus(port)
            eventually(found.is_ready, 30, f"Prometheus to be ready (log: {log_file})")
            yield found
        finally:
            process.terminate()
            try:
                process.wait(STOP_LIMIT)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def get(url: str, bearer: str = "") -> tuple[int, str]:
    """One scrape by hand: status and text. Nobody vouches for the certificate."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    headers = {"Authorization": f"Bearer {bearer}"} if bearer else {}
    request = urllib.request.Request(url, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=10, context=context) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
