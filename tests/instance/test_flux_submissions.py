"""Jobs with a signed jobspec (RFC 15), as Flux's clients send it: its shell's defaults hold."""

from __future__ import annotations

import json
import os
from base64 import b64encode
from collections import defaultdict

import pytest

from penstock.client import Client
from penstock.errors import RpcError


@pytest.fixture
def instance(start):
    with start("--nodes=1", "--cores=4", "--exec=local", "--oversubscribe") as running:
        yield running


def submit(client: Client, ntasks: int, *command: str, **options: object) -> int:
    """Submits a jobspec signed by the mechanism `none`."""
    slot = {"type": "slot", "count": ntasks, "label": "task"}
    jobspec = {
        "version": 1,
        "resources": [{**slot, "with": [{"type": "core", "count": 1}]}],
        "tasks": [{"command": command, "slot": "task", "count": {"per_slot": 1}}],
        "attributes": {"system": {"duration": 0, "shell": {"options": options}}},
    }
    header = f"version\0i1\0userid\0i{os.getuid()}\0mechanism\0snone\0"
    parts = [b64encode(text.encode()).decode() for text in (header, json.dumps(jobspec))]
    job: int = client.rpc("job-ingest.submit", {"J": ".".join([*parts, "none"]), "flags": 0})["id"]
    return job


def output(instance, job: int) -> dict[tuple[str, str], str]:
    """The text of the output, by stream and rank."""
    with Client(instance.uri) as client:
        keys = {"id": job, "keys": ["guest.output"], "flags": 0}
        log = client.rpc("job-info.lookup", keys)["guest.output"]
    contexts = [json.loads(line)["context"] for line in log.splitlines()[1:]]
    texts: dict[tuple[str, str], str] = defaultdict(str)
    for each in contexts:
        texts[each["stream"], each["rank"]] += each.get("data", "")
    return {key: text for key, text in texts.items() if text}


def test_their_standard_input_is_written_by_clients_and_their_output_is_by_task(instance):
    with Client(instance.uri) as client:
        job = submit(client, 3, "sh", "-c", "cat; echo $FLUX_TASK_RANK >&2")
        with client.eventlog(job, follow=True) as events:
            assert any(event["name"] == "start" for event in events)
        service = f"job-shell.{job}.stdin"
        client.rpc(service, {"stream": "stdin", "rank": "all", "data": "both\n"})
        client.rpc(service, {"stream": "stdin", "rank": "1-2", "data": "some\n", "eof": True})
        client.rpc(service, {"stream": "stdin", "rank": "0", "eof": True})
        list(client.wait([job]))
    assert output(instance, job) == {
        ("stderr", "0"): "0\n",
        ("stderr", "1"): "1\n",
        ("stderr", "2"): "2\n",
        ("stdout", "0"): "both\n",
        ("stdout", "1"): "both\nsome\n",
        ("stdout", "2"): "both\nsome\n",
    }


def test_variables_with_templates_are_those_of_each_task(instance):
    with Client(instance.uri) as client:
        variables = {"WHERE": "{{task.rank}} of {{size}}, {{node.ncores}} cores, {{other}}"}
        job = submit(client, 2, "sh", "-c", "echo $WHERE", **{"env-expand": variables})
        # Without input the shell ends all the same.
        list(client.wait([job]))
    text = "{} of 2, 2 cores, {{{{other}}}}\n"
    expected = {("stdout", str(rank)): text.format(rank) for rank in range(2)}
    assert output(instance, job) == expected


def test_a_program_that_is_missing_is_an_exception_with_an_exit_code(instance):
    with Client(instance.uri) as client:
        job = submit(client, 1, "nosuchprogram")
        (end,) = client.wait([job])
    assert end.exception.note == "task 0: start failed: nosuchprogram: No such file or directory"
    assert (end.exception.type, end.returncode) == ("exec", 127)


def test_one_inactive_job_is_purged(instance):
    with Client(instance.uri) as client:
        job = submit(client, 1, "true")
        list(client.wait([job]))
        request = {"id": job, "force": 0}
        assert client.rpc("job-manager.purge-id", request)["count"] == 1
        assert client.rpc("job-manager.purge-id", request | {"force": 1})["inactives"] == 0
        with pytest.raises(RpcError, match="may have been purged"):
            client.rpc("job-manager.purge-id", request)
