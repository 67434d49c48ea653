"""A recorded cluster, read as the program reads a real one: as a World, or behind a client."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from quota_translator.core.names import CLUSTER_QUEUE, COHORT, KINDS, LOCAL_QUEUE
from quota_translator.core.world import World
from quota_translator.kube.client import PAGE
from quota_translator.kube.decode import (
    WATCHED_FLAVORS,
    WATCHED_NAMESPACES,
    WATCHED_NODES,
    WATCHED_QUOTAS,
    K,
    R,
    Watched,
    read_page,
    watched_kueue,
)
from quota_translator.kube.resources import Resource

_CHUNK: Final = 2**16


def pages(place: Path, resource: Resource) -> Iterator[bytes]:
    """The bodies of a list's pages, one at a time."""
    number = 0
    while (file := place / resource.plural / f"{number}.json").exists():
        yield file.read_bytes()
        number += 1


def read(place: Path, watched: Watched[K, R]) -> tuple[R, ...]:
    """All records of a kind."""
    bodies = pages(place, watched.resource)
    return tuple(watched.read(item) for body in bodies for item in read_page(body).items)


def load(place: Path) -> World:
    """Nodes, flavors, namespaces and the tree; of Kueue's objects only the flavors exist."""
    flavors = read(place, WATCHED_FLAVORS)
    return World(
        quotas=read(place, WATCHED_QUOTAS),
        nodes=read(place, WATCHED_NODES),
        flavors=tuple(record.flavor for record in flavors),
        namespaces=read(place, WATCHED_NAMESPACES),
        live={record.observed.key: record.observed for record in flavors},
        known=frozenset(KINDS),
    )


def load_live(place: Path, world: World) -> World:
    """The same with all of Kueue's objects."""
    live = dict(world.live)
    for kind in (COHORT, CLUSTER_QUEUE, LOCAL_QUEUE):
        live.update((record.key, record) for record in read(place, watched_kueue(kind)))
    return msgspec.structs.replace(world, live=live)


class RecordedClient:
    """Stands where `kube.client.Client` stands: lists answer with the pages, watches stay mute."""

    def __init__(self, place: Path) -> None:
        self._place = place

    async def list_page(
        self, resource: Resource, token: str = "", limit: int = PAGE, **_: Any
    ) -> bytes:
        """A page, chunk by chunk on the loop's own thread, as bytes come from a connection."""
        chunks = []
        with (self._place / resource.plural / f"{token or 0}.json").open("rb") as file:
            while chunk := file.read(_CHUNK):
                chunks.append(chunk)
                await asyncio.sleep(0)
        return b"".join(chunks)

    @asynccontextmanager
    async def watch(self, _resource: Resource, _version: str, **_: Any) -> AsyncIterator["_Mute"]:
        yield _Mute()

    async def served_versions(self, _group: str) -> tuple[str, ...]:
        return ("v1beta2",)

    async def served_kinds(self, _group: str, _version: str) -> frozenset[str]:
        return frozenset(KINDS)

    async def close(self) -> None:
        pass


class _Mute:
    received = 0

    async def lines(self) -> AsyncIterator[bytes]:
        await asyncio.Event().wait()
        yield b""
