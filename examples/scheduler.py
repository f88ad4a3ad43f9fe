"""A scheduler for an instance's socket, by docs/allocation.md: first fit, in order of priority."""

import sys
import time
from base64 import b64decode, b64encode
from errno import EINVAL, ENOSYS, EPERM

from penstock import IDset, ResourceSet
from penstock._core import fluid_dothex
from penstock.client import Client, connect
from penstock.errors import RpcError
from penstock.protocol.message import STREAMING, Decoder, Message

SUCCESS, ANNOTATE, DENY, CANCEL = range(4)
REGISTER, NEWS, OWNER = 1, 2, 1  # two matchtags and a role
GROW = {"grow-ok": True}


class Scheduler:
    def __init__(self, uri=None, limit=None):
        self.client, self.socket, self.decoder = Client(uri), connect(uri), Decoder()
        self.mode = {"mode": "limited", "limit": int(limit)} if limit else {"mode": "unlimited"}
        self.queue, self.priority = {}, {}  # alloc requests not answered yet, by job
        self.held, self.busy = {}, ResourceSet()  # R by job, and what all of them hold

    def run(self):
        for name in ("sched", "feasibility"):
            self.send(Message.request("service.add", {"service": name}, matchtag=REGISTER))
        self.send(Message.request("resource.acquire", GROW, matchtag=NEWS, flags=STREAMING))
        while data := self.socket.recv(65536):
            for message in self.decoder.feed(data):
                if message.kind == "request":
                    self.serve(message)
                elif message.errnum:
                    raise RpcError(message.errnum, f"{message.topic}: {message.error_text}")
                elif message.matchtag == NEWS:
                    self.acquired(message.object())
            self.schedule()

    def send(self, message):
        self.socket.sendall(message.encode())

    def acquired(self, news):
        if "resources" in news:  # the first answer; what of them is taken already?
            self.resources, self.up = ResourceSet(news["resources"]), IDset()
            for job in self.client.stream("job-manager.sched-hello", {"partial-ok": True}):
                key = {"namespace": "primary", "key": f"job.{fluid_dothex(job['id'])}.R"}
                r = ResourceSet(b64decode(self.client.rpc("kvs.lookup", key)["val"]["data"]))
                self.held[job["id"]] = r.restrict(ranks=r.ranks - job.get("free", ""))
                self.busy |= self.held[job["id"]]
            ready = self.client.rpc("job-manager.sched-ready", self.mode)
            print(f"scheduler: ready, {ready['count']} jobs wait", file=sys.stderr, flush=True)
        self.resources |= ResourceSet(news.get("grow"))
        self.resources.remove_ranks(news.get("shrink", ""))
        self.up = (self.up | news.get("up", "")) - news.get("down", "")
        for name, ranks in news.get("property-remove", {}).items():
            self.resources.remove_property(name, ranks)
        for name, ranks in news.get("property-add", {}).items():
            self.resources.add_property(name, ranks)
        self.resources.expiration = news.get("expiration", self.resources.expiration) or None

    def serve(self, request):
        try:
            answer = self.answer(request, request.object())
        except (LookupError, TypeError, ValueError) as error:
            answer = request.respond(errnum=EINVAL, errtext=str(error))
        if answer is not None and not request.noresponse:
            self.send(answer)

    def answer(self, request, asked):
        match request.topic:
            case "feasibility.check":
                self.place(asked["jobspec"], self.resources.ranks, ResourceSet())
            case _ if not request.rolemask & OWNER:
                return request.respond(errnum=EPERM)
            case "sched.alloc":
                self.queue[asked["id"]], self.priority[asked["id"]] = request, asked["priority"]
                return None
            case "sched.cancel":
                return self.reply(asked["id"], CANCEL) if asked["id"] in self.queue else None
            case "sched.prioritize":
                return self.priority.update(asked["jobs"])
            case "sched.free":
                r = self.held.pop(asked["id"], ResourceSet())
                part = ResourceSet(asked.get("R", r))
                self.busy -= part
                if not asked.get("final", True):
                    self.held[asked["id"]] = r - part
                return None if "R" in asked else request.respond({"id": asked["id"]})
            case "sched.expiration":
                self.held[asked["id"]].expiration = asked["expiration"] or None
            case _:
                return request.respond(errnum=ENOSYS)
        return request.respond()

    def schedule(self):
        for job in sorted(self.queue, key=lambda job: (-self.priority[job], job)):
            jobspec = self.queue[job].object()["jobspec"]
            try:
                self.place(jobspec, self.resources.ranks, ResourceSet())
            except (LookupError, TypeError, ValueError) as error:
                self.reply(job, DENY, note=str(error))
                continue
            try:
                self.allocate(job, self.place(jobspec, self.up, self.busy))
            except (RpcError, ValueError) as error:
                self.reply(job, ANNOTATE, annotations={"sched": {"reason_pending": str(error)}})
                return

    def place(self, jobspec, up, busy):
        """First fit of slots on nodes (RFC 25), as R."""
        (vertex,), whole, nodes = jobspec["resources"], False, 0
        if vertex["type"] == "node":
            whole, nodes, (vertex,) = vertex.get("exclusive"), vertex["count"], vertex["with"]
        each = {child["type"]: child["count"] for child in vertex["with"]}
        slots, cores, gpus = vertex["count"], each["core"], each.get("gpu", 0)
        system, r, left = jobspec["attributes"]["system"], ResourceSet(), slots * (nodes or 1)
        r.nslots, r.starttime = left, time.time()
        ends = r.starttime + system["duration"] if system["duration"] else None
        r.expiration = min(filter(None, [ends, self.resources.expiration]), default=None)
        ranks, constraint = up - busy.ranks if whole else up, system.get("constraints") or {}
        for node in self.resources.restrict(ranks=ranks, constraint=constraint) - busy:
            room = min(left, len(node.cores) // cores, len(node.gpus) // gpus if gpus else left)
            take = slots if nodes else room
            if 0 < take <= room:
                size = (None, None) if whole else (take * cores, take * gpus)
                r.insert(node.rank, node.host, node.cores[: size[0]], node.gpus[: size[1]])
                left -= take
        if left:
            raise ValueError(f"insufficient resources: {left} of {r.nslots} slots have no place")
        return r

    def allocate(self, job, r):
        value = {"ver": 1, "type": "val", "data": b64encode(bytes(r)).decode()}
        op = {"key": f"job.{fluid_dothex(job)}.R", "flags": 0, "dirent": value}
        self.client.rpc("kvs.commit", {"namespace": "primary", "flags": 0, "ops": [op]})
        self.held[job], self.busy = r, self.busy | r
        notes = {"sched": {"resource_summary": r.summary(), "reason_pending": None}}
        self.reply(job, SUCCESS, R=r.to_dict(), annotations=notes)

    def reply(self, job, kind, **more):
        request = self.queue[job] if kind == ANNOTATE else self.queue.pop(job)
        self.send(request.respond({"id": job, "type": kind, **more}))


if __name__ == "__main__":
    try:
        Scheduler(*sys.argv[1:]).run()
    except OSError as error:
        sys.exit(f"scheduler: {error}")
