"""Nodes as a large GPU fleet's API server sends them: some 9 KB of JSON each, seeded.

What makes real nodes heavy is here (labels of feature discovery, annotations, managedFields,
conditions, images), and what makes them hard to compress: machine ids, addresses, digests and
times. Of a hundred nodes ten have no accelerator, three are cordoned or NotReady, one has lost a
device, and two carry no label that a flavor asks for.
"""

from collections.abc import Iterator
from random import Random
from typing import Any, Final

import msgspec
import orjson

from bench.sizes import FLAVORS, Size

GPU: Final = "nvidia.com/gpu"
TPU: Final = "google.com/tpu"
POOL_LABEL: Final = "example.org/accelerator-pool"
DEVICES: Final = 8
_MODELS: Final = ("A100-SXM4-80GB", "H100-SXM5-80GB", "H200-SXM5-141GB", "L40S", "B200-SXM6-180GB")
_PRESSURES: Final = (
    ("MemoryPressure", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("NetworkUnavailable", "RouteCreated", "the network provider created a route"),
    ("KernelDeadlock", "KernelHasNoDeadlock", "kernel has no deadlock"),
    ("GpuXidError", "NoXidError", "no uncorrected device error in the kernel's log"),
)


class Kind(msgspec.Struct, frozen=True):
    """What sort of machine a node is."""

    pool: int | None  # index of its flavor; None: without an accelerator
    labelled: bool = True
    cordoned: bool = False
    ready: bool = True
    lost: int = 0  # devices that it has and does not offer


def flavor_name(index: int) -> str:
    return f"pool-{index:02d}"


def resource_of(pool: int) -> str:
    """Of six pools five have GPUs and one TPUs."""
    return TPU if pool % 6 == 5 else GPU


def kind_of(index: int) -> Kind:
    """Counted, not drawn, so that every size has the same mixture."""
    if index % 10 == 9:
        return Kind(None)
    return Kind(
        (index // 10 * 9 + index % 10) % FLAVORS,
        labelled=index % 50 != 7,
        cordoned=index % 50 == 13,
        ready=index % 100 != 31,
        lost=1 if index % 100 == 54 else 0,
    )


def devices(size: Size, pool: int) -> int:
    """What is installed in a pool and labelled as such."""
    kinds = (kind_of(index) for index in range(size.nodes))
    return sum(DEVICES - k.lost for k in kinds if k.pool == pool and k.labelled)


def nodes(size: Size, seed: int) -> Iterator[bytes]:
    """Every node of the cluster as JSON, in the order of names."""
    images = _catalogue(Random(f"{seed} images"))
    for index in range(size.nodes):
        yield orjson.dumps(_node(index, Random(f"{seed} node {index}"), images))


def _node(index: int, rng: Random, images: list[dict[str, Any]]) -> dict[str, Any]:
    kind, name = kind_of(index), f"node-{index:05d}"
    amounts = {
        "cpu": "192",
        "ephemeral-storage": f"{rng.randrange(3_400_000_000, 3_500_000_000)}Ki",
        "hugepages-1Gi": "0",
        "hugepages-2Mi": "0",
        "memory": f"{rng.randrange(2_100_000_000, 2_113_000_000)}Ki",
        "pods": "110",
    }
    capacity = amounts | {"rdma/hca_shared": "64"}
    if kind.pool is not None:
        capacity[resource_of(kind.pool)] = str(DEVICES)
    offered = capacity | {"cpu": "190", "ephemeral-storage": str(rng.randrange(10**14))}
    if kind.pool is not None:
        offered[resource_of(kind.pool)] = str(DEVICES - kind.lost)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": _metadata(index, name, kind, rng),
        "spec": _spec(index, kind, rng),
        "status": {
            "addresses": [
                {"type": "InternalIP", "address": _address(index)},
                {"type": "Hostname", "address": name},
            ],
            "allocatable": offered,
            "capacity": capacity,
            "conditions": _conditions(kind, rng),
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "features": {"supplementalGroupsPolicy": True},
            "images": rng.sample(images, 5),
            "nodeInfo": _info(rng),
            "runtimeHandlers": [
                {"name": "", "features": {"recursiveReadOnlyMounts": True, "userNamespaces": True}},
                {"name": "nvidia", "features": {"recursiveReadOnlyMounts": True}},
            ],
        },
    }


def _metadata(index: int, name: str, kind: Kind, rng: Random) -> dict[str, Any]:
    labels = _labels(index, name, kind, rng)
    annotations = {
        "cluster.x-k8s.io/machine": f"fleet-{_hex(rng, 10)}",
        "csi.volume.kubernetes.io/nodeid": f'{{"csi.example.org":"i-{_hex(rng, 17)}"}}',
        "node.alpha.kubernetes.io/ttl": "0",
        "node.example.org/last-audit": _time(rng),
        "nfd.node.kubernetes.io/feature-labels": ",".join(
            label.rpartition("/")[2] for label in labels if label.startswith("feature.")
        ),
        "projectcalico.org/IPv4Address": f"{_address(index)}/20",
        "projectcalico.org/WireguardPublicKey": _hex(rng, 44),
        "node.example.org/attestation": _hex(rng, 800),
        "volumes.kubernetes.io/controller-managed-attach-detach": "true",
    }
    return {
        "name": name,
        "uid": uid(rng),
        "resourceVersion": str(40_000_000 + rng.randrange(9_000_000)),
        "creationTimestamp": _time(rng),
        "labels": labels,
        "annotations": annotations,
        "managedFields": _managed(list(labels), list(annotations), rng),
    }


def _labels(index: int, name: str, kind: Kind, rng: Random) -> dict[str, str]:
    pool = kind.pool
    # A machine without accelerators says so, as feature discovery does.
    model = _MODELS[pool % len(_MODELS)] if pool is not None else "none"
    labels = {
        "beta.kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/os": "linux",
        "failure-domain.beta.kubernetes.io/zone": f"zone-{index % 3}",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": f"machine-{pool if pool is not None else 'cpu'}",
        "topology.kubernetes.io/region": "region-1",
        "topology.kubernetes.io/zone": f"zone-{index % 3}",
        "topology.example.org/rack": f"rack-{index // 16:04d}",
        "topology.example.org/block": f"block-{index // 128:03d}",
        "topology.example.org/host": name,
        "example.org/serial": _hex(rng, 12),
        "feature.node.kubernetes.io/cpu-cpuid.AMXTILE": "true",
        "feature.node.kubernetes.io/cpu-cpuid.AVX512F": "true",
        "feature.node.kubernetes.io/cpu-cpuid.SHA": "true",
        "feature.node.kubernetes.io/cpu-hardware_multithreading": "true",
        "feature.node.kubernetes.io/cpu-model.family": "6",
        "feature.node.kubernetes.io/cpu-model.id": "143",
        "feature.node.kubernetes.io/kernel-version.full": f"6.8.0-{rng.choice((45, 51, 60))}",
        "feature.node.kubernetes.io/kernel-version.major": "6",
        "feature.node.kubernetes.io/memory-numa": "true",
        "feature.node.kubernetes.io/network-sriov.capable": "true",
        "feature.node.kubernetes.io/pci-10de.present": "true",
        "feature.node.kubernetes.io/storage-nonrotationaldisk": "true",
        "feature.node.kubernetes.io/system-os_release.ID": "ubuntu",
        "nvidia.com/cuda.driver.major": "570",
        "nvidia.com/cuda.driver.minor": str(rng.choice((86, 124, 133))),
        "nvidia.com/cuda.runtime.major": "12",
        "nvidia.com/gfd.timestamp": str(1_760_000_000 + rng.randrange(9_000_000)),
        "nvidia.com/gpu.compute.major": "9",
        "nvidia.com/gpu.count": str(DEVICES if pool is not None else 0),
        "nvidia.com/gpu.deploy.driver": "true",
        "nvidia.com/gpu.family": "hopper",
        "nvidia.com/gpu.memory": "81559",
        "nvidia.com/gpu.product": model,
        "nvidia.com/mig.capable": "true",
    }
    pooled = pool is not None and kind.labelled
    return labels | {POOL_LABEL: flavor_name(pool) if pooled and pool is not None else "spare"}


def _spec(index: int, kind: Kind, rng: Random) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "podCIDR": f"10.{index // 256}.{index % 256}.0/24",
        "podCIDRs": [f"10.{index // 256}.{index % 256}.0/24"],
        "providerID": f"example://region-1/i-{_hex(rng, 17)}",
    }
    taints = [{"key": GPU, "effect": "NoSchedule"}] if kind.pool is not None else []
    if kind.cordoned:
        spec["unschedulable"] = True
        taints.append({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"})
    return spec | {"taints": taints}


def _conditions(kind: Kind, rng: Random) -> list[dict[str, str]]:
    told = [(name, "False", reason, message) for name, reason, message in _PRESSURES]
    if kind.ready:
        told.append(("Ready", "True", "KubeletReady", "kubelet is posting ready status"))
    else:
        message = "Kubelet stopped posting node status."
        told.append(("Ready", "Unknown", "NodeStatusUnknown", message))
    return [
        {
            "type": name,
            "status": status,
            "lastHeartbeatTime": _time(rng),
            "lastTransitionTime": _time(rng),
            "reason": reason,
            "message": message,
        }
        for name, status, reason, message in told
    ]


def _info(rng: Random) -> dict[str, str]:
    return {
        "architecture": "amd64",
        "bootID": uid(rng),
        "containerRuntimeVersion": "containerd://2.1.4",
        "kernelVersion": "6.8.0-60-generic",
        "kubeProxyVersion": "",
        "kubeletVersion": "v1.36.2",
        "machineID": _hex(rng, 32),
        "operatingSystem": "linux",
        "osImage": "Ubuntu 24.04.3 LTS",
        "systemUUID": uid(rng),
    }


def _managed(labels: list[str], annotations: list[str], rng: Random) -> list[dict[str, Any]]:
    owned: dict[str, Any] = {
        "f:metadata": {
            "f:annotations": {f"f:{name}": {} for name in annotations},
            "f:labels": {f"f:{name}": {} for name in labels},
        }
    }
    amounts: dict[str, Any] = {
        "f:cpu": {},
        "f:ephemeral-storage": {},
        "f:memory": {},
        f"f:{GPU}": {},
    }
    status = {
        "f:status": {
            "f:allocatable": amounts,
            "f:conditions": {
                f'k:{{"type":"{name}"}}': {"f:lastHeartbeatTime": {}, "f:status": {}}
                for name, _, _ in _PRESSURES
            },
            "f:images": {},
        }
    }
    common = {"operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1"}
    return [
        common | {"manager": "kubelet", "time": _time(rng), "fieldsV1": owned},
        common
        | {"manager": "kubelet", "time": _time(rng), "fieldsV1": status, "subresource": "status"},
    ]


def _catalogue(rng: Random) -> list[dict[str, Any]]:
    """Thousands of images; a node lists a few of them."""
    found = []
    for index in range(5_000):
        repository = f"registry.example.org/{rng.choice(('base', 'ml', 'infra'))}/image-{index}"
        names = [f"{repository}@sha256:{_hex(rng, 64)}", f"{repository}:v{rng.randrange(40)}.1"]
        found.append({"names": names, "sizeBytes": rng.randrange(10**7, 10**10)})
    return found


def uid(rng: Random) -> str:
    text = _hex(rng, 32)
    return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-a{text[17:20]}-{text[20:]}"


def _hex(rng: Random, length: int) -> str:
    return f"{rng.getrandbits(4 * length):0{length}x}"


def _time(rng: Random) -> str:
    day, second = rng.randrange(1, 29), rng.randrange(86_400)
    return f"2026-11-{day:02d}T{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}Z"


def _address(index: int) -> str:
    return f"172.{16 + index // 65_536}.{index // 256 % 256}.{index % 256}"
