"""Cancel an awaited call at each of its awaits, once at once and once when what it waits for has come."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

_TOO_MANY = 500


@dataclass
class CancelAt:
    """Awaits a call up to its n-th await, and cancels it there."""

    call: Awaitable[Any]
    number: int
    waits: bool
    """Whether what it waits for comes first: work in a thread is done then, and what it returned is lost."""
    reached: bool = False

    def __await__(self) -> Generator[Any, None, Any]:
        steps = self.call.__await__()
        try:
            future = next(steps)
            for number in itertools.count(1):
                if number != self.number:
                    yield future
                    future = next(steps)
                    continue
                self.reached = True
                if self.waits:
                    yield future
                elif future is not None:
                    future.cancel()
                future = steps.throw(asyncio.CancelledError())
        except StopIteration as end:
            return end.value


async def cancelled_at_each_await(call: Callable[[int], Awaitable[Any]], verify: Callable[[int, bool], object]) -> int:
    """Call something again and again, each time cancelled one await later, until it ends before; return how often.

    Threads that a call has left behind are waited for: one that hangs is found by the time limit of the test.

    Args:
        call: What to await; it is given the number of the attempt.
        verify: Given the number of the attempt, and whether it ended, holds what is there then.
    """
    loop = asyncio.get_running_loop()
    attempts = itertools.count()
    for number in range(1, _TOO_MANY):
        reached = False
        for waits in (False, True):
            attempt = next(attempts)
            executor = ThreadPoolExecutor(4)
            loop.set_default_executor(executor)
            cancelling = CancelAt(call(attempt), number, waits)
            try:
                await cancelling
                ended = True
            except asyncio.CancelledError:
                ended = False
            executor.shutdown(wait=True)
            loop.set_default_executor(ThreadPoolExecutor(4))
            reached |= cancelling.reached
            verify(attempt, ended)
        if not reached:
            return next(attempts)
    raise AssertionError("it never ends")
