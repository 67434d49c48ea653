"""What the cluster serves of Kueue: asked at the start, and again while something is missing.

And whether the tree's own kind is there to stay, which is asked before anything is deleted.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from quota_translator.core.names import (
    GROUP,
    KINDS,
    KUEUE_GROUP,
    KUEUE_VERSION,
    QUOTA_KIND,
    VERSION,
)
from quota_translator.core.world import Facts
from quota_translator.errors import ApiError, NotFound, Unavailable
from quota_translator.kube.backoff import Backoff
from quota_translator.kube.client import Client

# Names of fields of a ClusterQueue: one that all have, and one that came with 0.18.
_QUEUE_FIELD: Final = b'"queueingStrategy"'
_SINCE_0_18: Final = b'"concurrentAdmissionPolicy"'

_log = structlog.get_logger(__name__)


class Discovery:
    """Keeps `facts` true. It is silent while every kind is served; `ask` makes it look again."""

    def __init__(
        self,
        client: Client,
        changed: Callable[[], None],
        *,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        rand: Callable[[], float] = random.random,
    ) -> None:
        self.facts = Facts()
        self._client = client
        self._changed = changed
        self._sleep = sleep
        self._backoff = Backoff(now, rand, base=1.0, cap=30.0)
        self._asked = asyncio.Event()
        self._is_open = False  # the schema could not be had just now, and is asked for again

    def ask(self) -> None:
        """A kind was found missing, or is back."""
        self._asked.set()

    async def tree_stays(self) -> bool:
        """False while the tree's kind is being taken off the server. Raises ApiError.

        A deleted CRD takes its objects along, one by one, as if people deleted them; all that tells
        the two apart is that the server takes no new ones any more.
        """
        try:
            kinds = await self._client.served_kinds(GROUP, VERSION, verb="create")
        except NotFound:
            return False
        return QUOTA_KIND in kinds

    async def run(self) -> None:
        while True:
            self._asked.clear()
            if await self._look():
                self._backoff.reset()
                await self._asked.wait()
            else:
                await self._sleep(self._backoff.pause())

    async def _look(self) -> bool:
        """Ask the server; whether everything that is needed is served."""
        try:
            found = await self._read()
        except ApiError as error:
            _log.info("discovery failed", error=type(error).__name__, message=error.message)
            return False
        if found != self.facts:
            self.facts = found
            missing = sorted(set(KINDS) - (found.served or frozenset()))
            told = ".".join(map(str, found.kueue_release or ())) or "unknown"
            _log.info(
                "kueue is served", versions=found.kueue_versions, missing=missing, release=told
            )
            self._changed()
        is_served = found.served is not None and found.served.issuperset(KINDS)
        return is_served and not self._is_open

    async def _read(self) -> Facts:
        try:
            versions = await self._client.served_versions(KUEUE_GROUP)
        except NotFound:
            return Facts(served=frozenset())
        if KUEUE_VERSION not in versions:
            return Facts(served=frozenset(), kueue_versions=versions)
        kinds = await self._client.served_kinds(KUEUE_GROUP, KUEUE_VERSION)
        release = await self._release()
        served = kinds & frozenset(KINDS)
        return Facts(served=served, kueue_versions=versions, kueue_release=release)

    async def _release(self) -> tuple[int, int] | None:
        """Kueue says nowhere which release it is, but its schema does. None: it cannot be told.

        0.18 stands for all that are not older: nothing that we write is different in them.
        """
        self._is_open = False
        try:
            schema = await self._client.schema(KUEUE_GROUP, KUEUE_VERSION)
        except ApiError as error:
            _log.info("no schema of kueue", error=type(error).__name__, message=error.message)
            self._is_open = isinstance(error, Unavailable)
            return None
        if _QUEUE_FIELD not in schema:  # not the document of the queues at all
            return None
        return (0, 18) if _SINCE_0_18 in schema else (0, 17)
