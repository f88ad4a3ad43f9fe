"""The compatibility modules beyond the recorded calls."""

from __future__ import annotations

import copy
import functools
import json
import numbers
import operator
import pickle
import re

import pytest

import penstock
from penstock.compat import hostlist as slurm
from penstock.compat.flux.hostlist import Hostlist
from penstock.compat.flux.idset import (
    IDSET_FLAG_BRACKETS,
    IDSET_FLAG_RANGE,
    IDSET_INVALID_ID,
    IDset,
)
from penstock.compat.flux.resource import ResourceSet, Rv1Set


@functools.total_ordering
class Integer:
    """An integer that is no `int`, as numpy has them."""

    def __init__(self, value):
        self.value = value

    def __index__(self):
        return self.value

    def __eq__(self, other):
        return self.value == operator.index(other)

    def __lt__(self, other):
        return self.value < operator.index(other)

    def __hash__(self):
        return hash(self.value)


numbers.Integral.register(Integer)


R = {
    "version": 1,
    "execution": {
        "R_lite": [{"rank": "0-3", "children": {"core": "0-7", "gpu": "0-1"}}],
        "nodelist": ["node[0-3]"],
        "properties": {"batch": "0-1"},
        "starttime": 10.0,
        "expiration": 20.0,
    },
}


class TestIDset:
    def test_set_and_clear_change_the_set_and_return_it(self):
        ids = IDset("1")
        assert ids.set(3, 5).clear(4).set(7).add("9") is ids
        assert str(ids) == "1,3,5,7,9"

    @pytest.mark.parametrize("text", ["1,", ",1", ",,1", "[1,]", "[,1]"])
    def test_empty_parts_are_left_out(self, text):
        assert str(IDset(text)) == "1"

    @pytest.mark.parametrize("text", [" 1", "1 ", "1, 2", "[1", "[[1]]", "1-1", "01", "2,1", "1,1"])
    def test_other_texts_that_are_no_idset_are_rejected(self, text):
        with pytest.raises(ValueError, match=rf"^IDset\(\): Invalid argument: {re.escape(text)}$"):
            IDset(text)

    def test_texts_in_an_iterable_are_the_parts_of_one_text(self):
        for arg in (["1", "3"], "3 1".split(), ("1,3",), {"1": 0, "3": 0}.keys()):
            assert str(IDset(arg)) == "1,3"
        assert str(IDset(["1-3", "5"]) | ["8", "6-7"]) == "1-3,5-8"
        for arg in (["10", "9"], ["1", "1"], ["1-3", "2"], ["x"]):
            with pytest.raises(ValueError, match=r"^IDset\(\): Invalid argument: "):
                IDset(arg)

    def test_integers_of_other_libraries_are_ids(self):
        ids = IDset([Integer(1), Integer(3)]).set(Integer(5), Integer(6)).clear(Integer(6))
        assert ids.test(Integer(1))
        assert Integer(2) not in ids
        assert (ids[Integer(3)], ids.next(Integer(3)), ids.prev(Integer(3))) == (True, 5, 1)
        ids[Integer(9)] = True
        assert str(ids) == "1,3,5,9"
        hosts = Hostlist("foo[0-3]")
        assert (hosts[Integer(-1)], str(hosts[[Integer(2), 0]])) == ("foo3", "foo[2,0]")

    def test_add_and_subtract_change_the_set_itself(self):
        ids = same = IDset("1")
        ids += "3-5"
        ids -= 4
        assert ids is same
        assert ids.add([9]).subtract(IDset("1")) is same
        assert str(same) == "3,5,9"

    def test_operators_leave_their_operands_alone(self):
        left, right = IDset("1-5"), IDset("4-9")
        results = [left | right, left + right, left & right, left - right, left.union(right)]
        assert [str(ids) for ids in results] == ["1-9", "1-9", "4-5", "1-3", "1-9"]
        left.union().set(7)
        assert (str(left), str(right)) == ("1-5", "4-9")

    def test_flags_go_to_sets_that_are_made_from_one(self):
        ids = IDset("1-3", flags=IDSET_FLAG_RANGE | IDSET_FLAG_BRACKETS)
        assert [str(made) for made in (ids.copy(), ids | "9", copy.copy(ids), ids.set(4))] == [
            "[1-3]",
            "[1-3,9]",
            "[1-3]",
            "[1-4]",
        ]
        ids.set_flags(IDSET_FLAG_BRACKETS)
        assert (str(ids), str(IDset("7", flags=6)), str(IDset("", flags=6))) == (
            "[1,2,3,4]",
            "7",
            "",
        )

    def test_there_is_a_number_for_no_id_which_is_not_one(self):
        ids = IDset("3,4294967293")
        assert ids.next(4294967293) == ids.prev(3) == IDSET_INVALID_ID
        assert ids.next(4294967295) == IDSET_INVALID_ID
        assert (ids.prev(4294967295), ids.prev(4294967293)) == (4294967293, 3)
        for arg in ("4294967294", 4294967294, [1, 4294967294], penstock.IDset("4294967294")):
            with pytest.raises(ValueError, match=r"^IDset\(\): Invalid argument: .*4294967294$"):
                IDset(arg)
            with pytest.raises(ValueError, match=r"4294967294"):
                ids.add(arg)
        with pytest.raises(ValueError, match=r"id 4294967294 passed to IDset.set"):
            ids.set(1, 4294967294)
        assert str(ids) == "3,4294967293"
        assert str(ids.clear(4, 4294967295)) == "3"

    def test_an_iterable_at_fault_is_named(self):
        with pytest.raises(ValueError, match=r"^IDset\(\): Invalid argument: 1.5,2$") as caught:
            IDset([2, 1.5])
        assert isinstance(caught.value.__cause__, TypeError)

    @pytest.mark.parametrize("method", ["test", "set", "clear", "next", "prev"])
    def test_an_index_at_fault_is_named(self, method):
        call = getattr(IDset("1-3"), method)
        with pytest.raises(ValueError, match=rf"^negative index passed to IDset.{method}$"):
            call(-1)
        with pytest.raises(
            TypeError, match=rf"^IDset.{method} supports integers, not <class 'str'>"
        ):
            call("1")
        with pytest.raises(OverflowError, match=r"^integer 4294967296 does not fit"):
            call(4294967296)

    def test_a_range_that_ends_before_it_starts_is_rejected(self):
        with pytest.raises(ValueError, match=r"^can't clear range with 5 > 4$"):
            IDset("1-9").clear(5, 4)

    def test_an_item_is_set_with_a_bool(self):
        ids = IDset("1")
        ids[5], ids[1] = True, False
        assert str(ids) == "5"
        for value in (2, "1", []):
            with pytest.raises(TypeError, match=r"^IDset setitem must be bool or 0,1 not"):
                ids[1] = value

    def test_sets_of_the_library_and_ranges_are_taken(self):
        assert str(IDset(penstock.IDset("1-3")) | range(10**9)) == "0-999999999"
        assert list(penstock.IDset("0") | IDset("1-2")) == [0, 1, 2]


class TestHostlist:
    def test_a_list_is_made_of_texts_lists_and_iterables_of_them(self):
        nested = ["a[1-2]", Hostlist("b"), ("c", ["d"]), penstock.Hostlist("e")]
        hosts = Hostlist(nested)
        assert hosts.expand() == ["a1", "a2", "b", "c", "d", "e"]
        assert str(Hostlist(name for name in ("a1", "a2"))) == "a[1-2]"

    @pytest.mark.parametrize(
        ("text", "hosts"),
        [
            ("a b", "a b"),
            (" a\t,, b,", "a b"),
            ("foo[1-2] bar", "foo1 foo2 bar"),
            ("foo[1-02]", "foo1 foo2"),
            ("foo[1, 3]", "foo1 foo03"),
            (" ", ""),
        ],
    )
    def test_texts_that_flux_accepts_beyond_rfc_29_are_read_as_there(self, text, hosts):
        assert Hostlist(text).expand() == hosts.split()
        left = Hostlist("x")
        left.append(text)
        assert left.delete(text) == len(hosts.split())

    @pytest.mark.parametrize("text", ["foo[1,]", "foo[1,,3]", "foo[1 ]", "foo[]", "foo[3-1]", "b["])
    def test_texts_that_flux_rejects_are_rejected(self, text):
        with pytest.raises(ValueError, match=r"^Invalid hostlist: "):
            Hostlist(text)

    def test_the_text_at_fault_is_named_with_the_place_as_the_cause(self):
        for arg in ("b[", ["a", "b["], ["a", ("b[",)]):
            with pytest.raises(ValueError, match=r"^Invalid hostlist: 'b\['$") as caught:
                Hostlist(arg)
            assert isinstance(caught.value.__cause__, penstock.HostlistError)

    def test_a_list_made_from_another_is_a_copy(self):
        hosts = Hostlist("a")
        for made in (Hostlist(hosts), hosts.copy(), copy.copy(hosts), copy.deepcopy(hosts)):
            made.append("b")
        assert str(hosts) == "a"
        assert pickle.loads(pickle.dumps(hosts)) == hosts

    def test_append_is_all_or_nothing(self):
        hosts = Hostlist("a")
        with pytest.raises(ValueError, match=r"Invalid hostlist"):
            hosts.append("b", "c[")
        assert hosts.append() == 0
        assert hosts.append(hosts, hosts) == 2
        assert str(hosts) == "a,a,a"

    def test_sort_and_uniq_return_the_list_itself(self):
        hosts = Hostlist("n2,n1,n2")
        assert hosts.sort() is hosts
        assert str(hosts) == "n[1-2,2]"
        assert hosts.uniq() is hosts
        assert str(hosts) == "n[1-2]"

    def test_positions(self):
        hosts = Hostlist("n[0-9]")
        assert str(hosts[IDset("0,3-5")]) == "n[0,3-5]"
        assert str(hosts[[5, -1, 5]]) == "n[5,9,5]"
        assert hosts[IDset("")] == hosts[[]] == Hostlist()
        for position in (IDset("3,10"), [10], -11):
            with pytest.raises(IndexError, match=r"out of range"):
                hosts[position]
        with pytest.raises(TypeError, match=r"^Invalid Hostlist index 1.5$"):
            hosts[1.5]

    def test_deleting_an_absent_id_is_an_error_and_changes_nothing(self):
        hosts = Hostlist("n[0-9]")
        assert hosts.delete(Hostlist("n[3-4],n3")) == 2
        for arg in ("n[", 5):
            with pytest.raises(OSError, match=r"EINVAL") as caught:
                hosts.delete(arg)
            assert caught.value.errno == 22
        assert str(hosts) == "n[0-2,5-9]"

    def test_hosts_compare_by_value_with_lists_only(self):
        assert Hostlist("a[1-2]") == Hostlist("a1,a2") != Hostlist("a1")
        assert (Hostlist("a") == "a") is False


class TestResourceSet:
    def test_changes_are_in_place(self):
        resources = ResourceSet(R)
        assert resources.remove_ranks("0") is resources
        other = ResourceSet(R).copy_ranks("0")
        assert resources.append(other) is resources
        assert resources.add(json.dumps(R), other) is resources
        assert resources == ResourceSet(R)

    def test_a_copy_is_one(self):
        resources = ResourceSet(R)
        resources.state = "up"
        made = [resources.copy(), copy.copy(resources), copy.deepcopy(resources), resources.union()]
        made.append(pickle.loads(pickle.dumps(resources)))
        for one in made:
            assert (one == resources, one.state) == (True, "up")
            one.remove_ranks("0")
        assert resources == ResourceSet(R)

    def test_times(self):
        resources = ResourceSet(R)
        resources.starttime, resources.expiration = 0.0, 30.0
        assert (resources.starttime, resources.expiration) == (0.0, 30.0)
        execution = resources.to_dict()["execution"]
        assert (execution["starttime"], execution["expiration"]) == (0.0, 30.0)
        assert (ResourceSet().starttime, ResourceSet().expiration) == (0.0, 0.0)

    def test_an_r_at_fault_is_named(self):
        with pytest.raises(ValueError, match=r"^R version 2 not supported$"):
            ResourceSet(R, version=2)
        with pytest.raises(ValueError, match=r"invalid R"):
            ResourceSet("[]")
        with pytest.raises(ValueError, match=r"invalid R") as caught:
            ResourceSet({"version": 1, "execution": {"R_lite": 5}})
        assert isinstance(caught.value.__cause__, penstock.ResourceSetError)

    def test_times_are_numbers_and_texts_of_them(self):
        resources = ResourceSet(R)
        resources.starttime, resources.expiration = -5, "99"
        for one in (resources, resources.copy(), resources | ResourceSet(R), resources - R):
            assert (one.starttime, one.expiration) == (-5.0, 99.0)
        execution = json.loads(resources.encode())["execution"]
        assert (execution["starttime"], execution["expiration"]) == (-5.0, 99.0)
        assert ResourceSet(resources.encode()).starttime == -5.0
        resources.starttime, resources.expiration = 200, 100.0
        assert (resources.starttime, resources.expiration) == (200.0, 100.0)
        resources.expiration = 0
        assert (resources.starttime, resources.expiration) == (200.0, 0.0)
        with pytest.raises(ValueError, match="could not convert"):
            resources.expiration = "soon"

    def test_the_object_of_the_version_is_shared(self):
        resources = ResourceSet(R)
        impl = resources.impl
        assert (resources.version, impl.version, impl.nnodes()) == (1, 1, 4)
        assert (str(impl.ranks()), str(impl.nodelist())) == ("0-3", "node[0-3]")
        impl.set_starttime("5")
        impl.set_expiration(7)
        assert (resources.starttime, impl.get_expiration()) == (5.0, 7.0)
        shared = ResourceSet(impl)
        assert shared.remove_ranks("3").set_property("big", "2").impl is impl
        assert resources.properties == "batch,big"
        assert str(impl.union(impl.copy_ranks("0")).diff(impl.copy_ranks("1")).ranks()) == "0,2"
        assert impl.append(ResourceSet(R).copy_ranks("3").impl) is None
        assert str(resources.ranks) == "0-3"
        assert Rv1Set(R).intersect(Rv1Set(R)) == Rv1Set(R)

    @pytest.mark.parametrize(
        ("change", "result"),
        [
            ({"nodelist": []}, {"nodelist": None}),
            ({"nodelist": ["a"]}, {"nodelist": ["a,rank[1-3]"]}),
            ({"nodelist": ["a b", "c d"]}, {"nodelist": ["a,b,c,d"]}),
            ({"nodelist": ["node[0-9]"]}, {}),
            (
                {"R_lite": [{"rank": "0-3"}]},
                {"R_lite": [{"rank": "0-3", "children": {"core": ""}}]},
            ),
            (
                {"R_lite": [{"rank": [0, 1], "children": {"core": 3, "gpu": ["0", "2"]}}]},
                {
                    "R_lite": [{"rank": "0-1", "children": {"core": "3", "gpu": "0,2"}}],
                    "nodelist": ["node[0-1]"],
                },
            ),
            ({"properties": {"batch": [0, 1]}}, {}),
            ({"properties": {"batch": "0-1,9", "x": 8}}, {}),
            ({"starttime": None, "expiration": "20"}, {"starttime": 0.0}),
            ({"starttime": 200.0, "expiration": 100.0}, {"starttime": 200.0, "expiration": 100.0}),
            ({"expiration": -1}, {"expiration": -1.0}),
        ],
    )
    def test_an_r_that_flux_accepts_beyond_rfc_20_is_read_as_there(self, change, result):
        resources = ResourceSet({"version": 1, "execution": {**R["execution"], **change}})
        expected = {**R["execution"], **result}
        assert resources.to_dict()["execution"] == {
            name: value for name, value in expected.items() if value is not None
        }
        assert resources.copy().to_dict() == ResourceSet(resources.encode()).to_dict()

    @pytest.mark.parametrize("document", [{"version": 1}, {"version": 1, "execution": {}}])
    def test_an_r_may_be_empty(self, document):
        execution = {"R_lite": [], "starttime": 0.0, "expiration": 0.0}
        assert ResourceSet(document).to_dict() == {"version": 1, "execution": execution}
        assert ResourceSet().to_dict() == {"version": 1, "execution": execution}

    @pytest.mark.parametrize(
        "change",
        [
            {"R_lite": None},
            {"R_lite": [{"children": {"core": "0"}}]},
            {"R_lite": [{"rank": "x", "children": {"core": "0"}}]},
            {"R_lite": [{"rank": "0", "children": None}]},
            {"nodelist": None},
            {"nodelist": ["a["]},
            {"nodelist": "node[0-3]"},
            {"properties": None},
            {"starttime": "x"},
        ],
    )
    def test_an_r_that_flux_rejects_is_rejected(self, change):
        with pytest.raises(ValueError, match=r"invalid R"):
            ResourceSet({"version": 1, "execution": {**R["execution"], **change}})

    def test_one_rank_cannot_be_two_hosts(self):
        other = ResourceSet(json.loads(json.dumps(R).replace("node[", "other[")))
        resources = ResourceSet(R)
        for operation in (resources.union, resources.add):
            with pytest.raises(ValueError, match=r"host"):
                operation(other)
        assert resources == ResourceSet(R)

    def test_properties(self):
        resources = ResourceSet(R)
        resources.set_property("big", [2, 3])
        resources.set_property("all")
        assert json.loads(resources.get_properties()) == {
            "all": "0-3",
            "batch": "0-1",
            "big": "2-3",
        }
        with pytest.raises(ValueError, match=r"^ranks 4-5 not in resource set$"):
            resources.set_property("big", "3-5")

    def test_host_ranks_come_in_the_order_of_the_hosts(self):
        resources = ResourceSet(R)
        assert resources.host_ranks(["node3", "node[0-1]"]) == [3, 0, 1]
        assert resources.host_ranks("node3,x,y,node3", ignore_nomatch=True) == [3, 3]
        with pytest.raises(FileNotFoundError, match=r"^host 'x' not found$"):
            resources.host_ranks(["node3", "x", "y"])

    @pytest.mark.parametrize(
        ("constraint", "ranks"),
        [
            ({"properties": []}, "0-3"),
            ({"properties": ["batch", "^gone"]}, "0-1"),
            ({"properties": ["gone"]}, ""),
            ({"hostlist": ["node[2-3]", "x", "node2"]}, "2-3"),
            ({"ranks": ["0-1", "3-9"]}, "0-1,3"),
            ({"ranks": "1-2"}, "1-2"),
            ({"hostlist": "node[2-3],x"}, "2-3"),
            ({"ranks": 1}, "1"),
            # As in Flux, one operator of an object counts, and the first operand of `not`.
            ('{"not": [{"properties": ["batch"]}, {"ranks": ["3"]}]}', "2-3"),
            ({"ranks": ["0"], "x": []}, "0"),
            ({"ranks": ["0"], "hostlist": ["node1"], "not": []}, "1"),
            ({"ranks": ["0"], "properties": ["^batch"], "and": []}, "2-3"),
            ({"and": [{"ranks": ["0-2"]}, {"not": [{"hostlist": ["node1"]}]}]}, "0,2"),
        ],
    )
    def test_constraints(self, constraint, ranks):
        assert str(ResourceSet(R).copy_constraint(constraint).ranks) == ranks

    def test_a_host_with_several_ranks_has_all_of_them(self):
        document = copy.deepcopy(R)
        document["execution"]["nodelist"] = ["a,b,a,b"]
        resources = ResourceSet(document)
        assert str(resources.copy_constraint({"hostlist": ["a"]}).ranks) == "0,2"

    @pytest.mark.parametrize(
        ("constraint", "message"),
        [
            ({"x": [], "y": []}, r"unknown constraint operator\(s\): \['x', 'y'\]"),
            ({"and": "x"}, "'and' operand must be a list, got 'x'"),
            ({"properties": [5]}, "a property is a string, not <class 'int'>: 5"),
            ({"ranks": ["x"]}, r"IDset\(\): Invalid argument: x"),
            ({"hostlist": ["a["]}, r"Invalid hostlist: 'a\['"),
        ],
    )
    def test_an_invalid_constraint_is_rejected(self, constraint, message):
        with pytest.raises(ValueError, match=message):
            ResourceSet(R).copy_constraint(constraint)

    def test_parts_of_other_types_are_rejected(self):
        for constraint in ([], {"and": ["batch"]}):
            with pytest.raises(TypeError, match=r"is an object, not"):
                ResourceSet(R).copy_constraint(constraint)

    def test_scheduling_is_kept_if_requested(self):
        document = {**R, "scheduling": {"graph": [1]}, "attributes": {"x": 1}}
        left_out = ResourceSet(document)
        assert left_out.impl.scheduling is None
        assert left_out.to_dict() == {**R, "attributes": {"x": 1}}
        kept = ResourceSet(json.dumps(document), keep_scheduling=True)
        assert kept.scheduling == {"graph": [1]}
        assert kept.copy_ranks("1").to_dict()["scheduling"] == {"graph": [1]}
        assert json.loads(kept.encode()) == kept.to_dict() == document
        assert kept == left_out
        for other in (kept.copy(), kept.union(left_out), kept.diff(left_out.copy_ranks("0"))):
            assert other.impl.scheduling == {"graph": [1]}
        assert left_out.union(kept).scheduling is None
        empty = ResourceSet()
        empty.scheduling = {"graph": []}
        assert ResourceSet(empty.encode(), keep_scheduling=True).scheduling == {"graph": []}

    def test_an_r_need_not_have_hosts(self):
        def unnamed(ranks: str, cores: str) -> ResourceSet:
            entry = {"rank": ranks, "children": {"core": cores}}
            execution = {"R_lite": [entry], "starttime": 0, "expiration": 0}
            return ResourceSet({"version": 1, "execution": execution})

        resources = unnamed("2-5", "0-7")
        assert (str(resources.ranks), resources.ncores) == ("2-5", 32)
        assert str(resources.nodelist) == "rank[2-5]"
        assert resources.host_ranks("rank[5,3]") == [5, 3]
        assert str(resources.copy_constraint({"hostlist": ["rank3"]}).ranks) == "3"
        for one in (resources, resources.copy_ranks("9"), resources - resources):
            assert "nodelist" not in one.to_dict()["execution"]
        again = ResourceSet(resources.encode())
        assert again == resources
        assert str(again.nodelist) == "rank[2-5]"
        # A host that one of two sets knows is that of both.
        named = ResourceSet(R)
        union = named | resources
        assert str(union.nodelist) == "node[0-3],rank[4-5]"
        assert union.to_dict()["execution"]["nodelist"] == ["node[0-3],rank[4-5]"]
        assert str((resources | named).nodelist) == "node[0-3],rank[4-5]"
        difference = named - unnamed("0,3-9", "0-6")
        assert str(difference) == "rank[0,3]/core7,gpu[0-1] rank[1-2]/core[0-7],gpu[0-1]"
        assert str(difference.nodelist) == "node[0-3]"
        assert difference.to_dict()["execution"]["nodelist"] == ["node[0-3]"]
        assert str(unnamed("0-1", "3").intersect(named).nodelist) == "node[0-1]"
        assert str(unnamed("0", "0-3") | unnamed("0", "4-7")) == "rank0/core[0-7]"
        assert str(union.copy_ranks("3").nodelist) == "node3"
        assert union.copy_ranks("3").to_dict()["execution"]["nodelist"] == ["node3"]

    def test_a_node_need_not_have_cores(self):
        entry = {"rank": "0", "children": {"gpu": "0-1"}}
        resources = ResourceSet({"version": 1, "execution": {"R_lite": [entry], "nodelist": ["a"]}})
        assert (str(resources), resources.ngpus) == ("rank0/gpu[0-1]", 2)


@pytest.mark.parametrize("wrapper", [IDset, Hostlist])
def test_there_is_no_handle_to_wrap(wrapper):
    with pytest.raises(NotImplementedError, match=r"give the .* text instead"):
        wrapper("", handle=object())


class TestPythonHostlist:
    """Recorded results of python-hostlist, for machines where it is not installed."""

    def test_expand(self):
        assert slurm.expand_hostlist("n[1-2],n1,m[01,2]") == ["n1", "n2", "m01", "m2"]
        assert slurm.expand_hostlist("n[10,9]", sort=True) == ["n9", "n10"]
        assert slurm.expand_hostlist("n1,n[1]", allow_duplicates=True) == ["n1", "n1"]
        assert slurm.expand_hostlist("é [1-2]x[3]") == ["é 1x3", "é 2x3"]
        assert slurm.expand_hostlist("é [08-10]") == ["é 08", "é 09", "é 10"]
        assert len(slurm.expand_hostlist("n[1-100000],m[1-100000]")) == 200000

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("n[1", r"^unbalanced brackets: expected `\]` at 3 in `n\[1`$"),
            ("a,n]", r"^unbalanced brackets: `\]` at 1 in `n\]`$"),
            ("n[1[2]]", r"^nested brackets: `\[` at 3 in `n\[1\[2\]\]`$"),
            ("n[1-]", r"^bad range: `1-` in `n\[1-\]`$"),
            ("n[3-1]", r"^start > stop: `3-1` in `n\[3-1\]`$"),
            ("n[0-100001]", "^range too large: `0-100001` in "),
            (f"n[1-{'9' * 5000}]", "^range too large: "),
            ("n[0-100000]", "^results too large: "),
            ("n[1-400]x[1-400]", "^results too large: "),
        ],
    )
    def test_an_invalid_hostlist_is_rejected(self, text, message):
        with pytest.raises(slurm.BadHostlist, match=message):
            slurm.expand_hostlist(text)

    def test_a_program_may_set_the_limit(self, monkeypatch):
        monkeypatch.setattr(slurm, "MAX_SIZE", 10**6)
        assert len(slurm.expand_hostlist("n[1-400]x[1-400]")) == 160000

    def test_collect(self):
        hosts = ["n10", "n9", " n9\n", "", "login", "n011", "x1-ib", "x2-ib"]
        assert slurm.collect_hostlist(hosts) == "login,n[9-10,011],x[1-2]-ib"
        assert slurm.collect_hostlist(["n[", "n1"], silently_discard_bad=True) == "n1"
        with pytest.raises(slurm.BadHostlist, match=r"^forbidden character: .* in `n\[`$"):
            slurm.collect_hostlist(["n1", "n["])
        assert slurm.collect_hostlist(["n5000000000", "n5000000001"]) == "n[5000000000-5000000001]"

    def test_tasks_per_node(self):
        assert slurm.parse_slurm_tasks_per_node("4(x2),3,2(x0)") == [4, 4, 3]
        with pytest.raises(slurm.BadHostlist, match=r"^bad task list syntax: `x` in `4,x`$"):
            slurm.parse_slurm_tasks_per_node("4,x")
        with pytest.raises(slurm.BadHostlist, match=r"^task list repetitions too large: "):
            slurm.parse_slurm_tasks_per_node("4(x100001)")


def test_errors_show_the_beginning_of_a_long_text():
    from penstock.compat.hostlist import BadHostlist, expand_hostlist

    with pytest.raises(BadHostlist) as caught:
        expand_hostlist("[" * 1_000_000)
    assert len(str(caught.value)) < 200
