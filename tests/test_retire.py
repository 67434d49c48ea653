"""`capacity retire` against a server: what it asks for, and when it refuses to."""

from typing import Any

import pytest

from quota_translator.core.names import RETIRE, Pair
from quota_translator.core.rootstatus import capacity_rows
from quota_translator.errors import Conflict
from quota_translator.kube.client import Client
from quota_translator.kube.resources import QUOTAS
from quota_translator.retire import NotRetired, retire
from tests.core.build import pair, rows
from tests.kube.objects import quota
from tests.kube.scripted import Scripted, failed, listed, reply

V100 = pair("gpu v100")
ROWS = rows("gpu a100 8", "gpu v100 32", "gpu l4 never")


def tree(annotation: str = "", gone: bool = True) -> list[dict[str, Any]]:
    root, team, other = quota("root"), quota("vision"), quota("speech")
    table = capacity_rows(ROWS)
    for row in table:
        if row["resourceFlavor"] == "v100" and gone:
            row |= {"measured": False}
        elif row["installed"] != "0":
            row |= {"nodes": 4}
    root |= {"status": {"capacity": table}}
    if annotation:
        root["metadata"]["annotations"] = {RETIRE: annotation}
    shares = {"resourceName": "nvidia.com/gpu", "nominal": "4"}
    team["spec"]["budgets"] = [shares | {"resourceFlavor": "v100"}]
    other["spec"]["budgets"] = [shares | {"resourceFlavor": "a100"}]
    return [root, team, other]


def sent(server: Scripted) -> list[dict[str, Any]]:
    return [asked.body["metadata"] for asked in server.asked if asked.verb == "patch"]


async def test_root_is_annotated_and_those_that_will_freeze_are_named(
    server: Scripted, client: Client
) -> None:
    server.always("list", QUOTAS.path(), listed(*tree()))
    server.always("patch", QUOTAS.path("root"), reply(quota("root")))
    found = await retire(client, V100)
    assert (found.mark, found.freezes) == ("32", ("vision",))
    assert "freeze until their budgets are lowered: vision" in found.text()
    (metadata,) = sent(server)
    assert metadata["annotations"] == {RETIRE: "nvidia.com/gpu@v100"}
    assert metadata["resourceVersion"]


async def test_what_somebody_else_asked_for_is_not_lost(server: Scripted, client: Client) -> None:
    again = tree("nvidia.com/gpu@k80")
    server.on("list", QUOTAS.path(), listed(*tree()), listed(*again))
    server.on("patch", QUOTAS.path("root"), failed(409, "Conflict"), reply(quota("root")))
    await retire(client, V100)
    wanted = [metadata["annotations"][RETIRE] for metadata in sent(server)]
    assert wanted == ["nvidia.com/gpu@v100", "nvidia.com/gpu@k80,nvidia.com/gpu@v100"]


async def test_it_does_not_fight_for_ever(server: Scripted, client: Client) -> None:
    server.always("list", QUOTAS.path(), listed(*tree()))
    server.always("patch", QUOTAS.path("root"), failed(409, "Conflict"))
    with pytest.raises(Conflict):
        await retire(client, V100)
    assert server.count("patch") == 3


@pytest.mark.parametrize(
    ("asked", "gone", "words"),
    [
        (V100, False, "is not retired: 4 node(s) report 32; take them away first"),
        (pair("gpu l4"), True, "has no mark: no node has ever reported it"),
        (Pair("a", "b"), True, "nvidia.com/gpu@a100, nvidia.com/gpu@l4, nvidia.com/gpu@v100"),
    ],
)
async def test_what_is_there_or_was_never_there_is_refused(
    server: Scripted, client: Client, asked: Pair, gone: bool, words: str
) -> None:
    server.always("list", QUOTAS.path(), listed(*tree(gone=gone)))
    with pytest.raises(NotRetired) as refused:
        await retire(client, asked)
    assert words in str(refused.value)
    assert server.count("patch") == 0


async def test_without_a_tree_there_is_nothing_to_retire(server: Scripted, client: Client) -> None:
    server.always("list", QUOTAS.path(), listed())
    with pytest.raises(NotRetired, match="there is no AcceleratorQuota root"):
        await retire(client, V100)
