"""One object that is known by its name: followed by a watch, asked for while the watch is down.

Lists and watches name the object in their selector, so that rights to this one object are enough.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import Generic

from quota_translator.errors import NotFound
from quota_translator.kube.client import Client
from quota_translator.kube.decode import Payload, R, Watched
from quota_translator.kube.reflector import Reflector
from quota_translator.kube.resources import Resource
from quota_translator.kube.store import Store


class Named(Generic[R]):
    """What the server has under one name. `changed` is called when that differs from before."""

    def __init__(
        self,
        client: Client,
        resource: Resource,
        name: str,
        read: Callable[[Payload], R],
        version: Callable[[R], str],
        changed: Callable[[], None],
        *,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        rand: Callable[[], float] = random.random,
    ) -> None:
        """A namespaced `resource` says in its `within` where."""
        where = f"{resource.within}/" if resource.within else ""
        self.title = f"{resource.kind} {where}{name}"  # for people
        self._client, self._resource, self._name = client, resource, name
        self._read, self._version, self._now = read, version, now
        self._asked = False
        query = {"fieldSelector": f"metadata.name={name}"}
        watched = Watched[str, R](resource, read, lambda _record: name, version, query)
        self._store = Store[str, R](resource.kind, watched.key, version, lambda _kind: changed())
        self._reflector = Reflector(client, watched, self._store, now=now, sleep=sleep, rand=rand)

    @property
    def record(self) -> R | None:
        """The object as it was last seen; None: it was not there, or nobody could look yet."""
        return self._store.get(self._name)

    @property
    def known(self) -> bool:
        """Whether the server has told once what is there."""
        self._asked = self._asked or self._store.synced
        return self._asked

    @property
    def reason(self) -> str:
        """Why it is not followed; "" while it is."""
        return self._store.reason

    async def run(self) -> None:
        """Follow it until cancelled."""
        await self._reflector.run()

    async def ask_if_deaf(self) -> None:
        """Ask for the object unless the watch tells of it anyway. Raises ApiError."""
        reflector = self._reflector
        if reflector.lost or not self._store.synced or not reflector.heard(self._now()):
            await self.ask()

    async def ask(self) -> None:
        """Read the object now. Raises ApiError, but not NotFound."""
        try:
            body = await self._client.get(self._resource, self._name)
        except NotFound:
            self._store.remove_answer(self._name)
        else:
            self.take(body)
        self._asked = True

    def take(self, body: bytes) -> None:
        """The answer of a write to this object. Raises Malformed."""
        self._store.put_answer(self._read(body))
