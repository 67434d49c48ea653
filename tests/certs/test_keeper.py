"""The Secret, the bundle and the pair in service, whatever happens to them."""

import asyncio
import base64
import errno
import os
from collections.abc import Callable

import pytest
from cryptography.hazmat.primitives import serialization
from structlog.testing import capture_logs

from quota_translator.certs import secret
from quota_translator.certs.pairs import issue, names_for, read_authorities
from quota_translator.certs.secret import PAIRS_AN_HOUR
from quota_translator.kube.backoff import Pacer
from tests.certs.server import (
    DAY,
    HOOKS,
    NAME,
    NAMESPACE,
    SECRET,
    SECRETS,
    Clocks,
    Objects,
    Replica,
    handshake,
)
from tests.kube.scripted import HANG, Asked, Reply, event, failed, until, watched

Make = Callable[..., Replica]
NAMES = names_for("guard", NAMESPACE, ("127.0.0.1",))
CREATE, CHANGE, INJECT = f"create {SECRETS}", f"patch {SECRET}", f"patch {HOOKS}"


def served(one: Replica, trusted: bytes) -> bytes:
    """What a client sees that trusts this bundle."""
    found = handshake(one.keeper.context, trusted, f"guard.{NAMESPACE}.svc")
    return found.public_bytes(serialization.Encoding.PEM)


def assert_whole(objects: Objects, *replicas: Replica) -> None:
    """Every bundle vouches for the pair in the Secret, and every replica serves it."""
    (bundle,) = set(objects.bundles())
    for one in replicas:
        assert one.keeper.problem() == ""
        assert served(one, bundle) == objects.data("tls.crt")


# --- the beginning ------------------------------------------------------------------------------


async def test_what_is_made_where_there_is_nothing(objects: Objects, replica: Make) -> None:
    one = replica()
    assert one.keeper.problem().startswith("no certificate yet: ")
    assert one.keeper.expires_at() is None
    await one.step()
    assert_whole(objects, one)
    assert objects.secret is not None
    assert objects.secret["type"] == "kubernetes.io/tls"
    assert set(objects.secret["data"]) == {"tls.crt", "tls.key", "ca.crt"}
    assert objects.writes() == [CREATE, INJECT]
    expires = one.keeper.expires_at()
    assert expires is not None
    assert (expires - one.clocks.now().wall).total_seconds() == 90 * DAY


async def test_then_nothing_is_written_again(objects: Objects, replica: Make) -> None:
    one = replica()
    await one.step()
    before = len(objects.writes())
    await one.pass_time(DAY, step=600)
    assert len(objects.writes()) == before
    assert one.changes == [""]


@pytest.mark.case("fault 41")
async def test_replicas_that_start_together_agree_on_one_pair(
    objects: Objects, replica: Make
) -> None:
    replicas = [replica() for _ in range(3)]
    await asyncio.gather(*(one.step() for one in replicas))
    assert objects.writes().count(CREATE) > 1  # they did race
    assert_whole(objects, *replicas)


async def test_a_replica_that_comes_later_writes_nothing(objects: Objects, replica: Make) -> None:
    await replica().step()
    before = len(objects.writes())
    late = replica()
    await late.step()
    assert_whole(objects, late)
    assert len(objects.writes()) == before


async def test_without_a_configuration_the_pair_serves_and_it_is_told(
    objects: Objects, replica: Make
) -> None:
    objects.configuration = None
    one = replica()
    await one.step()
    assert one.keeper.problem() == ""
    assert one.keeper.notice() == "there is no ValidatingWebhookConfiguration guard to call us"
    objects.configuration = objects.configured("late.guard")
    await one.step()
    assert one.keeper.notice() == ""
    assert_whole(objects, one)


# --- what is deleted or overwritten -------------------------------------------------------------


@pytest.mark.case("A-59")
async def test_a_deleted_secret_comes_back_without_a_gap(objects: Objects, replica: Make) -> None:
    one, two = replica(), replica()
    await one.step()
    await two.step()
    old = objects.data("tls.crt")
    objects.secret = None
    await one.step()
    assert objects.data("tls.crt") != old
    (bundle,) = set(objects.bundles())
    assert len(read_authorities(bundle)) == 2
    # Both serve the old pair, which is still trusted, until the new one is known to be.
    assert served(one, bundle) == served(two, bundle) == old
    for each in (one, two):
        await each.step()
        each.clocks.go_on(10)
        await each.step()
    assert_whole(objects, one, two)


@pytest.mark.case("fault 41")
@pytest.mark.parametrize(
    "text", [b"", b"garbage", issue(NAMES, DAY, Clocks().now().wall).authority]
)
async def test_an_overwritten_bundle_is_put_back(
    objects: Objects, replica: Make, text: bytes
) -> None:
    one = replica()
    await one.step()
    objects.overwrite_bundle(text)
    await one.keeper._bundle.named.ask()
    assert "does not hold our authority" in one.keeper.problem()
    await one.step()
    assert_whole(objects, one)
    assert objects.writes() == [CREATE, INJECT, INJECT]


OTHER = issue(NAMES, DAY, Clocks().now().wall).authority


@pytest.mark.parametrize("why", ["forbidden", "too many"])
@pytest.mark.parametrize(
    ("text", "kept"),
    [
        pytest.param(b"", b"", id="empty"),
        pytest.param(b"garbage", b"", id="garbage"),
        pytest.param(OTHER, OTHER, id="of another replica"),
    ],
)
async def test_what_is_served_is_trusted_although_no_secret_can_be_made(
    objects: Objects,
    replica: Make,
    monkeypatch: pytest.MonkeyPatch,
    why: str,
    text: bytes,
    kept: bytes,
) -> None:
    one = replica()
    await one.step()
    (pair,), before = set(objects.bundles()), objects.data("tls.crt")
    if why == "forbidden":
        objects.server.always("create", SECRETS, failed(403, "Forbidden", "no more Secrets"))
    else:
        monkeypatch.setattr(
            Pacer, "wait", lambda pace: 60.0 if pace in one.keeper._secret._paces else 0.0
        )
    objects.secret = None
    objects.overwrite_bundle(text)
    await one.keeper._bundle.named.ask()
    await one.step()
    (bundle,) = set(objects.bundles())
    assert bundle == pair + kept
    assert served(one, bundle) == before
    assert one.keeper.problem() == ""
    assert one.keeper.notice() == ("no more Secrets" if why == "forbidden" else "")
    writes = objects.writes().count(INJECT)
    await one.pass_time(60)
    assert objects.writes().count(INJECT) == writes
    # When there is a Secret again, it alone decides.
    objects.server.always("create", SECRETS, objects._create)
    monkeypatch.undo()
    await one.pass_time(120)
    assert_whole(objects, one)
    (bundle,) = set(objects.bundles())
    assert kept == b"" or kept not in bundle


async def test_both_at_once(objects: Objects, replica: Make) -> None:
    one, two = replica(), replica()
    await asyncio.gather(one.step(), two.step())
    objects.secret = None
    objects.overwrite_bundle(b"")
    await asyncio.gather(one.step(), two.step())
    for each in (one, two):
        await each.pass_time(20)
    assert_whole(objects, one, two)


@pytest.mark.parametrize("key", ["tls_crt", "tls_key", "ca_crt"])
@pytest.mark.parametrize(
    "text", [b"", b"garbage", issue(NAMES, DAY, Clocks().now().wall).authority]
)
async def test_a_secret_that_somebody_broke_is_replaced_and_never_served(
    objects: Objects, replica: Make, key: str, text: bytes
) -> None:
    one = replica()
    await one.step()
    (bundle,) = set(objects.bundles())
    good = objects.data("tls.crt")
    objects.put(**{key: text})
    await one.step()
    assert served(one, bundle) == good
    late = replica()
    await late.step()
    await one.pass_time(20)
    assert_whole(objects, one, late)


@pytest.mark.parametrize(
    ("names", "lifetime", "age"),
    [
        (("other.svc",), 90 * DAY, 0.0),
        (NAMES[:-1], 90 * DAY, 0.0),
        (NAMES, DAY, 2 * DAY),  # expired
        (NAMES, DAY, -3600.0),  # not valid yet
    ],
)
async def test_a_secret_that_is_no_good_is_replaced_before_anything_is_served(
    objects: Objects, replica: Make, names: tuple[str, ...], lifetime: float, age: float
) -> None:
    clocks = Clocks()
    clocks.set_wall(-age)
    pair = issue(names, lifetime, clocks.now().wall)
    clocks.set_wall(age)
    objects.put(tls_crt=pair.chain, tls_key=pair.key, ca_crt=pair.authority, mine=b"kept")
    one = replica(clocks)
    await one.step()
    assert objects.data("tls.crt") != pair.chain
    assert objects.data("mine") == b"kept"
    assert objects.writes() == [CHANGE, INJECT]
    assert_whole(objects, one)


async def test_a_good_pair_of_somebody_else_is_used(objects: Objects, replica: Make) -> None:
    pair = issue(NAMES, DAY, Clocks().now().wall)
    objects.put(tls_crt=pair.chain, tls_key=pair.key, ca_crt=pair.authority)
    one = replica()
    await one.step()
    assert objects.writes() == [INJECT]
    assert_whole(objects, one)


async def test_garbage_among_the_previous_authorities_goes(objects: Objects, replica: Make) -> None:
    one = replica()
    await one.step()
    objects.put(previous_ca_crt=b"garbage")
    await one.step()
    assert objects.secret is not None
    assert "previous-ca.crt" not in objects.secret["data"]
    assert_whole(objects, one)


async def test_versions_that_want_other_names_do_not_take_turns(
    objects: Objects, replica: Make
) -> None:
    one, two = replica(extra_names=("a.example",)), replica(extra_names=("b.example",))
    for _ in range(5):
        await one.step()
        await two.step()
    assert objects.writes().count(CREATE) + objects.writes().count(CHANGE) == 2
    await one.pass_time(61 * DAY, step=DAY / 2)  # two thirds later, with its own names alone
    assert objects.writes().count(CHANGE) == 2
    found = handshake(one.keeper.context, objects.bundles()[0], "a.example")
    assert "b.example" not in str(found.extensions)


# --- time ---------------------------------------------------------------------------------------


async def test_it_is_renewed_at_two_thirds_and_the_old_authority_stays_as_long_as_needed(
    objects: Objects, replica: Make
) -> None:
    one = replica()
    await one.step()
    old, authority = objects.data("tls.crt"), objects.data("ca.crt")
    await one.pass_time(59 * DAY, step=DAY / 2)
    await one.pass_time(DAY - 1, step=DAY - 1)
    assert objects.data("tls.crt") == old
    await one.pass_time(1, step=1)
    assert objects.data("tls.crt") != old
    assert objects.data("previous-ca.crt") == authority
    assert served(one, objects.bundles()[0]) == old
    await one.pass_time(10)
    assert_whole(objects, one)
    assert authority in objects.bundles()[0]
    writes = len(objects.writes())
    await one.pass_time(29 * DAY, step=DAY / 2)
    assert len(objects.writes()) == writes
    await one.pass_time(2 * DAY, step=DAY / 2)  # beyond the end of the old pair
    assert objects.writes()[writes:] == [CHANGE, INJECT]
    assert authority not in objects.bundles()[0]
    assert_whole(objects, one)


@pytest.mark.case("fault 41")
async def test_an_expired_pair_is_not_ready_and_then_replaced(
    objects: Objects, replica: Make
) -> None:
    one = replica()
    await one.step()
    one.clocks.set_wall(91 * DAY)  # the machine slept
    assert one.keeper.problem() == "the certificate expired at 2026-04-01T12:00:00Z"
    await one.step()
    assert_whole(objects, one)
    assert one.changes[-1] == ""


@pytest.mark.case("fault 41")
@pytest.mark.parametrize(
    ("lifetime", "jump", "pairs"),
    [
        (90 * DAY, DAY, 1),
        (90 * DAY, -DAY, 2),  # by the new time it is not valid yet
        (3600.0, DAY, 2),
        (3600.0, -DAY, 2),
    ],
)
async def test_a_clock_that_jumps_costs_one_pair_at_most(
    objects: Objects, replica: Make, lifetime: float, jump: float, pairs: int
) -> None:
    one = replica(lifetime=lifetime)
    await one.step()
    one.clocks.go_on(600)
    one.clocks.set_wall(jump)
    await one.pass_time(600)
    assert objects.writes().count(CREATE) + objects.writes().count(CHANGE) == pairs
    assert_whole(objects, one)


async def test_two_clocks_that_never_agree_make_no_storm(objects: Objects, replica: Make) -> None:
    """Each takes the other's pair for expired, or for not valid yet."""
    one, two = replica(lifetime=3600.0), replica(lifetime=3600.0)
    two.clocks.set_wall(DAY)
    for _ in range(120):  # an hour
        for each in (one, two):
            each.clocks.go_on(30)
            await each.step()
    assert 2 * 10 < objects.writes().count(CHANGE) <= 2 * PAIRS_AN_HOUR


async def test_a_minute_of_skew_is_nothing(objects: Objects, replica: Make) -> None:
    ahead, behind = replica(), replica()
    ahead.clocks.set_wall(60)
    await ahead.step()
    await behind.step()
    assert objects.writes() == [CREATE, INJECT]
    assert_whole(objects, ahead, behind)


# --- replicas -----------------------------------------------------------------------------------


async def test_replicas_renew_together_once(objects: Objects, replica: Make) -> None:
    replicas = [replica() for _ in range(3)]
    for one in replicas:
        await one.step()
        one.clocks.go_on(61 * DAY)
    await asyncio.gather(*(one.step() for one in replicas))
    assert len(read_authorities(objects.data("previous-ca.crt"))) == 1
    for one in replicas:
        await one.pass_time(20)
    assert_whole(objects, *replicas)


async def test_a_replica_that_lags_behind_does_not_undo_the_bundle(
    objects: Objects, replica: Make
) -> None:
    clocks = Clocks()
    one, two = replica(clocks), replica(clocks)
    await one.step()
    await two.step()
    clocks.go_on(61 * DAY)
    await one.step()
    before = objects.writes()
    # It sees the new bundle before the Secret from which it follows.
    await two.keeper._bundle.named.ask()
    await two.keeper._keep_bundle()
    assert objects.writes() == before


async def test_a_renewed_pair_waits_while_nothing_trusts_it(
    objects: Objects, replica: Make
) -> None:
    one = replica()
    await one.step()
    old, bundle = objects.data("tls.crt"), objects.bundles()[0]
    forbidden = failed(403, "Forbidden", 'User "u" cannot patch resource "hooks" in API group "x"')
    objects.server.always("patch", HOOKS, forbidden)
    one.clocks.go_on(61 * DAY)
    await one.step()
    await one.pass_time(60)
    assert served(one, bundle) == old
    assert one.keeper.problem() == ""  # we can still be called
    assert one.keeper.notice().startswith("no permission to patch hooks.x: ")
    await one.pass_time(30 * DAY, step=DAY)
    assert "does not hold our authority: no permission to patch" in one.keeper.problem()


# --- failures -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verb", "path", "words"),
    [
        ("get", SECRET, "no permission to get secrets"),
        ("create", SECRETS, "no permission to create secrets"),
        ("get", HOOKS, "no permission to get validatingwebhookconfigurations"),
        ("patch", HOOKS, "no permission to patch validatingwebhookconfigurations"),
    ],
)
async def test_a_missing_permission_is_named(
    objects: Objects, replica: Make, verb: str, path: str, words: str
) -> None:
    resource = path.split("/")[-1 if verb == "create" else -2]
    message = f'User "u" cannot {verb} resource "{resource}" in API group "" in the namespace "n"'
    objects.server.always(verb, path, failed(403, "Forbidden", message))
    one = replica()
    await one.step()
    assert words in one.keeper.problem()
    assert (one.keeper.expires_at() is None) == (path != HOOKS)  # one part does not hold up another


async def test_while_the_server_is_away_the_pair_goes_on_serving(
    objects: Objects, replica: Make
) -> None:
    one = replica()
    await one.step()
    for verb, path in (("get", SECRET), ("get", HOOKS)):
        objects.server.always(verb, path, failed(503, "ServiceUnavailable", "starting"))
    await one.pass_time(DAY, step=3600)
    assert_whole(objects, one)
    assert one.keeper.notice() == "starting"


async def test_a_secret_that_must_not_be_changed_is_told(objects: Objects, replica: Make) -> None:
    objects.put(tls_crt=b"garbage")
    message = "data: Forbidden: field is immutable when `immutable` is set"
    objects.server.always("patch", SECRET, failed(422, "Invalid", message))
    one = replica()
    await one.step()
    assert one.keeper.problem() == (
        f"no certificate yet: Secret {NAMESPACE}/{NAME} is not there or not good: {message}"
    )


async def test_a_fault_of_ours_is_told_and_the_next_look_is_taken(
    objects: Objects, replica: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = replica()
    with monkeypatch.context() as broken:
        broken.setattr(secret, "issue", lambda *_: 1 / 0)
        await one.step()
    assert one.keeper.problem().endswith(": an internal error, which the log shows")
    await one.step()
    assert_whole(objects, one)


async def test_a_system_that_has_nothing_left_is_no_reason_for_another_pair(
    objects: Objects, replica: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    await replica().step()
    before, late = len(objects.writes()), replica()

    def none_left(*_: object) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patched:
        patched.setattr(os, "memfd_create", none_left)
        await late.step()
    assert len(objects.writes()) == before
    await late.step()
    assert_whole(objects, late)


async def test_the_key_is_in_no_log_and_in_no_message(objects: Objects, replica: Make) -> None:
    """Not even when somebody on the way answers with what was sent."""
    keys: list[str] = []

    def echo(asked: Asked) -> Reply:
        keys.append(asked.body["data"]["tls.key"])
        return failed(422, "Invalid", f"denied: data.tls.key={keys[-1]} is not welcome")

    objects.server.always("create", SECRETS, echo)
    one = replica()
    with capture_logs() as logs:
        await one.step(3)
        del objects.server.defaults["create", SECRETS]
        objects.put(tls_crt=b"garbage", tls_key=base64.b64decode(keys[0]))
        await one.step(3)
        keys.append(base64.b64encode(objects.data("tls.key")).decode())
    assert len(set(keys)) == 4
    shown = repr((logs, one.changes, one.keeper.problem(), one.keeper.notice()))
    assert "is not welcome" in shown
    for key in keys:
        assert not any(part in shown for part in (key[60:100], "PRIVATE"))


# --- the loop -----------------------------------------------------------------------------------


async def test_a_deletion_that_the_watch_tells_is_mended_at_once(
    objects: Objects, replica: Make
) -> None:
    """In the loop: no step is asked for, and no time goes by but the loop's own."""
    one = replica()
    await one.step()
    assert objects.secret is not None
    gone = objects.secret | {
        "metadata": objects.secret["metadata"] | {"resourceVersion": objects.next_version()}
    }
    old = objects.data("tls.crt")

    def delete(_asked: Asked) -> Reply:
        objects.secret = None
        objects.server.always("watch", SECRETS, HANG)
        return watched(event("DELETED", gone))

    objects.server.always("watch", SECRETS, delete)
    one.keeper._sleep = asyncio.sleep
    running = asyncio.create_task(one.keeper.run())
    await until(lambda: objects.secret is not None and objects.data("tls.crt") != old)
    assert objects.server.count("watch") > 0
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_the_loop_goes_on_after_failures_and_by_itself(
    objects: Objects, replica: Make
) -> None:
    """The clocks go on as fast as the loop sleeps: half a year of a machine that nobody looks at,
    whose watches are mute, so that it has to ask."""
    clocks = Clocks()
    one = replica(clocks)

    async def sleep(seconds: float) -> None:
        clocks.go_on(seconds * 10_000)
        await asyncio.sleep(0)

    one.keeper._sleep = sleep
    objects.server.on("create", SECRETS, *[failed(503, "ServiceUnavailable", "starting")] * 2)
    running = asyncio.create_task(one.keeper.run())
    await until(lambda: one.keeper.expires_at())
    first = one.keeper.expires_at()
    assert first is not None
    await until(lambda: one.keeper.expires_at() != first)
    second = one.keeper.expires_at()
    assert second is not None
    assert 60 * DAY <= (second - first).total_seconds() <= 64 * DAY
    assert objects.writes().count(CREATE) == 3
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_what_the_configuration_trusts_must_be_known_before_a_pair_is_exchanged(
    objects: Objects, replica: Make
) -> None:
    forbidden = failed(403, "Forbidden", 'User "u" cannot get resource "hooks" in API group "x"')
    objects.server.always("get", HOOKS, forbidden)
    one = replica()
    await one.step()
    old = objects.data("tls.crt")
    objects.secret = None
    await one.pass_time(60)
    assert objects.data("tls.crt") != old
    assert served(one, objects.data("previous-ca.crt")) == old
