"""A whole list, page by page, as records: all of it or nothing."""

from typing import Final

from quota_translator.errors import Gone
from quota_translator.kube.client import Client
from quota_translator.kube.decode import K, R, Watched, read_items, read_page

# A list that expires while it is read is begun again this often before the caller waits.
RESTARTS: Final = 2


async def list_all(client: Client, watched: Watched[K, R]) -> tuple[list[R], str]:
    """Every object of the kind and the list's version. A token that expires in the middle starts
    the list anew, and nothing of the half list is kept. Raises what the client raises."""
    for restarts_left in range(RESTARTS, -1, -1):
        try:
            return await _list_once(client, watched)
        except Gone:
            if not restarts_left:
                raise
    raise AssertionError("the last attempt returns or raises")


async def _list_once(client: Client, watched: Watched[K, R]) -> tuple[list[R], str]:
    page = read_page(await client.list_page(watched.resource, query=watched.query))
    records = await read_items(watched, page)
    while page.token:
        page = read_page(await client.list_page(watched.resource, page.token, query=watched.query))
        records += await read_items(watched, page)
    return records, page.version
