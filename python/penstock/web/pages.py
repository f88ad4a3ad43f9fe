"""The pages: each reads the instance for its reader and fills in a template."""

from __future__ import annotations

import errno
import pwd
import re
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlencode

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from penstock._core import URGENCY_EXPEDITE, IDset, fluid_parse, job_state
from penstock.cli.planned import expected
from penstock.errors import (
    ForbiddenError,
    JobspecError,
    NoInstanceError,
    NotFoundError,
    RpcError,
    TargetError,
    TooManyListenersError,
)
from penstock.web import charts, figures, live, machine, timeline
from penstock.web.render import FOLDER, environment
from penstock.web.view import MachineCache, View, reader_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from starlette.requests import Request

    from penstock.clock import Clock
    from penstock.rows import JobRow
    from penstock.web.link import Link

PENDING = {"states": ["pending"]}
RUNNING = {"states": ["running"]}
INACTIVE = {"states": ["inactive"]}
RPC_STATUS = {errno.ENOENT: (404, "Not found"), errno.EPERM: (403, "Not permitted")}
STARTED = {"states": ["running", "inactive"]}
JOBS_PER_PAGE, NODES_PER_PAGE = 50, 64
MAX_COLOURED_JOBS = 1000
MAX_SCANNED_JOBS = 20_000
SCAN_AGE_S = 10.0
# Without a choice; shorter if the jobs are younger.
DEFAULT_PERIOD = "24h"
# In the scope of a request: the period that fits the jobs.
PERIOD_KEY = "penstock.period"
SCAN_ATTRS = ("userid", "t_submit", "t_run", "t_cleanup", "t_inactive", "ncores", "state")
CONTENT_TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


@dataclass(frozen=True)
class Scan:
    """The jobs that were active in a period, the newest ones if there are too many."""

    period: figures.Period
    rows: Sequence[JobRow]

    @property
    def fitting_period(self) -> str:
        """The name of the shortest period in which all of them were active."""
        begin = min((row["t_submit"] for row in self.rows), default=self.period.begin)
        return next(
            (name for name, length in figures.PERIODS.items() if begin > self.period.end - length),
            DEFAULT_PERIOD,
        )

    @property
    def is_cut(self) -> bool:
        """Whether there may be more."""
        return len(self.rows) >= MAX_SCANNED_JOBS


class Site:
    """The pages of an instance.

    Args:
        link: of the instance.
        clock: the time.
        owners: users that may see and change everything that the server may.
        allow_actions: whether pages have buttons that change something.
        changes: notifies pages.
    """

    def __init__(
        self,
        link: Link,
        clock: Clock,
        *,
        owners: frozenset[int],
        allow_actions: bool,
        changes: live.Changes,
    ) -> None:
        self._link = link
        self._clock = clock
        self._owners = owners
        self._allow_actions = allow_actions
        self._changes = changes
        self._machine = MachineCache(link, clock)
        self._colours = machine.Colours()
        self._scans: dict[tuple[str, int | None], tuple[float, Scan]] = {}
        self._templates = environment()
        self._assets = {path.name: path.read_bytes() for path in (FOLDER / "static").iterdir()}

    def app(self) -> Starlette:
        """The application (ASGI)."""
        get: list[tuple[str, Callable[..., Any]]] = [
            ("/", self.overview),
            ("/nodes", self.nodes),
            ("/nodes/index.json", self.node_index),
            ("/nodes/{rank:int}", self.node),
            ("/queue", self.queue),
            ("/running", self.running),
            ("/history", self.history),
            ("/find", self.find),
            ("/jobs/{job}", self.job),
            ("/jobs/{job}/events", self.job_events),
            ("/events", self.events),
            ("/static/{name}", self.asset),
        ]
        post: list[tuple[str, Callable[..., Any]]] = [
            ("/jobs/{job}/cancel", self.cancel),
            ("/jobs/{job}/urgency", self.urgency),
            ("/nodes/{rank:int}/drain", self.drain),
            ("/nodes/{rank:int}/undrain", self.undrain),
        ]
        answers: dict[type[Exception], tuple[int, str]] = {
            NotFoundError: (404, "Not found"),
            JobspecError: (404, "Not found"),
            ForbiddenError: (403, "Not permitted"),
            NoInstanceError: (503, "The instance is not reachable"),
            TargetError: (409, "Rejected"),
            RpcError: (409, "Rejected"),
            TooManyListenersError: (503, "Too many open pages"),
        }
        handlers: dict[Any, Any] = {
            kind: partial(self._failed, status, title) for kind, (status, title) in answers.items()
        }
        handlers[HTTPException] = self._rejected
        return Starlette(
            routes=[
                *(Route(path, page, methods=["GET"]) for path, page in get),
                *(Route(path, action, methods=["POST"]) for path, action in post),
            ],
            exception_handlers=handlers,
        )

    # --- pages

    async def overview(self, request: Request) -> Response:
        """Utilisation, the map of nodes, queues, the last starts."""
        view = await self._view(request)
        nodes = (await view.machine()).nodes
        scan = await self._scan(view, await self._period(view, request))
        total = sum(node.total.cores for node in nodes)
        return self._page(
            request,
            view,
            "overview.html",
            states=(await view.counts())["job_states"],
            cores=(sum(node.used.cores for node in nodes), total),
            gpus=(sum(node.used.gpus for node in nodes), sum(node.total.gpus for node in nodes)),
            nodes=nodes,
            map=machine.node_map(nodes),
            node_states=machine.STATES,
            unavailable=[
                node for node in nodes if node.state in ("drained", "draining", "offline")
            ],
            scan=scan,
            used=figures.cores_in_use(scan.rows, scan.period),
            chart=charts.step_chart(
                figures.cores_in_use(scan.rows, scan.period),
                total if view.reader.sees_all_jobs else 0,
                scan.period,
            ),
            queues=await view.queues(),
            rows=await view.jobs(RUNNING, max_entries=10),
        )

    async def nodes(self, request: Request) -> Response:
        """Nodes with their cores by job."""
        view = await self._view(request)
        found = await view.machine()
        state = request.query_params.get("state", "")
        nodes = [node for node in found.nodes if state in ("", node.state)]
        page = _page_number(request)
        shown = nodes[(page - 1) * NODES_PER_PAGE : page * NODES_PER_PAGE]
        drawings, jobs = await self._drawings(view, IDset(node.rank for node in shown))
        return self._page(
            request,
            view,
            "nodes.html",
            nodes=[(node, drawings[node.rank]) for node in shown],
            jobs=jobs,
            state=state,
            counts=machine.counts(found.nodes),
            node_states=machine.STATES,
            page=page,
            pages=max(1, -(-len(nodes) // NODES_PER_PAGE)),
            total=len(nodes),
        )

    async def node_index(self, request: Request) -> Response:
        """The nodes in the order of the map, for its labels."""
        view = await self._view(request)
        nodes = (await view.machine()).nodes
        return JSONResponse(
            [
                [node.rank, node.host, node.state, node.used.cores, node.total.cores]
                for node in nodes
            ]
        )

    async def node(self, request: Request) -> Response:
        """A node: its cores by job, its jobs now and before, its events."""
        view = await self._view(request)
        rank = request.path_params["rank"]
        nodes = (await view.machine()).nodes
        node = next((node for node in nodes if node.rank == rank), None)
        if node is None:
            raise NotFoundError(f"there is no node with rank {rank}")
        here = {"ranks": [str(rank)]}
        drawings, _ = await self._drawings(view, IDset([rank]))
        return self._page(
            request,
            view,
            "node.html",
            node=node,
            units=drawings[rank],
            current=await view.jobs(here, RUNNING, max_entries=JOBS_PER_PAGE),
            previous=await view.jobs(here, INACTIVE, max_entries=JOBS_PER_PAGE),
            entries=timeline.entries(await view.node_events(rank))[::-1],
            node_states=machine.STATES,
        )

    async def queue(self, request: Request) -> Response:
        """Pending jobs by position, with reasons and estimated starts."""
        return await self._jobs_page(request, PENDING, "queue.html")

    async def running(self, request: Request) -> Response:
        """Running jobs, the last to start first."""
        return await self._jobs_page(request, RUNNING, "running.html")

    async def _jobs_page(
        self, request: Request, states: Mapping[str, Any], template: str
    ) -> Response:
        view = await self._view(request)
        parts, filters = _filters(request)
        page = _page_number(request)
        first = (page - 1) * JOBS_PER_PAGE
        # One more row: whether there is a next page.
        rows = await view.jobs(states, *parts, max_entries=JOBS_PER_PAGE + 1, skip=first)
        shown = rows[:JOBS_PER_PAGE]
        reasons = await view.explain([row for row in shown if row["state"] == job_state.SCHED])
        counts = (await view.counts())["job_states"]
        names = ("run", "cleanup") if states is RUNNING else ("depend", "priority", "sched")
        is_whole = not parts and view.reader.sees_all_jobs
        return self._page(
            request,
            view,
            template,
            rows=shown,
            reasons=reasons,
            first=first,
            page=page,
            has_next=len(rows) > JOBS_PER_PAGE,
            total=sum(counts[name] for name in names) if is_whole else None,
            pages=max(1, -(-sum(counts[name] for name in names) // JOBS_PER_PAGE))
            if is_whole
            else None,
            filters=filters,
            queues=await view.queues(),
        )

    async def history(self, request: Request) -> Response:
        """Wait and slowdown over time, and the last ended jobs."""
        view = await self._view(request)
        scan = await self._scan(view, await self._period(view, request))
        waits = figures.waits(scan.rows, scan.period)
        parts, filters = _filters(request)
        page = _page_number(request)
        first = (page - 1) * JOBS_PER_PAGE
        rows = await view.jobs(
            INACTIVE, *parts, max_entries=JOBS_PER_PAGE + 1, skip=first, since=scan.period.begin
        )
        return self._page(
            request,
            view,
            "history.html",
            scan=scan,
            waits=waits,
            wait_chart=charts.spread_chart(waits.waits, scan.period, 0.1, charts.wait_text),
            slowdown_chart=charts.spread_chart(
                waits.slowdowns, scan.period, 1.0, lambda value: f"{value:g}"
            ),
            rows=rows[:JOBS_PER_PAGE],
            first=first,
            page=page,
            pages=None,
            total=None,
            has_next=len(rows) > JOBS_PER_PAGE,
            filters=filters,
            queues=await view.queues(),
        )

    async def find(self, request: Request) -> Response:
        """Leads to a job by its id, or a node by its host."""
        view = await self._view(request)
        text = request.query_params.get("q", "").strip()
        for node in (await view.machine()).nodes:
            if node.host == text:
                return RedirectResponse(f"/nodes/{node.rank}", 303)
        try:
            job = fluid_parse(text)
        except JobspecError:
            raise NotFoundError(f"no job and no host is named `{text}`") from None
        return RedirectResponse(f"/jobs/{job}", 303)

    async def job(self, request: Request) -> Response:
        """A job: stages, events, resources, reason, the end of its output."""
        view = await self._view(request)
        row = await view.job(fluid_parse(request.path_params["job"]))
        events = await view.events(row)
        documents = await view.resources([row])
        ranks = IDset(row.get("ranks", ""))
        shown = IDset(list(ranks)[:NODES_PER_PAGE])
        drawings, _ = await self._drawings(view, shown) if documents else ({}, {})
        reasons = await view.explain([row]) if row["state"] == job_state.SCHED else {}
        reason = reasons.get(row["id"])
        output = await view.output(row)
        now = self._clock.now()
        return self._page(
            request,
            view,
            "job.html",
            row=row,
            is_pending=row["state"] < job_state.RUN,
            is_active=row["state"] != job_state.INACTIVE,
            may_act=view.reader.may_act_for(row),
            stages=timeline.stages(row, now),
            entries=None if events is None else timeline.entries(events),
            drawings=drawings if row["state"] in (job_state.RUN, job_state.CLEANUP) else {},
            nodes={node.rank: node for node in (await view.machine()).nodes if node.rank in shown},
            hidden_nodes=len(ranks) - len(shown),
            explained=reason,
            expected=expected(reason, now) if reason and reason.get("start") is not None else None,
            output=output and output.data.decode(errors="replace"),
            is_output_cut=output is not None and output.is_cut,
        )

    async def asset(self, request: Request) -> Response:
        """A style sheet, a script or an image."""
        name = request.path_params["name"]
        if name not in self._assets:
            raise HTTPException(404)
        kind = CONTENT_TYPES[name.rpartition(".")[2]]
        return Response(self._assets[name], media_type=kind)

    # --- live

    async def events(self, request: Request) -> Response:
        """`changed`, whenever jobs or resources have changed."""
        await self._view(request)
        self._changes.check_listeners()
        return cast("Response", live.EventStream(self._changes.send))

    async def job_events(self, request: Request) -> Response:
        """`changed` for each event of a job, and `output` as it is written."""
        view = await self._view(request)
        row = await view.job(fluid_parse(request.path_params["job"]))
        self._changes.check_listeners()
        return cast("Response", live.EventStream(live.JobMessages(view, row).send))

    # --- actions

    async def cancel(self, request: Request) -> Response:
        """Cancels a job."""
        view = await self._view(request)
        job = fluid_parse(request.path_params["job"])
        await view.cancel(job)
        return RedirectResponse(f"/jobs/{job}", 303)

    async def urgency(self, request: Request) -> Response:
        """Changes the urgency of a job."""
        view = await self._view(request)
        job = fluid_parse(request.path_params["job"])
        text = request.scope["form"].get("urgency", "")
        if not (re.fullmatch(r"\d{1,2}", text, re.ASCII) and int(text) <= URGENCY_EXPEDITE):
            expected = f"expected 0 to {URGENCY_EXPEDITE}"
            raise HTTPException(400, f"urgency: {expected}, found `{text[:20]}`")
        await view.set_urgency(job, int(text))
        return RedirectResponse(f"/jobs/{job}", 303)

    async def drain(self, request: Request) -> Response:
        """Drains a node."""
        view = await self._view(request)
        rank = request.path_params["rank"]
        await view.drain(rank, request.scope["form"].get("reason", "").strip())
        return RedirectResponse(f"/nodes/{rank}", 303)

    async def undrain(self, request: Request) -> Response:
        """Ends the drain of a node."""
        view = await self._view(request)
        rank = request.path_params["rank"]
        await view.undrain(rank)
        return RedirectResponse(f"/nodes/{rank}", 303)

    # --- what they share

    async def _view(self, request: Request) -> View:
        client = self._link.client
        uid = request.scope["session"].uid
        return View(client, await reader_of(client, uid, self._owners), self._machine)

    async def _period(self, view: View, request: Request) -> str:
        """The name of the chosen period, or else of one that fits the jobs."""
        if _chosen_period(request) is None:
            scan = await self._scan(view, DEFAULT_PERIOD)
            request.scope[PERIOD_KEY] = scan.fitting_period
        return _period_name(request)

    async def _scan(self, view: View, name: str) -> Scan:
        key = (name, None if view.reader.sees_all_jobs else view.reader.uid)
        now = self._clock.monotonic()
        # An old scan, also of another reader, is forgotten.
        self._scans = {
            each: scan for each, scan in self._scans.items() if now - scan[0] < SCAN_AGE_S
        }
        if key not in self._scans:
            end = self._clock.now()
            period = figures.Period(end - figures.PERIODS[name], end)
            rows = await view.jobs(
                STARTED, max_entries=MAX_SCANNED_JOBS, attrs=SCAN_ATTRS, since=period.begin
            )
            self._scans[key] = now, Scan(period, rows)
        return self._scans[key][1]

    async def _drawings(
        self, view: View, ranks: IDset
    ) -> tuple[dict[int, list[machine.Unit]], list[JobRow]]:
        """The cores and gpus of nodes by job, and these jobs."""
        found = await view.machine()
        if not ranks:
            return {}, []
        rows = await view.jobs(RUNNING, {"ranks": [str(ranks)]}, max_entries=MAX_COLOURED_JOBS)
        jobs: dict[int, dict[int, machine.Children]] = {rank: {} for rank in ranks}
        for job, document in (await view.resources(rows)).items():
            for rank, children in machine.children_by_rank(document, ranks).items():
                jobs[rank][job] = children
        totals = machine.children_by_rank(found.status["R"], ranks)
        totals = machine.children_by_rank(found.sched["all"], ranks) | totals
        taken = machine.children_by_rank(found.sched["allocated"], ranks)
        return {
            rank: machine.units(totals[rank], taken.get(rank), jobs[rank]) for rank in ranks
        }, rows

    def _page(self, request: Request, view: View, template: str, **values: Any) -> Response:
        return self._render(request, template, 200, reader=view.reader, **values)

    def _render(self, request: Request, template: str, status: int, **values: Any) -> Response:
        session = request.scope["session"]
        text = self._templates.get_template(template).render(
            now=self._clock.now(),
            path=request.url.path,
            period=_period_name(request),
            periods=figures.PERIODS,
            csrf=session.csrf,
            allow_actions=self._allow_actions,
            colour=self._colours.of,
            link=partial(_link, request),
            **values,
        )
        return HTMLResponse(text, status)

    async def _failed(
        self, status: int, title: str, request: Request, error: Exception
    ) -> Response:
        if isinstance(error, RpcError):
            status, title = RPC_STATUS.get(error.errno or 0, (status, title))
        text = getattr(error, "strerror", None) or str(error)
        return self._render(request, "error.html", status, title=title, text=text, reader=None)

    async def _rejected(self, request: Request, error: HTTPException) -> Response:
        title = {404: "Not found", 405: "Not permitted"}.get(error.status_code, "Rejected")
        values = {"title": title, "text": error.detail, "reader": None}
        return self._render(request, "error.html", error.status_code, **values)


def _link(request: Request, **changes: Any) -> str:
    """The address of the page with other parameters; the value None removes one."""
    parameters = {**request.query_params, **changes}
    query = urlencode({name: value for name, value in parameters.items() if value is not None})
    return f"{request.url.path}?{query}" if query else request.url.path


def _page_number(request: Request) -> int:
    text = request.query_params.get("page", "1")
    if not (re.fullmatch(r"\d{1,8}", text, re.ASCII) and int(text) > 0):
        raise HTTPException(400, f"page: expected a number from 1, found `{text[:20]}`")
    return int(text)


def _period_name(request: Request) -> str:
    default: str = request.scope.get(PERIOD_KEY, DEFAULT_PERIOD)
    return _chosen_period(request) or default


def _chosen_period(request: Request) -> str | None:
    name = request.query_params.get("period")
    return name if name in figures.PERIODS else None


def _filters(request: Request) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """The constraints of the form above a list of jobs, and its fields."""
    names = ("user", "queue", "name")
    fields = {name: request.query_params.get(name, "").strip() for name in names}
    parts: list[dict[str, Any]] = []
    if fields["user"]:
        parts.append({"userid": [_uid(fields["user"])]})
    parts += [{name: [fields[name]]} for name in ("queue", "name") if fields[name]]
    return parts, fields


def _uid(text: str) -> int:
    if re.fullmatch(r"\d{1,10}", text, re.ASCII):
        return int(text)
    try:
        return pwd.getpwnam(text).pw_uid
    except (KeyError, ValueError):
        raise NotFoundError(f"unknown user `{text}`") from None
