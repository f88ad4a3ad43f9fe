"""`penstock.compat.ClusterShell`; its own tests run by `make test-peer-suites`."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from itertools import product
from unittest import mock

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.compat.ClusterShell import NodeUtils
from penstock.compat.ClusterShell.Defaults import DEFAULTS, Defaults
from penstock.compat.ClusterShell.NodeSet import (
    AUTOSTEP_DISABLED,
    RESOLVER_NOGROUP,
    NodeSet,
    NodeSetException,
    NodeSetExternalError,
    NodeSetParseError,
    NodeSetParseRangeError,
    expand,
    fold,
    grouplist,
)
from penstock.compat.ClusterShell.NodeUtils import (
    GroupResolver,
    GroupResolverConfig,
    GroupResolverConfigError,
    GroupResolverIllegalCharError,
    GroupResolverSourceError,
    GroupSource,
    GroupSourceNoUpcall,
    UpcallGroupSource,
    YAMLGroupLoader,
)
from penstock.compat.ClusterShell.RangeSet import (
    RangeSet,
    RangeSetException,
    RangeSetND,
    RangeSetParseError,
)
from penstock.errors import ConfigError

# An index is a text: numbers of different padding, negative ones, and some above 32 bits.
INDEXES = st.sets(
    st.builds(
        lambda number, width: f"{number:0{width}d}" if number >= 0 else str(number),
        st.integers(-12, 120) | st.integers(2**32 - 6, 2**32 + 6),
        st.sampled_from([0, 0, 0, 2, 3]),
    ),
    max_size=12,
)


def in_order(indexes):
    return sorted(indexes, key=lambda text: (0 if text[0] == "-" else len(text), int(text)))


@given(INDEXES, st.sampled_from([None, 2, 3, 4]))
@example({"4294967294"}, None)  # The greatest id of an IDset.
def test_a_rangeset_is_an_ordered_set_of_texts(indexes, autostep):
    ranges = RangeSet(indexes, autostep=autostep)
    assert list(ranges) == in_order(indexes)
    assert len(ranges) == len(indexes)
    assert [ranges[at] for at in range(len(ranges))] == in_order(indexes)
    assert [ranges.index(text) for text in in_order(indexes)] == list(range(len(indexes)))
    if indexes:
        assert set(RangeSet(str(ranges))) == indexes
    assert {text for part in ranges.contiguous() for text in part} == indexes
    assert [text for part in ranges.split(3) for text in part] == in_order(indexes)
    assert pickle.loads(pickle.dumps(ranges)) == ranges == copy.deepcopy(ranges)


@given(INDEXES, INDEXES)
def test_combinations_of_rangesets_are_those_of_sets(left, right):
    a, b = RangeSet(left), RangeSet(right)
    for name in ("union", "intersection", "difference", "symmetric_difference"):
        expected = getattr(left, name)(right)
        assert set(getattr(a, name)(b)) == expected
        changed = a.copy()
        getattr(changed, "update" if name == "union" else f"{name}_update")(b)
        assert changed == expected
    assert (a <= b, a < b, a >= b, a > b) == (
        left <= right,
        left < right,
        left >= right,
        left > right,
    )
    assert a.isdisjoint(b) == left.isdisjoint(right)


@given(st.lists(st.tuples(*[st.sets(st.integers(0, 5), min_size=1, max_size=3)] * 3), max_size=4))
def test_a_fold_has_every_vector_once(boxes):
    vectors = [[RangeSet(axis) for axis in box] for box in boxes]
    folded = RangeSetND(vectors)
    expected = {(a, b, c) for one, other, last in vectors for a in one for b in other for c in last}
    assert len(folded) == len(list(folded)) == len(expected)
    assert set(folded) == expected
    for at, vector in enumerate(folded):
        assert folded[at] == vector
        assert folded.index(vector) == at


BOXES = st.lists(
    st.tuples(*[st.sets(st.integers(0, 4), min_size=1, max_size=3)] * 3), min_size=1, max_size=4
)
# The limits by which vectors are written out or combined as they are.
LIMITS = [
    {"FEW_PREFIXES": few, "FEW_PAIRS": 0, "PREFIXES_PER_PAIR": 0, "FEW_BOXES": boxes}
    for few in (0, 10_000)
    for boxes in (0, 200)
]


@given(BOXES, BOXES)
def test_combinations_of_vectors_are_those_of_sets(left, right):
    def texts(boxes):
        return {vector for box in boxes for vector in product(*[map(str, axis) for axis in box])}

    for limits in LIMITS:
        with mock.patch.multiple("penstock.compat.ClusterShell.RangeSet", **limits):
            a, b = (RangeSetND([[*map(RangeSet, box)] for box in boxes]) for boxes in (left, right))
            for name in ("union", "intersection", "difference", "symmetric_difference"):
                expected = getattr(texts(left), name)(texts(right))
                made = getattr(a, name)(b)
                assert len(made) == len(list(made)) == len(expected)
                assert set(made) == expected
            assert (set(a), set(b)) == (texts(left), texts(right))
            assert (a <= b) == (texts(left) <= texts(right))


def test_products_of_ranges_are_not_written_out():
    # 3 * 10^10 names.
    text = "x[0-999]c[0-999]s[0-999]n[0-9],x[0-999]c[0-999]s[0-999]n[20-39]"
    nodes = NodeSet(text)
    assert str(nodes) == "x[0-999]c[0-999]s[0-999]n[0-9,20-39]"
    assert len(nodes) == 30 * 1000**3
    nodes.difference_update("x[0-998]c[0-999]s[0-999]n[0-39]")
    nodes.update("x999c[0-999]s[0-1999]n5")
    assert len(nodes) == 31 * 1000**2
    assert NodeSet("x999c7s8n5") < nodes
    assert not nodes & NodeSet("x[0-998]c[0-999]s[0-999]n[0-39]")


def test_many_vectors_are_combined_by_their_starts():
    names = [f"r{number % 60}n{number * 7 % 61}" for number in range(2000)]
    left, right = NodeSet.fromlist(names[:1500]), NodeSet.fromlist(names[500:])
    assert set(left - right) == set(names[:1500]) - set(names[500:])
    assert set(left & right) == set(names[:1500]) & set(names[500:])


NAMES = st.sets(
    st.builds(
        "{}{}{}{}".format,
        st.sampled_from(["n", "rack", "a-"]),
        st.integers(0, 3),
        st.sampled_from(["", "x", "-ib"]),
        st.sampled_from(["", "0", "1", "01"]),
    ),
    max_size=12,
)


@given(NAMES, NAMES)
def test_combinations_of_nodesets_are_those_of_sets(left, right):
    a, b = NodeSet.fromlist(left), NodeSet.fromlist(right)
    assert set(a) == left
    assert set(NodeSet(str(a))) == left
    for name in ("union", "intersection", "difference", "symmetric_difference"):
        assert set(getattr(a, name)(b)) == getattr(left, name)(right)
    assert (a <= b, a >= b, a == b) == (left <= right, left >= right, left == right)
    assert [a[at] for at in range(len(a))] == list(a)
    assert [a.index(name) for name in a] == list(range(len(a)))
    assert set(a[1::2]) == set(list(a)[1::2])
    assert set(pickle.loads(pickle.dumps(a))) == left


@pytest.mark.parametrize(
    ("text", "folded"),
    [
        ("n[0-10/2]", "n[0,2,4,6,8,10]"),
        (" n1 , n[2,05] ! n2 ", "n[1,05]"),
        ("n[1-9]&n[5-20]^n[7-8],x", "n[5-6,9],x"),
        ("n0[1-3]0", "n[010,020,030]"),
        ("r[1-2]n[1-3],r3n[1-3]", "r[1-3]n[1-3]"),
        ("a%b[1-2]", "a%b[1-2]"),
        ("  ", ""),
    ],
)
def test_texts(text, folded):
    assert str(NodeSet(text)) == folded == fold(text)
    assert expand(text) == list(NodeSet(folded))


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("n[1-", NodeSetParseError),
        ("n1]", NodeSetParseError),
        ("n1,,n2", NodeSetParseError),
        ("n1!", NodeSetParseError),
        ("[1-2][3-4]", NodeSetParseError),
        ("n[1-3/2]0", NodeSetParseError),
        ("n[]", NodeSetParseRangeError),
        ("n[3-1]", NodeSetParseRangeError),
        ("n[1-01]", NodeSetParseRangeError),
    ],
)
def test_errors_of_texts(text, error):
    with pytest.raises(error) as raised:
        NodeSet(text)
    assert isinstance(raised.value, NodeSetException)
    with pytest.raises(RangeSetException):
        RangeSet(text)


def test_a_large_range_costs_what_its_text_costs():
    nodes = NodeSet("n[1-4000000000]")
    assert len(nodes) == 4_000_000_000
    assert nodes[-1] == "n4000000000"
    assert str(nodes - NodeSet("n[2-3999999999]")) == "n[1,4000000000]"
    with pytest.raises(AssertionError, match="range too large"):
        RangeSet("1-100000000000")


def test_steps_and_axes_of_texts():
    nodes = NodeSet("n1,n3,n5,n9", autostep=3)
    assert str(nodes) == "n[1-5/2,9]"
    assert str(NodeSet(nodes, autostep=AUTOSTEP_DISABLED)) == "n[1,3,5,9]"
    grid = NodeSet("r[1-2]n[1-2]", fold_axis=[-1])
    assert str(grid) == "r1n[1-2],r2n[1-2]"


def test_pick():
    nodes = NodeSet("n[1-9],r[1-3]x[1-3]")
    assert len(nodes.pick(4)) == 4
    assert nodes.pick(4) < nodes
    assert nodes.pick(99) == nodes
    assert len(RangeSet("01-09").pick(3)) == 3


def test_add_rejects_what_is_no_index():
    with pytest.raises(ValueError, match="expected a decimal number"):
        RangeSet().add("x")
    with pytest.raises(RangeSetParseError, match='in negative ranges : "-00"'):
        RangeSet("-00")
    with pytest.raises(RangeSetParseError, match='invalid step usage : "3/2"'):
        RangeSet("3/2")
    assert str(RangeSet("3/1")) == "3"


@pytest.mark.parametrize(
    ("text", "folded"), [("0-00", "0"), ("0-000/2,3", "0,3"), ("-1-00", "-1-0"), ("-0/2", "0")]
)
def test_zeros_without_padding(text, folded):
    assert str(RangeSet(text)) == folded


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("0--0", "cannot convert string to integer"),
        ("00--0", "cannot convert string to integer"),
        ("1-00", "invalid values in range"),
        ("-00-00", "padding not supported in negative ranges"),
        ("-01--00", "padding not supported in negative ranges"),
        ("-0-01", "padding length mismatch"),
        ("00-0", "padding length mismatch"),
    ],
)
def test_errors_of_padding_and_signs(text, problem):
    with pytest.raises(RangeSetParseError, match=f'^{problem} : "{text}"$'):
        RangeSet(text)


def test_vectors_of_equal_size_are_in_order_of_their_indexes():
    vectors = RangeSetND([["2,4,11", "0"], ["2-3,10", "1"]])
    assert str(vectors) == "2-3,10; 1\n2,4,11; 0\n"


# Groups.

SOURCE = GroupSource("local", {"gpu": "n[1-4]", "cpu": ["n[5-6]", "n7"], "all": "@gpu,@cpu"})
RESOLVER = GroupResolver(SOURCE)
RESOLVER.add_source(GroupSource("rack", {"r1": "n[1-2]", "r2": "n[3-4]", "both": "@r[1-2]"}))


@pytest.mark.parametrize(
    ("text", "folded"),
    [
        ("@gpu", "n[1-4]"),
        ("@gpu!@rack:r1", "n[3-4]"),
        ("@all&n[4-9]", "n[4-7]"),
        ("@rack:both", "n[1-4]"),
        ("@rack:r[1-2]", "n[1-4]"),
        ("@*", "n[1-7]"),
        ("@rack:*", "n[1-4]"),
        ("@@", "all,cpu,gpu"),
        ("@@rack", "both,r[1-2]"),
        ("n?!*[1-2]", "n[3-7]"),
        ("@nothing", ""),
    ],
)
def test_groups_in_texts(text, folded):
    assert str(NodeSet(text, resolver=RESOLVER)) == folded


def test_groups_are_characters_without_a_resolver():
    assert list(NodeSet("@gpu", resolver=RESOLVER_NOGROUP)) == ["@gpu"]


def test_groups_of_nodes():
    nodes = NodeSet("n[1-5]", resolver=RESOLVER)
    assert nodes.regroup() == "@gpu,n5"
    assert nodes.regroup("rack", noprefix=True) == "@both,n5"
    assert nodes.regroup("rack", overlap=True) == "@rack:both,@rack:r[1-2],n5"
    found = {name: tuple(map(str, sets)) for name, sets in nodes.groups("rack").items()}
    assert found["@rack:r2"] == ("n[3-4]", "n[3-4]")
    assert grouplist("rack", RESOLVER) == ["both", "r1", "r2"]


def test_errors_of_groups():
    with pytest.raises(GroupResolverSourceError):
        NodeSet("@none:x", resolver=RESOLVER)
    with pytest.raises(NodeSetParseError, match="recursion"):
        NodeSet("@a", resolver=GroupResolver(GroupSource("s", {"a": "@b", "b": "@a"})))
    failing = UpcallGroupSource("s", "exit 3")
    with pytest.raises(NodeSetExternalError, match="GroupSourceQueryFailed: exit 3"):
        NodeSet("@a", resolver=GroupResolver(failing))
    with pytest.raises(NodeSetExternalError, match="Not enough working methods"):
        NodeSet.fromall(resolver=GroupResolver(failing))
    with pytest.raises(GroupSourceNoUpcall):
        failing.resolv_reverse("n1")
    with pytest.raises(GroupResolverIllegalCharError, match="illegal character '@'"):
        GroupResolver(GroupSource("s", {"a@": "n"}), illegal_chars="@").grouplist()


@pytest.fixture
def config(tmp_path):
    """Writes files, and returns the resolver of `groups.conf`."""

    def write(**files):
        for name, text in files.items():
            path = tmp_path / name.replace("__", "/").replace("_", ".")
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        return GroupResolverConfig(str(tmp_path / "groups.conf"))

    return write


def test_upcalls_of_a_configuration(config):
    resolver = config(
        groups_conf="""
[Main]
default: file
confdir: $CFGDIR/more

[file,again]
map: sed -n 's/^$GROUP: //p' $CFGDIR/$SOURCE
list: sed -n 's/:.*//p' $CFGDIR/$SOURCE
reverse: grep -w $NODE $CFGDIR/$SOURCE | sed 's/:.*//'
""",
        file="gpu: n1 n2\ncpu: n[3-4]\n",
        again="x: y\n",
        # $CFGDIR is the folder of the file that names it.
        more__other_conf="[bulk]\nmapall: cat $CFGDIR/bulk\ncache_time: 60\n",
        more__bulk="a: n[1-2]\nb: n2\n",
    )
    assert resolver.sources() == ["file", "again", "bulk"]
    assert str(NodeSet("@gpu,@again:x,@bulk:*", resolver=resolver)) == "n[1-2],y"
    assert str(NodeSet("@*", resolver=resolver)) == "n[1-4]"
    assert NodeSet("n1", resolver=resolver).regroup() == "n1"
    assert list(NodeSet("n1", resolver=resolver).groups()) == ["@gpu"]
    assert NodeSet("n[1-2]", resolver=resolver).regroup("bulk") == "@bulk:a"


def test_the_cache_of_upcalls_expires(monkeypatch):
    now = 1000.0
    monkeypatch.setattr(NodeUtils.SYSTEM_CLOCK, "now", lambda: now)
    outputs = iter(["n1", "n2"])
    source = UpcallGroupSource("s", "command", cache_time=10)
    monkeypatch.setattr(source, "_upcall_read", lambda *_: next(outputs))
    assert (source.resolv_map("g"), source.resolv_map("g")) == ("n1", "n1")
    now += 10
    assert source.resolv_map("g") == "n2"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("[s]\nlist: echo x\n", r"\[s\]: expected an option `map` or `mapall`"),
        ("[Main]\ndefault: x\n[s]\nmap: echo n\n", 'Default group source not found: "x"'),
        ("[s]\nmap: echo n\ncache_time: soon\n", "cache_time"),
        ("map: echo\n", "no section headers"),
    ],
)
def test_errors_of_a_configuration(config, text, error):
    resolver = config(groups_conf=text)
    with pytest.raises(GroupResolverConfigError, match=error):
        resolver.grouplist()


def test_groups_in_yaml(config):
    pytest.importorskip("yaml", reason="PyYAML is not installed")
    resolver = config(
        groups_conf="[Main]\ndefault: roles\nautodir: $CFGDIR/d $CFGDIR/none\n",
        d__a_yaml="roles:\n  gpu: 'n[1-4]'\n  list: [n5, 'n[6-7]']\n  none:\nrack:\n  r1: n1\n",
        d__ignored_txt="x",
    )
    assert resolver.sources() == ["roles", "rack"]
    assert str(NodeSet("@gpu,@list,@none", resolver=resolver)) == "n[1-7]"
    broken = config(groups_conf="[Main]\nautodir: $CFGDIR/d\n", d__b_yaml="roles: {1: n1}\n")
    with pytest.raises(GroupResolverConfigError, match="invalid group 1"):
        broken.grouplist()


def test_yaml_without_pyyaml_is_an_error_that_says_so(tmp_path, monkeypatch):
    (tmp_path / "a.yaml").write_text("s: {g: n1}")
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(GroupResolverConfigError, match="install PyYAML"):
        YAMLGroupLoader(str(tmp_path / "a.yaml"))


def test_the_standard_resolver_reads_the_user_s_files(tmp_path):
    (tmp_path / "groups.conf").write_text("[Main]\ndefault: s\n[s]\nmap: echo n[1-3]\n")
    code = "from penstock.compat.ClusterShell.NodeSet import fold; print(fold('@any'))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"CLUSTERSHELL_CFGDIR": str(tmp_path), "HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    assert done.stdout == "n[1-3]\n"


def test_a_set_of_several_axes_is_made_of_many_names():
    names = [f"r{number // 50}n{number % 50}" for number in range(5000)]
    nodes = NodeSet.fromlist(names)
    copied = nodes.copy()
    nodes.update("r100n0")
    assert str(copied) == "r[0-99]n[0-49]"
    assert (len(nodes), "r100n0" in nodes, "r100n0" in copied) == (5001, True, False)


def test_defaults_of_files(tmp_path, monkeypatch):
    first, last, empty = (tmp_path / name for name in ("first", "last", "empty"))
    first.write_text("[nodeset]\nfold_axis: -1\n[task.default]\nfanout: 9\n")
    last.write_text("[nodeset]\nfold_axis = 0, 1\n")
    empty.write_text("[task.info]\nprint_debug: x\n")
    missing = str(tmp_path / "missing")
    assert Defaults([str(first), missing, str(empty)]).fold_axis == (-1,)
    assert Defaults([str(first), str(last)]).fold_axis == (0, 1)
    assert Defaults([]).fold_axis == ()

    monkeypatch.setattr(DEFAULTS, "fold_axis", (-1,))
    grid = NodeSet("r[1-2]n[1-2],a[1-2]")
    assert str(grid) == "a[1-2],r1n[1-2],r2n[1-2]"
    assert str(NodeSet("r[1-2]n[1-2]", fold_axis=(0,))) == "r[1-2]n1,r[1-2]n2"
    assert str(grid.copy()) == str(grid)
    monkeypatch.setattr(DEFAULTS, "fold_axis", ())
    assert str(NodeSet("r[1-2]n[1-2]")) == "r[1-2]n[1-2]"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("fold_axis: 1\n", "File contains no section headers."),
        (
            "[nodeset]\nfold_axis: x\n",
            "nodeset.fold_axis: expected integers separated by commas, found `x`",
        ),
    ],
)
def test_errors_of_default_files(tmp_path, text, problem):
    path = tmp_path / "defaults.conf"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        Defaults([str(path)]).fold_axis  # noqa: B018
    assert str(caught.value) == f"{path}: {problem}"


@pytest.mark.parametrize("kind", [set, frozenset])
def test_a_set_on_the_left_of_an_operator_decides_the_type(kind):
    left, right = kind(["1", "9"]), RangeSet("1-3")
    for result, expected in [
        (left | right, {"1", "2", "3", "9"}),
        (left & right, {"1"}),
        (left - right, {"9"}),
        (left ^ right, {"2", "3", "9"}),
    ]:
        assert result == expected
        assert type(result) is kind
    with pytest.raises(TypeError):
        ["1"] | right


def test_vectors_of_different_dimensions_are_rejected():
    two, one = RangeSetND([["0-3", "1-2"]]), RangeSetND([["2"]])
    expected = "expected a vector of 2 dimensions, found one of 1"
    for operation in ["__or__", "__and__", "__sub__", "__xor__"]:
        with pytest.raises(IndexError, match=expected):
            getattr(two, operation)(one)
    with pytest.raises(IndexError, match=expected):
        RangeSetND([["0-3", "1-2"], ["5"]])
    with pytest.raises(IndexError, match=expected):
        two.update([["5"]])
    assert str(two) == "0-3; 1-2\n"


def test_padding_of_vectors():
    assert list(RangeSetND([["0", "01-02"]]).iter_padding()) == [
        (("0", "01"), [None, 2]),
        (("0", "02"), [None, 2]),
    ]


def test_autostep_may_be_a_text():
    assert str(NodeSet("n[1,3,5]", autostep="3")) == "n[1-5/2]"
    with pytest.raises(ValueError, match="auto"):
        NodeSet("n1", autostep="auto")
