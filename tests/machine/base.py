"""The machine without its rules: how it starts, what it can do, and what it must have come to."""

from collections.abc import Callable
from typing import Any, Final

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from quota_translator.core.names import CLUSTER_QUEUE, COHORT, QUOTA_KIND
from tests.machine.life import Life
from tests.machine.objects import budget, flavor, machine, namespace, quota
from tests.machine.promises import Promises
from tests.machine.quiet import expect_converged, expect_silence
from tests.machine.server import Where

GROUPS: Final = ("a", "b", "c")
TEAMS: Final = ("t", "u", "v", "w")
FLAVORS: Final = ("a100", "h100")
NAMESPACES: Final = ("one", "two")
ROLES: Final = (COHORT, CLUSTER_QUEUE)
PERSON: Final = "person"

groups, teams = st.sampled_from(GROUPS), st.sampled_from(TEAMS)
names = st.sampled_from(GROUPS + TEAMS)
flavors = st.sampled_from(FLAVORS)
roles = st.sampled_from(ROLES)
places = st.sampled_from(("root", "root", *GROUPS, "nowhere", "t"))
pauses = st.sampled_from((0.0, 0.004, 0.3, 1.0, 6.0, 40.0))


def act(**strategies: Any) -> Callable[[Any], Any]:
    """A rule after which some time goes by: none, so that things come together, or enough."""

    def decorate(function: Any) -> Any:
        def step(self: "Base", then: float, **given: Any) -> None:
            function(self, **given)
            self.go_on(then)

        step.__name__ = function.__name__
        as_rule: Any = rule(then=pauses, **strategies)
        return as_rule(step)

    return decorate


class Base(RuleBasedStateMachine):
    """Two budgeted groups, full to the brim, a third one beneath, and hardware to spare."""

    life: Life

    @initialize(seed=st.integers(0, 2**32))
    def start(self, seed: int) -> None:
        self.life = Life(seed)
        self.promises = Promises(self.life)
        self.server = self.life.server
        for name in FLAVORS:
            self.make("ResourceFlavor", flavor(name))
        for name in NAMESPACES:
            self.make("Namespace", namespace(name))
        for number in range(5):
            self.make("Node", machine(f"node-{number}", FLAVORS[number // 3], "8"))
        for name, parent, share in (("a", "root", 16), ("b", "root", 8), ("c", "a", 0)):
            self.make(QUOTA_KIND, quota(name, COHORT, parent, [budget("a100", str(share))]))
        for name, parent, share in (("t", "a", 8), ("u", "a", 8), ("v", "b", 5), ("w", "b", 3)):
            self.make(QUOTA_KIND, quota(name, CLUSTER_QUEUE, parent, [budget("a100", str(share))]))
        self.life.begin()
        self.life.step(3)

    def teardown(self) -> None:
        if not hasattr(self, "life"):
            return
        try:
            self.expect_order()
        finally:
            self.life.close()

    # --- what rules are made of -----------------------------------------------------------

    def go_on(self, seconds: float) -> None:
        if self.life.dead and seconds > 1:  # somebody starts it again
            self.promises.disturb(5)
            self.life.again()
        self.life.step(seconds)

    def make(self, kind: str, body: dict[str, Any]) -> None:
        self.server.create(PERSON, kind, body)

    def there(self, kind: str, name: str, within: str = "") -> Where | None:
        where = (kind, within, name)
        return where if self.server.get(where) else None

    def patch(self, where: Where | None, patch: dict[str, Any]) -> None:
        if where is not None:
            self.server.patch(PERSON, where, patch)

    def delete(self, where: Where | None) -> None:
        if where is not None:
            self.server.delete(PERSON, where)

    # --- what it must come to -------------------------------------------------------------

    def mend_all(self) -> None:
        """Whatever was wrong around the controller is over. It has to notice by itself."""
        life, faults = self.life, self.life.faults
        life.client.death = None
        again = life.dead or faults.deaf or faults.refused  # a refusal is not tried again by itself
        for field in faults.__struct_fields__:
            setattr(faults, field, type(getattr(faults, field))(0))
        if again:
            life.again()
        life.kueue.start()
        self.promises.disturb()

    def expect_order(self) -> None:
        self.mend_all()
        expect_converged(self.life)
        expect_silence(self.life)
