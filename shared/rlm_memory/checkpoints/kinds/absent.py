"""Nodes for values that are not there: one that could not be saved, one that was not believed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from rlm_memory.checkpoints.kinds.base import MutableKind, Parts, UnrestorableError
from rlm_memory.checkpoints.placeholder import Unrestored

if TYPE_CHECKING:
    from rlm_memory.checkpoints.codec import Reader, Writer


def _write_unsaved(value: Unrestored, _: Writer) -> Parts:
    payload = value.unrestored_payload
    if payload is not None:
        return None, payload.data
    return None, {"type": value.unrestored_type, "reason": value.unrestored_reason, "repr": ""}


def _write_withheld(value: Unrestored, writer: Writer) -> Parts:
    """Write what the file had, under a tag that is never run.

    Without the tag, a stranger's function would be signed together with the rest when its finder saves the session.
    """
    payload = value.unrestored_payload
    assert payload is not None
    writer.keep_blobs(payload.blobs)
    if isinstance(payload.slots, dict):
        slots: Any = {key: writer.slot(each) for key, each in payload.slots.items()}
    else:
        slots = [writer.slot(each) for each in payload.slots or ()] or None
    if payload.tag == "withheld":
        return slots, payload.data
    return slots, {"type": value.unrestored_type, "tag": payload.tag, "data": payload.data}


def _refuse_unsaved(_: Any, data: Any, __: Reader) -> NoReturn:
    raise UnrestorableError(str(data["reason"]))


def _refuse_withheld(_: Any, __: Any, ___: Reader) -> NoReturn:
    raise UnrestorableError("it was not restored when this session was loaded before, and was kept as it is")


def _leave(_: Any, __: Any, ___: Any) -> None:
    """Nothing is filled: `make` always refuses."""


UNSAVED_KIND = MutableKind(tag="unsaved", write=_write_unsaved, make=_refuse_unsaved, fill=_leave)
WITHHELD_KIND = MutableKind(tag="withheld", write=_write_withheld, make=_refuse_withheld, fill=_leave)
KINDS = (UNSAVED_KIND, WITHHELD_KIND)


def kind_for(value: Unrestored) -> MutableKind:
    """Return the kind under which a placeholder is written again."""
    payload = value.unrestored_payload
    return UNSAVED_KIND if payload is None or payload.tag == "unsaved" else WITHHELD_KIND
