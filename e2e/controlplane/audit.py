"""What was asked of the API server, by whom: the audit log as records that tests can count."""

from __future__ import annotations

import itertools
import json
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from e2e.controlplane.api import Api
from e2e.controlplane.processes import ControlPlaneError

WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})
FLUSH_LIMIT = 15.0
MARK_PATH = "/version?audit-mark="

_marks = itertools.count(1)


class HasAudit(Protocol):
    """All that is needed of a control plane here."""

    api: Api

    @property
    def audit_log(self) -> Path: ...


@dataclass(frozen=True, slots=True)
class Record:
    """One request. A watch is recorded when it is opened, everything else when it is answered."""

    verb: str
    group: str
    resource: str
    subresource: str
    namespace: str
    name: str
    code: int
    user: str
    user_agent: str
    stage: str
    uri: str
    time: str

    @property
    def is_write(self) -> bool:
        return self.verb in WRITES

    def __str__(self) -> str:
        resource = f"{self.resource}/{self.subresource}" if self.subresource else self.resource
        target = "/".join(part for part in (self.namespace, self.name) if part)
        return " ".join(part for part in (self.verb, resource or self.uri, target) if part)


class Audit:
    """Reads the audit log of a running control plane."""

    def __init__(self, cp: HasAudit) -> None:
        self._cp = cp

    def mark(self) -> int:
        """A place in the log, after every request that has been answered so far."""
        uri = f"{MARK_PATH}{os.getpid()}-{next(_marks)}"
        offset = self._cp.audit_log.stat().st_size
        self._cp.api.get(uri)
        wanted = f'"requestURI":"{uri}"'.encode()
        deadline = time.monotonic() + FLUSH_LIMIT
        while time.monotonic() < deadline:
            found, offset = _scan(self._cp.audit_log, offset, wanted)
            if found:
                return offset
            time.sleep(0.02)
        raise ControlPlaneError(
            f"waited {FLUSH_LIMIT:.0f} s for a request of ours to be in {self._cp.audit_log}; "
            f"it has {self._cp.audit_log.stat().st_size} bytes"
        )

    def since(
        self, mark: int, *, user: str | None = None, user_agent: str | None = None
    ) -> list[Record]:
        """The requests since a mark, in the order of their answers; one record a request.

        ``user`` is compared as a whole, ``user_agent`` by how it begins.
        """
        return self.between(mark, self.mark(), user=user, user_agent=user_agent)

    def between(
        self, start: int, end: int, *, user: str | None = None, user_agent: str | None = None
    ) -> list[Record]:
        """The same, between two marks."""
        with self._cp.audit_log.open("rb") as log:
            log.seek(start)
            lines = log.read(end - start).splitlines()
        return [
            record
            for record in parse(lines)
            if user in (None, record.user) and record.user_agent.startswith(user_agent or "")
        ]


def parse(lines: Iterable[bytes]) -> Iterator[Record]:
    """Records of the log's lines: one for each request, and none for our own marks."""
    for line in lines:
        event = json.loads(line)
        watching = event["verb"] == "watch"
        counted = "ResponseStarted" if watching else "ResponseComplete"
        if event["stage"] == counted and not event["requestURI"].startswith(MARK_PATH):
            yield _record(event)


def _record(event: dict[str, Any]) -> Record:
    target = event.get("objectRef", {})
    return Record(
        verb=event["verb"],
        group=target.get("apiGroup", ""),
        resource=target.get("resource", ""),
        subresource=target.get("subresource", ""),
        namespace=target.get("namespace", ""),
        name=target.get("name", ""),
        code=event.get("responseStatus", {}).get("code", 0),
        user=event["user"].get("username", ""),
        user_agent=event.get("userAgent", ""),
        stage=event["stage"],
        uri=event["requestURI"],
        time=event["stageTimestamp"],
    )


def count(records: Iterable[Record]) -> Counter[str]:
    """How often each kind of request was made: ``{"patch cohorts/status team-a": 2}``."""
    return Counter(str(record) for record in records)


def _scan(path: Path, offset: int, wanted: bytes) -> tuple[bool, int]:
    """Whether a whole line with these bytes follows, and where to go on reading."""
    with path.open("rb") as log:
        log.seek(offset)
        for line in log:
            if not line.endswith(b"\n"):  # still being written
                return False, offset
            offset += len(line)
            if wanted in line:
                return True, offset
    return False, offset
