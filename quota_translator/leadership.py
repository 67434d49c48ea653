"""Who writes: the one replica that holds the Lease, for as long as it surely does.

A leader renews the Lease again and again. When it could not for `renew_deadline` seconds, it stops:
no write is begun from that moment on, whatever a pending renewal is doing, and the work is
cancelled. The others take the Lease `lease_duration` seconds after they saw the last renewal.

The bound on two writers: a leader's last write is *sent* before its deadline, counted by its own
steady clock from before its last good renewal was sent; another's first is sent after it saw that
renewal unchanged for the lease duration by its own. With the defaults (10 s and 15 s) these are 5 s
apart; they meet when the clocks of two machines run 20 % apart in opposite directions. What the
leader has sent the server may still carry out: the cancelled work breaks the connection, which ends
requests that are under way there, and each write names what it follows from. A machine that stands
still as a whole between the last look at the clock and the system call that sends can not be
guarded against by anybody but the server.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

import structlog

from quota_translator.errors import ApiError
from quota_translator.kube.lease import LeaseLock
from quota_translator.leading import STANDING_BY, Work

JITTER: Final = 0.2  # a pause is up to so much longer, so that replicas do not march in step
GRACE_SECONDS: Final = 5.0  # for cancelled work to end
RELEASE_SECONDS: Final = 1.5
_SLACK_SECONDS: Final = 0.5
_MOST_PROBLEM: Final = 200  # characters


def steady() -> float:
    """Seconds of a clock that nobody sets, and that goes on while the machine sleeps."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)  # Linux; the monotonic one stops in a suspend
    return time.monotonic() if clock is None else time.clock_gettime(clock)


class Leadership:
    """Runs work while the Lease is held, again and again. Times in seconds of `steady`."""

    def __init__(
        self,
        lock: LeaseLock,
        *,
        renew_deadline: float,
        retry_period: float,
        end_process: Callable[[], None],
        grace: float = GRACE_SECONDS,
        steady: Callable[[], float] = steady,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        rand: Callable[[], float] = random.random,
        told: Callable[[], None] = lambda: None,
    ) -> None:
        """`end_process` is called when cancelled work does not end within `grace`; `told` when
        `leads` has changed."""
        self._lock = lock
        self._renew_deadline, self._retry_period = renew_deadline, retry_period
        self._end_process, self._grace = end_process, grace
        self._steady, self._sleep, self._rand = steady, sleep, rand
        self._told = told
        self._leads = False
        self._holds = False  # the Lease says so, as far as we know
        self._problem = ""
        self._log = structlog.get_logger("leadership").bind(lease=f"{lock.namespace}/{lock.name}")

    # --- what others ask ------------------------------------------------------------------

    @property
    def identity(self) -> str:
        return self._lock.identity

    @property
    def uid(self) -> str:
        """Of the Lease; "" before it was seen."""
        return self._lock.uid

    @property
    def transitions(self) -> int:
        return self._lock.transitions

    @property
    def leads(self) -> bool:
        return self._leads

    @property
    def problem(self) -> str:
        """Why the Lease cannot be read or written, in one line; "" while it can."""
        return self._problem

    @property
    def standing(self) -> str:
        """Of one that does not lead: whether another does."""
        if self._problem and self._lock.free_in() <= 0:
            lease = f"Lease {self._lock.namespace}/{self._lock.name}"
            return f"nobody leads: {lease} is free and cannot be taken; if it is broken, delete it"
        return STANDING_BY

    def may_write(self) -> bool:
        """Asked before every write. It looks at the clock itself and waits for nobody."""
        return self._leads and self._left() > 0

    # --- from standby to standby ----------------------------------------------------------

    async def run(self, work: Work) -> None:
        """Until cancelled, or `work` ends by itself; what it raises is raised."""
        while True:
            await self._stand_by()
            if await self._lead(work):
                return

    async def release(self) -> None:
        """Give the Lease back, once `run` has ended. At best: if not, it expires."""
        if not self._holds:
            return
        self._holds = False
        try:
            if await self._lock.release(self._steady() + RELEASE_SECONDS):
                self._log.info("lease released")
            elif self._lock.is_ours:
                self._log.warning("lease not released", reason="somebody else goes on writing it")
        except ApiError as error:
            self._log.warning("lease not released", reason=error.message)

    async def _stand_by(self) -> None:
        told = ""
        while not await self._try_to(self._lock.take, self._steady() + self._renew_deadline):
            if self._lock.holder != told:
                told = self._lock.holder
                self._log.info("standing by", holder=told)
            await self._sleep(self._pause())

    def _pause(self) -> float:
        """The period; or less, if the Lease expires before that."""
        pause, free_in = self._period(), self._lock.free_in()
        return free_in if 0 < free_in < pause else pause

    def _period(self) -> float:
        return self._retry_period * (1.0 + JITTER * self._rand())

    async def _lead(self, work: Work) -> bool:
        """True: the work ended by itself."""
        self._change(leads=True)
        self._log.info("leading", identity=self.identity, transitions=self.transitions)
        working: asyncio.Future[None] = asyncio.ensure_future(work())
        renewing = asyncio.create_task(self._renew())
        try:
            return await self._watch(working, renewing)
        finally:
            self._change(leads=False)
            renewing.cancel()
            await self._end(working)

    async def _watch(self, working: "asyncio.Future[None]", renewing: "asyncio.Task[None]") -> bool:
        """Until the deadline passes, or one of the two ends. The deadline moves meanwhile."""
        while (left := self._left()) > 0:
            await self._first_of(left, working, renewing)
            if working.done():
                working.result()
                return True
            if renewing.done():
                renewing.result()
                self._holds = False
                self._log.warning("leadership lost", holder=self._lock.holder)
                return False
        self._log.error(
            "leadership lost", reason=self._problem or f"not renewed for {self._renew_deadline:g} s"
        )
        return False

    async def _renew(self) -> None:
        """Until another has the Lease. Failures are tried again; the deadline is not ours."""
        while True:
            await self._sleep(self._period())
            until = self._lock.confirmed_at + self._renew_deadline
            if await self._try_to(self._lock.renew, until) is False:
                return

    async def _end(self, working: "asyncio.Future[None]") -> None:
        """Cancel the work. Work that will not end ends with the process: it must not write."""
        working.cancel()
        await self._first_of(self._grace, working)
        if not working.done():
            self._log.critical("the work goes on without leadership; ending the process")
            self._end_process()
        elif not working.cancelled() and (error := working.exception()) is not None:
            self._log.error("the work ended with an error", reason=repr(error))

    async def _first_of(self, seconds: float, *ways: "asyncio.Future[Any]") -> None:
        """Wait until one of them is done, at most so long."""
        alarm = asyncio.ensure_future(self._sleep(seconds))
        try:
            await asyncio.wait({*ways, alarm}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            alarm.cancel()

    # --- inside ---------------------------------------------------------------------------

    def _left(self) -> float:
        return self._lock.confirmed_at + self._renew_deadline - self._steady()

    def _change(self, *, leads: bool) -> None:
        self._leads = leads
        self._holds |= leads
        self._told()

    async def _try_to(self, ask: Callable[[float], Awaitable[bool]], until: float) -> bool | None:
        """What the server says; None: nothing that helps."""
        asking = asyncio.ensure_future(ask(until))
        try:
            # The client ends its calls in time, but credentials may come from a program that hangs.
            await self._first_of(until - self._steady() + _SLACK_SECONDS, asking)
            answer = asking.result() if asking.done() else None
            problem = "" if asking.done() else "no answer in time"
        except ApiError as error:
            answer, problem = None, _short(error.message)
        finally:
            asking.cancel()
        if problem and problem != self._problem:
            self._log.warning("the lease cannot be read or written", reason=problem)
        self._problem = problem
        return answer


def _short(text: str) -> str:
    """Without the object that the server repeats, which has another time in it at each try."""
    return text if len(text) <= _MOST_PROBLEM else f"{text[:_MOST_PROBLEM]}…"
