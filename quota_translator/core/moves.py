"""Putting objects where the tree wants them: creations, and moves from another parent.

Work goes from the top down: an object is created or moved only beneath a Cohort that is ours and
that stands, with all above it, where the tree wants it. So a move never closes a cycle, whatever
becomes of the other writes, and the topmost object that is out of place can always go: where it
does not fit, what moves with it first gives up share, if need be all of it.
"""

from collections.abc import Iterable

from quota_translator.core.interim import parent_in
from quota_translator.core.kueue import parent_of
from quota_translator.core.links import Links, cohort
from quota_translator.core.names import CLUSTER_QUEUE, COHORT, Key
from quota_translator.core.notes import PARENT_NOT_MATERIALIZED, PROGRESSING, WAITING_FOR_SHRINK
from quota_translator.core.outlook import Outlook
from quota_translator.core.reasons import blocked, parent_problem
from quota_translator.core.scene import Scene
from quota_translator.core.shares import empty_cohort


def settle_places(scene: Scene) -> None:
    """Decide who is created and who moves now, and which shares give way for those who cannot."""
    tight = [key for key in _out_of_place(scene) if _try(scene, key) is False]
    if not tight:
        return
    outlook = Outlook(scene)
    for key in tight:
        parent = scene.parent(key)
        assert parent is not None  # without one nothing is gained, and so nothing is tight
        outlook.give_way(key, gained(outlook.links, key, parent))


def _out_of_place(scene: Scene) -> list[Key]:
    """What must be created or moved: parents before children, Cohorts before ClusterQueues."""
    compared = scene.compared
    found = [key for key in compared.missing if key.kind in (COHORT, CLUSTER_QUEUE)]
    for key, pair in compared.present.items():
        holds = key.kind in (COHORT, CLUSTER_QUEUE)
        if holds and parent_of(pair.live) != parent_in(key, pair.wanted.spec):
            found.append(key)
    return sorted(found, key=lambda key: (scene.depth(key), key.kind != COHORT, key.name))


def _try(scene: Scene, key: Key) -> bool | None:
    """Accept the creation or move if it is safe now. False: there is no room; None: not yet."""
    if not _may_enter(scene, key):
        return None
    parent, links = scene.parent(key), scene.sums.links
    groups = gained(links, key, parent)
    brought = {p: held for p, held in scene.sums.worst_of(links.subtree(key)).items() if held}
    back = gained(scene.standing, key, parent) - groups  # it left them a moment ago
    block = scene.sums.block(groups, brought) or scene.sums.block(back, dict.fromkeys(brought, 0))
    if block is not None or not _is_known(scene, key, groups):
        scene.wait(key, blocked(scene, key, block, "be put in its place"), WAITING_FOR_SHRINK)
        return False
    is_new_cohort = key.kind == COHORT and key in scene.compared.missing
    if is_new_cohort and scene.is_refused(key, empty_cohort(scene, key)):
        return None
    scene.accept(key, groups, brought)
    return True


def _may_enter(scene: Scene, key: Key) -> bool:
    """The parent is in its place, also to Kueue: its own last move is not on its way any more.

    A queue may go ahead; only with Cohorts could Kueue, half a step behind, see a cycle.
    """
    parent = scene.parent(key)
    if parent is None:
        return True
    if not scene.is_placed(parent):
        text = f"{key} belongs beneath Cohort {parent}: {parent_problem(scene, parent)}"
        scene.wait(key, text, PARENT_NOT_MATERIALIZED)
        return False
    seen = scene.sums.links.above(cohort(parent))
    if key.kind == CLUSTER_QUEUE or seen <= set(scene.chain(cohort(parent))):
        return True
    text = f"{key} waits until Kueue has taken the last move of Cohort {parent}"
    scene.wait(key, text, PROGRESSING)
    return False


def gained(links: Links, key: Key, parent: str | None) -> frozenset[str]:
    """The groups that the object comes beneath and was not beneath before."""
    if parent is None:
        return frozenset()
    return (links.above(cohort(parent)) | {parent}) - links.above(key)


def _is_known(scene: Scene, key: Key, groups: Iterable[str]) -> bool:
    """No object that comes along may still hold, to Kueue, a share that nobody remembers."""
    if not any(name in scene.sums.caps for name in groups):
        return True
    return scene.sums.unknown.isdisjoint(scene.sums.links.subtree(key))
