"""What stands beneath a budget at worst, and the room that is left."""

from quota_translator.core.livesums import Block, Caps, LiveSums, caps_of
from quota_translator.core.names import CLUSTER_QUEUE, COHORT, Key
from quota_translator.core.quantity import Quantity
from quota_translator.core.tree import grow
from quota_translator.core.world import Settling
from tests.core.build import node, pair, root
from tests.core.rendering import MANAGER, rendered, stands

GPU = pair("gpu a100")
ONE = 10**9
TREE = (root("gpu a100 20"), node("ml", "gpu a100 10 +2 !"))


def caps() -> Caps:
    return caps_of(grow(TREE), rendered(*TREE).desired)


def test_each_object_counts_with_the_larger_of_its_live_and_its_former_share() -> None:
    key = Key(CLUSTER_QUEUE, "", "a")
    live = {
        key: stands(CLUSTER_QUEUE, "a", "gpu a100 3", parent="root"),
        Key(COHORT, "", "ml"): stands(COHORT, "ml", "gpu a100 1 +5", parent="root"),
    }
    former = Settling({GPU: Quantity.of(7)}, generation=2, until=1.0, parents=("ml",))
    sums = LiveSums(live, {key: former}, caps(), MANAGER)
    assert sums.sums == {("root", GPU): 8 * ONE, ("ml", GPU): 8 * ONE}
    # The group's live limit is 3 more than it shall be, so only 2 - 3 are left of 10 - 8.
    assert sums.block({"ml"}, {GPU: ONE}) == Block("ml", GPU, ONE, 0)
    assert sums.block({"root"}, {GPU: 12 * ONE}) is None
    sums.reserve({"root"}, {GPU: ONE})
    assert sums.block({"root"}, {GPU: 12 * ONE}) == Block("root", GPU, 12 * ONE, 11 * ONE)


def test_fractions_count_as_kueue_charges_them() -> None:
    live = {Key(CLUSTER_QUEUE, "", "a"): stands(CLUSTER_QUEUE, "a", "gpu a100 500m", parent="ml")}
    assert LiveSums(live, {}, caps(), MANAGER).sums["ml", GPU] == ONE


def test_a_limit_gives_way_to_what_the_sum_has_too_much_and_only_where_it_is_enforced() -> None:
    live = {Key(CLUSTER_QUEUE, "", "a"): stands(CLUSTER_QUEUE, "a", "gpu a100 11", parent="ml")}
    sums = LiveSums(live, {}, caps(), MANAGER)
    two = Quantity.of(2)
    assert sums.limit("ml", GPU, 0, two, None) == Quantity.of(1)
    assert sums.limit("ml", GPU, 4 * ONE, two, None) == Quantity.of(0)
    assert sums.limit("root", GPU, 0, two, None) == two
