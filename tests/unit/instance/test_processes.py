"""The instance's own processes."""

from __future__ import annotations

import os

import pytest
import trio

from penstock.instance.processes import Children


def output_of(command, **options):
    """The output of a process of an instance, whose limit of open files is 300."""

    async def run():
        with trio.fail_after(60):
            printed = b""
            async with Children(0o022, 300).open(command, capture=True, **options) as process:
                while data := await process.read():
                    printed += data
                assert await process.wait() == 0
        return printed.decode()

    return trio.run(run)


def test_a_process_begins_with_the_limit_of_open_files():
    for _ in range(20):
        assert output_of(["sh", "-c", "ulimit -Sn"]) == "300\n"


def test_a_process_gets_its_arguments_and_environment_as_they_are():
    words = ["$HOME", "", "a b", "-x", "\n;exit 3"]
    environment = {"PATH": os.environ["PATH"], "NAME": "a  'b'\n$c"}
    command = ["printf", "%s|", *words]
    assert output_of(command) == "".join(f"{word}|" for word in words)
    assert output_of(["printenv", "NAME"], environment=environment) == "a  'b'\n$c\n"


def test_a_program_that_cannot_be_started(tmp_path):
    plain = tmp_path / "plain"
    plain.write_text("")
    with pytest.raises(FileNotFoundError, match="absent"):
        output_of([str(tmp_path / "absent")])
    with pytest.raises(PermissionError, match="plain"):
        output_of([str(plain)])
    with pytest.raises(FileNotFoundError, match="plain"):
        output_of(["plain"], environment={"PATH": ""})


def test_a_shortage_of_threads_is_one_of_processes(monkeypatch):
    async def open_process(*args, **options):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(trio.lowlevel, "open_process", open_process)
    with pytest.raises(BlockingIOError):
        output_of(["true"])
