"""Where the API server is and how to speak to it: the one place that uses the client library.

kubernetes_asyncio reads a ServiceAccount, a kubeconfig, exec plugins and OIDC; its models and
calls are not used, and it is imported only when a connection is made (it costs 60 MiB and most of a
second).
"""

import asyncio
import contextlib
import os
import ssl
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from quota_translator.errors import ConfigurationError

_TOKEN_FILE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
_HOME_CONFIG: Final = "~/.kube/config"
# How often credentials that can expire are looked at again; the library does the same.
REFRESH_SECONDS: Final = 60.0

Credentials = Callable[[bool], Awaitable[str]]


async def no_credentials(_anew: bool) -> str:
    return ""


class Connection(msgspec.Struct, frozen=True):
    """A server and the means to reach it.

    `credentials(anew)` gives the value of the Authorization header ("" for none); `anew` says that
    the last one was not accepted. It may take as long as an exec plugin takes.
    """

    host: str
    tls: ssl.SSLContext | None = None
    credentials: Credentials = no_credentials
    server_name: str | None = None
    proxy: str | None = None
    proxy_headers: dict[str, str] | None = None


async def connect(kubeconfig: Path | None = None, context: str | None = None) -> Connection:
    """Find the cluster: the given kubeconfig, else $KUBECONFIG, else the pod's own ServiceAccount,
    else the kubeconfig of the home directory. Raises ConfigurationError."""
    paths = str(kubeconfig) if kubeconfig else os.environ.get("KUBECONFIG", "")
    try:
        if not paths and context is None and _in_a_pod():
            return _in_cluster()
        return await _from_kubeconfig(paths or _HOME_CONFIG, context)
    except ConfigurationError:
        raise
    except Exception as error:  # the library raises nearly anything, AssertionError included
        where = paths or "the cluster's configuration"
        raise ConfigurationError(f"cannot use {where}: {_why(error)}") from error


def _why(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _in_a_pod() -> bool:
    return bool(os.environ.get("KUBERNETES_SERVICE_HOST")) and _TOKEN_FILE.is_file()


def _in_cluster() -> Connection:
    from kubernetes_asyncio.client import Configuration
    from kubernetes_asyncio.config import load_incluster_config

    configuration = Configuration()
    load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]

    async def credentials(_anew: bool) -> str:
        # The library reads the token file again each minute, inside this call.
        return (await configuration.get_api_key_with_prefix("BearerToken") or "").strip()

    return _connection(configuration, credentials)


async def _from_kubeconfig(paths: str, context: str | None) -> Connection:
    from kubernetes_asyncio.client import Configuration
    from kubernetes_asyncio.config import load_kube_config

    if not _any_file(paths):
        raise ConfigurationError(
            f"no kubeconfig at {paths}; name one by --kubeconfig or KUBECONFIG, or run over files "
            "with --local DIR"
        )
    configuration = Configuration()
    loader = await load_kube_config(paths, context=context, client_configuration=configuration)
    return _connection(configuration, _Renewed(loader, configuration).credentials)


def _any_file(paths: str) -> bool:
    return any(Path(path).expanduser().is_file() for path in paths.split(os.pathsep) if path)


def _connection(configuration: Any, credentials: Credentials) -> Connection:
    return Connection(
        host=configuration.host.rstrip("/"),
        tls=_tls(configuration) if configuration.host.startswith("https") else None,
        credentials=credentials,
        server_name=configuration.tls_server_name or None,
        proxy=configuration.proxy or None,
        proxy_headers=configuration.proxy_headers or None,
    )


def _tls(configuration: Any) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, configuration.key_file)
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if configuration.disable_strict_ssl_verification:
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


class _Renewed:
    """A kubeconfig's credentials, looked at again each minute and when they were not accepted.

    The loader runs an exec plugin only when its token has expired, but a plugin that names no
    expiry each time; such a token is taken to be good until the server says otherwise.
    """

    def __init__(self, loader: Any, configuration: Any) -> None:
        self._loader = loader
        self._configuration = configuration
        self._lock = asyncio.Lock()
        self._read_at = time.monotonic()

    async def credentials(self, anew: bool) -> str:
        asked_at = time.monotonic()
        async with self._lock:
            # One renewal serves all requests that failed before it.
            if anew and self._read_at < asked_at:
                await self._read(anew=True)
            elif self._is_due(asked_at):
                # While the server takes the old ones, a failed renewal harms nobody.
                with contextlib.suppress(ConfigurationError):
                    await self._read(anew=False)
        return (self._configuration.api_key.get("BearerToken") or "").strip()

    def _is_due(self, now: float) -> bool:
        runs_always = self._uses_exec() and not hasattr(self._loader, "exec_plugin_expiry")
        return now - self._read_at >= REFRESH_SECONDS and not runs_always

    def _uses_exec(self) -> bool:
        user = getattr(self._loader, "_user", None)
        return user is not None and "exec" in user

    async def _read(self, *, anew: bool) -> None:
        if anew and hasattr(self._loader, "exec_plugin_expiry"):
            del self._loader.exec_plugin_expiry
        self._read_at = time.monotonic()
        try:
            await self._loader.load_and_set(self._configuration)
        except Exception as error:  # as in connect()
            raise ConfigurationError(f"cannot renew the credentials: {_why(error)}") from error
