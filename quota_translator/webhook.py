"""The admission webhook: HTTP around `core/admission.py`.

Every replica serves it. A decision rests on a list that was made after the request came; without
one the answer is no, because the other one would be a guess.
"""

import asyncio
import ssl
import time
from collections.abc import Callable, Sequence
from operator import is_
from typing import Final

import msgspec
import structlog
from aiohttp import web

from quota_translator.core.admission import Review, Standing, judge, stand, weight
from quota_translator.core.admissionreview import DECIDED, Asked, Unreadable, answer, read_review
from quota_translator.core.decision import FORBIDDEN, INVALID, Decision
from quota_translator.core.names import QUOTA_KIND, ROOT
from quota_translator.core.options import Options
from quota_translator.core.rootstatus import capacity_from_status
from quota_translator.core.verdict import Context
from quota_translator.core.webhookconfig import PATH
from quota_translator.core.world import Node, QuotaNode, World
from quota_translator.errors import ApiError, ConfigurationError
from quota_translator.kube.livetree import LiveTree

BODY_LIMIT: Final = 4 * 1024 * 1024  # bytes; an object is at most 1.5 MiB, and comes twice
JSON: Final = "application/json"
_STOP_SECONDS: Final = 3.0
_READ_SECONDS: Final = 5.0  # for a body; the API server would not wait longer for the answer
_THREAD_ABOVE: Final = 100  # nodes to look at; the event loop must answer probes meanwhile
_OURS: Final = frozenset({FORBIDDEN, INVALID})  # of the codes of an answer: what we decided

# Called with the operation, what came of it (allowed, warned, denied or failed), why, and seconds.
Observe = Callable[[str, str, str, float], None]

_log = structlog.get_logger("webhook")


class _Look(msgspec.Struct, frozen=True):
    """What decisions rest on, for as long as lists bring nothing new."""

    nodes: tuple[QuotaNode, ...]
    standing: Standing
    hardware: Sequence[Node] | None


class Webhook:
    """Serves decisions between `start` and `stop`.

    `world` gives what is watched: flavors, nodes and facts are taken from it, the tree is not.
    """

    def __init__(
        self,
        address: str,
        tls: ssl.SSLContext,
        live: LiveTree,
        world: Callable[[], World],
        options: Options,
        deny: frozenset[str],
        observe: Observe,
    ) -> None:
        self._address, self._tls = address, tls
        self._live, self._world = live, world
        self._options, self._deny = options, deny
        self._observe = observe
        self._runner: web.AppRunner | None = None
        self._looking = asyncio.Lock()
        self._last: _Look | None = None

    async def start(self) -> None:
        """Raises ConfigurationError when the address cannot be listened on."""
        application = web.Application(client_max_size=BODY_LIMIT)
        application.router.add_post(PATH, self._serve)
        runner = web.AppRunner(
            application, access_log=None, handle_signals=False, shutdown_timeout=_STOP_SECONDS
        )
        await runner.setup()
        host, _, port = self._address.rpartition(":")
        try:
            site = web.TCPSite(
                runner, host.strip("[]") or None, int(port), ssl_context=self._tls, backlog=1024
            )
            await site.start()
        except (OSError, ValueError, OverflowError) as error:
            await runner.cleanup()
            raise ConfigurationError(
                f"cannot listen on {self._address} for the webhook: {error}; choose another "
                "--webhook-bind-address"
            ) from error
        self._runner = runner

    async def stop(self) -> None:
        """Requests that came are answered; no new ones are taken."""
        if self._runner is not None:
            runner, self._runner = self._runner, None
            await runner.cleanup()

    def bound(self) -> tuple[str, int]:
        """Host and port that are listened on: port 0 takes a free one."""
        assert self._runner is not None
        found = self._runner.addresses[0]
        return found[0], found[1]

    # --- one request ----------------------------------------------------------------------

    async def _serve(self, request: web.Request) -> web.Response:
        started = time.monotonic()
        try:
            async with asyncio.timeout(_READ_SECONDS):
                asked = read_review(await _body(request))
        except (Unreadable, web.HTTPClientError, TimeoutError) as error:
            self._observe("unknown", "failed", "Unreadable", time.monotonic() - started)
            if isinstance(error, web.HTTPClientError):
                raise
            is_slow = isinstance(error, TimeoutError)
            text = f"the body took more than {_READ_SECONDS:g} s" if is_slow else str(error)
            return web.Response(status=408 if is_slow else 400, text=f"{text}\n")
        decision = await self._answer_to(asked)
        outcome = _outcome(decision)
        operation = asked.operation if asked.operation in DECIDED else "other"
        self._observe(operation, outcome, decision.reason, time.monotonic() - started)
        _tell(asked, decision, outcome)
        return web.Response(body=answer(asked, decision), content_type=JSON)

    async def _answer_to(self, asked: Asked) -> Decision:
        """A decision in any case: an answer of another kind would not say what is wrong."""
        if not asked.is_ours:
            return Decision(True)
        try:
            review = asked.review()
            if review is None:
                message = f"the {asked.operation} brings no object that can be read"
                return Decision(False, message, "Unreadable", 400)
            return await self._decided(review)
        except ApiError as error:
            message = (
                f"cannot list the live {QUOTA_KIND}s, so nothing can be decided; try again: "
                f"{error.message}"
            )
            return Decision(False, message, type(error).__name__, 500)
        except Exception:  # noqa: BLE001 - told with its trace; the next write is decided on again
            _log.exception("deciding on a write failed", quota=asked.target)
            message = "deciding failed unexpectedly, so the answer is no; see the webhook's log"
            return Decision(False, message, "Unexpected", 500)

    async def _decided(self, review: Review) -> Decision:
        if review.changes_nothing:  # not worth a list, which might fail
            return Decision(True)
        look = await self._look(await self._live.nodes())
        arguments = (look.standing, review, self._deny, look.hardware)
        if weight(look.standing, review.name) <= _THREAD_ABOVE:
            return judge(*arguments)
        return await asyncio.to_thread(judge, *arguments)

    async def _look(self, nodes: tuple[QuotaNode, ...]) -> _Look:
        """Judge the tree as it is, once for all who wait for the same list."""
        async with self._looking:
            if self._last is not None and self._last.nodes is nodes:
                return self._last
            world = self._world()
            context = self._context(nodes, world)
            standing = self._same(nodes, context)
            if standing is None and len(nodes) <= _THREAD_ABOVE:
                standing = stand(nodes, context)
            elif standing is None:
                standing = await asyncio.to_thread(stand, nodes, context)
            self._last = _Look(nodes, standing, world.nodes)
            return self._last

    def _same(self, nodes: tuple[QuotaNode, ...], context: Context) -> Standing | None:
        """The last judgement, where it is on the very same records."""
        last = self._last
        if last is None or len(last.nodes) != len(nodes) or last.standing.context != context:
            return None
        return last.standing if all(map(is_, last.nodes, nodes)) else None

    def _context(self, nodes: tuple[QuotaNode, ...], world: World) -> Context:
        root = next((node for node in nodes if node.name == ROOT), None)
        measured = root is not None and bool(self._options.capacity.resources)
        return Context(
            capacity=capacity_from_status(root.status) if root and measured else None,
            flavors=world.flavors,
            options=self._options,
            kueue_release=world.facts.kueue_release,
        )


async def _body(request: web.Request) -> bytes:
    """Raises HTTPUnsupportedMediaType and HTTPRequestEntityTooLarge."""
    if request.content_type != JSON:
        raise web.HTTPUnsupportedMediaType(text=f"send {JSON}\n")
    return await request.read()


def _outcome(decision: Decision) -> str:
    if decision.allowed:
        return "warned" if decision.warnings else "allowed"
    return "denied" if decision.code in _OURS else "failed"


def _tell(asked: Asked, decision: Decision, outcome: str) -> None:
    if not decision.allowed:
        _log.warning(
            "write denied" if outcome == "denied" else "no decision on a write",
            operation=asked.operation,
            quota=asked.target,
            reason=decision.reason,
            message=decision.message,
        )
