"""A pair in files that others write, in every state in which a mount can be found."""

import asyncio
import errno
import os
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from quota_translator.certs.mounted import MountedCertificate
from quota_translator.certs.pairs import Pair, issue
from tests.certs.server import DAY, Clocks, handshake
from tests.kube.scripted import until

NAME = "guard.quota.svc"


class Mount:
    """A folder as the kubelet mounts a Secret: links to links, exchanged by one rename."""

    def __init__(self, folder: Path, clocks: Clocks) -> None:
        self.folder, self.clocks, self.number = folder, clocks, 0

    def write(self, pair: Pair | None = None, **files: bytes) -> Pair:
        pair = pair or issue((NAME,), 90 * DAY, self.clocks.now().wall)
        self.number += 1
        data = self.folder / f"..{self.number}"
        data.mkdir()
        (data / "tls.crt").write_bytes(files.get("crt", pair.chain))
        (data / "tls.key").write_bytes(files.get("key", pair.key))
        link = self.folder / "..new"
        link.symlink_to(data.name)
        os.replace(link, self.folder / "..data")
        for name in ("tls.crt", "tls.key"):
            if not (self.folder / name).is_symlink():
                (self.folder / name).symlink_to(f"..data/{name}")
        return pair


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


@pytest.fixture
def mount(tmp_path: Path, clocks: Clocks) -> Mount:
    return Mount(tmp_path, clocks)


def seen(mounted: MountedCertificate) -> bytes:
    found = handshake(mounted.context)
    return found.public_bytes(serialization.Encoding.PEM)


def test_what_is_mounted_is_served_and_what_it_becomes(mount: Mount) -> None:
    told: list[object] = []
    mounted = MountedCertificate(
        mount.folder, names=(NAME,), now=mount.clocks.now, on_change=lambda: told.append(1)
    )
    for number in (1, 2, 3):
        pair = mount.write()
        mounted.look()
        mounted.look()
        assert seen(mounted) == pair.chain
        assert (mounted.problem(), mounted.notice()) == ("", "")
        assert mounted.expires_at() == pair.not_after
        assert len(told) == number
        mount.clocks.go_on(DAY)


@pytest.mark.case("fault 41")
@pytest.mark.parametrize("broken", ["crt", "key"])
@pytest.mark.parametrize("text", [b"", b"garbage", None])
def test_a_half_written_pair_leaves_the_one_before_in_service(
    mount: Mount, broken: str, text: bytes | None
) -> None:
    mounted = MountedCertificate(mount.folder, now=mount.clocks.now)
    good = mount.write()
    mounted.look()
    other = issue((NAME,), DAY, mount.clocks.now().wall)  # None: of another pair
    found = text if text is not None else {"crt": other.chain, "key": other.key}[broken]
    mount.write(good, **{broken: found})
    mounted.look()
    assert seen(mounted) == good.chain
    assert mounted.problem() == ""
    assert mounted.notice().startswith(f"{mount.folder}: tls.")
    whole = mount.write()
    mounted.look()
    assert seen(mounted) == whole.chain
    assert mounted.notice() == ""


def test_a_system_that_has_nothing_left_for_it_leaves_the_pair_before_in_service(
    mount: Mount, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounted = MountedCertificate(mount.folder, now=mount.clocks.now)
    good = mount.write()
    mounted.look()
    new = mount.write()

    def none_left(*_: object) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patched:
        patched.setattr(os, "memfd_create", none_left)
        mounted.look()
    assert seen(mounted) == good.chain
    assert mounted.problem() == ""
    assert mounted.notice().endswith("the pair cannot be loaded: Too many open files")
    mounted.look()
    assert seen(mounted) == new.chain
    assert mounted.notice() == ""


def test_nothing_there_yet(mount: Mount) -> None:
    mounted = MountedCertificate(mount.folder, now=mount.clocks.now)
    assert mounted.problem() == f"no certificate yet: {mount.folder} has not been read yet"
    mounted.look()
    expected = f"no certificate yet: {mount.folder}: tls.crt: No such file or directory"
    assert mounted.problem() == expected
    assert mounted.expires_at() is None


def test_files_that_vanish_leave_the_pair_in_service(mount: Mount) -> None:
    mounted = MountedCertificate(mount.folder, now=mount.clocks.now)
    good = mount.write()
    mounted.look()
    (mount.folder / "tls.key").unlink()
    mounted.look()
    assert seen(mounted) == good.chain
    assert mounted.notice() == f"{mount.folder}: tls.key: No such file or directory"


@pytest.mark.case("fault 41")
def test_an_expired_pair_is_not_ready_until_a_new_one_is_mounted(mount: Mount) -> None:
    mounted = MountedCertificate(mount.folder, now=mount.clocks.now)
    mount.write()
    mounted.look()
    mount.clocks.go_on(90 * DAY)
    mounted.look()
    expected = f"{mount.folder}: tls.crt expired at 2026-04-01T12:00:00Z; mount one that is valid"
    assert mounted.problem() == expected
    mount.write()
    mounted.look()
    assert mounted.problem() == ""


def test_an_expired_pair_does_not_replace_a_good_one(mount: Mount) -> None:
    mounted = MountedCertificate(mount.folder, now=mount.clocks.now)
    old = issue((NAME,), DAY, mount.clocks.now().wall)
    mount.clocks.go_on(2 * DAY)
    good = mount.write()
    mounted.look()
    mount.write(old)
    mounted.look()
    assert seen(mounted) == good.chain
    assert mounted.notice() == f"{mount.folder}: tls.crt expired at 2026-01-02T12:00:00Z"


def test_a_pair_of_tomorrow_is_served_tomorrow(mount: Mount) -> None:
    mounted = MountedCertificate(mount.folder, now=mount.clocks.now)
    pair = mount.write()
    mount.clocks.set_wall(-DAY)
    mounted.look()
    assert "is not valid before" in mounted.problem()
    mount.clocks.set_wall(DAY)
    mounted.look()
    assert seen(mounted) == pair.chain


def test_a_name_that_it_lacks_is_told(mount: Mount) -> None:
    """Only told: where the configuration calls by another address, nothing is wrong."""
    mounted = MountedCertificate(mount.folder, names=("other.svc",), now=mount.clocks.now)
    mount.write()
    mounted.look()
    assert mounted.problem() == ""
    assert mounted.notice() == f"{mount.folder}: tls.crt does not bear the name other.svc"


async def test_the_loop_takes_up_what_changes(mount: Mount) -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        await asyncio.sleep(0)

    mounted = MountedCertificate(mount.folder, now=mount.clocks.now, sleep=sleep)
    running = asyncio.create_task(mounted.run())
    await until(lambda: len(pauses) > 2)
    pair = mount.write()
    await until(lambda: mounted.problem() == "")
    assert seen(mounted) == pair.chain
    assert set(pauses) == {5.0}
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
