"""The tree as it is on the server at this moment, for decisions that must not rest on a cache."""

import asyncio
from typing import Final

from quota_translator.core.world import QuotaNode
from quota_translator.errors import Unavailable
from quota_translator.kube.client import Client
from quota_translator.kube.decode import WATCHED_QUOTAS
from quota_translator.kube.listing import list_all

# The API server waits five seconds for the webhook; a clear answer must come before that.
LIST_SECONDS: Final = 3.0


class LiveTree:
    """Lists on demand. One list serves everybody who asked before it was sent.

    So of two edits in a row the second sees the first, and however many arrive at once, one list is
    under way and at most one waits.
    """

    def __init__(self, client: Client, seconds: float = LIST_SECONDS) -> None:
        self._client = client
        self._seconds = seconds
        self._sent: asyncio.Task[tuple[QuotaNode, ...]] | None = None
        self._waiting: asyncio.Task[tuple[QuotaNode, ...]] | None = None

    async def nodes(self) -> tuple[QuotaNode, ...]:
        """Every AcceleratorQuota, read after this was called. Raises ApiError."""
        if self._waiting is None:
            self._waiting = asyncio.create_task(self._list_after(self._sent))
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
                records, _ = await list_all(self._client, WATCHED_QUOTAS)
        except TimeoutError:
            raise Unavailable(
                f"the list of {WATCHED_QUOTAS.resource} took more than {self._seconds:g} s"
            ) from None
        return tuple(records)
