"""Columns: accepted types, and errors that name column and row."""

from __future__ import annotations

from array import array
from fractions import Fraction

import pytest

from penstock import Engine, ResourceSet
from penstock.errors import EngineError

try:
    import numpy as np
except ImportError:
    np = None

needs_numpy = pytest.mark.skipif(np is None, reason="numpy is not installed")
IDS = [3, 1, 2]


class Frame:
    """A data frame's column: it can become an array."""

    def __init__(self, numbers):
        self.numbers = numbers

    def __array__(self, dtype=None, copy=None):
        return self.numbers


def engine():
    made = Engine(ResourceSet.uniform("0-3", "n[0-3]", cores="0-7"))
    made.shape()
    made.shape(cores=2)
    return made


def pending(**columns):
    made = engine()
    made.submit(**{"ids": IDS, "shapes": 0, **columns})
    return made.pending()


@pytest.mark.parametrize(
    "ids",
    [
        IDS,
        tuple(IDS),
        range(1, 4),
        {1, 2, 3},
        (job for job in IDS),
        dict.fromkeys(IDS),
        array("q", IDS),
        array("H", IDS),
        array("b", IDS),
        memoryview(array("I", IDS)),
        memoryview(array("L", [3, 0, 1, 0, 2]))[::2],
        Frame(array("i", IDS)),
    ],
    ids=lambda column: type(column).__name__,
)
def test_any_sequence_of_integers_is_a_column(ids):
    assert pending(ids=ids).ids.tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    "durations",
    [
        [30, 10.5, 20],
        (30.0, 10.5, Fraction(20)),
        array("d", [30, 10.5, 20]),
        array("f", [30, 10.5, 20]),
        Frame(array("d", [30, 10.5, 20])),
    ],
    ids=lambda column: type(column).__name__,
)
def test_durations_may_have_fractions(durations):
    assert pending(durations=durations).durations.tolist() == [10.5, 20.0, 30.0]


def test_one_number_is_for_all_jobs():
    columns = pending(ids=range(4), shapes=1, durations=7, priorities=3)
    assert columns.shapes.tolist() == [1] * 4
    assert columns.durations.tolist() == [7.0] * 4
    assert columns.priorities.tolist() == [3] * 4
    assert pending(ids=5).ids.tolist() == [5]
    assert pending(ids=[]).ids.tolist() == []


def test_the_greatest_numbers_fit():
    most = 2**64 - 1
    assert pending(ids=[most, 0], priorities=[2**32 - 1, 1]).ids.tolist() == [most, 0]
    assert pending(ids=array("Q", [most])).ids.tolist() == [most]


@pytest.mark.parametrize(
    ("columns", "error", "text"),
    [
        ({"ids": "123"}, TypeError, r"ids: expected integers \(a list, .*\), found str"),
        ({"ids": b"123"}, TypeError, "ids: expected integers .*, found bytes"),
        ({"ids": None}, TypeError, "ids: expected integers .*, found NoneType"),
        ({"ids": 1.5}, TypeError, "ids: expected an integer, found float"),
        ({"ids": [1, 2.0]}, TypeError, r"ids\[1\]: expected an integer, found float"),
        ({"ids": [1, "2"]}, TypeError, r"ids\[1\]: expected an integer, found str"),
        ({"ids": [1, -2]}, EngineError, r"ids\[1\]: expected a job id .*, found -2"),
        ({"ids": [2**64]}, EngineError, r"ids\[0\]: expected a job id .*, found 184467440737095"),
        ({"ids": array("d", [1])}, TypeError, "ids: expected integers .*, found array of d"),
        ({"ids": array("h", [1, -2])}, EngineError, r"ids\[1\]: expected a job id .*, found -2"),
        ({"ids": memoryview(bytes(4)).cast("B", (2, 2))}, TypeError, "one dimension, found 2"),
        ({"priorities": [1, 2**32, 3]}, EngineError, r"priorities\[1\]: .*, found 4294967296"),
        ({"priorities": -1}, EngineError, "priorities: expected a priority .*, found -1"),
        ({"priorities": [1, 2]}, EngineError, "priorities: expected one value, or 3 .*, found 2"),
        ({"durations": [1, 2]}, EngineError, "durations: expected one value, or 3 .*, found 2"),
        ({"durations": [1, 2, -3]}, EngineError, r"durations\[2\]: expected seconds .*, found -3"),
        ({"durations": float("nan")}, EngineError, "durations: expected seconds .*, found nan"),
        ({"durations": [1, "2", 3]}, TypeError, r"durations\[1\]: expected a number, found str"),
        ({"durations": "1h"}, TypeError, "durations: expected numbers .*, found str"),
        ({"shapes": 2}, EngineError, "shapes: expected a shape from 0 to 1, found 2"),
        ({"shapes": [0, 1, 7]}, EngineError, r"shapes\[2\]: .* from 0 to 1, found 7"),
        ({"queues": ["a", "b"]}, EngineError, "queues: expected one value, or 3 .*, found 2"),
        ({"queues": ["a", 5, "b"]}, TypeError, r"queues\[1\]: expected a name or None, found int"),
    ],
)
def test_a_value_that_does_not_fit_is_named_by_column_and_row(columns, error, text):
    made = engine()
    with pytest.raises(error, match=text):
        made.submit(**{"ids": IDS, "shapes": 0, **columns})
    assert made.npending == 0


def test_without_a_shape_there_is_nothing_to_submit():
    made = Engine(ResourceSet.uniform("0", "n", cores="0"))
    with pytest.raises(EngineError, match="expected a shape, but none was named yet, found 0"):
        made.submit([1], 0)


def test_an_error_of_the_source_is_not_hidden():
    def numbers():
        yield 1
        raise OSError("the file has gone")

    with pytest.raises(OSError, match="the file has gone"):
        engine().submit(numbers(), 0)


@needs_numpy
@pytest.mark.parametrize(
    "dtype", ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", ">i4", "<u8", ">u2"]
)
def test_numpy_integers_of_every_size_and_byte_order(dtype):
    ids = np.array([3, 1, 2], dtype=dtype)
    assert pending(ids=ids, durations=ids).durations.tolist() == [1.0, 2.0, 3.0]
    assert pending(ids=np.array([3, 9, 1, 9, 2], dtype=dtype)[::2]).ids.tolist() == [1, 2, 3]
    assert pending(ids=ids[0]).ids.tolist() == [3]


@needs_numpy
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", ">f8", "longdouble"])
def test_numpy_floats_are_durations_but_no_ids(dtype):
    seconds = np.array([3.5, 1, 2], dtype=dtype)
    assert pending(durations=seconds).durations.tolist() == [1.0, 2.0, 3.5]
    assert pending(durations=seconds[0]).durations.tolist() == [3.5] * 3
    with pytest.raises(TypeError, match=rf"ids: expected .*{seconds.dtype}|ids\[0\]: expected"):
        engine().submit(seconds, 0)


@needs_numpy
@pytest.mark.parametrize("numbers", [[True, False, True], [1j, 2, 3], ["1", "2", "3"], [[1], [2]]])
def test_numpy_arrays_of_other_types_are_rejected(numbers):
    with pytest.raises(TypeError, match=r"ids(\[0\])?: expected"):
        engine().submit(np.array(numbers), 0)


@needs_numpy
def test_numpy_reads_columns_without_a_copy():
    made = engine()
    ids = np.arange(20, dtype=np.uint32)
    made.submit(ids, ids % 2, durations=np.linspace(1, 2, 20), priorities=1)
    decisions = made.schedule(0.0)
    for name, dtype in [
        ("ids", np.uint64),
        ("starts", np.float64),
        ("expirations", np.float64),
        ("nodes", np.uint32),
        ("cores", np.uint64),
        ("gpus", np.uint64),
        ("backfilled", np.bool_),
    ]:
        column = np.asarray(getattr(decisions, name))
        assert column.dtype == dtype
        assert not column.flags.owndata
        assert not column.flags.writeable
        assert column.shape == (len(decisions),)
    assert np.asarray(decisions.cores).sum() == 30
    made.free(np.asarray(decisions.ids))
    assert made.nrunning == 0
