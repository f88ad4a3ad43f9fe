"""Ordered lists of host names and their text form, RFC 29.

`Hostlist` is a `collections.abc.MutableSequence` of str, with the operations of a set besides.
Its operators take anything that names hosts: another `Hostlist`, a hostlist text, any
iterable of names or texts.

Example:
    >>> from penstock.hostlist import Hostlist
    >>> hosts = Hostlist("node[008-011],login")
    >>> len(hosts), hosts[2], hosts.find("login")
    (5, 'node010', 4)
    >>> hosts - "node[009-010]"
    Hostlist('node[008,011],login')
    >>> hosts = Hostlist(["b2", "a10", "a9"])
    >>> hosts.sort()
    >>> hosts
    Hostlist('a[9-10],b2')
    >>> Hostlist("foo[1-]")
    Traceback (most recent call last):
    ...
    penstock.errors.HostlistError: invalid hostlist "foo[1-]": expected a number at byte 6

As a list it keeps order and repeats, and `+` and `extend` do so. The set operations (`|`, `&`,
`-`, `^` and their methods) give each host once, in the order of the left operand. `delete` takes
out one occurrence for each that it is given. Names are compared letter by letter: `n1` is not
`n01`.

Consecutive hosts are stored as ranges: `node[0-99999]` costs no more than its text, and only
`expand`, `reverse`, and slices with a step expand it to single names. The zeroes in front of
the first number in brackets hold for all of them: `[005,4,11-13]` is `005,004,011,012,013`; a
later number that is written with more keeps them.

A name with several pairs of brackets, which RFC 29 leaves open, stands for every number of the
first with every one of the others: `x[0-1]c[0-7]` is 16 hosts. `fold(nd=True)` writes such names.

Texts are parsed strictly. `Hostlist(text, lenient=True)` and `parse_lenient` also accept texts of
other software, and report their corrections.

A list holds at most 4294967295 hosts. Of those in brackets before a suffix with digits
(`foo[0-9]-ib0`), which are compared one by one, a text may have 1048576; and its names with
several pairs of brackets may stand for as many ranges.

A list may change while it is iterated over: as with any list, the iterator continues at the next
position. A list may be used from several threads.
"""

from _collections_abc import MutableSequence  # `collections.abc`, without importing `collections`

from penstock._core import Hostlist

__all__ = ["Hostlist"]

MutableSequence.register(Hostlist)
