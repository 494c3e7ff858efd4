"""Calls of every public method of an object, with arguments made of one text: enumerated, not listed."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

Argument = Callable[[str], Any]


def public_methods(thing: object, *, without: frozenset[str], roots: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    """Yield the public methods of an object that are written in modules whose names begin with one of these roots."""
    for name, method in inspect.getmembers(type(thing), callable):
        if not name.startswith("_") and name not in without and getattr(method, "__module__", "").startswith(roots):
            yield name, getattr(thing, name)


def calls_of(
    thing: object,
    text: str,
    arguments: Mapping[str, Argument],
    *,
    without: frozenset[str] = frozenset(),
    roots: tuple[str, ...] = ("rlm_memory", "langchain_rlm", "llamaindex_rlm"),
) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield a call of each public method with what it needs, and one more for each thing it may be given besides.

    Raises:
        AssertionError: A method needs an argument of which `arguments` does not tell what it could be.
    """
    for name, method in public_methods(thing, without=without, roots=roots):
        parameters = inspect.signature(method).parameters.values()
        plain = [p for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
        needed = {}
        for parameter in plain:
            if parameter.default is parameter.empty:
                assert parameter.name in arguments, f"{name}: what could be its {parameter.name}? Say it in this test."
                needed[parameter.name] = arguments[parameter.name](text)
        yield name, bound(method, plain, needed)
        for parameter in plain:
            if parameter.name in arguments and parameter.name not in needed:
                given = {**needed, parameter.name: arguments[parameter.name](text)}
                yield f"{name}({parameter.name})", bound(method, plain, given)


def bound(method: Any, parameters: list[inspect.Parameter], given: Mapping[str, Any]) -> Callable[[], Any]:
    """Return the call, by position where there is no other way."""
    first = [given[p.name] for p in parameters if p.kind is p.POSITIONAL_ONLY and p.name in given]
    rest = {p.name: given[p.name] for p in parameters if p.kind is not p.POSITIONAL_ONLY and p.name in given}

    def call() -> Any:
        result = method(*first, **rest)
        return list(result) if inspect.isgenerator(result) else result

    return call
