"""A cluster of some size, recorded as the pages of lists that an API server answers with.

Nothing is measured here. Nodes are kept between runs (they depend on the generator alone); the tree
and Kueue's objects are made anew, because they are what the program of this commit renders.
"""

import hashlib
import shutil
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any, Final

import orjson

from bench import nodes as nodes_module
from bench import sizes as sizes_module
from bench import trees
from bench.replay import load, load_live
from bench.sizes import Size
from quota_translator.core.names import KINDS, RESOURCE_FLAVOR
from quota_translator.core.report import report
from quota_translator.core.translate import Translation, remember, translate
from quota_translator.core.world import Clock, World
from quota_translator.kube.client import PAGE
from quota_translator.kube.resources import KUEUE, NAMESPACES, NODES, QUOTAS, Resource

SEED: Final = 20261130
MOMENT: Final = Clock(datetime(2026, 11, 30, 12, tzinfo=UTC), 1000.0)


def record(size: Size, folder: Path, seed: int = SEED) -> Path:
    """Write the whole cluster, in the state in which nothing is left to do. Returns its folder."""
    place = folder / size.name
    _record_nodes(size, place, seed)
    quotas = trees.quotas(size, seed)
    _write(place, NAMESPACES, map(orjson.dumps, trees.namespaces(size, seed)))
    _write(place, QUOTAS, map(orjson.dumps, quotas))
    for kind in KINDS:
        _write(place, KUEUE[kind], ())
    flavors = list(trees.flavors(size, seed))
    _write(place, KUEUE[RESOURCE_FLAVOR], map(orjson.dumps, flavors))
    wanted = _translated(load(place)).rendering.desired.values()
    manager = trees.OPTIONS.materialize.manager
    for kind in KINDS:
        objects: Iterable[Any] = trees.live(
            (w for w in wanted if w.key.kind == kind), manager, seed
        )
        if kind == RESOURCE_FLAVOR:
            objects = [*flavors, *objects]
        _write(place, KUEUE[kind], map(orjson.dumps, objects))
    world = load_live(place, load(place))
    converged = _translated(world)
    _check(size, converged)
    told = _statuses(world, converged)
    for quota in quotas:
        quota["status"] = told[quota["metadata"]["name"]]
    _write(place, QUOTAS, map(orjson.dumps, quotas))
    return place


def _record_nodes(size: Size, place: Path, seed: int) -> None:
    source = "".join(Path(str(m.__file__)).read_text() for m in (nodes_module, sizes_module))
    stamp = hashlib.sha256(f"{source}{size}{seed}{PAGE}".encode()).hexdigest()
    made = place / "nodes.sha256"
    if not made.exists() or made.read_text() != stamp:
        made.unlink(missing_ok=True)
        _write(place, NODES, nodes_module.nodes(size, seed))
        made.write_text(stamp)


def _write(place: Path, resource: Resource, items: Iterable[bytes]) -> None:
    """The pages of one list; the token of a page is its number."""
    folder = place / resource.plural
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    pages = list(_paged(items))
    for number, page in enumerate(pages):
        token = str(number + 1) if number + 1 < len(pages) else ""
        metadata = orjson.dumps({"resourceVersion": "50000000", "continue": token})
        parts = (b'{"kind":"List","metadata":', metadata, b',"items":[', b",".join(page), b"]}")
        (folder / f"{number}.json").write_bytes(b"".join(parts))


def _paged(items: Iterable[bytes]) -> Iterator[list[bytes]]:
    rest = iter(items)
    yield list(islice(rest, PAGE))  # an empty list is a page too
    while page := list(islice(rest, PAGE)):
        yield page


def _translated(world: World) -> Translation:
    return translate(world, remember(world.quotas or ()), trees.OPTIONS, MOMENT)


def _statuses(world: World, found: Translation) -> dict[str, dict[str, Any]]:
    return report(found, world, trees.OPTIONS, MOMENT)


def _check(size: Size, converged: Translation) -> None:
    """What is measured as "nothing to do" has to be that."""
    if converged.verdict.violations or converged.plan.actions or converged.plan.notes:
        first = [*converged.verdict.violations, *converged.plan.actions, *converged.plan.notes][0]
        raise AssertionError(f"the tree of size {size.name} is not sound and settled: {first}")
