"""An execution service, by docs/execution.md. Tasks run under a shell that notes how they end."""

import os
import sys
import time
from contextlib import suppress
from errno import ENOENT, ENOSYS, EPERM
from math import inf
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector
from signal import SIGKILL, SIGTERM
from subprocess import Popen
from types import SimpleNamespace

from penstock import ResourceSet
from penstock._core import fluid_f58
from penstock.client import Client, connect
from penstock.protocol.message import STREAMING, Decoder, Message

REGISTER, MONITOR, OWNER, GRACE = 1, 2, 1, 5.0  # two matchtags, a role, seconds to SIGKILL
SHELL = 'trap : HUP INT QUIT TERM USR1 USR2; "$@" >> "$0.out" 2>&1; echo $? > "$0.code"'


class Service:
    def __init__(self, name, directory, uri=None):
        self.directory, self.jobs = Path(directory).absolute(), {}
        self.socket, self.decoder, self.selector = connect(uri), Decoder(), DefaultSelector()
        self.selector.register(self.socket, EVENT_READ, (self.receive,))
        ranks = ResourceSet(Client(uri).resource_status()["R"]).ranks
        self.ask("resource.monitor", {"ranks": str(ranks)}, MONITOR, STREAMING)
        self.ask("service.add", {"service": name})
        self.ask("event.subscribe", {"topic": "job-exception"})
        self.ask("job-manager.exec-hello", {"service": name})

    def ask(self, topic, payload, tag=REGISTER, flags=0):
        self.socket.sendall(Message.request(topic, payload, matchtag=tag, flags=flags).encode())

    def run(self):
        while True:
            due = min((job.until for job in self.jobs.values()), default=inf)
            for key, _ in self.selector.select(None if due == inf else max(0, due - time.time())):
                key.data[0](*key.data[1:])
            for job in [job for job in self.jobs.values() if job.until <= time.time()]:
                if job.ending:
                    self.signal(job, SIGKILL)
                    job.until = inf
                else:
                    self.respond(job, "exception", severity=0, type="timeout", note="out of time")
                    self.end(job)

    def receive(self):
        for message in self.decoder.feed(self.socket.recv(65536) or sys.exit()):
            if message.kind == "request":
                answer = self.serve(message, message.object() or {})
                if answer and not message.noresponse:
                    self.socket.sendall(answer.encode())
            elif message.kind == "event" and (raised := message.object())["severity"] == 0:
                self.end(self.jobs.get(raised["id"]))
            elif message.kind == "response" and message.matchtag == REGISTER:
                if message.errnum:
                    raise OSError(message.errnum, f"{message.topic}: {message.error_text}")
                print(f"exec_service: {message.topic} is done", file=sys.stderr)

    def serve(self, request, asked):
        method, job = request.topic.rpartition(".")[2], self.jobs.get(asked.get("id"))
        if not request.rolemask & OWNER:
            return request.respond(errnum=EPERM)
        match method:
            case "start":
                return self.start(request, asked)
            case "replaced":
                sys.exit(f"exec_service: `{asked['service']}` has the jobs now")
            case "kill" if job:
                self.signal(job, asked["signum"])
            case "expiration" if job:
                job.until = job.until if job.ending else asked["expiration"] or inf
            case _:
                return request.respond(errnum=ENOSYS if job else ENOENT)
        return request.respond()

    def start(self, request, asked):
        r, spec, again = ResourceSet(asked["R"]), asked["jobspec"], asked.get("reattach")
        (task,), system = spec["tasks"], spec["attributes"]["system"]
        job = self.jobs[asked["id"]] = SimpleNamespace(request=request, ranks=r.ranks, status=0)
        job.id, job.pids, job.until, job.ending = asked["id"], {}, r.expiration or inf, False
        job.environment = {**system.get("environment", {}), "FLUX_JOB_ID": fluid_f58(job.id)}
        try:
            for rank in range(task["count"].get("total") or task["count"]["per_slot"] * r.nslots):
                self.watch(job, f"task.{rank}", not again and task["command"], system.get("cwd"))
            self.respond(job, "reattached" if again else "start")
        except OSError as error:
            self.respond(job, "exception", severity=0, type="exec", note=str(error))
            self.end(job)
        if not job.pids:
            self.release(job)

    def watch(self, job, name, command, cwd=None):
        path = str(self.directory / f"{job.id}.{name}")
        if command:
            env = {**job.environment, "FLUX_TASK_RANK": name.split(".")[1]}
            shell = ["sh", "-c", SHELL, path, *command]
            new = Popen(shell, cwd=cwd, env=env, start_new_session=True)
            Path(path + ".pid").write_text(str(new.pid))
        pid = job.pids[name] = int(Path(path + ".pid").read_text())
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            fd = os.eventfd(1)  # readable at once: it has ended already
        self.selector.register(fd, EVENT_READ, (self.ended, fd, job, name, Path(path + ".code")))

    def ended(self, fd, job, name, code):
        self.selector.unregister(fd)
        os.close(fd)
        with suppress(ChildProcessError):
            os.waitpid(job.pids.pop(name), 0)
        kind, rank = name.split(".")
        job.status = max(job.status, int(code.read_text()) << 8 if code.exists() else SIGKILL)
        if kind == "epilog":
            self.respond(job, "release", ranks=rank, final=not job.pids)
        elif not job.pids:
            self.respond(job, "finish", status=job.status)
            self.release(job)

    def release(self, job):
        job.ending, job.until = True, inf
        for rank in job.ranks:
            self.watch(job, f"epilog.{rank}", ["sh", "-c", os.environ.get("EPILOG", "")])

    def respond(self, job, kind, **data):
        if data.get("final"):
            del self.jobs[job.id]
        payload = {"id": job.id, "type": kind, "data": data}
        self.socket.sendall(job.request.respond(payload, streaming=True).encode())

    def end(self, job):
        if job and not job.ending:
            job.ending, job.until = True, time.time() + GRACE
            self.signal(job, SIGTERM)

    def signal(self, job, signum):
        for pid in job.pids.values():
            with suppress(ProcessLookupError):
                os.killpg(pid, signum)


if __name__ == "__main__":
    try:
        Service(*sys.argv[1:]).run()
    except OSError as error:
        sys.exit(f"exec_service: {error}")
