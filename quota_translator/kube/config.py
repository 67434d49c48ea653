"""Where the API server is and how to speak to it.

kubernetes_asyncio reads a ServiceAccount, a kubeconfig, exec plugins and OIDC; its models and
calls are not used, and it is imported only here and in `kubeconfig.py`, when a connection is made
(it costs 60 MiB and most of a second).
"""

import os
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from quota_translator.errors import ConfigurationError
from quota_translator.kube.kubeconfig import Kubeconfig, tls_context, why

_TOKEN_FILE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
_NAMESPACE_FILE: Final = _TOKEN_FILE.parent / "namespace"
_HOME_CONFIG: Final = "~/.kube/config"

Credentials = Callable[[bool], Awaitable[str]]
Tls = Callable[[], ssl.SSLContext | None]


async def no_credentials(_anew: bool) -> str:
    return ""


def no_tls() -> None:
    return None


class Connection(msgspec.Struct, frozen=True):
    """A server and the means to reach it.

    `credentials(anew)` gives the value of the Authorization header ("" for none); `anew` says that
    the last one was not accepted. It may take as long as an exec plugin takes. `tls()` is another
    context once the client certificate is another: connections of the old one are not used again.
    """

    host: str
    tls: Tls = no_tls
    credentials: Credentials = no_credentials
    server_name: str | None = None
    proxy: str | None = None
    proxy_headers: dict[str, str] | None = None
    namespace: str = ""  # of the pod or the kubeconfig's context; "" where neither says one


async def connect(
    kubeconfig: Path | None = None,
    context: str | None = None,
    *,
    exec_commands: tuple[str, ...] = (),
) -> Connection:
    """Find the cluster: the given kubeconfig, else $KUBECONFIG, else the pod's own ServiceAccount,
    else the kubeconfig of the home directory. Raises ConfigurationError.

    `exec_commands`: file names of the commands that a kubeconfig may run for credentials.
    """
    paths = str(kubeconfig) if kubeconfig else os.environ.get("KUBECONFIG", "")
    try:
        if not paths and context is None and _in_a_pod():
            return _in_cluster()
        return await _from_kubeconfig(paths or _HOME_CONFIG, context, exec_commands)
    except ConfigurationError:
        raise
    except Exception as error:  # the library raises nearly anything, AssertionError included
        where = paths or "the cluster's configuration"
        raise ConfigurationError(f"cannot use {where}: {why(error)}") from error


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

    namespace = _NAMESPACE_FILE.read_text().strip() if _NAMESPACE_FILE.is_file() else ""
    tls = tls_context(configuration)
    return _connection(configuration, lambda: tls, credentials, namespace)


async def _from_kubeconfig(
    paths: str, context: str | None, exec_commands: tuple[str, ...]
) -> Connection:
    kubeconfig = Kubeconfig(paths, context, exec_commands)
    await kubeconfig.read()
    return _connection(
        kubeconfig.configuration,
        lambda: kubeconfig.tls,
        kubeconfig.credentials,
        kubeconfig.namespace,
    )


def _connection(
    configuration: Any, tls: Tls, credentials: Credentials, namespace: str
) -> Connection:
    return Connection(
        host=configuration.host.rstrip("/"),
        tls=tls,
        credentials=credentials,
        server_name=configuration.tls_server_name or None,
        proxy=configuration.proxy or None,
        proxy_headers=configuration.proxy_headers or None,
        namespace=namespace,
    )
