"""What strangers, networks, clocks and ends of processes do."""

from datetime import timedelta

from hypothesis import strategies as st

from quota_translator.core.names import CLUSTER_QUEUE, COHORT, LABEL_MANAGED_BY
from tests.machine.base import GROUPS, PERSON, ROLES, TEAMS, Base, act, names, places, roles
from tests.machine.client import Death
from tests.machine.objects import stranger

anybody = st.sampled_from((*GROUPS, *TEAMS, "x"))


class Strangers(Base):
    @act(name=names, nominal=st.integers(0, 9))
    def edit_in_kueue(self, name: str, nominal: int) -> None:
        where = self.there(COHORT, name) or self.there(CLUSTER_QUEUE, name)
        if where is not None:
            spec = stranger(where[0], name, "", nominal)["spec"]
            self.patch(where, {"spec": {"resourceGroups": spec["resourceGroups"]}})

    @act(name=names)
    def delete_in_kueue(self, name: str) -> None:
        where = self.there(COHORT, name) or self.there(CLUSTER_QUEUE, name)
        if where is not None:
            self.server.delete(PERSON, where)

    @act(name=names, manager=st.sampled_from((None, "somebody")))
    def take_away_the_label(self, name: str, manager: str | None) -> None:
        where = self.there(COHORT, name) or self.there(CLUSTER_QUEUE, name)
        self.patch(where, {"metadata": {"labels": {LABEL_MANAGED_BY: manager}}})

    @act(name=anybody, kind=roles, parent=places)
    def come_first(self, name: str, kind: str, parent: str) -> None:
        if self.there(kind, name) is None:
            self.make(kind, stranger(kind, name, parent, 2))

    @act(name=anybody)
    def strangers_leave(self, name: str) -> None:
        for kind in ROLES:
            where = self.there(kind, name)
            labels = self.server.objects[where]["metadata"].get("labels") if where else None
            if where is not None and not (labels or {}).get(LABEL_MANAGED_BY):
                self.server.delete(PERSON, where)


class Faults(Base):
    @act(
        kind=st.sampled_from(
            ("unavailable", "lost", "throttled", "conflict", "refused", "forbidden", "reads")
        ),
        share=st.sampled_from((0.2, 0.5, 1.0)),
    )
    def begin_fault(self, kind: str, share: float) -> None:
        setattr(self.life.faults, kind, share)
        self.promises.disturb(120 if kind == "reads" else 3)

    @act(down=st.booleans(), stopped=st.booleans())
    def kueue_stops(self, down: bool, stopped: bool) -> None:
        self.life.faults.kueue_down = down
        if stopped:
            self.life.kueue.running = False

    @act(how=st.sampled_from(("end", "end and forget", "deaf")))
    def watches_break(self, how: str) -> None:
        self.promises.disturb(400 if how == "deaf" else 40)
        self.life.faults.deaf = how == "deaf"
        if how == "end and forget":
            self.server.compact()
        self.server.end_watches()

    @act()
    def mend(self) -> None:
        self.mend_all()

    # --- lives and clocks -----------------------------------------------------------------

    @act(after=st.booleans(), writes=st.integers(1, 6))
    def die_at_a_write(self, after: bool, writes: int) -> None:
        self.life.client.death = Death(writes, after)

    @act()
    def restart(self) -> None:
        self.promises.disturb(5)
        self.life.again()

    @act(days=st.sampled_from((-1, 1, 30)))
    def wall_clock_jumps(self, days: int) -> None:
        self.life.jumped += timedelta(days=days)

    @act()
    def settle(self) -> None:
        self.expect_order()
