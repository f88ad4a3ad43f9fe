"""A blocking client of an instance: requests, streams, and the common ones by name.

```python
from penstock.client import Client
from penstock.jobspec import from_command

with Client() as client:
    job = client.submit(from_command(["hostname"]))
    (row,) = client.wait([job])
```

It needs no third-party package. For Trio there is `penstock.aclient`.
"""

from __future__ import annotations

import base64
import errno
import json
import os
import socket
from collections import deque
from typing import TYPE_CHECKING, Any, TypeVar

from penstock._core import Decoder, Message
from penstock.errors import Error, JobspecError, RpcError
from penstock.paths import default_uri, socket_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from types import TracebackType
    from typing import Self

    Payload = Mapping[str, Any] | None

Key = TypeVar("Key")

STREAMING = 0x40
READ_SIZE = 256 * 1024
# Well below the largest frame (64 MiB), whatever one more jobspec adds.
MAX_SUBMISSION = 16 * 1024 * 1024
Row = dict[str, Any]


class NoInstanceError(Error, ConnectionError):
    """Nobody listens at the address, or the connection was refused or lost."""


def connect(uri: str | None = None) -> socket.socket:
    """Connects to an instance and reads its greeting (a status byte).

    Args:
        uri: `local:///path`; by default `$PENSTOCK_URI`, else the default socket.

    Raises:
        NoInstanceError: nobody listens there, or the instance does not want this user.
        AddressError: the address is not a local one.
    """
    uri = uri or default_uri()
    path = str(socket_of(uri))
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(path)
        status = connection.recv(1)
    except OSError as error:
        connection.close()
        raise NoInstanceError(
            f"no instance at `{uri}`: {error.strerror or error}\n"
            "hint: start one with `penstock start`, or set PENSTOCK_URI"
        ) from None
    if status != b"\0":
        connection.close()
        reason = os.strerror(status[0]) if status else "it closed the connection"
        raise NoInstanceError(f"the instance at `{uri}` refused the connection: {reason}")
    return connection


class Client:
    """A connection to an instance.

    Args:
        uri: `local:///path`; by default `$PENSTOCK_URI`, else the default socket.
        timeout: seconds to wait for each message; None waits for as long as it takes.

    Raises:
        NoInstanceError: nobody listens there.
    """

    def __init__(self, uri: str | None = None, *, timeout: float | None = None) -> None:
        self.uri = uri or default_uri()
        self._socket = connect(self.uri)
        self._socket.settimeout(timeout)
        self._decoder = Decoder()
        self._tag = 0
        self._arrived: dict[int, deque[Message]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection; open streams end."""
        self._socket.close()

    # --- messages

    def _send(
        self,
        topic: str,
        payload: Payload | bytes,
        flags: int = 0,
        arrived: deque[Message] | None = None,
    ) -> int:
        """Sends a request; its responses go to `arrived`, or to a queue of their own."""
        self._tag += 1
        request = Message.request(topic, payload, matchtag=self._tag, flags=flags)
        self._arrived[self._tag] = deque() if arrived is None else arrived
        try:
            self._socket.sendall(request.encode())
        except OSError as error:
            raise self._lost(error) from None
        return self._tag

    def _lost(self, error: OSError | None = None) -> NoInstanceError:
        reason = f": {error.strerror or error}" if error else ""
        return NoInstanceError(f"the instance at `{self.uri}` closed the connection{reason}")

    def _receive(self, arrived: deque[Message]) -> Message:
        """The next message for a queue; what is for others is kept for them."""
        while not arrived:
            try:
                data = self._socket.recv(READ_SIZE)
            except TimeoutError:
                raise
            except OSError as error:
                raise self._lost(error) from None
            if not data:
                raise self._lost()
            for message in self._decoder.feed(data):
                waiting = self._arrived.get(message.matchtag)
                if waiting is not None:
                    waiting.append(message)
        return arrived.popleft()

    def rpc(self, topic: str, payload: Payload | bytes = None) -> dict[str, Any]:
        """Sends a request and returns its response, `{}` where that is empty.

        Args:
            topic: service and method, such as `job-list.list`.
            payload: an object, or JSON text already encoded.

        Raises:
            RpcError: the service answered with an error.
            NoInstanceError: the connection was lost.
        """
        return self._answer(self._send(topic, payload))

    def _answer(self, tag: int) -> dict[str, Any]:
        try:
            message = self._receive(self._arrived[tag])
        finally:
            del self._arrived[tag]
        return payload_of(message)

    def call_many(self, topic: str, payloads: Iterable[Payload]) -> list[dict[str, Any] | RpcError]:
        """Sends requests one after the other without waiting, then collects the responses.

        Returns:
            For each request its response, or its error.
        """
        results: list[dict[str, Any] | RpcError] = []
        tags = [self._send(topic, payload) for payload in payloads]
        for tag in tags:
            try:
                results.append(self._answer(tag))
            except RpcError as error:
                results.append(error)
        return results

    def stream(self, topic: str, payload: Payload = None) -> Iterator[dict[str, Any]]:
        """Sends a streaming request and yields its responses until the good end (ENODATA).

        Raises:
            RpcError: the stream ended in another error.
            NoInstanceError: the connection was lost.
        """
        tag = self._send(topic, payload, STREAMING)
        try:
            while True:
                message = self._receive(self._arrived[tag])
                if message.errnum == errno.ENODATA:
                    return
                yield payload_of(message)
        finally:
            self._arrived.pop(tag, None)

    def merge(
        self, requests: Mapping[Key, tuple[str, Payload]]
    ) -> Iterator[tuple[Key, dict[str, Any] | RpcError]]:
        """Sends several streaming requests and yields what comes, until all have ended.

        Args:
            requests: topic and payload of each, by a key of the caller's.

        Returns:
            Key and response in the order of arrival. A stream's bad end is yielded as its
            `RpcError` and does not end the others.

        Raises:
            NoInstanceError: the connection was lost.
        """
        arrived: deque[Message] = deque()
        keys: dict[int, Key] = {}
        try:
            for key, (topic, payload) in requests.items():
                keys[self._send(topic, payload, STREAMING, arrived)] = key
            while keys:
                message = self._receive(arrived)
                key = keys[message.matchtag]
                if message.errnum:
                    del keys[message.matchtag], self._arrived[message.matchtag]
                    if message.errnum != errno.ENODATA:
                        yield key, error_of(message)
                else:
                    yield key, payload_of(message)
        finally:
            for tag in keys:
                self._arrived.pop(tag, None)

    # --- jobs

    def submit(
        self, jobspec: Mapping[str, Any], *, urgency: int = 16, count: int | None = None
    ) -> Any:
        """Submits a job, or `count` copies of it. They are on disk when this returns.

        Args:
            jobspec: jobspec V1 (RFC 25), for instance from `penstock.jobspec.from_command`.
            urgency: 0 (hold) to 31 (expedite), RFC 30.
            count: how many copies.

        Returns:
            The job's id, or with `count` the list of ids.

        Raises:
            RpcError: the jobspec is invalid, or the site's policy does not allow it.
        """
        request: dict[str, Any] = {"jobspec": jobspec, "urgency": urgency}
        if count is None:
            return self.rpc("job-ingest.submit", request)["id"]
        return self.rpc("job-ingest.submit", request | {"count": count})["ids"]

    def submit_many(self, jobs: Sequence[Mapping[str, Any]]) -> list[list[int] | RpcError]:
        """Submits many jobspecs in as few requests as they fit in.

        Args:
            jobs: mappings with `jobspec` and, as needed, `urgency` and `count`.

        Returns:
            For each the list of its ids, or its error: one bad jobspec does not harm the others.

        Raises:
            JobspecError: a jobspec that has no JSON form; nothing is submitted.
            RpcError: nobody may submit, or this user may not.
        """
        return [
            RpcError(errno.EINVAL, result["error"]) if "error" in result else result["ids"]
            for request in submissions(jobs)
            for result in self.rpc("job-ingest.submit", request)["results"]
        ]

    def jobs(
        self,
        *,
        ids: Sequence[int] | None = None,
        constraint: Mapping[str, Any] | None = None,
        max_entries: int = 0,
    ) -> list[Row]:
        """Jobs as rows, newest first.

        Args:
            ids: only these jobs.
            constraint: in the manner of RFC 43, such as `{"states": ["active"]}`.
            max_entries: at most so many; 0 for all.
        """
        request: dict[str, Any] = {"max_entries": max_entries, "attrs": ["all"], "since": 0.0}
        if ids is not None:
            request["ids"] = list(ids)
        if constraint is not None:
            request["constraint"] = constraint
        return [row for part in self.stream("job-list.list", request) for row in part["jobs"]]

    def wait(self, ids: Iterable[int]) -> Iterator[Row]:
        """Yields each job's row as the job becomes inactive."""
        for part in self.stream("job-list.wait", {"ids": list(ids)}):
            yield from part["jobs"]

    def cancel(
        self, ids: Iterable[int] | None = None, *, note: str = "", userid: int | None = None
    ) -> tuple[int, dict[int, str]]:
        """Cancels jobs: these, or all active ones (of a user).

        Returns:
            How many were cancelled, and for each other one why not.
        """
        request: dict[str, Any] = {"type": "cancel", "severity": 0, "note": note}
        request |= {"all": True} if ids is None else {"ids": list(ids)}
        if userid is not None:
            request["userid"] = userid
        answer = self.rpc("job-manager.raise", request)
        return answer["count"], {int(job): text for job, text in answer["errors"].items()}

    def lookup(self, job: int, *keys: str) -> dict[str, str]:
        """A job's documents as text: `eventlog`, `jobspec`, `R`."""
        return self.rpc("job-info.lookup", {"id": job, "keys": list(keys), "flags": 0})

    def eventlog(self, job: int, *, follow: bool = False) -> Iterator[str]:
        """The lines of a job's eventlog (RFC 18); with `follow` until the job is over."""
        if follow:
            request = {"id": job, "path": "eventlog", "flags": 0}
            for part in self.stream("job-info.eventlog-watch", request):
                yield part["event"]
        else:
            yield from self.lookup(job, "eventlog")["eventlog"].splitlines(keepends=True)

    def output(
        self, job: int, *, follow: bool = False, streams: Sequence[str] = ("stdout", "stderr")
    ) -> Iterator[tuple[str, bytes]]:
        """A job's kept output, as pairs of stream name and bytes; with `follow` to its end."""
        request = {"id": job, "follow": follow, "streams": list(streams)}
        for part in self.stream("job-exec.output", request):
            yield part["stream"], base64.b64decode(part["data"])

    # --- the instance

    def resource_status(self) -> dict[str, Any]:
        """R, drained, offline and excluded targets."""
        return self.rpc("resource.status")

    def drain(self, targets: str, reason: str = "") -> None:
        """Keeps targets (an idset of ranks, or a hostlist) from getting jobs."""
        self.rpc("resource.drain", {"targets": targets, "reason": reason})

    def undrain(self, targets: str) -> None:
        """Lets drained targets have jobs again."""
        self.rpc("resource.undrain", {"targets": targets})

    def config(self) -> dict[str, Any]:
        """The instance's effective configuration."""
        return self.rpc("config.get")

    def shutdown(self) -> None:
        """Stops the instance: running jobs are cancelled, pending ones stay for its next start."""
        self.rpc("broker.shutdown")


def payload_of(message: Message) -> dict[str, Any]:
    """A response's object, `{}` where it is empty.

    Raises:
        RpcError: the response is an error.
    """
    if message.errnum:
        raise error_of(message)
    payload = message.object()
    return payload if isinstance(payload, dict) else {}


def error_of(message: Message) -> RpcError:
    """What an error response says."""
    return RpcError(message.errnum, message.error_text or os.strerror(message.errnum))


def submissions(jobs: Iterable[Mapping[str, Any]], *, limit: int = MAX_SUBMISSION) -> list[bytes]:
    """Bulk requests for `job-ingest.submit`, none much longer than `limit` bytes.

    Raises:
        JobspecError: a job has no JSON form.
    """
    requests: list[bytes] = []
    part: list[bytes] = []
    size = 0
    for job in jobs:
        try:
            encoded = json.dumps(job, ensure_ascii=False, separators=(",", ":")).encode()
        except (TypeError, ValueError) as error:
            raise JobspecError(f"the jobspec has no JSON form: {error}") from error
        if part and size + len(encoded) > limit:
            requests.append(_bulk(part))
            part, size = [], 0
        part.append(encoded)
        size += len(encoded) + 1
    if part:
        requests.append(_bulk(part))
    return requests


def _bulk(jobs: list[bytes]) -> bytes:
    return b'{"jobs":[' + b",".join(jobs) + b"]}\0"
