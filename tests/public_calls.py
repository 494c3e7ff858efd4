"""Calls of every public method of an object, with arguments made of one text: enumerated, not listed."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sized
from typing import Any, TypeAlias

Argument: TypeAlias = Callable[[str], Any] | list[Callable[[str], Any]]
"""What an argument could be, of one text; several ways are tried one after the other."""

OURS = ("rlm_memory", "langchain_rlm", "llamaindex_rlm")


def public_methods(thing: object, *, without: frozenset[str], roots: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    """Yield the public methods of an object that are written in modules whose names begin with one of these roots."""
    for name, method in inspect.getmembers(type(thing), callable):
        if not name.startswith("_") and name not in without and (method.__module__ or "").startswith(roots):
            yield name, getattr(thing, name)


def calls_of(
    thing: object,
    text: str,
    arguments: Mapping[str, Argument],
    *,
    without: frozenset[str] = frozenset(),
    roots: tuple[str, ...] = OURS,
    keywords: Mapping[str, tuple[str, ...]] | None = None,
) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield a call of each public method with what it needs, and one more for each thing it may be given besides.

    Args:
        thing: The object.
        text: What the arguments are made of.
        arguments: What each argument could be, by its name, or by "method.name" where that is another thing.
        without: Methods that are not called.
        roots: How the modules begin whose methods are called.
        keywords: What a method takes as `**kwargs`, by its name.

    Raises:
        AssertionError: A method needs an argument of which `arguments` does not tell what it could be.
    """
    for name, method in public_methods(thing, without=without, roots=roots):
        parameters = inspect.signature(method).parameters.values()
        plain = [p for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
        ways = {
            each: listed if isinstance(listed, list) else [listed]
            for each in [*(p.name for p in plain), *(keywords or {}).get(name, ())]
            if (listed := arguments.get(f"{name}.{each}", arguments.get(each))) is not None
        }
        needed = {}
        for parameter in plain:
            if parameter.default is parameter.empty:
                assert parameter.name in ways, f"{name}: what could be its {parameter.name}? Say it in this test."
                needed[parameter.name] = ways[parameter.name][0](text)
        yield name, bound(method, plain, needed)
        for each, listed in ways.items():
            for number, make in enumerate(listed):
                if number or each not in needed:
                    yield f"{name}({each})", bound(method, plain, {**needed, each: make(text)})


def bound(method: Any, parameters: list[inspect.Parameter], given: Mapping[str, Any]) -> Callable[[], Any]:
    """Return the call, by position where there is no other way."""
    positional = [p.name for p in parameters if p.kind is p.POSITIONAL_ONLY]
    first = [given[name] for name in positional if name in given]
    rest = {name: value for name, value in given.items() if name not in positional}

    def call() -> Any:
        result = method(*first, **rest)
        is_lazy = isinstance(result, Iterable) and not isinstance(result, Sized)
        return list(result) if is_lazy else result

    return call


async def settled(result: Any) -> Any:
    """Return what a call has returned, awaited if it is to be."""
    if isinstance(result, AsyncIterator):
        return [each async for each in result]
    return await result if inspect.isawaitable(result) else result
