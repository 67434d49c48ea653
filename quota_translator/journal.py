"""What a pass found and did, in the log: what froze, what was written, what failed.

A thousand objects that fail of one cause are one line, with the first of them as an example.
"""

from collections.abc import Collection, Iterable
from typing import Any, Final

from quota_translator.core.actions import Plan
from quota_translator.core.results import Result, Results
from quota_translator.core.tree import Tree
from quota_translator.core.verdict import Verdict

_DONE: Final = frozenset({"written", "unchanged"})
_MOST_CAUSES: Final = 10  # told of one pass


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
            reason=message,
            alike=len(alike),
        )
    if len(causes) > _MOST_CAUSES:
        log.warning("more was not written", causes=len(causes) - _MOST_CAUSES)


def _tell_repairs(log: Any, plan: Plan, results: Results) -> None:
    """Whoever changed what the tree states should learn that it does not last."""
    written = {r.key: r.nodes for r in results.results if r.outcome == "written"}
    for key in sorted(plan.repairs.keys() & written.keys()):
        log.warning(
            "put back what somebody changed",
            object=str(key),
            quota=sorted(written[key]),
            manager=plan.repairs[key].manager,
            fields=list(plan.repairs[key].fields),
        )
