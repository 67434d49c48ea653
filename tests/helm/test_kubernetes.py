"""What is rendered, against the schemas of three versions of Kubernetes."""

import kubernetes_validate  # type: ignore[import-untyped]
import pytest

from tests.helm.rendering import render
from tests.helm.scenarios import SCENARIOS

# The first and the last version whose schemas the package has, and the one of the test cluster.
VERSIONS = ("1.31", "1.36", "1.37")
OTHERS = {"ServiceMonitor", "PrometheusRule", "Issuer", "Certificate"}  # no kinds of Kubernetes


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", SCENARIOS)
def test_kubernetes_knows_every_field(name: str, version: str) -> None:
    for document in render(SCENARIOS[name]):
        if document["kind"] not in OTHERS:
            used = kubernetes_validate.validate(document, version, strict=True)
            assert used.startswith(version)


def test_a_wrong_field_would_be_noticed() -> None:
    (deployment,) = (d for d in render() if d["kind"] == "Deployment")
    deployment["spec"]["replica"] = 1
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(deployment, VERSIONS[0], strict=True)
