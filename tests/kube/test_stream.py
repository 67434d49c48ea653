import asyncio

import pytest

from quota_translator.errors import Malformed, Silent
from quota_translator.kube.stream import LineSplitter, WatchStream


class Chunks:
    """Bytes that come one chunk a read, then the end; "hang" in their place never comes."""

    def __init__(self, *chunks: bytes, hang: bool = False) -> None:
        self._chunks = list(chunks)
        self._hang = hang

    async def readany(self) -> bytes:
        if self._chunks:
            return self._chunks.pop(0)
        if self._hang:
            await asyncio.Event().wait()
        return b""


async def read(stream: WatchStream) -> list[bytes]:
    return [line async for line in stream.lines()]


@pytest.mark.parametrize(
    ("chunks", "lines"),
    [
        pytest.param([b"a\nb\n"], [b"a", b"b"], id="two-in-a-chunk"),
        pytest.param([b"a", b"b", b"c\nd\n"], [b"abc", b"d"], id="one-over-three-chunks"),
        pytest.param([b"a\n", b"half"], [b"a"], id="a-half-line-at-the-end-is-dropped"),
        pytest.param([b"\n\r\n", b"a\r\n"], [b"a"], id="empty-lines-are-nothing"),
        pytest.param([], [], id="no-body"),
    ],
)
async def test_lines_are_whole_or_not_at_all(chunks: list[bytes], lines: list[bytes]) -> None:
    stream = WatchStream(Chunks(*chunks), silence=5)
    assert await read(stream) == lines
    assert stream.received == sum(map(len, chunks))


@pytest.mark.case("fault 13")
def test_a_line_of_five_mebibytes_passes() -> None:
    splitter = LineSplitter()
    line = b"x" * (5 * 2**20)
    chunks = [line[start : start + 65536] for start in range(0, len(line), 65536)]
    found = [out for chunk in (*chunks, b"\n") for out in splitter.feed(chunk)]
    assert found == [line]


def test_a_line_without_end_is_given_up_at_the_bound() -> None:
    splitter = LineSplitter(limit=100)
    assert list(splitter.feed(b"x" * 100)) == []
    with pytest.raises(Malformed, match="longer than 100 bytes"):
        list(splitter.feed(b"x"))


@pytest.mark.case("fault 6")
async def test_silence_is_noticed_while_the_connection_stands() -> None:
    stream = WatchStream(Chunks(b"a\n", hang=True), silence=0.02)
    lines = stream.lines()
    assert await anext(lines) == b"a"
    with pytest.raises(Silent):
        await anext(lines)
    assert stream.received == 2
