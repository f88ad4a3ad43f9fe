"""Failures of services: why, and the responses to their requests."""

from __future__ import annotations

import errno
from dataclasses import dataclass

from penstock.errors import StoreError

# Why the store fails, by errno, in the words for users.
STORE_CAUSES = {
    errno.ENOSPC: "the disk is full",
    errno.EBUSY: "another program holds a lock of the database",
    errno.EIO: "input/output error",
    errno.ESTALE: "its files were removed, replaced or truncated, see the instance's log",
}
# The errors of requests to a service that has failed (`Failure.of`).
FAILED_SERVICE_ERRNOS = frozenset({*STORE_CAUSES, errno.EIO})


@dataclass(frozen=True)
class Failure:
    """Why a service has failed: the errno and the text of the responses to its requests."""

    errnum: int
    text: str

    @classmethod
    def of(cls, fault: BaseException) -> Failure:
        """The failure of a service that a fault has left; the fault itself is for the log only."""
        if isinstance(fault, StoreError):
            number = fault.errno or errno.EIO
            cause = STORE_CAUSES.get(number, "see the instance's log")
            return cls(number, f"the store cannot be written: {cause}")
        return cls(errno.EIO, "the service has failed")
