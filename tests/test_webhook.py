"""The webhook over TLS: what comes is not always what it should be, and the answer always is."""

from __future__ import annotations

import asyncio
import io
import json
import ssl
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
import trustme

from quota_translator.core.admission import stand
from quota_translator.core.options import Options
from quota_translator.core.webhookconfig import PATH
from quota_translator.core.world import Flavor, QuotaNode, World
from quota_translator.errors import ApiError, ConfigurationError, Unavailable
from quota_translator.webhook import BODY_LIMIT, Webhook
from tests.core.build import node, root, team

KIND = {"group": "quota-translator.dev", "version": "v1beta1", "kind": "AcceleratorQuota"}
GUIDE = (
    root(status={"capacity": [{
        "resourceName": "nvidia.com/gpu", "resourceFlavor": "a100", "highWaterMark": "32",
    }]}),
    node("ml", gpu=24),
    team("a", gpu=16, parent="ml"),
    team("b", gpu=8, parent="ml"),
)  # fmt: skip


class FakeTree:
    """In place of the lists of a server: these nodes, or this failure."""

    def __init__(self, nodes: tuple[QuotaNode, ...] = GUIDE) -> None:
        self.tree = nodes
        self.failure: ApiError | None = None
        self.lists = 0

    async def nodes(self) -> tuple[QuotaNode, ...]:
        self.lists += 1
        if self.failure is not None:
            raise self.failure
        return self.tree


class Asked:
    """A webhook that is being served, and somebody who asks it."""

    def __init__(self, session: aiohttp.ClientSession, url: str, live: FakeTree) -> None:
        self.session, self.url, self.live = session, url, live
        self.observed: list[tuple[str, str, str]] = []

    async def post(self, body: bytes, kind: str = "application/json") -> tuple[int, bytes]:
        headers = {"Content-Type": kind}
        async with self.session.post(self.url, data=io.BytesIO(body), headers=headers) as answer:
            return answer.status, await answer.read()

    async def ask(self, request: dict[str, Any], **envelope: Any) -> dict[str, Any]:
        review = {
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "request": {"uid": "u-1", "kind": KIND, **request},
        } | envelope
        code, body = await self.post(json.dumps(review).encode())
        assert code == 200, body
        answer: dict[str, Any] = json.loads(body)
        assert (answer["apiVersion"], answer["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
        assert answer["response"]["uid"] == "u-1"
        found: dict[str, Any] = answer["response"]
        return found


Serve = Callable[..., Any]


@asynccontextmanager
async def serving(deny: str = "", live: FakeTree | None = None) -> AsyncIterator[Asked]:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    trust = ssl.create_default_context()
    authority.configure_trust(trust)
    tree = live or FakeTree()
    observed: list[tuple[str, str, str]] = []
    webhook = Webhook(
        "127.0.0.1:0",
        context,
        tree,  # type: ignore[arg-type]
        lambda: World(quotas=None, flavors=(Flavor("a100"),)),
        Options(),
        frozenset(deny.split()),
        lambda operation, outcome, reason, _seconds: observed.append((operation, outcome, reason)),
    )
    await webhook.start()
    host, port = webhook.bound()
    connector = aiohttp.TCPConnector(ssl=trust)
    try:
        async with aiohttp.ClientSession(connector=connector) as session:
            asked = Asked(session, f"https://{host}:{port}{PATH}", tree)
            asked.observed = observed
            yield asked
    finally:
        await webhook.stop()
        await asyncio.sleep(0.01)  # connections are closed in the loop's next turns


def quota(name: str, nominal: object, parent: str = "ml", **metadata: Any) -> dict[str, Any]:
    budget = {"resourceName": "nvidia.com/gpu", "resourceFlavor": "a100", "nominal": nominal}
    return {
        "apiVersion": "quota-translator.dev/v1beta1",
        "kind": "AcceleratorQuota",
        "metadata": {"name": name, **metadata},
        "spec": {"role": "ClusterQueue", "parentRef": {"name": parent}, "budgets": [budget]},
    }


def update(name: str, before: object, after: object, **more: Any) -> dict[str, Any]:
    old, new = quota(name, before), quota(name, after)
    return {"operation": "UPDATE", "object": new, "oldObject": old, **more}


@pytest.mark.case("A-46", "A-52", "fault 42")
@pytest.mark.parametrize("dry_run", [False, True])
async def test_a_denial_says_what_the_guide_says_dry_run_or_not(dry_run: bool) -> None:
    async with serving() as asked:
        found = await asked.ask(update("a", "16", "20", dryRun=dry_run))
        assert not found["allowed"]
        assert found["status"]["code"] == 403
        said = "ml: budget nvidia.com/gpu on a100 is 24 but its children total 28"
        assert found["status"]["message"].startswith(said)
        assert (await asked.ask(update("a", "16", "12", dryRun=dry_run)))["allowed"]
        assert asked.observed == [
            ("UPDATE", "denied", "ContainmentViolated"),
            ("UPDATE", "allowed", ""),
        ]


async def test_a_wrong_field_is_in_the_details() -> None:
    async with serving() as asked:
        found = await asked.ask(update("a", "16", "1.5"))
        assert (found["status"]["code"], found["status"]["reason"]) == (422, "Invalid")
        details = found["status"]["details"]
        assert (details["kind"], details["name"]) == ("AcceleratorQuota", "a")
        assert [cause["field"] for cause in details["causes"]] == ["spec.budgets[0].nominal"]


@pytest.mark.case("A-55")
async def test_marks_are_those_of_roots_live_status() -> None:
    async with serving() as asked:
        asked.live.tree = (*GUIDE[:1], team("a", gpu=16, parent="root"))
        request = {"operation": "CREATE", "object": quota("c", "40", "root")}
        found = await asked.ask(request)
        assert found["allowed"]
        assert "the cluster's peak capacity is 32" in found["warnings"][0]
        assert asked.observed == [("CREATE", "warned", "OverMark")]
    async with serving("OverMark") as asked:
        asked.live.tree = (*GUIDE[:1], team("a", gpu=16, parent="root"))
        assert not (await asked.ask(request))["allowed"]


@pytest.mark.case("A-51", "fault 43")
async def test_without_a_list_the_answer_is_no_and_says_why() -> None:
    async with serving() as asked:
        asked.live.failure = Unavailable("etcd is down", status=503)
        found = await asked.ask(update("a", "16", "12"))
        assert (found["allowed"], found["status"]["code"]) == (False, 500)
        assert "cannot list the live AcceleratorQuotas" in found["status"]["message"]
        assert "etcd is down" in found["status"]["message"]
        assert asked.observed == [("UPDATE", "failed", "Unavailable")]


@pytest.mark.case("A-51", "fault 42")
@pytest.mark.parametrize(
    "request_",
    [
        pytest.param({"operation": "CREATE"}, id="no-object"),
        pytest.param({"operation": "CREATE", "object": {}}, id="an-empty-object"),
        pytest.param({"operation": "CREATE", "object": {"spec": {}}}, id="no-name"),
        pytest.param({"operation": "DELETE"}, id="delete-without-an-old-object"),
        pytest.param({"operation": "UPDATE", "oldObject": quota("a", "1")}, id="no-new-object"),
    ],
)
async def test_an_object_that_cannot_be_read_is_a_bad_request(request_: dict[str, Any]) -> None:
    async with serving() as asked:
        found = await asked.ask(request_)
        assert (found["allowed"], found["status"]["code"]) == (False, 400)
        assert asked.live.lists == 0


@pytest.mark.case("fault 42")
@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "not an AdmissionReview"),
        (b"<html>", "not an AdmissionReview"),
        (b'{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1beta1"}', "v1beta1"),
        (b'{"kind": "Pod", "apiVersion": "admission.k8s.io/v1"}', "not an AdmissionReview"),
        (b'{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1"}', "without a request"),
        (b'{"apiVersion": "admission.k8s.io/v1", "request": {"operation": 3}}', "not an Admission"),
    ],
)
async def test_a_body_that_is_no_review_is_400(body: bytes, words: str) -> None:
    async with serving() as asked:
        code, text = await asked.post(body)
        assert code == 400
        assert words in text.decode()
        assert asked.observed == [("unknown", "failed", "Unreadable")]


@pytest.mark.case("fault 42")
async def test_large_bodies_are_read_up_to_the_limit() -> None:
    async with serving() as asked:
        large = update("a", "16", "12")
        large["object"]["metadata"]["annotations"] = {"padding": "x" * 3 * 1024 * 1024}
        assert (await asked.ask(large))["allowed"]
        code, _ = await asked.post(b"x" * (BODY_LIMIT + 1))
        assert code == 413


@pytest.mark.case("fault 42")
async def test_metadata_alone_is_never_judged_and_other_operations_pass() -> None:
    broken = team("a", gpu=99, parent="nowhere")
    async with serving(live=FakeTree((root(), broken))) as asked:
        old = quota("a", "99", "nowhere", finalizers=["quota-translator.dev/accelerator-quota"])
        new = quota("a", "99", "nowhere", deletionTimestamp="2026-12-01T00:00:00Z")
        request = {"operation": "UPDATE", "object": new, "oldObject": old}
        assert (await asked.ask(request))["allowed"]
        assert (await asked.ask({"operation": "CONNECT"}))["allowed"]
        assert (await asked.ask({"operation": "x" * 99, "object": quota("b", "1")}))["allowed"]
        status = {"operation": "UPDATE", "subResource": "status", "object": quota("a", "1")}
        assert (await asked.ask(status))["allowed"]
        assert asked.live.lists == 0  # so that they pass also where no list can be had
        assert [seen[0] for seen in asked.observed] == ["UPDATE", "other", "other", "UPDATE"]


@pytest.mark.case("fault 42")
async def test_a_deletion_needs_no_more_than_a_name() -> None:
    """An API server sends the object that goes; an old one, or a strange caller, may not."""
    async with serving() as asked:
        found = await asked.ask({"operation": "DELETE", "name": "ml"})
        assert found["status"]["message"].startswith("ml: 2 node(s) name it as their parent")
        assert (await asked.ask({"operation": "DELETE", "name": "b"}))["allowed"]
        assert (await asked.ask({"operation": "DELETE", "name": "not-there"}))["allowed"]


@pytest.mark.case("fault 42")
async def test_another_content_type_is_415() -> None:
    async with serving() as asked:
        code, text = await asked.post(b"a: 1", "application/yaml")
        assert (code, text) == (415, b"send application/json\n")
        assert asked.observed == [("unknown", "failed", "Unreadable")]


async def test_a_failure_of_ours_is_an_answer_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("quota_translator.webhook.judge", broken)
    async with serving() as asked:
        found = await asked.ask(update("a", "16", "12"))
        assert (found["allowed"], found["status"]["code"]) == (False, 500)
        assert "deciding failed unexpectedly" in found["status"]["message"]
        assert asked.observed == [("UPDATE", "failed", "Unexpected")]


async def test_the_tree_as_it_is_is_judged_once_for_lists_that_bring_nothing_new(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    judged: list[int] = []

    def counting(nodes: tuple[QuotaNode, ...], context: Any) -> Any:
        judged.append(len(nodes))
        return stand(nodes, context)

    monkeypatch.setattr("quota_translator.webhook.stand", counting)
    async with serving() as asked:
        await asyncio.gather(*(asked.ask(update("a", "16", "12")) for _ in range(20)))
        asked.live.tree = (*GUIDE,)  # another list of the same records
        assert (await asked.ask(update("a", "16", "12")))["allowed"]
        assert judged == [4]
        asked.live.tree = (*GUIDE, team("c", gpu=4, parent="ml"))
        assert (await asked.ask(update("a", "16", "12")))["allowed"]
        assert judged == [4, 5]


async def test_a_large_tree_is_judged_in_a_thread_and_the_loop_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    where: list[threading.Thread] = []

    def watched(*given: Any) -> Any:
        where.append(threading.current_thread())
        return stand(*given)

    monkeypatch.setattr("quota_translator.webhook.stand", watched)
    many = [team(f"t-{i:04}", gpu=1, parent="ml") for i in range(1000)]
    async with serving(live=FakeTree((root(), node("ml", gpu=1000), *many))) as asked:
        found = await asked.ask({"operation": "CREATE", "object": quota("late", "1")})
        assert "children total 1001" in found["status"]["message"]
    assert where
    assert threading.main_thread() not in where


async def test_an_address_that_is_taken_is_told_with_the_option() -> None:
    async with serving() as asked:
        port = asked.url.split(":")[2].split("/")[0]
        other = Webhook(
            f"127.0.0.1:{port}",
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER),
            FakeTree(),  # type: ignore[arg-type]
            lambda: World(quotas=None),
            Options(),
            frozenset(),
            lambda *_: None,
        )
        with pytest.raises(ConfigurationError, match="--webhook-bind-address"):
            await other.start()
