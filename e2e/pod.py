"""One pod of our Deployment as a process of this machine, under what its manifest says.

Command, arguments, environment, ServiceAccount, probes, grace period and mounted Secrets are those
of the pod. Three things are different from a container, and only these:

- A pod's network is a loopback address of its own, so ``:8081`` in an argument becomes
  ``127.x.y.z:8081``.
- The token of the ServiceAccount (bound to the pod, as a kubelet's) lies in a folder that a
  kubeconfig names by ``KUBECONFIG``: the library insists on ``/var/run/secrets`` for the other way.
- The image is this work tree: its entry point is ``python -m quota_translator``.
"""

from __future__ import annotations

import base64
import http.client
import os
import re
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from e2e.controlplane.api import Api
from e2e.controlplane.certificates import write_private
from e2e.controlplane.cluster import ControlPlane
from e2e.controlplane.configuration import dump_all
from e2e.controlplane.processes import Process

STRATEGIC_MERGE = "application/strategic-merge-patch+json"
ENTRY_POINT = [sys.executable, "-m", "quota_translator"]  # as the Dockerfile has it
TOKEN_SECONDS = 3600  # longer than any test: it is not renewed
ANY_ADDRESS = re.compile(r"(--[a-z-]+=)(?:0\.0\.0\.0)?(:[0-9]+)")
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 5.0  # before a container is started again
PROBE_EVERY = 0.2
PROBE_SECONDS = 2.0


Redirect = Callable[[Path], Path]  # a kubeconfig, and the one that leads through a proxy


def _unchanged(kubeconfig: Path) -> Path:
    return kubeconfig


class Pod:
    """``step`` is called again and again by the one who stands in for the kubelet."""

    def __init__(
        self,
        cp: ControlPlane,
        kubelet: Api,
        document: dict[str, Any],
        ip: str,
        redirect: Redirect = _unchanged,
    ) -> None:
        self._redirect = redirect
        self.document = document
        self.name: str = document["metadata"]["name"]
        self.namespace: str = document["metadata"]["namespace"]
        self.ip = ip
        self.ready = False
        self.restarts = 0
        self.done = False
        self.log_file = cp.logs / f"{self.name}.log"
        self._cp, self._kubelet = cp, kubelet
        self._folder: Path = cp.folder / "pods" / self.name
        self._process: Process | None = None
        self._start_at = 0.0
        self._pause = FIRST_PAUSE
        self._kill_at: float | None = None
        self._looked_at = 0.0
        self._strikes = 0
        self._versions: dict[str, str] = {}
        self._told: object = None

    # ------------------------------------------------------------------------ for tests

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} does not run"
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.running

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def get(self, path: str, port: str = "health") -> tuple[int, str]:
        """A page of one of its ports, by the port's name; 0 and why when nobody answers."""
        return _get(self.ip, self.port(port), path)

    def log(self) -> str:
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    def port(self, name: str | int) -> int:
        """The number of a named port, which is what a Service's targetPort may be."""
        return self._named_ports.get(str(name)) or int(name)

    def has_port(self, name: str | int) -> bool:
        """A Service may name one that the pods of an earlier or a later version lack."""
        return isinstance(name, int) or name in self._named_ports

    @property
    def _named_ports(self) -> dict[str, int]:
        ports = self._container.get("ports", [])
        return {port["name"]: port["containerPort"] for port in ports if "name" in port}

    # ------------------------------------------------------------------------ for the kubelet

    def step(self) -> None:
        """Bring the process nearer to what the pod says, and tell the API server of it."""
        if "deletionTimestamp" in self.document["metadata"]:
            self._end()
        else:
            self._keep_running()
        if not self.done:
            self._tell()

    def stop(self) -> None:
        """At once, when nobody asks any more."""
        self.ready = False
        if self._process is not None:
            self._process.kill()
        self.done = True

    @property
    def _container(self) -> dict[str, Any]:
        (container,) = self.document["spec"]["containers"]
        return dict(container)

    def _keep_running(self) -> None:
        now = time.monotonic()
        if self._process is not None and not self._process.running:
            self._ended(now)
        if self._process is None and now >= self._start_at:
            self._start()
        if self._process is not None and now - self._looked_at >= PROBE_EVERY:
            self._looked_at = now
            self._mount_secrets()
            self.ready = self._passes("readinessProbe")
            self._judge_life()

    def _ended(self, now: float) -> None:
        self._process, self.ready = None, False
        self.restarts += 1
        self._start_at = now + self._pause
        self._pause = min(2 * self._pause, LONGEST_PAUSE)

    def _judge_life(self) -> None:
        """Kubelets ask each ten seconds; here the strikes have to be as many, but come faster."""
        self._strikes = 0 if self._passes("livenessProbe") else self._strikes + 1
        probe = self._container.get("livenessProbe", {})
        patience = probe.get("failureThreshold", 3) * probe.get("periodSeconds", 10)
        if self._process is not None and self._strikes * PROBE_EVERY > patience:
            self._process.kill()

    def _passes(self, probe: str) -> bool:
        get = self._container.get(probe, {}).get("httpGet")
        return get is None or _get(self.ip, self.port(get["port"]), get["path"])[0] == 200

    def _end(self) -> None:
        self.ready = False
        if self.running:
            assert self._process is not None
            if self._kill_at is None:
                grace = self.document["metadata"].get("deletionGracePeriodSeconds", 30)
                self._kill_at = time.monotonic() + grace
                self._process.terminate()
            elif time.monotonic() > self._kill_at:
                self._process.kill()
            return
        self.done = True
        uid = self.document["metadata"]["uid"]
        path = f"{self._path}?gracePeriodSeconds=0"
        self._kubelet.delete(path, preconditions={"uid": uid}, gracePeriodSeconds=0)

    # ------------------------------------------------------------------------ starting

    def _start(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / "tmp").mkdir(exist_ok=True)
        self._mount_secrets()
        container = self._container
        command = [*container.get("command", ENTRY_POINT), *container.get("args", [])]
        self._process = Process(
            self.name,
            [self._in_place(ANY_ADDRESS.sub(rf"\g<1>{self.ip}\g<2>", word)) for word in command],
            self.log_file,
            self._folder,
            self._environment(container),
        )

    def _environment(self, container: dict[str, Any]) -> dict[str, str]:
        found = {
            "PATH": os.environ.get("PATH", ""),
            "HOSTNAME": self.name,
            "TMPDIR": str(self._folder / "tmp"),
            "KUBECONFIG": str(self._kubeconfig()),
        }
        for variable in container.get("env", []):
            found[variable["name"]] = self._in_place(str(variable.get("value", "")))
        return found

    def _in_place(self, word: str) -> str:
        """Where a container has a mount, here is a folder of this pod."""
        for mount in self._secret_mounts():
            word = word.replace(mount["mountPath"], str(self._folder / mount["name"]))
        return word

    def _kubeconfig(self) -> Path:
        account = self.document["spec"].get("serviceAccountName", "default")
        metadata = self.document["metadata"]
        bound = {"apiVersion": "v1", "kind": "Pod", "name": self.name, "uid": metadata["uid"]}
        token = account_token(self._kubelet, self.namespace, account, boundObjectRef=bound)
        write_private(self._folder / "token", token.encode())
        path = self._folder / "kubeconfig"
        document = _kubeconfig(self._cp, self._folder / "token", self.namespace)
        write_private(path, dump_all([document]).encode())
        return self._redirect(path)

    # ------------------------------------------------------------------------ Secrets

    def _secret_mounts(self) -> list[dict[str, Any]]:
        volumes = self.document["spec"].get("volumes", [])
        secrets = {volume["name"] for volume in volumes if "secret" in volume}
        return [m for m in self._container.get("volumeMounts", []) if m["name"] in secrets]

    def _mount_secrets(self) -> None:
        """Files of mounted Secrets, each replaced as a whole when the Secret has changed."""
        names = {mount["name"] for mount in self._secret_mounts()}
        for volume in self.document["spec"].get("volumes", []):
            if volume["name"] in names:
                self._mount(volume["name"], volume["secret"]["secretName"])

    def _mount(self, volume: str, name: str) -> None:
        secret = self._kubelet.get(f"/api/v1/namespaces/{self.namespace}/secrets/{name}")
        if self._versions.get(volume) == secret["metadata"]["resourceVersion"]:
            return
        folder = self._folder / volume
        folder.mkdir(exist_ok=True)
        for key, text in secret.get("data", {}).items():
            new = folder / f".{key}"
            write_private(new, base64.b64decode(text))
            new.replace(folder / key)
        self._versions[volume] = secret["metadata"]["resourceVersion"]

    # ------------------------------------------------------------------------ status

    @property
    def _path(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods/{self.name}"

    def _tell(self) -> None:
        told = (self.ready, self.restarts, self.running)
        if told == self._told:
            return
        status = _status(self, self._container, running=self.running)
        self._kubelet.request(
            "PATCH", f"{self._path}/status", {"status": status}, content_type=STRATEGIC_MERGE
        )
        self._told = told


def _get(host: str, port: int, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection(host, port, timeout=PROBE_SECONDS)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        return 0, repr(error)
    finally:
        connection.close()


def account_token(api: Api, namespace: str, account: str, **spec: Any) -> str:
    """A token of a ServiceAccount."""
    answer = api.create(
        f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token",
        {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": TOKEN_SECONDS, **spec},
        },
    )
    return str(answer["status"]["token"])


def _kubeconfig(cp: ControlPlane, token: Path, namespace: str) -> dict[str, Any]:
    server = {"server": cp.url, "certificate-authority": str(cp.ca)}
    context = {"cluster": "own", "user": "own", "namespace": namespace}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "own", "cluster": server}],
        "users": [{"name": "own", "user": {"tokenFile": str(token)}}],
        "contexts": [{"name": "own", "context": context}],
        "current-context": "own",
    }


def _status(pod: Pod, container: dict[str, Any], *, running: bool) -> dict[str, Any]:
    """What a kubelet reports of a pod."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    ready = "True" if pod.ready else "False"
    waiting = {"reason": "CrashLoopBackOff", "message": "\n".join(pod.log().splitlines()[-3:])}
    state = {"running": {"startedAt": now}} if running else {"waiting": waiting}
    conditions = [
        {"type": kind, "status": status, "lastTransitionTime": now}
        for kind, status in (("Initialized", "True"), ("ContainersReady", ready), ("Ready", ready))
    ]
    return {
        "phase": "Running",
        "podIP": pod.ip,
        "podIPs": [{"ip": pod.ip}],
        "startTime": now,
        "conditions": conditions,
        "containerStatuses": [
            {
                "name": container["name"],
                "image": container["image"],
                "imageID": "",
                "ready": pod.ready,
                "started": running,
                "restartCount": pod.restarts,
                "state": state,
            }
        ],
    }
