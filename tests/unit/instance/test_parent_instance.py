"""An instance in a job of Flux: requests to the parent, and its disconnect."""

from __future__ import annotations

import errno
import json
import os
import socket
import subprocess
import sys
from contextlib import contextmanager

import pytest

from penstock import ResourceSet
from penstock._core import fluid_f58
from penstock.client import Client
from penstock.errors import StartError
from penstock.instance.parent_instance import enclosing_job, script_of
from penstock.jobspec import from_command

JOB = 1234
NAME = fluid_f58(JOB)
PENSTOCK = [sys.executable, "-m", "penstock"]


@pytest.fixture
def flux(fake):
    """A broker that knows one job, which has cores 100 and 101 of this machine."""

    def lookup(request):
        payload = request.object()
        if payload["id"] != JOB or payload["flags"] != 0:
            return [request.respond(errnum=errno.ENOENT)]
        documents = {"R": fake.r.to_json(), "jobspec": '{"version":1}'}
        found = {key: documents[key] for key in payload["keys"]}
        return [request.respond({"id": JOB, **found})]

    def attribute(request):
        if request.object() != {"name": "instance-level"}:
            return [request.respond(errnum=errno.ENOENT)]
        return [request.respond({"value": "1", "flags": 0})]

    fake.r = ResourceSet.uniform("7", socket.gethostname(), cores="100-101")
    fake.r.expiration = 4e9
    fake.methods |= {
        "job-info.lookup": lookup,
        "attr.get": attribute,
        "job-manager.memo": lambda request: [request.respond()],
    }
    return fake


def environment(uri, job=NAME):
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PENSTOCK_", "FLUX_"))
    }
    return inherited | {"FLUX_URI": uri, "FLUX_JOB_ID": job, "FLUX_JOB_SIZE": "1"}


@contextmanager
def started(flux, *options):
    """An instance in the job, with what it logs; it ends with its command's input."""
    command = [*PENSTOCK, "start", "-v", *options, "--", "cat"]
    with subprocess.Popen(
        command,
        env=environment(flux.uri),
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        yield process
        process.stdin.close()
        assert process.wait(timeout=60) == 0


def test_a_nested_instance_uses_the_r_of_its_job_and_publishes_its_address(flux):
    with started(flux) as process:
        request = flux.wait_for("job-info.lookup")
        assert request.object() == {"id": JOB, "keys": ["R", "jobspec"], "flags": 0}
        memo = flux.wait_for("job-manager.memo").object()
        assert memo["id"] == JOB
        with Client(memo["memo"]["uri"]) as client:

            def attribute(name):
                return client.rpc("attr.get", {"name": name})["value"]

            r = ResourceSet(client.resource_status()["R"])
            # Flux counts cores as hwloc does: jobs run wherever it has bound the instance.
            job = client.submit(from_command(["true"]))
            (row,) = client.wait_rows([job])
            assert row["returncode"] == 0
            assert r.summary() == "rank0/core[100-101]"
            assert r.expiration == row["expiration"] == 4e9
            assert attribute("instance-level") == "2"
            assert attribute("parent-uri") == flux.uri
            assert attribute("jobid") == NAME
        assert process.poll() is None


def test_a_new_expiration_of_the_job_is_the_instance_s_and_its_parent_may_go(flux):
    def watch(request):
        assert request.object() == {"id": JOB, "path": "eventlog", "flags": 0}
        for name, context in [
            ("alloc", {"annotations": {}}),
            ("resource-update", {"expiration": 4e9}),
            ("resource-update", {"expiration": 5e9}),
        ]:
            event = {"timestamp": 1.0, "name": name, "context": context}
            yield request.respond({"event": json.dumps(event) + "\n"})

    flux.methods["job-info.eventlog-watch"] = watch
    with started(flux) as process:
        log = iter(process.stderr.readline, "")
        ends = [line for line in _until(log, "now ends at") if "now ends" in line]
        assert ends == [f"penstock.parent: job {NAME} now ends at 5000000000.0\n"]
        uri = flux.wait_for("job-manager.memo").object()["memo"]["uri"]
        with Client(uri) as client:
            while ResourceSet(client.resource_status()["R"]).expiration != 5e9:
                pass
        flux.hang_up()
        *_, last = _until(log, "continuing without")
        assert last.startswith("penstock.parent: continuing without the parent: ")
        with Client(uri) as client:
            job = client.submit(from_command(["true"]))
            (row,) = client.wait_rows([job])
            assert row["returncode"] == 0


def _until(lines, text):
    for line in lines:
        yield line
        if text in line:
            return
    raise AssertionError(f"no line with `{text}`")


def start_error(uri, *options, job=NAME):
    done = subprocess.run(
        [*PENSTOCK, "start", *options, "--", "true"],
        env=environment(uri, job),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1
    return done.stderr


def test_a_missing_response_of_flux_ends_the_start(flux):
    assert "look up the resources of job ƒ1 at" in start_error(flux.uri, job="ƒ1")
    assert f"the resources of job x at `{flux.uri}`: " in start_error(flux.uri, job="x")
    assert "unset FLUX_JOB_ID" in start_error("local:///nowhere")
    flux.methods["job-info.lookup"] = lambda request: [
        request.respond({"id": JOB, "R": "{}", "jobspec": "{}"})
    ]
    assert f"cannot look up the resources of job {NAME}" in start_error(flux.uri)


def test_a_job_on_other_machines_cannot_run_here(flux):
    flux.r = ResourceSet.uniform("7-8", [socket.gethostname(), "other"], cores="0")
    assert "hint: simulate execution with `--exec sim`" in start_error(flux.uri)


def test_which_job_a_process_is_in():
    own = {"PENSTOCK_URI": "p", "PENSTOCK_JOB_ID": "ƒ1"}
    assert enclosing_job({}) is None
    assert enclosing_job({"PENSTOCK_URI": "p", "FLUX_URI": "f"}) is None
    assert enclosing_job(own) == ("p", "ƒ1", False)
    assert enclosing_job(own | {"FLUX_URI": "p", "FLUX_JOB_ID": "ƒ1"}) == ("p", "ƒ1", False)
    assert enclosing_job(own | {"FLUX_URI": "f", "FLUX_JOB_ID": "ƒ2"}) == ("f", "ƒ2", True)
    for name in ("PENSTOCK", "FLUX"):
        with pytest.raises(StartError, match=f"{name}_JOB_ID is set, but {name}_URI is not"):
            enclosing_job({f"{name}_JOB_ID": "ƒ1"})


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"script": {"mode": 33216, "encoding": "utf-8", "data": "é", "size": 2}}, "é".encode()),
        ({"script": {"mode": 33216, "encoding": "base64", "data": "/w==", "size": 1}}, b"\xff"),
        ({"script": {"mode": 33216, "size": 0}}, b""),
        ({"script": {"mode": 33216, "encoding": "blobvec", "data": []}}, None),
        ({"script": {"mode": 33216, "data": {"a": 1}}}, None),
        ({"script": "x"}, None),
        ([], None),
        ({}, None),
    ],
)
def test_the_script_in_a_jobspec(files, expected):
    spec = {"attributes": {"system": {"files": files}}}
    if expected is None:
        with pytest.raises(StartError, match="script"):
            script_of(spec)
    else:
        assert script_of(spec) == expected
