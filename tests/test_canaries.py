"""No secret in the log: a server that says everything back to us, at the level debug.

The program runs as a process against a server that answers with what was planted: the token of its
kubeconfig, which each request bears; private keys in a Secret; passwords in bodies of errors.
"""

import asyncio
import base64
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from itertools import cycle
from pathlib import Path

import pytest
import yaml
from aiohttp import web

TOKEN = "canary-token-4f1c9d"
PASSWORD = "canary-password-81b2"
KEY = "canary-private-key-77e0"
CANARIES = (TOKEN, PASSWORD, KEY)
REQUESTS = 36
TOP = Path(__file__).parent.parent

PEM = f"-----BEGIN PRIVATE KEY-----\n{KEY}\n-----END PRIVATE KEY-----\n"
IN_SECRET = base64.b64encode(PEM.encode()).decode()

Said = Callable[[web.Request], web.Response]


def status(code: int, reason: str) -> Said:
    """The API server's own error, with the request's credentials in its message."""

    def said(request: web.Request) -> web.Response:
        told = f"{reason}: asked with {request.headers.get('Authorization')}, password={PASSWORD}"
        body = {"kind": "Status", "reason": reason, "message": told, "code": code}
        return web.json_response(body, status=code)

    return said


def page(code: int) -> Said:
    """Some proxy's page, which shows the headers and a word by itself."""

    def said(request: web.Request) -> web.Response:
        return web.Response(status=code, text=f"<html>{TOKEN} {dict(request.headers)}</html>")

    return said


def secret(code: int) -> Said:
    """A Secret where none was asked for, whole or with an error's status."""

    def said(_request: web.Request) -> web.Response:
        data = {"tls.key": IN_SECRET, "tls.crt": IN_SECRET, "password": PASSWORD}
        metadata = {"name": "quota-translator-webhook-cert", "uid": "u", "resourceVersion": "7"}
        body = {"kind": "Secret", "metadata": metadata, "data": data, "stringData": {"key": KEY}}
        return web.json_response(body, status=code)

    return said


def cut(_request: web.Request) -> web.Response:
    """Half a Secret."""
    text = json.dumps({"kind": "Secret", "data": {"tls.key": IN_SECRET, "token": TOKEN}})
    return web.Response(text=text[:-4], content_type="application/json")


ANSWERS: tuple[Said, ...] = (
    status(401, "Unauthorized"),
    status(403, "Forbidden"),
    page(403),
    status(409, "Conflict"),
    status(422, "Invalid"),
    page(500),
    status(500, "InternalError"),
    secret(200),
    secret(500),
    cut,
    page(200),
    status(410, "Expired"),
)


class Gossip:
    """A server that says back what it hears, whoever asks for what."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.answers = cycle(ANSWERS)
        self.enough = asyncio.Event()

    async def answer(self, request: web.Request) -> web.Response:
        self.heard.append(request.headers.get("Authorization", ""))
        if len(self.heard) >= REQUESTS:
            self.enough.set()
        return next(self.answers)(request)


@pytest.fixture
async def gossip() -> AsyncIterator[tuple[Gossip, str]]:
    found = Gossip()
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", found.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    yield found, f"http://{host}:{port}"
    await runner.cleanup()


def kubeconfig(folder: Path, server: str) -> Path:
    file = folder / "kubeconfig"
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"token": TOKEN}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    }
    file.write_text(yaml.safe_dump(document))
    return file


@pytest.mark.case("fault 44")
async def test_no_secret_is_in_the_log_whatever_the_server_says(
    gossip: tuple[Gossip, str], tmp_path: Path
) -> None:
    server, url = gossip
    environment = {k: v for k, v in os.environ.items() if not k.startswith("QUOTA_TRANSLATOR")}
    command = [
        *(sys.executable, "-m", "quota_translator", "run"),
        *("--kubeconfig", str(kubeconfig(tmp_path, url)), "--namespace", "platform"),
        *("--log-level", "debug", "--log-format", "json"),
        *("--health-bind-address", "0", "--metrics-bind-address", "0"),
        *("--webhook-enabled", "true", "--webhook-bind-address", "127.0.0.1:0"),
    ]
    log = tmp_path / "log"
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            *command, stdout=out, stderr=out, env=environment, cwd=TOP
        )
    try:
        async with asyncio.timeout(60):
            await server.enough.wait()
    finally:
        process.send_signal(signal.SIGTERM)
        await asyncio.wait_for(process.wait(), 20)

    text = log.read_text(encoding="utf-8")
    assert set(server.heard) == {f"Bearer {TOKEN}"}  # the canary was planted
    assert text.count('"level":"warning"') >= 5  # and there was much to tell
    assert '"level":"debug"' in text
    for canary in (*CANARIES, IN_SECRET[:40], base64.b64encode(KEY.encode()).decode()[:12]):
        assert canary not in text, next(line for line in text.splitlines() if canary in line)
