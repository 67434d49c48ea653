"""What a rendering promises, whatever the values."""

import json
from typing import Any

import pytest
import yaml

from tests.helm.rendering import (
    CHART,
    ENROLLED,
    NAMESPACE,
    container,
    find,
    flags,
    refusal,
    render,
    rules,
    select,
)
from tests.helm.scenarios import SCENARIOS

KUEUE = "kueue.x-k8s.io"
WRITES = {"create", "patch", "update", "delete"}


# --- what is refused, and what it says ------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"mode": ""}, 'mode must be "workload" or "management", got ""'),
        ({"mode": None}, 'mode must be "workload" or "management", got ""'),
        ({"mode": "fleet"}, 'mode must be "workload" or "management", got "fleet"'),
        ({"mode": "management"}, 'set mode to "workload"'),
        ({"name": "n" * 56}, "name must be at most 55 lower-case letters"),
        ({"name": "Quotas"}, 'a letter first, got "Quotas" (6)'),
        ({"name": ""}, 'got "" (0)'),
        ({"image": {"repository": " "}}, "image.repository must name an image"),
        ({"replicaCount": 2, "leaderElection": {"enabled": False}}, "replicaCount 2 needs leader"),
        (
            {"materialize": {"enrolledNamespaces": ["a"], "namespaceSelector": "team"}},
            "exclude each other: give the list or the selector",
        ),
        (
            {"materialize": {"namespaceSelector": {"team": "a"}}},
            "materialize.namespaceSelector.team is not a field of a label selector",
        ),
        (
            {"materialize": {"namespaceSelector": {"matchExpressions": [{"operator": "Is"}]}}},
            'the operator "Is" is not one of In, NotIn, Exists, DoesNotExist',
        ),
        (
            {"materialize": {"namespaceSelector": "team in ()"}},
            'such as "team in (a,b),gpu=true,!old", got "team in ()"',
        ),
        ({"webhook": {"certificates": "mounted"}}, "webhook.secretName must name the Secret"),
        (
            {"webhook": {"certificates": "certManager", "issuerRef": {"kind": "Issuer"}}},
            "webhook.issuerRef needs a name",
        ),
        ({"metrics": {"port": 9443}}, "must differ, got 8081, 9443, 9443"),
        (
            {"metrics": {"enabled": False, "serviceMonitor": {"enabled": True}}},
            "metrics.serviceMonitor.enabled needs metrics.enabled: true",
        ),
        (
            {"metrics": {"enabled": None, "prometheusRule": {"enabled": True}}},
            "turn them on or set metrics.prometheusRule.enabled to false",
        ),
        (
            {"capacity": {"dropAfter": "8d"}},
            "capacity.dropAfter must be from 0s to 604800s, got 8d",
        ),
        ({"resyncInterval": "1ms"}, "resyncInterval must be from 10s"),
        (
            {"leaderElection": {"leaseDuration": "11s"}},
            "leaderElection.leaseDuration (11s) must be at least 1.2 times as long as",
        ),
        ({"leaderElection": {"retryPeriod": "9s"}}, "leaderElection.renewDeadline (10s) must be"),
    ],
)
def test_a_refusal_names_the_value_and_what_to_write(values: dict[str, Any], sentence: str) -> None:
    assert sentence in refusal(values)


def test_the_refusal_of_a_mode_ends_in_what_was_given() -> None:
    said = refusal({"mode": ""}).splitlines()[0]
    assert said.endswith('mode must be "workload" or "management", got ""')


# --- names ----------------------------------------------------------------------------------


def test_every_name_follows_the_name() -> None:
    name = "q" * 55
    documents = render({**SCENARIOS["everything"], "name": name})
    for document in documents:
        if document["kind"] != "CustomResourceDefinition":
            assert document["metadata"]["name"].startswith(name), document["metadata"]["name"]
    limits = {"Service": 63, "Deployment": 63}
    for document in documents:
        assert len(document["metadata"]["name"]) <= limits.get(document["kind"], 253)
    # What is only called by name agrees with what is there.
    found = flags(documents)
    service = found["--webhook-service-name"]
    hook = find(documents, "ValidatingWebhookConfiguration")
    assert service == find(documents, "Service", f"{name}-webhook")["metadata"]["name"]
    assert hook["webhooks"][0]["clientConfig"]["service"]["name"] == service
    assert hook["metadata"]["name"] == found["--webhook-configuration-name"]
    named = {(resource, only) for _, _, resource, only, _ in rules(documents) if only}
    assert named == {
        ("leases", found["--leader-election-lease-name"]),
        ("secrets", found["--webhook-certificate-secret"]),
        ("validatingwebhookconfigurations", found["--webhook-configuration-name"]),
    }
    account = find(documents, "ServiceAccount")["metadata"]["name"]
    pod = find(documents, "Deployment")["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == account
    for binding in select(documents, "RoleBinding") + select(documents, "ClusterRoleBinding"):
        assert binding["subjects"] == [
            {"kind": "ServiceAccount", "name": account, "namespace": NAMESPACE}
        ]


def test_two_installations_of_different_names_share_nothing() -> None:
    def keys(name: str) -> set[tuple[str, str]]:
        documents = render({**ENROLLED, "name": name, "crd": {"install": False}})
        return {(d["kind"], d["metadata"]["name"]) for d in documents}

    assert not keys("one") & keys("two")
    assert flags(render({"name": "one"}))["--materialize-field-manager"] == "one"


def test_what_selects_the_pods_selects_them() -> None:
    documents = render({**ENROLLED, "networkPolicy": {"enabled": True}})
    deployment = find(documents, "Deployment")
    labels = deployment["spec"]["template"]["metadata"]["labels"].items()
    selectors = [deployment["spec"]["selector"]["matchLabels"]]
    selectors += [s["spec"]["selector"] for s in select(documents, "Service")]
    selectors.append(find(documents, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"])
    selectors.append(find(documents, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"])
    (spread,) = deployment["spec"]["template"]["spec"]["topologySpreadConstraints"]
    selectors.append(spread["labelSelector"]["matchLabels"])
    for selector in selectors:
        assert selector
        assert selector.items() <= labels


# --- flags ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SCENARIOS)
def test_no_flag_is_empty_but_the_one_that_turns_measuring_off(name: str) -> None:
    empty = {flag for flag, text in flags(render(SCENARIOS[name])).items() if not text}
    assert empty <= {"--capacity-resources"}


def test_lists_are_trimmed_sorted_and_each_word_once() -> None:
    values = {
        "materialize": {"enrolledNamespaces": ["b", " a ", "b", "", "a"]},
        "capacity": {"resources": [" nvidia.com/gpu", "amd.com/gpu", "nvidia.com/gpu "]},
    }
    found = flags(render(values))
    assert found["--materialize-enrolled-namespaces"] == "a,b"
    assert found["--capacity-resources"] == "amd.com/gpu,nvidia.com/gpu"
    blank = flags(render({"materialize": {"fieldManager": " x ", "enrolledNamespaces": [" "]}}))
    assert blank["--materialize-field-manager"] == "x"
    assert "--materialize-enrolled-namespaces" not in blank


GROUPS = (
    "affinity",
    "capacity",
    "crd",
    "events",
    "extraEnv",
    "health",
    "labels",
    "log",
    "materialize",
    "metrics",
    "networkPolicy",
    "nodeSelector",
    "podAnnotations",
    "podDisruptionBudget",
    "rbac",
    "resources",
    "serviceAccount",
    "status",
    "tolerations",
    "topologySpreadConstraints",
    "webhook",
)


@pytest.mark.parametrize("group", GROUPS)
def test_null_is_off(group: str) -> None:
    documents = render({**ENROLLED, group: None})
    assert find(documents, "Deployment")
    assert None not in flags(documents).values()
    if group == "webhook":
        assert not select(documents, "ValidatingWebhookConfiguration")
    if group == "capacity":
        assert flags(documents)["--capacity-resources"] == ""
    if group == "events":
        assert flags(documents)["--events-enabled"] == "false"


def test_null_inside_a_group_is_off_or_the_controllers_default() -> None:
    values = {
        "webhook": {"enabled": None},
        "capacity": {"dropAfter": None, "hysteresisPercent": None},
        "metrics": {"serviceMonitor": None, "prometheusRule": None},
    }
    found = flags(render(values))
    assert found["--webhook-enabled"] == "false"
    assert "--capacity-drop-after" not in found
    assert "--capacity-hysteresis-percent" not in found


# --- rights ---------------------------------------------------------------------------------


def test_rights_end_with_their_features() -> None:
    everything = rules(render({**ENROLLED, "status": {"workloadNames": True}}))
    assert ("ClusterRole", "", "nodes", "", "watch") in everything
    assert ("ClusterRole", KUEUE, "workloads", "", "list") in everything
    nothing = rules(
        render(
            {
                "replicaCount": 1,
                "capacity": {"resources": []},
                "webhook": {"enabled": False},
                "events": {"enabled": False},
                "leaderElection": {"enabled": False},
            }
        )
    )
    assert not [rule for rule in nothing if rule[0] == "Role"]
    assert {(resource, verb) for _, _, resource, _, verb in nothing if verb in WRITES} == {
        ("acceleratorquotas", "create"),
        ("acceleratorquotas", "patch"),
        ("acceleratorquotas/status", "patch"),
    }
    assert "nodes" not in {resource for _, _, resource, _, _ in nothing}


@pytest.mark.case("A-64")
@pytest.mark.parametrize("enrolment", [ENROLLED["materialize"], {"namespaceSelector": "team"}])
def test_kueue_is_written_only_where_something_is_enrolled(enrolment: dict[str, Any]) -> None:
    def written(values: dict[str, Any]) -> set[str]:
        return {r for _, g, r, _, v in rules(render(values)) if g == KUEUE and v in WRITES}

    assert written({}) == set()
    queues = {"cohorts", "clusterqueues", "localqueues"}
    assert written({"materialize": enrolment}) == queues | {"resourceflavors"}
    assert written({"materialize": {**enrolment, "cover": False}}) == queues


@pytest.mark.parametrize("name", SCENARIOS)
def test_no_right_is_too_wide(name: str) -> None:
    documents = render(SCENARIOS[name])
    for kind, _, resource, only, verb in rules(documents):
        assert "*" not in (resource, verb)
        assert verb not in ("escalate", "bind", "impersonate", "deletecollection", "update")
        assert (kind, resource) != ("ClusterRole", "secrets")
        if resource in ("secrets", "leases", "validatingwebhookconfigurations"):
            assert only or verb == "create"


def test_certificates_made_elsewhere_need_no_rights() -> None:
    for name in ("cert-manager", "mounted", "no-webhook"):
        touched = {resource for _, _, resource, _, _ in rules(render(SCENARIOS[name]))}
        assert not touched & {"secrets", "validatingwebhookconfigurations"}


def test_reviews_are_asked_for_only_where_metrics_are_guarded() -> None:
    reviews = {"tokenreviews", "subjectaccessreviews"}
    assert not reviews & {resource for _, _, resource, _, _ in rules(render({}))}
    secure = rules(render({"metrics": {"secure": True}}))
    assert reviews <= {resource for _, _, resource, _, _ in secure}


def test_people_read_by_their_usual_roles_and_edit_all_but_the_status() -> None:
    documents = render({})
    viewer = find(documents, "ClusterRole", "quota-translator-viewer")
    assert viewer["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-view"] == "true"
    assert viewer["rules"][0]["verbs"] == ["get", "list", "watch"]
    editor = find(documents, "ClusterRole", "quota-translator-editor")
    assert [rule["resources"] for rule in editor["rules"]] == [["acceleratorquotas"]]
    assert not [d for d in render({"rbac": {"people": False}}) if "editor" in str(d["metadata"])]


# --- pods -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SCENARIOS)
def test_pods_are_restricted(name: str) -> None:
    """Kubernetes' Pod Security Standard "restricted", and a file system that is only read."""
    pod = find(render(SCENARIOS[name]), "Deployment")["spec"]["template"]["spec"]
    assert not {"hostNetwork", "hostPID", "hostIPC", "initContainers"} & set(pod)
    assert pod["securityContext"] == {"seccompProfile": {"type": "RuntimeDefault"}}
    allowed = {"configMap", "emptyDir", "projected", "secret", "csi", "downwardAPI"}
    for volume in pod["volumes"]:
        assert set(volume) - {"name"} <= allowed
    for one in pod["containers"]:
        assert one["securityContext"] == {
            "runAsNonRoot": True,
            "readOnlyRootFilesystem": True,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        }
        assert one["resources"]["requests"].keys() == {"cpu", "memory"}
        assert "memory" in one["resources"]["limits"]
        assert {"name": "tmp", "mountPath": "/tmp"} in one["volumeMounts"]
        assert not [port for port in one["ports"] if "hostPort" in port]


def test_an_image_is_named_by_tag_or_digest() -> None:
    def image(**values: str) -> str:
        return str(container(render({"image": values}))["image"])

    digest = "sha256:" + "ab" * 32
    assert image() == "quota-translator:0.1.0"
    assert image(tag="1.2.3", repository="r.example.com/q") == "r.example.com/q:1.2.3"
    assert image(tag="1.2.3", digest=digest) == f"quota-translator@{digest}"


def test_what_is_not_set_leaves_no_empty_block() -> None:
    for values in ({}, SCENARIOS["no-webhook"]):
        text = json.dumps(find(render(values), "Deployment"))
        for empty in ("null", "{}", "[]"):
            assert empty not in text


def test_extra_environment_and_volumes_are_there_without_the_webhook() -> None:
    extra: dict[str, Any] = {
        "extraEnv": [{"name": "A", "value": "b"}],
        "extraVolumes": [{"name": "more", "emptyDir": {}}],
        "extraVolumeMounts": [{"name": "more", "mountPath": "/more"}],
    }
    documents = render({**extra, "webhook": {"enabled": False}})
    assert container(documents)["env"] == extra["extraEnv"]
    assert extra["extraVolumeMounts"][0] in container(documents)["volumeMounts"]
    pod = find(documents, "Deployment")["spec"]["template"]["spec"]
    assert extra["extraVolumes"][0] in pod["volumes"]


def test_one_replica_needs_no_budget_and_no_spread() -> None:
    documents = render({"replicaCount": 1})
    assert not select(documents, "PodDisruptionBudget")
    pod = find(documents, "Deployment")["spec"]["template"]["spec"]
    assert "topologySpreadConstraints" not in pod
    assert find(render({}), "PodDisruptionBudget")["spec"]["maxUnavailable"] == 1


# --- the webhook, the metrics ---------------------------------------------------------------


def test_no_ca_bundle_is_rendered_and_cert_manager_is_asked_for_one() -> None:
    for name in SCENARIOS:
        documents = render(SCENARIOS[name])
        for hook in select(documents, "ValidatingWebhookConfiguration"):
            assert "caBundle" not in hook["webhooks"][0]["clientConfig"]
    documents = render(SCENARIOS["cert-manager"])
    certificate = find(documents, "Certificate")
    hook = find(documents, "ValidatingWebhookConfiguration")
    name = f"{NAMESPACE}/{certificate['metadata']['name']}"
    assert hook["metadata"]["annotations"] == {"cert-manager.io/inject-ca-from": name}
    (service,) = select(documents, "Service", "quota-translator-webhook")
    host = f"{service['metadata']['name']}.{NAMESPACE}.svc"
    assert host in certificate["spec"]["dnsNames"]
    volumes = find(documents, "Deployment")["spec"]["template"]["spec"]["volumes"]
    mounted = [v["secret"]["secretName"] for v in volumes if "secret" in v]
    assert mounted == [certificate["spec"]["secretName"]]
    assert certificate["spec"]["issuerRef"]["name"] == find(documents, "Issuer")["metadata"]["name"]
    own = render(SCENARIOS["cert-manager-issuer"])
    assert not select(own, "Issuer")
    assert find(own, "Certificate")["spec"]["issuerRef"]["name"] == "company"


@pytest.mark.parametrize("name", ["cert-manager", "mounted"])
def test_a_mounted_pair_lies_where_the_controller_looks(name: str) -> None:
    documents = render(SCENARIOS[name])
    mounts = {m["name"]: m["mountPath"] for m in container(documents)["volumeMounts"]}
    assert flags(documents)["--webhook-certificate-folder"] == mounts["certificates"]


def test_ports_and_services_go_with_what_they_front() -> None:
    documents = render(SCENARIOS["no-webhook"])
    assert not select(documents, "Service")
    assert [port["name"] for port in container(documents)["ports"]] == ["health"]
    assert flags(documents)["--metrics-bind-address"] == "0"
    documents = render({"metrics": {"port": 9999}, "webhook": {"port": 9998}})
    ports = {port["name"]: port["containerPort"] for port in container(documents)["ports"]}
    assert ports == {"health": 8081, "metrics": 9999, "webhook": 9998}
    for service in select(documents, "Service"):
        (port,) = service["spec"]["ports"]
        assert port["targetPort"] in ports
    assert flags(documents)["--webhook-bind-address"] == ":9998"


def test_scraped_by_annotation_or_by_service_monitor() -> None:
    def annotations(values: dict[str, Any]) -> dict[str, str]:
        template = find(render(values), "Deployment")["spec"]["template"]
        return dict(template["metadata"].get("annotations", {}))

    assert annotations({"metrics": {"port": 9999}})["prometheus.io/port"] == "9999"
    assert annotations({"metrics": {"enabled": False}}) == {}
    monitored = {"metrics": {"serviceMonitor": {"enabled": True}}}
    assert annotations(monitored) == {}
    kept = {"example.com/kept": "yes"}
    assert annotations({**monitored, "podAnnotations": kept}) == kept
    documents = render(monitored)
    monitor = find(documents, "ServiceMonitor")
    (endpoint,) = monitor["spec"]["endpoints"]
    assert "interval" not in endpoint
    service = find(documents, "Service", "quota-translator-metrics")
    assert endpoint["port"] == service["spec"]["ports"][0]["name"]
    labels = service["metadata"]["labels"].items()
    assert monitor["spec"]["selector"]["matchLabels"].items() <= labels


def test_the_rules_are_those_of_the_file() -> None:
    """With their own braces, which are Prometheus' and not helm's."""
    rule = find(render(SCENARIOS["everything"]), "PrometheusRule")
    file = yaml.safe_load((CHART / "files" / "alerts.yaml").read_text(encoding="utf-8"))
    assert rule["spec"] == file
    assert rule["metadata"]["labels"]["release"] == "prometheus"
    assert not select(render({}), "PrometheusRule")
