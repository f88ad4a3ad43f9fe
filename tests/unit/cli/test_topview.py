"""The view of `penstock top`: keys, selections, orders and lines, without a terminal."""

from __future__ import annotations

import pytest

from penstock.cli.topdata import MAX_JOBS, Amounts, NodeRow, QueueRow, Snapshot
from penstock.cli.topview import (
    Cancel,
    CloseLog,
    Drain,
    OpenLog,
    Quit,
    Refresh,
    Undrain,
    View,
)
from penstock.jobid import JobId

SCHED, RUN, INACTIVE = 8, 16, 64
NOW = 1_700_000_000.0


def job(number: int, name: str, state: int = RUN, **other) -> dict:
    return {
        "id": number,
        "userid": 0,
        "urgency": 16,
        "priority": 16,
        "t_submit": NOW - 100,
        "state": state,
        "name": name,
        "ntasks": 1,
        "ncores": 1,
        "nnodes": 1,
        "duration": 0.0,
        "exception_occurred": False,
        **({"t_run": NOW - number} if state == RUN else {}),
        **other,
    }


JOBS = [job(10, "bravo", nnodes=4), job(30, "alpha"), job(20, "charlie", SCHED)]
NODES = [
    NodeRow(0, "node0", "allocated", Amounts(1, 8, 0), Amounts(1, 8, 2)),
    NodeRow(1, "node1", "free", Amounts(), Amounts(1, 8, 2)),
    NodeRow(2, "node2", "drained", Amounts(), Amounts(1, 8, 2), "fans"),
]
SNAPSHOT = Snapshot(
    now=NOW,
    total=Amounts(3, 24, 6),
    used=Amounts(1, 8, 0),
    down=Amounts(1, 8, 2),
    pending=1,
    running=2,
    inactive=7,
    jobs=JOBS,
    nodes=NODES,
    queues=[QueueRow("-", is_enabled=True, is_started=True, pending=1, running=2)],
)


@pytest.fixture
def view():
    view = View("local:///run/socket", of_everyone=False)
    view.update(SNAPSHOT)
    return view


def text(view: View, rows: int = 20, columns: int = 120) -> list[str]:
    lines = view.lines(rows, columns)
    assert len(lines) <= rows
    assert all(len(line.text) <= columns for line in lines)
    return [line.text.rstrip() for line in lines]


def selected(view: View) -> str:
    (line,) = [line.text for line in view.lines(20, 120) if line.style == "selected"]
    return line


def names(view: View) -> list[str]:
    known = ("alpha", "bravo", "charlie")
    return [name for line in text(view) for name in known if name in line]


def press(view: View, keys: str) -> object:
    result = None
    for key in keys:
        result = view.press(key)
    return result


def test_the_header_shows_counts_and_utilisation(view):
    lines = text(view)
    assert lines[1] == "jobs  2 running, 1 pending, 7 inactive"
    assert lines[2] == "      3 nodes: 1 with jobs, 1 down"
    assert lines[3] == (
        "cores [########----------------] 33 % (8/24)  gpus [------------------------] 0 % (0/6)"
    )


def test_jobs_are_in_the_order_of_the_instance_and_the_first_is_selected(view):
    assert names(view) == ["bravo", "alpha", "charlie"]
    assert "bravo" in selected(view)


def test_a_selected_row_stays_selected_when_rows_move(view):
    press(view, "j")
    assert "alpha" in selected(view)
    view.update(Snapshot(now=NOW, jobs=[JOBS[2], JOBS[1]]))
    assert "alpha" in selected(view)
    view.update(Snapshot(now=NOW, jobs=[JOBS[2]]))
    assert "charlie" in selected(view)


def test_moves_stop_at_the_ends(view):
    press(view, "kk")
    assert "bravo" in selected(view)
    view.press("PAGE_DOWN")
    assert "charlie" in selected(view)
    view.press("DOWN")
    assert "charlie" in selected(view)
    press(view, "g")
    assert "bravo" in selected(view)
    press(view, "G")
    assert "charlie" in selected(view)


def test_the_list_scrolls_to_the_selected_row(view):
    view.update(Snapshot(now=NOW, jobs=[job(number, f"n{number}") for number in range(100)]))
    press(view, "G")
    assert "n99" in selected(view)
    assert "n50" not in "\n".join(text(view))
    press(view, "g")
    assert "n0 " in selected(view)


def test_orders_of_jobs_and_their_reverse(view):
    found = {}
    for _ in range(6):
        order = text(view)[-1].split("order: ")[1].split()[0]
        found[order] = names(view)
        press(view, "s")
    assert found["state"] == ["bravo", "alpha", "charlie"]
    assert found["runtime"] == ["alpha", "bravo", "charlie"]
    assert found["nnodes"] == ["bravo", "alpha", "charlie"]
    assert found["name"] == ["alpha", "bravo", "charlie"]
    press(view, "r")
    assert names(view) == ["charlie", "alpha", "bravo"]


def test_a_search_leaves_rows_with_the_text_until_escape(view):
    assert press(view, "/ALP\n") is None
    assert names(view) == ["alpha"]
    assert "search: alp" in text(view)[-1]
    view.press("ESC")
    assert len(names(view)) == 3


def test_an_answer_can_be_corrected_and_left(view):
    press(view, "/alx")
    view.press("BACKSPACE")
    assert text(view)[-1] == "search: al_"
    view.press("ESC")
    assert len(names(view)) == 3


def test_filters_change_the_request(view):
    assert press(view, "f") == Refresh()
    assert {"states": ["running"]} in view.constraint()["and"]
    press(view, "ff")
    assert {"states": ["inactive"]} in view.constraint()["and"]


def test_jobs_of_this_user_or_of_all(view):
    assert any("userid" in part for part in view.constraint()["and"])
    assert press(view, "a") == Refresh()
    assert not any("userid" in part for part in view.constraint()["and"])


def test_cancel_asks_first(view):
    assert press(view, "c") is None
    assert text(view)[-1] == f"cancel {JobId(10)}? y/n, then Enter: _"
    assert press(view, "n\n") is None
    assert press(view, "cy\n") == Cancel(10)


def test_cancel_without_a_job_says_so(view):
    view.update(Snapshot(now=NOW))
    assert press(view, "c") is None
    assert text(view)[-1] == "no job is selected"


def test_the_log_of_the_selected_job(view):
    assert press(view, "j\n") == OpenLog(30)
    view.add_log("first\nsec")
    view.add_log("ond\nbell\x07\n")
    lines = text(view)
    assert f"--- log of {JobId(30)} (Enter closes it)" in lines
    assert lines[lines.index("first") :][:3] == ["first", "second", "bell\\x07"]
    assert press(view, "\n") == CloseLog()
    assert "first" not in text(view)


def test_a_new_log_does_not_show_the_one_before(view):
    press(view, "\n")
    view.add_log("of bravo\n")
    view.press("ESC")
    press(view, "j\n")
    assert "of bravo" not in text(view)


def test_nodes_are_drained_with_a_reason_and_undrained(view):
    assert press(view, "2") == Refresh()
    assert "node0" in selected(view)
    assert "8/8" in selected(view)
    assert press(view, "jdnew fan\n") == Drain(1, "new fan")
    assert press(view, "ju") == Undrain(2)
    assert "fans" in selected(view)


def test_orders_of_nodes(view):
    press(view, "2s")
    states = [line.split()[2] for line in text(view) if "node" in line and "nodes" not in line]
    assert states == sorted(states)


def test_queues_show_their_state(view):
    press(view, "3")
    assert text(view)[6].split() == ["-", "enabled", "started", "2", "1"]
    assert press(view, "\t") == Refresh()
    assert view.view == "jobs"


def test_a_limit_is_shown(view):
    assert f"the first {MAX_JOBS}" not in text(view)[-1]
    view.update(Snapshot(now=NOW, jobs=[job(n, "n") for n in range(MAX_JOBS)]))
    assert f"the first {MAX_JOBS}" in text(view)[-1]


def test_the_help_lists_every_key(view):
    press(view, "?")
    assert any("drain the selected node" in line for line in text(view))
    assert press(view, "x") is None
    assert "bravo" in selected(view)
    press(view, "?")
    assert press(view, "q") == Quit()


def test_text_of_other_users_cannot_control_the_terminal(view):
    view.update(Snapshot(now=NOW, jobs=[job(1, "\x1b[2Jevil")]))
    assert all(character not in "\n".join(text(view)) for character in "\x1b\x07")


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (3, 10), (6, 20), (8, 40), (50, 300)])
def test_every_size_of_the_terminal_is_kept(view, rows, columns):
    for keys in ("", "\n", "2", "3", "?"):
        press(view, keys)
        text(view, rows, columns)
