"""The measured operations: tables of the libraries' targets, with their peers in this process."""

from __future__ import annotations

import itertools
import json
import random
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from penstock import Hostlist, IDset, ResourceSet

if TYPE_CHECKING:
    from collections.abc import Callable

Call = "Callable[[], object]"
UNIVERSE = 1_000_000
ROWS: list[Row] = []
#: Name: bytes here, bytes in pyroaring's containers or None, the target.
MEMORY: dict[str, tuple[int, int | None, int]] = {}

#: Seconds of the yardsticks in one run at 64f39693. They were not measured on the machine of the
#: targets; there a `for` over a range of a million took 9 ms, in that run 11.5 ms. A target is an
#: estimate, accurate to about 6 %.
YARDSTICK_S = {
    "idset parse a": 1.02e-07,
    "idset format a": 9.97e-08,
    "idset parse b": 7.29e-05,
    "idset format b": 7.53e-05,
    "idset parse c": 2.38e-06,
    "idset format c": 2.23e-06,
    "idset parse d": 5.38e-05,
    "idset format d": 5.50e-05,
    "idset take the lowest and return it, a": 6.37e-08,
    "idset take the lowest and return it, c": 6.29e-08,
    "idset take the lowest and return it, d": 6.37e-08,
    "idset small: parse": 9.26e-08,
    "idset small: format": 7.31e-08,
    "idset small: union": 7.80e-08,
    "idset one id 2147483647: parse": 1.02e-07,
    "hostlist parse node[0-99999]": 9.82e-08,
    "hostlist expand node[0-99999]": 2.52e-03,
    "hostlist parse 100,000 shuffled names": 2.48e-03,
    "hostlist expand 100,000 shuffled names": 2.50e-03,
    "hostlist fold 100,000 shuffled names": 2.53e-03,
    "hostlist sort 100,000 shuffled names": 3.41e-03,
    "hostlist uniq 100,000 shuffled names": 3.40e-03,
    "hostlist sort 120,000 hosts in overlapping ranges": 2.84e-03,
    "hostlist find, compact": 4.44e-08,
    "hostlist find, shuffled": 4.01e-08,
    "hostlist union, 50,000 random each": 4.38e-03,
    "hostlist difference, 50,000 random each": 3.21e-03,
    "hostlist intersection, 50,000 random each": 3.00e-03,
    "hostlist fold 51,200 five-part names, n-dimensional": 1.17e-03,
    "R load, equal": 9.88e-08,
    "R union, equal": 9.99e-08,
    "R difference, equal": 9.95e-08,
    "R intersection, equal": 1.00e-07,
    "R encode, equal": 1.00e-07,
    "R load, different": 1.55e-05,
    "R union, different": 1.60e-05,
    "R difference, different": 1.60e-05,
    "R intersection, different": 1.60e-05,
    "R encode, different": 1.60e-05,
    "R load, separate": 1.14e-05,
    "R union, separate": 1.14e-05,
    "R difference, separate": 1.14e-05,
    "R intersection, separate": 1.14e-05,
    "R encode, separate": 1.14e-05,
    "R restrict by ranks": 9.94e-08,
    "R restrict by hosts": 9.86e-08,
    "R restrict by constraint": 1.01e-07,
}
PACE, ACCURACY = 9 / 11.5, 0.06

#: Yardsticks that are no bounds, for less work has the same result.
NOT_BOUNDS = {
    "the same of sets",
    "the same of a set of one",
    "built-in call",
    "copy of the larger set",
}

# The work that takes the time of a row.
A_CALL = "a call and an object of CPython"
NAMES = "reads of names in strings of CPython, their numbers, a sort of these"
BITMAPS = "reads of two bitmaps, writes of one"
MASKS = "masks of runs"
BIT_OF_EACH_ID = "a look at, or a change of, a bit for each id"

try:
    from pyroaring import BitMap
except ImportError:
    BitMap = None
try:
    from ClusterShell.NodeSet import NodeSet
    from ClusterShell.RangeSet import RangeSet
except ImportError:
    NodeSet = RangeSet = None
try:
    import hostlist as python_hostlist
except ImportError:
    python_hostlist = None


@dataclass(frozen=True)
class Row:
    """One measurement.

    Attributes:
        name: what is done.
        target: seconds, or the peer that must take longer.
        yardsticks: a target of seconds as a multiple of the yardstick.
        bound: the yardstick: work that cannot be avoided if not in `NOT_BOUNDS`.
        work: what takes the time; empty if that was not measured.
        count: returns the number of ids, hosts, calls or nodes; 0 if the time depends on none.
        unit: what is counted.
        makers: by who does it: makes what is needed, and returns the call to be measured.
    """

    name: str
    target: float | str
    yardsticks: float
    bound: str
    work: str
    count: Callable[[], int] = field(repr=False, compare=False)
    unit: str
    makers: dict[str, Callable[[], Callable[[], object]]] = field(repr=False, compare=False)

    def verdict(self, own: float, peers: dict[str, float], bound: float) -> tuple[str, str]:
        """The target as text, and whether it is met.

        A time is of the machine that the targets were measured on: the target is that many times
        the yardstick of this run.
        """
        at_bound = self.bound not in NOT_BOUNDS and own <= MAX_OF_BOUND * bound
        if isinstance(self.target, str):
            text = f"{MAX_OF_PEER} {self.target}"
            if self.target not in peers:
                return text, "peer absent"
            part = own / (MAX_OF_PEER * peers[self.target])
            verdict = "met" if part <= 1 else "missed"
        else:
            seconds = self.target
            text = f"{seconds * 1e3:g} ms" if seconds >= 1e-5 else f"{seconds * 1e6:g} us"
            text = f"{text}, {self.yardsticks:.3g} yardsticks"
            part = own / (self.yardsticks * bound)
            verdict = "met (estimate)" if part <= 1 else "missed (estimate)"
            if abs(part - 1) <= ACCURACY:
                verdict = "within the estimate's error"
        return text, "at the bound" if part > 1 and at_bound else verdict


#: The greatest part of a peer's time, and of the bound's, with which a target is met.
MAX_OF_PEER, MAX_OF_BOUND = 0.9, 1.1


def row(
    name: str,
    target: float | str,
    bound: Any,
    work: str = "",
    count: tuple[Any, str] = (lambda: 0, ""),
    **makers: Any,
) -> None:
    """Adds a row; peers that are not installed, None here, are left out."""
    made = {who: make for who, make in makers.items() if make is not None}
    what, made["bound"] = bound
    yardsticks = 0.0 if isinstance(target, str) else target / (PACE * YARDSTICK_S[name])
    ROWS.append(Row(name, target, yardsticks, what, work, *count, made))


def copying(source: Any, what: str = "copy of the bytes") -> Any:
    """The bound of reading or writing a text or as many bytes: a copy of them."""

    def setup() -> Any:
        made = source()
        held = bytearray(made.encode() if isinstance(made, str) else made)
        return lambda: bytes(held)

    return what, setup


def comparing(source: Any, universe: int) -> Any:
    """The bound of a comparison: that of as many bytes, in a piece for each 65,536 numbers.

    Sets have them in such pieces, and the processor foresees what comes next in one piece alone.
    """

    def setup() -> Any:
        whole = source()
        size = -(-len(whole) // -(-universe // 65_536))
        left = [whole[at : at + size] for at in range(0, len(whole), size)]
        right = [bytes(bytearray(piece)) for piece in left]
        return lambda: left == right

    return "memcmp of the bitmaps, one by one", setup


def making_ints(count: Any) -> Any:
    """The bound of iteration: a loop over ints that are made, and nothing else."""

    def setup() -> Any:
        numbers = range(1000, 1000 + count())

        def walk() -> None:
            for _ in numbers:
                pass

        return walk

    return "for over a range", setup


def making_strings(source: Any) -> Any:
    """The bound of work on host names: they are split into objects."""

    def setup() -> Any:
        text = ",".join(source())
        return lambda: text.split(",")

    return "str.split", setup


def calling(work: Any) -> Any:
    """The bound of a short call: a built-in type's call with as many objects."""
    return "built-in call", lambda: work


def peer(present: object, make: Any) -> Any:
    """The factory of a peer's call; None if the peer is not installed."""
    return make if present is not None else None


# --- idsets


#: Universes of the sets of two forms.
UNIVERSES = {"10^4": 10**4, "10^5": 10**5, "10^6": 10**6, "10^7": 10**7}
#: The forms: random halves; a random hundredth; a thousand ids in each of some random places; a
#: range for each hundred ids; one run.
KINDS = ["half", "sparse", "clustered", "ranges", "one run"]
#: Sets that are combined with one of their form.
FORMS = [
    *("half of 10^4", "half of 10^5", "half of 10^7"),
    *(f"{kind} of 10^7" for kind in KINDS[1:]),
]

#: Sets whose operations compare id by id, or run by run, in as many pairs: taken in turn, for a
#: processor's branch predictor learns the decisions of one such pair by heart when it is repeated.
IN_TURN, PAIRS = {"c", "sparse", "ranges"}, 4


def kind_of(name: str) -> str:
    """The form of a set: its name without the universe."""
    return name.partition(" of ")[0]


def universe_of(name: str) -> int:
    """The greatest id that a set may have, and one."""
    return UNIVERSES.get(name.removesuffix(" 2").partition(" of ")[2], UNIVERSE)


@cache
def ids(name: str, number: int = 0) -> IDset:
    """A set: all, even, ten thousand ranges, a random half (a to d) of a million; or of `KINDS`.

    Sets of one name with different numbers are alike.
    """
    rng = random.Random(f"{name}, {number}" if number else name)
    kind, universe = kind_of(name), universe_of(name)
    if name == "a":
        return IDset(range(UNIVERSE))
    if name == "b":
        return IDset(range(0, UNIVERSE, 2))
    if kind in {"c", "c2", "ranges"}:
        made = IDset()
        for _ in range(universe // 100):
            first = rng.randrange(universe - 50)
            made.add(range(first, first + rng.randrange(1, 50)))
        return made
    if kind == "sparse":
        return IDset(rng.sample(range(universe), universe // 100))
    if kind == "clustered":
        starts = [rng.randrange(universe - 1000) for _ in range(universe // 10_000)]
        return IDset(first + rng.randrange(1000) for first in starts for _ in range(1000))
    if kind == "one run":
        first = rng.randrange(universe // 10)
        return IDset(range(first, first + universe // 10 * 8))
    return IDset(itertools.compress(range(universe), map(int, f"{rng.getrandbits(universe):b}")))


def bits(*names: str) -> bytes:
    """As many bytes as bitmaps of these sets have, of which no more than their ids take."""
    # Not zeroes, whose pages the kernel would share.
    return b"\1" * max(ids(name).__sizeof__() for name in names)


@cache
def bitmap(name: str, number: int = 0) -> Any:
    made = BitMap(ids(name, number).expand())
    made.run_optimize()
    return made


@cache
def rangeset(name: str, number: int = 0) -> Any:
    return RangeSet(str(ids(name, number)))


for _name, _parse, _format in [
    ("a", 0.002, 0.002),
    ("b", 5, 5),
    ("c", 0.5, 0.3),
    ("d", 5, 4),
]:

    def _text(name: str = _name) -> str:
        return str(ids(name))

    row(
        f"idset parse {_name}",
        _parse / 1e3,
        copying(_text),
        A_CALL if _name == "a" else "latency: a number begins where the one before ends",
        (lambda name=_name: len(ids(name)), "id"),
        penstock=lambda text=_text: lambda t=text(): IDset(t),
        ClusterShell=peer(RangeSet, lambda text=_text: lambda t=text(): RangeSet(t)),
    )
    row(
        f"idset format {_name}",
        _format / 1e3,
        copying(_text),
        A_CALL
        if _name == "a"
        else "latency: the place of a number is known with the length of the one before",
        (lambda name=_name: len(ids(name)), "id"),
        penstock=lambda name=_name: lambda s=ids(name): str(s),
        ClusterShell=peer(RangeSet, lambda name=_name: lambda s=rangeset(name): str(s)),
    )

OPERATIONS = {
    "union": lambda x, y: len(x | y),
    "intersection": lambda x, y: len(x & y),
    "difference": lambda x, y: len(x - y),
    "symmetric difference": lambda x, y: len(x ^ y),
}


def _combine(make: Any, left: str, right: str, apply: Any) -> Any:
    def setup() -> Any:
        numbers = range(1 if IN_TURN.isdisjoint(map(kind_of, (left, right))) else PAIRS)
        pairs = itertools.cycle([(make(left, n), make(right, n)) for n in numbers])
        return lambda: apply(*next(pairs))

    return setup


def work_of(operation: str, left: str, right: str) -> str:
    """The work that takes the time of an operation on two sets of the bench."""
    kinds = {kind_of(left), kind_of(right)}
    if kinds == {"one run"}:
        return A_CALL
    if kinds == {"sparse"}:
        return "comparisons of ids, 8 or 32 at once"
    if "one run" in kinds:
        adds = operation == "symmetric difference" or (
            operation == "difference" and kind_of(left) == "one run"
        )
        if "sparse" in kinds:
            return BIT_OF_EACH_ID if adds else "lists of ids are cut"
        return "lists of runs are copied" if "ranges" in kinds else BITMAPS
    if kinds == {"sparse", "ranges"}:
        return f"{MASKS}, and {BIT_OF_EACH_ID}"
    if "sparse" in kinds:
        return BIT_OF_EACH_ID
    return BITMAPS if kinds.isdisjoint({"c", "c2", "ranges"}) else MASKS


def combination(name: str, operation: str, left: str, right: str) -> None:
    """Adds the row of an operation on two sets."""
    apply = OPERATIONS[operation]
    yardstick = "copy of the larger set" if "mixed" in name else "copy of the bytes"
    row(
        name,
        "pyroaring",
        copying(lambda: bits(left, right), yardstick),
        work_of(operation, left, right),
        (lambda: len(ids(left)) + len(ids(right)), "id"),
        penstock=_combine(ids, left, right, apply),
        pyroaring=peer(BitMap, _combine(bitmap, left, right, apply)),
        ClusterShell=peer(RangeSet, _combine(rangeset, left, right, apply))
        if left == "d"
        else None,
    )


for _left, _right in [("d", "d2"), ("b", "d"), ("c", "c2"), ("b", "c")]:
    for _what in OPERATIONS:
        combination(f"idset {_what} {_left} {_right}", _what, _left, _right)
for _name in FORMS:
    for _what in OPERATIONS:
        combination(f"idset {_what} {_name}", _what, _name, f"{_name} 2")
for _universe in UNIVERSES:
    for _left, _right in itertools.permutations(KINDS, 2):
        for _what in OPERATIONS:
            # The order matters to a difference alone.
            if _what == "difference" or KINDS.index(_left) < KINDS.index(_right):
                combination(
                    f"idset {_what}, mixed {_universe}: {_left}, {_right}",
                    _what,
                    f"{_left} of {_universe}",
                    f"{_right} of {_universe}",
                )


def _equal(make: Any, copy: Any, name: str) -> Any:
    def setup() -> Any:
        x = make(name)
        y = copy(x)
        return lambda: x == y

    return setup


@cache
def _questions(name: str) -> list[int]:
    """The ids in question, the same objects for all, since their places in memory matter."""
    rng = random.Random(5)
    universe = universe_of(name)
    return [rng.randrange(universe) for _ in range(100_000)]


def _ask(held: Any, questions: list[int]) -> Any:
    def ask() -> None:
        for one in questions:
            one in held  # noqa: B015 - what is measured

    return ask


def _member(make: Any, name: str) -> Any:
    return lambda: _ask(make(name), _questions(name))


def _same_answers(name: str) -> Any:
    """The same answers from a set of one id: the loop, the calls and its mispredicted branches."""

    def setup() -> Any:
        held = ids(name)
        return _ask(frozenset([0]), [int(one not in held) for one in _questions(name)])

    return setup


def _iterate(make: Any, name: str) -> Any:
    def setup() -> Any:
        held = make(name)

        def walk() -> None:
            for _ in held:
                pass

        return walk

    return setup


for _name in ["d", *FORMS]:
    row(
        f"idset equality {_name}",
        "pyroaring",
        comparing(lambda name=_name: bits(name), universe_of(_name)),
        "reads of both sets",
        (lambda name=_name: len(ids(name)), "id"),
        penstock=_equal(ids, lambda x: IDset(str(x)), _name),
        pyroaring=peer(BitMap, _equal(bitmap, lambda x: BitMap.deserialize(x.serialize()), _name)),
    )
for _name in ["a", "c", "d", *FORMS]:
    row(
        f"idset membership, 100,000 calls, {_name}",
        "pyroaring",
        ("the same answers from a frozenset of one id", _same_answers(_name)),
        "a call of CPython, a mispredicted branch on its answer",
        (lambda: 100_000, "call"),
        penstock=_member(ids, _name),
        pyroaring=peer(BitMap, _member(bitmap, _name)),
    )
for _name in ["a", "d", *FORMS]:
    row(
        f"idset iterate {_name}",
        "pyroaring",
        making_ints(lambda name=_name: len(ids(name))),
        "an int of CPython for each id",
        (lambda name=_name: len(ids(name)), "id"),
        penstock=_iterate(ids, _name),
        pyroaring=peer(BitMap, _iterate(bitmap, _name)),
    )


def _pool(make: Any, name: str) -> Any:
    def setup() -> Any:
        pool = make(name).copy()
        pop, add = pool.pop, pool.add
        return lambda: add(pop())

    return setup


for _name in "acd":
    row(
        f"idset take the lowest and return it, {_name}",
        0.1e-6,
        ("the same of a set of one", _pool(lambda _: {1000}, _name)),
        "two calls of CPython and an int",
        penstock=_pool(ids, _name),
        pyroaring=peer(BitMap, _pool(bitmap, _name)),
    )

_SMALL, _OTHER = "0-31,40-63", "16-50"
row(
    "idset small: parse",
    0.25e-6,
    calling(lambda: int("31")),
    A_CALL,
    penstock=lambda: lambda: IDset(_SMALL),
)
row(
    "idset small: format",
    0.3e-6,
    calling(lambda one=1000: str(one)),
    A_CALL,
    penstock=lambda: lambda s=IDset(_SMALL): str(s),
)
row(
    "idset small: union",
    0.12e-6,
    calling(lambda x=frozenset([1]), y=frozenset([2]): x | y),
    A_CALL,
    penstock=lambda: lambda x=IDset(_SMALL), y=IDset(_OTHER): x | y,
    pyroaring=peer(BitMap, lambda: lambda x=BitMap(IDset(_SMALL)), y=BitMap(IDset(_OTHER)): x | y),
)
row(
    "idset one id 2147483647: parse",
    1e-6,
    calling(lambda: int("2147483647")),
    A_CALL,
    penstock=lambda: lambda: IDset("2147483647"),
)


def measure_memory() -> None:
    """Fills in the sizes, next to what pyroaring says that its containers take."""
    thin = IDset(random.Random(9).sample(range(UNIVERSE), 10_000))
    sets = [
        ("dense 1,000,000", ids("a"), 1_000),
        ("random half", ids("d"), 134_000),
        ("10,000 of 1,000,000", thin, 24_000),
        ("one id 2147483647", IDset(2147483647), 200),
    ]
    for name, made, most in sets:
        theirs = None
        if BitMap is not None:
            other = BitMap(made.expand())
            other.run_optimize()
            statistics = other.get_statistics()
            theirs = sum(size for key, size in statistics.items() if "n_bytes" in key)
        MEMORY[name] = (made.__sizeof__(), theirs, most)


# --- hostlists

HOSTS = 100_000


@cache
def names() -> list[str]:
    made = [f"node{number}" for number in range(HOSTS)]
    random.Random(1).shuffle(made)
    return made


@cache
def half(seed: int) -> list[str]:
    return random.Random(seed).sample(names(), HOSTS // 2)


@cache
def joined() -> str:
    return ",".join(names())


@cache
def overlapping() -> str:
    """120,000 hosts in 1,200 heavily overlapping ranges."""
    rng = random.Random(4)
    starts = [rng.randrange(2_000) for _ in range(1_200)]
    return ",".join(f"node[{first}-{first + 99}]" for first in starts)


@cache
def blades() -> list[str]:
    made = [
        f"x{rack}c{chassis}s{slot}b{board}n{node}"
        for rack in range(1000, 1050)
        for chassis in range(8)
        for slot in range(8)
        for board in range(2)
        for node in range(8)
    ]
    random.Random(6).shuffle(made)
    return made


_COMPACT = f"node[0-{HOSTS - 1}]"
row(
    "hostlist parse node[0-99999]",
    0.002e-3,
    calling(lambda: int("99999")),
    A_CALL,
    penstock=lambda: lambda: Hostlist(_COMPACT),
    ClusterShell=peer(NodeSet, lambda: lambda: NodeSet(_COMPACT)),
    python_hostlist=peer(
        python_hostlist, lambda: lambda: python_hostlist.expand_hostlist(_COMPACT)
    ),
)
row(
    "hostlist expand node[0-99999]",
    8e-3,
    making_strings(names),
    "a string of CPython for each host",
    (lambda: HOSTS, "host"),
    penstock=lambda: lambda: Hostlist(_COMPACT).expand(),
    ClusterShell=peer(NodeSet, lambda: lambda: list(NodeSet(_COMPACT))),
    python_hostlist=peer(
        python_hostlist, lambda: lambda: python_hostlist.expand_hostlist(_COMPACT)
    ),
)
row(
    "hostlist parse 100,000 shuffled names",
    6e-3,
    making_strings(names),
    "reads of names and their numbers",
    (lambda: HOSTS, "host"),
    penstock=lambda: lambda text=joined(): Hostlist(text),
    ClusterShell=peer(NodeSet, lambda: lambda text=joined(): NodeSet(text)),
    python_hostlist=peer(
        python_hostlist, lambda: lambda text=joined(): python_hostlist.expand_hostlist(text)
    ),
)
row(
    "hostlist expand 100,000 shuffled names",
    10e-3,
    making_strings(names),
    "a string of CPython for each host",
    (lambda: HOSTS, "host"),
    penstock=lambda: lambda made=Hostlist(joined()): made.expand(),
)


def _folded(some: list[str]) -> str:
    hosts = Hostlist(some)
    hosts.sort()
    return str(hosts)


row(
    "hostlist fold 100,000 shuffled names",
    12e-3,
    making_strings(names),
    NAMES,
    (lambda: HOSTS, "host"),
    penstock=lambda: lambda some=names(): _folded(some),
    ClusterShell=peer(NodeSet, lambda: lambda some=names(): str(NodeSet.fromlist(some))),
    python_hostlist=peer(
        python_hostlist, lambda: lambda some=names(): python_hostlist.collect_hostlist(some)
    ),
)


def _changed(source: Any, change: Any) -> Any:
    def setup() -> Any:
        made = Hostlist(source())
        return lambda: change(made.copy())

    return setup


row(
    "hostlist sort 100,000 shuffled names",
    6e-3,
    making_strings(names),
    "a sort of numbers",
    (lambda: HOSTS, "host"),
    penstock=_changed(joined, lambda hosts: hosts.sort()),
    python_hostlist=peer(
        python_hostlist, lambda: lambda some=names(): python_hostlist.numerically_sorted(some)
    ),
)
row(
    "hostlist uniq 100,000 shuffled names",
    6e-3,
    making_strings(names),
    "a bit for each host",
    (lambda: HOSTS, "host"),
    penstock=_changed(joined, lambda hosts: hosts.uniq()),
)
row(
    "hostlist sort 120,000 hosts in overlapping ranges",
    20e-3,
    making_strings(names),
    "a sort of numbers",
    (lambda: 120_000, "host"),
    penstock=_changed(overlapping, lambda hosts: hosts.sort()),
)


def _find(source: Any, host: str) -> Any:
    def setup() -> Any:
        made = Hostlist(source())
        made.find(host)
        return lambda: made.find(host)

    return setup


for _name, _target, _source in [
    ("compact", 0.2e-6, lambda: _COMPACT),
    ("shuffled", 0.5e-6, joined),
]:
    row(
        f"hostlist find, {_name}",
        _target,
        calling(lambda table={"node77777": 1}: table.get("node77777")),
        A_CALL if _name == "compact" else "a call of CPython, the hash of the name",
        penstock=_find(_source, "node77777"),
    )


for _what, _apply in [
    ("union", lambda x, y: x | y),
    ("difference", lambda x, y: x - y),
    ("intersection", lambda x, y: x & y),
]:

    def _pair(make: Any, f: Any = _apply) -> Any:
        def setup() -> Any:
            x, y = make(half(2)), make(half(3))
            return lambda: f(x, y)

        return setup

    row(
        f"hostlist {_what}, 50,000 random each",
        2e-3,
        ("the same of sets", _pair(set)),
        "a bit for each host, and its entry of 24 bytes",
        (lambda: HOSTS, "host"),
        penstock=_pair(Hostlist),
        ClusterShell=peer(NodeSet, _pair(lambda some: NodeSet.fromlist(some))),
    )
row(
    "hostlist fold 51,200 five-part names, n-dimensional",
    40e-3,
    making_strings(blades),
    NAMES,
    (lambda: 51_200, "host"),
    penstock=lambda: lambda some=blades(): Hostlist(some).fold(nd=True),
    ClusterShell=peer(NodeSet, lambda: lambda some=blades(): str(NodeSet.fromlist(some))),
    python_hostlist=peer(
        python_hostlist, lambda: lambda some=blades(): python_hostlist.collect_hostlist(some)
    ),
)

# --- R

NODES = 10_000
#: Nodes of an R without neighbouring ranks.
SEPARATE_NODES = 50_000


@cache
def r_text(kind: str, which: str = "left") -> str:
    """One of two R: 10,000 nodes of about 64 cores, equal or different, or 50,000 equal ones.

    The last have separate ranks, of which every third of the left one is in the right one; of the
    others every second.
    """
    if kind == "separate":
        step = 2 if which == "left" else 3
        last = step * (SEPARATE_NODES - 1)
        ranks = IDset(range(0, last + 1, step))
        separate = ResourceSet.uniform(ranks, f"node[{ranks}]", cores="0-63")
        return str(separate.to_json())
    first = 0 if which == "left" else NODES // 2
    last = first + NODES - 1
    if kind == "equal":
        made = ResourceSet.uniform(f"{first}-{last}", f"node[{first}-{last}]", cores="0-63")
        return str(made.to_json())
    lite = []
    for rank in range(first, last + 1):
        # Written in base 2, the rank says which of 14 cores are missing.
        missing = {2 * bit for bit in range(14) if rank >> bit & 1}
        cores = IDset(core for core in range(64) if core not in missing)
        lite.append({"rank": str(rank), "children": {"core": str(cores)}})
    execution = {"R_lite": lite, "nodelist": [f"node[{first}-{last}]"]}
    return json.dumps({"version": 1, "execution": execution})


def _sets(kind: str, apply: Any) -> Any:
    def setup() -> Any:
        x, y = ResourceSet(r_text(kind)), ResourceSet(r_text(kind, "right"))
        return lambda: apply(x, y)

    return setup


#: The work that takes the time of reading or writing an R, and of combining two.
R_WORK = {
    "equal": (A_CALL, A_CALL),
    "different": (
        "numbers to text and back, for each node",
        "a comparison of two runs of nodes for each node",
    ),
    "separate": (
        "an entry of 24 bytes for each host, its number to text and back",
        "an entry of 24 bytes for each host",
    ),
}
for _kind, _load, _combine_target, _encode in [
    ("equal", 0.05, 0.1, 0.05),
    ("different", 4, 3, 6),
    ("separate", 10, 10, 10),
]:
    _text_work, _combine_work = R_WORK[_kind]
    _count = (lambda kind=_kind: SEPARATE_NODES if kind == "separate" else NODES, "node")
    row(
        f"R load, {_kind}",
        _load / 1e3,
        copying(lambda kind=_kind: r_text(kind)),
        _text_work,
        _count,
        penstock=lambda kind=_kind: lambda text=r_text(kind): ResourceSet(text),
        json_loads=lambda kind=_kind: lambda text=r_text(kind): json.loads(text),
    )
    for _what, _apply in [
        ("union", lambda x, y: x | y),
        ("difference", lambda x, y: x - y),
        ("intersection", lambda x, y: x & y),
    ]:
        row(
            f"R {_what}, {_kind}",
            _combine_target / 1e3,
            copying(lambda kind=_kind: r_text(kind)),
            _combine_work,
            _count,
            penstock=_sets(_kind, _apply),
        )
    row(
        f"R encode, {_kind}",
        _encode / 1e3,
        copying(lambda kind=_kind: r_text(kind)),
        _text_work,
        _count,
        penstock=lambda kind=_kind: lambda made=ResourceSet(r_text(kind)): made.to_json(),
    )
row(
    "R restrict by ranks",
    0.2e-3,
    copying(lambda: r_text("equal")),
    A_CALL,
    penstock=_sets("equal", lambda x, _: x.restrict(ranks="100-4999")),
)
row(
    "R restrict by hosts",
    0.2e-3,
    copying(lambda: r_text("equal")),
    A_CALL,
    penstock=_sets("equal", lambda x, _: x.restrict(hosts="node[100-4999]")),
)
row(
    "R restrict by constraint",
    0.2e-3,
    copying(lambda: r_text("equal")),
    A_CALL,
    penstock=_sets("equal", lambda x, _: x.restrict(constraint={"hostlist": ["node[100-4999]"]})),
)
