"""Logs: constant messages with keys and values, so that lines can be counted and searched.

Numbers are in `metrics.py`.
"""

import logging
import re
import sys
from collections import deque
from collections.abc import Mapping, MutableMapping
from typing import Any, Final, Literal, TextIO

import orjson
import structlog
from aiohttp.http_exceptions import HttpProcessingError

_SECRET: Final = re.compile(
    r"(?i)token|authorization|password|passwd|secret|cookie|credential|private.?key|client.?key"
)
_NAMED: Final = r"token|passw(?:or)?d|secret|credential|private.?key|key-data|\bkey"
# Credentials inside a text, such as the body of an answer that tells what it was asked with.
_CREDENTIALS: Final = tuple(
    (re.compile(pattern), shown)
    for pattern, shown in (
        (r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{8,}", r"\1 …"),
        (r"\beyJ[\w-]{10,}(?:\.[\w-]*){1,2}", "…"),  # a JSON Web Token
        (r"-----BEGIN [A-Z ]*PRIVATE KEY-----(?s:.*?)(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", "…"),
        (r"://[^/\s:@]+:[^/\s@]+@", "://…@"),
        (r"LS0tLS1CRUdJTi[\w+/=]{8,}", "…"),  # PEM in base64, as a Secret holds it
        (rf"(?i)([\w.-]*(?:{_NAMED})[\w.-]*(?:=|\\?\"\s*:\s*\\?\"))[^\s\"&,;}}\\]{{4,}}", r"\1…"),
    )
)
_hidden: deque[str] = deque(maxlen=8)
_MAX_DEPTH: Final = 6  # deeper values are shown as text
_SHORTEST: Final = 8  # a shorter word would be hidden where it means something else


def without_secrets(
    _logger: object, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Drop what could be a secret: keys by their name, and credentials inside any text."""
    return {key: _clean(value, 0) for key, value in event.items() if not _SECRET.search(str(key))}


def hide(header: str) -> None:
    """Never show the credentials of this Authorization header, wherever they stand in a text."""
    word = header.rpartition(" ")[2]
    if len(word) >= _SHORTEST and word not in _hidden:
        _hidden.append(word)


def _clean(value: Any, depth: int) -> Any:
    if isinstance(value, str):
        for word in _hidden:
            value = value.replace(word, "…")
        for pattern, shown in _CREDENTIALS:
            value = pattern.sub(shown, value)
        return value
    if depth == _MAX_DEPTH:
        return _clean(repr(value), depth)
    if isinstance(value, Mapping):
        return {k: _clean(v, depth + 1) for k, v in value.items() if not _SECRET.search(str(k))}
    if isinstance(value, list | tuple | set | frozenset):
        return [_clean(inner, depth + 1) for inner in value]
    return value


def configure_logging(
    level: Literal["debug", "info", "warning", "error"] = "info",
    form: Literal["auto", "text", "json"] = "auto",
    stream: TextIO | None = None,
) -> None:
    """Send our log lines, and those of the libraries, to `stream` (stderr) in one form.

    "auto" is text on a terminal and JSON, one object a line, otherwise.
    """
    stream = sys.stderr if stream is None else stream
    as_text = form == "text" or (form == "auto" and stream.isatty())
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    finish: list[structlog.typing.Processor] = [
        structlog.stdlib.ProcessorFormatter.remove_processors_meta,
        structlog.processors.format_exc_info,
        without_secrets,
        structlog.dev.ConsoleRenderer(colors=stream.isatty())
        if as_text
        else structlog.processors.JSONRenderer(serializer=_json),
    ]
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=finish)
    )
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())
    server = logging.getLogger("aiohttp.server")
    server.filters = [_is_our_fault]  # a configuration of later replaces this one
    # It tells of every change that it sees; what the change means is told by us.
    logging.getLogger("watchfiles").setLevel(logging.WARNING)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,  # a configuration of later replaces this one
    )


def _is_our_fault(record: logging.LogRecord) -> bool:
    """Not what somebody sent who does not speak HTTP: it is answered with 400, and a traceback for
    each would let anybody who reaches a port fill the log."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, HttpProcessingError)


def _json(event: object, **_options: object) -> str:
    return orjson.dumps(event, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
