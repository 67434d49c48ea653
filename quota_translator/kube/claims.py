"""The claim on the tree, given up: the next controller then waits for nothing."""

from quota_translator.core.holder import FIELD, given_up, read_claim
from quota_translator.core.names import ROOT
from quota_translator.core.world import Holder, QuotaNode
from quota_translator.errors import Conflict
from quota_translator.kube.client import Client
from quota_translator.kube.decode import read_quota
from quota_translator.kube.resources import QUOTAS


async def give_up(client: Client, root: QuotaNode, own: Holder, seconds: float) -> bool:
    """End our claim on root's status; whatever else became of root meanwhile stays. False: it
    bears another's, or none. Raises ApiError. `seconds` is for each of up to three requests."""
    try:
        return await _clear(client, root, own, seconds)
    except Conflict:  # our own last status may have come in between
        root = read_quota(await client.get(QUOTAS, ROOT, seconds=seconds))
        return await _clear(client, root, own, seconds)


async def _clear(client: Client, root: QuotaNode, own: Holder, seconds: float) -> bool:
    claim = read_claim(root.status)
    if claim is None or claim.holder != own:
        return False
    metadata = {"uid": root.uid, "resourceVersion": root.resource_version}
    patch = {"metadata": metadata, "status": {FIELD: given_up()}}
    await client.merge_patch(QUOTAS, ROOT, patch, subresource="status", seconds=seconds)
    return True
