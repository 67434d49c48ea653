"""The endpoints, over real sockets on the loopback."""

import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import aiohttp
import pytest

from quota_translator.certs.tls import unvouched
from quota_translator.core.world import Clock
from quota_translator.errors import ConfigurationError
from quota_translator.health import OFF, Endpoints, Guard
from quota_translator.kube.reviews import Unreviewed, Verdict

ANY = "127.0.0.1:0"
OTHER = "127.0.0.2:0"


class Program:
    """What the endpoints ask."""

    def __init__(self) -> None:
        self.missing: list[str] = []
        self.scrapes = 0

    async def exposition(self, accept: str) -> tuple[bytes, str]:
        self.scrapes += 1
        return f"up 1 {accept}\n".encode(), "text/plain; version=1.0.0; charset=utf-8"


@asynccontextmanager
async def serving(
    program: Program, health: str = ANY, metrics: str = ANY
) -> AsyncIterator[Endpoints]:
    endpoints = Endpoints(health, metrics, lambda: program.missing, program.exposition)
    await endpoints.start()
    try:
        yield endpoints
    finally:
        await endpoints.stop()


async def get(endpoints: Endpoints, address: str, path: str) -> tuple[int, str, str]:
    host, port = endpoints.bound(address)
    async with aiohttp.ClientSession() as session:
        headers = {"Accept": "text/plain"}
        async with session.get(f"http://{host}:{port}{path}", headers=headers) as answer:
            return answer.status, await answer.text(), answer.headers["Content-Type"]


async def test_what_people_should_know_keeps_nobody_from_being_ready() -> None:
    program = Program()
    endpoints = Endpoints(ANY, OFF, lambda: (), program.exposition, lambda: ["it stands by"])
    await endpoints.start()
    assert (await get(endpoints, ANY, "/readyz"))[:2] == (200, "ok\nnote: it stands by\n")
    await endpoints.stop()


async def test_healthy_as_long_as_the_loop_answers_ready_only_when_nothing_is_missing() -> None:
    program = Program()
    async with serving(program) as endpoints:
        program.missing = ["Node is not read yet", "ClusterQueue is not served"]
        assert (await get(endpoints, ANY, "/healthz"))[:2] == (200, "ok\n")
        assert (await get(endpoints, ANY, "/readyz"))[:2] == (
            503,
            "not ready: Node is not read yet\nnot ready: ClusterQueue is not served\n",
        )
        program.missing = []
        assert (await get(endpoints, ANY, "/readyz"))[:2] == (200, "ok\n")
        program.missing = ["Node is not read any more"]
        assert (await get(endpoints, ANY, "/readyz"))[0] == 503


async def test_metrics_are_made_for_each_scrape_in_the_form_that_was_asked_for() -> None:
    program = Program()
    async with serving(program) as endpoints:
        answer = await get(endpoints, ANY, "/metrics")
        await get(endpoints, ANY, "/metrics")

    assert answer == (200, "up 1 text/plain\n", "text/plain; version=1.0.0; charset=utf-8")
    assert program.scrapes == 2


async def test_one_address_serves_everything_and_two_serve_their_own() -> None:
    async with serving(Program()) as together:
        assert [(await get(together, ANY, path))[0] for path in ("/healthz", "/metrics")] == [
            200,
            200,
        ]
    async with serving(Program(), health=ANY, metrics=OTHER) as apart:
        assert (await get(apart, ANY, "/healthz"))[0] == 200
        assert (await get(apart, ANY, "/metrics"))[0] == 404
        assert (await get(apart, OTHER, "/metrics"))[0] == 200
        assert (await get(apart, OTHER, "/readyz"))[0] == 404


async def test_an_address_that_is_off_serves_nothing() -> None:
    async with serving(Program(), metrics=OFF) as endpoints:
        assert (await get(endpoints, ANY, "/metrics"))[0] == 404
    async with serving(Program(), health=OFF, metrics=OFF) as silent:
        with pytest.raises(KeyError):
            silent.bound(OFF)


async def test_stop_closes_the_port_and_start_opens_it_again() -> None:
    endpoints = Endpoints(ANY, OFF, list, Program().exposition)
    await endpoints.start()
    await endpoints.start()
    host, port = endpoints.bound(ANY)
    await endpoints.stop()
    await endpoints.stop()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, port), timeout=5).close()
    await endpoints.start()
    assert (await get(endpoints, ANY, "/healthz"))[0] == 200
    await endpoints.stop()


async def test_a_taken_address_is_named_and_nothing_stays_open() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        endpoints = Endpoints(ANY, address, list, Program().exposition)

        with pytest.raises(ConfigurationError) as caught:
            await endpoints.start()

        assert f"cannot listen on {address} for /metrics" in str(caught.value)
        assert "choose another address, or 0 for none" in str(caught.value)
        with pytest.raises(KeyError):
            endpoints.bound(ANY)


@pytest.mark.parametrize(
    "address",
    [
        pytest.param("127.0.0.1:many", id="a port that is no number"),
        pytest.param("127.0.0.1:70000", id="a port beyond the last"),
        pytest.param("203.0.113.1:8080", id="an address of another machine"),
    ],
)
async def test_an_address_that_cannot_be_is_an_error_of_the_configuration(address: str) -> None:
    endpoints = Endpoints(address, OFF, list, Program().exposition)

    with pytest.raises(ConfigurationError, match="cannot listen on"):
        await endpoints.start()


async def test_an_address_of_ip_version_6_stands_in_brackets() -> None:
    if not _has_ipv6():
        pytest.skip("this machine has no IPv6 loopback")
    address = "[::1]:0"
    async with serving(Program(), health=address, metrics=OFF) as endpoints:
        assert endpoints.bound(address)[0] == "::1"


def _has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


async def judge(token: str) -> Verdict:
    if token == "nobody knows":
        raise Unreviewed("TokenReview: no answer in time")
    return {"good": "allowed", "poor": "denied"}.get(token, "unknown")  # type: ignore[return-value]


@asynccontextmanager
async def guarded(program: Program) -> AsyncIterator[Endpoints]:
    tls = unvouched(("localhost",), Clock(datetime.now(UTC), 0.0))
    notes: tuple[str, ...] = ()
    endpoints = Endpoints(
        ANY, OTHER, lambda: (), program.exposition, lambda: notes, Guard(tls, judge)
    )
    await endpoints.start()
    try:
        yield endpoints
    finally:
        await endpoints.stop()


@pytest.mark.parametrize(
    ("authorization", "status", "text"),
    [
        pytest.param("Bearer good", 200, "up 1", id="one who may"),
        pytest.param("bearer  good ", 200, "up 1", id="in another spelling"),
        pytest.param("Bearer poor", 403, "needs the verb get on the nonResourceURL", id="may not"),
        pytest.param("Bearer bad", 401, "a bearer token that the", id="a stranger"),
        pytest.param("Basic good", 401, "a bearer token that the", id="a password"),
        pytest.param("", 401, "a bearer token that the", id="nothing"),
        pytest.param(
            "Bearer nobody knows", 503, "cannot ask the API server: TokenReview", id="no answer"
        ),
    ],
)
async def test_guarded_metrics_are_for_those_who_may_get_them(
    authorization: str, status: int, text: str
) -> None:
    program = Program()
    async with guarded(program) as endpoints, aiohttp.ClientSession() as session:
        host, port = endpoints.bound(OTHER)
        url, headers = f"https://{host}:{port}/metrics", {"Authorization": authorization}
        async with session.get(url, headers=headers, ssl=False) as answer:
            assert answer.status == status
            assert text in await answer.text()
            assert ("WWW-Authenticate" in answer.headers) is (status == 401)
    assert program.scrapes == (status == 200)


async def test_probes_need_no_token_and_a_guarded_port_speaks_tls() -> None:
    async with guarded(Program()) as endpoints:
        assert (await get(endpoints, ANY, "/readyz"))[0] == 200
        with pytest.raises(aiohttp.ClientError):
            await get(endpoints, OTHER, "/metrics")
        old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        host, port = endpoints.bound(OTHER)
        url = f"https://{host}:{port}/metrics"
        async with aiohttp.ClientSession() as session, session.get(url, ssl=old) as answer:
            assert answer.status == 401


def test_guarded_metrics_and_probes_cannot_share_an_address() -> None:
    tls = unvouched(("localhost",), Clock(datetime.now(UTC), 0.0))
    with pytest.raises(ConfigurationError, match="also serves the probes"):
        Endpoints(ANY, ANY, list, Program().exposition, list, Guard(tls, judge))
