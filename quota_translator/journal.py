"""What a pass found and did, in the log: what froze, what was written, what failed.

A thousand objects that fail of one cause are one line, with the first of them as an example.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

from quota_translator.core.actions import Plan
from quota_translator.core.happenings import DRIFT_REPAIRED, THAWED, Happening, repaired
from quota_translator.core.results import Result, Results
from quota_translator.core.tree import Tree
from quota_translator.core.verdict import RANKS, Verdict
from quota_translator.retries import fault_reason

_DONE: Final = frozenset({"written", "unchanged"})
_MOST_CAUSES: Final = 10  # told of one pass
# These are told from the verdict and from the writes, whether or not a status could be written.
_TOLD_BEFORE: Final = frozenset({*RANKS, THAWED, DRIFT_REPAIRED})


def tell(log: Any, plan: Plan, results: Results) -> None:
    """`log` is a structlog logger. Says nothing of a pass that had nothing to write."""
    if results.results:
        log.info("wrote", written=results.written, of=len(results.results))
    _tell_failures(log, (r for r in results.results if r.outcome not in _DONE))
    _tell_repairs(log, plan, results)


def tell_verdict(log: Any, before: Collection[str], tree: Tree, verdict: Verdict) -> None:
    """What froze or thawed since `before`, the names that were frozen then.

    One line for each violating node: those beneath it freeze for its reason.
    """
    origins: dict[str, list[str]] = {}
    for name in verdict.frozen.keys() - before:
        origins.setdefault(verdict.frozen[name].origin, []).append(name)
    for origin in sorted(origins)[:_MOST_CAUSES]:
        found = verdict.frozen[origins[origin][0]]  # inherited word for word
        log.warning(
            "frozen",
            quota=origin,
            reason=found.reason,
            message=found.message,
            nodes=len(origins[origin]),
        )
    if len(origins) > _MOST_CAUSES:
        log.warning("more is frozen", causes=len(origins) - _MOST_CAUSES)
    thawed = sorted((tree.nodes.keys() & before) - verdict.frozen.keys())
    if thawed:
        log.info("thawed", quota=thawed[:_MOST_CAUSES], nodes=len(thawed))


def tell_happenings(log: Any, found: Sequence[Happening]) -> None:
    """What became of the tree's nodes, in the words of their conditions and events."""
    for one in found:
        if one.reason not in _TOLD_BEFORE:
            say = log.warning if one.is_warning else log.info
            say("happened", quota=one.node, reason=one.reason, message=one.message)


def _tell_failures(log: Any, failed: Iterable[Result]) -> None:
    causes: dict[tuple[str, str], list[Result]] = {}
    for result in failed:
        causes.setdefault((result.outcome, result.message), []).append(result)
    for (outcome, message), alike in list(causes.items())[:_MOST_CAUSES]:
        first = alike[0]
        log.warning(
            "not written",
            object=str(first.key),
            quota=sorted(first.nodes),
            verb=first.verb,
            outcome=outcome,
            reason=fault_reason(first) or outcome,
            message=message,
            alike=len(alike),
        )
    if len(causes) > _MOST_CAUSES:
        log.warning("more was not written", causes=len(causes) - _MOST_CAUSES)


def _tell_repairs(log: Any, plan: Plan, results: Results) -> None:
    """Whoever changed what the tree states should learn that it does not last."""
    for result in repaired(plan.repairs, results):
        log.warning(
            "put back what somebody changed",
            object=str(result.key),
            quota=sorted(result.nodes),
            reason=DRIFT_REPAIRED,
            manager=plan.repairs[result.key].manager,
            fields=list(plan.repairs[result.key].fields),
        )
