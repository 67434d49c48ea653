"""The webhook's configuration: what the API server asks us about. The chart renders the same."""

from typing import Any, Final

from quota_translator.core.names import GROUP, VERSION

CONFIGURATION: Final = f"quota-translator.{GROUP}"
WEBHOOK: Final = f"acceleratorquota.{GROUP}"
PATH: Final = "/validate-quota-translator-dev-v1beta1-acceleratorquota"
TIMEOUT_SECONDS: Final = 5

# Writes of status are another resource. One that changes neither the spec nor existence (labels,
# finalizers) must not hang on a webhook that may be away, or nothing could be cleaned up then.
SPEC_OR_EXISTENCE: Final = "request.operation != 'UPDATE' || object.spec != oldObject.spec"


def admission_configuration(client_config: dict[str, Any]) -> dict[str, Any]:
    """`client_config`: a service or a url, and for tests a caBundle."""
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": CONFIGURATION},
        "webhooks": [
            {
                "name": WEBHOOK,
                "clientConfig": client_config,
                "rules": [
                    {
                        "apiGroups": [GROUP],
                        "apiVersions": [VERSION],
                        "operations": ["CREATE", "UPDATE", "DELETE"],
                        "resources": ["acceleratorquotas"],
                        "scope": "Cluster",
                    }
                ],
                "matchConditions": [
                    {"name": "spec-or-existence", "expression": SPEC_OR_EXISTENCE},
                ],
                "matchPolicy": "Equivalent",
                "failurePolicy": "Fail",
                "sideEffects": "None",
                "timeoutSeconds": TIMEOUT_SECONDS,
                "admissionReviewVersions": ["v1"],
            }
        ],
    }
