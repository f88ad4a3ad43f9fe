"""The blocking client; see `penstock.client`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

from penstock.client import calls
from penstock.client.calls import submissions
from penstock.client.connection import Connection
from penstock.client.methods import Methods
from penstock.errors import JobspecError, RpcError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from penstock.rows import JobRow, Submission

__all__ = ["Client"]


class Client(Connection, Methods):
    """A connection to an instance with a method for each common request.

    Every method raises `RpcError` if the instance rejects the request, and `NoInstanceError` if
    the connection is lost.

    Args:
        uri: `local:///path`; by default `$PENSTOCK_URI`, else the default socket.
        timeout: Seconds to wait for each message; None for no limit.

    Raises:
        NoInstanceError: no instance listens there.
    """

    @overload
    def submit(
        self,
        jobspec: Mapping[str, Any],
        *,
        urgency: int = 16,
        count: None = None,
        flags: int = 0,
    ) -> int: ...

    @overload
    def submit(
        self, jobspec: Mapping[str, Any], *, urgency: int = 16, count: int, flags: int = 0
    ) -> list[int]: ...

    def submit(
        self,
        jobspec: Mapping[str, Any],
        *,
        urgency: int = 16,
        count: int | None = None,
        flags: int = 0,
    ) -> int | list[int]:
        """Submits a job, or `count` copies of it. They are durable when this returns.

        Args:
            jobspec: Jobspec V1 (RFC 25), for instance from `penstock.jobspec.from_command`.
            urgency: 0 (hold) to 31 (expedite), RFC 30.
            count: The number of copies.
            flags: The flags of the `submit` event (RFC 21).

        Returns:
            The job's id, or with `count` the list of ids.

        Raises:
            JobspecError: the jobspec has no JSON form, or exceeds the size limit.
            RpcError: the jobspec is invalid, or the site's policy rejects it.
        """
        return self.do(calls.submit(jobspec, urgency, count, flags))

    def submit_many(self, jobs: Iterable[Submission]) -> list[list[int] | RpcError | JobspecError]:
        """Submits many jobspecs in the fewest requests that hold them.

        Args:
            jobs: Mappings with `jobspec` and, as needed, `urgency`, `count` and `flags`.

        Returns:
            For each the list of its ids, or its error: an invalid jobspec does not affect the
            others. `RpcError` is the instance's, `JobspecError` that of one that cannot be sent.
        """
        many = submissions(jobs)
        results: list[list[list[int] | RpcError] | RpcError] = []
        for _, call in many.batches:
            try:
                results.append(self.do(call))
            except RpcError as error:
                results.append(error)
        return many.results(results)

    def wait_one(self, job: int) -> JobRow:
        """A job's row once it is inactive."""
        with self.wait([job]) as rows:
            return next(rows)
