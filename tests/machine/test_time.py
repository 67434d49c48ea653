"""Clocks that jump, machines that come and go, restarts: hours and days of it, step by step."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from quota_translator.core.names import CLUSTER_QUEUE, COHORT, QUOTA_KIND
from quota_translator.core.options import CapacityOptions
from tests.machine.life import OPTIONS, Life
from tests.machine.objects import GPU, budget, flavor, machine, namespace, quota

PERSON = "person"
MINUTE, HOUR = 60.0, 3600.0


class Farm:
    """Machines of one kind, a group and a team; the clocks are the usual ones."""

    def __init__(self, machines: int, share: int, **clocks: Any) -> None:
        usual = CapacityOptions(report_interval=0.0, **clocks)
        self.life = Life(1, msgspec.structs.replace(OPTIONS, capacity=usual))
        self.server = self.life.server
        self.server.create(PERSON, "ResourceFlavor", flavor("a100"))
        self.server.create(PERSON, "Namespace", namespace("one"))
        for number in range(machines):
            self.server.create(PERSON, "Node", machine(f"node-{number}", "a100", "8"))
        for name, role, parent in (("g", COHORT, "root"), ("t", CLUSTER_QUEUE, "g")):
            self.server.create(
                PERSON, QUOTA_KIND, quota(name, role, parent, [budget("a100", str(share))])
            )
        self.life.begin()
        self.life.step(10)

    def node(self, name: str, gpus: Any, label: str = "a100", *, ready: bool = True) -> None:
        made = machine(name, label, gpus, ready=ready)
        where = ("Node", "", name)
        self.server.patch(PERSON, where, {"metadata": made["metadata"]})
        self.server.patch(PERSON, where, {"status": made["status"]}, status=True)

    def fund(self, name: str, share: int) -> None:
        patch = {"spec": {"budgets": [budget("a100", str(share))]}}
        self.server.patch(PERSON, (QUOTA_KIND, "", name), patch)

    def row(self, flavor_: str = "a100") -> dict[str, Any]:
        root = self.server.objects[QUOTA_KIND, "", "root"]
        rows = root["status"]["capacity"]
        return next(r for r in rows if (r["resourceName"], r["resourceFlavor"]) == (GPU, flavor_))

    def mark(self, flavor_: str = "a100") -> int:
        return int(self.row(flavor_)["highWaterMark"])

    def unattributed(self) -> dict[str, int]:
        root = self.server.objects[QUOTA_KIND, "", "root"]
        return {row["reason"]: row["nodes"] for row in root["status"].get("unattributed", ())}

    def frozen_at(self, name: str) -> str | None:
        found = self.server.objects[QUOTA_KIND, "", name]["status"]["materialization"]
        return str(found["frozenAt"]) if found["frozen"] else None

    def kueue(self) -> dict[Any, Any]:
        """Everything in Kueue, with versions: what was written and put back shows too."""
        return {
            where: (found["metadata"]["generation"], found["metadata"]["uid"], found["spec"])
            for where, found in self.server.objects.items()
            if where[0] in (COHORT, CLUSTER_QUEUE, "LocalQueue", "ResourceFlavor")
        }


@pytest.fixture
def farm() -> Iterator[Farm]:
    """Four machines, all of them promised."""
    found = Farm(4, 32)
    yield found
    found.life.close()


@pytest.fixture
def large() -> Iterator[Farm]:
    """A hundred machines, half of them promised; what would be a day is ten minutes."""
    found = Farm(100, 400, settle_after=10 * MINUTE)
    yield found
    found.life.close()


@pytest.mark.case("fault 34")
def test_a_restart_while_frozen_changes_neither_objects_nor_the_time(farm: Farm) -> None:
    farm.fund("t", 40)
    farm.life.step(10)
    objects, since = farm.kueue(), farm.frozen_at("t")
    assert since is not None
    for _ in range(3):
        farm.life.step(HOUR)
        farm.life.again()
    farm.life.step(10)
    assert farm.kueue() == objects
    assert farm.frozen_at("t") == since
    farm.fund("t", 16)
    farm.life.step(10)
    assert farm.frozen_at("t") is None
    assert farm.kueue() != objects


@pytest.mark.case("fault 35")
@pytest.mark.parametrize("days", [-1, 1, 400])
def test_a_jump_of_the_wall_clock_neither_ends_nor_prolongs_a_wait(farm: Farm, days: int) -> None:
    farm.server.delete(PERSON, ("Node", "", "node-3"))
    farm.life.step(15)
    farm.life.jumped += timedelta(days=days)
    farm.life.step(10)
    assert farm.mark() == 32  # 25 of 30 seconds
    farm.life.step(15)
    assert farm.mark() == 24


@pytest.mark.case("fault 35")
def test_small_steps_of_a_clock_that_is_being_set_write_nothing(farm: Farm) -> None:
    farm.life.step(HOUR)
    written = len(farm.life.client.writes)
    for step in (0.4, -0.7, 2.0, -2.0, 0.1):
        farm.life.jumped += timedelta(seconds=step)
        farm.life.step(15 * MINUTE)
    assert farm.life.client.writes[written:] == []


@pytest.mark.case("fault 35")
def test_a_machine_that_slept_has_measured_nothing_meanwhile(farm: Farm) -> None:
    """The steady clock stands still in sleep, the wall clock does not."""
    farm.server.delete(PERSON, ("Node", "", "node-3"))
    farm.life.step(15)
    farm.life.jumped += timedelta(hours=8)
    farm.life.step(1)
    assert farm.mark() == 32
    farm.server.create(PERSON, "Node", machine("node-3", "a100", "8"))
    farm.life.step(HOUR)
    assert farm.mark() == 32
    assert "pending" not in farm.row()


@pytest.mark.case("fault 36")
def test_a_node_that_flaps_around_the_edge_of_the_band_for_an_hour_moves_no_mark(
    large: Farm,
) -> None:
    """Ten of a hundred machines are the edge of the band, and the eleventh comes and goes."""
    for number in range(10):
        large.server.delete(PERSON, ("Node", "", f"node-{number}"))
    objects = large.kueue()
    for _ in range(8):  # eight minutes, shorter than what is believed within the band
        large.node("node-10", "0")
        large.life.step(28)
        large.node("node-10", "8")
        large.life.step(32)
        assert large.mark() == 800
    for _ in range(52):
        large.node("node-10", "0")
        large.life.step(28)
        large.node("node-10", "8")
        large.life.step(32)
        assert large.mark() in (800, 720)  # within the band: the largest of the ten minutes
    assert large.mark() == 720
    assert large.kueue() == objects


@pytest.mark.case("fault 36")
def test_a_slow_decay_is_followed_by_what_settles(large: Farm) -> None:
    """One machine of a hundred each time, always within the band: a pure band would never see."""
    for number in range(12):
        large.server.delete(PERSON, ("Node", "", f"node-{number}"))
        large.life.step(10 * MINUTE)
        left = 800 - 8 * (number + 1)
        assert left <= large.mark() <= left + 16
    large.life.step(11 * MINUTE)
    assert large.mark() == 800 - 8 * 12
    assert large.frozen_at("t") is None


@pytest.mark.case("fault 36")
def test_a_device_plugin_that_is_away_freezes_and_thaws_and_nothing_is_written_to_kueue(
    farm: Farm,
) -> None:
    objects = farm.kueue()
    farm.node("node-0", "0")
    farm.life.step(25)
    assert farm.mark() == 32
    farm.life.step(65)
    assert farm.mark() == 24
    assert farm.frozen_at("t") is not None
    farm.node("node-0", "8")
    farm.life.step(10)
    assert farm.mark() == 32
    assert farm.frozen_at("t") is None
    assert farm.kueue() == objects


@pytest.mark.case("fault 36")
def test_a_node_that_is_replaced_under_its_name_counts_once(farm: Farm) -> None:
    farm.server.delete(PERSON, ("Node", "", "node-0"))
    farm.server.create(PERSON, "Node", machine("node-0", "a100", "16"))
    farm.life.step(10)
    assert farm.row()["installed"] == "40"
    assert farm.row()["nodes"] == 4
    assert farm.mark() == 40


@pytest.mark.case("fault 36")
def test_a_label_that_moves_takes_the_devices_along_and_no_sum_has_them_twice(farm: Farm) -> None:
    farm.server.create(PERSON, "ResourceFlavor", flavor("h100"))
    farm.life.step(10)
    farm.node("node-0", "8", "h100")
    farm.life.step(3)
    assert (farm.row()["installed"], farm.row("h100")["installed"]) == ("24", "8")
    assert (farm.mark(), farm.mark("h100")) == (32, 8)  # a fall waits, growth does not
    farm.life.step(MINUTE)
    assert (farm.mark(), farm.mark("h100")) == (24, 8)


@pytest.mark.case("fault 36")
def test_of_two_flavors_that_fit_equally_the_one_that_is_budgeted_counts(farm: Farm) -> None:
    twin = flavor("twin")
    twin["spec"]["nodeLabels"] = {"gpu": "a100"}
    farm.server.create(PERSON, "ResourceFlavor", twin)
    farm.life.step(MINUTE)
    assert farm.row()["installed"] == "32"
    assert farm.row("twin")["installed"] == "0"
    farm.server.create(PERSON, QUOTA_KIND, quota("x", CLUSTER_QUEUE, "root", [budget("twin", "1")]))
    farm.life.step(10)
    assert farm.row()["installed"] == "0"  # both are named now: nobody can say whose they are
    assert farm.row("twin")["installed"] == "0"
    assert farm.unattributed() == {"AmbiguousFlavor": 4}
    assert farm.mark() == 32
    farm.life.step(MINUTE)


@pytest.mark.case("fault 37")
@pytest.mark.parametrize(
    ("status", "installed", "unattributed"),
    [
        ({"allocatable": {GPU: "8x"}}, "32", {"UnreadableQuantity": 1}),
        ({"allocatable": {GPU: "-8"}}, "32", {"UnreadableQuantity": 1}),
        ({"allocatable": {GPU: ""}}, "32", {"UnreadableQuantity": 1}),
        ({"allocatable": {GPU: [8]}}, "32", {"UnreadableQuantity": 1}),
        ({"allocatable": {GPU: "1e99999"}}, "32", {"UnreadableQuantity": 1}),
        ({"allocatable": {GPU: "1000000000000000000"}}, "1000000000000000024", {}),
        ({"allocatable": None, "capacity": None}, "24", {}),
        ({"conditions": None}, "32", {}),
        ({"conditions": []}, "32", {}),
        ({"capacity": {GPU: "lots"}}, "32", {}),
    ],
)
def test_a_node_that_says_nonsense_is_counted_as_unknown_and_spoils_no_pass(
    farm: Farm, status: dict[str, Any], installed: str, unattributed: dict[str, int]
) -> None:
    where = ("Node", "", "node-0")
    nonsense = {**farm.server.objects[where]["status"], **status}
    farm.server.patch(PERSON, where, {"status": None}, status=True)
    farm.server.patch(PERSON, where, {"status": nonsense}, status=True)
    farm.life.step(10)  # raises when a pass failed
    found = farm.row()
    # Without a measurement the last good one stands; and sums are exact at any size.
    total = int(found["allocatable"]) + int(found["unavailable"])
    assert (str(total), farm.unattributed()) == (installed, unattributed)
    farm.fund("t", 8)
    farm.life.step(10)
    assert farm.frozen_at("t") is None
