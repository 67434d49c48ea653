"""A certificate that somebody else makes and mounts as files: cert-manager, or a person."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

import structlog

from quota_translator.certs.pairs import PairError, read_pair
from quota_translator.certs.tls import Held, Served, hold
from quota_translator.core.world import Clock

_log = structlog.get_logger(__name__)
LOOK_SECONDS: Final = 5.0
MOST_BYTES: Final = 2**20


class MountedCertificate:
    """Serves `tls.crt` and `tls.key` of a folder, and what they become. As `CertificateKeeper`.

    Files are read again every few seconds; watches of the file system do not tell of all the ways
    in which a mount changes. A pair that cannot be served, such as one that is half written, leaves
    the one before it in service.
    """

    def __init__(
        self,
        folder: Path,
        *,
        names: Sequence[str] = (),
        now: Callable[[], Clock],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        """`names`: those by which the API server calls, which the certificate should bear."""
        self._folder, self._names = folder, tuple(names)
        self._now, self._sleep, self._on_change = now, sleep, on_change
        self._served = Served(now)
        self._notice = f"{folder} has not been read yet"
        self._files: tuple[bytes, bytes] | None = None  # of the pair in service
        self._told: tuple[str, str, datetime | None] = ("", "", None)

    @property
    def context(self) -> ssl.SSLContext:
        """TLS 1.2 or later. Each handshake gets the pair of its moment, or is refused."""
        return self._served.context

    def expires_at(self) -> datetime | None:
        """When the pair in service expires; None: there is none."""
        return self._served.held.pair.not_after if self._served.held else None

    def problem(self) -> str:
        """What keeps the API server from calling us, in one line; "" when it can."""
        held = self._served.held
        if held is None:
            return f"no certificate yet: {self._notice}"
        if fault := held.fault(self._now()):
            return f"{self._folder}: tls.crt {fault}; mount one that is valid"
        return ""

    def notice(self) -> str:
        """What is amiss although we can be called, in one line; "" for nothing."""
        return self._notice

    async def run(self) -> None:
        """Read the files again and again, until cancelled."""
        while True:
            self.look()
            await self._sleep(LOOK_SECONDS)

    def look(self) -> None:
        """Take up what is mounted now."""
        try:
            problem = self._take((self._read("tls.crt"), self._read("tls.key")))
        except PairError as error:
            problem = f"{self._folder}: {error}"
        if problem and problem != self._notice:
            _log.warning("something is wrong with the mounted certificate", reason=problem)
        self._notice = problem
        told = (self.problem(), problem, self.expires_at())
        if told != self._told:
            self._told = told
            self._on_change()

    def _take(self, found: tuple[bytes, bytes]) -> str:
        """Serve this pair if it may be served. Returns what is amiss with it all the same."""
        if found != self._files:
            held = self._hold(found)
            if fault := held.fault(self._now()):
                raise PairError(f"tls.crt {fault}")
            self._files, self._served.held = found, held
            _log.info("serving a certificate", expires=held.pair.not_after.isoformat())
        assert self._served.held is not None
        lacking = self._served.held.pair.lacks(self._names)
        return f"{self._folder}: tls.crt does not bear the name {lacking[0]}" if lacking else ""

    def _hold(self, found: tuple[bytes, bytes]) -> Held:
        try:
            return hold(read_pair(*found), self._now())
        except OSError as error:  # such as no descriptors left: the next look may have some
            raise PairError(f"the pair cannot be loaded: {error.strerror}") from None

    def _read(self, name: str) -> bytes:
        try:
            with (self._folder / name).open("rb") as file:
                return file.read(MOST_BYTES)
        except OSError as error:
            raise PairError(f"{name}: {error.strerror}") from None
