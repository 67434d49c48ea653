"""Handshakes, two hundred a second, while certificates and authorities come and go."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web

from tests.certs.server import DAY, NO_CHECK_TIME, Objects, Replica
from tests.kube.scripted import until

Make = Callable[..., Replica]
PER_SECOND = 200
LAG_SECONDS = 0.05  # how much later than the configuration changes an API server knows of it


class ApiServer:
    """Calls the webhook as an API server does: a new connection, the bundle of a moment ago."""

    def __init__(self, objects: Objects, ports: list[int]) -> None:
        self.objects, self.ports = objects, ports
        self.done, self.failed = 0, list[str]()

    async def call(self, number: int, bundle: bytes) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cadata=bundle.decode())
        context.verify_flags |= NO_CHECK_TIME
        url = f"https://127.0.0.1:{self.ports[number % len(self.ports)]}/"
        try:
            connector = aiohttp.TCPConnector(ssl=context, force_close=True)
            async with aiohttp.ClientSession(connector=connector) as session, session.get(url) as r:
                assert await r.text() == "served"
                self.done += 1
        except (aiohttp.ClientError, OSError) as error:
            self.failed.append(repr(error))

    async def run(self) -> None:
        """Ask the configuration for its bundle, and use it a moment later."""
        loop = asyncio.get_running_loop()
        known = [(loop.time(), self.objects.bundles()[0])]
        async with asyncio.TaskGroup() as group:
            number, begun = 0, loop.time()
            while True:
                known.append((loop.time(), self.objects.bundles()[0]))
                old_enough = [b for t, b in known if t <= loop.time() - LAG_SECONDS]
                group.create_task(self.call(number, (old_enough or [known[0][1]])[-1]))
                number += 1
                await asyncio.sleep(max(0.0, begun + number / PER_SECOND - loop.time()))


@asynccontextmanager
async def serving(one: Replica) -> AsyncIterator[int]:
    async def answer(_request: web.Request) -> web.Response:
        return web.Response(text="served")

    app = web.Application()
    app.router.add_get("/", answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=one.keeper.context).start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


@pytest.mark.case("fault 41")
async def test_no_handshake_fails_while_pairs_and_authorities_rotate(
    objects: Objects, replica: Make
) -> None:
    one, two = replica(), replica()
    await one.step()
    await two.step()
    certificates = {objects.data("tls.crt")}
    async with serving(one) as first, serving(two) as second:
        server = ApiServer(objects, [first, second])
        calling = asyncio.create_task(server.run())

        async def some(calls: int) -> None:
            before = server.done
            await until(lambda: server.done >= before + calls or server.failed)

        for number in range(6):
            await some(40)
            if number % 2:
                objects.secret = None  # somebody deletes it
            for each in (one, two):
                each.clocks.go_on(61 * DAY)
            for each in (one, two) if number % 3 else (two, one):
                await each.step()
                await some(20)
            for each in (one, two):  # one after the other takes up the new pair
                each.clocks.go_on(10)
                await each.step()
                await some(20)
                assert one.keeper.problem() == two.keeper.problem() == ""
            certificates.add(objects.data("tls.crt"))
        calling.cancel()
        await asyncio.gather(calling, return_exceptions=True)
    assert server.failed == []
    assert server.done >= 600
    assert len(certificates) == 7
