"""A runner alone: sends requests to it and collects its responses."""

from __future__ import annotations

import json
import os

import trio

from penstock import ResourceSet
from penstock._core import Message
from penstock.clock import SystemClock
from penstock.config import ExecSettings
from penstock.instance.output_files import JobOutputs
from penstock.instance.pmix_server import PmixServers
from penstock.instance.processes import Children
from penstock.instance.runner import LocalRunner
from penstock.instance.task_processes import TaskProcesses
from penstock.jobspec import from_command


class Service:
    """A runner whose responses are collected."""

    def __init__(self, tmp_path, send_request=None, **settings):
        self.answers: list[Message] = []
        self._more = trio.Event()
        children = Children()
        self.tasks = TaskProcesses(children)
        self.runner = LocalRunner(
            self._take,
            name="job-exec",
            owner=os.getuid(),
            uri="local:///none",
            settings=ExecSettings(**settings),
            oversubscribe=True,
            clock=SystemClock(),
            environment=os.environ,
            tasks=self.tasks,
            output=JobOutputs(tmp_path / "output"),
            pmix_servers=PmixServers(children, os.urandom),
            lookup_r=self._never,
            wait_inactive=self._never,
            send_request=send_request,
            wait_writable=self._never,
        )

    async def _never(self, _job):
        raise AssertionError

    def _take(self, messages):
        self.answers += messages
        self._more.set()

    def ask(self, topic, payload):
        self.runner.handle([Message.request(topic, payload, userid=os.getuid())])

    def start(self, job, command, *, ntasks=1, options=None):
        spec = from_command(
            command, ntasks=ntasks, environment={"PATH": os.environ["PATH"]}, cwd="/"
        )
        if options:
            spec["attributes"]["system"]["shell"] = {"options": options}
        r = ResourceSet.uniform("0", "localhost", cores="0-1").to_json()
        start = {"id": job, "userid": os.getuid(), "jobspec": spec, "R": json.loads(r)}
        self.ask("job-exec.start", start)

    def responses(self):
        payloads = [answer.object() for answer in self.answers]
        return [(payload["type"], payload["data"]) for payload in payloads]

    async def more(self):
        """Waits for another response."""
        self._more = trio.Event()
        await self._more.wait()

    async def over(self):
        """Waits for the final release; returns all responses."""
        while not self.answers or self.responses()[-1][0] != "release":
            self._more = trio.Event()
            await self._more.wait()
        return self.responses()


def run(tmp_path, scenario, **settings):
    """Runs a scenario with a new runner."""

    async def main():
        with trio.fail_after(60):
            service = Service(tmp_path, **settings)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(service.runner.run)
                await scenario(service)
                nursery.cancel_scope.cancel()

    trio.run(main)
