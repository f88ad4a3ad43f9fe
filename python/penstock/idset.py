"""Sets of ids (ranks, cores, gpus) and their text form, RFC 22.

`IDset` is a `collections.abc.MutableSet` of int that is ordered: it iterates in ascending order,
has positions and slices. Its operators take anything that is a set of ids: another `IDset`,
an idset text, any iterable of int.

Example:
    >>> from penstock.idset import IDset
    >>> ids = IDset("0-3,8")
    >>> str(ids | "4-5" | [9])
    '0-5,8-9'
    >>> ids - {0, 1, 2}
    IDset('3,8')
    >>> ids[-1], len(ids), 7 in ids
    (8, 5, False)
    >>> IDset("1-x")
    Traceback (most recent call last):
    ...
    penstock.errors.IdsetError: invalid idset "1-x": expected a number at byte 2

`FrozenIDset` is the same without what changes it, and has a hash: that of the equal `frozenset`.

An `IDset` may be a pool of free ids:

    >>> free = IDset("0-7")
    >>> mine = free.allocate(3)
    >>> print(mine, free)
    0-2 3-7
    >>> free.release("1-2")
    >>> print(free)
    1-7

Texts are read as RFC 22 wants them: ascending, no repeats, no blanks, no leading zeroes. Texts
of other systems are read with `lenient=True`, which warns (`penstock.errors.MendedWarning`), or by
`parse_lenient`, which returns what it mended:

    >>> IDset.parse_lenient("5, 1-3")
    (IDset('1-3,5'), ['left out blanks at byte 2', 'put in order at byte 3'])

Ids go from 0 to 4294967294. Ids are kept in chunks of 65,536, each as a bitmap, a list of ids or a
list of runs, whichever is small: memory and cost never depend on the value of an id, and a set of
any size is copied, compared and sliced as a whole, in Rust.

An iterator gives the ids that were there when it was made. A set may be used from several threads.
`to_numpy`, `from_numpy` and `memoryview` hand ids over as arrays of uint32.
"""

from _collections_abc import MutableSet, Set  # `collections.abc`, without importing `collections`

from penstock._core import FrozenIDset, IDset

__all__ = ["FrozenIDset", "IDset"]

MutableSet.register(IDset)
Set.register(FrozenIDset)
