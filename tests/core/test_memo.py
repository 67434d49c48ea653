"""Answers kept by identity: worked out once an object, bounded, and never another object's."""

from quota_translator.core.memo import ByIdentity, next_pass


def counted(most: int = 4) -> tuple[ByIdentity[list[int], int], list[list[int]]]:
    asked: list[list[int]] = []

    def total(numbers: list[int]) -> int:
        asked.append(numbers)
        return sum(numbers)

    return ByIdentity(total, most), asked


def test_an_object_is_asked_for_once() -> None:
    memo, asked = counted()
    numbers = [1, 2]
    assert (memo(numbers), memo(numbers)) == (3, 3)
    assert len(asked) == 1


def test_an_equal_object_is_another_one() -> None:
    memo, asked = counted()
    one, other = [1], [1]
    assert memo(one) == memo(other)
    assert [id(numbers) for numbers in asked] == [id(one), id(other)]


def test_no_object_gets_the_answer_of_one_that_is_gone() -> None:
    """Short-lived objects take turns at the same place in memory."""
    memo, _ = counted()
    assert [memo([number]) for number in range(50)] == list(range(50))


def test_answers_in_use_stay_and_the_others_go() -> None:
    memo, asked = counted(most=4)
    kept = [100]
    for number in range(40):
        memo([number])
        assert memo(kept) == 100
        assert len(memo) <= 8
    assert sum(numbers is kept for numbers in asked) == 1


def test_what_no_pass_asks_for_any_more_goes() -> None:
    """A tree of one node whose spec is rendered anew in each pass: nothing piles up."""
    memo, asked = counted(most=2048)
    kept = [100]
    sizes = []
    for number in range(200):
        next_pass()
        memo(kept)
        memo([number])
        sizes.append(len(memo))
    assert max(sizes) <= 20
    assert sum(numbers is kept for numbers in asked) == 1
