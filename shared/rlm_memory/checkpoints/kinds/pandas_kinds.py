"""pandas: frames, series, indexes, the arrays behind them and its scalars, column by column.

Everything is taken apart into NumPy arrays and Python values with public calls, and put together the same way: there
is no format in between that would change a type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rlm_memory.checkpoints.kinds.base import Kind, Parts, UnrestorableError, UnsavableError
from rlm_memory.checkpoints.kinds.optional import optional

if TYPE_CHECKING:
    from rlm_memory.checkpoints.codec import Reader, Writer

pd = optional("pandas")

_INDEX_TYPES = ("Index", "DatetimeIndex", "TimedeltaIndex", "PeriodIndex", "CategoricalIndex", "IntervalIndex")
_MASKED = ("IntegerArray", "FloatingArray", "BooleanArray")


def _class(place: Any, name: Any, known: tuple[str, ...]) -> Any:
    if name not in known:
        raise UnrestorableError(f"pandas has no {name} that can be saved")
    return getattr(place, name)


def _values_of(column: Any) -> Any:
    """Return the array behind a column: of NumPy where its dtype is NumPy's, else of pandas."""
    if not isinstance(column.dtype, np.dtype):
        return column.array
    return column.to_numpy(copy=column.dtype.hasobject)


def _series(values: Any, index: Any, name: Any = None) -> Any:
    if not isinstance(values, (np.ndarray, pd.api.extensions.ExtensionArray)):
        raise UnrestorableError("a column of it was not restored")
    return pd.Series(values, index=index, name=name, dtype=values.dtype, copy=True)


def _write_frame(value: Any, writer: Writer) -> Parts:
    columns = [_values_of(value.iloc[:, place]) for place in range(value.shape[1])]
    parts = [value.index, value.columns, value.attrs, *columns]
    return [writer.slot(part) for part in parts], {"duplicates": value.flags.allows_duplicate_labels}


def _build_frame(slots: Any, data: Any, _: Reader) -> Any:
    index, names, attributes, *columns = slots
    frame = pd.DataFrame({place: _series(values, index) for place, values in enumerate(columns)}, index=index)
    frame.columns = names
    frame.attrs = attributes
    return frame if data["duplicates"] else frame.set_flags(allows_duplicate_labels=False)


def _write_series(value: Any, writer: Writer) -> Parts:
    return [writer.slot(part) for part in (_values_of(value), value.index, value.name, value.attrs)], None


def _build_series(slots: Any, _: Any, __: Reader) -> Any:
    series = _series(*slots[:3])
    series.attrs = slots[3]
    return series


def _write_index(value: Any, writer: Writer) -> Parts:
    frequency = getattr(value, "freqstr", None) if not isinstance(value, pd.PeriodIndex) else None
    return [writer.slot(_values_of(value)), writer.slot(value.name)], [type(value).__name__, frequency]


def _build_index(slots: Any, data: Any, _: Reader) -> Any:
    values, name = slots
    kind, frequency = data
    if kind == "Index":
        return pd.Index(values, dtype=values.dtype, name=name, copy=True)
    if frequency is not None:
        return _class(pd, kind, _INDEX_TYPES)(values, freq=frequency, name=name, copy=True)
    return _class(pd, kind, _INDEX_TYPES)(values, name=name, copy=True)


def _write_range(value: Any, writer: Writer) -> Parts:
    return [writer.slot(part) for part in (value.start, value.stop, value.step, value.name)], None


def _write_multi(value: Any, writer: Writer) -> Parts:
    codes = [np.asarray(each) for each in value.codes]
    return [writer.slot(part) for part in (list(value.levels), codes, list(value.names))], None


def _build_multi(slots: Any, _: Any, __: Reader) -> Any:
    levels, codes, names = slots
    return pd.MultiIndex(levels=levels, codes=codes, names=names)


def _write_categorical(value: Any, writer: Writer) -> Parts:
    return [writer.slot(np.asarray(value.codes)), writer.slot(value.categories)], value.ordered


def _build_categorical(slots: Any, ordered: Any, _: Reader) -> Any:
    return pd.Categorical.from_codes(slots[0], categories=slots[1], ordered=ordered)


def _write_zoned(value: Any, writer: Writer) -> Parts:
    return [writer.slot(value.asi8), writer.slot(getattr(value, "tz", None))], value.unit


def _build_zoned(slots: Any, unit: Any, _: Reader) -> Any:
    index = pd.DatetimeIndex(slots[0].view(f"M8[{unit}]"))
    if slots[1] is not None:
        index = index.tz_localize("UTC").tz_convert(slots[1])
    return index.array


def _write_masked(value: Any, writer: Writer) -> Parts:
    missing = np.asarray(value.isna())
    plain = value.to_numpy(dtype=value.dtype.numpy_dtype, na_value=value.dtype.numpy_dtype.type(0))
    return [writer.slot(plain), writer.slot(missing)], type(value).__name__


def _build_masked(slots: Any, name: Any, _: Reader) -> Any:
    return _class(pd.arrays, name, _MASKED)(*slots)


def _write_strings(value: Any, writer: Writer) -> Parts:
    texts = [None if missing else text for text, missing in zip(value, value.isna(), strict=True)]
    return [writer.slot(texts), writer.slot(value.dtype.na_value)], value.dtype.storage


def _build_strings(slots: Any, storage: Any, _: Reader) -> Any:
    return pd.array(slots[0], dtype=pd.StringDtype(storage, na_value=slots[1]))


def _write_periods(value: Any, writer: Writer) -> Parts:
    return [writer.slot(value.asi8)], str(value.dtype)


def _build_periods(slots: Any, dtype: Any, _: Reader) -> Any:
    return pd.arrays.PeriodArray(slots[0], dtype=pd.PeriodDtype(dtype.removeprefix("period[").removesuffix("]")))


def _write_intervals(value: Any, writer: Writer) -> Parts:
    return [writer.slot(value.left), writer.slot(value.right)], value.closed


def _build_intervals(slots: Any, closed: Any, _: Reader) -> Any:
    return pd.arrays.IntervalArray.from_arrays(*slots, closed=closed)


def _write_arrow(value: Any, writer: Writer) -> Parts:
    return [writer.slot(value.__arrow_array__())], None


def _build_arrow(slots: Any, _: Any, __: Reader) -> Any:
    return pd.arrays.ArrowExtensionArray(slots[0])


def _write_sparse(_: Any, __: Writer) -> Parts:
    raise UnsavableError("a sparse array of pandas has no exact form; make it dense")


def _write_timestamp(value: Any, writer: Writer) -> Parts:
    return [writer.slot(value.tz)], [int(value.asm8.view("i8")), value.unit]


def _build_timestamp(slots: Any, data: Any, _: Reader) -> Any:
    moment = pd.Timestamp(np.datetime64(data[0], data[1]))
    return moment if slots[0] is None else moment.tz_localize("UTC").tz_convert(slots[0])


def _write_timedelta(value: Any, _: Writer) -> Parts:
    return None, [int(value.asm8.view("i8")), value.unit]


def _build_timedelta(_: Any, data: Any, __: Reader) -> Any:
    return pd.Timedelta(np.timedelta64(data[0], data[1]))


def _write_period(value: Any, _: Writer) -> Parts:
    return None, [value.ordinal, value.freqstr]


def _build_period(_: Any, data: Any, __: Reader) -> Any:
    return pd.Period(ordinal=data[0], freq=data[1])


def _write_interval(value: Any, writer: Writer) -> Parts:
    return [writer.slot(value.left), writer.slot(value.right)], value.closed


def _kinds() -> tuple[Kind, ...]:
    return (
        Kind(tag="pandas.DataFrame", types=(pd.DataFrame,), write=_write_frame, build=_build_frame, reads=True),
        Kind(tag="pandas.Series", types=(pd.Series,), write=_write_series, build=_build_series, reads=True),
        Kind(
            tag="pandas.Index",
            types=tuple(getattr(pd, name) for name in _INDEX_TYPES),
            write=_write_index,
            build=_build_index,
            reads=True,
        ),
        Kind(
            tag="pandas.RangeIndex",
            types=(pd.RangeIndex,),
            write=_write_range,
            build=lambda slots, _, __: pd.RangeIndex(*slots[:3], name=slots[3]),
        ),
        Kind(tag="pandas.MultiIndex", types=(pd.MultiIndex,), write=_write_multi, build=_build_multi, reads=True),
        Kind(
            tag="pandas.Categorical",
            types=(pd.Categorical,),
            write=_write_categorical,
            build=_build_categorical,
            reads=True,
        ),
        Kind(tag="pandas.DatetimeArray", types=(pd.arrays.DatetimeArray,), write=_write_zoned, build=_build_zoned),
        Kind(
            tag="pandas.masked",
            types=tuple(getattr(pd.arrays, name) for name in _MASKED),
            write=_write_masked,
            build=_build_masked,
        ),
        Kind(
            tag="pandas.strings",
            types=(type(pd.array(["a"], dtype=pd.StringDtype("python"))), pd.arrays.ArrowStringArray),
            write=_write_strings,
            build=_build_strings,
            reads=True,
        ),
        Kind(tag="pandas.periods", types=(pd.arrays.PeriodArray,), write=_write_periods, build=_build_periods),
        Kind(tag="pandas.intervals", types=(pd.arrays.IntervalArray,), write=_write_intervals, build=_build_intervals),
        Kind(tag="pandas.arrow", types=(pd.arrays.ArrowExtensionArray,), write=_write_arrow, build=_build_arrow),
        Kind(
            tag="pandas.sparse",
            types=(pd.arrays.SparseArray,),
            write=_write_sparse,
            build=lambda slots, _, __: slots,
        ),
        Kind(tag="pandas.Timestamp", types=(pd.Timestamp,), write=_write_timestamp, build=_build_timestamp),
        Kind(tag="pandas.Timedelta", types=(pd.Timedelta,), write=_write_timedelta, build=_build_timedelta),
        Kind(tag="pandas.Period", types=(pd.Period,), write=_write_period, build=_build_period),
        Kind(
            tag="pandas.Interval",
            types=(pd.Interval,),
            write=_write_interval,
            build=lambda slots, closed, _: pd.Interval(*slots, closed=closed),
        ),
        Kind(tag="pandas.NaT", types=(type(pd.NaT),), write=lambda *_: (None, None), build=lambda *_: pd.NaT),
        Kind(tag="pandas.NA", types=(type(pd.NA),), write=lambda *_: (None, None), build=lambda *_: pd.NA),
    )


KINDS = _kinds() if pd is not None else ()
