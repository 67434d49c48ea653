"""What became of the passes, for metrics; and whether this replica is ready, in words."""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Protocol

from quota_translator.core.happenings import Happening, Told
from quota_translator.core.names import QUOTA_KIND, RESOURCE_FLAVOR
from quota_translator.core.ports import Cluster
from quota_translator.core.results import Results, SyncState
from quota_translator.core.translate import Translation
from quota_translator.leading import Leading
from quota_translator.metrics import Metrics
from quota_translator.tenure import Tenure


class Certificate(Protocol):
    """The webhook's, whoever makes it."""

    def problem(self) -> str: ...

    def notice(self) -> str: ...

    def expires_at(self) -> datetime | None: ...


class Readiness:
    """The observer of a controller on a cluster. `certificate` None: there is no webhook."""

    def __init__(
        self,
        cluster: Cluster,
        metrics: Metrics,
        leading: Leading,
        tenure: Tenure,
        certificate: Certificate | None,
        tell: Callable[[Sequence[Happening]], None] = lambda _: None,
    ) -> None:
        """`tell` is called with what has happened to the tree's nodes, after each pass."""
        self._tell = tell
        self._cluster, self._metrics = cluster, metrics
        self._leading, self._tenure = leading, tenure
        self._certificate = certificate
        self._judged = False

    # --- told by the controller -----------------------------------------------------------

    def passed(
        self, translation: Translation, results: Results, seconds: float, told: Told
    ) -> None:
        self._judged = True
        outcome = "done" if results.all_done else "incomplete"
        self._metrics.passed(outcome, seconds)
        self._metrics.observe(translation, results, told.statuses)
        self._tell(told.happenings)

    def failed(self) -> None:
        self._metrics.passed("failed")

    # --- asked by people and probes -------------------------------------------------------

    def missing(self) -> Sequence[str]:
        """What keeps this replica from being ready. A standby is ready when it could take over:
        its reads are synced. Kueue's absence does not count: it is reported."""
        states = self._cluster.sync_states().values()
        found = [f"{s.kind}: {s.reason or 'not read yet'}" for s in states if _holds_up(s)]
        if not found and self._is_at_work() and not self._judged:
            found.append(self._tenure.problem or "the tree has not been judged yet")
        if self._certificate is not None and (problem := self._certificate.problem()):
            found.append(problem)
        return found

    def _is_at_work(self) -> bool:
        return self._leading.leads and not self._tenure.refusal

    def notes(self) -> Sequence[str]:
        """What people should know of a replica that is ready.

        One that another controller keeps from writing is: it serves the webhook as well as any.
        And where a Deployment waits for the new replica before it stops the old one, whose claim
        is the one that the new one respects, they would wait for each other.
        """
        return [note for note in self._all_notes() if note]

    def _all_notes(self) -> Iterator[str]:
        leads = self._leading.leads
        yield "" if leads else self._leading.standing
        yield self._leading.problem
        yield self._tenure.refusal if leads else ""
        yield self._certificate.notice() if self._certificate is not None else ""
        yield from map(_silence, self._cluster.sync_states().values())

    async def exposition(self, accept: str) -> tuple[bytes, str]:
        for kind, state in self._cluster.sync_states().items():
            self._metrics.sync(kind, state.synced, state.heard_at)
        leads = self._leading.leads
        self._metrics.leading(leads, self._leading.transitions)
        self._metrics.rival(leads and bool(self._tenure.refusal))
        if self._certificate is not None:
            self._metrics.certificate(self._certificate.expires_at())
        return await self._metrics.exposition(accept)


def _silence(state: SyncState) -> str:
    """A watch that is open and says nothing, not even that nothing has changed."""
    if state.heard or not state.synced:
        return ""
    unmeasured = ", so nothing is measured" if state.kind in ("Node", RESOURCE_FLAVOR) else ""
    return f"nothing is heard of {state.kind} objects{unmeasured}"


def _holds_up(state: SyncState) -> bool:
    """Kueue's kinds may be absent, which their nodes report; the tree's own may not."""
    return not state.synced and (state.served or state.kind == QUOTA_KIND)
