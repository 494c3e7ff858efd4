"""polars frames and series: in Arrow's file format, which polars reads and writes itself."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from rlm_memory.checkpoints.kinds.base import Kind, Parts, UnsavableError
from rlm_memory.checkpoints.kinds.optional import optional

if TYPE_CHECKING:
    from rlm_memory.checkpoints.codec import Reader, Writer

pl = optional("polars")


def _write_frame(value: Any, writer: Writer) -> Parts:
    buffer = io.BytesIO()
    try:
        value.write_ipc(buffer)
        content = buffer.getvalue()
        back = _read(content)
    except pl.exceptions.PolarsError as error:
        raise UnsavableError(f"Arrow's file format cannot hold it: {error}") from error
    if back.schema != value.schema or back.shape != value.shape or not back.equals(value):
        raise UnsavableError("Arrow's file format does not give it back as it is")
    return None, writer.data(content, "arrow")


def _read(content: bytes) -> Any:
    return pl.read_ipc(io.BytesIO(content))


def _build_frame(_: Any, data: Any, reader: Reader) -> Any:
    return _read(reader.data(data))


def _write_series(value: Any, writer: Writer) -> Parts:
    return _write_frame(value.to_frame(), writer)


def _build_series(_: Any, data: Any, reader: Reader) -> Any:
    return _read(reader.data(data)).to_series()


def _kinds() -> tuple[Kind, ...]:
    return (
        Kind(tag="polars.DataFrame", types=(pl.DataFrame,), write=_write_frame, build=_build_frame),
        Kind(tag="polars.Series", types=(pl.Series,), write=_write_series, build=_build_series),
    )


KINDS = _kinds() if pl is not None else ()
