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

#: Times of peers on the machine of the targets, seconds by row and peer.
THEN = {
    ("idset parse a", "ClusterShell"): 0.350,
    ("idset parse b", "ClusterShell"): 0.564,
    ("idset parse c", "ClusterShell"): 0.084,
    ("idset format b", "ClusterShell"): 0.850,
    ("idset format d", "ClusterShell"): 0.866,
    ("idset union d d2", "ClusterShell"): 0.065,
    ("idset intersection d d2", "ClusterShell"): 0.048,
    ("hostlist expand node[0-99999]", "ClusterShell"): 0.097,
    ("hostlist expand node[0-99999]", "python_hostlist"): 0.028,
    ("hostlist parse 100,000 shuffled names", "ClusterShell"): 1.560,
    ("hostlist parse 100,000 shuffled names", "python_hostlist"): 0.150,
    ("hostlist fold 100,000 shuffled names", "ClusterShell"): 0.580,
    ("hostlist fold 100,000 shuffled names", "python_hostlist"): 0.352,
    ("hostlist fold 51,200 five-part names, n-dimensional", "python_hostlist"): 0.274,
}

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
        bound: the work that cannot be avoided, measured as `bound`.
        count: returns the number of ids, hosts, calls or nodes; 0 if the time depends on none.
        unit: what is counted.
        makers: by who does it: makes what is needed, and returns the call to be measured.
    """

    name: str
    target: float | str
    bound: str
    count: Callable[[], int] = field(repr=False, compare=False)
    unit: str
    makers: dict[str, Callable[[], Callable[[], object]]] = field(repr=False, compare=False)

    def verdict(
        self, own: float, peers: dict[str, float], bound: float | None, drift: float
    ) -> tuple[str, str]:
        """The target as text, and whether it is met.

        A time is of the machine that the targets were measured on; `drift` says how much longer
        the peers take here.
        """
        at_bound = bound is not None and own <= MAX_OF_BOUND * bound
        if isinstance(self.target, str):
            text = f"{MAX_OF_PEER} {self.target}"
            if self.target not in peers:
                return text, "peer absent"
            met = own <= MAX_OF_PEER * peers[self.target]
        else:
            seconds = self.target
            text = f"{seconds * 1e3:g} ms" if seconds >= 1e-5 else f"{seconds * 1e6:g} us"
            met = own <= seconds
            if not met and own <= seconds * drift:
                return text, "met at the peers' pace"
        if met:
            return text, "met"
        return text, "at the bound" if at_bound else "missed"


#: The greatest part of a peer's time, and of the bound's, with which a target is met.
MAX_OF_PEER, MAX_OF_BOUND = 0.9, 1.1


def row(
    name: str,
    target: float | str,
    bound: Any,
    count: tuple[Any, str] = (lambda: 0, ""),
    **makers: Any,
) -> None:
    """Adds a row; peers that are not installed, None here, are left out."""
    made = {who: make for who, make in makers.items() if make is not None}
    what, made["bound"] = bound
    ROWS.append(Row(name, target, what, *count, made))


def copying(source: Any) -> Any:
    """The bound of reading or writing a text or as many bytes: a copy of them."""

    def setup() -> Any:
        made = source()
        held = bytearray(made.encode() if isinstance(made, str) else made)
        return lambda: bytes(held)

    return "copy of the bytes", setup


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


#: Other sets by the size of their universe: random halves; a random hundredth; a thousand ids in
#: each of a thousand random places; one run.
FORMS = {
    "half of 10^4": 10**4,
    "half of 10^5": 10**5,
    "half of 10^7": 10**7,
    "sparse": 10**7,
    "clustered": 10**7,
    "one run": 10**7,
}


#: Pairs of sets whose operations compare id by id, or run by run: taken in turn, for a processor's
#: branch predictor learns the decisions of one such pair by heart when it is repeated.
PAIRS_IN_TURN = {"c": 4, "sparse": 4}


@cache
def ids(name: str, number: int = 0) -> IDset:
    """A set: all, even, ten thousand ranges, a random half (a to d) of a million; or of `FORMS`.

    Sets of one name with different numbers are alike.
    """
    rng = random.Random(f"{name}, {number}" if number else name)
    form = name.removesuffix(" 2")
    if name == "a":
        return IDset(range(UNIVERSE))
    if name == "b":
        return IDset(range(0, UNIVERSE, 2))
    if name.startswith("c") and len(name) < 3:
        made = IDset()
        for _ in range(10_000):
            first = rng.randrange(UNIVERSE - 50)
            made.add(range(first, first + rng.randrange(1, 50)))
        return made
    if form == "sparse":
        return IDset(rng.sample(range(FORMS[form]), FORMS[form] // 100))
    if form == "clustered":
        starts = [rng.randrange(10**7 - 1000) for _ in range(1000)]
        return IDset(first + rng.randrange(1000) for first in starts for _ in range(1000))
    if form == "one run":
        first = rng.randrange(10**6)
        return IDset(range(first, first + 8 * 10**6))
    universe = FORMS.get(form, UNIVERSE)
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
        (lambda name=_name: len(ids(name)), "id"),
        penstock=lambda text=_text: lambda t=text(): IDset(t),
        ClusterShell=peer(RangeSet, lambda text=_text: lambda t=text(): RangeSet(t)),
    )
    row(
        f"idset format {_name}",
        _format / 1e3,
        copying(_text),
        (lambda name=_name: len(ids(name)), "id"),
        penstock=lambda name=_name: lambda s=ids(name): str(s),
        ClusterShell=peer(RangeSet, lambda name=_name: lambda s=rangeset(name): str(s)),
    )

_PAIRS = [
    ("d", "d2"),
    ("b", "d"),
    ("c", "c2"),
    ("b", "c"),
    *((name, f"{name} 2") for name in FORMS),
]
for _left, _right in _PAIRS:
    for _what, _apply in [
        ("union", lambda x, y: len(x | y)),
        ("intersection", lambda x, y: len(x & y)),
        ("difference", lambda x, y: len(x - y)),
        ("symmetric difference", lambda x, y: len(x ^ y)),
    ]:

        def _combine(make: Any, left: str = _left, right: str = _right, f: Any = _apply) -> Any:
            def setup() -> Any:
                numbers = range(PAIRS_IN_TURN.get(left, 1))
                pairs = itertools.cycle([(make(left, n), make(right, n)) for n in numbers])
                return lambda: f(*next(pairs))

            return setup

        row(
            f"idset {_what} {_left if _left in FORMS else f'{_left} {_right}'}",
            "pyroaring",
            copying(lambda left=_left, right=_right: bits(left, right)),
            (lambda names=(_left, _right): sum(len(ids(name)) for name in names), "id"),
            penstock=_combine(ids),
            pyroaring=peer(BitMap, _combine(bitmap)),
            ClusterShell=peer(RangeSet, _combine(rangeset)) if _left == "d" else None,
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
    universe = FORMS.get(name, UNIVERSE)
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
        comparing(lambda name=_name: bits(name), FORMS.get(_name, UNIVERSE)),
        (lambda name=_name: len(ids(name)), "id"),
        penstock=_equal(ids, lambda x: IDset(str(x)), _name),
        pyroaring=peer(BitMap, _equal(bitmap, lambda x: BitMap.deserialize(x.serialize()), _name)),
    )
for _name in ["a", "c", "d", *FORMS]:
    row(
        f"idset membership, 100,000 calls, {_name}",
        "pyroaring",
        ("the same answers from a frozenset of one id", _same_answers(_name)),
        (lambda: 100_000, "call"),
        penstock=_member(ids, _name),
        pyroaring=peer(BitMap, _member(bitmap, _name)),
    )
for _name in ["a", "d", *FORMS]:
    row(
        f"idset iterate {_name}",
        "pyroaring",
        making_ints(lambda name=_name: len(ids(name))),
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
        penstock=_pool(ids, _name),
        pyroaring=peer(BitMap, _pool(bitmap, _name)),
    )

_SMALL, _OTHER = "0-31,40-63", "16-50"
row(
    "idset small: parse",
    0.25e-6,
    calling(lambda: int("31")),
    penstock=lambda: lambda: IDset(_SMALL),
)
row(
    "idset small: format",
    0.3e-6,
    calling(lambda one=1000: str(one)),
    penstock=lambda: lambda s=IDset(_SMALL): str(s),
)
row(
    "idset small: union",
    0.12e-6,
    calling(lambda x=frozenset([1]), y=frozenset([2]): x | y),
    penstock=lambda: lambda x=IDset(_SMALL), y=IDset(_OTHER): x | y,
    pyroaring=peer(BitMap, lambda: lambda x=BitMap(IDset(_SMALL)), y=BitMap(IDset(_OTHER)): x | y),
)
row(
    "idset one id 2147483647: parse",
    1e-6,
    calling(lambda: int("2147483647")),
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
    (lambda: HOSTS, "host"),
    penstock=_changed(joined, lambda hosts: hosts.uniq()),
)
row(
    "hostlist sort 120,000 hosts in overlapping ranges",
    20e-3,
    making_strings(names),
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
        (lambda: HOSTS, "host"),
        penstock=_pair(Hostlist),
        ClusterShell=peer(NodeSet, _pair(lambda some: NodeSet.fromlist(some))),
    )
row(
    "hostlist fold 51,200 five-part names, n-dimensional",
    40e-3,
    making_strings(blades),
    (lambda: 51_200, "host"),
    penstock=lambda: lambda some=blades(): Hostlist(some).fold(nd=True),
    ClusterShell=peer(NodeSet, lambda: lambda some=blades(): str(NodeSet.fromlist(some))),
    python_hostlist=peer(
        python_hostlist, lambda: lambda some=blades(): python_hostlist.collect_hostlist(some)
    ),
)

# --- R

NODES = 10_000


@cache
def r_text(kind: str, first: int = 0) -> str:
    """An R of 10,000 nodes of about 64 cores, all equal or all different."""
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
        x, y = ResourceSet(r_text(kind)), ResourceSet(r_text(kind, NODES // 2))
        return lambda: apply(x, y)

    return setup


for _kind, _load, _combine_target, _encode in [("equal", 0.05, 0.1, 0.05), ("different", 4, 3, 6)]:
    row(
        f"R load, {_kind}",
        _load / 1e3,
        copying(lambda kind=_kind: r_text(kind)),
        (lambda: NODES, "node"),
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
            (lambda: NODES, "node"),
            penstock=_sets(_kind, _apply),
        )
    row(
        f"R encode, {_kind}",
        _encode / 1e3,
        copying(lambda kind=_kind: r_text(kind)),
        (lambda: NODES, "node"),
        penstock=lambda kind=_kind: lambda made=ResourceSet(r_text(kind)): made.to_json(),
    )
row(
    "R restrict by ranks",
    0.2e-3,
    copying(lambda: r_text("equal")),
    penstock=_sets("equal", lambda x, _: x.restrict(ranks="100-4999")),
)
row(
    "R restrict by hosts",
    0.2e-3,
    copying(lambda: r_text("equal")),
    penstock=_sets("equal", lambda x, _: x.restrict(hosts="node[100-4999]")),
)
row(
    "R restrict by constraint",
    0.2e-3,
    copying(lambda: r_text("equal")),
    penstock=_sets("equal", lambda x, _: x.restrict(constraint={"hostlist": ["node[100-4999]"]})),
)
