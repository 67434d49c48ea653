"""Parts of which the settings choose the kind."""

import os
import socket
import uuid
from collections.abc import Callable
from pathlib import Path

from quota_translator.certs.keeper import CertificateKeeper
from quota_translator.certs.mounted import MountedCertificate
from quota_translator.certs.pairs import names_for
from quota_translator.core.world import Clock
from quota_translator.kube.client import Client
from quota_translator.kube.lease import LeaseLock
from quota_translator.leadership import Leadership, steady
from quota_translator.leading import Alone, Leading
from quota_translator.settings import Settings


def leading(settings: Settings, client: Client, namespace: str) -> Leading:
    """Who decides who writes. `client` serves nothing but the Lease."""
    if not settings.leader_election_enabled:
        return Alone()
    lock = LeaseLock(
        client,
        namespace,
        settings.leader_election_lease_name,
        f"{socket.gethostname()}_{uuid.uuid4()}",
        settings.leader_election_lease_duration,
        steady=steady,
    )
    return Leadership(
        lock,
        renew_deadline=settings.leader_election_renew_deadline,
        retry_period=settings.leader_election_retry_period,
        end_process=_end_process,
    )


def _end_process() -> None:
    os._exit(1)


def certificate(
    settings: Settings, client: Client, namespace: str, now: Callable[[], Clock]
) -> CertificateKeeper | MountedCertificate | None:
    """The webhook's certificate; None: there is no webhook. `client` writes on all replicas."""
    if not settings.webhook_enabled:
        return None
    service = settings.webhook_service_name
    if settings.webhook_certificates != "self":
        return MountedCertificate(
            Path(settings.webhook_certificate_folder),
            names=names_for(service, namespace, ()),
            now=now,
        )
    return CertificateKeeper(
        client,
        namespace=namespace,
        secret_name=settings.webhook_certificate_secret,
        service_name=service,
        configuration_name=settings.webhook_configuration_name,
        extra_names=settings.webhook_extra_names,
        lifetime=settings.webhook_certificate_lifetime,
        now=now,
    )
