"""Bearer tokens, judged by an API server that answers this and that."""

import pytest

from quota_translator.kube.client import Client
from quota_translator.kube.reviews import (
    ALLOWED_SECONDS,
    DENIED_SECONDS,
    KNOWN_SECONDS,
    REMEMBERED,
    Reviewer,
    Unreviewed,
)
from tests.kube.scripted import AWAY, Asked, FakeTime, Reply, Scripted, failed, reply

TOKENS = "/apis/authentication.k8s.io/v1/tokenreviews"
RIGHTS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
USER = {"username": "prometheus", "uid": "7", "groups": ["scrapers"], "extra": {"pod": ["p"]}}


def known(asked: Asked) -> Reply:
    """Everybody whose token begins with `good` is known, by the whole of it."""
    token = asked.body["spec"]["token"]
    if not token.startswith("good"):
        return reply({"status": {"authenticated": False, "error": "no such token"}}, status=201)
    user = USER | {"username": token}
    return reply({"status": {"authenticated": True, "user": user}}, status=201)


def right(allowed: bool) -> Reply:
    return reply({"status": {"allowed": allowed}}, status=201)


@pytest.fixture
def reviewer(client: Client, server: Scripted, fake: FakeTime) -> Reviewer:
    server.always("create", TOKENS, known)
    server.always("create", RIGHTS, right(True))
    return Reviewer(client, "/metrics", fake.now)


def asked(server: Scripted, path: str) -> list[Asked]:
    return [one for one in server.asked if one.path == path]


async def test_whoever_may_get_the_path_is_allowed(reviewer: Reviewer, server: Scripted) -> None:
    assert await reviewer.judge("good") == "allowed"
    token, access = server.asked
    assert token.body == {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenReview",
        "metadata": {},
        "spec": {"token": "good"},
    }
    assert access.body["kind"] == "SubjectAccessReview"
    assert access.body["spec"] == {
        "user": "good",
        "uid": "7",
        "groups": ["scrapers"],
        "extra": {"pod": ["p"]},
        "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
    }


async def test_answers_are_kept_for_their_time(
    reviewer: Reviewer, server: Scripted, fake: FakeTime
) -> None:
    async def requests(seconds: float) -> tuple[int, int]:
        fake.t += seconds
        await reviewer.judge("good")
        return len(asked(server, TOKENS)), len(asked(server, RIGHTS))

    assert await requests(0) == (1, 1)
    assert await requests(KNOWN_SECONDS - 1) == (1, 1)
    assert await requests(1) == (2, 1)
    assert await requests(ALLOWED_SECONDS - KNOWN_SECONDS) == (3, 2)


async def test_a_denial_is_kept_for_a_moment_only(
    reviewer: Reviewer, server: Scripted, fake: FakeTime
) -> None:
    server.always("create", RIGHTS, right(False))
    assert await reviewer.judge("good") == "denied"
    assert await reviewer.judge("good") == "denied"
    assert await reviewer.judge("bad") == "unknown"
    assert await reviewer.judge("bad") == "unknown"
    assert len(server.asked) == 3
    server.always("create", RIGHTS, right(True))
    fake.t += DENIED_SECONDS
    assert await reviewer.judge("good") == "allowed"


async def test_what_cannot_be_a_token_is_not_asked_about(
    reviewer: Reviewer, server: Scripted
) -> None:
    for token in ("", "x" * 20000):
        assert await reviewer.judge(token) == "unknown"
    assert server.asked == []


async def test_two_accounts_are_two_although_they_share_a_group(
    reviewer: Reviewer, server: Scripted
) -> None:
    def by_name(one: Asked) -> Reply:
        return right(one.body["spec"]["user"] == "good-a")

    server.always("create", RIGHTS, by_name)
    assert [await reviewer.judge(token) for token in ("good-a", "good-b")] == ["allowed", "denied"]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (failed(403, "Forbidden", 'cannot create resource "tokenreviews"'), "cannot create"),
        (AWAY, "connection broken"),
        (Reply(200, [b"<html>good</html>"]), "the answer cannot be read"),
    ],
)
async def test_no_answer_is_neither_yes_nor_no_and_is_not_kept(
    reviewer: Reviewer, server: Scripted, answer: Reply, why: str
) -> None:
    server.on("create", TOKENS, answer)
    with pytest.raises(Unreviewed, match=f"^TokenReview: .*{why}"):
        await reviewer.judge("good")
    assert await reviewer.judge("good") == "allowed"


async def test_an_answer_without_a_status_allows_nothing(
    reviewer: Reviewer, server: Scripted
) -> None:
    server.on("create", TOKENS, reply({}, status=201))
    assert await reviewer.judge("good") == "unknown"
    server.on("create", RIGHTS, reply({}, status=201))
    assert await reviewer.judge("good-2") == "denied"


async def test_what_is_remembered_is_bounded_and_no_token_is_kept(
    reviewer: Reviewer, server: Scripted
) -> None:
    for number in range(REMEMBERED + 10):
        await reviewer.judge(f"bad-{number}")
    assert len(reviewer._users) == REMEMBERED
    assert not any(b"bad" in key for key in reviewer._users)
