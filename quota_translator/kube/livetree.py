"""The tree as it is on the server at this moment, for decisions that must not rest on a cache."""

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec

from quota_translator.core.world import QuotaNode
from quota_translator.errors import Unavailable
from quota_translator.kube.client import Client
from quota_translator.kube.decode import WATCHED_QUOTAS, Payload, Watched, read_quota
from quota_translator.kube.listing import list_all
from quota_translator.kube.resources import QUOTAS

# The API server waits five seconds for the webhook. A clear answer must come before that, also to
# those who waited for a list that brought nothing before their own was sent.
LIST_SECONDS: Final = 2.0


class _Meta(msgspec.Struct, rename="camel"):
    name: str = ""
    uid: str = ""
    resource_version: str = ""


class _Item(msgspec.Struct):
    metadata: _Meta


_read_item: Final = msgspec.json.Decoder(_Item).decode


class LiveTree:
    """Lists on demand. One list serves everybody who asked before it was sent.

    So of two edits in a row the second sees the first, and however many arrive at once, one list is
    under way and at most one waits.
    """

    def __init__(
        self,
        client: Client,
        seen: Callable[[str], QuotaNode | None] = lambda _name: None,
        seconds: float = LIST_SECONDS,
    ) -> None:
        """`seen`: the record of that name that a watch brought. It is taken where the server tells
        the same version, as it mostly does: most of a list is then not decoded again."""
        self._client = client
        self._seen = seen
        self._seconds = seconds
        self._watched = Watched[str, QuotaNode](QUOTAS, self._read, WATCHED_QUOTAS.key)
        self._sent: asyncio.Task[tuple[QuotaNode, ...]] | None = None
        self._waiting: asyncio.Task[tuple[QuotaNode, ...]] | None = None

    async def nodes(self) -> tuple[QuotaNode, ...]:
        """Every AcceleratorQuota, read after this was called. Raises ApiError."""
        if self._waiting is None:
            self._waiting = asyncio.create_task(self._list_after(self._sent))
            self._waiting.add_done_callback(_look)
        # Whoever goes away must not take the list from the others.
        return await asyncio.shield(self._waiting)

    async def _list_after(
        self, sent: asyncio.Task[tuple[QuotaNode, ...]] | None
    ) -> tuple[QuotaNode, ...]:
        if sent is not None:
            await asyncio.wait({sent})
        self._sent, self._waiting = self._waiting, None  # who asks from now on needs another
        try:
            async with asyncio.timeout(self._seconds):
                records, _ = await list_all(self._client, self._watched)
        except TimeoutError:
            raise Unavailable(f"the list of {QUOTAS} took more than {self._seconds:g} s") from None
        return tuple(records)

    def _read(self, payload: Payload) -> QuotaNode:
        try:
            told = _read_item(payload).metadata
        except (msgspec.DecodeError, UnicodeDecodeError):
            return read_quota(payload)  # which says what is wrong with it
        found = self._seen(told.name)
        if found is not None and told.uid and told.resource_version:
            same = (found.uid, found.resource_version) == (told.uid, told.resource_version)
            return found if same else read_quota(payload)
        return read_quota(payload)


def _look(done: asyncio.Task[tuple[QuotaNode, ...]]) -> None:
    """An error that nobody waited for any more is nobody's business."""
    if not done.cancelled():
        done.exception()
