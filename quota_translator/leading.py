"""Who writes, as the parts of the program ask for it; and the simplest answer."""

import uuid
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

STANDING_BY: Final = "standing by: another replica holds the Lease"

Work = Callable[[], Awaitable[None]]


class Leading(Protocol):
    """What the parts of the program ask of whoever decides who writes."""

    @property
    def leads(self) -> bool: ...

    @property
    def uid(self) -> str: ...

    @property
    def transitions(self) -> int: ...

    @property
    def problem(self) -> str: ...

    @property
    def standing(self) -> str: ...

    def may_write(self) -> bool: ...

    async def run(self, work: Work) -> None: ...

    async def release(self) -> None: ...


class Alone:
    """No election: this process leads from its start to its end."""

    def __init__(self, told: Callable[[], None] = lambda: None) -> None:
        self.identity = self.uid = str(uuid.uuid4())
        self.transitions = 0
        self.problem = self.standing = ""
        self.leads = False
        self._told = told

    def may_write(self) -> bool:
        return True

    async def run(self, work: Work) -> None:
        self.leads = True
        self._told()
        await work()

    async def release(self) -> None:
        self.leads = False
        self._told()
