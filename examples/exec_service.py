"""An execution service, by docs/execution.md. Tasks run under a shell that notes how they end."""

import os
import sys
import time
from contextlib import suppress
from errno import EINVAL, ENOSYS, EPERM
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector
from signal import SIGKILL, SIGTERM
from subprocess import DEVNULL, Popen

from penstock import ResourceSet, jobid
from penstock.client import Client, connect
from penstock.protocol.execution import StartStream
from penstock.protocol.message import Decoder, Message

OWNER, GRACE, HOUR, NEVER = 1, 5.0, 3600.0, float("inf")  # GRACE: from TERM to KILL
SHELL = 'trap : 1 2 3 10 12 15; echo $$ > "$0.pid" && "$@" >> "$0.out" 2>&1; echo $? > "$0.code"'


class Service:
    def __init__(self, name, directory, uri=None):
        self.directory, self.jobs, self.selector = Path(directory).absolute(), {}, DefaultSelector()
        self.directory.mkdir(parents=True, exist_ok=True)
        self.client, self.socket, self.decoder = Client(uri), connect(uri), Decoder()
        self.send = lambda message: self.socket.sendall(message.encode())
        self.selector.register(self.socket, EVENT_READ, (self.receive,))
        ranks = str(ResourceSet(self.client.resource_status()["R"]).ranks)
        self.monitor = self.client.stream("resource.monitor", {"ranks": ranks})
        hello, me = "job-manager.exec-hello", {"service": name}
        requests = {"service.add": me, "event.subscribe": {"topic": "job-exception"}, hello: me}
        for tag, (topic, payload) in enumerate(requests.items(), 1):
            self.send(Message.request(topic, payload, matchtag=tag))

    def run(self):
        while True:
            due = min((job.until for job in self.jobs.values()), default=NEVER) - time.time()
            for key, _ in self.selector.select(min(max(due, 0), HOUR)):
                key.data[0](key.fd, *key.data[1:])
            for job in [job for job in self.jobs.values() if job.until <= time.time()]:
                if job.failed:
                    self.signal(job, SIGKILL, NEVER)
                else:
                    self.send(job.exception("timeout", "out of time"))
                    self.signal(job, SIGTERM, GRACE)

    def receive(self, _):
        for message in self.decoder.feed(self.socket.recv(65536) or sys.exit()):
            if message.kind == "request":
                try:
                    answer = self.answer(message, message.object() or {})
                except Exception as error:
                    answer = message.respond(errnum=EINVAL, errtext=repr(error))
                if answer and not message.noresponse:
                    self.send(answer)
            elif message.kind == "event":
                job = self.jobs.get((raised := message.object())["id"])
                if job and raised["severity"] == 0 and not job.failed:
                    job.interrupt(raised.get("wait_status"))
                    self.signal(job, SIGTERM, GRACE)
            elif message.errnum:
                text = message.error_text or os.strerror(message.errnum)
                raise OSError(message.errnum, f"{message.topic}: {text}")
            elif message.matchtag == 3:
                print("exec_service: exec-hello is done", file=sys.stderr)

    def answer(self, request, payload):
        match request.topic.rpartition(".")[2]:
            case "ping":
                return request.respond(payload)
            case _ if not request.rolemask & OWNER:
                return request.respond(errnum=EPERM)
            case "start":
                return None if payload["id"] in self.jobs else self.start(request, payload)
            case "replaced":
                sys.exit(f"exec_service: `{payload['service']}` has the jobs now")
            case "kill":
                self.signal(self.jobs[payload["id"]], payload["signum"])
            case "expiration" if not (job := self.jobs[payload["id"]]).ended:
                job.until = float(payload["expiration"]) or NEVER
            case _:
                return request.respond(errnum=ENOSYS)
        return request.respond()

    def start(self, request, payload):
        again, lookup = payload.get("reattach", False), {"id": payload["id"], "keys": ["R"]}
        job = self.jobs[payload["id"]] = StartStream(request, payload["id"], reattach=again)
        job.ranks, job.pids, job.until, job.status = ["all"], {}, NEVER, None
        try:
            r = ResourceSet(payload.get("R") or self.client.rpc("job-info.lookup", lookup)["R"])
            job.ranks, job.until = r.ranks, r.expiration or NEVER
            (task,), system = (spec := payload["jobspec"])["tasks"], spec["attributes"]["system"]
            command, cwd = not again and task["command"], system.get("cwd")
            env = {**system.get("environment", {}), "FLUX_JOB_ID": jobid.f58(job.job)}
            for rank in range(task["count"].get("total") or task["count"]["per_slot"] * r.nslots):
                self.watch(job, f"task.{rank}", command, cwd, env)
            self.send(job.reattached() if again else job.start())
        except Exception as error:
            self.send(job.exception("exec", str(error)))
            self.signal(job, SIGTERM, GRACE)
        if not job.pids:
            self.finish(job)

    def watch(self, job, name, command, cwd=None, env=os.environ):
        path, fd = str(self.directory / f"{job.job}.{name}"), None
        if command:
            env, shell = {**env, "FLUX_TASK_RANK": name.split(".")[1]}, ["sh", "-c", SHELL, path]
            pid = Popen([*shell, *command], cwd=cwd, env=env, stdin=DEVNULL, process_group=0).pid
        else:
            pid = int(Path(path + ".pid").read_text())
        with suppress(OSError):  # by now the pid may be another's: ours has this argument
            if command or f"/{job.job}.{name}\0" in Path(f"/proc/{pid}/cmdline").read_text("l1"):
                fd = os.pidfd_open(pid)
        job.pids[name], fd = fd and pid, fd or os.eventfd(1)  # readable at once: it has ended
        self.selector.register(fd, EVENT_READ, (self.ended, job, name, Path(path + ".code")))

    def ended(self, fd, job, name, code):
        self.selector.unregister(fd)
        with suppress(OSError):  # it may not be a child of ours
            os.waitid(os.P_PIDFD, fd, os.WEXITED)
        os.close(fd)
        del job.pids[name]
        if name.startswith("epilog"):
            self.send(job.release(name.split(".")[1], final=not job.pids))
        else:
            text = code.read_text().strip() if code.exists() else ""
            job.status = max(job.status or 0, int(text) << 8 if text else SIGKILL)
        if not job.pids:
            self.jobs.pop(job.job) if name.startswith("epilog") else self.finish(job)

    def finish(self, job):
        if job.status is not None or not job.failed:
            self.send(job.finish(job.status or 0))
        job.until = NEVER
        for rank in job.ranks:
            self.watch(job, f"epilog.{rank}", ["sh", "-c", os.environ.get("EPILOG", "")])

    def signal(self, job, signum, grace=None):
        job.until = time.time() + grace if grace else job.until
        for pid in [pid for name, pid in job.pids.items() if pid and name.startswith("task")]:
            with suppress(ProcessLookupError):
                os.killpg(pid, signum)


if __name__ == "__main__":
    try:
        Service(*sys.argv[1:]).run()
    except OSError as error:
        sys.exit(f"exec_service: {error}")
