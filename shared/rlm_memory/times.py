"""Moments as they are stored: whole milliseconds since 1970-01-01 UTC."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def milliseconds(moment: datetime) -> int:
    """Return the whole milliseconds since 1970-01-01 UTC, rounded down; a moment without a time zone is UTC.

    >>> milliseconds(datetime(1970, 1, 1, 0, 0, 1, 999))
    1000
    """
    aware = moment if moment.utcoffset() is not None else moment.replace(tzinfo=UTC)
    return (aware - _EPOCH) // _MILLISECOND


def moment(ms: int) -> datetime:
    """Return the moment, in UTC, that is so many milliseconds after 1970-01-01 UTC."""
    return _EPOCH + ms * _MILLISECOND
