"""pyarrow tables, batches and arrays: in Arrow's own stream format."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlm_memory.checkpoints.kinds.base import Kind, Parts, UnsavableError
from rlm_memory.checkpoints.kinds.optional import optional

if TYPE_CHECKING:
    from rlm_memory.checkpoints.codec import Reader, Writer

pa = optional("pyarrow")


def _write_table(value: Any, writer: Writer) -> Parts:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, value.schema) as stream:
        stream.write_table(value)
    content = sink.getvalue().to_pybytes()
    if not _read(content).equals(value, check_metadata=True):
        raise UnsavableError("Arrow's stream format does not give it back as it is")
    return None, writer.data(content, "arrow")


def _read(content: bytes) -> Any:
    with pa.ipc.open_stream(content) as stream:
        table = stream.read_all()
    table.validate(full=True)  # an offset that leads out of its buffer would be followed otherwise
    return table


def _build_table(_: Any, data: Any, reader: Reader) -> Any:
    return _read(reader.data(data))


def _write_batch(value: Any, writer: Writer) -> Parts:
    return _write_table(pa.Table.from_batches([value]), writer)


def _build_batch(_: Any, data: Any, reader: Reader) -> Any:
    table = _read(reader.data(data)).combine_chunks()
    batches = table.to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)


def _write_chunks(value: Any, writer: Writer) -> Parts:
    return _write_table(pa.table({"": value}), writer)


def _build_chunks(_: Any, data: Any, reader: Reader) -> Any:
    return _read(reader.data(data)).column(0)


def _kinds() -> tuple[Kind, ...]:
    return (
        Kind(tag="pyarrow.Table", types=(pa.Table,), write=_write_table, build=_build_table),
        Kind(tag="pyarrow.RecordBatch", types=(pa.RecordBatch,), write=_write_batch, build=_build_batch),
        Kind(tag="pyarrow.ChunkedArray", types=(pa.ChunkedArray,), write=_write_chunks, build=_build_chunks),
    )


KINDS = _kinds() if pa is not None else ()
