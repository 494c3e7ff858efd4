"""Versions of the file format: what is refused, what is read with a report, how an old file becomes a new one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlm_memory.checkpoints.errors import CheckpointVersionError

FORMAT_VERSION = "1.0"
"""MAJOR.MINOR. A minor version adds kinds that an older reader reports; a major one changes what there is."""

Migration = Callable[[dict[str, Any], Any], tuple[dict[str, Any], Any]]
"""Takes the manifest and the heap document of one major version, returns those of the next."""

_MIGRATIONS: dict[int, Migration] = {}


def register_migration(major: int, migration: Migration) -> None:
    """Let files of a major version be read: the migration makes them files of the major version after it."""
    _MIGRATIONS[major] = migration


def upgraded(manifest: dict[str, Any], document: Any) -> tuple[dict[str, Any], Any, list[str]]:
    """Return the manifest and the heap document in this version, and what should be said about it.

    Raises:
        CheckpointVersionError: the file has another major version and no migration leads from it to this one.
    """
    version = manifest["version"]
    major, minor = _parsed(version)
    ours, our_minor = _parsed(FORMAT_VERSION)
    notes: list[str] = []
    while major != ours:
        migration = _MIGRATIONS.get(major)
        if major > ours or migration is None:
            raise CheckpointVersionError(
                f"The checkpoint has the format {version}; this release reads {ours}.x. "
                "Install the release that wrote it, or register a migration."
            )
        manifest, document = migration(manifest, document)
        major += 1
        notes.append(f"the file was written in the format {version} and migrated to {FORMAT_VERSION}")
    if version == manifest["version"] and minor > our_minor:
        notes.append(
            f"the file has the newer format {version}; kinds that {FORMAT_VERSION} does not know are placeholders"
        )
    return manifest, document, notes


def _parsed(version: str) -> tuple[int, int]:
    major, _, minor = version.partition(".")
    if not (major.isdecimal() and minor.isdecimal() and major.isascii() and minor.isascii()):
        raise CheckpointVersionError(f"The checkpoint has the version {version[:20]!r}; expected MAJOR.MINOR.")
    return int(major), int(minor)
