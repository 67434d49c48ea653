"""One object by its name: what the watch tells, and what is asked while it tells nothing."""

import asyncio
import json
from collections.abc import AsyncIterator

import msgspec
import pytest

from quota_translator.errors import Malformed, Unavailable
from quota_translator.kube.client import Client
from quota_translator.kube.named import Named
from quota_translator.kube.resources import SECRETS
from quota_translator.kube.secrets import SecretRecord, read_secret
from tests.kube.scripted import (
    HANG,
    FakeTime,
    Scripted,
    event,
    failed,
    listed,
    reply,
    until,
    watched,
)

PATH = "/api/v1/namespaces/ns/secrets"
ONE = f"{PATH}/one"


def secret(version: str = "101", **data: str) -> dict[str, object]:
    metadata = {"name": "one", "namespace": "ns", "resourceVersion": version}
    return {"metadata": metadata, "data": data}


class Followed:
    def __init__(self, client: Client, fake: FakeTime) -> None:
        self.changes = 0
        self.named = Named[SecretRecord](
            client,
            msgspec.structs.replace(SECRETS, within="ns"),
            "one",
            read_secret,
            lambda record: record.version,
            self._changed,
            now=fake.now,
            sleep=fake.sleep,
            rand=lambda: 0.5,
        )

    def _changed(self) -> None:
        self.changes += 1

    @property
    def version(self) -> str:
        record = self.named.record
        return record.version if record else ""


@pytest.fixture
def one(client: Client, fake: FakeTime) -> Followed:
    return Followed(client, fake)


@pytest.fixture
async def running(one: Followed) -> AsyncIterator[Followed]:
    task = asyncio.create_task(one.named.run())
    yield one
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_lists_and_watches_ask_for_nothing_but_this_object(
    server: Scripted, running: Followed
) -> None:
    server.on("list", PATH, listed(secret("99"), version="100"))
    await until(lambda: server.count("watch"))
    assert running.version == "99"
    assert {a.query["fieldSelector"] for a in server.asked} == {"metadata.name=one"}
    assert {a.path for a in server.asked} == {PATH}


async def test_the_watch_tells_what_happens_and_nothing_more_is_asked(
    server: Scripted, running: Followed
) -> None:
    server.on("list", PATH, listed(version="100"))
    lines = (event("ADDED", secret("101")), event("MODIFIED", secret("102")))
    server.on("watch", PATH, watched(*lines))
    await until(lambda: running.version == "102")
    assert running.named.known
    assert running.named.reason == ""
    assert running.changes == 3
    await running.named.ask_if_deaf()
    assert server.count("get") == 0


async def test_an_object_that_goes_is_gone(server: Scripted, running: Followed) -> None:
    server.on("list", PATH, listed(secret("99"), version="100"))
    server.on("watch", PATH, watched(event("DELETED", secret("101"))))
    await until(lambda: running.named.known and running.named.record is None)


async def test_without_a_watch_it_is_asked_for(server: Scripted, one: Followed) -> None:
    assert not one.named.known
    server.on("get", ONE, reply(secret("7")), failed(404, "NotFound"), reply(secret("9")))
    for version in ("7", "", "9"):
        await one.named.ask_if_deaf()
        assert one.named.known
        assert one.version == version


async def test_without_the_right_to_watch_it_is_asked_for(
    server: Scripted, running: Followed
) -> None:
    server.always("list", PATH, failed(403, "Forbidden", 'User "u" cannot list resource "secrets"'))
    server.always("get", ONE, reply(secret("7")))
    await until(lambda: "no permission" in running.named.reason)
    await running.named.ask_if_deaf()
    assert running.version == "7"


async def test_a_failure_changes_nothing_of_what_is_known(server: Scripted, one: Followed) -> None:
    server.on("get", ONE, reply(secret("7")), failed(503, "ServiceUnavailable", "no"))
    await one.named.ask()
    with pytest.raises(Unavailable):
        await one.named.ask()
    assert one.version == "7"


async def test_the_answer_of_a_write_counts_at_once_and_an_older_watch_does_not_undo_it(
    server: Scripted, running: Followed
) -> None:
    server.on("list", PATH, listed(secret("99"), version="100"))
    server.on("watch", PATH, watched(event("MODIFIED", secret("104")), then="end"), HANG)
    await until(lambda: running.version)
    running.named.take(json.dumps(secret("105")).encode())
    await until(lambda: server.count("watch") == 2)
    assert running.version == "105"


async def test_it_is_called_by_its_kind_and_place(one: Followed) -> None:
    assert one.named.title == "Secret ns/one"


# --- Secrets ------------------------------------------------------------------------------------


def test_the_content_of_a_secret_is_shown_nowhere() -> None:
    record = read_secret(json.dumps(secret(key="aHVzaA==")).encode())
    assert record.data == {"key": b"hush"}
    assert "hush" not in repr(record)
    assert "aHVzaA" not in repr(record)


@pytest.mark.parametrize(
    "body", [b"<html>", b'{"metadata":{}}', json.dumps(secret(k="!")).encode()]
)
def test_what_is_no_secret(body: bytes) -> None:
    with pytest.raises(Malformed, match=r"^unreadable Secret$"):
        read_secret(body)


def test_a_secret_without_data_is_empty() -> None:
    assert read_secret(b'{"metadata":{"name":"one"}}').data == {}
    assert read_secret(b'{"metadata":{"name":"one"},"data":{"k":null}}').data == {"k": b""}
