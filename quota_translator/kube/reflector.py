"""One kind, followed for ever: list, then watch, then whatever goes wrong.

The rules are client-go's, hardened by what other programs' watches have suffered:

- A watch goes on from the last version that was seen, bookmarks included; 410, as a status or as an
  event, means to list again, and so does a bookmark that is older than what was seen. A list
  replaces everything, so that a missed deletion is seen. An event that is older changes nothing.
- A server whose connection broke may come back with an older backup. A watch from a version that
  lies in its future is silent until it gets there, so the server's version is looked at first.
- Pauses grow and are random; a server that asks for a pause gets it; never more than 12 openings a
  minute. Several openings in a row that end at once, or that stay mute, lead to a list, because
  some servers close a stale watch without saying so.
- A watch on which nothing comes is opened again before two minutes are over: a bookmark should
  come each minute. A connection that looks alive and is not is the commonest way to go deaf.
- A list that fails leaves the last good records and says why they cannot be acted on; the first
  failure is forgiven.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import Final, Generic

import msgspec
import structlog

from quota_translator.errors import (
    ApiError,
    Forbidden,
    Gone,
    Malformed,
    NotFound,
    Silent,
    Throttled,
    Unavailable,
)
from quota_translator.kube.answers import event_failure
from quota_translator.kube.backoff import Backoff, Pacer
from quota_translator.kube.client import Client
from quota_translator.kube.decode import Event, K, R, Watched, read_event, read_page
from quota_translator.kube.listing import list_all
from quota_translator.kube.pulse import Pulse
from quota_translator.kube.store import Store

_log = structlog.get_logger(__name__)
# One failed list is forgiven, so that a hiccup does not show on every node of the tree.
FORGIVEN_LISTS: Final = 1


class Timing(msgspec.Struct, frozen=True):
    """Seconds. Pairs are bounds between which a random value is taken."""

    watch: tuple[float, float] = (300.0, 600.0)  # the server ends a watch after this
    silence: tuple[float, float] = (90.0, 115.0)  # beyond a bookmark's minute, within 120 s
    heard_within: float = 150.0
    quick: float = 10.0  # a watch that ends sooner has not been a watch
    backoff: tuple[float, float] = (0.8, 30.0)
    absent: tuple[float, float] = (1.0, 30.0)  # the kind is not served: ask again
    after_end: float = 0.5  # watches that end together do not come back together
    quick_before_list: int = 5
    mute_before_list: int = 3


class Reflector(Generic[K, R]):
    """Keeps one store true to the server. `run` until cancelled; everything else is reading."""

    def __init__(
        self,
        client: Client,
        watched: Watched[K, R],
        store: Store[K, R],
        *,
        timing: Timing | None = None,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        rand: Callable[[], float] = random.random,
    ) -> None:
        self.store = store
        self.served = True
        self._client = client
        self._watched = watched
        self._timing = timing or Timing()
        self._now, self._sleep, self._rand = now, sleep, rand
        self._backoff = Backoff(now, rand, *self._timing.backoff)
        self._absent = Backoff(now, rand, *self._timing.absent)
        self._pacer = Pacer(now)
        self._log = _log.bind(kind=watched.resource.kind)
        self._version = ""  # "": a list is needed
        self._failed_lists = 0
        self._doubted = False  # the last list was older than what had been seen
        self._was_away = False  # the connection broke; has the server gone back meanwhile?
        self._pulse = Pulse(
            self._timing.heard_within,
            self._timing.quick,
            self._timing.quick_before_list,
            self._timing.mute_before_list,
        )

    # --- what is known of the connection --------------------------------------------------

    def heard(self, now: float, *, body: bool = False) -> bool:
        """Whether the server was heard lately; with `body`, in more than the 200s of openings."""
        return self._pulse.heard(now, body=body)

    @property
    def heard_at(self) -> float | None:
        return self._pulse.sign_at

    @property
    def lost(self) -> bool:
        """The watch cannot be opened, twice in a row: nobody looks, so nothing is measured."""
        return self._pulse.lost

    # --- the loop -------------------------------------------------------------------------

    async def run(self) -> None:
        while True:
            await self._pace()
            try:
                pause = await (self._watch() if self._version else self._list())
            except ApiError as error:
                pause = self._pause_after(error)
            await self._sleep(pause)

    async def _pace(self) -> None:
        while (wait := self._pacer.wait()) > 0:
            await self._sleep(wait)
        self._pacer.note()

    async def _list(self) -> float:
        self.store.begin_list()
        seen = self.store.seen
        records, version = await list_all(self._client, self._watched)
        self.served = True
        if self._went_back(seen, version):
            return self._doubt(seen, version)
        replaced = self.store.replace(records, version)
        self._version, self._doubted = version, False
        self._failed_lists = self._pulse.quick_ends = 0
        self._hear()
        self._log.info("listed", objects=len(records), deleted=len(replaced.deleted))
        return 0.0

    def _went_back(self, seen: str, version: str) -> bool:
        numbers = seen.isdecimal() and version.isdecimal()
        return numbers and int(version) < int(seen) and not self._doubted

    def _doubt(self, seen: str, version: str) -> float:
        """A list older than what was seen (a restored backup): believed the second time only."""
        self._doubted = True  # an outage before it is no second look: backups follow outages
        reason = f"the server went back from version {seen} to {version}; asking again"
        self.store.unsync(f"{self._watched.resource}: {reason}")
        self._log.warning("list is older than what was seen", seen=seen, version=version)
        return self._backoff.pause()

    async def _look_back(self) -> None:
        """Ask for one object, for the version of the list alone. Raises Gone when it is older."""
        watched = self._watched
        one = await self._client.list_page(watched.resource, limit=1, query=watched.query)
        self._was_away, version = False, read_page(one).version
        if self.store.is_past(version):
            raise Gone(f"the server went back from version {self.store.seen} to {version}")

    async def _watch(self) -> float:
        started, events = self._now(), 0
        opened = False
        received = 0
        low, high = self._timing.silence
        try:
            if self._was_away:
                await self._look_back()
            async with self._client.watch(
                self._watched.resource,
                self._version,
                seconds=self._between(*self._timing.watch),
                silence=self._between(low, high),
                query=self._watched.query,
            ) as stream:
                opened = True
                self._pulse.heard_at = self._now()
                self._tell(news=self._pulse.opened())
                async for line in stream.lines():
                    received = stream.received
                    events += self._take(read_event(line))
        except ApiError:
            if not opened:
                self._tell(news=self._pulse.failed())
            raise
        finally:
            if opened:
                self._ended(received, events, self._now() - started)
        return self._after_end(self._now() - started)

    def _tell(self, *, news: bool) -> None:
        """Being lost and being found are news: what hangs on them must not wait for an event."""
        if news:
            self.store.dirty(self.store.kind)

    def _between(self, low: float, high: float) -> float:
        return low + (high - low) * self._rand()

    # --- one event ------------------------------------------------------------------------

    def _take(self, event: Event) -> int:
        """Apply one event; 1 when it was one that this program knows. Raises on ERROR."""
        if event.type == "ERROR":
            raise event_failure(bytes(event.object))
        if event.type == "BOOKMARK":
            self._mark(event.version)
        elif event.type in {"ADDED", "MODIFIED"}:
            self.store.put(self._watched.read(event.object), event.version)
        elif event.type == "DELETED":
            self.store.remove(self._watched.read(event.object), event.version)
        else:
            self._log.warning("unknown event", type=event.type[:40])
            return 0
        self._hear()
        self._version = self.store.seen
        self.store.believe()
        return 1

    def _mark(self, version: str) -> None:
        """A bookmark: everything up to this version was sent. Raises Gone when that is less than
        what was seen: events come in order, so the server has lost some (a restored backup), and
        what it lost is still held here."""
        if self.store.is_past(version):
            raise Gone(f"the server went back from version {self.store.seen} to {version}")
        self.store.advance(version)

    def _hear(self) -> None:
        self._pulse.heard_at = self._pulse.told_at = self._now()

    # --- the end of a watch, and failures -------------------------------------------------

    def _ended(self, received: int, events: int, lasted: float) -> None:
        pulse = self._pulse
        if pulse.ended(received, events, lasted):
            self._log.warning(
                "the watch brings nothing; listing", quick=pulse.quick_ends, mute=pulse.mute_ends
            )
            self._version, pulse.quick_ends = "", 0

    def _after_end(self, lasted: float) -> float:
        """The server ended the watch in order: on at once, unless it ends all of them at once."""
        if lasted < self._timing.quick:
            return self._backoff.pause()
        return self._timing.after_end * self._rand()

    def _pause_after(self, error: ApiError) -> float:
        """What a failure changes, and how long to wait after it."""
        self._log.info("list or watch failed", error=type(error).__name__, message=error.message)
        if not self._version:
            self._failed_lists += 1
        if isinstance(error, Unavailable) and not error.status and not isinstance(error, Silent):
            self._was_away = True
        if isinstance(error, NotFound):
            return self._not_served()
        if isinstance(error, Gone):
            self._version = ""
        if isinstance(error, Forbidden | Malformed) or self._failed_lists > FORGIVEN_LISTS:
            self._say_unsynced(error)
        if isinstance(error, Silent):
            return 0.0
        asked = error.retry_after or 0.0
        if isinstance(error, Throttled) and asked:
            return asked * (1.0 + 0.1 * self._rand())
        return max(asked, self._backoff.pause())

    def _not_served(self) -> float:
        resource = self._watched.resource
        self.served, self._version = False, ""
        group = f"{resource.group}/{resource.version}" if resource.group else resource.version
        self.store.unsync(f"{resource.kind} is not served in {group}; are its CRDs installed?")
        return self._absent.pause()

    def _say_unsynced(self, error: ApiError) -> None:
        if self._version and not isinstance(error, Forbidden):
            return  # one bad watch line: the watch goes on from before it
        verb = "watch" if self._version else "list"
        if isinstance(error, Forbidden):
            verb = error.verb or verb
            resource = error.resource or str(self._watched.resource)
            text = f"no permission to {verb} {resource}: {error.message}"
        else:
            text = f"cannot {verb} {self._watched.resource}: {error.message}"
        self.store.unsync(text)
        self._log.warning("not synced", reason=text)
