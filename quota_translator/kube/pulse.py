"""Signs of life of one watch: when the server was heard, and whether openings come to anything."""

from typing import Final

LOST_AFTER: Final = 2  # openings in a row that failed
MUTE_AFTER: Final = 2  # openings in a row without a byte of body


class Pulse:
    """Counts and moments in steady seconds. Nothing here decides what is done about them, but one:
    `ended` says when a list is needed, because watches bring nothing."""

    def __init__(
        self, heard_within: float, quick: float, quick_before_list: int, mute_before_list: int
    ) -> None:
        self.heard_at: float | None = None
        self.told_at: float | None = None  # the same without the 200s of openings
        self.quick_ends = 0
        self.mute_ends = 0
        self._heard_within = heard_within
        self._quick = quick
        self._quick_before_list = quick_before_list
        self._mute_before_list = mute_before_list
        self._failed_openings = 0

    def heard(self, now: float, *, body: bool = False) -> bool:
        """Whether the server was heard lately: an event, a bookmark, or the 200 of an opening.

        `body` asks for more: after two openings in a row without a byte of body the 200 alone is
        no sign of life.
        """
        if self.heard_at is None or now - self.heard_at > self._heard_within:
            return False
        return not body or self.mute_ends < MUTE_AFTER

    @property
    def sign_at(self) -> float | None:
        """The last sign of life: a watch that opens again and again and stays mute gives none."""
        return self.heard_at if self.mute_ends < MUTE_AFTER else self.told_at

    @property
    def lost(self) -> bool:
        """The watch cannot be opened, twice in a row: nobody looks, so nothing is measured."""
        return self._failed_openings >= LOST_AFTER

    def opened(self) -> bool:
        """An opening succeeded; whether the watch was lost before."""
        was_lost, self._failed_openings = self.lost, 0
        return was_lost

    def failed(self) -> bool:
        """An opening failed; whether the watch is lost by that."""
        self._failed_openings += 1
        return self._failed_openings == LOST_AFTER

    def ended(self, received: int, events: int, lasted: float) -> bool:
        """A watch that was open ended, after so many bytes and events. True: list instead."""
        self.mute_ends = 0 if received else self.mute_ends + 1
        lived = lasted >= self._quick
        self.quick_ends = 0 if lived or events else self.quick_ends + 1
        deaf = lived and not received and self.mute_ends % self._mute_before_list == 0
        return deaf or self.quick_ends >= self._quick_before_list
