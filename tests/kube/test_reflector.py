"""One kind, followed: each rule of the reflector against a server that breaks it on purpose."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable

import msgspec
import pytest

from quota_translator.core.world import Node
from quota_translator.kube.client import Client, Retries
from quota_translator.kube.config import Connection
from quota_translator.kube.decode import WATCHED_NODES
from quota_translator.kube.pulse import Pulse
from quota_translator.kube.reflector import Reflector, Timing
from quota_translator.kube.store import Store
from tests.kube.objects import node
from tests.kube.scripted import (
    AWAY,
    FakeTime,
    Reply,
    Scripted,
    bookmark,
    event,
    failed,
    listed,
    status,
    until,
    watched,
)

PATH = "/api/v1/nodes"
HTML = b"<html>\n<body>Service Unavailable</body>\n</html>\n"
RBAC = 'nodes is forbidden: User "u" cannot list resource "nodes" in API group "" at the cluster'


class Followed:
    """A reflector at work, and everything a test may look at."""

    def __init__(self, server: Scripted, fake: FakeTime, timing: Timing, rand: float) -> None:
        self.server, self.fake = server, fake
        self.dirty: list[str] = []
        self.store = Store[str, Node](
            "Node", WATCHED_NODES.key, WATCHED_NODES.version, self.dirty.append
        )
        self.client = Client(Connection(server.host), retries=Retries(attempts=1))
        self.reflector = Reflector(
            self.client,
            WATCHED_NODES,
            self.store,
            timing=timing,
            now=fake.now,
            sleep=fake.sleep,
            rand=lambda: rand,
        )
        self.task = asyncio.create_task(self.reflector.run())

    def names(self) -> set[str]:
        return set(self.store.snapshot())

    def versions(self) -> list[str]:
        """The version of each watch, in order."""
        asked = [a for a in self.server.asked if a.verb == "watch"]
        return [a.query["resourceVersion"] for a in asked]

    async def until(self, condition: Callable[[], object]) -> None:
        await until(condition, lambda: (self.server.verbs()[-20:], self.store.reason, self.task))

    async def close(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        await self.client.close()


Follow = Callable[..., Followed]


@pytest.fixture
async def follow(server: Scripted, fake: FakeTime) -> AsyncIterator[Follow]:
    started: list[Followed] = []

    def start(rand: float = 0.5, **timing: object) -> Followed:
        started.append(Followed(server, fake, msgspec.structs.replace(Timing(), **timing), rand))
        return started[-1]

    yield start
    for one in started:
        await one.close()


# --- the usual ----------------------------------------------------------------------------------


async def test_it_lists_then_watches_from_the_lists_version(
    server: Scripted, follow: Follow
) -> None:
    server.on("list", PATH, listed(node("a"), version="100"))
    server.on("watch", PATH, watched(event("ADDED", node("b", version="101"))))
    one = follow()
    await one.until(lambda: one.names() == {"a", "b"})
    assert one.store.synced
    assert one.versions() == ["100"]
    assert 300 <= int(server.last("watch").query["timeoutSeconds"]) <= 600


async def test_events_change_the_store_and_say_dirty(server: Scripted, follow: Follow) -> None:
    server.on("list", PATH, listed(node("a"), node("b")))
    lines = [
        event("MODIFIED", node("a", gpus="4", version="101")),
        event("DELETED", node("b", version="102")),
        event("ADDED", node("c", version="103")),
    ]
    server.on("watch", PATH, watched(*lines))
    one = follow()
    await one.until(lambda: one.names() == {"a", "c"})
    assert one.dirty == ["Node"] * 4


async def test_a_node_that_only_reported_again_makes_nothing_dirty(
    server: Scripted, follow: Follow
) -> None:
    server.on("list", PATH, listed(node("a")))
    again = [event("MODIFIED", node("a", version=str(version))) for version in range(101, 120)]
    server.on("watch", PATH, watched(*again, event("ADDED", node("z", version="120"))))
    one = follow()
    await one.until(lambda: "z" in one.names())
    assert one.dirty == ["Node", "Node"]


@pytest.mark.case("fault 8")
async def test_replayed_events_are_idempotent(server: Scripted, follow: Follow) -> None:
    server.on("list", PATH, listed(node("a")))
    added = event("ADDED", node("b", version="101"))
    server.on("watch", PATH, watched(added, added, event("ADDED", node("c", version="102")), added))
    one = follow()
    await one.until(lambda: one.names() == {"a", "b", "c"})
    assert len(one.dirty) == 3


@pytest.mark.case("fault 8")
async def test_events_out_of_order_bring_nothing_back(server: Scripted, follow: Follow) -> None:
    server.on("list", PATH, listed(node("a"), node("b")))
    late = [
        event("DELETED", node("b", version="103")),
        event("ADDED", node("b", version="102")),
        event("MODIFIED", node("a", gpus="4", version="101")),
        event("DELETED", node("a", version="100")),
    ]
    then = event("ADDED", node("c", version="104"))
    server.on("watch", PATH, watched(*late, then, *late, then="end"))
    one = follow()
    await one.until(lambda: len(one.versions()) == 2)
    assert one.names() == {"a", "c"}
    assert one.store.get("a") == WATCHED_NODES.read(json.dumps(node("a")).encode())
    assert one.versions() == ["100", "104"]
    assert len(one.dirty) == 3


@pytest.mark.case("fault 7")
async def test_an_hour_of_nothing_but_bookmarks_goes_on_from_the_last_of_them(
    server: Scripted, follow: Follow, fake: FakeTime
) -> None:
    """One a minute, in watches of five minutes: each begins where the one before was told to."""
    start = fake.t

    def five_minutes(_asked: object) -> Reply:
        fake.t += 300
        minute = int(fake.t - start) // 60
        return watched(*(bookmark(str(1000 + minute - 5 + n)) for n in range(1, 6)), then="end")

    server.on("list", PATH, listed(node("a")))
    server.always("watch", PATH, five_minutes)
    one = follow(quick=0.0)  # the clock stands still while the bookmarks come
    await one.until(lambda: fake.t - start >= 3600)
    server.always("watch", PATH, watched())
    await one.until(lambda: len(one.versions()) >= 13)
    assert one.versions()[:13] == ["100", *(str(1000 + minute) for minute in range(5, 65, 5))]
    assert server.count("list") == 1
    assert one.names() == {"a"}


# --- 410 ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "expired",
    [
        pytest.param(failed(410, "Expired"), id="as-a-status"),
        pytest.param(watched(event("ERROR", status(410, "Expired")), then="end"), id="as-an-event"),
    ],
)
async def test_410_lists_again_and_misses_no_deletion(
    server: Scripted, follow: Follow, fake: FakeTime, expired: Reply
) -> None:
    server.on("list", PATH, listed(node("a"), node("b")), listed(node("b"), version="200"))
    server.on("watch", PATH, expired)
    one = follow()
    await one.until(lambda: one.names() == {"b"})
    await one.until(lambda: one.versions()[-1] == "200")
    assert server.count("list") == 2
    assert 0.4 in fake.slept  # half of 0.8 s: jittered
    assert one.store.synced


# --- throttling ---------------------------------------------------------------------------------


async def test_429_backs_off_as_asked_and_does_not_list(
    server: Scripted, follow: Follow, fake: FakeTime
) -> None:
    server.on(
        "watch", PATH, failed(429, retryAfterSeconds=7), failed(429), watched(bookmark("109"))
    )
    one = follow()
    await one.until(lambda: len(one.versions()) == 3)
    assert one.versions() == ["100"] * 3
    assert server.count("list") == 1
    assert pytest.approx(7.35) in fake.slept


async def test_retry_after_is_kept_with_a_503_too(
    server: Scripted, follow: Follow, fake: FakeTime
) -> None:
    server.on("list", PATH, failed(503, retryAfterSeconds=11), listed(node("a")))
    one = follow()
    await one.until(lambda: one.store.synced)
    assert 11 in fake.slept


# --- what is not an event -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param(Reply(503, [HTML]), id="html-with-503"),
        pytest.param(Reply(200, [HTML]), id="html-with-200"),
        pytest.param(Reply(200, [b'{"type":"ADDED","object":{"met']), id="half-a-line"),
        pytest.param(Reply(200, [b'{"type":"ADD'], then="reset"), id="reset-inside-a-line"),
        pytest.param(Reply(200, []), id="an-empty-body"),
        pytest.param(watched(event("ERROR", {}), then="end"), id="an-error-without-a-reason"),
        pytest.param(watched(event("ERROR", status(500, "x")), then="end"), id="another-error"),
        pytest.param(watched(b"7\n", then="end"), id="json-that-is-no-event"),
    ],
)
async def test_a_broken_answer_is_no_event_and_the_watch_goes_on(
    server: Scripted, follow: Follow, broken: Reply
) -> None:
    server.on("list", PATH, listed(node("a")))
    first = watched(event("ADDED", node("b", version="150")), then="end")
    server.on("watch", PATH, first, broken, watched(event("ADDED", node("c", version="151"))))
    one = follow()
    await one.until(lambda: one.names() == {"a", "b", "c"})
    assert one.versions() == ["100", "150", "150"]
    assert server.count("list") == 1
    assert one.store.synced


async def test_an_unknown_event_is_passed_over(server: Scripted, follow: Follow) -> None:
    lines = [event("NEWS", node("x", version="101")), event("ADDED", node("b", version="102"))]
    server.on("watch", PATH, watched(*lines))
    one = follow()
    await one.until(lambda: one.names() == {"b"})


async def test_what_came_before_a_reset_counts(server: Scripted, follow: Follow) -> None:
    cut = watched(event("ADDED", node("b", version="101")), b'{"type":', then="reset")
    server.on("watch", PATH, cut)
    one = follow()
    await one.until(lambda: len(one.versions()) == 2)
    assert one.names() == {"b"}
    assert one.versions()[1] == "101"


# --- servers that close, or say nothing ---------------------------------------------------------


@pytest.mark.case("fault 5")
@pytest.mark.parametrize(
    "lines",
    [pytest.param([], id="without-a-word"), pytest.param([bookmark("101")], id="after-one-event")],
)
async def test_watches_that_end_at_once_cost_12_requests_a_minute_at_most(
    server: Scripted, follow: Follow, fake: FakeTime, lines: list[bytes]
) -> None:
    at: list[float] = []

    def closing(_asked: object) -> Reply:
        at.append(fake.t)
        return watched(*lines, then="end")

    server.always("watch", PATH, closing)
    one = follow(rand=0.0)  # the worst luck: every jittered pause is nothing
    await one.until(lambda: len(at) >= 40)
    busiest = max(sum(start <= other < start + 60 for other in at) for start in at)
    assert busiest <= 12


async def test_five_watches_that_end_without_a_word_lead_to_a_list(
    server: Scripted, follow: Follow
) -> None:
    server.always("watch", PATH, watched(then="end"))
    one = follow()
    await one.until(lambda: server.count("list") == 2)
    assert server.verbs()[:7] == ["list", *["watch"] * 5, "list"]


@pytest.mark.case("fault 6")
async def test_a_silent_watch_is_opened_again_without_a_list(
    server: Scripted, follow: Follow
) -> None:
    server.on("watch", PATH, watched(bookmark("101")))  # then nothing, the connection stands
    one = follow(silence=(0.05, 0.05))
    await one.until(lambda: len(one.versions()) == 2)
    assert one.versions() == ["100", "101"]
    assert server.count("list") == 1


def test_silence_is_longer_than_a_bookmarks_minute_and_shorter_than_two() -> None:
    low, high = Timing().silence
    assert 60 < low <= high < 120


async def test_a_watch_that_stays_mute_is_cured_by_a_list(server: Scripted, follow: Follow) -> None:
    one = follow(silence=(0.03, 0.03), quick=0.0)
    await one.until(lambda: server.count("list") == 2)
    assert server.verbs()[:5] == ["list", "watch", "watch", "watch", "list"]
    assert one.store.synced


# --- heard: what stamps hang on -----------------------------------------------------------------


async def test_heard_for_150_seconds_after_an_event_a_bookmark_or_a_200(
    server: Scripted, follow: Follow, fake: FakeTime
) -> None:
    one = follow()
    assert not one.reflector.heard(fake.now())
    await one.until(lambda: one.versions())
    await one.until(lambda: one.reflector.heard_at is not None)
    at = one.reflector.heard_at
    assert at is not None
    assert one.reflector.heard(at + 150, body=True)
    assert not one.reflector.heard(at + 151)


async def test_two_mute_openings_in_a_row_are_no_sign_of_life_for_nodes(
    server: Scripted, follow: Follow, fake: FakeTime
) -> None:
    mute = watched(then="end")
    server.on("watch", PATH, mute)
    one = follow()
    await one.until(lambda: len(one.versions()) == 2)
    assert one.reflector.heard(fake.now(), body=True)
    await one.close()
    server.on("watch", PATH, mute, mute)
    two = follow()
    await two.until(lambda: two.versions().count("100") == 5)  # the third of its own hangs
    await two.until(lambda: not two.reflector.heard(fake.now(), body=True))
    assert two.reflector.heard(fake.now())  # the 200 is enough for kinds other than nodes


@pytest.mark.case("fault 6")
def test_the_age_of_a_mute_watch_grows_although_it_is_opened_again() -> None:
    pulse = Pulse(150.0, quick=10.0, quick_before_list=5, mute_before_list=3)
    pulse.heard_at = pulse.told_at = 0.0
    for now in (100.0, 200.0):
        pulse.opened()
        pulse.heard_at = now
        assert pulse.sign_at == now
        pulse.ended(0, 0, lasted=100.0)
    assert pulse.sign_at == 0.0
    pulse.ended(10, 1, lasted=100.0)
    assert pulse.sign_at == 200.0


async def test_a_byte_ends_the_mute_count(server: Scripted, follow: Follow, fake: FakeTime) -> None:
    mute, alive = watched(then="end"), watched(bookmark("101"), then="end")
    server.on("watch", PATH, mute, alive, mute)
    one = follow()
    await one.until(lambda: len(one.versions()) == 4)
    assert one.reflector.heard(fake.now(), body=True)


async def test_a_watch_that_cannot_be_opened_twice_is_lost_until_it_can(
    server: Scripted, follow: Follow
) -> None:
    server.on("watch", PATH, failed(503))
    one = follow()
    await one.until(lambda: len(one.versions()) == 2)
    assert not one.reflector.lost
    await one.close()
    release = asyncio.Event()
    server.on("watch", PATH, failed(503), failed(503))
    two = follow()

    async def paused(_seconds: float) -> None:
        if two.reflector.lost:
            await release.wait()

    two.reflector._sleep = paused
    await two.until(lambda: two.reflector.lost)
    assert two.store.synced  # what was seen is not forgotten
    assert two.dirty == ["Node"] * 2  # the list, and that nobody looks any more
    release.set()
    await two.until(lambda: not two.reflector.lost)
    assert two.dirty == ["Node"] * 3  # waits and stamps go on at once, not with the next event


async def test_a_server_that_cannot_even_be_asked_for_its_version_is_lost(
    server: Scripted, follow: Follow
) -> None:
    """After a broken connection its version is looked at before the watch is opened."""
    gone = Reply(then="reset")
    server.on("watch", PATH, watched(bookmark("101"), then="reset"))
    server.on("look", PATH, gone, gone)
    one = follow()
    await one.until(lambda: len(one.versions()) == 2)
    await one.until(lambda: not one.reflector.lost)
    assert server.count("look") == 3
    assert one.versions() == ["100", "101"]
    assert one.dirty == ["Node"] * 3  # the list; nobody looks; somebody looks again


# --- lists that fail ----------------------------------------------------------------------------


@pytest.mark.case("FC-A10")
async def test_a_forbidden_list_keeps_the_last_good_and_names_the_permission(
    server: Scripted, follow: Follow
) -> None:
    server.on("list", PATH, listed(node("a")), failed(403, "Forbidden", RBAC))
    server.on("watch", PATH, failed(410, "Expired"))
    server.always("list", PATH, failed(403, "Forbidden", RBAC))
    one = follow()
    await one.until(lambda: "permission" in one.store.reason)
    assert not one.store.synced
    assert "to list nodes" in one.store.reason
    assert one.names() == {"a"}
    server.always("list", PATH, listed(node("b"), version="300"))
    await one.until(lambda: one.store.synced)
    assert one.names() == {"b"}


async def test_a_forbidden_watch_is_believed_again_with_the_first_event(
    server: Scripted, follow: Follow
) -> None:
    denied = RBAC.replace("cannot list", "cannot watch")
    server.on("watch", PATH, failed(403, "Forbidden", denied))
    server.on("watch", PATH, watched(bookmark("101")))
    one = follow()
    await one.until(lambda: len(one.dirty) == 3)  # listed, unsynced, believed
    assert one.store.synced
    assert one.versions() == ["100", "100"]
    assert server.count("list") == 1


@pytest.mark.case("FC-A10")
@pytest.mark.parametrize(
    ("failures", "dirty"),
    [
        pytest.param(1, ["Node"] * 2, id="the-first-is-forgiven"),
        pytest.param(2, ["Node"] * 3, id="the-second-is-not"),
        pytest.param(5, ["Node"] * 3, id="and-is-said-once"),
    ],
)
async def test_a_new_list_that_fails_again_leaves_the_kind_unsynced(
    server: Scripted, follow: Follow, failures: int, dirty: list[str]
) -> None:
    server.on("list", PATH, listed(node("a")), *[failed(500, "InternalError", "etcd")] * failures)
    server.on("list", PATH, listed(node("b"), version="200"))
    server.on("watch", PATH, failed(410, "Expired"))
    one = follow()
    await one.until(lambda: one.names() == {"b"})
    assert one.dirty == dirty


async def test_a_kind_that_is_not_served_is_asked_for_until_it_is(
    server: Scripted, follow: Follow, fake: FakeTime
) -> None:
    absent = [Reply(404, [b"404 page not found\n"])] * 8
    server.on("list", PATH, *absent, listed(node("a")))
    one = follow()
    await one.until(lambda: not one.reflector.served)
    assert not one.store.synced
    await one.until(lambda: one.store.synced)
    assert one.reflector.served
    growing = [0.5, 1, 2, 4, 8, 15, 15, 15]  # half of 1 s doubled to 30 s
    assert fake.slept[: len(growing)] == growing
    assert len([kind for kind in one.dirty if kind == "Node"]) == 2


async def test_a_kind_that_goes_away_is_not_served_any_more(
    server: Scripted, follow: Follow
) -> None:
    server.on("list", PATH, listed(node("a")))
    server.on("watch", PATH, failed(404))
    server.always("list", PATH, failed(404))
    one = follow()
    await one.until(lambda: one.store.generation == 2)
    assert "Node is not served in v1" in one.store.reason
    assert not one.store.synced


@pytest.mark.case("fault 11")
async def test_a_bookmark_older_than_what_was_seen_leads_to_a_list(
    server: Scripted, follow: Follow
) -> None:
    """A server with a restored backup goes on with a watch from a version that it has not reached
    yet, and says nothing of what it lost."""
    server.on("list", PATH, listed(node("a"), node("b"), version="500"))
    server.on("watch", PATH, watched(bookmark("310")))
    server.on("list", PATH, listed(node("b"), version="310"), listed(node("b"), version="311"))
    one = follow()
    await one.until(lambda: one.names() == {"b"})
    assert server.verbs()[:4] == ["list", "watch", "list", "list"]
    await one.until(lambda: one.versions()[-1] == "311")


@pytest.mark.case("fault 11")
@pytest.mark.parametrize(
    ("version", "verbs"),
    [
        pytest.param("500", ["watch"], id="it-is-where-it-was"),
        pytest.param("300", ["list", "list", "watch"], id="it-went-back"),
    ],
)
async def test_a_server_that_was_away_is_asked_how_far_it_is(
    server: Scripted, follow: Follow, version: str, verbs: list[str]
) -> None:
    """A watch from a version in a restored server's future is silent, bookmarks included."""
    server.on("list", PATH, listed(node("a"), node("b"), version="500"))
    server.on("watch", PATH, AWAY, AWAY)  # the first is asked again below us, once
    kept = [node("a"), node("b")] if version == "500" else [node("b")]
    server.always("look", PATH, listed(*kept[:1], version=version))
    server.always("list", PATH, listed(*kept, version=version))
    one = follow()
    await one.until(lambda: server.count("watch") == 3)
    assert server.verbs() == ["list", "watch", "watch", "look", *verbs]
    assert one.names() == {item["metadata"]["name"] for item in kept}


@pytest.mark.case("fault 11")
async def test_a_list_older_than_what_was_seen_is_believed_the_second_time(
    server: Scripted, follow: Follow
) -> None:
    server.on("list", PATH, listed(node("a"), node("b"), version="500"))
    server.on("watch", PATH, failed(410, "Expired"))
    server.on("list", PATH, listed(version="300"), listed(node("b"), version="310"))
    one = follow()
    await one.until(lambda: one.names() == {"b"})
    assert server.count("list") == 3
    assert one.dirty == ["Node"] * 3  # listed; doubted, nothing deleted; believed
    await one.until(lambda: one.versions()[-1] == "310")


async def test_the_outage_before_a_restored_backup_is_no_second_look(
    server: Scripted, follow: Follow
) -> None:
    server.on("list", PATH, listed(node("a"), node("b"), version="500"))
    server.on("watch", PATH, failed(410, "Expired"))
    server.on("list", PATH, failed(503), listed(version="300"), listed(node("b"), version="310"))
    one = follow()
    await one.until(lambda: one.names() == {"b"})
    assert server.count("list") == 4


async def test_a_watch_event_that_cannot_be_read_leads_to_a_list_in_the_end(
    server: Scripted, follow: Follow
) -> None:
    bad = watched(event("ADDED", node("b", version="101") | {"status": 7}), then="end")
    server.on("watch", PATH, *[bad] * 5)
    one = follow()
    await one.until(lambda: server.count("list") == 2)
    assert one.versions()[:5] == ["100"] * 5


@pytest.mark.case("fault 16")
async def test_an_outage_of_hours_costs_few_requests_and_ends_by_itself(
    server: Scripted, follow: Follow, fake: FakeTime
) -> None:
    start = fake.t

    def down(_asked: object) -> Reply:
        return failed(503) if fake.t - start < 3600 else watched(bookmark("102"))

    server.always("watch", PATH, down)
    one = follow()
    await one.until(lambda: fake.t - start >= 3600)
    assert server.count("watch") < 3600 / 14
    await one.until(lambda: not one.reflector.lost)
    assert server.count("list") == 1
