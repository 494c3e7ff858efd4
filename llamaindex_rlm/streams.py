"""Streams that tell how they ended."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Callable, Generator, Iterable


def watched(stream: Iterable[str], ended: Callable[[bool], object]) -> Generator[str, None, None]:
    """Yield what the stream yields, then call `ended`: True at its end, False if it broke off.

    A stream that is not read to its end tells nothing.
    """
    try:
        yield from stream
    except Exception:
        ended(False)
        raise
    ended(True)


async def awatched(stream: AsyncIterable[str], ended: Callable[[bool], object]) -> AsyncGenerator[str, None]:
    """The same for a stream that is awaited."""
    try:
        async for piece in stream:
            yield piece
    except Exception:
        ended(False)
        raise
    finally:
        if isinstance(stream, AsyncGenerator):
            await stream.aclose()  # it would be closed much later if this one is left before its end
    ended(True)
