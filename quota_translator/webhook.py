"""The admission webhook: HTTP around `core/admission.py`.

Every replica serves it. A decision rests on a list that was made after the request came; without
one the answer is no, because the other one would be a guess.
"""

import asyncio
import ssl
import time
from collections.abc import Callable, Sequence
from operator import is_
from typing import Any, Final, Literal, cast

import msgspec
import structlog
from aiohttp import web

from quota_translator.core.admission import Decision, Review, Standing, judge, stand, weight
from quota_translator.core.names import GROUP, QUOTA_KIND, ROOT
from quota_translator.core.options import Options
from quota_translator.core.reading import read_quota
from quota_translator.core.rootstatus import capacity_from_status
from quota_translator.core.verdict import Context
from quota_translator.core.webhookconfig import PATH
from quota_translator.core.world import Node, QuotaNode, World
from quota_translator.errors import ApiError, ConfigurationError
from quota_translator.kube.livetree import LiveTree

API_VERSION: Final = "admission.k8s.io/v1"
BODY_LIMIT: Final = 4 * 1024 * 1024  # bytes; an object is at most 1.5 MiB, and comes twice
JSON: Final = "application/json"
_STOP_SECONDS: Final = 3.0
_READ_SECONDS: Final = 5.0  # for a body; the API server would not wait longer for the answer
_THREAD_ABOVE: Final = 100  # nodes to look at; the event loop must answer probes meanwhile
_DECIDED: Final = frozenset({"CREATE", "UPDATE", "DELETE"})

# Called with the operation, what came of it (allowed, warned, denied or failed), why, and seconds.
Observe = Callable[[str, str, str, float], None]

_log = structlog.get_logger("webhook")


class _Kind(msgspec.Struct):
    group: str = ""
    kind: str = ""


class _Request(msgspec.Struct, rename="camel"):
    uid: str = ""
    name: str = ""
    operation: str = ""
    sub_resource: str = ""
    kind: _Kind = msgspec.field(default_factory=_Kind)
    object: dict[str, Any] | None = None
    old_object: dict[str, Any] | None = None


class _AdmissionReview(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    request: _Request | None = None


class Unreadable(Exception):
    """A body that is no AdmissionReview of ours; the text says what is wrong with it."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


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
            if request.content_type != JSON:
                raise Unreadable(f"a body of {request.content_type[:80]!r}, not of {JSON}", 415)
            async with asyncio.timeout(_READ_SECONDS):
                asked = _read(await request.read())
        except (Unreadable, TimeoutError) as error:
            status = error.status if isinstance(error, Unreadable) else 408
            self._observe("unknown", "failed", "Unreadable", time.monotonic() - started)
            return web.Response(status=status, text=f"{error or 'the body took too long'}\n")
        decision = await self._decided(asked)
        outcome = _outcome(decision)
        operation = asked.operation if asked.operation in _DECIDED else "other"
        self._observe(operation, outcome, decision.reason, time.monotonic() - started)
        _tell(asked, decision, outcome)
        body = msgspec.json.encode(_answer(asked, decision))
        return web.Response(body=body, content_type=JSON)

    async def _decided(self, asked: _Request) -> Decision:
        if asked.operation not in _DECIDED or asked.kind.kind != QUOTA_KIND or asked.sub_resource:
            return Decision(True)
        review = _review(asked)
        if review is None:
            message = f"the {asked.operation} brings no object that can be read"
            return Decision(False, message, "Unreadable", 400)
        try:
            nodes = await self._live.nodes()
        except ApiError as error:
            message = (
                f"cannot list the live {QUOTA_KIND}s, so nothing can be decided; try again: "
                f"{error.message}"
            )
            return Decision(False, message, type(error).__name__, 500)
        look = await self._look(nodes)
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


def _read(body: bytes) -> _Request:
    try:
        found = msgspec.json.decode(body, type=_AdmissionReview)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Unreadable(f"not an AdmissionReview: {error}") from None
    if found.api_version != API_VERSION or found.kind != "AdmissionReview":
        raise Unreadable(f"not an AdmissionReview of {API_VERSION}: {found.api_version[:80]!r}")
    if found.request is None or not found.request.uid:
        raise Unreadable("an AdmissionReview without a request, or a request without a uid")
    return found.request


def _review(asked: _Request) -> Review | None:
    is_deletion = asked.operation == "DELETE"
    incoming = read_quota(asked.object) if asked.object and not is_deletion else None
    before = asked.old_object or ({"metadata": {"name": asked.name}} if is_deletion else None)
    stored = read_quota(before) if before else None
    review = Review(
        cast("Literal['CREATE', 'UPDATE', 'DELETE']", asked.operation),
        incoming,
        stored,
    )
    is_whole = incoming is not None or is_deletion
    return review if review.name and is_whole else None


def _outcome(decision: Decision) -> str:
    if decision.allowed:
        return "warned" if decision.warnings else "allowed"
    return "denied" if decision.code in (403, 422) else "failed"


def _tell(asked: _Request, decision: Decision, outcome: str) -> None:
    if decision.allowed:
        return
    found = (asked.object or asked.old_object or {}).get("metadata") or {}
    _log.warning(
        "write denied" if outcome == "denied" else "no decision on a write",
        operation=asked.operation,
        quota=str(found.get("name", ""))[:253],
        reason=decision.reason,
        message=decision.message,
    )


def _answer(asked: _Request, decision: Decision) -> dict[str, Any]:
    response: dict[str, Any] = {"uid": asked.uid, "allowed": decision.allowed}
    if decision.warnings:
        response["warnings"] = list(decision.warnings)
    if not decision.allowed:
        response["status"] = _status(asked, decision)
    return {"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response}


_REASONS: Final = {400: "BadRequest", 403: "Forbidden", 422: "Invalid", 500: "InternalError"}


def _status(asked: _Request, decision: Decision) -> dict[str, Any]:
    metadata = (asked.object or asked.old_object or {}).get("metadata") or {}
    causes = [
        {"reason": "FieldValueInvalid", "field": cause.field, "message": cause.message}
        for cause in decision.causes
    ]
    found: dict[str, Any] = {
        "status": "Failure",
        "code": decision.code,
        "reason": _REASONS[decision.code],
        "message": decision.message,
    }
    if causes:
        found["details"] = {
            "group": GROUP,
            "kind": QUOTA_KIND,
            "name": str(metadata.get("name", "")),
            "causes": causes,
        }
    return found
