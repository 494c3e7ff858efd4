"""The file of a checkpoint: one zip that any tool opens, and that no changed byte gets past.

```
manifest.json       what it is, for a person to read: version, session, turn, cost, issues, a SHA-256 of each member
manifest.sig        HMAC-SHA256 of the manifest, if the owner gave a key
heap.json           the values (see `rlm_memory.checkpoints.heap`)
b/<sha256>.<kind>   the large values; in a store they lie beside the file, and are shared by its checkpoints
comment of the zip  SHA-256 of every byte before it
```

The signature covers the manifest, and the manifest covers everything else: so a file stays signed when its large values
are moved into it or out of it.
"""

from __future__ import annotations

import hashlib
import hmac
import io
import json
import struct
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any

import numpy as np

from rlm_memory.checkpoints.errors import (
    CheckpointDamagedError,
    CheckpointLimitError,
    CheckpointSignatureError,
)
from rlm_memory.checkpoints.heap import BLOB_BYTES, Heap, blob_name, from_json, to_json
from rlm_memory.checkpoints.migrations import FORMAT_VERSION, upgraded

FORMAT = "rlm-memory checkpoint"
MANIFEST, SIGNATURE, HEAP, BLOBS = "manifest.json", "manifest.sig", "heap.json", "b/"
_COMMENT = b"sha256:"
_DIGEST_LENGTH = 64
_STEP = 1 << 20
_FIXED_DATE = (1980, 1, 1, 0, 0, 0)
"""In every entry: the time of writing is in the manifest, and the same content is to give the same bytes."""

Key = bytes | str
Fetch = Callable[[str], bytes]
Keep = Callable[[str, bytes], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much a reader takes from a file that it did not write, in bytes.

    `heap` bounds the JSON, which needs about ten times as much memory when it is parsed; `total` all that is unpacked.
    """

    file: int = 4 << 30
    manifest: int = 16 << 20
    heap: int = 512 << 20
    total: int = 8 << 30


@dataclass(slots=True)
class Container:
    """An open checkpoint file: the manifest, the heap, and whether its owner's signature was verified."""

    manifest: dict[str, Any]
    heap: Heap
    trusted: bool = False
    signed: bool = False
    notes: list[str] = field(default_factory=list)


def pack(manifest: dict[str, Any], heap: Heap, *, trust: Key | None = None, store: Keep | None = None) -> bytes:
    """Return the bytes of a file.

    The members, their digests and the version are added to the manifest. With a `store` the large values are handed to
    it, each with its name, and the file has the names alone.
    """
    content, blobs = _heap_json(heap)
    members = {HEAP: _description(content)}
    members |= {BLOBS + name: _description(blob) for name, blob in blobs.items()}
    head = {"format": FORMAT, "version": FORMAT_VERSION, "writer": _writer(), "signed": trust is not None}
    text = _manifest_json({**head, **manifest, "members": members})
    signature = _signature(text, trust) if trust is not None else None
    if store is not None:
        for name, blob in blobs.items():
            store(name, blob)
    return _zip(text, signature, content, {} if store is not None else blobs)


def unpack(
    data: bytes, *, trust: Key | None = None, limits: Limits | None = None, outside: Fetch | None = None
) -> Container:
    """Return the container whose bytes these are, after every byte of it was checked.

    `outside` gives a blob that is not in the file, by its name. A blob is checked when it is read.

    Raises:
        CheckpointDamagedError: the bytes are not the ones that were written, or are no checkpoint.
        CheckpointSignatureError: the file is signed, with another key than `trust`.
        CheckpointVersionError: another major version, and no migration leads here.
        CheckpointLimitError: it would need more than the limits allow.
    """
    limits = limits or Limits()
    with _damage_reported(), _open(data, limits) as archive:
        text = _read(archive, MANIFEST, limits.manifest)
        manifest = _checked_manifest(text)
        signature = _read(archive, SIGNATURE, 256) if SIGNATURE in archive.namelist() else None
        content = _member(archive, manifest, HEAP, limits.heap)
        blobs = _blobs(archive, manifest, limits, outside)
    container = Container(manifest, Heap(blobs=blobs), signed=signature is not None)
    if trust is not None:
        container.trusted = _verified(text, signature, trust)
        if signature is None:
            container.notes.append("the file is not signed: functions and classes are not restored from it")
    document = from_json(content, HEAP)
    manifest, document, notes = upgraded(manifest, document)
    container.manifest, container.notes = manifest, container.notes + notes
    container.heap.roots, container.heap.segments = _checked_heap(document, blobs, limits.heap - len(content))
    return container


def repack(data: bytes, outside: Fetch) -> bytes:
    """Return the bytes of a self-contained file with the same manifest and signature: `outside` gives what it lacks.

    Raises:
        CheckpointDamagedError: the bytes, or a large value, are not the ones that were written.
    """
    with _damage_reported(), _open(data, Limits()) as archive:
        text = archive.read(MANIFEST)
        signature = archive.read(SIGNATURE).decode() if SIGNATURE in archive.namelist() else None
        blobs = _blobs(archive, _checked_manifest(text), Limits(), outside)
        return _zip(text, signature, archive.read(HEAP), blobs)


def peek(data: bytes, *, limits: Limits | None = None) -> dict[str, Any]:
    """Return the manifest of a file; every byte of the file is checked, its values are not unpacked.

    Raises:
        CheckpointDamagedError: the bytes are not the ones that were written, or are no checkpoint.
    """
    limits = limits or Limits()
    with _damage_reported(), _open(data, limits) as archive:
        return _checked_manifest(_read(archive, MANIFEST, limits.manifest))


@contextmanager
def _damage_reported() -> Iterator[None]:
    """Turn what the zip reader says about a malformed file into our error."""
    try:
        yield
    except (zipfile.BadZipFile, zlib.error, struct.error, EOFError, LookupError, ValueError, RuntimeError) as error:
        raise CheckpointDamagedError(f"The checkpoint cannot be unpacked: {error}") from error


def check_blob(name: str, data: bytes) -> bytes:
    """Return the bytes of a blob, if they are the ones that its name promises.

    Raises:
        CheckpointDamagedError: they are not.
    """
    if hashlib.sha256(data).hexdigest() != name.partition(".")[0]:
        raise CheckpointDamagedError(f"The large value {name} is damaged: its bytes have another SHA-256.")
    return data


def _writer() -> dict[str, str]:
    try:
        release = metadata.version("rlm-memory")
    except metadata.PackageNotFoundError:  # run from a checkout
        release = "unknown"
    return {"rlm-memory": release, "python": sys.version.split()[0], "numpy": np.__version__, "platform": sys.platform}


def _description(content: bytes) -> dict[str, Any]:
    return {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def _manifest_json(manifest: dict[str, Any]) -> bytes:
    return json.dumps(manifest, indent=1, allow_nan=False).encode()


def _signature(text: bytes, key: Key) -> str:
    secret = key.encode() if isinstance(key, str) else key
    return hmac.new(secret, b"rlm-memory checkpoint\0" + text, hashlib.sha256).hexdigest()


def _verified(text: bytes, signature: bytes | None, key: Key) -> bool:
    if signature is None:
        return False
    if not hmac.compare_digest(signature, _signature(text, key).encode()):
        raise CheckpointSignatureError(
            "The checkpoint is signed with another key, or was changed after it was signed. "
            "Load it with the right key, or without one to see its data alone."
        )
    return True


def _zip(manifest: bytes, signature: str | None, heap: bytes, blobs: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.comment = _COMMENT + b"0" * _DIGEST_LENGTH
        _add(archive, MANIFEST, manifest)
        if signature is not None:
            _add(archive, SIGNATURE, signature.encode())
        _add(archive, HEAP, heap)
        for name, blob in blobs.items():
            _add(archive, BLOBS + name, blob)
    whole = memoryview(buffer.getbuffer())[:-_DIGEST_LENGTH]
    return b"".join((whole, hashlib.sha256(whole).hexdigest().encode()))


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    entry = zipfile.ZipInfo(name, _FIXED_DATE)
    entry.external_attr = 0o600 << 16
    entry.compress_type = zipfile.ZIP_DEFLATED if shrinks(content) else zipfile.ZIP_STORED
    archive.writestr(entry, content, compresslevel=1)


def shrinks(content: bytes) -> bool:
    """Tell whether compressing is worth its time, judged by three samples."""
    if len(content) < 256:
        return False
    width = 8 << 10
    places = (0, len(content) // 2, max(0, len(content) - width))
    sample = b"".join(content[place : place + width] for place in places)
    return len(zlib.compress(sample, 1)) < 0.9 * len(sample)


def _open(data: bytes, limits: Limits) -> zipfile.ZipFile:
    if len(data) > limits.file:
        raise CheckpointLimitError(f"The file has {len(data)} bytes; the limit is {limits.file}.")
    if len(data) <= _DIGEST_LENGTH or not data[:-_DIGEST_LENGTH].endswith(_COMMENT):
        raise CheckpointDamagedError("This is not a checkpoint, or its end is missing.")
    whole = memoryview(data)[:-_DIGEST_LENGTH]
    if not hmac.compare_digest(data[-_DIGEST_LENGTH:], hashlib.sha256(whole).hexdigest().encode()):
        raise CheckpointDamagedError(
            "The checkpoint is damaged: its bytes have another SHA-256 than when it was written."
        )
    archive = zipfile.ZipFile(io.BytesIO(data))
    entries = archive.infolist()
    if len({entry.filename for entry in entries}) != len(entries):
        raise CheckpointDamagedError("The checkpoint names a member twice.")
    if sum(entry.file_size for entry in entries) > limits.total:
        raise CheckpointLimitError(f"The checkpoint would unpack to more than {limits.total} bytes.")
    return archive


def _read(archive: zipfile.ZipFile, name: str, limit: int) -> bytes:
    """Read a member and stop at the limit, whatever the size is that the zip says it has."""
    entry = archive.getinfo(name)
    if entry.compress_type not in {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
        raise CheckpointDamagedError(f"The member {name} is compressed in a way that checkpoints are not.")
    if entry.file_size > limit:
        raise CheckpointLimitError(f"The member {name} has {entry.file_size} bytes; the limit is {limit}.")
    chunks: list[bytes] = []
    size = 0
    with archive.open(entry) as stream:
        while chunk := stream.read(_STEP):
            size += len(chunk)
            if size > limit:
                raise CheckpointLimitError(f"The member {name} has more than {limit} bytes.")
            chunks.append(chunk)
    return b"".join(chunks)


def _checked_manifest(text: bytes) -> dict[str, Any]:
    manifest = from_json(text, MANIFEST)
    match manifest:
        case {"format": str() as found, "version": str(), "members": {"heap.json": dict()} as members} if (
            found == FORMAT
        ):
            if all(isinstance(each, dict) and {"size", "sha256"} <= each.keys() for each in members.values()):
                return manifest  # type: ignore[no-any-return]  # it is a dict: the pattern says so
    raise CheckpointDamagedError("The manifest is not the one of a checkpoint.")


def _member(archive: zipfile.ZipFile, manifest: dict[str, Any], name: str, limit: int) -> bytes:
    content = _read(archive, name, limit)
    if _description(content) != manifest["members"][name]:
        raise CheckpointDamagedError(f"The member {name} is not the one that the manifest describes.")
    return content


def _blobs(
    archive: zipfile.ZipFile, manifest: dict[str, Any], limits: Limits, outside: Fetch | None
) -> dict[str, bytes]:
    here = set(archive.namelist())
    blobs: dict[str, bytes] = {}
    left = limits.total
    for member in manifest["members"]:
        if member.startswith(BLOBS):
            name = member.removeprefix(BLOBS)
            if member in here:
                blob = _member(archive, manifest, member, left)
            elif outside is not None:
                blob = outside(name)
            else:
                raise CheckpointDamagedError(
                    f"The large value {name} is not in the file, and there is no store to find it in."
                )
            blobs[name] = check_blob(name, blob)
            left -= len(blob)
    return blobs


def _heap_json(heap: Heap) -> tuple[bytes, dict[str, bytes]]:
    """Return the heap document and all blobs; a large segment is one, too: it is written only when it changed."""
    blobs = dict(heap.blobs)
    segments: list[bytes] = []
    for segment in heap.segments:
        text = to_json(segment)
        if len(text) >= BLOB_BYTES:
            name = blob_name(text, "json")
            blobs[name] = text
            text = to_json({"blob": name})
        segments.append(text)
    return b'{"roots":%b,"segments":[%b]}' % (to_json(heap.roots), b",".join(segments)), blobs


def _checked_heap(document: Any, blobs: dict[str, bytes], left: int) -> tuple[list[tuple[int, Any]], list[Any]]:
    match document:
        case {"roots": list() as roots, "segments": list() as segments}:
            if all(isinstance(root, list) and len(root) == 2 and type(root[0]) is int for root in roots):
                return [(number, slot) for number, slot in roots], [*_segments(segments, blobs, left)]
    raise CheckpointDamagedError("heap.json does not hold roots and segments.")


def _segments(segments: list[Any], blobs: dict[str, bytes], left: int) -> Iterator[Any]:
    for segment in segments:
        match segment:
            case {"blob": str() as name} if name in blobs:
                text = blobs.pop(name)
                left -= len(text)
                if left < 0:
                    raise CheckpointLimitError("The values of the checkpoint are larger than the limit for its heap.")
                yield from_json(text, name)
            case _:
                yield segment
