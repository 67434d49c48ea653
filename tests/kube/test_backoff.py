from quota_translator.kube.backoff import Backoff, Pacer
from tests.kube.scripted import FakeTime


def test_pauses_double_to_the_cap(fake: FakeTime) -> None:
    backoff = Backoff(fake.now, lambda: 1.0)
    assert [backoff.pause() for _ in range(8)] == [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0]


def test_a_pause_is_a_random_part_of_its_bound(fake: FakeTime) -> None:
    backoff = Backoff(fake.now, iter([0.0, 0.5, 0.25]).__next__)
    assert [backoff.pause() for _ in range(3)] == [0.0, 0.8, 0.8]


def test_two_healthy_minutes_start_again_small(fake: FakeTime) -> None:
    backoff = Backoff(fake.now, lambda: 1.0)
    for _ in range(6):
        backoff.pause()
    fake.t += 60
    assert backoff.pause() == 30.0
    fake.t += 151  # the pause itself is not health
    assert backoff.pause() == 0.8


def test_openings_are_bounded_in_a_minute_whatever_the_luck(fake: FakeTime) -> None:
    pacer = Pacer(fake.now)
    for _ in range(12):
        assert pacer.wait() == 0.0
        pacer.note()
        fake.t += 1
    assert pacer.wait() == 48.0
    fake.t += 48
    assert pacer.wait() == 0.0
