"""The process is killed before and after each request of a pass, and the next one ends its work.

Two trees are mirror images of each other: the edit that leads from one to the other creates,
changes and deletes one object of every kind, and costs the same requests in both directions. The
tree goes back and forth between them, and each time the process dies at another request.
"""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from e2e.controller import QUOTAS, USER, Controller, wait_seconds
from e2e.controlplane.audit import Audit, Record
from e2e.faults.actions import call
from e2e.faults.bed import KUEUE_PATH, told
from e2e.faults.conftest import Lab
from e2e.faults.exchange import Seen
from e2e.shapes import converge, objects
from e2e.trees import (
    NAMESPACE,
    Document,
    budget,
    edit,
    group,
    kueue_object,
    namespace,
    put,
    team,
)
from e2e.waiting import eventually

pytestmark = pytest.mark.e2e
# A verb, a path, and how many such requests pass before the one at which the process dies: the
# first writes of a pass one after the other, and one of each sort, wherever it comes.
POINTS = [("write", "", number) for number in range(18)]
POINTS += [(verb, KUEUE_PATH, 0) for verb in ("create", "patch", "delete")]
POINTS += [("patch", r"/status$", 0)]
SIDES = ("research", "vision")
COUNT = 8  # the nodes of either tree, root too
ENROLLED = f"{NAMESPACE},ml-training"
STILL = 0.3  # seconds without a write after which a transition is over; a pass waits 0.05
Shapes = dict[Any, Document]
Key = tuple[str, str, str]


def tree(big: str, small: str) -> list[Document]:
    """Three teams in two levels on one side, one team on the other; a sound tree for 32 GPUs."""
    return [
        group(small, budget(12)),
        team(f"{small}-lead", budget(12), parent=small),
        group(big, budget(20)),
        team(f"{big}-lead", budget(8), parent=big),
        *extra(big),
    ]


def extra(side: str) -> list[Document]:
    return [
        group(f"{side}-extra", budget(12), parent=side),
        team(f"{side}-a", budget(6), parent=f"{side}-extra"),
        team(f"{side}-b", budget(6, 2), parent=f"{side}-extra"),
    ]


@dataclass
class Course:
    """The tree that goes back and forth, and what it has to look like on each side."""

    lab: Lab
    audit: Audit
    controller: Controller
    side: int = 0

    def turn(self) -> None:
        """The edit: what the big side had too much goes, and the other gets it. Shrinks first."""
        cp, big, small = self.lab.cp, SIDES[self.side], SIDES[1 - self.side]
        for name in ("a", "b", "extra"):
            cp.api.delete(f"{QUOTAS}/{big}-{name}")
        edit(cp, big, budget(12))
        edit(cp, f"{big}-lead", budget(12))
        edit(cp, small, budget(20))
        edit(cp, f"{small}-lead", budget(8))
        put(cp, *extra(small))
        self.side = 1 - self.side

    def settle(self) -> None:
        """Until the tree is in Kueue and nothing is written any more."""
        converge(self.lab.cp, COUNT)

        def still() -> bool:
            before = self.lab.proxy.count("write")
            wait_seconds(STILL)
            return self.lab.proxy.count("write") == before

        eventually(still, 30, f"{STILL:g} s without a write")

    def found(self) -> Shapes:
        """All of Kueue's objects, each with its uid: who was made anew is seen."""
        ignored = ("resourceVersion", "creationTimestamp", "generation")
        return {
            key: item["spec"] | {k: v for k, v in item["metadata"].items() if k not in ignored}
            for key, item in objects(self.lab.cp).items()
        }


@pytest.fixture
def course(lab: Lab, audit: Audit) -> Iterator[Course]:
    """The first tree, converged, beside objects of somebody else's."""
    cp = lab.cp
    for item in cp.api.items(QUOTAS):
        if item["metadata"]["name"] != "root":
            cp.api.delete(f"{QUOTAS}/{item['metadata']['name']}")
    _put_missing(lab, namespace("ml-training"), *foreign())
    with lab.controller("--take-over", "true", namespaces=ENROLLED) as controller:
        converge(cp, 1)
        put(cp, *tree(*SIDES))
        found = Course(lab, audit, controller)
        found.settle()
        yield found
        lab.proxy.clear()


def foreign() -> list[Document]:
    """Objects of every kind that nobody of ours may touch, though they stand within our tree."""
    return [
        kueue_object("Cohort", "theirs", {"parentName": "root"}),
        kueue_object("ClusterQueue", "their-queue", {"cohortName": "theirs"}),
        kueue_object("LocalQueue", "their-queue", {"clusterQueue": "their-queue"}, NAMESPACE),
    ]


def _put_missing(lab: Lab, *documents: Document) -> None:
    there = {key[2] for key in objects(lab.cp)}
    there |= {item["metadata"]["name"] for item in lab.cp.api.items("/api/v1/namespaces")}
    put(lab.cp, *[d for d in documents if d["metadata"]["name"] not in there])


@pytest.mark.case("fault 32")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_killed_at_each_request_of_a_pass_it_ends_where_it_would_have(
    course: Course, after: bool
) -> None:
    wanted = [_bare(shapes) for shapes in _undisturbed(course)]
    died_at, now = [], course.found()
    for point in POINTS:
        before, mark = now, course.audit.mark()
        died_at.append(_crash(course, point, after=after))
        course.controller.start()
        course.settle()
        now = course.found()
        where = f"killed {'after' if after else 'before'} request {point}: {died_at[-1]}"
        assert _bare(now) == wanted[course.side], where
        _check_writes(before, now, course.audit.since(mark, user=USER), where)
    # It died at every sort of write there is.
    kueues = {seen.verb for seen in died_at if re.search(KUEUE_PATH, seen.path)}
    assert kueues == {"create", "patch", "delete"}, Counter(map(told, died_at))
    assert any(seen.path.endswith("/status") for seen in died_at), Counter(map(told, died_at))
    assert all(seen.upstream is after for seen in died_at)
    assert "Traceback" not in course.controller.log()


def _undisturbed(course: Course) -> list[Shapes]:
    """There and back without a fault: the objects of both sides, by side."""
    found: dict[int, Shapes] = {}
    for _ in SIDES:
        mark = course.lab.proxy.mark()
        course.turn()
        course.settle()
        assert course.lab.proxy.count("write", since=mark) > len(POINTS)
        found[course.side] = course.found()
    return [found[0], found[1]]


def _crash(course: Course, point: tuple[str, str, int], *, after: bool) -> Seen:
    """Turn the tree, and kill the process at this request; the request."""
    dead = threading.Event()

    def kill() -> None:
        course.controller.kill()
        dead.set()

    verb, path, skip = point
    with course.lab.proxy.when(verb, path, skip=skip, do=call(kill, after=after)) as rule:
        course.turn()
        assert dead.wait(30), f"there was no request {point}"
    return rule.seen[0]


def _check_writes(before: Shapes, now: Shapes, records: list[Record], where: str) -> None:
    """What is on both sides is the same object, and what is not is made or deleted once."""
    uid = {key: item["uid"] for key, item in before.items()}
    assert all(now[key]["uid"] == uid[key] for key in now.keys() & before.keys()), where
    writes = [r for r in records if r.is_write and r.group == "kueue.x-k8s.io" and r.code < 300]
    for verb, keys in (
        ("create", now.keys() - before.keys()),
        ("delete", before.keys() - now.keys()),
    ):
        # A write in flight at the death is done, and may be logged as one that nobody waited for.
        done = Counter(_target(r) for r in writes if r.verb == verb)
        assert done <= Counter(map(_path, keys)), where
    theirs = {_path(_key(document)) for document in foreign()}
    assert theirs.isdisjoint(_target(r) for r in records if r.is_write), where


def _key(document: Document) -> Key:
    metadata = document["metadata"]
    return document["kind"], metadata.get("namespace", ""), metadata["name"]


def _path(key: Key) -> str:
    return f"{key[0].lower()}s {key[1]} {key[2]}"


def _target(record: Record) -> str:
    return f"{record.resource} {record.namespace} {record.name}"


def _bare(shapes: Shapes) -> Shapes:
    return {k: {n: v for n, v in item.items() if n != "uid"} for k, item in shapes.items()}
