"""The connection that the settings ask for, made in one place for every command that needs one."""

from pathlib import Path

from quota_translator.kube.config import Connection, connect
from quota_translator.settings import Settings


async def connect_by(settings: Settings) -> Connection:
    """Raises ConfigurationError."""
    return await connect(
        Path(settings.kubeconfig) if settings.kubeconfig else None,
        settings.context or None,
        exec_commands=settings.kubeconfig_exec_commands,
    )
