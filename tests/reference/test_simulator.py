"""The reference simulator, on examples worked out by hand.

The machine is a pool of cores unless said otherwise. A row is (submit, run, estimate, cores);
ids are 1, 2, 3 ... in file order. The expected value is (start, end) in the same order.
"""

from __future__ import annotations

import math

import pytest
from tests.reference.events import Job, simulate
from tests.reference.simulator import pool, scheduler, slots, whole_nodes

ALL = ["fcfs", "easy", "conservative", "hybrid:1", "hybrid:2", "hybrid:9"]
BACKFILL = ALL[1:]


def run(policy, units, rows, **options):
    jobs = [Job(index, *row) for index, row in enumerate(rows, 1)]
    return list(simulate(jobs, scheduler(policy, units), **options).values())


def times(policy, cores, rows, **options):
    return [(outcome.start, outcome.end) for outcome in run(policy, pool(cores), rows, **options)]


def backfilled(policy, cores, rows):
    return [outcome.backfilled for outcome in run(policy, pool(cores), rows)]


@pytest.mark.parametrize("policy", ALL)
def test_completions_come_before_arrivals_and_both_before_the_pass(policy):
    # Job 1 ends at 10, when job 2 arrives: it finds the machine free, at the same instant.
    rows = [(0, 10, 10, 4), (10, 5, 5, 4)]
    assert times(policy, 4, rows) == [(0, 10), (10, 15)]


@pytest.mark.parametrize("policy", ALL)
def test_all_that_arrive_at_one_instant_are_there_before_the_pass(policy):
    # 1 and 2 arrive together, and 2 has the higher priority: a pass after each arrival would
    # start 1 at 0; one pass after both starts 2.
    rows = [(0, 10, 10, 4, 16), (0, 10, 10, 4, 17)]
    assert times(policy, 4, rows) == [(10, 20), (0, 10)]


@pytest.mark.parametrize("policy", ALL)
def test_equal_submit_times_are_in_file_order(policy):
    rows = [(5, 3, 3, 2), (5, 2, 2, 2), (0, 6, 6, 2), (5, 1, 1, 2)]
    # 3 runs 0 to 6. At 5 come 1, 2 and 4, each needs the machine: 1 at 6, 2 at 9, 4 at 11.
    # (None may be before another: each takes all there is.)
    assert times(policy, 2, rows) == [(6, 9), (9, 11), (0, 6), (11, 12)]


@pytest.mark.parametrize("policy", ALL)
def test_the_order_is_by_submission_not_by_file(policy):
    # 3 runs 0 to 6. 2 comes at 1, 1 at 2: both need the machine, 2 has come first.
    rows = [(2, 3, 3, 2), (1, 2, 2, 2), (0, 6, 6, 2)]
    assert times(policy, 2, rows) == [(8, 11), (6, 8), (0, 6)]


def test_fcfs_stops_at_the_first_that_does_not_fit():
    # 1 holds 3 of 4 until 10; 2 needs 2 and waits; 3 needs 1, which is free, but is behind 2.
    rows = [(0, 10, 10, 3), (1, 5, 5, 2), (2, 1, 1, 1)]
    assert times("fcfs", 4, rows) == [(0, 10), (10, 15), (10, 11)]


@pytest.mark.parametrize("policy", BACKFILL)
def test_a_candidate_that_ends_at_the_shadow_time_has_ended_by_it(policy):
    # 1 holds 3 of 4 until 10, so the shadow time of 2 (all 4) is 10, nothing to spare.
    # At 2: 3 would end at 2 + 8 = 10, the shadow time itself: it starts.
    # At 3: 4 would end at 3 + 8 = 11: it waits for 2, which runs 10 to 15.
    rows = [(0, 10, 10, 3), (1, 5, 5, 4), (2, 8, 8, 1), (3, 8, 8, 1)]
    assert times(policy, 4, rows) == [(0, 10), (10, 15), (2, 10), (15, 23)]
    assert backfilled(policy, 4, rows) == [False, False, True, False]


@pytest.mark.parametrize("policy", BACKFILL)
def test_a_planned_end_at_the_shadow_time_adds_its_cores_to_the_spare(policy):
    # 5 cores. 1 (2 cores) and 2 (2 cores) both end as planned at 10; 1 core is free.
    # 3 needs 3: with the first of the ends at 10 gone it has 1 + 2 = 3, but both are gone at 10,
    # so 5 are free then and 5 - 3 = 2 are spare. 4 (1 core, until 101) uses one of them: starts.
    # At 10, 3 has 5 - 1 = 4.
    rows = [(0, 10, 10, 2), (0, 10, 10, 2), (1, 5, 5, 3), (1, 100, 100, 1)]
    assert times(policy, 5, rows) == [(0, 10), (0, 10), (10, 15), (1, 101)]


@pytest.mark.parametrize("policy", BACKFILL)
def test_the_shadow_time_is_the_planned_end_at_which_the_job_fits(policy):
    # 6 cores. 1 (2 cores) until 10, 2 (2 cores) until 20, 2 free. 3 needs 4: at 10 there are
    # 2 + 2 = 4, so the shadow time is 10, nothing to spare, though 2 more will be free at 20.
    # 4 (1 core) is to end at 1 + 10 = 11 > 10 and nothing is spare: it waits. 3 runs 10 to 15.
    # At 15: 2 still runs, 4 cores are free, 4 runs 15 to 25.
    rows = [(0, 10, 10, 2), (0, 20, 20, 2), (1, 5, 5, 4), (1, 10, 10, 1)]
    assert times(policy, 6, rows) == [(0, 10), (0, 20), (10, 15), (15, 25)]


@pytest.mark.parametrize("policy", ["easy", "hybrid:1"])
def test_only_a_job_let_in_solely_by_the_spare_cores_uses_them_up(policy):
    # 8 cores. 1 holds 4 until 10; 4 are free. 2 needs 6: shadow time 10, spare 8 - 6 = 2.
    # 3 (1 core) ends as planned at 1 + 9 = 10: in by its time, both spare cores are still there.
    # 4 (2 cores, until 101): in by the spare cores, which are used up now.
    # 5 (1 core, until 101): a core is free, but nothing is spare: it waits.
    # (If 3 had used up one, 4 would have to wait, and 5 would have the other.)
    # At 10: 1 and 3 end, 8 - 2 = 6 are free, 2 runs 10 to 15. 5 then runs from 15.
    rows = [(0, 10, 10, 4), (1, 5, 5, 6), (1, 9, 9, 1), (1, 100, 100, 2), (1, 100, 100, 1)]
    assert times(policy, 8, rows) == [(0, 10), (10, 15), (1, 10), (1, 101), (15, 115)]
    assert backfilled(policy, 8, rows) == [False, False, True, True, False]


@pytest.mark.parametrize("policy", ALL)
def test_a_job_of_zero_run_time_needs_its_cores_for_the_pass_that_starts_it(policy):
    # 4 cores. 1 takes no time but 3 cores; 2 needs 2: in the pass that starts 1 it does not fit
    # (1 is left). Then 1 has ended, at the same instant, and the next pass starts 2.
    rows = [(0, 0, 5, 3), (0, 4, 4, 2)]
    assert times(policy, 4, rows) == [(0, 0), (0, 4)]
    # 3 is longer than the shadow time (5, when 1 is expected to end), and 2 leaves 2 to spare
    # then: it fits beside 1 and is backfilled, in the first pass. Under fcfs it is behind 2.
    rows = [(0, 0, 5, 3), (0, 4, 4, 2), (0, 9, 9, 1)]
    assert times(policy, 4, rows) == [(0, 0), (0, 4), (0, 9)]
    assert backfilled(policy, 4, rows) == [False, False, policy != "fcfs"]


@pytest.mark.parametrize("policy", BACKFILL)
def test_a_job_of_zero_run_time_respects_reservations(policy):
    # 4 cores, 1 holds 3 until 10, 2 needs 4: shadow time 10, nothing to spare. 3 takes no time,
    # but its user said 20: 1 + 20 > 10, so it waits until 2 (10 to 15) has ended.
    rows = [(0, 10, 10, 3), (1, 5, 5, 4), (1, 0, 20, 1)]
    assert times(policy, 4, rows) == [(0, 10), (10, 15), (15, 15)]


@pytest.mark.parametrize("policy", BACKFILL)
def test_a_job_that_overruns_is_expected_to_end_one_second_from_now(policy):
    # 4 cores. 1 (3 cores) said 5 and runs 20. 2 needs 4. At 6, when 3 and 4 arrive, 1 is expected
    # to end at 7: 3 (until 7) may start, 4 (until 8) may not. 1 is not killed: 2 starts at 20.
    # 3 ends at 7; then 1 is expected to end at 8, and 4 (until 9) still may not start.
    rows = [(0, 20, 5, 3), (1, 5, 5, 4), (6, 1, 1, 1), (6, 2, 2, 1)]
    assert times(policy, 4, rows) == [(0, 20), (20, 25), (6, 7), (25, 27)]


@pytest.mark.parametrize("policy", BACKFILL)
def test_a_planned_end_that_is_now_has_been_outrun(policy):
    # As above, but 3 and 4 arrive at 5, just when 1 was to end and did not: it is expected at 6.
    # 3 (until 6) may start, 4 (until 7) not. At 6, 3 has ended; 4 (until 8 > 7) waits on.
    rows = [(0, 20, 5, 3), (1, 5, 5, 4), (5, 1, 1, 1), (5, 2, 2, 1)]
    assert times(policy, 4, rows) == [(0, 20), (20, 25), (5, 6), (25, 27)]


@pytest.mark.parametrize("policy", ALL)
def test_a_job_is_killed_at_its_limit_only_on_request(policy):
    rows = [(0, 20, 5, 4), (1, 3, 8, 4)]
    assert times(policy, 4, rows) == [(0, 20), (20, 23)]
    assert times(policy, 4, rows, kill_at_limit=True) == [(0, 5), (5, 8)]


@pytest.mark.parametrize("policy", ALL)
def test_an_early_end_is_used_at_once(policy):
    rows = [(0, 3, 10, 4), (1, 5, 5, 4)]
    assert times(policy, 4, rows) == [(0, 3), (3, 8)]


@pytest.mark.parametrize("policy", ALL)
def test_a_job_larger_than_the_machine_never_starts_and_blocks_no_other(policy):
    rows = [(0, 10, 10, 5), (0, 10, 10, 4)]
    assert times(policy, 4, rows) == [(None, None), (0, 10)]


@pytest.mark.parametrize("policy", ALL)
def test_priority_zero_is_held(policy):
    rows = [(0, 10, 10, 4, 0), (0, 10, 10, 4, 1)]
    assert times(policy, 4, rows) == [(None, None), (0, 10)]


@pytest.mark.parametrize("policy", BACKFILL)
def test_a_job_without_a_limit_has_no_planned_end(policy):
    # 4 cores. 1 (1 core) has no limit, 2 (2 cores) runs until 10: 3 (3 cores) fits at 10, with
    # 0 to spare (4 - 1 - 3). 4 (1 core, no limit) would delay it. 3 runs 10 to 15, then 4 starts.
    rows = [(0, 99, math.inf, 1), (0, 10, 10, 2), (1, 5, 5, 3), (1, 7, math.inf, 1)]
    assert times(policy, 4, rows) == [(0, 99), (0, 10), (10, 15), (15, 22)]


def test_easy_reserves_for_the_first_only_and_conservative_for_all():
    # 4 cores. 1 holds 2 until 10. 2 needs 4: reserved 10 to 20. 3 needs 3: after that, 20 to 30.
    # 4 needs 1 until 31 (spare for 2: 0; 30 > 10): waits under both. 5 needs 2 until 10: starts.
    # At 10 nothing but 2 starts. At 20: 3 in order, and 4 beside it.
    rows = [(0, 10, 10, 2), (1, 10, 10, 4), (1, 10, 10, 3), (1, 30, 30, 1), (2, 8, 8, 2)]
    for policy in BACKFILL:
        assert times(policy, 4, rows) == [(0, 10), (10, 20), (20, 30), (20, 50), (2, 10)]
    # 4 cores. 1 holds 2 until 10. 2 needs 3: reserved at 10, spare 1. 3 needs 4: reserved at 20.
    # 4 needs 1 until 31: in by the spare core of 2, but it would delay 3, which EASY does not
    # look at. With reservations for both, 4 waits until 3 has ended (or runs beside 2 ...
    # 10 + 30 > 20: no), so it starts at 30.
    rows = [(0, 10, 10, 2), (1, 10, 10, 3), (1, 10, 10, 4), (1, 30, 30, 1)]
    for policy in ["easy", "hybrid:1"]:
        assert times(policy, 4, rows) == [(0, 10), (10, 20), (31, 41), (1, 31)]
    for policy in ["conservative", "hybrid:2", "hybrid:9"]:
        assert times(policy, 4, rows) == [(0, 10), (10, 20), (20, 30), (30, 60)]


def test_conservative_keeps_its_reservations():
    # 4 cores. 1 holds 4 until 10. 2 (4 cores, 10 s) is promised 10 to 20, 3 (2 cores, 30 s) 20 to
    # 50, 4 (2 cores, 5 s) 20 to 25, all full then. 5 (3 cores, 5 s) needs 3 of 4, of which 3 holds
    # 2 until 50: it is promised 50.
    # 1 ends at 4 already: 2 moves to 4 to 14, 3 to 14 to 44, 4 to 14 to 19, 5 to 44 to 49.
    rows = [(0, 4, 10, 4), (1, 10, 10, 4), (1, 30, 30, 2), (1, 5, 5, 2), (1, 5, 5, 3)]
    assert times("conservative", 4, rows) == [(0, 4), (4, 14), (14, 44), (14, 19), (44, 49)]


def test_conservative_repeats_compression_until_nothing_moves():
    # 4 cores. 1 (4 cores) is to run until 10 and ends at 5.
    # At 1: 2 (3 cores, 2 s) is promised 10 to 12; 3 (4 cores, 10 s) 12 to 22.
    # At 2: 4 (1 core, 2 s) is promised 10 to 12, beside 2.
    # At 5, in order: 2 moves to 5 to 7. 3: its earliest, with 4 at 10 to 12 kept, is still 12.
    # 4 moves to 5 to 7. Once more: 3 moves to 7 to 17.
    # At 6: 5 (1 core, 5 s) is promised 17 to 22. (If 3 were still promised 12 to 22, 5 would be
    # promised 7 to 12, and would start at 7, when 2 and 4 end.) 3 runs 7 to 17, 5 then.
    rows = [(0, 5, 10, 4), (1, 2, 2, 3), (1, 10, 10, 4), (2, 2, 2, 1), (6, 5, 5, 1)]
    assert times("conservative", 4, rows) == [(0, 5), (5, 7), (7, 17), (5, 7), (17, 22)]


def test_conservative_delays_reservations_after_an_overrun_in_queue_order():
    # 4 cores. 1 (2 cores) is to end at 10 and ends at 15, 2 (2 cores) runs until 20 as planned.
    # 3 (4 cores, 5 s) is promised 20 to 25, 4 (2 cores, 8 s) 10 to 18.
    # At 12, when 5 arrives (1 core, 1 s), 1 is expected to end at 13. 3 keeps its 20. 4 would run
    # 13 to 21, which hurts 3: it is promised 25 to 33. 5 is promised 13 to 14.
    # 1 ends at 15. 3 keeps its 20, 4 would run until 23, so it stays at 25. 5 runs 15 to 16.
    # (If 4 had come before 3, it would have run 15 to 23, and 3 from 23 on.)
    rows = [(0, 15, 10, 2), (0, 20, 20, 2), (1, 5, 5, 4), (2, 8, 8, 2), (12, 1, 1, 1)]
    assert times("conservative", 4, rows) == [(0, 15), (0, 20), (20, 25), (25, 33), (15, 16)]


def test_hybrid_limits_the_number_of_reservations():
    # 4 cores. 1 holds 2 until 10. Reservations: 2 (3 cores) 10 to 20, 3 (4) 20 to 30, 4 (3 cores)
    # 30 to 40. 5 (1 core, until 41) delays none of 2 (spare 1), but 3; and no job after 3.
    rows = [(0, 10, 10, 2), (1, 10, 10, 3), (1, 10, 10, 4), (1, 10, 10, 3), (1, 19, 19, 1)]
    # With one reservation 5 starts at 1 and ends at 20: 3 is not delayed in fact.
    # It is to end at 20 when 3 starts, so with two it may start as well.
    for depth in [1, 2, 3]:
        assert times(f"hybrid:{depth}", 4, rows) == [(0, 10), (10, 20), (20, 30), (30, 40), (1, 20)]
    # A second longer it would delay 3 by that second: only without a reservation for 3.
    rows[4] = (1, 20, 20, 1)
    assert times("hybrid:1", 4, rows) == [(0, 10), (10, 20), (21, 31), (31, 41), (1, 21)]
    assert times("hybrid:2", 4, rows) == [(0, 10), (10, 20), (20, 30), (30, 40), (30, 50)]


def test_single_cores_are_taken_from_the_lowest_nodes():
    # 2 nodes of 2 cores. 1 takes 3 cores: node 0 and a core of node 1. 2 has the last one.
    outcome = run("easy", slots(2, 2), [(0, 9, 9, 3), (0, 9, 9, 1)])
    assert outcome[0].holds == [(0, 0), (0, 1), (1, 0)]
    assert outcome[1].holds == [(1, 1)]


def test_whole_nodes_are_counted_in_nodes():
    # 3 nodes of 2 cores. 1 takes 2 nodes (3 cores, rounded up) until 10, 2 needs 2 and waits for
    # it, 3 takes one node until 10 = the shadow time.
    rows = [(0, 10, 10, 2), (1, 4, 4, 2), (1, 9, 9, 1)]
    outcome = run("easy", whole_nodes(3, 2), rows)
    assert [result.start for result in outcome] == [0, 10, 1]
    assert outcome[2].holds == [(2, 0), (2, 1)]
