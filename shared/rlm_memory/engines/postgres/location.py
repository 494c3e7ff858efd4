"""The URL of a store on a server: what libpq reads, and the few options that are ours."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import SplitResult, parse_qsl, quote, urlencode, urlsplit

from rlm_memory.errors import InvalidInputError

_MOST_CONNECTIONS: Final = 10
_MOST_PARTITIONS: Final = 1024
_TIMEOUT: Final = 10.0
_SECRETS: Final = frozenset({"password", "sslpassword", "oauth_client_secret"})


@dataclass(frozen=True, slots=True)
class ServerLocation:
    """Where a store is, and how to use the server.

    `shown` is the URL without secrets. `most_connections` is how many connections one `Memory` opens at most, `timeout`
    how many seconds it waits for a lock, for a free connection, or for a server that is starting. `partitions` is the
    number of hash partitions of a new store, 0 for none.
    """

    conninfo: str
    shown: str
    most_connections: int
    timeout: float
    partitions: int


def parse_location(url: str) -> ServerLocation:
    """Return what a URL says: `postgresql://…?pool_size=10&timeout=10&partitions=0`, and all that libpq knows.

    >>> parse_location("postgresql://me:secret@host/db?sslmode=require&pool_size=4").shown
    'postgresql://me@host/db?sslmode=require&pool_size=4'

    Raises:
        InvalidInputError: It is no URL, or one of our options is no number, or out of range.
    """
    try:
        parts = urlsplit(url)
        options = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        raise InvalidInputError(_NO_URL) from None  # the reason would show a part of the URL, perhaps of the password
    beyond = "".join([parts.path, parts.fragment, *(name for name, _ in options)])
    if parts.netloc.count("@") > 1 or "@" in beyond or _HALF_ENCODED.search(parts.netloc):
        raise InvalidInputError(_NO_URL)  # else libpq's error, and `shown`, would have the rest of the password
    ours = dict(options)
    conninfo = parts._replace(query=_query([pair for pair in options if pair[0] not in _OURS]))
    return ServerLocation(
        conninfo=_url(conninfo),
        shown=_url(_without_password(parts)._replace(query=_query([p for p in options if p[0] not in _SECRETS]))),
        most_connections=int(_number(ours, "pool_size", _MOST_CONNECTIONS, least=1, most=1000)),
        timeout=_number(ours, "timeout", _TIMEOUT, least=0.001, most=86_400),
        partitions=int(_number(ours, "partitions", 0, least=0, most=_MOST_PARTITIONS)),
    )


_NO_URL: Final = (
    "The location of the store is no URL that can be read: expected postgresql://user:password@host:port/database"
    "?option=value, with / ? # @ and % in user and password written as %2F %3F %23 %40 and %25."
)
_HALF_ENCODED: Final = re.compile("%(?![0-9A-Fa-f]{2})|%00")
_OURS: Final = frozenset({"pool_size", "timeout", "partitions"})


def _query(options: list[tuple[str, str]]) -> str:
    return urlencode(options, quote_via=quote)  # libpq reads %20, and takes a plus for a plus


def _url(parts: SplitResult) -> str:
    # not parts.geturl(), which leaves out the slashes of `postgresql:///database`, where no host is named
    return f"{parts.scheme}://{parts.netloc}{parts._replace(scheme='', netloc='').geturl()}"


def _without_password(parts: SplitResult) -> SplitResult:
    user, at, hosts = parts.netloc.rpartition("@")
    return parts._replace(netloc=user.partition(":")[0] + at + hosts)


def _number(options: dict[str, str], name: str, default: float, *, least: float, most: float) -> float:
    given = options.get(name)
    if given is None:
        return default
    try:
        number = float(given)
    except ValueError:
        number = float("nan")
    whole = name == "timeout" or number.is_integer()
    if not whole or not least <= number <= most:
        kind = "a number" if name == "timeout" else "a whole number"
        raise InvalidInputError(f"{name}={given!r} in the location of the store; expected {kind}, {least} to {most}.")
    return number
