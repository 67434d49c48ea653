"""Why something waits, in sentences for people: which number is in the way, and whose it is."""

from quota_translator.core.kueue import is_ours, nominal_cells
from quota_translator.core.links import cohort
from quota_translator.core.livesums import Block
from quota_translator.core.names import Key, Pair
from quota_translator.core.quantity import Quantity
from quota_translator.core.scene import Scene

_NAMED = 3


def parent_problem(scene: Scene, name: str) -> str:
    """Why nothing is put beneath this Cohort now."""
    key = cohort(name)
    live = scene.live.get(key)
    if key in scene.compared.conflicts:
        return f"that one exists and is not managed by {scene.manager}"
    if live is None:
        return "that one does not exist yet"
    if live.deleting:
        return "that one is being deleted"
    return "that one, or a Cohort above it, is not where the tree wants it yet"


def blocked(scene: Scene, key: Key, block: Block | None, what: str) -> str:
    """`key` cannot do `what` (such as "grow") for lack of room, or for lack of knowledge."""
    if block is None:
        return f"{key} cannot {what} yet: Kueue has not told that it has taken an earlier write"
    asked, room = Quantity(block.asked).canonical(), Quantity(block.room).canonical()
    text = f"{key} cannot {what} yet: Cohort {block.group} has room for {room} of {asked}"
    text = f"{text} {block.pair}"
    holders = _holders(scene, block.group, block.pair)
    if not holders:
        return text
    more = f" and {len(holders) - _NAMED} more" if len(holders) > _NAMED else ""
    return f"{text}, kept up by {', '.join(holders[:_NAMED])}{more}"


def _holders(scene: Scene, group: str, pair: Pair) -> list[str]:
    """The objects that hold more there than the tree gives them there, each with its reason."""
    found = []
    if scene.sums.excess.get((group, pair)):
        found.append(f"the borrowingLimit of Cohort {group}, which is still being lowered")
    for key in scene.sums.links.subtree(cohort(group)):
        held = scene.sums.worst.get(key, {}).get(pair, 0)
        why = _why(scene, key, group, pair) if held or key in scene.sums.unknown else None
        if why is not None:
            found.append(f"{key} ({Quantity(held).canonical()}, {why})")
    return found


def _why(scene: Scene, key: Key, group: str, pair: Pair) -> str | None:
    live = scene.live.get(key)
    if live is None:
        return "just deleted"
    if not is_ours(live, scene.manager):
        return "not ours"
    if live.deleting:
        return "terminating"
    if live.quota in scene.kept:
        return "frozen" if scene.has_node(key) else "its node is gone"
    if key in scene.memory.refused:
        return "refused by the server"
    return _why_written(scene, key, group, pair)


def _why_written(scene: Scene, key: Key, group: str, pair: Pair) -> str | None:
    """Of an object that is ours to write: what about it is still on its way."""
    sums = scene.sums
    now = sums.live[key].get(pair, 0)
    if key in sums.unknown or sums.worst[key].get(pair, 0) > now or key in scene.settling:
        return "Kueue has not taken its last write yet"
    found = scene.compared.present.get(key)
    if found is None:
        return "to be deleted"
    if key != cohort(group) and group not in scene.chain(key):
        return "moves away"
    wanted = sums.counted(nominal_cells(found.wanted.spec))
    return "shrinks first" if now > wanted.get(pair, 0) else None
