"""Who stands beneath whom, whatever people have built."""

from quota_translator.core.links import Links, cohort
from quota_translator.core.names import CLUSTER_QUEUE, Key

QUEUE = Key(CLUSTER_QUEUE, "", "a")


def test_an_object_may_stand_beneath_several_cohorts_and_beneath_all_above_them() -> None:
    links = Links()
    links.link(cohort("g"), ("root",))
    links.link(QUEUE, ("g",))
    assert links.above(QUEUE) == {"g", "root"}
    links.link(QUEUE, ("h", "g"))
    assert links.above(QUEUE) == {"g", "h", "root"}
    assert links.members("g") == [QUEUE]
    assert links.beneath("root") == [QUEUE, cohort("g")]
    assert links.subtree(cohort("h")) == [QUEUE, cohort("h")]


def test_walks_end_in_loops() -> None:
    links = Links()
    links.link(cohort("x"), ("y",))
    links.link(cohort("y"), ("x",))
    assert links.above(cohort("x")) == {"x", "y"}
    assert links.beneath("x") == [cohort("x"), cohort("y")]
    assert links.above(cohort("nobody")) == frozenset()
