"""Records by key: lists, events in any order, and answers that are faster than the watch."""

from typing import NamedTuple

import pytest

from quota_translator.kube.store import Store


class Thing(NamedTuple):
    name: str
    version: str
    value: int = 0


@pytest.fixture
def dirty() -> list[str]:
    return []


@pytest.fixture
def store(dirty: list[str]) -> Store[str, Thing]:
    return Store("Thing", lambda t: t.name, lambda t: t.version, dirty.append)


def put(store: Store[str, Thing], name: str, version: str, value: int = 0) -> None:
    store.put(Thing(name, version, value), version)


def test_nothing_is_believed_before_the_first_list(store: Store[str, Thing]) -> None:
    assert not store.synced
    assert "not been listed" in store.reason
    store.replace([], "5")
    assert store.synced
    assert store.reason == ""


def test_a_list_replaces_and_reports_deletions(store: Store[str, Thing], dirty: list[str]) -> None:
    store.replace([Thing("a", "1"), Thing("b", "2")], "5")
    replaced = store.replace([Thing("b", "2")], "9")
    assert replaced.deleted == ("a",)
    assert dict(store.snapshot()) == {"b": Thing("b", "2")}
    assert dirty == ["Thing", "Thing"]


def test_an_equal_list_makes_nothing_dirty(store: Store[str, Thing], dirty: list[str]) -> None:
    store.replace([Thing("a", "1")], "5")
    generation, values = store.generation, store.values()
    assert not store.replace([Thing("a", "1")], "6").changed
    assert (store.generation, dirty) == (generation, ["Thing"])
    assert store.values() is values


def test_events_may_be_repeated_and_late(store: Store[str, Thing], dirty: list[str]) -> None:
    store.replace([], "5")
    put(store, "a", "6", 1)
    put(store, "a", "8", 2)
    dirty.clear()
    put(store, "a", "8", 2)  # a replay
    put(store, "a", "6", 1)  # a straggler
    store.remove(Thing("ghost", "9"), "9")
    assert store.get("a") == Thing("a", "8", 2)
    assert dirty == []


def test_a_deletion_event_removes(store: Store[str, Thing], dirty: list[str]) -> None:
    store.replace([Thing("a", "1")], "5")
    store.remove(Thing("a", "7"), "7")
    assert len(store) == 0
    assert dirty == ["Thing", "Thing"]


def test_a_late_deletion_leaves_the_object_that_was_created_after_it(
    store: Store[str, Thing],
) -> None:
    store.replace([Thing("a", "1")], "5")
    store.put_answer(Thing("a", "12", 1))  # deleted at 10, created again by us at 12
    store.remove(Thing("a", "10"), "10")
    assert store.get("a") == Thing("a", "12", 1)


def test_an_event_older_than_what_was_seen_changes_nothing(
    store: Store[str, Thing], dirty: list[str]
) -> None:
    store.replace([Thing("a", "1"), Thing("b", "1")], "10")
    store.remove(Thing("b", "12"), "12")
    dirty.clear()
    store.put(Thing("b", "11"), "11")
    store.put(Thing("a", "9"), "9")
    store.remove(Thing("a", "10"), "10")
    assert store.values() == (Thing("a", "1"),)
    assert store.seen == "12"
    assert dirty == []


def test_a_snapshot_does_not_change_when_the_store_does(store: Store[str, Thing]) -> None:
    store.replace([Thing("a", "1")], "5")
    before = store.snapshot()
    put(store, "b", "6")
    store.remove(Thing("a", "7"), "7")
    assert dict(before) == {"a": Thing("a", "1")}
    assert dict(store.snapshot()) == {"b": Thing("b", "6")}


def test_versions_that_are_no_numbers_go_by_arrival(store: Store[str, Thing]) -> None:
    store.replace([], "x1")
    put(store, "a", "x9", 1)
    put(store, "a", "x2", 2)
    assert store.get("a") == Thing("a", "x2", 2)
    assert store.put_answer(Thing("a", "x1", 3))


# --- answers of writes --------------------------------------------------------------------------


def test_an_answer_goes_in_at_once_and_its_event_changes_nothing(
    store: Store[str, Thing], dirty: list[str]
) -> None:
    store.replace([Thing("a", "1")], "5")
    assert store.put_answer(Thing("a", "7", 1))
    dirty.clear()
    put(store, "a", "6", 0)  # what stood before our write, late
    put(store, "a", "7", 1)  # our write, by the watch
    assert store.get("a") == Thing("a", "7", 1)
    assert dirty == []


def test_an_answer_older_than_what_is_known_is_dropped(store: Store[str, Thing]) -> None:
    store.replace([], "5")
    put(store, "a", "9", 2)
    assert not store.put_answer(Thing("a", "7", 1))
    assert store.get("a") == Thing("a", "9", 2)


def test_an_answer_cannot_bring_back_what_the_watch_saw_deleted(store: Store[str, Thing]) -> None:
    store.replace([Thing("a", "1")], "5")
    store.remove(Thing("a", "8"), "8")
    assert not store.put_answer(Thing("a", "7", 1))
    assert store.get("a") is None


def test_a_bookmark_moves_what_the_watch_has_shown(store: Store[str, Thing]) -> None:
    store.replace([], "5")
    store.advance("20")
    assert not store.put_answer(Thing("a", "7"))
    assert store.put_answer(Thing("a", "21"))


def test_a_list_that_was_asked_before_a_write_does_not_undo_its_answer(
    store: Store[str, Thing],
) -> None:
    store.replace([Thing("a", "1")], "5")
    store.begin_list()
    store.put_answer(Thing("a", "12", 1))
    store.put_answer(Thing("b", "13", 1))
    replaced = store.replace([Thing("a", "1")], "10")
    assert replaced.deleted == ()
    assert set(store.values()) == {Thing("a", "12", 1), Thing("b", "13", 1)}


def test_a_list_newer_than_an_answer_counts(store: Store[str, Thing]) -> None:
    store.replace([], "5")
    store.begin_list()
    store.put_answer(Thing("a", "12", 1))
    assert store.replace([], "14").deleted == ("a",)


def test_answers_before_the_list_do_not_outlive_a_restored_backup(
    store: Store[str, Thing],
) -> None:
    store.replace([], "500")
    store.put_answer(Thing("a", "900"))
    store.begin_list()
    store.replace([], "300")
    assert len(store) == 0
    assert store.seen == "300"


def test_a_quiet_answer_asks_for_no_pass(store: Store[str, Thing], dirty: list[str]) -> None:
    store.replace([Thing("a", "1")], "5")
    generation = store.generation
    dirty.clear()
    store.put_answer(Thing("a", "7", 1), quiet=True)
    assert dirty == []
    assert store.generation > generation


def test_a_delete_that_is_done_goes_out_at_once(store: Store[str, Thing]) -> None:
    store.replace([Thing("a", "1")], "5")
    store.remove_answer("a")
    store.remove_answer("never-there")
    assert len(store) == 0


# --- trust --------------------------------------------------------------------------------------


def test_unsynced_keeps_the_last_good_records_and_says_why_once(
    store: Store[str, Thing], dirty: list[str]
) -> None:
    store.replace([Thing("a", "1")], "5")
    dirty.clear()
    store.unsync("no permission")
    store.unsync("no permission")
    assert (store.synced, store.reason, len(store)) == (False, "no permission", 1)
    assert dirty == ["Thing"]
    store.believe()
    store.believe()
    assert store.synced
    assert dirty == ["Thing", "Thing"]
