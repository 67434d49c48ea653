"""The connection of a pod: the ServiceAccount that the kubelet mounts.

kubernetes_asyncio can read it too, but importing it costs 57 MiB, nearly half of what a controller
over a small tree needs, and these files are all there is to know. Both the token and the
certificate authority are read again: the kubelet exchanges them while the pod runs.
"""

import contextlib
import os
import ssl
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from quota_translator.errors import ConfigurationError
from quota_translator.kube.files import Stamp, stamp_of

FOLDER: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
REFRESH_SECONDS: Final = 60.0


def in_a_pod(folder: Path, environment: Mapping[str, str] = os.environ) -> bool:
    return bool(environment.get("KUBERNETES_SERVICE_HOST")) and (folder / "token").is_file()


class ServiceAccount:
    """What the kubelet gives a pod to reach its API server with. Raises ConfigurationError."""

    def __init__(self, folder: Path, environment: Mapping[str, str] = os.environ) -> None:
        self.host = _host(environment)
        self._folder = folder
        self._token, self._read_at = _token(folder), time.monotonic()
        self._tls, self._tls_stamp = self._context(), self._stamp()

    @property
    def namespace(self) -> str:
        with contextlib.suppress(OSError):
            return (self._folder / "namespace").read_text().strip()
        return ""

    async def credentials(self, anew: bool) -> str:
        """The Authorization header. While the token cannot be read the last one is used: it is
        good for as long as the server says so."""
        if anew or time.monotonic() - self._read_at >= REFRESH_SECONDS:
            self._read_at = time.monotonic()
            with contextlib.suppress(ConfigurationError):
                self._token = _token(self._folder)
            with contextlib.suppress(ConfigurationError):
                self._renew_tls()
        return f"Bearer {self._token}"

    def tls(self) -> ssl.SSLContext:
        return self._tls

    def _renew_tls(self) -> None:
        stamp = self._stamp()
        if stamp != self._tls_stamp:
            self._tls, self._tls_stamp = self._context(), stamp

    def _stamp(self) -> Stamp:
        return stamp_of([self._folder / "ca.crt"])

    def _context(self) -> ssl.SSLContext:
        path = self._folder / "ca.crt"
        try:
            return ssl.create_default_context(cafile=str(path))
        except OSError as error:  # ssl.SSLError is one
            raise ConfigurationError(f"cannot use {path}: {error.strerror or error}") from error


def _token(folder: Path) -> str:
    path = folder / "token"
    try:
        token = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"cannot read {path}: {error}") from error
    if not token:
        raise ConfigurationError(f"{path} is empty")
    return token


def _host(environment: Mapping[str, str]) -> str:
    host = environment.get("KUBERNETES_SERVICE_HOST", "")
    port = environment.get("KUBERNETES_SERVICE_PORT", "")
    if not port.isdecimal():
        raise ConfigurationError(f"KUBERNETES_SERVICE_PORT is {port!r}, which is no port")
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
