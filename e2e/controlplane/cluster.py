"""A real control plane on loopback: etcd, Kubernetes, Kueue, and kwok in place of machines.

The tests are about what a real API server and a real Kueue do, so nothing of them is imitated. Only
the kubelets are: kwok keeps the nodes alive and runs their pods by writing what a kubelet would.

Everything lives in one temporary folder and on free ports of 127.0.0.1, so runs can go on side by
side, and everything ends with the run; ``processes`` says how.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import http.client
import ipaddress
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self

from e2e.controlplane import build, certificates, configuration
from e2e.controlplane.api import APPLY, Api, ApiError
from e2e.controlplane.certificates import Authority, Pair, write_private
from e2e.controlplane.processes import ControlPlaneError, Process, free_ports, wait_until

Progress = Callable[[str], None]
Document = dict[str, Any]

ADMINISTRATORS = "system:masters"
FIELD_MANAGER = "quota-translator-e2e"
# Kueue reads its metrics certificate here and nowhere else, also with metrics off.
KUEUE_CERTIFICATES = Path("/etc/kueue/metrics/certs")

START_LIMIT = 180.0  # for each step; all of them together take ten seconds on an idle machine
KUBECTL_LIMIT = 120.0
# Seconds between SIGTERM and SIGKILL, by who is asked; the API server first finishes its requests.
PATIENCE = {"kube-apiserver": 20.0}
DEFAULT_PATIENCE = 10.0
# What needs what: each group is stopped when the ones before it are gone.
STOP_ORDER = (
    ("kwok", "kueue", "kube-scheduler", "kube-controller-manager"),
    ("kube-apiserver",),
    ("etcd",),
)
# The first three need a cloud, or hand out addresses that nobody uses here; the others would write
# down addresses of pods, which here are loopback ones, and those are refused. The node life cycle
# stays: it takes the not-ready taint off a new node, and notices a node that falls silent.
SWITCHED_OFF = (
    "node-ipam-controller",
    "node-route-controller",
    "cloud-node-lifecycle-controller",
    "endpoints-controller",
    "endpointslice-controller",
    "endpointslice-mirroring-controller",
)
CONTROLLERS = ",".join(["*", *(f"-{name}" for name in SWITCHED_OFF)])


class KubectlError(ControlPlaneError):
    """kubectl ended with an error; the text is what it said."""


def check_kueue_certificates(folder: Path = KUEUE_CERTIFICATES) -> None:
    """Raise, naming the one command that helps, if Kueue could not be started here.

    Meant to be called first: a quarter of an hour of building should not end with this.
    """
    if certificates.is_usable(folder):
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return
    except OSError as error:
        raise ControlPlaneError(
            f"Kueue reads certificates from {folder}, a path that cannot be configured, and this "
            f"user cannot write there ({error.strerror}). Run this once, then try again:\n\n"
            f'    sudo install -d -o "$USER" {folder}\n'
        ) from error


def _place_kueue_certificates(pair: Pair, folder: Path = KUEUE_CERTIFICATES) -> None:
    """Put a pair where Kueue insists on one, unless a usable one is there.

    Nobody checks what is in it. Several runs share it, so only one at a time may write.
    """
    check_kueue_certificates(folder)
    with _folder_lock(folder):
        if not certificates.is_usable(folder):
            pair.write(folder)


@contextlib.contextmanager
def _folder_lock(folder: Path) -> Iterator[None]:
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


class ControlPlane:
    """One cluster, from ``start`` to ``stop``; also a context manager.

    ``kueue=False`` starts without Kueue and without its CRDs; ``install_kueue_crds`` and
    ``start_kueue`` add them later. Start it from a thread that lives as long as the cluster: on
    Linux the processes end with the thread that started them.
    """

    def __init__(
        self,
        *,
        kueue: bool = True,
        kwok: bool = True,
        scheduler: bool = True,
        controller_manager: bool = True,
    ) -> None:
        self._with_kueue = kueue
        self._with_kwok = kwok
        self._with_scheduler = scheduler
        self._with_controller_manager = controller_manager
        self._processes: dict[str, Process] = {}
        self._progress: Progress = print
        self._authority = Authority()
        self._binaries: build.Binaries | None = None
        self._folder: Path | None = None
        self._old_handler: Callable[[int, FrameType | None], Any] | int | None = None
        self.start_seconds: dict[str, float] = {}

    # ------------------------------------------------------------------------ for callers

    def start(self, progress: Progress = print) -> Self:
        """Build what is missing, then start everything and wait until it is ready."""
        self._progress = progress
        if self._with_kueue:
            check_kueue_certificates()
        self._binaries = build.ensure(progress)
        self._folder = Path(tempfile.mkdtemp(prefix="quota-translator-"))
        self._guard()
        try:
            self._start_everything()
        except BaseException as error:
            self.stop(keep_logs=isinstance(error, Exception))  # not for a Ctrl-C
            raise
        return self

    def stop(self, *, keep_logs: bool = False) -> Path | None:
        """End every process and remove the folder, all but the logs if they are to be kept."""
        for names in STOP_ORDER:
            stopping = [self._processes[name] for name in names if name in self._processes]
            for process in stopping:
                process.terminate()
            for process in stopping:
                process.stop(PATIENCE.get(process.name, DEFAULT_PATIENCE))
                del self._processes[process.name]
        self._unguard()
        return self._clear_folder(keep_logs=keep_logs)

    def __enter__(self) -> Self:
        return self.start() if self._folder is None else self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop(keep_logs=kind is not None and issubclass(kind, Exception))

    @property
    def folder(self) -> Path:
        if self._folder is None:
            raise ControlPlaneError("the control plane is not started")
        return self._folder

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.folder / "admin.kubeconfig"

    @property
    def ca(self) -> Path:
        return self.folder / "pki" / "ca.crt"

    @property
    def service_range(self) -> ipaddress.IPv4Network:
        """The addresses of Services: loopback ones, of this cluster alone.

        Nobody routes them, as no network exists here; but whatever listens on such an address of
        this machine is reached by it, so a stand-in for kube-proxy needs no rights (``standin``).
        """
        return next(self._own_addresses.subnets())

    @property
    def pod_range(self) -> ipaddress.IPv4Network:
        """The same for pods that are processes of this machine."""
        return list(self._own_addresses.subnets())[1]

    @property
    def _own_addresses(self) -> ipaddress.IPv4Network:
        """By the API server's port, of which there is one on a machine."""
        high, low = divmod(self._ports["api"], 256)
        return ipaddress.IPv4Network(f"127.{high}.{low}.0/24")

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    @property
    def audit_log(self) -> Path:
        """One JSON document a line, one line a request; a watch has a second one at its end."""
        return self.logs / "audit.jsonl"

    @property
    def processes(self) -> Mapping[str, Process]:
        """What is running, by name."""
        return self._processes

    def bin(self, name: str) -> Path:
        """Where a program is; see ``build.TOOL_NAMES``."""
        return self._found.programs[name]

    def memory(self) -> dict[str, float]:
        """Resident megabytes of each process."""
        sizes = {name: process.resident_megabytes() for name, process in self._processes.items()}
        return {name: size for name, size in sizes.items() if size is not None}

    def kubectl(self, *arguments: str, input: str | None = None) -> str:  # noqa: A002
        """Run kubectl as the administrator; its output, or an error with what it said."""
        command = [str(self.bin("kubectl")), "--kubeconfig", str(self.kubeconfig)]
        command += ["--cache-dir", str(self.folder / "kubectl"), *arguments]
        try:
            done = subprocess.run(
                command, input=input, capture_output=True, text=True, timeout=KUBECTL_LIMIT
            )
        except subprocess.TimeoutExpired as error:
            said = f"no end after {KUBECTL_LIMIT:.0f} s"
            raise KubectlError(f"kubectl {' '.join(arguments)}: {said}") from error
        if done.returncode != 0:
            said = done.stderr.strip() or f"status {done.returncode}"
            raise KubectlError(f"kubectl {' '.join(arguments)}: {said}")
        return done.stdout

    def apply(self, *documents: Document) -> None:
        """Server-side apply with kubectl, in this order."""
        text = configuration.dump_all(documents)
        self.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", input=text)

    def api_as(self, user: str, groups: Sequence[str] = ()) -> Api:
        """Plain requests of another user than the administrator."""
        pair = self._authority.client(user, groups)
        folder = self.folder / "pki"
        certificate, key = pair.write(folder, user.replace(":", "-").replace("/", "-"))
        return Api(self.url, str(self.ca), str(certificate), str(key))

    def new_kubeconfig(self, user: str, groups: Sequence[str] = ()) -> Path:
        """A kubeconfig for a user of this name, with a client certificate of its own.

        The audit log shows the user. It may do nothing until a role is bound to it, unless one of
        the groups may: ``system:masters`` may do anything.
        """
        pair = self._authority.client(user, groups)
        path = self.folder / f"{user.replace(':', '-').replace('/', '-')}.kubeconfig"
        document = configuration.kubeconfig(
            self.url, self._authority.certificate, pair.certificate, pair.key, user
        )
        write_private(path, configuration.dump_all([document]).encode())
        return path

    def install_kueue_crds(self) -> None:
        """Install Kueue's CRDs and wait until the API server serves them."""
        documents = self._asset_documents("kueue-crds")
        path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        for document in documents:
            self._apply_at(path, document)
        for document in documents:
            name = document["metadata"]["name"]
            self._wait(f"CRD {name} to be established", partial(self._not_established, name))
        for document in documents:
            path = _list_path(document)
            self._wait(f"{path} to be served", partial(self._not_served, path))

    def remove_kueue_crds(self) -> None:
        """Remove Kueue's CRDs with every object of theirs, and wait until they are gone."""
        path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        names = [document["metadata"]["name"] for document in self._asset_documents("kueue-crds")]
        for name in names:
            self.api.delete(f"{path}/{name}")
        for name in names:
            self._wait(f"CRD {name} to be gone", partial(self._still_there, f"{path}/{name}"))

    @property
    def kueue_running(self) -> bool:
        return "kueue" in self._processes and self._processes["kueue"].running

    def start_kueue(self) -> None:
        """Start Kueue with its webhooks and wait until they answer; needs its CRDs."""
        if self.kueue_running:
            return
        self._apply_at("/api/v1/namespaces", _namespace(configuration.KUEUE_NAMESPACE))
        certificate_folder = self._kueue_certificates()
        document = configuration.kueue_configuration(
            self._ports["kueue-health"], self._ports["kueue-webhook"], certificate_folder
        )
        file = self.folder / "kueue.yaml"
        file.write_text(configuration.dump_all([document]))
        self._spawn(
            "kueue",
            ["--config", str(file), *self._as_user("kueue"), "--zap-log-level=2"],
        )
        port = self._ports["kueue-health"]
        self._wait("Kueue to be ready", lambda: _http_problem(port, "/readyz"))
        self._install_webhooks()
        self._wait("Kueue's webhooks to answer", self._webhook_problem)

    def stop_kueue(self, *, kill: bool = False) -> None:
        """Stop Kueue; its CRDs, objects and webhook entries stay, as when it crashes."""
        process = self._processes.pop("kueue", None)
        if process is None:
            return
        if kill:
            process.kill()
        else:
            process.stop(DEFAULT_PATIENCE)

    @contextlib.contextmanager
    def api_server_down(self) -> Iterator[None]:
        """The API server ends, and within this nobody answers on its port."""
        self._processes.pop("kube-apiserver").stop(PATIENCE["kube-apiserver"])
        try:
            yield
        finally:
            self._spawn_api_server()

    @contextlib.contextmanager
    def etcd_down(self) -> Iterator[Path]:
        """The API server and etcd are stopped; gives etcd's data folder, for backup and restore."""
        with self.api_server_down():
            self._processes.pop("etcd").stop(DEFAULT_PATIENCE)
            try:
                yield self.folder / "etcd"
            finally:
                self._spawn_etcd()

    # ------------------------------------------------------------------------ starting

    @property
    def _found(self) -> build.Binaries:
        if self._binaries is None:
            raise ControlPlaneError("the control plane is not started")
        return self._binaries

    def _start_everything(self) -> None:
        started = time.monotonic()
        self._prepare()
        self._start_api_server()
        self._lap("etcd and kube-apiserver", started)
        self._start_controllers()
        if self._with_kueue:
            begun = time.monotonic()
            self.install_kueue_crds()
            self.start_kueue()
            self._lap("Kueue, with its CRDs and webhooks", begun)
        begun = time.monotonic()
        self._wait_for_controllers()
        self._lap("what controllers and kwok still needed", begun)
        self._lap("the control plane", started)

    def _lap(self, what: str, started: float) -> None:
        spent = time.monotonic() - started
        self.start_seconds[what] = spent
        self._progress(f"ready: {what} ({spent:.1f} s)")

    def _prepare(self) -> None:
        """Everything that exists before the first process: folders, ports, certificates."""
        for name in ("pki", "logs"):
            (self.folder / name).mkdir()
        names = ("api", "etcd", "etcd-peer", "kueue-health", "kueue-webhook", "kwok")
        self._ports = dict(zip(names, free_ports(len(names)), strict=True))
        self.url = f"https://127.0.0.1:{self._ports['api']}"
        pki = self.folder / "pki"
        self.ca.write_bytes(self._authority.certificate)
        private, public = certificates.signing_keys()
        write_private(pki / "tokens.key", private)
        (pki / "tokens.pub").write_bytes(public)
        self._server_pair().write(pki, "apiserver")
        admin = self._authority.client("admin", [ADMINISTRATORS])
        certificate, key = admin.write(pki, "admin")
        self.api = Api(self.url, str(self.ca), str(certificate), str(key))
        self.new_kubeconfig("admin", [ADMINISTRATORS])

    def _server_pair(self) -> Pair:
        hosts = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"]
        # The first address of the services' range is that of the Service "kubernetes".
        first = str(next(self.service_range.hosts()))
        return self._authority.server("kube-apiserver", hosts, ["127.0.0.1", first])

    def _start_api_server(self) -> None:
        self._spawn_etcd()
        self._spawn_api_server()

    def _spawn_etcd(self) -> None:
        peer = f"http://127.0.0.1:{self._ports['etcd-peer']}"
        self._spawn("etcd", _etcd_flags(self.folder / "etcd", self._etcd_url, peer))

    def _spawn_api_server(self) -> None:
        self._spawn("kube-apiserver", self._api_server_flags(self._etcd_url))
        self._wait("kube-apiserver to be ready", self._api_problem)

    @property
    def _etcd_url(self) -> str:
        return f"http://127.0.0.1:{self._ports['etcd']}"

    def _api_server_flags(self, etcd: str) -> list[str]:
        pki = self.folder / "pki"
        policy = self.folder / "audit-policy.yaml"
        policy.write_text(configuration.dump_all([configuration.audit_policy()]))
        return [
            f"--etcd-servers={etcd}",
            "--bind-address=127.0.0.1",
            # Without these two the server looks for a default route and fails where none exists.
            "--advertise-address=127.0.0.1",
            "--endpoint-reconciler-type=none",
            f"--secure-port={self._ports['api']}",
            f"--tls-cert-file={pki / 'apiserver.crt'}",
            f"--tls-private-key-file={pki / 'apiserver.key'}",
            f"--client-ca-file={self.ca}",
            f"--service-account-key-file={pki / 'tokens.pub'}",
            f"--service-account-signing-key-file={pki / 'tokens.key'}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-cluster-ip-range={self.service_range}",
            "--authorization-mode=Node,RBAC",
            "--allow-privileged",
            f"--audit-policy-file={policy}",
            f"--audit-log-path={self.audit_log}",
            "--audit-log-maxsize=10000",  # megabytes; a rotated file would lose requests to count
        ]

    def _start_controllers(self) -> None:
        quiet = ["--leader-elect=false", "--secure-port=0"]
        if self._with_controller_manager:
            flags = [
                *quiet,
                "--use-service-account-credentials=false",
                f"--service-account-private-key-file={self.folder / 'pki' / 'tokens.key'}",
                f"--root-ca-file={self.ca}",
                f"--controllers={CONTROLLERS}",
            ]
            user = "system:kube-controller-manager"
            self._spawn("kube-controller-manager", [*self._as_user(user), *flags])
        if self._with_scheduler:
            self._spawn("kube-scheduler", [*self._as_user("system:kube-scheduler"), *quiet])
        if self._with_kwok:
            self._spawn("kwok", self._kwok_flags())

    def _kwok_flags(self) -> list[str]:
        documents = [
            *self._asset_documents("kwok-node-stages"),
            *self._asset_documents("kwok-pod-stages"),
        ]
        stages = self.folder / "kwok-stages.yaml"
        stages.write_text(configuration.dump_all(configuration.kwok_stages(documents)))
        return [
            *self._as_user("kwok"),
            f"--config={stages}",
            "--manage-all-nodes=false",
            f"--manage-nodes-with-annotation-selector={configuration.FAKE_NODE_ANNOTATION}=fake",
            "--node-lease-duration-seconds=40",
            f"--server-address=127.0.0.1:{self._ports['kwok']}",
        ]

    def _wait_for_controllers(self) -> None:
        if self._with_controller_manager:
            path = "/api/v1/namespaces/default/serviceaccounts/default"
            self._wait(
                "the controller manager to make the default service account",
                lambda: None if self.api.find(path) else "there is none",
            )
        if self._with_kwok:
            port = self._ports["kwok"]
            self._wait("kwok to be ready", lambda: _http_problem(port, "/healthz"))

    def _kueue_certificates(self) -> Path:
        """Certificates for the webhook, and any valid pair at the path that cannot be chosen."""
        folder = self.folder / "kueue-certificates"
        pair = self._authority.server("kueue-webhook", ["localhost"], ["127.0.0.1"])
        pair.write(folder)
        _place_kueue_certificates(pair)
        return folder

    def _install_webhooks(self) -> None:
        documents = configuration.local_webhooks(
            self._asset_documents("kueue-webhooks"),
            self._ports["kueue-webhook"],
            self._authority.certificate,
        )
        for document in documents:
            plural = f"{document['kind'].lower()}s"
            self._apply_at(f"/apis/admissionregistration.k8s.io/v1/{plural}", document)

    # ------------------------------------------------------------------------ what is seen

    def _api_problem(self) -> str | None:
        try:
            self.api.get("/readyz")
        except ApiError as error:
            failing = [line for line in str(error).splitlines() if line.startswith("[-]")]
            return "; ".join(failing) or str(error)
        return None

    def _not_established(self, name: str) -> str | None:
        found = self.api.find(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}")
        conditions = (found or {}).get("status", {}).get("conditions") or []
        states = {condition["type"]: condition["status"] for condition in conditions}
        return None if states.get("Established") == "True" else f"conditions {states}"

    def _not_served(self, path: str) -> str | None:
        return None if self.api.find(path) is not None else "not found"

    def _still_there(self, path: str) -> str | None:
        return "it is still there" if self.api.find(path) else None

    def _webhook_problem(self) -> str | None:
        """The API server learns of new webhooks a moment later; until then anything is accepted."""
        kueue = "/apis/kueue.x-k8s.io/v1beta2"
        try:
            queue = self.api.create(f"{kueue}/clusterqueues?dryRun=All", _probe("ClusterQueue"))
        except ApiError as error:
            return f"the mutating webhook: {error}"
        if "finalizers" not in queue["metadata"]:
            return "a ClusterQueue got no finalizer: the mutating webhook is not called yet"
        try:
            self.api.create(f"{kueue}/cohorts?dryRun=All", _probe("Cohort"))
        except ApiError as error:
            return None if error.code == 403 else f"the validating webhook: {error}"
        return "a wrong Cohort was accepted: the validating webhook is not called yet"

    # ------------------------------------------------------------------------ small parts

    def _spawn(self, name: str, flags: Sequence[str]) -> None:
        command = [str(self.bin(name)), *flags]
        log = self.logs / f"{name}.log"
        self._processes[name] = Process(name, command, log, self.folder)

    def _wait(self, what: str, look: Callable[[], str | None]) -> None:
        wait_until(what, look, timeout=START_LIMIT, alive=self._processes)

    def _as_user(self, user: str) -> list[str]:
        return [f"--kubeconfig={self.new_kubeconfig(user, [ADMINISTRATORS])}"]

    def _apply_at(self, path: str, document: Document) -> None:
        target = f"{path}/{document['metadata']['name']}?fieldManager={FIELD_MANAGER}&force=true"
        self.api.request("PATCH", target, document, content_type=APPLY)

    def _asset_documents(self, name: str) -> list[Document]:
        files = sorted(self._found.assets[name].glob("*.yaml"))
        return [document for file in files for document in configuration.load_all(file.read_text())]

    def _clear_folder(self, *, keep_logs: bool) -> Path | None:
        folder, self._folder = self._folder, None
        if folder is None:
            return None
        if not keep_logs:
            shutil.rmtree(folder, ignore_errors=True)
            return None
        for entry in folder.iterdir():
            if entry.name != "logs":
                _remove(entry)
        self._progress(f"the logs of the control plane are kept in {folder / 'logs'}")
        return folder / "logs"

    def _guard(self) -> None:
        """Stop at exit too, and on SIGTERM, which by itself would skip every exit hook."""
        atexit.register(self.stop)
        if threading.current_thread() is not threading.main_thread():
            return
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            self._old_handler = signal.signal(signal.SIGTERM, _exit_on_signal)

    def _unguard(self) -> None:
        atexit.unregister(self.stop)
        if self._old_handler is not None:
            signal.signal(signal.SIGTERM, self._old_handler)
            self._old_handler = None


def _exit_on_signal(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)


def _etcd_flags(data: Path, client: str, peer: str) -> list[str]:
    return [
        f"--data-dir={data}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync",  # the data is thrown away; waiting for a disk would be for nothing
        "--log-level=warn",
    ]


def _namespace(name: str) -> Document:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def _list_path(crd: Document) -> str:
    """Where the objects of a CRD are listed, in the version in which they are stored."""
    spec = crd["spec"]
    (version,) = [item["name"] for item in spec["versions"] if item["storage"]]
    return f"/apis/{spec['group']}/{version}/{spec['names']['plural']}"


def _probe(kind: str) -> Document:
    """A ClusterQueue that is right, and a Cohort that is wrong: a root must not borrow."""
    spec: Document = {}
    if kind == "Cohort":
        quota = {"name": "cpu", "nominalQuota": "1", "borrowingLimit": "1"}
        flavors = [{"name": "probe", "resources": [quota]}]
        spec = {"resourceGroups": [{"coveredResources": ["cpu"], "flavors": flavors}]}
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": kind,
        "metadata": {"name": "webhook-probe"},
        "spec": spec,
    }


def _http_problem(port: int, path: str) -> str | None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        text = response.read().decode(errors="replace").strip()
        return None if response.status == 200 else f"{response.status} {text}"
    except (OSError, http.client.HTTPException) as error:
        return repr(error)
    finally:
        connection.close()


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()
