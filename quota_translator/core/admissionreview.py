"""AdmissionReviews: what the API server asks about a write, and the answer to it."""

from collections.abc import Mapping
from typing import Any, Final, Literal, cast

import msgspec

from quota_translator.core.admission import Review
from quota_translator.core.decision import Decision
from quota_translator.core.names import GROUP, QUOTA_KIND
from quota_translator.core.reading import read_quota

API_VERSION: Final = "admission.k8s.io/v1"
KIND: Final = "AdmissionReview"
DECIDED: Final = frozenset({"CREATE", "UPDATE", "DELETE"})
_MOST_NAME: Final = 253
_REASONS: Final = {400: "BadRequest", 403: "Forbidden", 422: "Invalid", 500: "InternalError"}


class Unreadable(Exception):
    """A body that is no AdmissionReview of ours; the text says what is wrong with it."""


class _Kind(msgspec.Struct):
    kind: str = ""


class Asked(msgspec.Struct, rename="camel"):
    """One request, as far as a decision needs it."""

    uid: str = ""
    name: str = ""
    operation: str = ""
    sub_resource: str = ""
    kind: _Kind = msgspec.field(default_factory=_Kind)
    object: dict[str, Any] | None = None
    old_object: dict[str, Any] | None = None

    @property
    def is_ours(self) -> bool:
        """Whether it is something to decide on: a node of the tree that comes, changes or goes."""
        is_node = self.kind.kind == QUOTA_KIND and not self.sub_resource
        return is_node and self.operation in DECIDED

    @property
    def target(self) -> str:
        """The name of the node. It is the object's: a request may lack it."""
        metadata = (self.object or self.old_object or {}).get("metadata")
        name = metadata.get("name") if isinstance(metadata, Mapping) else None
        return name[:_MOST_NAME] if isinstance(name, str) and name else self.name[:_MOST_NAME]

    def review(self) -> Review | None:
        """What is asked, as the core decides on it; None where it brings no node with a name."""
        operation = cast("Literal['CREATE', 'UPDATE', 'DELETE']", self.operation)
        before = read_quota(self.old_object) if self.old_object else None
        if operation == "DELETE":  # of an object without content the name is enough
            named = read_quota({"metadata": {"name": self.target}})
            return Review(operation, None, before or named) if self.target else None
        incoming = read_quota(self.object) if self.object else None
        return Review(operation, incoming, before) if incoming and incoming.name else None


class _Envelope(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    request: Asked | None = None


def read_review(body: bytes) -> Asked:
    """Raises Unreadable, also for another version than v1."""
    try:
        found = msgspec.json.decode(body, type=_Envelope)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Unreadable(f"not an {KIND}: {error}") from None
    if found.api_version != API_VERSION or found.kind != KIND:
        raise Unreadable(f"not an {KIND} of {API_VERSION}: {found.api_version[:80]!r}")
    if found.request is None or not found.request.uid:
        raise Unreadable(f"an {KIND} without a request, or a request without a uid")
    return found.request


def answer(asked: Asked, decision: Decision) -> bytes:
    response: dict[str, Any] = {"uid": asked.uid, "allowed": decision.allowed}
    if decision.warnings:
        response["warnings"] = decision.warnings
    if not decision.allowed:
        response["status"] = _status(asked, decision)
    return msgspec.json.encode({"apiVersion": API_VERSION, "kind": KIND, "response": response})


def _status(asked: Asked, decision: Decision) -> dict[str, Any]:
    found: dict[str, Any] = {
        "status": "Failure",
        "code": decision.code,
        "reason": _REASONS[decision.code],
        "message": decision.message,
    }
    if decision.causes:
        causes = [
            {"reason": "FieldValueInvalid", "field": cause.field, "message": cause.message}
            for cause in decision.causes
        ]
        about = {"group": GROUP, "kind": QUOTA_KIND, "name": asked.target}
        found["details"] = about | {"causes": causes}
    return found
