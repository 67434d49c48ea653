"""The CA bundle in our webhook configuration: written again whenever it is another one.

The configuration is the chart's; it is neither created nor deleted here.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from quota_translator.core.world import Clock
from quota_translator.errors import Conflict, NotFound
from quota_translator.kube.backoff import Pacer
from quota_translator.kube.client import Client
from quota_translator.kube.named import Named
from quota_translator.kube.resources import WEBHOOKS
from quota_translator.kube.webhookconfig import Webhooks, read_webhooks, set_bundle

_log = structlog.get_logger(__name__)
# Somebody who writes another bundle each time we write ours must not become a storm.
BUNDLES_A_MINUTE: Final = 12


class BundleKeeper:
    """Keeps the bundle of one configuration. `changed` is called when another look is worth it."""

    def __init__(
        self,
        client: Client,
        name: str,
        changed: Callable[[], None],
        *,
        now: Callable[[], Clock],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        rand: Callable[[], float] = random.random,
    ) -> None:
        self.named = Named[Webhooks](
            client,
            WEBHOOKS,
            name,
            read_webhooks,
            lambda record: record.version,
            changed,
            now=lambda: now().steady,
            sleep=sleep,
            rand=rand,
        )
        self._client, self._now = client, now
        self._pace = Pacer(lambda: now().steady, most=BUNDLES_A_MINUTE)
        self._trusted: tuple[bytes, float] | None = None

    @property
    def missing(self) -> bool:
        """There is no webhook that could call us: not installed yet, or switched off."""
        record = self.named.record
        return self.named.known and (record is None or not record.bundles)

    @property
    def found(self) -> tuple[bytes, ...]:
        """What each webhook of it trusts now."""
        record = self.named.record
        return tuple(bundle for _, bundle in record.bundles) if record is not None else ()

    def differs_from(self, bundle: bytes) -> bool:
        """Whether a bundle must and may be written now."""
        record = self.named.record
        return record is not None and bool(record.other_than(bundle)) and self._pace.wait() <= 0

    async def write(self, bundle: bytes) -> None:
        """Raises ApiError, but not when the configuration changed or went away meanwhile."""
        record = self.named.record
        assert record is not None
        try:
            body = await set_bundle(self._client, record, bundle)
        except (Conflict, NotFound):
            await self.named.ask()
            return
        self._pace.note()
        self.named.take(body)
        _log.info("wrote the CA bundle", object=self.named.title)

    def trusts(self, authority: bytes) -> bool:
        """Whether the API server can call a server whose certificate this authority signed."""
        record = self.named.record
        return record is None or record.trust(authority)

    def trusted_for(self, authority: bytes) -> float | None:
        """Seconds since the authority was first seen in the bundle; None while it is not."""
        if not self.trusts(authority):
            self._trusted = None
            return None
        steady = self._now().steady
        if self._trusted is None or self._trusted[0] != authority:
            self._trusted = (authority, steady)
        return steady - self._trusted[1]
