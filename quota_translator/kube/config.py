"""Where the API server is and how to speak to it.

kubernetes_asyncio reads a kubeconfig, exec plugins and OIDC. It is imported only in `kubeconfig.py`
and when one is read: it costs 57 MiB and most of a second, which a pod need not pay.
"""

import os
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import msgspec

from quota_translator.errors import ConfigurationError
from quota_translator.kube.incluster import FOLDER, ServiceAccount, in_a_pod
from quota_translator.kube.kubeconfig import Kubeconfig, why

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
        if not paths and context is None and in_a_pod(FOLDER):
            return _in_cluster()
        return await _from_kubeconfig(paths or _HOME_CONFIG, context, exec_commands)
    except ConfigurationError:
        raise
    except Exception as error:  # the library raises nearly anything, AssertionError included
        where = paths or "the cluster's configuration"
        raise ConfigurationError(f"cannot use {where}: {why(error)}") from error


def _in_cluster() -> Connection:
    account = ServiceAccount(FOLDER)
    return Connection(account.host, account.tls, account.credentials, namespace=account.namespace)


async def _from_kubeconfig(
    paths: str, context: str | None, exec_commands: tuple[str, ...]
) -> Connection:
    kubeconfig = Kubeconfig(paths, context, exec_commands)
    await kubeconfig.read()
    configuration = kubeconfig.configuration
    return Connection(
        host=configuration.host.rstrip("/"),
        tls=lambda: kubeconfig.tls,
        credentials=kubeconfig.credentials,
        server_name=configuration.tls_server_name or None,
        proxy=configuration.proxy or None,
        proxy_headers=configuration.proxy_headers or None,
        namespace=kubeconfig.namespace,
    )
