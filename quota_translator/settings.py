"""Every option, its default and its bounds, once.

One setting has one name in four spellings: `capacity.hysteresisPercent` in a file,
`--capacity-hysteresis-percent` as a flag, `QUOTA_TRANSLATOR_CAPACITY_HYSTERESIS_PERCENT` in the
environment, and `capacity_hysteresis_percent` here. A flag beats the environment, which beats the
file. Everything is validated at start, and an error names the option and what to write.
"""

import ipaddress
import os
import re
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BeforeValidator, Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

from quota_translator.core.options import (
    DEFAULT_COVER,
    DEFAULT_RESOURCES,
    WARNINGS,
    CapacityOptions,
    MaterializeOptions,
    Options,
)
from quota_translator.core.quantity import Quantity, QuantityError
from quota_translator.core.selector import SelectorError, parse_selector

ENV_PREFIX = "QUOTA_TRANSLATOR_"
# A pod's addresses are its own.
_EVERY_ADDRESS = "0.0.0.0"  # noqa: S104  # nosec B104
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(?:(\d+(?:\.\d+)?)(ms|s|m|h|d))")
_LABEL_VALUE = re.compile(r"[a-zA-Z0-9]([-a-zA-Z0-9_.]{0,61}[a-zA-Z0-9])?")
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_OBJECT_NAME = re.compile(
    r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
)
_RESOURCE = re.compile(
    r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?"
)


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


class SettingsError(Exception):
    """One line for people: which option, what is wrong with it, what to write instead."""


def seconds(value: Any) -> float:
    """A duration as Go and Kubernetes write it (1h30m, 90s, 250ms), in seconds. "" and 0 are 0."""
    if isinstance(value, float):
        return value
    text = str(value).strip()
    if text in ("", "0"):
        return 0.0
    if not _DURATION.sub("", text) == "":
        raise ValueError(f"{text!r} is not a duration; write one such as 30s, 5m or 24h")
    return sum(float(number) * _UNITS[unit] for number, unit in _DURATION.findall(text))


def _never_or_seconds(value: Any) -> float | None:
    return None if value is None or str(value).strip() == "never" else seconds(value)


def _words(value: Any) -> Any:
    """A comma-separated list in a flag or the environment; a list in a file."""
    if isinstance(value, str):
        return tuple(word.strip() for word in value.split(",") if word.strip())
    return tuple(value) if isinstance(value, list) else value


def _amounts(value: Any) -> Any:
    """`cpu=16M,memory=16Pi` in a flag, a map in a file, added to the defaults by key."""
    if isinstance(value, str):
        pairs = [word.partition("=") for word in _words(value)]
        value = {name.strip(): text.strip() for name, _, text in pairs}
    if not isinstance(value, Mapping):
        return value
    return dict(DEFAULT_COVER) | {str(name): _positive(name, text) for name, text in value.items()}


def _positive(name: Any, text: Any) -> Quantity:
    if isinstance(text, Quantity):
        return text
    try:
        amount = Quantity.parse(str(text))
    except QuantityError as error:
        raise ValueError(f"{name}: {error}") from None
    if amount.nanos <= 0 or amount > Quantity.parse("1e18"):
        raise ValueError(f"{name}: a ceiling is above 0 and at most 1e18, not {text}")
    if not _RESOURCE.fullmatch(str(name)) or len(str(name)) > LONGEST_NAME:
        raise ValueError(f"{str(name)[:LONGEST_NAME]!r} is not the name of a resource")
    return amount


Seconds = Annotated[float, BeforeValidator(seconds)]
Never = Annotated[float | None, BeforeValidator(_never_or_seconds)]
Words = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_words)]
Amounts = Annotated[dict[str, Any], NoDecode, BeforeValidator(_amounts)]
WEEK = 7 * 86400.0
LEASE_MARGIN = 1.2
MOST_NAMES = 1000
MOST_NAMESPACES = 10_000  # as many as Kubernetes is tested with
LONGEST_NAME = 253
LONGEST_PATH = 4096
LONGEST_SELECTOR = 16384


class Settings(BaseSettings):
    """All options of `quota-translator run`."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX, extra="forbid", validate_default=True, frozen=True
    )

    capacity_resources: Words = Field(
        default=DEFAULT_RESOURCES,
        max_length=MOST_NAMES,
        description="Exact names of the resources that count as accelerators. Empty: nothing is "
        "measured, and budgets are not checked against hardware.",
    )
    capacity_hysteresis_percent: int = Field(
        default=10,
        ge=0,
        le=1000,
        description="A fall of at most this many percent of the mark is within the band. 100 or "
        "more: the mark never falls.",
    )
    capacity_growth: Literal["Installed", "Usable"] = Field(
        default="Installed",
        description="What raises the mark: all installed hardware, or usable hardware only (then "
        "a rolling replacement does not count the fleet twice).",
    )
    capacity_grow_after: Seconds = Field(
        default=0.0, ge=0, le=WEEK, description="How long growth must last to be believed."
    )
    capacity_drop_after: Seconds = Field(
        default=30.0, ge=0, le=WEEK, description="How long a fall past the band must last."
    )
    capacity_settle_after: Never = Field(
        default=86400.0,
        ge=0,
        le=52 * WEEK,
        description="How long a fall within the band must last; never: it is never believed.",
    )
    capacity_report_interval: Seconds = Field(
        default=60.0,
        ge=0,
        le=86400,
        description="How often unchanged capacity rows are stamped anew; 0 turns it off.",
    )
    materialize_enrolled_namespaces: Words = Field(
        default=(),
        max_length=MOST_NAMESPACES,
        description="Namespaces that may submit. With neither this nor a selector, nothing is "
        "written to Kueue.",
    )
    materialize_namespace_selector: Annotated[Any, NoDecode] = Field(
        default=None,
        description="A label selector in place of the list, as kubectl writes it "
        "(team in (a,b),gpu=true) or as a LabelSelector in a file.",
    )
    materialize_cover: bool = Field(
        default=True,
        description="Write ceilings for the cover resources, without which Kueue refuses every "
        "workload that asks for cpu. False where Kueue ignores undeclared resources.",
    )
    materialize_cover_resources: Amounts = Field(
        default_factory=lambda: dict(DEFAULT_COVER),
        max_length=MOST_NAMES,
        description="Ceilings, added to the defaults by name.",
    )
    materialize_field_manager: str = Field(
        default="quota-translator",
        max_length=63,
        description="The value of the label that says an object is ours. Two controllers must "
        "not share one.",
    )
    materialize_orphan_after: Seconds = Field(
        default=60.0,
        ge=0,
        le=WEEK,
        description="How long an object whose node is gone without having been deleted in the "
        "usual way stays before it is removed.",
    )
    max_tree_depth: int = Field(
        default=5, ge=0, le=64, description="How many edges below root a node may be; 0: no bound."
    )
    status_usage_interval: Seconds = Field(
        default=5.0,
        ge=0.1,
        le=3600,
        description="At most one status write for mere use per node in this time.",
    )
    resync_interval: Seconds = Field(
        default=600.0,
        ge=10,
        le=86400,
        description="How often everything is computed again without a reason. Writes nothing "
        "when nothing differs.",
    )
    write_concurrency: int = Field(
        default=16, ge=1, le=128, description="How many writes may be on their way at once."
    )
    health_bind_address: str = Field(
        default="0.0.0.0:8081",
        max_length=LONGEST_NAME,
        description="Where /healthz and /readyz are served; 0 turns it off.",
    )
    metrics_bind_address: str = Field(
        default="0.0.0.0:8080",
        max_length=LONGEST_NAME,
        description="Where /metrics is served; 0 turns it off.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="How much is logged."
    )
    log_format: Literal["auto", "text", "json"] = Field(
        default="auto", description="auto: text on a terminal, JSON otherwise."
    )
    namespace: str = Field(
        default="",
        max_length=63,
        description="The namespace of the Lease, the certificate's Secret and the webhook's "
        "Service. Empty: that of the pod, else of the kubeconfig's context, else default.",
    )
    leader_election_enabled: bool = Field(
        default=True,
        description="Write only while holding the Lease, so that several replicas may run.",
    )
    leader_election_lease_name: str = Field(
        default="quota-translator", max_length=LONGEST_NAME, description="The name of the Lease."
    )
    leader_election_lease_duration: Seconds = Field(
        default=15.0,
        ge=1,
        le=600,
        description="After this time without a renewal another replica may take the Lease.",
    )
    leader_election_renew_deadline: Seconds = Field(
        default=10.0,
        ge=0.5,
        le=600,
        description="A leader that could not renew for this long stops all work; less than the "
        "lease duration.",
    )
    leader_election_retry_period: Seconds = Field(
        default=2.0,
        ge=0.1,
        le=60,
        description="Pause between tries to renew or to take the Lease; less than the renew "
        "deadline.",
    )
    take_over: bool = Field(
        default=False,
        description="Take the tree from another controller that root.status.controller names. "
        "Without it the second one refuses to write.",
    )
    webhook_enabled: bool = Field(
        default=False,
        description="Serve the admission webhook for AcceleratorQuotas. The chart turns it on.",
    )
    webhook_bind_address: str = Field(
        default="0.0.0.0:9443",
        max_length=LONGEST_NAME,
        description="Where the webhook is served, over TLS.",
    )
    webhook_deny: Words = Field(
        default=(),
        max_length=MOST_NAMES,
        description="What is denied rather than warned about: OverMark, NeverSeen, "
        "FlavorMissing, BelowAdmitted, Oversubscribed, AmbiguousFlavor.",
    )
    webhook_certificates: Literal["self", "certManager", "mounted"] = Field(
        default="self",
        description="Where the webhook's certificate comes from: made and rotated here and kept "
        "in a Secret; or, by cert-manager or by you, mounted as files.",
    )
    webhook_certificate_folder: str = Field(
        default="/var/run/quota-translator/certificates",
        max_length=LONGEST_PATH,
        description="The folder of tls.crt and tls.key where the certificate is mounted.",
    )
    webhook_certificate_secret: str = Field(
        default="quota-translator-webhook-cert",
        max_length=LONGEST_NAME,
        description="The Secret that holds the certificate made here.",
    )
    webhook_certificate_lifetime: Seconds = Field(
        default=90 * 86400.0,
        ge=30,
        le=365 * 86400.0,
        description="How long a certificate made here is valid; it is renewed after two thirds.",
    )
    webhook_service_name: str = Field(
        default="quota-translator-webhook",
        max_length=LONGEST_NAME,
        description="The Service in front of the webhook, whose name the certificate bears.",
    )
    webhook_extra_names: Words = Field(
        default=(),
        max_length=MOST_NAMES,
        description="More host names and IP addresses for the certificate made here.",
    )
    webhook_configuration_name: str = Field(
        default="quota-translator.quota-translator.dev",
        max_length=LONGEST_NAME,
        description="The ValidatingWebhookConfiguration that gets the CA bundle.",
    )
    status_workload_names: bool = Field(
        default=False,
        description="List Workloads, which needs the right to: name those that keep a node from "
        "going, and compare Kueue's figures with them.",
    )
    events_enabled: bool = Field(
        default=True, description="Write Events about what happens to the tree's nodes."
    )
    metrics_secure: bool = Field(
        default=False,
        description="Serve /metrics over TLS, to those who may get the path /metrics "
        "(TokenReview and SubjectAccessReview).",
    )
    kubeconfig_exec_commands: Words = Field(
        default=(),
        max_length=MOST_NAMES,
        description="Commands (their file names) that a kubeconfig may run for credentials. "
        "Empty: none, and a kubeconfig that wants one is refused.",
    )
    kubeconfig: str = Field(
        default="",
        max_length=LONGEST_PATH,
        description="A kubeconfig file. Empty: $KUBECONFIG, else the ServiceAccount of the pod, "
        "else ~/.kube/config.",
    )
    context: str = Field(
        default="", max_length=LONGEST_NAME, description="The context of the kubeconfig file."
    )

    @field_validator("capacity_resources")
    @classmethod
    def _resource_names(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            if not _RESOURCE.fullmatch(name) or len(name) > LONGEST_NAME:
                raise ValueError(f"{name!r} is not the name of a resource, such as nvidia.com/gpu")
            if "/" not in name:  # of cpu and memory nothing is kept of a node: it would read as 0
                raise ValueError(
                    f"{name!r} is no extended resource, and only those are measured, "
                    "such as nvidia.com/gpu"
                )
        return tuple(sorted(set(value)))

    @field_validator("materialize_enrolled_namespaces")
    @classmethod
    def _namespace_names(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            if not _NAMESPACE.fullmatch(name):
                raise ValueError(f"{name!r} is not the name of a namespace")
        return tuple(sorted(set(value)))

    @field_validator("materialize_namespace_selector")
    @classmethod
    def _selector(cls, value: Any) -> Any:
        if value in (None, ""):
            return None
        if len(str(value)) > LONGEST_SELECTOR:
            raise ValueError(f"at most {LONGEST_SELECTOR} characters, not {len(str(value))}")
        try:
            return parse_selector(value)
        except SelectorError as error:
            raise ValueError(str(error)) from None

    @field_validator("materialize_field_manager")
    @classmethod
    def _manager(cls, value: str) -> str:
        if not _LABEL_VALUE.fullmatch(value):
            raise ValueError(f"{value!r} is not a label value (63 letters, digits, - _ . at most)")
        return value

    @field_validator("webhook_deny")
    @classmethod
    def _deny(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            if name not in WARNINGS:
                raise ValueError(f"{name!r} is not one of {', '.join(WARNINGS)}")
        return tuple(sorted(set(value)))

    @field_validator("namespace")
    @classmethod
    def _own_namespace(cls, value: str) -> str:
        if value and not _NAMESPACE.fullmatch(value):
            raise ValueError(f"{value!r} is not the name of a namespace")
        return value

    @field_validator(
        "leader_election_lease_name",
        "webhook_certificate_secret",
        "webhook_service_name",
        "webhook_configuration_name",
    )
    @classmethod
    def _object_name(cls, value: str) -> str:
        if not _OBJECT_NAME.fullmatch(value):
            raise ValueError(f"{value!r} is not the name of an object")
        return value

    @field_validator("webhook_extra_names")
    @classmethod
    def _host_names(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            if not (_OBJECT_NAME.fullmatch(name) or _is_address(name)):
                raise ValueError(f"{name!r} is neither a host name nor an IP address")
        return tuple(sorted(set(value)))

    @field_validator("kubeconfig_exec_commands")
    @classmethod
    def _commands(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            if "/" in name or "\\" in name:
                raise ValueError(f"{name!r} is a path; give the command's file name alone")
            if len(name) > 255:
                raise ValueError(f"a file name has at most 255 characters, not {len(name)}")
        return tuple(sorted(set(value)))

    @field_validator("health_bind_address", "metrics_bind_address", "webhook_bind_address")
    @classmethod
    def _address(cls, value: str) -> str:
        if value == "0":
            return value
        host, colon, port = value.rpartition(":")
        if not colon or not port.isdecimal() or int(port) > 65535:
            raise ValueError(f"{value!r} is not an address; write host:port, :port, or 0 for none")
        return f"{host or _EVERY_ADDRESS}:{port}"

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings

    def options(self) -> Options:
        """What the core needs of them."""
        return Options(
            capacity=CapacityOptions(
                resources=self.capacity_resources,
                hysteresis_percent=self.capacity_hysteresis_percent,
                growth=self.capacity_growth,
                grow_after=self.capacity_grow_after,
                drop_after=self.capacity_drop_after,
                settle_after=self.capacity_settle_after,
                report_interval=self.capacity_report_interval,
            ),
            materialize=MaterializeOptions(
                manager=self.materialize_field_manager,
                enrolled_namespaces=self.materialize_enrolled_namespaces,
                namespace_selector=self.materialize_namespace_selector,
                cover=self.materialize_cover,
                cover_resources=self.materialize_cover_resources,
                orphan_after=self.materialize_orphan_after,
            ),
            max_tree_depth=self.max_tree_depth,
            usage_interval=self.status_usage_interval,
            workload_names=self.status_workload_names,
        )


def load_settings(flags: Mapping[str, Any], file: Path | None) -> Settings:
    """Flags over environment over file. Raises SettingsError with one line."""
    from_file = _from_file(file) if file else {}
    chosen = {name: value for name, value in from_file.items() if _variable(name) not in os.environ}
    chosen |= {name: value for name, value in flags.items() if value is not None}
    try:
        settings = Settings(**chosen)
    except ValidationError as error:
        raise SettingsError(_one_line(error, flags, file)) from None
    by_selector = settings.materialize_namespace_selector is not None  # {} is one: all
    if settings.materialize_enrolled_namespaces and by_selector:
        raise SettingsError(
            "--materialize-enrolled-namespaces and --materialize-namespace-selector exclude each "
            "other: give the list or the selector"
        )
    _check_lease_times(settings)
    return settings


def _check_lease_times(settings: Settings) -> None:
    """Each is well below the one before, or a leader could not stop before another begins."""
    names = (
        "leader_election_lease_duration",
        "leader_election_renew_deadline",
        "leader_election_retry_period",
    )
    for longer, shorter in pairwise(names):
        most, found = getattr(settings, longer), getattr(settings, shorter)
        if found * LEASE_MARGIN > most:
            raise SettingsError(
                f"{flag(shorter)}: {found:g} s is too long; {flag(longer)} ({most:g} s) must be at "
                f"least {LEASE_MARGIN:g} times as long"
            )


def flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def default_text(name: str) -> str:
    """The default as a person would write it; "" when there is none."""
    value = Settings.model_fields[name].get_default(call_default_factory=True, validated_data={})
    if value in (None, "", ()):
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return ",".join(f"{key}={amount}" for key, amount in sorted(value.items()))
    if isinstance(value, tuple):
        return ",".join(value)
    return _duration_text(value) if isinstance(value, float) else str(value)


def metavar(name: str) -> str:
    """What stands for the value in a help text."""
    annotation = str(Settings.model_fields[name].annotation)
    if "Literal" in annotation:
        return "|".join(re.findall(r"'(\w+)'", annotation))
    default = Settings.model_fields[name].default
    kinds: dict[type, str] = {bool: "true|false", float: "DURATION", int: "N", tuple: "NAME,…"}
    return kinds.get(type(default), "TEXT")


def _duration_text(value: float) -> str:
    for unit, size in (("h", 3600), ("m", 60)):
        if value >= size and value % size == 0:
            return f"{value / size:g}{unit}"
    return f"{value:g}s"


def _variable(name: str) -> str:
    return ENV_PREFIX + name.upper()


def _from_file(path: Path) -> dict[str, Any]:
    """`capacity: {hysteresisPercent: 10}` → {"capacity_hysteresis_percent": 10}"""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except OSError as error:
        raise SettingsError(f"--config {path}: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        where = getattr(error, "problem_mark", None)
        line = f":{where.line + 1}" if where else ""
        raise SettingsError(f"--config {path}{line}: is not YAML") from None
    if not isinstance(content, dict):
        raise SettingsError(f"--config {path}: is not a map of settings")
    flat: dict[str, Any] = {}
    _flatten("", content, flat, path)
    return flat


def _flatten(prefix: str, content: Mapping[Any, Any], flat: dict[str, Any], path: Path) -> None:
    for key, value in content.items():
        name = prefix + re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", str(key)).lower()
        if value is None and _is_known(name):
            continue  # left empty: as if it did not stand there
        if name in Settings.model_fields:
            flat[name] = str(value) if isinstance(value, float) else value  # 1.5 is no duration
        elif isinstance(value, dict):
            _flatten(f"{name}_", value, flat, path)
        else:
            dotted = name.replace("_", ".")
            if any(field.startswith(f"{name}_") for field in Settings.model_fields):
                raise SettingsError(f"--config {path}: {dotted} takes a map of settings")
            raise SettingsError(f"--config {path}: {dotted} is not a setting (see run --help)")


def _is_known(name: str) -> bool:
    return any(f"{field}_".startswith(f"{name}_") for field in Settings.model_fields)


def _one_line(error: ValidationError, flags: Mapping[str, Any], file: Path | None) -> str:
    first = error.errors(include_url=False)[0]
    name = str(first["loc"][0]) if first["loc"] else ""
    if flags.get(name) is not None:
        where = flag(name)
    elif _variable(name) in os.environ:
        where = _variable(name)
    else:
        where = f"{flag(name)} (from {file})"
    message = first["msg"].removeprefix("Value error, ")
    most = first.get("ctx", {}).get("max_length")
    if most is not None:
        unit = "characters" if first["type"] == "string_too_long" else "entries"
        message = f"at most {most} {unit}"
    return f"{where}: {message[0].lower() + message[1:]}"
