"""Sets of ids (ranks, cores, gpus) and their text form, RFC 22.

`IDset` is a `collections.abc.MutableSet` of int that is ordered: it iterates in ascending order,
has positions and slices. Whatever is a set of ids can stand beside its operators: another `IDset`,
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

Ids go from 0 to 4294967294. Memory and the cost of every operation go by the number of ranges in
the text, not by the value of an id; a set of any size is copied, compared and sliced as a whole,
in Rust.

A set may change while it is iterated over: the iterator goes on with the next greater id (the next
lower one in `reversed`) that is then in the set. A set may be used from several threads.
"""

from _collections_abc import MutableSet  # `collections.abc`, without importing `collections`

from penstock._core import IDset

__all__ = ["IDset"]

MutableSet.register(IDset)
