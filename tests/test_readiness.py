"""When a replica is ready, and what it says besides."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from quota_translator.core.results import SyncState
from quota_translator.core.world import Clock
from quota_translator.metrics import Metrics
from quota_translator.readiness import Readiness

EXPIRES = datetime(2027, 1, 1, tzinfo=UTC)
SYNCED = (SyncState("AcceleratorQuota", True), SyncState("Node", True))
DEAF = SyncState("Node", True, heard=False)
NO_KUEUE = SyncState("Cohort", False, "not served", served=False)


class Cluster:
    def __init__(self, *states: SyncState) -> None:
        self.states = states

    def sync_states(self) -> Mapping[str, SyncState]:
        return {state.kind: state for state in self.states}


class Leading:
    transitions = 2
    standing = "standing by: another replica holds the Lease"

    def __init__(self, *, leads: bool, problem: str) -> None:
        self.leads, self.problem = leads, problem


class Tenure:
    def __init__(self, refusal: str, problem: str) -> None:
        self.refusal, self.problem = refusal, problem


class Certificate:
    def __init__(self, problem: str, notice: str) -> None:
        self._problem, self._notice = problem, notice

    def problem(self) -> str:
        return self._problem

    def notice(self) -> str:
        return self._notice

    def expires_at(self) -> datetime:
        return EXPIRES


def replica(
    *states: SyncState,
    leads: bool = True,
    lease: str = "",
    refusal: str = "",
    unclaimed: str = "",
    certificate: tuple[str, str] | None = None,
    judged: bool = True,
) -> Readiness:
    parts: Any = (
        Cluster(*(states or SYNCED)),
        Metrics(lambda: Clock(EXPIRES, 0.0)),
        Leading(leads=leads, problem=lease),
        Tenure(refusal, unclaimed),
        Certificate(*certificate) if certificate else None,
    )
    found = Readiness(*parts)
    found._judged = judged
    return found


@pytest.mark.parametrize(
    ("found", "missing", "notes"),
    [
        pytest.param(replica(), [], [], id="a leader that has judged the tree"),
        pytest.param(replica(judged=False), ["the tree has not been judged yet"], [], id="not yet"),
        pytest.param(
            replica(judged=False, unclaimed="the tree cannot be claimed: no permission"),
            ["the tree cannot be claimed: no permission"],
            [],
            id="nor will it",
        ),
        pytest.param(
            replica(leads=False, judged=False),
            [],
            ["standing by: another replica holds the Lease"],
            id="a standby has nothing to judge",
        ),
        pytest.param(
            replica(SyncState("Node", False, "403"), leads=False, judged=False),
            ["Node: 403"],
            ["standing by: another replica holds the Lease"],
            id="a standby that could not take over",
        ),
        pytest.param(
            replica(leads=False, lease="no permission to get leases"),
            [],
            ["standing by: another replica holds the Lease", "no permission to get leases"],
            id="a Lease that cannot be read",
        ),
        pytest.param(
            replica(refusal="another controller writes this tree", judged=False),
            [],
            ["another controller writes this tree"],
            id="another controller: a rollout must not wait for it",
        ),
        pytest.param(
            replica(certificate=("the certificate has expired", "")),
            ["the certificate has expired"],
            [],
            id="the webhook cannot be called",
        ),
        pytest.param(
            replica(leads=False, certificate=("", "there is no configuration")),
            [],
            ["standing by: another replica holds the Lease", "there is no configuration"],
            id="the webhook can be called",
        ),
        pytest.param(replica(*SYNCED, NO_KUEUE), [], [], id="Kueue may be absent"),
        pytest.param(
            replica(SYNCED[0], DEAF),
            [],
            ["nothing is heard of Node objects, so nothing is measured"],
            id="a watch that is open and mute",
        ),
        pytest.param(
            replica(SyncState("AcceleratorQuota", False, "", served=False)),
            ["AcceleratorQuota: not read yet"],
            [],
            id="the tree's own kind may not",
        ),
    ],
)
def test_what_is_missing_and_what_is_only_said(
    found: Readiness, missing: list[str], notes: list[str]
) -> None:
    assert (found.missing(), found.notes()) == (missing, notes)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(replica(), (1.0, 0.0), id="a leader"),
        pytest.param(replica(leads=False), (0.0, 0.0), id="a standby"),
        pytest.param(replica(refusal="another one"), (1.0, 1.0), id="beside another controller"),
    ],
)
async def test_the_same_is_in_the_metrics(found: Readiness, expected: tuple[float, float]) -> None:
    text = (await found.exposition(""))[0].decode()
    leader, rival = expected
    assert f"quota_translator_leader {leader}" in text
    assert f"quota_translator_rival_controller {rival}" in text
    assert "quota_translator_leader_transitions 2.0" in text
    assert 'quota_translator_synced{kind="Node"} 1.0' in text


async def test_the_certificates_end_is_in_the_metrics() -> None:
    text = (await replica(certificate=("", "")).exposition(""))[0].decode()
    line = next(line for line in text.splitlines() if "expiry" in line and line[0] != "#")
    assert float(line.rpartition(" ")[2]) == EXPIRES.timestamp()
