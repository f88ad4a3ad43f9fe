"""A scheduler for an instance's socket, by docs/allocation.md: first fit, in order of priority."""

import sys
import time
from base64 import b64decode, b64encode
from errno import EINVAL, ENOSYS, EPERM, errorcode

from penstock import ResourceSet, jobid
from penstock.client import Client, connect
from penstock.protocol.acquire import Acquired
from penstock.protocol.message import STREAMING, Decoder, Message

SUCCESS, ANNOTATE, DENY, CANCEL = range(4)
OWNER, NEWS, GROW = 1, 2, {"grow-ok": True}  # a role, a matchtag, a payload


class Scheduler:
    def __init__(self, uri=None, limit=None):
        self.client, self.socket, self.decoder = Client(uri), connect(uri), Decoder()
        self.mode = {"mode": "limited", "limit": int(limit)} if limit else {"mode": "unlimited"}
        self.queue, self.order, self.possible = {}, {}, {}  # requests not answered yet, by job
        self.held, self.busy = {}, ResourceSet()  # R by job, and what all of them hold
        self.send = lambda message: self.socket.sendall(message.encode())

    def run(self):
        self.send(Message.request("service.add", {"service": "sched"}, matchtag=1))
        self.send(Message.request("resource.acquire", GROW, matchtag=NEWS, flags=STREAMING))
        while data := self.socket.recv(65536):
            for message in self.decoder.feed(data):
                self.handle(message)
            self.schedule()

    def handle(self, message):
        if message.kind == "request":
            try:
                answer = self.answer(message, message.object() or {})
            except Exception as error:
                answer = message.respond(errnum=EINVAL, errtext=str(error))
            if answer and not message.noresponse:
                self.send(answer)
        elif errnum := message.errnum:
            raise OSError(errnum, message.error_text or errorcode[errnum], message.topic)
        elif message.matchtag == NEWS:
            self.acquired(message.object())

    def acquired(self, news):
        self.possible.clear()
        if "resources" not in news:
            return self.targets.take(news)
        self.targets = Acquired(news)
        self.send(Message.request("service.add", {"service": "feasibility"}, matchtag=3))
        for job in self.client.stream("job-manager.sched-hello", {"partial-ok": True}):
            key = {"key": f"job.{jobid.dothex(job['id'])}.R"}
            r = ResourceSet(b64decode(self.client.rpc("kvs.lookup", key)["val"]["data"]))
            self.held[job["id"]] = r.restrict(ranks=r.ranks - job.get("free", ""))
            self.busy |= self.held[job["id"]]
        count = self.client.rpc("job-manager.sched-ready", self.mode)["count"]
        return print(f"scheduler: ready, {count} jobs pending", file=sys.stderr, flush=True)

    def answer(self, request, payload):
        match request.topic:
            case "sched.ping" | "feasibility.ping":
                return request.respond(payload)
            case "feasibility.check":
                self.place(payload["jobspec"], self.targets.resources.ranks, ResourceSet())
            case _ if not request.rolemask & OWNER:
                return request.respond(errnum=EPERM)
            case "sched.alloc":
                self.order[payload["id"]] = (-payload["priority"], +payload["id"])
                return self.queue.update({payload["id"]: request})
            case "sched.cancel":
                return self.reply(payload["id"], CANCEL) if payload["id"] in self.queue else None
            case "sched.prioritize":
                jobs = [(job, priority) for job, priority in payload["jobs"] if job in self.queue]
                return self.order.update({job: (-priority, job) for job, priority in jobs})
            case "sched.free":
                r = self.held.pop(payload["id"], ResourceSet())
                part = ResourceSet(payload.get("R", r))
                self.busy -= part
                if not payload.get("final", True):
                    self.held[payload["id"]] = r - part
                return None if "R" in payload else request.respond({"id": payload["id"]})
            case "sched.expiration":
                self.held[payload["id"]].expiration = payload["expiration"] or None
            case _:
                return request.respond(errnum=ENOSYS)
        return request.respond()

    def schedule(self):
        for job in [job for job in self.queue if job not in self.possible]:
            try:
                jobspec = self.queue[job].object()["jobspec"]
                self.place(jobspec, self.targets.resources.ranks, ResourceSet())
                self.possible[job] = jobspec
            except Exception as error:
                self.reply(job, DENY, note=str(error))
        placed, ops, busy = {}, [], self.busy
        for job in sorted(self.queue, key=self.order.get):
            try:
                r = placed[job] = self.place(self.possible[job], self.targets.up, busy)
            except ValueError as error:
                self.reply(job, ANNOTATE, annotations={"sched": {"reason_pending": str(error)}})
                break
            value = {"ver": 1, "type": "val", "data": b64encode(bytes(r)).decode()}
            ops.append({"key": f"job.{jobid.dothex(job)}.R", "flags": 0, "dirent": value})
            busy = busy | r
        try:
            if ops:
                self.client.rpc("kvs.commit", {"namespace": "primary", "flags": 0, "ops": ops})
        except OSError as error:  # resources have changed: the next message tells us, and we retry
            return print(f"scheduler: {error}", file=sys.stderr)
        self.busy = busy
        for job, r in placed.items():
            self.held[job] = r
            notes = {"sched": {"resource_summary": r.summary(), "reason_pending": None}}
            self.reply(job, SUCCESS, R=r.to_dict(), annotations=notes)
        return None

    def place(self, jobspec, up, busy):
        (vertex,), whole, nodes = jobspec["resources"], False, 0
        if vertex["type"] == "node":
            whole, nodes, (vertex,) = vertex.get("exclusive"), vertex["count"], vertex["with"]
        each = {child["type"]: child["count"] for child in vertex["with"]}
        slots, cores, gpus = vertex["count"], each["core"], each.get("gpu", 0)
        system, r, left = jobspec["attributes"]["system"], ResourceSet(), slots * (nodes or 1)
        r.nslots, r.starttime = left, time.time()
        ends = r.starttime + system["duration"] if system["duration"] else None
        r.expiration = min(filter(None, [ends, self.targets.resources.expiration]), default=None)
        ranks, constraint = up - busy.ranks if whole else up, system.get("constraints") or {}
        for node in self.targets.resources.restrict(ranks=ranks, constraint=constraint) - busy:
            room = min(left, len(node.cores) // cores, len(node.gpus) // gpus if gpus else left)
            if 0 < (take := slots if nodes else room) <= room:
                size = (None, None) if whole else (take * cores, take * gpus)
                r.insert(node.rank, node.host, node.cores[: size[0]], node.gpus[: size[1]])
                left -= take
        if left or not r:
            raise ValueError(f"insufficient resources: {left} of {r.nslots} slots do not fit")
        return r

    def reply(self, job, kind, **more):
        self.send(self.queue[job].respond({"id": job, "type": kind, **more}))
        for table in (self.queue, self.order, self.possible) if kind != ANNOTATE else ():
            table.pop(job, None)


if __name__ == "__main__":
    try:
        Scheduler(*sys.argv[1:]).run()
    except OSError as error:
        sys.exit(f"scheduler: {error}")
