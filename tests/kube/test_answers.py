"""HTTP answers → errors by what the caller should do. The texts are those of running servers."""

import json

import pytest

from quota_translator.errors import (
    BODY_LIMIT,
    MESSAGE_LIMIT,
    AlreadyExists,
    ApiError,
    Conflict,
    Forbidden,
    Gone,
    KueueUnavailable,
    NotFound,
    Refused,
    Throttled,
    Unauthorized,
    Unavailable,
)
from quota_translator.kube.answers import event_failure, failure
from tests.kube.scripted import status

DENIED = (
    'admission webhook "vclusterqueue.kb.io" denied the request: spec.resourceGroups[0]: '
    "Invalid value: must not exceed the nominalQuota"
)
RBAC = (
    'cohorts.kueue.x-k8s.io is forbidden: User "system:serviceaccount:qt:qt" cannot create '
    'resource "cohorts" in API group "kueue.x-k8s.io" at the cluster scope'
)
TERMINATING = "unable to create new content in namespace old because it is being terminated"
WEBHOOK = 'Internal error occurred: failed calling webhook "mcohort.kb.io": connection refused'
TYPED = "failed to create typed patch object (/q; kueue.x-k8s.io/v1beta2, Kind=Cohort): .spec.x"
UID = 'Cohort.kueue.x-k8s.io "a" is invalid: metadata.uid: Invalid value: "1": field is immutable'


@pytest.mark.parametrize(
    ("code", "reason", "message", "kind"),
    [
        pytest.param(403, "Forbidden", DENIED, Refused, id="a-webhook-denies"),
        pytest.param(403, "Forbidden", RBAC, Forbidden, id="a-permission-is-missing"),
        pytest.param(403, "Forbidden", "exceeded quota: q, requested: 1", Refused, id="a-quota"),
        pytest.param(403, "Forbidden", TERMINATING, NotFound, id="the-namespace-is-going"),
        pytest.param(422, "Invalid", "spec.x: Invalid value", Refused, id="the-schema-refuses"),
        pytest.param(422, "Invalid", UID, Conflict, id="another-uid"),
        pytest.param(400, "BadRequest", "quantities must match", Refused, id="a-bad-quantity"),
        pytest.param(500, "", TYPED, Refused, id="an-unknown-field-is-for-good"),
        pytest.param(500, "InternalError", WEBHOOK, KueueUnavailable, id="kueue-is-down"),
        pytest.param(500, "InternalError", "etcdserver: timed out", Unavailable, id="etcd-hangs"),
        pytest.param(
            504, "Timeout", "Too large resource version: 9", Gone, id="versions-went-back"
        ),
        pytest.param(409, "AlreadyExists", "already exists", AlreadyExists, id="it-exists"),
        pytest.param(409, "Conflict", "the object has been modified", Conflict, id="a-conflict"),
        pytest.param(404, "NotFound", "not found", NotFound, id="not-found"),
        pytest.param(410, "Expired", "too old resource version", Gone, id="expired"),
        pytest.param(429, "TooManyRequests", "busy", Throttled, id="throttled"),
        pytest.param(401, "Unauthorized", "Unauthorized", Unauthorized, id="unauthorized"),
        pytest.param(302, "", "", Unavailable, id="a-redirect-is-not-followed"),
        pytest.param(413, "", "too large", Refused, id="any-other-4xx"),
    ],
)
def test_an_answer_becomes_the_error_of_what_to_do(
    code: int, reason: str, message: str, kind: type[ApiError]
) -> None:
    error = failure(code, json.dumps(status(code, reason, message)).encode())
    assert type(error) is kind
    assert error.status == code


def test_a_missing_permission_names_verb_and_resource() -> None:
    error = failure(403, json.dumps(status(403, "Forbidden", RBAC)).encode())
    assert (error.verb, error.resource) == ("create", "cohorts.kueue.x-k8s.io")


def test_a_403_that_is_not_the_api_servers_is_a_permission_too() -> None:
    assert type(failure(403, b"<html>denied by the gateway</html>")) is Forbidden


@pytest.mark.parametrize(
    ("header", "body", "expected"),
    [
        ("7", None, 7.0),
        (None, 3, 3.0),
        ("2", 5, 5.0),
        (None, None, None),
        ("Mon, 1 Jan", None, None),
    ],
)
def test_retry_after_stands_in_the_header_or_in_the_body(
    header: str | None, body: int | None, expected: float | None
) -> None:
    details = {} if body is None else {"retryAfterSeconds": body}
    data = json.dumps(status(429, "TooManyRequests", "", **details)).encode()
    error = failure(429, data, {"Retry-After": header} if header else {})
    assert error.retry_after == expected


@pytest.mark.parametrize(("code", "unknown"), [(500, True), (502, True), (503, False), (504, True)])
def test_after_a_503_nothing_was_done_after_others_nobody_knows(code: int, unknown: bool) -> None:
    error = failure(code, b"")
    assert isinstance(error, Unavailable)
    assert error.outcome_unknown is unknown


def test_foreign_bodies_are_cut_and_so_are_long_messages() -> None:
    html = failure(503, b"<html>" + b"secret " * 1000)
    assert len(html.message) < BODY_LIMIT + 20
    long = failure(422, json.dumps(status(422, "Invalid", "x" * 5000)).encode())
    assert len(long.message) == MESSAGE_LIMIT


@pytest.mark.parametrize(
    ("found", "kind"),
    [
        pytest.param(status(410, "Expired", "too old"), Gone, id="by-code"),
        pytest.param({"kind": "Status", "reason": "Gone"}, Gone, id="by-reason"),
        pytest.param({"kind": "Status"}, Unavailable, id="without-anything"),
        pytest.param({}, Unavailable, id="not-even-a-status"),
        pytest.param(status(429, "TooManyRequests"), Throttled, id="throttled"),
    ],
)
def test_an_error_event_is_told_apart_with_any_of_its_fields_missing(
    found: dict[str, object], kind: type[ApiError]
) -> None:
    assert type(event_failure(json.dumps(found).encode())) is kind
