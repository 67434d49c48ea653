"""What people do to the tree, to the hardware and to namespaces."""

from typing import Any, Final

from hypothesis import strategies as st

from quota_translator.core.names import CLUSTER_QUEUE, COHORT, QUOTA_KIND
from tests.machine.base import (
    FLAVORS,
    GROUPS,
    NAMESPACES,
    PERSON,
    ROLES,
    Base,
    act,
    flavors,
    groups,
    names,
    places,
    roles,
    teams,
)
from tests.machine.objects import budget, flavor, machine, namespace, quota

shares: Final = st.sampled_from((0, 1, 2, 4, 8, 8, 16, 24, 200))
strange: Final = st.sampled_from(("8x", "-1", "1e400", "0.5", 8, None))
gpus: Final = st.sampled_from(("8", "8", "7", "0", "8x", None))
numbers: Final = st.integers(0, 6)


class Tree(Base):
    @act(
        name=names,
        role=roles,
        parent=places,
        share=shares,
        which=flavors,
    )
    def create(self, name: str, role: str, parent: str, share: int, which: str) -> None:
        if self.there(QUOTA_KIND, name) is None:
            role = role if parent == "nowhere" else (COHORT if name in GROUPS else CLUSTER_QUEUE)
            self.make(QUOTA_KIND, quota(name, role, parent, [budget(which, str(share))]))

    @act(
        name=names,
        share=shares,
        extra=shares,
        which=flavors,
        enforced=st.booleans(),
    )
    def fund(self, name: str, share: int, extra: int, which: str, enforced: bool) -> None:
        more: dict[str, Any] = {"borrowingLimit": str(extra)}
        if name in GROUPS:
            more["enforced"] = enforced
        rows = [budget(which, str(share), **more)]
        if extra > share:
            rows.append(budget(FLAVORS[which == FLAVORS[0]], str(share)))
        self.patch(self.there(QUOTA_KIND, name), {"spec": {"budgets": rows}})

    @act(giver=teams, taker=teams, units=st.integers(1, 8))
    def shift(self, giver: str, taker: str, units: int) -> None:
        """A share goes from one team to another, in one moment."""
        found = [self.there(QUOTA_KIND, name) for name in (giver, taker)]
        for where, change in zip(found, (-units, units), strict=True):
            if where is not None and giver != taker:
                row = dict(self.server.objects[where]["spec"]["budgets"][0])
                held = row["nominal"] if str(row["nominal"]).isdecimal() else 0
                row["nominal"] = str(max(0, int(held) + change))
                self.patch(where, {"spec": {"budgets": [row]}})

    @act(name=names, amount=strange)
    def fund_strangely(self, name: str, amount: Any) -> None:
        rows = [budget("a100", amount), budget("no-such-flavor", "1")]
        self.patch(self.there(QUOTA_KIND, name), {"spec": {"budgets": rows}})

    @act(name=names, parent=places)
    def move(self, name: str, parent: str) -> None:
        self.patch(self.there(QUOTA_KIND, name), {"spec": {"parentRef": {"name": parent}}})

    @act(one=groups, other=groups)
    def swap(self, one: str, other: str) -> None:
        found = [self.there(QUOTA_KIND, name) for name in (one, other)]
        parents = [self.server.objects[at]["spec"].get("parentRef") for at in found if at]
        if len(parents) == 2:
            self.patch(found[0], {"spec": {"parentRef": parents[1]}})
            self.patch(found[1], {"spec": {"parentRef": parents[0]}})

    @act(name=names)
    def remove(self, name: str) -> None:
        self.delete(self.there(QUOTA_KIND, name))

    @act(name=names)
    def remove_and_create_in_the_other_role(self, name: str) -> None:
        where = self.there(QUOTA_KIND, name)
        if where is None:
            return
        spec = dict(self.server.objects[where]["spec"])
        self.server.delete(PERSON, where)
        if self.server.get(where) is None:
            spec["role"] = ROLES[spec["role"] == ROLES[0]]
            self.make(QUOTA_KIND, {"metadata": {"name": name}, "spec": spec})


class Hardware(Base):
    @act(
        number=numbers,
        label=st.sampled_from((*FLAVORS, "none")),
        gpus=gpus,
        ready=st.booleans(),
    )
    def change_node(self, number: int, label: str, gpus: Any, ready: bool) -> None:
        name = f"node-{number}"
        where = self.there("Node", name)
        made = machine(name, label, gpus, ready=ready)
        if where is None:
            self.make("Node", made)
            return
        self.server.patch(PERSON, where, {"metadata": {"labels": {"gpu": label}}})
        self.server.patch(PERSON, where, {"status": made["status"]}, status=True)

    @act(number=numbers)
    def lose_node(self, number: int) -> None:
        self.delete(self.there("Node", f"node-{number}"))

    @act(name=flavors)
    def drop_or_make_flavor(self, name: str) -> None:
        where = self.there("ResourceFlavor", name)
        if where is None:
            self.make("ResourceFlavor", flavor(name))
        else:
            self.server.delete(PERSON, where)

    # --- namespaces and use ---------------------------------------------------------------

    @act(name=st.sampled_from(NAMESPACES), enrolled=st.booleans())
    def enrol(self, name: str, enrolled: bool) -> None:
        where = self.there("Namespace", name)
        if where is None:
            self.make("Namespace", namespace(name, enrolled=enrolled))
        else:
            self.patch(where, {"metadata": namespace(name, enrolled=enrolled)["metadata"]})

    @act(name=st.sampled_from(NAMESPACES))
    def drop_namespace(self, name: str) -> None:
        where = self.there("Namespace", name)
        if where is None:
            return
        self.server.patch(PERSON, where, {"status": {"phase": "Terminating"}}, status=True)
        for queue in [at for at in self.server.objects if at[0] == "LocalQueue" and at[1] == name]:
            self.server.delete(PERSON, queue)
        self.server.delete(PERSON, where)

    @act(name=teams, units=st.integers(0, 4))
    def use(self, name: str, units: int) -> None:
        self.life.kueue.use(name, units)
