"""The parent instance, in which this one is a job: its resources and their expiration (RFC 20)."""

from __future__ import annotations

import base64
import errno
import json
import logging
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock._core import ResourceSet, fluid_f58, fluid_parse, topic
from penstock.client import Client
from penstock.client.calls import raw_call
from penstock.errors import Error, RpcError, StartError
from penstock.instance.internal_client import InternalClient

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock import aclient
    from penstock._core import Message
    from penstock.instance.broker import Broker
    from penstock.instance.system import Network
    from penstock.rows import Event

log = logging.getLogger("penstock.parent")

# For each request to the parent.
REQUEST_TIMEOUT_S = 60.0
# The attribute by which an instance tells whether it runs tasks without binding them: `1` or `0`.
OVERSUBSCRIBE_ATTRIBUTE = "oversubscribe"


@dataclass(frozen=True)
class Parent:
    """The instance in which this one is a job, as it was when this one was started.

    Attributes:
        uri: the parent's address.
        job: the id of the job there.
        flux: whether it is a Flux instance, which numbers cores by hwloc.
        level: the parent's nesting level, from 0.
        resources: the job's R, ranks counted from 0.
        jobspec: the job's jobspec.
        oversubscribe: whether the parent runs tasks without binding them to cores.
    """

    uri: str
    job: int
    flux: bool
    level: int
    resources: ResourceSet
    jobspec: dict[str, Any]
    oversubscribe: bool


def enclosing_job(environment: Mapping[str, str]) -> tuple[str, str, bool] | None:
    """The job that a process is in: its instance's address, its id, and whether that is Flux.

    A job of Penstock has the variables of both. If the ids differ, Flux runs within Penstock.

    Raises:
        StartError: the id is set and the address is not.
    """
    for name in ("FLUX", "PENSTOCK"):
        job, uri = environment.get(f"{name}_JOB_ID"), environment.get(f"{name}_URI")
        if job and not uri:
            raise StartError(f"{name}_JOB_ID is set, but {name}_URI is not\n{_hint(name)}")
        if job and uri:
            flux = name == "FLUX" and job != environment.get("PENSTOCK_JOB_ID")
            return uri, job, flux
    return None


def _hint(name: str) -> str:
    return (
        f"hint: unset {name}_JOB_ID to start outside of any job, or name the resources with `--R` "
        "or `--nodes`"
    )


def find_parent(environment: Mapping[str, str]) -> Parent | None:
    """Looks up the job that this process is in; None if it is in no job.

    Raises:
        StartError: the process is in a job, and the lookup of the job's resources failed.
    """
    found = enclosing_job(environment)
    if found is None:
        return None
    uri, name, flux = found
    try:
        return _look_up(uri, fluid_parse(name), flux=flux)
    except (Error, OSError) as error:
        (reason, *_) = str(getattr(error, "strerror", None) or error).splitlines()
        hint = _hint("FLUX" if flux else "PENSTOCK")
        raise StartError(
            f"cannot look up the resources of job {name} at `{uri}`: {reason}\n{hint}"
        ) from error


def check_alone(environment: Mapping[str, str]) -> None:
    """Checks that the job has one task: several would start instances on the same resources.

    Raises:
        StartError: the job has several tasks.
    """
    ntasks = environment.get("FLUX_JOB_SIZE") or environment.get("PENSTOCK_NTASKS") or "1"
    if ntasks != "1":
        raise StartError(
            f"this is one of {ntasks} tasks: an instance has its job's resources for itself\n"
            "hint: submit with `penstock batch` or `penstock alloc`, or as one task with more "
            "cores (`-c`)"
        )


def _look_up(uri: str, job: int, *, flux: bool) -> Parent:
    with Client(uri, timeout=REQUEST_TIMEOUT_S) as client:
        documents = client.lookup(job, "R", "jobspec")
        level = client.rpc(topic.broker.ATTR_GET, {"name": "instance-level"}).get("value")
        try:
            answer = client.rpc(topic.broker.ATTR_GET, {"name": OVERSUBSCRIBE_ATTRIBUTE})
        except RpcError as error:
            # A Flux instance has no such attribute.
            if error.errno != errno.ENOENT:
                raise
            answer = {}
    resources = ResourceSet(documents["R"]).without_local_properties().rerank()
    # `nslots` counts the slots of this job, not of the jobs to come.
    resources.nslots = None
    if not resources.ranks:
        raise RpcError(errno.EINVAL, "its R has no ranks")
    return Parent(
        uri=uri,
        job=job,
        flux=flux,
        level=int(level or 0),
        resources=resources,
        jobspec=json.loads(documents["jobspec"]),
        oversubscribe=answer.get("value") == "1",
    )


def script_of(jobspec: Mapping[str, Any]) -> bytes:
    """The script in a jobspec's `attributes.system.files` (RFC 37).

    Raises:
        StartError: there is none, or it has an encoding of Flux's own.
    """
    files = jobspec.get("attributes", {}).get("system", {}).get("files", {})
    script = files.get("script") if isinstance(files, dict) else None
    if not isinstance(script, dict):
        raise StartError("this job carries no script\nhint: submit one with `penstock batch`")
    data, encoding = script.get("data", ""), script.get("encoding", "utf-8")
    if isinstance(data, str) and encoding == "utf-8":
        return data.encode()
    if isinstance(data, str) and encoding == "base64":
        return base64.b64decode(data)
    raise StartError(f"this job's script is encoded as `{encoding}`: expected utf-8 or base64")


class ParentLink:
    """Announces this instance's address to the parent, and follows the expiration of its job.

    Args:
        broker: this instance's broker.
        parent: the parent.
        uri: this instance's address.
        inherits: whether this instance's resources are the job's, with the job's expiration.
        network: connects to the parent.
    """

    def __init__(
        self, broker: Broker, parent: Parent, uri: str, *, inherits: bool, network: Network
    ) -> None:
        self._parent = parent
        self._uri = uri
        self._inherits = inherits
        self._network = network
        self._expiration = parent.resources.expiration or 0.0
        self._client = InternalClient(broker)

    async def run(self) -> None:
        """Follows the job until it is inactive. The instance outlives the loss of its parent."""
        try:
            async with self._network.connect(self._parent.uri) as client:
                await self._announce(client)
                if self._inherits:
                    await self._follow(client)
        except (Error, OSError) as error:
            (reason, *_) = str(error).splitlines() or [repr(error)]
            log.warning("continuing without the parent: %s", reason)

    async def _announce(self, client: aclient.Client) -> None:
        try:
            await client.memo(self._parent.job, {"uri": self._uri})
        except RpcError as error:
            log.info("the parent does not record this instance's address: %s", error.strerror)

    async def _follow(self, client: aclient.Client) -> None:
        async with client.eventlog(self._parent.job, follow=True) as events:
            async for event in events:
                self._apply(event)

    def _apply(self, event: Event) -> None:
        """Applies a new expiration of the job to this instance's resources (RFC 28)."""
        found = event.get("context", {}).get("expiration")
        if event.get("name") != "resource-update" or isinstance(found, bool):
            return
        if not isinstance(found, (int, float)):
            return
        expiration = float(found)
        if expiration == self._expiration or not math.isfinite(expiration) or expiration < 0:
            return
        self._expiration = expiration
        log.info("job %s now ends at %s", fluid_f58(self._parent.job), expiration or "no set time")
        request = raw_call(topic.resource.EXPIRATION, {"expiration": expiration})
        self._client.send(request, self._log_error)

    def _log_error(self, response: Message) -> None:
        if response.errnum:
            log.warning("the job's new expiration is rejected: %s", response.error_text)
