"""What `run --local --once` prints: the tree with its verdict, and where the objects are."""

from quota_translator.core.options import Options
from quota_translator.core.report import report
from quota_translator.core.translate import Translation
from quota_translator.core.world import Clock
from quota_translator.local.cluster import LocalCluster
from quota_translator.local.present import View
from quota_translator.local.text import tree_text


def shown(found: Translation, cluster: LocalCluster, options: Options, clock: Clock) -> str:
    view = View(
        translation=found,
        statuses=report(found, cluster.snapshot(), options, clock),
        changes=(),
        options=options,
        where=cluster.where,
    )
    count = cluster.count
    told = "The Kueue object is" if count == 1 else f"The {count} Kueue objects are"
    return f"{tree_text(view)}{told} in {cluster.output.objects}\n"
