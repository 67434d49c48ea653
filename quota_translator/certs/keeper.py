"""The webhook's certificate: kept in a Secret, trusted by the webhook configuration, served.

Every replica runs this; none leads. Each step computes what is wanted from what is there, so that
whatever is deleted or overwritten comes back. A new pair is served when the API servers have had
time to learn of its authority; until then the one before it is, whose authority stays in the bundle
as long as anybody could serve it.
"""

import asyncio
import random
import re
import ssl
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Final

import structlog

from quota_translator.certs.bundle import BundleKeeper
from quota_translator.certs.pairs import names_for
from quota_translator.certs.secret import SecretKeeper, unexpired
from quota_translator.certs.tls import Held, Served
from quota_translator.core.world import Clock
from quota_translator.errors import ApiError, Forbidden
from quota_translator.kube.backoff import Backoff
from quota_translator.kube.client import Client

_log = structlog.get_logger(__name__)
LOOK_SECONDS: Final = 10.0  # so long may a suspended machine or a deaf watch go unnoticed
LONGEST_PAUSE: Final = 10.0  # after failures
SHORTEST_PAUSE: Final = 0.2
# API servers learn of a new bundle by a watch, a moment later.
SETTLE_SECONDS: Final = 10.0
SETTLE_SHARE: Final = 0.05  # of a certificate's life, where that is short
_ENCODED: Final = re.compile(r"[A-Za-z0-9+/=_-]{40,}")


class CertificateKeeper:
    """Hand `context` to the server, and `run` until cancelled.

    `client` must write without leading; `lifetime` is in seconds. `on_change` is called when
    `problem`, `notice` or `expires_at` say something else than before.
    """

    def __init__(
        self,
        client: Client,
        *,
        namespace: str,
        secret_name: str,
        service_name: str,
        configuration_name: str,
        extra_names: Sequence[str] = (),
        lifetime: float,
        now: Callable[[], Clock],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        rand: Callable[[], float] = random.random,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self._now, self._sleep, self._on_change = now, sleep, on_change
        self._woken = asyncio.Event()
        self._served = Served(now)
        self._secret = SecretKeeper(
            client,
            namespace,
            secret_name,
            names_for(service_name, namespace, extra_names),
            lifetime,
            self._woken.set,
            now=now,
            sleep=sleep,
            rand=rand,
        )
        self._bundle = BundleKeeper(
            client, configuration_name, self._woken.set, now=now, sleep=sleep, rand=rand
        )
        self._settle = min(SETTLE_SECONDS, lifetime * SETTLE_SHARE)
        self._backoff = Backoff(lambda: now().steady, rand, cap=LONGEST_PAUSE)
        self._error = ""
        self._told: tuple[str, str, datetime | None] = ("", "", None)

    # --- what others ask ------------------------------------------------------------------

    @property
    def context(self) -> ssl.SSLContext:
        """TLS 1.2 or later. Each handshake gets the pair of its moment, or is refused."""
        return self._served.context

    def expires_at(self) -> datetime | None:
        """When the pair in service expires; None: there is none."""
        return self._served.held.pair.not_after if self._served.held else None

    def problem(self) -> str:
        """What keeps the API server from calling us, in one line; "" when it can."""
        held, bundle = self._served.held, self._bundle.named
        if held is None:
            found = f"no certificate yet: {self._secret.named.title} is not there or not good"
        elif fault := held.fault(self._now()):
            found = f"the certificate {fault}"
        elif not bundle.known:
            found = f"{bundle.title} has not been read yet"
        elif not self._bundle.trusts(held.pair.authority):
            found = f"the CA bundle of {bundle.title} does not hold our authority"
        else:
            return ""
        return found + (f": {self._error}" if self._error else "")

    def notice(self) -> str:
        """What is amiss although we can be called, in one line; "" for nothing."""
        if self._error:
            return self._error
        return f"there is no {self._bundle.named.title} to call us" if self._bundle.missing else ""

    # --- the loop -------------------------------------------------------------------------

    async def run(self) -> None:
        """Keep everything as it should be, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._secret.named.run())
            group.create_task(self._bundle.named.run())
            group.create_task(self._keep())

    async def _keep(self) -> None:
        while True:
            self._woken.clear()
            await self.step()
            if self._error:
                await self._sleep(self._backoff.pause())
            else:
                self._backoff.reset()
                await self._wait(self._wake_in())

    async def step(self) -> None:
        """One look at everything, and what follows from it. Raises nothing."""
        secret = await self._error_of(self._keep_secret())
        bundle = await self._error_of(self._keep_bundle())
        error = "; ".join(dict.fromkeys(filter(None, (secret, bundle))))
        if error and error != self._error:
            _log.warning("the certificate cannot be kept up", reason=error)
        self._error = error
        self._serve()
        told = (self.problem(), self.notice(), self.expires_at())
        if told != self._told:
            self._told = told
            self._on_change()

    async def _error_of(self, part: Awaitable[None]) -> str:
        """Do a part of the step. What fails of one must not keep the other from being done."""
        try:
            await part
        except ApiError as error:
            return _in_words(error)
        except Exception:  # noqa: BLE001  a fault of ours: without a certificate nobody can write
            _log.exception("the certificate cannot be looked after")
            return "an internal error, which the log shows"
        return ""

    async def _keep_secret(self) -> None:
        await self._secret.named.ask_if_deaf()
        await self._secret.keep(self._served.held)

    async def _keep_bundle(self) -> None:
        await self._bundle.named.ask_if_deaf()
        if not self._needs_bundle():
            return
        # The two watches are not in step. What another replica has just written must not be undone
        # because the Secret that it follows from comes a moment later.
        await self._secret.named.ask()
        with suppress(ApiError):  # the other part of the step says that the Secret cannot be kept
            await self._secret.keep(self._served.held)
        if self._needs_bundle():
            await self._bundle.write(self._wanted_bundle())

    def _needs_bundle(self) -> bool:
        wanted = self._wanted_bundle()
        return bool(wanted) and self._bundle.differs_from(wanted)

    def _wanted_bundle(self) -> bytes:
        """What the Secret says; b"": nothing is to be written.

        While there is no good Secret, and none can be made, what is being served must be trusted
        all the same. What others may serve then stays trusted beside it.
        """
        stored, held, clock = self._secret.stored, self._served.held, self._now()
        if stored is not None:
            return stored.bundle
        if held is None or held.fault(clock) or self._bundle.trusts(held.pair.authority):
            return b""
        return unexpired((held.pair.authority, *self._bundle.found), clock)

    def _serve(self) -> None:
        """Exchange the pair in service when the stored one is better."""
        stored, held = self._secret.stored, self._served.held
        if stored is None or stored.held is held:
            return
        if held is None or held.fault(self._now()) or self._is_better(stored.held, held):
            self._served.held = stored.held
            expires = stored.held.pair.not_after.isoformat()
            _log.info("serving a certificate", expires=expires)

    def _is_better(self, new: Held, old: Held) -> bool:
        """Whether the API servers trust the new pair by now, or do not trust the old one."""
        bundle = self._bundle
        if not bundle.named.known:
            return False
        if bundle.missing or not bundle.trusts(old.pair.authority):
            return True
        since = bundle.trusted_for(new.pair.authority)
        return since is not None and since >= self._settle

    def _wake_in(self) -> float:
        """Seconds until time alone makes another step worth it."""
        waits, stored = [LOOK_SECONDS], self._secret.stored
        if stored is not None:
            waits.append(stored.held.due_in(self._now()))
            if stored.held is not self._served.held:
                since = self._bundle.trusted_for(stored.held.pair.authority)
                waits.append(self._settle - (since or 0.0))
        return max(SHORTEST_PAUSE, min(waits))

    async def _wait(self, seconds: float) -> None:
        """Until something changes, at most so long."""
        ways = [
            asyncio.ensure_future(self._sleep(seconds)),
            asyncio.ensure_future(self._woken.wait()),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()


def _in_words(error: ApiError) -> str:
    """One line. Somebody between us and the server may quote what we sent, which holds a key."""
    message = _ENCODED.sub("…", error.message)
    if isinstance(error, Forbidden) and error.verb:
        return f"no permission to {error.verb} {error.resource}: {message}"
    return message
