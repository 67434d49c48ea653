"""What the log lines hold, and what must never stand in one."""

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from aiohttp.http_exceptions import BadStatusLine, LineTooLong

from quota_translator.telemetry import configure_logging, hide, without_secrets


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_without_a_terminal_each_line_is_one_json_object() -> None:
    stream = io.StringIO()
    configure_logging("info", "auto", stream)

    structlog.get_logger("controller").info("pass done", node="team-a", writes=3, names={"b"})

    (line,) = lines(stream)
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "event": "pass done",
        "level": "info",
        "node": "team-a",
        "writes": 3,
        "names": ["b"],
    }


@pytest.mark.parametrize(
    ("form", "stream", "is_json"),
    [
        pytest.param("auto", Terminal(), False, id="text on a terminal"),
        pytest.param("json", Terminal(), True, id="JSON where it is asked for"),
        pytest.param("text", io.StringIO(), False, id="text where it is asked for"),
    ],
)
def test_the_form_follows_the_setting_and_the_stream(
    form: Any, stream: io.StringIO, is_json: bool
) -> None:
    configure_logging("info", form, stream)

    structlog.get_logger().info("started", version="1")

    text = stream.getvalue()
    assert text.startswith("{") == is_json
    assert "started" in text
    assert ("\x1b[" in text) == (stream.isatty() and not is_json)


def test_lines_below_the_level_are_left_out() -> None:
    stream = io.StringIO()
    configure_logging("warning", "json", stream)

    log = structlog.get_logger()
    log.info("read", kind="Node")
    log.warning("watch broke", kind="Node")

    assert [line["event"] for line in lines(stream)] == ["watch broke"]


def test_lines_of_libraries_come_in_the_same_form_and_once() -> None:
    stream = io.StringIO()
    configure_logging("info", "json", io.StringIO())
    configure_logging("info", "json", stream)

    logging.getLogger("aiohttp.server").error("Error handling request %s", "/readyz")

    (line,) = lines(stream)
    assert (line["event"], line["level"]) == ("Error handling request /readyz", "error")


def test_what_does_not_speak_http_is_not_told_with_a_trace() -> None:
    stream = io.StringIO()
    configure_logging("info", "json", stream)
    server = logging.getLogger("aiohttp.server")
    for error in (BadStatusLine("x"), LineTooLong(b"x", 8190), ValueError("a fault of ours")):
        server.error("Error handling request from %s", "127.0.0.1", exc_info=error)
    (line,) = lines(stream)
    assert "a fault of ours" in line["exception"]


def test_the_file_watcher_does_not_tell_of_every_change() -> None:
    stream = io.StringIO()
    configure_logging("info", "json", stream)

    logging.getLogger("watchfiles.main").info("10 changes detected")

    assert lines(stream) == []


def test_an_exception_is_told_with_its_trace_in_one_line() -> None:
    stream = io.StringIO()
    configure_logging("info", "json", stream)

    try:
        raise ValueError("sent Authorization: Bearer abcdefgh12345678 to the wrong place")
    except ValueError:
        structlog.get_logger().exception("pass failed")

    (line,) = lines(stream)
    assert "ValueError: sent" in line["exception"]
    assert "abcdefgh12345678" not in stream.getvalue()


@pytest.mark.parametrize(
    "key", ["token", "id_token", "Authorization", "password", "clientKey", "private_key", "Cookie"]
)
def test_a_key_that_may_hold_a_secret_is_dropped_at_any_depth(key: str) -> None:
    event: dict[str, Any] = {
        key: "hunter2",
        "node": "a",
        "user": {key: "hunter2", "name": "kube"},
        "users": [{key: "hunter2"}],
    }

    assert without_secrets(None, "info", event) == {
        "node": "a",
        "user": {"name": "kube"},
        "users": [{}],
    }


def test_a_credential_inside_a_text_is_blanked_and_its_scheme_stays() -> None:
    event: dict[str, Any] = {"headers": ("Accept: */*", "authorization: bearer s3cr3t.t0ken-x")}

    assert without_secrets(None, "info", event) == {
        "headers": ["Accept: */*", "authorization: bearer …"]
    }


def test_a_value_without_end_is_cut_to_text() -> None:
    loop: dict[str, Any] = {"name": "a"}
    loop["self"] = loop

    cleaned = without_secrets(None, "info", {"value": loop})

    assert "'name': 'a'" in json.dumps(cleaned, default=str)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param(
            'HTTP 500: {"token":"hunter2hunter2","kind":"x"}',
            'HTTP 500: {"token":"…","kind":"x"}',
            id="a field of JSON",
        ),
        pytest.param(
            r"body {\"client-key-data\": \"hunter2hunter2\"}",
            r"body {\"client-key-data\": \"…\"}",
            id="JSON within JSON",
        ),
        pytest.param(
            "GET /?access_token=hunter2hunter2&limit=1",
            "GET /?access_token=…&limit=1",
            id="a parameter",
        ),
        pytest.param("https://me:hunter2@host:6443/api", "https://…@host:6443/api", id="in a URL"),
        pytest.param("got eyJhbGciOiJSUzI1NiIs.hunter2.hunter2 back", "got … back", id="a JWT"),
        pytest.param(
            "x -----BEGIN EC PRIVATE KEY-----\nhunter2\n-----END EC PRIVATE KEY----- y",
            "x … y",
            id="a key",
        ),
        pytest.param("-----BEGIN PRIVATE KEY-----\nhunter2", "…", id="the beginning of a key"),
        pytest.param('"k":"LS0tLS1CRUdJTiBQUklWQVRFhunter2"', '"k":"…"', id="a key in base64"),
        pytest.param(
            'secrets "quota-translator-webhook-cert" not found: create a token first',
            'secrets "quota-translator-webhook-cert" not found: create a token first',
            id="a sentence about them",
        ),
    ],
)
def test_what_looks_like_a_credential_in_a_text_is_blanked(text: str, shown: str) -> None:
    assert without_secrets(None, "info", {"message": text}) == {"message": shown}


def test_credentials_that_were_sent_are_blanked_wherever_they_stand() -> None:
    hide("Bearer a-static-word-of-a-kubeconfig")
    hide("Bearer short")
    hide("")
    event = {"message": "<html>you said a-static-word-of-a-kubeconfig, in short</html>"}
    assert without_secrets(None, "info", event) == {"message": "<html>you said …, in short</html>"}
