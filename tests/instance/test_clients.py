"""The clients against a real instance: `run`, services over the Trio client, docs/clients.md."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import trio
from asynclibraries import Asyncio, Trio
from tests.instance.conftest import kill

from penstock.aclient import connect
from penstock.client import Client
from penstock.errors import JobspecError, RpcError
from penstock.jobspec import from_command


def test_a_job_ends_when_its_reader_closes_the_pipe(start):
    # The job writes more than a pipe holds before it sleeps.
    script = "head -c 1000000 /dev/zero | tr '\\0' y; echo; exec sleep 1000"
    command = [sys.executable, "-m", "penstock", "run", "sh", "-c", script]
    with start() as instance:
        env = {**os.environ, "PENSTOCK_URI": instance.uri}
        with subprocess.Popen(
            command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            assert process.stdout.read(1) == b"y"
            process.stdout.close()
            assert process.wait(timeout=60) == 141
            assert process.stderr.read() == b""
        (line,) = instance.lines("jobs", "-a", "--json")
        job = json.loads(line)
        assert instance.penstock("wait", job["id"]).returncode == 143
        (line,) = instance.lines("jobs", "-a", "--json")
        assert json.loads(line)["reason"] == "cancel: the reader of the output has gone"


def test_many_copies_are_watched_over_one_connection(start):
    with start() as instance:
        done = instance.penstock("run", "--cc=1-40", "sh", "-c", "echo {cc}; exit {cc}")
        assert sorted(map(int, done.stdout.split())) == list(range(1, 41))
        assert done.returncode == 40


def test_a_submission_that_is_repeated_after_a_kill_adds_no_jobs(start):
    command = ["submit", "--token=nightly", "true"]
    specs = [{"jobspec": from_command([name], environment={}, cwd="/")} for name in "ab"]
    with start("--nodes=1", "--exec=sim") as instance:
        (job,) = instance.lines(*command)
        with Client(instance.uri, timeout=60) as client:
            several = client.submit_many(specs, token="several")
            copies = client.submit(specs[0]["jobspec"], count=3, token="copies")
            # Each has a token of its own by default.
            assert client.submit(specs[0]["jobspec"]) != client.submit(specs[0]["jobspec"])
        instance.process.kill()
        instance.process.wait()
    with start("--nodes=1", "--exec=sim") as instance:
        assert instance.lines(*command) == [job]
        with Client(instance.uri, timeout=60) as client:
            assert client.submit_many(specs, token="several") == several
            assert client.submit(specs[0]["jobspec"], count=3, token="copies") == copies
            with pytest.raises(RpcError, match="token `copies` names another submission") as caught:
                client.submit(specs[0]["jobspec"], count=4, token="copies")
            assert caught.value.errno == errno.EEXIST
            assert len(client.job_rows()) == 8


def test_a_submission_survives_the_death_of_the_daemon(start):
    spec = from_command(["true"], environment={}, cwd="/")
    with (
        start("--nodes=1", "--exec=sim") as instance,
        Client(instance.uri, timeout=60) as client,
        ThreadPoolExecutor(1) as pool,
    ):
        # The daemon may read the request, but writes no response.
        instance.process.send_signal(signal.SIGSTOP)
        submitted = pool.submit(client.submit, spec, count=3)
        kill(instance)
        with start("--nodes=1", "--exec=sim"):
            ids = submitted.result()
            assert sorted(job["id"] for job in client.job_rows()) == ids
            assert len(ids) == 3


def test_more_jobspecs_than_a_frame_holds_are_submitted(start):
    with start("--nodes", "1") as instance, Client(instance.uri) as client:
        spec = from_command(["true"], environment={"BIG": "x" * 1_000_000}, cwd="/")
        results = client.submit_many([{"jobspec": spec, "urgency": 0}] * 70)
        ids = [job for (job,) in results]
        assert len(set(ids)) == 70
        assert client.cancel(ids)[0] == 70


# Jobs of a list that is sent in several parts.
LONG_LIST = 1000


def named(count: int):
    """Jobs with different jobspecs."""
    spec = from_command(["true"], environment={"PADDING": "x" * 1000}, cwd="/")
    for n in range(count):
        system = {**spec["attributes"]["system"], "job": {"name": f"job{n}"}}
        yield {"jobspec": {**spec, "attributes": {"system": system}}, "urgency": 0}


@pytest.mark.parametrize("library", [None, Trio, Asyncio])
def test_a_long_list_is_submitted_whole_and_in_order(start, library):
    async def main(uri):
        async with library.connect(uri) as client:
            return await client.submit_many(named(LONG_LIST), token="list")

    with start("--nodes=1", "--exec=sim") as instance, Client(instance.uri) as client:
        if library is None:
            results = client.submit_many(named(LONG_LIST), token="list")
        else:
            results = library.run(lambda: main(instance.uri))
        ids = [job for (job,) in results]
        assert ids == sorted(set(ids))
        rows = {row["id"]: row["name"] for row in client.job_rows()}
        assert [rows[job] for job in ids] == [f"job{n}" for n in range(LONG_LIST)]
        assert len(rows) == LONG_LIST
        kill(instance)
    with start("--nodes=1", "--exec=sim") as instance, Client(instance.uri) as client:
        assert client.submit_many(named(LONG_LIST), token="list") == results
        with pytest.raises(RpcError, match="token `list` names another submission"):
            client.submit_many(named(LONG_LIST - 1), token="list")
        assert len(client.job_rows()) == LONG_LIST


def test_an_invalid_jobspec_rejects_a_list_whatever_its_length(start):
    with start("--nodes=1", "--exec=sim") as instance, Client(instance.uri) as client:
        for length in (10, LONG_LIST):
            jobs = list(named(length))
            for position in (3, length - 1):
                jobs[position] = {"jobspec": {**jobs[0]["jobspec"], "version": 2}}
            with pytest.raises(RpcError, match=rf"jobs\[3,{length - 1}\]: ") as caught:
                client.submit_many(jobs)
            assert caught.value.errno == errno.EINVAL
            # Neither of these is sent whole: the connection is used further.
            jobs[length - 2] = {"jobspec": {"bad": object()}}
            with pytest.raises(JobspecError, match=rf"jobs\[{length - 2}\]: "):
                client.submit_many(jobs)
            assert client.job_rows() == []
        assert len(client.submit_many(named(3))) == 3


def test_a_list_whose_source_fails_is_not_submitted(start):
    def source():
        yield from named(LONG_LIST)
        raise LookupError("the end is missing")

    with start("--nodes=1", "--exec=sim") as instance, Client(instance.uri) as client:
        with Client(instance.uri) as other, pytest.raises(LookupError, match="the end is missing"):
            other.submit_many(source())
        # The connection is closed: nothing is left of the list, and its jobs are not counted.
        client.submit_many(named(3))
        assert len(client.job_rows()) == 3
        client.cancel()
        client.queue_drain()


@pytest.mark.parametrize("encoding", ["json", "cbor"])
def test_a_program_serves_over_one_connection_and_gets_requests_over_another(start, encoding):
    async def main(uri):
        async with connect(uri, encoding=encoding) as server, connect(uri) as client:
            gone = trio.Event()

            def handler(batch):
                for request in batch:
                    if request.topic == "echo.disconnect":
                        gone.set()
                    elif request.topic == "echo.count":
                        for n in range(request.object()["to"]):
                            server.send(request.respond({"n": n}))
                        server.send(request.respond(errnum=errno.ENODATA))
                    else:
                        server.send(request.respond(request.object()))

            await server.add_service("echo", handler)
            with pytest.raises(RpcError) as caught:
                await client.add_service("echo", handler)
            assert caught.value.errno == errno.EEXIST
            assert await client.rpc("echo.this", {"ƒ": [1, 2.5, None]}) == {"ƒ": [1, 2.5, None]}
            async with client.stream("echo.count", {"to": 3}) as responses:
                assert [part["n"] async for part in responses] == [0, 1, 2]
            async with connect(uri) as third:
                await third.rpc("echo.this", {})
            await gone.wait()
            await server.remove_service("echo")
            with pytest.raises(RpcError) as caught:
                await client.rpc("echo.this", {})
            assert caught.value.errno == errno.ENOSYS

    async def limited(uri):
        with trio.fail_after(60):
            await main(uri)

    with start("--nodes", "1") as instance:
        trio.run(limited, instance.uri)


def test_jobs_over_the_trio_client(start):
    async def main(uri):
        with trio.fail_after(60):
            async with connect(uri) as client:
                spec = from_command(["true"], duration=3600.0, environment={}, cwd="/")
                bad = {**spec, "version": 2}
                job = await client.submit(spec)
                more = await client.submit(spec, count=2)
                with pytest.raises(RpcError, match=r"jobs\[1\]: "):
                    await client.submit_many([{"jobspec": spec}, {"jobspec": bad}])
                ((one,),) = await client.submit_many([{"jobspec": spec}])
                ids = [job, *more, one]
                assert len(await client.job_rows()) == len(ids)
                done, errors = await client.cancel([*ids, 1], note="enough")
                assert (done, errors) == (len(ids), {1: "no job ƒ2"})
                rows = [row async for row in client.wait_rows(ids)]
                assert sorted(row["id"] for row in rows) == sorted(ids)
                assert {row["exception_note"] for row in rows} == {"enough"}
                assert json.loads((await client.lookup(job, "jobspec"))["jobspec"]) == spec

    with start("--nodes", "1") as instance:
        trio.run(main, instance.uri)


def test_output_is_not_sent_after_its_follower_has_left(start, tmp_path):
    fifo = tmp_path / "gate"
    os.mkfifo(fifo)

    async def main(uri):
        with trio.fail_after(60):
            async with connect(uri) as client:
                command = ["sh", "-c", f"echo one; cat {fifo}; echo two"]
                job = await client.submit(from_command(command))
                async with client.output(job, follow=True) as parts:
                    assert await anext(parts) == ("stdout", b"one\n")
                    numbers = await client.stats("job-exec")
                    assert (numbers["jobs"], numbers["tasks"], numbers["followers"]) == (1, 1, 1)
                # The stream ends although the job is still running.
                while (await client.stats("job-exec"))["followers"]:
                    pass
                assert (await client.rpc("job-exec.ping", {"seq": 1}))["seq"] == 1
                assert not client._calls
                await trio.Path(fifo).write_text("")
                assert (await client.wait_row(job))["returncode"] == 0
                kept = [data async for _, data in client.output(job)]
                assert b"".join(kept) == b"one\ntwo\n"

    with start() as instance:
        trio.run(main, instance.uri)


def test_abandoned_waits_leave_nothing_in_the_instance(start):
    nothing = {"followers": 0, "waits": 0, "awaited": 0, "drains": 0}

    async def main(uri):
        async def outstanding():
            return (await client.rpc("job-manager.stats-get"))["outstanding"]

        async def wait_for(ids):
            async for _ in client.wait_rows(ids):
                raise AssertionError("no job ends here")

        with trio.fail_after(60):
            async with connect(uri) as client:
                spec = from_command(["true"], duration=3600.0, environment={}, cwd="/")
                ids = await client.submit(spec, count=3, urgency=0)
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(wait_for, ids)
                    nursery.start_soon(client.queue_drain)
                    nursery.start_soon(client.queue_drain)
                    while sum((await outstanding()).values()) < 6:
                        await trio.lowlevel.checkpoint()
                    assert await outstanding() == {
                        "followers": 0,
                        "waits": 1,
                        "awaited": 3,
                        "drains": 2,
                    }
                    nursery.cancel_scope.cancel()
                assert await outstanding() == nothing
                await client.cancel(ids)
                await client.queue_drain()

    with start("--nodes", "1") as instance:
        trio.run(main, instance.uri)


# --- the programs of docs/clients.md


PAGE = Path(__file__).parents[2] / "docs/clients.md"
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
OUTPUTS = [
    r"hostname Result.COMPLETED 0\n(\d+\.\d+ [a-z]+\n)+\Z",
    r"ƒ\w+ Result.COMPLETED \d+:\d\d:\d\d\.\d+ node0\n\['hostname'\]\n\Z",
    r"\d+ cancelled, \d+ not\n\Z",
    r"\[(0, ){9}0\]\n\Z",
    r"submit\n([a-z]+\n)+cancel\n\Z",
    r"2\n\Z",
]


@pytest.mark.parametrize(("program", "output"), [*zip(PROGRAMS, OUTPUTS, strict=True)])
def test_the_programs_of_the_page_run_as_printed(start, program, output):
    with start("--nodes=2") as instance:
        env = {**os.environ, "PENSTOCK_URI": instance.uri}
        command = [sys.executable, "-c", program.replace("duration=60.0", "duration=0.01")]
        done = subprocess.run(
            command, env=env, capture_output=True, text=True, check=False, timeout=120
        )
    assert done.returncode == 0, done.stderr
    assert re.match(output, done.stdout), done.stdout
