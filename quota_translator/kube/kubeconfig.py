"""A kubeconfig: which commands it may run, and how what it says is renewed.

A kubeconfig can name a command that gives credentials, and whoever wrote the file chose its
arguments and its environment: it runs only where its name was allowed, and then the program of
that name on this process's PATH, not one that the file brings along. The client library runs it,
without a shell.
"""

import asyncio
import contextlib
import os
import shutil
import ssl
import time
import traceback
from collections.abc import Iterator
from typing import Any, Final

from quota_translator.errors import ConfigurationError
from quota_translator.kube.files import Stamp, stamp_of

# How often credentials that can expire are looked at again; the library does the same.
REFRESH_SECONDS: Final = 60.0
# How long a command may take. Every request that needs credentials waits for it.
COMMAND_SECONDS: Final = 60.0


class Kubeconfig:
    """What the files say now: read at first, when they change, and when a token is refused."""

    def __init__(self, paths: str, context: str | None, exec_commands: tuple[str, ...]) -> None:
        """`paths` is a list as in $KUBECONFIG; `exec_commands` are the allowed file names."""
        self._paths = paths
        self._context = context
        self._exec_commands = exec_commands
        self._lock = asyncio.Lock()
        self._loader: Any = None
        self._read_at = 0.0
        self._stamp: Stamp = ()
        self._tls_stamp: Stamp = ()
        self.configuration: Any = None
        self.namespace = ""  # of the context
        self.tls: ssl.SSLContext | None = None

    async def read(self) -> None:
        """Everything from the files. Raises ConfigurationError, or what the library raises."""
        from kubernetes_asyncio.client import Configuration

        self._read_at = time.monotonic()
        stamp = stamp_of(self._files())
        loader, configuration = self._new_loader(), Configuration()
        await _load(loader, configuration)
        if self.configuration is not None and configuration.host != self.configuration.host:
            # What is known was read from the other one; and its credentials are not this one's.
            raise ConfigurationError(
                f"{self._paths} names another server now ({configuration.host}); start again"
            )
        self._stamp, self._loader, self.configuration = stamp, loader, configuration
        current = loader.current_context or {}
        self.namespace = (current.get("context") or {}).get("namespace") or ""
        self._renew_tls()

    async def credentials(self, anew: bool) -> str:
        """The Authorization header; looked at again each minute, and at once when `anew`.

        The loader runs a command only when its token has expired, but one that names no expiry each
        time; such a token is taken to be good until the server says otherwise.
        """
        asked_at = time.monotonic()
        async with self._lock:
            # One renewal serves all requests that failed before it.
            if anew and self._read_at < asked_at:
                await self._renew(anew=True)
            elif asked_at - self._read_at >= REFRESH_SECONDS:
                # While the server takes the old ones, a failed renewal harms nobody.
                with contextlib.suppress(ConfigurationError):
                    await self._renew(anew=False)
        return (self.configuration.api_key.get("BearerToken") or "").strip()

    async def _renew(self, *, anew: bool) -> None:
        self._read_at = time.monotonic()
        try:
            if stamp_of(self._files()) != self._stamp:
                await self.read()
                return
            if anew and hasattr(self._loader, "exec_plugin_expiry"):
                del self._loader.exec_plugin_expiry
            if anew or not self._runs_always():
                await _load(self._loader, self.configuration)
            self._renew_tls()
        except Exception as error:  # the library raises nearly anything, AssertionError included
            raise ConfigurationError(f"cannot renew the credentials: {why(error)}") from error

    def _runs_always(self) -> bool:
        user = self._loader._user
        runs = user is not None and "exec" in user
        return runs and not hasattr(self._loader, "exec_plugin_expiry")

    def _files(self) -> list[str]:
        return [os.path.expanduser(path) for path in self._paths.split(os.pathsep) if path]

    def _new_loader(self) -> Any:
        from kubernetes_asyncio.config.kube_config import KubeConfigLoader, KubeConfigMerger

        if not any(os.path.isfile(path) for path in self._files()):
            raise ConfigurationError(
                f"no kubeconfig at {self._paths}; name one by --kubeconfig or KUBECONFIG, or run "
                "over files with --local DIR"
            )
        merger = KubeConfigMerger(self._paths)
        loader = KubeConfigLoader(
            config_dict=merger.config,
            active_context=self._context,
            config_base_path=None,
            # An OIDC refresh token is good once only. (The library's own way to keep it fails:
            # it gives save_changes an argument that it does not take.)
            config_persister=lambda _config: merger.save_changes(),
        )
        self._check_commands(loader)
        return loader

    def _check_commands(self, loader: Any) -> None:
        user = loader._user.value if loader._user is not None else {}
        name = loader.current_context["context"].get("user")
        for place, key in _commands(user):
            command = str(place[key])
            base = os.path.basename(command)
            who = f"{self._paths}: user {name!r}"
            if base not in self._exec_commands:
                raise ConfigurationError(
                    f"{who} wants to run {command!r} for its credentials, which is not allowed; "
                    f"if you trust this file: --kubeconfig-exec-commands={base}"
                )
            found = shutil.which(base)
            if found is None:
                raise ConfigurationError(f"{who} wants to run {base!r}, which is not on the PATH")
            if command != base and not _same_file(command, found):
                raise ConfigurationError(
                    f"{who} wants to run {command!r}, but the {base!r} on the PATH is {found!r}, "
                    "and only that one is allowed; put its folder on the PATH"
                )
            if key == "command":  # else the environment in the file would say where to look
                place[key] = found

    def _renew_tls(self) -> None:
        """A new context when the certificates are others, half-written ones apart: they raise."""
        now = self.configuration
        files = (now.ssl_ca_cert, now.cert_file, now.key_file)
        stamp = stamp_of(path for path in files if path)
        if now.host.startswith("https") and (self.tls is None or stamp != self._tls_stamp):
            self.tls = tls_context(now)
            self._tls_stamp = stamp


def tls_context(configuration: Any) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, configuration.key_file)
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if configuration.disable_strict_ssl_verification:
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def why(error: Exception) -> str:
    """One line."""
    return " ".join(str(error).split()) or type(error).__name__


async def _load(loader: Any, configuration: Any) -> None:
    try:
        async with asyncio.timeout(COMMAND_SECONDS):
            try:
                await loader.load_and_set(configuration)
            except asyncio.CancelledError as error:
                _end_command(error)
                raise
    except TimeoutError:
        raise ConfigurationError(
            f"the command that gives the credentials took over {COMMAND_SECONDS:g} s"
        ) from None


def _end_command(cancelled: asyncio.CancelledError) -> None:
    """Kill the command that nobody waits for any more.

    The library starts it and gives no hold of it; each attempt would leave one more behind.
    """
    for frame, _ in traceback.walk_tb(cancelled.__traceback__):
        for value in frame.f_locals.values():
            if isinstance(value, asyncio.subprocess.Process):
                value._transport.close()  # type: ignore[attr-defined]


def _commands(user: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    """Where in a user's entry commands stand: exec plugins, and gcloud's in the older form."""
    plugin = user.get("exec")
    if isinstance(plugin, dict) and "command" in plugin:
        yield plugin, "command"
    provider = user.get("auth-provider")
    config = provider.get("config") if isinstance(provider, dict) else None
    if isinstance(config, dict) and "cmd-path" in config:
        yield config, "cmd-path"


def _same_file(one: str, other: str) -> bool:
    return os.path.exists(one) and os.path.samefile(one, other)
