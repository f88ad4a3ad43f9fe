"""Jobs in a running instance, by way of its RPCs."""

from __future__ import annotations

import json


def jobspec(nodes=1, **system):
    """A jobspec of one core on each of some nodes; `system` are attributes."""
    slot = {"type": "slot", "count": 1, "label": "task", "with": [{"type": "core", "count": 1}]}
    return {
        "version": 1,
        "resources": [{"type": "node", "count": nodes, "with": [slot]}],
        "tasks": [{"command": ["true"], "slot": "task", "count": {"per_slot": 1}}],
        "attributes": {"system": {"duration": 0, **system}},
    }


def submit(client, **system):
    """Submits a job and returns its id."""
    return client.rpc("job-ingest.submit", {"jobspec": jobspec(**system)})["id"]


def row(client, job):
    """A job as `job-list` shows it."""
    return client.rpc("job-list.list-id", {"id": job, "attrs": []})["job"]


def newest(client):
    """The id of the newest job."""
    return client.rpc("job-manager.history.get", {"slice": "[:1]"})["jobs"][0]


def events(client, job):
    """The names of a job's events."""
    log = client.rpc("job-info.lookup", {"id": job, "keys": ["eventlog"]})["eventlog"]
    return [json.loads(line)["name"] for line in log.splitlines()]
