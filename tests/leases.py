"""Leases without a server: one store, and processes that see it through connections that may fail.

Each process has a steady clock of its own, which may run fast or slow, and a wall clock that may be
off. On the loop's simulated time an hour is over at once.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, cast

from quota_translator.errors import AlreadyExists, ApiError, Conflict, NotFound, Unavailable
from quota_translator.kube.client import Client
from quota_translator.kube.lease import LeaseLock
from quota_translator.kube.resources import Resource
from quota_translator.leadership import Leadership

START = datetime(2026, 11, 30, tzinfo=UTC)
DURATION, DEADLINE, PERIOD = 15.0, 10.0, 2.0
State = Literal["up", "hangs", "down", "answers late"]


class Store:
    """What the API server keeps of Leases."""

    def __init__(self) -> None:
        self.leases: dict[str, dict[str, Any]] = {}
        self._version = 0

    def create(self, body: Mapping[str, Any]) -> bytes:
        name = body["metadata"]["name"]
        if name in self.leases:
            raise AlreadyExists("it is there", status=409)
        self._version += 1
        metadata = dict(body["metadata"]) | {"uid": f"uid-{self._version}"}
        self.leases[name] = dict(body) | {"metadata": metadata}
        return self._stored(name)

    def patch(self, name: str, patch: Mapping[str, Any]) -> bytes:
        lease = self._found(name)
        if patch["metadata"]["resourceVersion"] != lease["metadata"]["resourceVersion"]:
            raise Conflict("somebody wrote it", status=409)
        lease["spec"] = lease["spec"] | patch["spec"]
        return self._stored(name)

    def touch(self, name: str) -> None:
        """Somebody annotates it."""
        self._found(name)
        self._stored(name)

    def get(self, name: str) -> bytes:
        return json.dumps(self._found(name)).encode()

    def _found(self, name: str) -> dict[str, Any]:
        if name not in self.leases:
            raise NotFound("no such Lease", status=404)
        return self.leases[name]

    def _stored(self, name: str) -> bytes:
        self._version += 1
        self.leases[name]["metadata"]["resourceVersion"] = str(self._version)
        return self.get(name)


class Wire:
    """What a process uses for a client. `state` says what becomes of its requests, `failing` what
    is raised in place of an answer."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.state: State = "up"
        self.failing: ApiError | None = None
        self.asked: list[str] = []

    async def get(self, _of: Resource, name: str, _within: str = "", seconds: float = 0) -> bytes:
        return await self._send("get", seconds, lambda: self.store.get(name))

    async def create(self, _of: Resource, body: Mapping[str, Any], seconds: float = 0) -> bytes:
        return await self._send("create", seconds, lambda: self.store.create(body))

    async def merge_patch(
        self, _of: Resource, name: str, patch: Mapping[str, Any], _in: str = "", seconds: float = 0
    ) -> bytes:
        return await self._send("patch", seconds, lambda: self.store.patch(name, patch))

    async def _send(self, verb: str, seconds: float, act: Callable[[], bytes]) -> bytes:
        self.asked.append(verb)
        if self.failing is not None:
            raise self.failing
        if self.state == "hangs":  # not even the timeout of the call helps
            await asyncio.Event().wait()
        if self.state == "down":
            await asyncio.sleep(0.01)
            raise Unavailable("connection reset")
        answer = act()
        if self.state == "answers late":
            await asyncio.sleep(seconds)
            raise Unavailable("no answer in time", outcome_unknown=True)
        await asyncio.sleep(0.005)
        return answer


class Process:
    """One replica. `rate`: how fast its steady clock runs; `ahead`: seconds of its wall clock."""

    def __init__(
        self,
        store: Store,
        name: str,
        *,
        rate: float = 1.0,
        ahead: float = 0.0,
        rand: Callable[[], float] = lambda: 0.5,
        work: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.wire, self.rate, self.ahead = Wire(store), rate, ahead
        self.changes: list[tuple[float, bool]] = []  # when it began and ceased to lead
        self.ended_hard: list[float] = []
        self._work = work or self._idle
        lock = LeaseLock(
            cast("Client", self.wire),
            "platform",
            "lease",
            name,
            DURATION,
            steady=self.steady,
            wall=self.wall,
        )
        self.lock = lock
        self.leadership = Leadership(
            lock,
            renew_deadline=DEADLINE,
            retry_period=PERIOD,
            end_process=lambda: self.ended_hard.append(now()),
            steady=self.steady,
            sleep=self.sleep,
            rand=rand,
            told=lambda: self.changes.append((now(), self.leadership.leads)),
        )

    def steady(self) -> float:
        return now() * self.rate + 1000.0

    def wall(self) -> datetime:
        return START + timedelta(seconds=now() + self.ahead)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds) / self.rate)

    def start(self) -> "asyncio.Task[None]":
        return asyncio.create_task(self.leadership.run(self._work))

    async def _idle(self) -> None:
        await asyncio.Event().wait()


def now() -> float:
    return asyncio.get_running_loop().time()


async def stop(*tasks: "asyncio.Task[None]") -> None:
    """As a kill: nothing is given back."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def until(condition: Callable[[], object], seconds: float = 60.0) -> float:
    """Wait for it on simulated time; how long it took."""
    started = now()
    while not condition():
        assert now() - started < seconds, "it never came true"
        await asyncio.sleep(0.02)
    return now() - started
