"""`penstock top`: in a terminal, and as text."""

from __future__ import annotations

import os
import select
from contextlib import contextmanager

import pyte
import pytest
from tests.instance.test_attach import HANG_S, screen


@pytest.fixture
def local(start):
    with start("--nodes=1", "--cores=4", "--exec=local", "--oversubscribe") as instance:
        yield instance


class Emulator:
    """The contents of the screen of a terminal: curses writes only what has changed."""

    def __init__(self, terminal, rows: int = 30, columns: int = 100) -> None:
        self.terminal = terminal
        self._screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self._screen)

    def wait_for(self, *texts: str) -> list[str]:
        """Reads until the screen has all texts; returns its lines."""
        while not all(text in "\n".join(self._screen.display) for text in texts):
            readable, _, _ = select.select([self.terminal.master], [], [], HANG_S)
            assert readable, f"no {texts} in {self._screen.display}"
            self._stream.feed(os.read(self.terminal.master, 65536))
        return [line.rstrip() for line in self._screen.display]

    def press(self, keys: str) -> None:
        self.terminal.press(keys)

    def resize(self, rows: int, columns: int) -> None:
        self._screen.resize(rows, columns)
        self.terminal.resize(rows, columns)

    def quit(self) -> None:
        self.press("q")
        assert self.terminal.process.wait(timeout=60) == 0


@contextmanager
def top(instance, *options: str):
    with screen(instance, "top", "-d", "100ms", *options) as terminal:
        emulator = Emulator(terminal)
        emulator.wait_for("[jobs]")
        yield emulator


@pytest.fixture(autouse=True)
def terminal_type(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")


def test_top_shows_jobs_their_log_and_cancels_them(local):
    (job,) = local.lines("submit", "-n2", "sh", "-c", "echo hello from the job; sleep 600")
    with top(local) as terminal:
        terminal.wait_for("50 % (2/4)", job, "jobs  1 running, 0 pending, 0 inactive")
        terminal.press("\n")
        terminal.wait_for(f"--- log of {job}", "hello from the job")
        terminal.press("c")
        terminal.wait_for(f"cancel {job}? y/n, then Enter: _")
        terminal.press("y\n")
        terminal.wait_for("jobs  0 running, 0 pending, 1 inactive")
        terminal.press("fff")
        terminal.wait_for("inactive  this user", " CA ")
        terminal.quit()
    assert local.lines("jobs", "-an", "-o", "{status}", job) == ["CANCELED"]


def test_top_drains_the_selected_node(local):
    with top(local) as terminal:
        terminal.press("2")
        terminal.wait_for("[nodes]", "free")
        terminal.press("d")
        terminal.wait_for("drain rank 0, reason: _")
        terminal.press("fans\n")
        terminal.wait_for("drained", "fans", "1 down")
        terminal.press("u")
        terminal.wait_for("free", "0 down")
        terminal.quit()
    events = [line.split()[2] for line in local.lines("resource", "history")[1:]]
    assert events[-2:] == ["drain", "undrain"]


def test_errors_of_the_instance_are_shown(local):
    with top(local) as terminal:
        terminal.press("2")
        terminal.wait_for("[nodes]")
        terminal.press("u")
        terminal.wait_for("not drained")
        terminal.quit()


def test_keys_of_the_terminal_move_and_leave(local):
    local.lines("submit", "--cc=0-8", "sleep", "600")
    ids = local.lines("jobs", "-n", "-o", "{id}")
    with top(local) as terminal:
        terminal.wait_for("4 running, 5 pending")
        terminal.press("\x1b[B\x1bOB\x1b[6~c")
        terminal.wait_for(f"cancel {ids[-1]}? y/n, then Enter: _")
        terminal.press("\x1b")
        terminal.wait_for("? keys  q quit")
        terminal.quit()


def test_the_terminal_is_restored_after_an_interrupt(local):
    with top(local) as terminal:
        assert terminal.terminal.is_raw()
        terminal.press("\x03")
        terminal.terminal.process.wait(timeout=60)
        assert not terminal.terminal.is_raw()


def test_top_follows_the_size_of_the_terminal(local, monkeypatch):
    monkeypatch.setenv("LINES", "24")
    monkeypatch.setenv("COLUMNS", "80")
    with top(local) as terminal:
        terminal.resize(10, 24)
        lines = terminal.wait_for("[jobs]  order: state  a+")
        assert lines[9] == "[jobs]  order: state  a+"
        terminal.quit()


def test_one_screen_as_text(local):
    local.lines("run", "true")
    lines = local.lines("top", "--once")
    assert lines[1] == "jobs  0 running, 0 pending, 1 inactive"
    assert lines[-1].startswith("[jobs]")
    lines = local.lines("top", "--once", "--view=nodes")
    assert lines[6].split()[:5] == ["0", "node0", "free", "0/4", "0/0"]


def test_top_without_a_terminal_is_an_error(local):
    done = local.penstock("top")
    assert done.returncode == 2
    assert done.stderr == (
        "penstock top: expected a terminal: `--once` prints one screen without one\n"
    )


@pytest.mark.parametrize(
    ("terminal_type", "error"),
    [
        ("nosuch", "TERM: unknown terminal type `nosuch`: `--once` needs none"),
        ("dumb", "TERM: `dumb` cannot position the cursor: `--once` need not"),
    ],
)
def test_a_terminal_without_a_screen_is_named(start, monkeypatch, terminal_type, error):
    with start("--nodes=1") as instance:
        monkeypatch.setenv("TERM", terminal_type)
        with screen(instance, "top") as terminal:
            assert terminal.process.wait(timeout=60) == 2
            shown = os.read(terminal.master, 65536).decode().replace("\r", "")
    assert shown == f"penstock top: {error}\n"
