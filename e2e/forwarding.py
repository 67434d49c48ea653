"""In place of kube-proxy: what connects to a Service's address reaches a pod behind it.

The Services of the test cluster have loopback addresses (``ControlPlane.service_range``), so it is
enough to listen there. Nobody listens while no pod is ready: a connection is then refused, as
kube-proxy refuses it.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import socketserver
import threading
from collections.abc import Callable

Address = tuple[str, int]
CHUNK = 65536
CONNECT_LIMIT = 5.0


class Forwarder:
    """Listens on one address and passes each connection on to one of the targets, in turns."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._targets: list[Address] = []
        self._turn = 0
        self._server: socketserver.ThreadingTCPServer | None = None

    def aim(self, targets: list[Address]) -> None:
        """These from now on; connections that are open stay where they are."""
        self._targets = targets
        if targets and self._server is None:
            self._server = _listen(self._address, self._next)
        elif not targets:
            self.close()

    def close(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()

    def _next(self) -> Address | None:
        targets = self._targets
        self._turn += 1
        return targets[self._turn % len(targets)] if targets else None


def _listen(
    address: Address, choose: Callable[[], Address | None]
) -> socketserver.ThreadingTCPServer:
    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            target = choose()
            with contextlib.suppress(OSError):
                if target is not None:
                    with socket.create_connection(target, CONNECT_LIMIT) as other:
                        other.settimeout(None)
                        _pump(self.request, other)

    class Server(socketserver.ThreadingTCPServer):
        allow_reuse_address = True
        daemon_threads = True
        block_on_close = False
        request_queue_size = 128

    try:
        server = Server(address, Handler)
    except PermissionError as error:
        raise PermissionError(
            f"only root may listen on port {address[1]} here; run once: "
            f"sudo sysctl net.ipv4.ip_unprivileged_port_start={address[1]}"
        ) from error
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    return server


def _pump(one: socket.socket, other: socket.socket) -> None:
    """Both directions, until both ends have said all they had to say."""
    with selectors.DefaultSelector() as selector:
        selector.register(one, selectors.EVENT_READ, other)
        selector.register(other, selectors.EVENT_READ, one)
        while selector.get_map():
            for key, _ in selector.select():
                source: socket.socket = key.fileobj  # type: ignore[assignment]
                if data := source.recv(CHUNK):
                    key.data.sendall(data)
                else:
                    selector.unregister(source)
                    with contextlib.suppress(OSError):
                        key.data.shutdown(socket.SHUT_WR)
