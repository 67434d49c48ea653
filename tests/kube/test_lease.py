"""The requests behind one Lease, against a server that answers this and that."""

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from quota_translator.errors import ApiError, Forbidden, Malformed, NotFound, Unavailable
from quota_translator.kube.client import Client
from quota_translator.kube.lease import MOST_SECONDS, LeaseLock
from tests.kube.scripted import HANG, FakeTime, Reply, Scripted, failed, reply

ALL = "/apis/coordination.k8s.io/v1/namespaces/platform/leases"
ONE = f"{ALL}/quota-translator"
MOMENT = datetime(2026, 11, 30, 10, 0, 0, 7, tzinfo=timezone(timedelta(hours=1)))
STAMP = "2026-11-30T09:00:00.000007Z"
HTML = Reply(502, [b"<html>bad gateway</html>"], {"Content-Type": "text/html"})


def lease(holder: str | None = "us", version: str = "5", **spec: Any) -> dict[str, Any]:
    held = {
        "holderIdentity": holder,
        "leaseDurationSeconds": 15,
        "acquireTime": "2026-11-30T08:00:00.000000Z",
        "renewTime": "2026-11-30T08:59:58.000000Z",
        "leaseTransitions": 3,
    }
    return {"metadata": {"uid": "u", "resourceVersion": version}, "spec": held | spec}


@pytest.fixture
async def lock(client: Client, fake: FakeTime) -> LeaseLock:
    return LeaseLock(
        client,
        "platform",
        "quota-translator",
        "us",
        14.2,
        steady=fake.now,
        wall=lambda: MOMENT,
    )


def soon(fake: FakeTime) -> float:
    return fake.now() + 10


async def test_a_lease_that_is_not_there_is_made(
    server: Scripted, lock: LeaseLock, fake: FakeTime
) -> None:
    server.on("create", ALL, reply(lease(version="1")))
    assert await lock.take(soon(fake))
    assert server.last("create").body == {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "quota-translator", "namespace": "platform"},
        "spec": {
            "holderIdentity": "us",
            "leaseDurationSeconds": 15,  # whole seconds, never fewer than asked for
            "acquireTime": STAMP,
            "renewTime": STAMP,
            "leaseTransitions": 0,
        },
    }
    assert (lock.uid, lock.confirmed_at) == ("u", fake.now())


async def test_a_renewal_is_one_patch_of_the_version_that_was_seen(
    server: Scripted, lock: LeaseLock, fake: FakeTime
) -> None:
    server.on("create", ALL, reply(lease(version="1")))
    server.on("patch", ONE, reply(lease(version="2")), reply(lease(version="3")))
    await lock.take(soon(fake))
    for version in ("1", "2"):
        fake.t += 2
        assert await lock.renew(soon(fake))
        patch = server.last("patch").body
        assert patch["metadata"] == {"resourceVersion": version, "uid": "u"}
        assert patch["spec"]["renewTime"] == STAMP
        assert patch["spec"]["acquireTime"] == "2026-11-30T08:00:00.000000Z"
        assert patch["spec"]["leaseTransitions"] == 3
        assert lock.confirmed_at == fake.now()
    assert server.verbs() == ["get", "create", "patch", "patch"]


async def test_anothers_lease_is_free_when_it_was_seen_unchanged_for_its_duration(
    server: Scripted, lock: LeaseLock, fake: FakeTime
) -> None:
    server.always("get", ONE, reply(lease("other")))
    server.always("patch", ONE, reply(lease("us", "6")))
    assert not await lock.take(soon(fake))
    assert lock.free_in() == 15
    fake.t += 14.9
    assert not await lock.take(soon(fake))
    server.always("get", ONE, reply(lease("other", "6", renewTime="2026-11-30T08:59:59.000000Z")))
    assert not await lock.take(soon(fake))  # it was renewed
    fake.t += 15
    assert await lock.take(soon(fake))
    assert server.last("patch").body["spec"]["leaseTransitions"] == 4
    assert server.last("patch").body["spec"]["acquireTime"] == STAMP


@pytest.mark.parametrize(("stated", "waited"), [(None, 15), (0, 15), (2**31 - 1, 600)])
async def test_a_duration_that_makes_no_sense_keeps_nobody_out_for_ever(
    server: Scripted, lock: LeaseLock, fake: FakeTime, stated: int | None, waited: float
) -> None:
    server.always("get", ONE, reply(lease("other", leaseDurationSeconds=stated)))
    assert not await lock.take(soon(fake))
    assert lock.free_in() == waited


async def test_a_count_of_transitions_that_is_full_keeps_nobody_out(
    server: Scripted, lock: LeaseLock, fake: FakeTime
) -> None:
    """The API's field has 32 bits, and anybody who may write the Lease can fill it."""
    server.always("get", ONE, reply(lease("", leaseTransitions=2**31 - 1)))
    server.always("patch", ONE, reply(lease("us", "6")))
    assert await lock.take(soon(fake))
    assert server.last("patch").body["spec"]["leaseTransitions"] == 2**31 - 1


async def test_of_two_who_take_a_free_lease_one_has_it(
    server: Scripted, lock: LeaseLock, fake: FakeTime
) -> None:
    server.on("create", ALL, failed(409, "AlreadyExists"))
    assert not await lock.take(soon(fake))
    server.on("get", ONE, reply(lease("")))
    server.on("patch", ONE, failed(409, "Conflict"))
    assert not await lock.take(soon(fake))
    # Another process of the same cluster may have deleted it in between, too.
    server.on("get", ONE, reply(lease("")))
    server.on("patch", ONE, failed(404, "NotFound"))
    assert not await lock.take(soon(fake))
    server.on("create", ALL, reply(lease(version="1")))
    assert await lock.take(soon(fake))
    assert lock.confirmed_at == fake.now()


async def test_a_renewal_that_meets_another_version_looks_who_it_is(
    server: Scripted, lock: LeaseLock, fake: FakeTime
) -> None:
    server.on("create", ALL, reply(lease(version="1")))
    await lock.take(soon(fake))
    server.on("patch", ONE, failed(409, "Conflict"), reply(lease(version="9")))
    server.on("get", ONE, reply(lease(version="8")))
    assert await lock.renew(soon(fake))
    assert server.last("patch").body["metadata"]["resourceVersion"] == "8"
    server.on("patch", ONE, failed(409, "Conflict"))
    server.on("get", ONE, reply(lease("other", "12")))
    assert not await lock.renew(soon(fake))
    assert lock.holder == "other"
    assert not await lock.release(soon(fake))  # it is not ours to give back


async def test_it_is_given_back_empty(server: Scripted, lock: LeaseLock, fake: FakeTime) -> None:
    assert not await lock.release(soon(fake))  # nothing was ever taken
    server.on("create", ALL, reply(lease(version="1")))
    await lock.take(soon(fake))
    server.on("patch", ONE, reply(lease("", "2")))
    assert await lock.release(soon(fake))
    spec = server.last("patch").body["spec"]
    assert (spec["holderIdentity"], spec["leaseDurationSeconds"]) == ("", 1)
    assert spec["leaseTransitions"] == 3


async def test_it_is_given_back_although_a_renewal_came_in_between(
    server: Scripted, lock: LeaseLock, fake: FakeTime
) -> None:
    """The process was told to end while a renewal was under way, and the server did that one."""
    server.on("create", ALL, reply(lease(version="1")))
    await lock.take(soon(fake))
    server.on("patch", ONE, Reply(then="away"), failed(409, "Conflict"), reply(lease("", "3")))
    with pytest.raises(Unavailable):
        await lock.renew(soon(fake))
    server.on("get", ONE, reply(lease(version="2")))
    assert await lock.release(soon(fake))
    patch = server.last("patch").body
    assert patch["metadata"]["resourceVersion"] == "2"
    assert patch["spec"]["holderIdentity"] == ""
    assert not lock.is_ours


@pytest.mark.parametrize(
    ("found", "patches"),
    [
        pytest.param(reply(lease("other", "2")), 1, id="anothers"),
        pytest.param(failed(404, "NotFound"), 1, id="gone"),  # it is not made again
        pytest.param(reply(lease(version="2")), 2, id="ours, and written by somebody again"),
    ],
)
async def test_what_is_not_as_it_was_seen_is_looked_at_once(
    server: Scripted, lock: LeaseLock, fake: FakeTime, found: Reply, patches: int
) -> None:
    server.on("create", ALL, reply(lease(version="1")))
    await lock.take(soon(fake))
    server.always("patch", ONE, failed(409, "Conflict"))
    server.on("get", ONE, found)
    assert not await lock.release(soon(fake))
    assert server.count("patch") == patches
    assert server.count("create") == 1
    assert lock.is_ours is (patches == 2)


@pytest.mark.case("fault 29")
@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        pytest.param(HTML, Unavailable, id="HTML with a 502"),
        pytest.param(
            Reply(200, [b"<html>sign in</html>"], {"Content-Type": "text/html"}),
            Malformed,
            id="HTML with a 200",
        ),
        pytest.param(reply({"spec": {"leaseTransitions": "many"}}), Malformed, id="no Lease"),
        pytest.param(failed(401, "Unauthorized"), ApiError, id="401"),
        pytest.param(
            failed(403, "Forbidden", 'User "u" cannot patch resource "leases" in API group "c"'),
            Forbidden,
            id="403",
        ),
        pytest.param(failed(500, "InternalError"), Unavailable, id="500"),
        pytest.param(Reply(then="reset"), Unavailable, id="reset"),
    ],
)
async def test_what_is_no_answer_renews_nothing(
    server: Scripted, lock: LeaseLock, fake: FakeTime, answer: Reply, kind: type[ApiError]
) -> None:
    server.on("create", ALL, reply(lease(version="1")))
    await lock.take(soon(fake))
    confirmed = lock.confirmed_at
    fake.t += 2
    server.always("patch", ONE, answer)
    with pytest.raises(kind):
        await lock.renew(soon(fake))
    assert (lock.confirmed_at, lock.holder) == (confirmed, "us")


async def test_a_namespace_that_is_not_there_is_told(
    server: Scripted, lock: LeaseLock, fake: FakeTime
) -> None:
    server.on("create", ALL, failed(404, "NotFound", 'namespaces "platform" not found'))
    with pytest.raises(NotFound, match="platform"):
        await lock.take(soon(fake))


async def test_a_call_that_hangs_ends_before_the_deadline(
    server: Scripted, lock: LeaseLock, fake: FakeTime
) -> None:
    server.always("get", ONE, HANG)
    with pytest.raises(Unavailable, match="no answer in time"):
        await lock.take(fake.now() + 0.1)
    assert MOST_SECONDS < 10.0  # less than the default deadline, so that there is another try
