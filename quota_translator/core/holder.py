"""Who holds the tree: the claim of one controller, on root's status, and what it means to another.

Replicas agree by their Lease who writes. Two controllers that share no Lease (installed twice, say)
would each put right what the other wrote, for ever; so whoever writes says so on root, and who
finds another's claim there writes nothing.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from quota_translator.core.times import read_stamp, stamp
from quota_translator.core.world import Clock, Holder

FIELD: Final = "controller"
# Seconds between two renewals. The same for everybody, whatever settings they run with: who reads a
# claim must know when it is overdue without asking the one that made it.
INTERVAL: Final = 60.0
# So many intervals without a renewal end a claim ...
MISSED: Final = 3
# ... if they were watched; if not, this much more is granted to differences between clocks.
CLOCKS_DIFFER: Final = 300.0
# A stamp renews the claim in the same write, so by itself it is due a little later only.
_PATIENCE: Final = 1.25


class Claim(msgspec.Struct, frozen=True):
    """What stands on root. `age` may be negative: the other's clock is ahead of ours."""

    holder: Holder
    seen_at: str

    def age(self, clock: Clock) -> float | None:
        """Seconds since it was renewed, by the wall clock; None: it bears no time."""
        moment = read_stamp(self.seen_at)
        return (clock.wall - moment).total_seconds() if moment else None


def given_up() -> dict[str, Any]:
    """The merge patch of the row after which it claims nothing. Where its controller lived stays
    readable: `cleanup` looks there for what that one left."""
    return {"uid": None, "seenAt": None}


def home(status: Mapping[str, Any]) -> str:
    """The namespace of whoever holds the tree, or held it last; "" where nobody said so."""
    row = status.get(FIELD)
    namespace = row.get("namespace") if isinstance(row, Mapping) else None
    return namespace if isinstance(namespace, str) else ""


def read_claim(status: Mapping[str, Any]) -> Claim | None:
    """The claim on root's status; None where there is none, or none that names anybody."""
    row = status.get(FIELD)
    if not isinstance(row, Mapping) or not isinstance(row.get("uid"), str) or not row["uid"]:
        return None
    words = {name: row.get(name) for name in ("namespace", "lease", "seenAt")}
    text = {name: word if isinstance(word, str) else "" for name, word in words.items()}
    return Claim(Holder(text["namespace"], text["lease"], row["uid"]), text["seenAt"])


def same_holder(one: Holder, other: Holder) -> bool:
    """Whether one Lease decides which of the two writes. A Lease that was deleted and made again
    has another uid, and is the same Lease to everybody who uses it."""
    if one.uid == other.uid:
        return True
    return bool(one.lease) and (one.namespace, one.lease) == (other.namespace, other.lease)


def refusal(status: Mapping[str, Any], own: Holder, clock: Clock, looked_for: float) -> str:
    """Why nothing may be written, in a sentence that names the holder; "": it may.

    `looked_for`: for how many steady seconds this very claim has been there without a renewal.
    """
    claim = read_claim(status)
    if claim is None or same_holder(claim.holder, own) or is_over(claim, clock, looked_for):
        return ""
    return (
        f"another controller writes this tree: {named(claim.holder)}, last seen at "
        f"{claim.seen_at or 'an unknown time'}; stop that one, or start this one with --take-over"
    )


def is_over(claim: Claim, clock: Clock, looked_for: float) -> bool:
    """A claim ends when it was watched for three intervals and not renewed, or is so old that no
    difference between two clocks explains it. One from the future is watched."""
    age = claim.age(clock)
    is_ancient = age is not None and age >= MISSED * INTERVAL + CLOCKS_DIFFER
    return is_ancient or looked_for >= MISSED * INTERVAL


def named(holder: Holder) -> str:
    where = f" in namespace {holder.namespace}" if holder.namespace else ""
    if holder.lease:
        return f"Lease {holder.lease}{where}, uid {holder.uid}"
    return f"a process without a Lease{where}, uid {holder.uid}"


def claimed(
    status: Mapping[str, Any], own: Holder, clock: Clock, *, renew: bool = False
) -> dict[str, Any]:
    """The row that says that the tree is ours: the stored one while that will do, else a new one.

    `renew`: root is written anyhow, so the row is made anew.
    """
    row = {"uid": own.uid, "seenAt": stamp(clock.wall)}
    row |= {"namespace": own.namespace} if own.namespace else {}
    row |= {"lease": own.lease} if own.lease else {}
    claim = read_claim(status)
    if renew or claim is None or claim.holder != own or left(claim, clock) <= 0:
        return row
    return row | {"seenAt": claim.seen_at}


def left(claim: Claim, clock: Clock) -> float:
    """Seconds until a claim of ours is renewed by itself; 0 when it is due, or nonsense."""
    age = claim.age(clock)
    if age is None or age < 0:  # our clock was put back, and others must not wait for it
        return 0.0
    return max(0.0, INTERVAL * _PATIENCE - age)


def expires_in(claim: Claim, clock: Clock, looked_for: float) -> float:
    """Seconds until another's claim ends, if it is not renewed."""
    window, age = MISSED * INTERVAL, claim.age(clock)
    by_age = window if age is None else window + CLOCKS_DIFFER - age
    return max(0.0, min(window - looked_for, by_age))
