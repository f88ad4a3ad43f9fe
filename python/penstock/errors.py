"""The exceptions of Penstock.

Every one that reaches a caller derives from `Error`, and from the built-in exception that a caller
would guess: `ValueError` for invalid input, `LookupError` for a missing item, `OSError` for an
error with a number. `ProtocolError` and `RequestError` stay within a
service, `DetachedError` within a command.
`PanicException` is a panic in the compiled core, a defect of Penstock; it is no `Exception`.
"""

from penstock._core import PanicException, pmix_status

# `typing` would be most of what `import penstock` costs.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from penstock._core import Batch

__all__ = [
    "AddressError",
    "BadHostlist",
    "ConfigError",
    "DeniedError",
    "DetachedError",
    "DirectiveError",
    "EngineError",
    "Error",
    "FailuresError",
    "FilesError",
    "ForbiddenError",
    "FormatError",
    "HostlistError",
    "IdsetError",
    "InventoryError",
    "JobException",
    "JobspecError",
    "LayoutError",
    "MachineError",
    "MendedWarning",
    "NoInstanceError",
    "NotFoundError",
    "OutputError",
    "PanicException",
    "PmixError",
    "PolicyError",
    "ProtocolError",
    "RecordingError",
    "RequestError",
    "ResourceSetError",
    "RpcError",
    "ScriptError",
    "StartError",
    "StoreError",
    "TargetError",
    "TooManyListenersError",
    "TraceError",
    "UsageError",
    "WireError",
    "WorkloadError",
]


class Error(Exception):
    """Base of all exceptions that Penstock raises on purpose."""


class MendedWarning(UserWarning):
    """A text was read with `lenient=True`, and something in it had to be mended."""


class IdsetError(Error, ValueError):
    """A text is not an idset (RFC 22), or a number is not an id.

    Attributes:
        offset: Byte of the text (in UTF-8) at which the error was found; None if there is no
            text.
    """

    offset: int | None = None


class HostlistError(Error, ValueError):
    """A text is not a hostlist or host name (RFC 29), or a list would become too long.

    Attributes:
        offset: Byte of the text (in UTF-8) at which the error was found; None if there is no
            text.
    """

    offset: int | None = None


class ResourceSetError(Error, ValueError):
    """A document is not an R (RFC 20), or an operation on one is rejected.

    Attributes:
        path: Where in the document, such as `execution.R_lite[0].rank`; None if unknown.
        offset: Byte of the text at which the error was found; None if unknown.
    """

    path: str | None = None
    offset: int | None = None


class JobspecError(Error, ValueError):
    """A document is not a jobspec (RFC 25), or a part of one is bad.

    The same goes for durations (RFC 23), constraints (RFC 31) and job ids (RFC 19) by themselves.
    """


class WireError(Error, ValueError):
    """Bytes are not a message (RFC 3), or a payload does not have its declared format.

    Attributes:
        offset: Byte at which the error was found; None if unknown.
        messages: Messages that a decoder read before the invalid frame; None if no decoder failed.
    """

    offset: int | None = None
    messages: "Batch | None" = None


class EngineError(Error, ValueError):
    """A request contradicts the engine's state.

    For instance a job is submitted twice, or resources are allocated already or unknown.
    """


class NotFoundError(Error, LookupError):
    """A requested item does not exist: a job, a host, a rank, a service."""


class LayoutError(Error, ValueError):
    """The tasks of a job cannot be placed on its R: it has less than the jobspec asks for."""


class TargetError(Error, ValueError):
    """Execution targets are unknown, or cannot change their state; the text names all."""


class StoreError(Error, OSError):
    """The store of an instance cannot be opened, read or written; the text says what and why."""


class RpcError(Error, OSError):
    """A service answered with an error.

    Args:
        errno: The error number, as in the module `errno`.
        strerror: The text of the service, or the number's usual text.
    """


class WorkloadError(Error, ValueError):
    """A workload cannot be read or generated, or a simulation of it is rejected.

    Attributes:
        line: Line of the file with the error, counted from 1; None if unknown.
    """

    line: int | None = None


class StartError(Error):
    """An instance cannot be started; the text says why, and how to start it."""


class AddressError(Error, ValueError):
    """The address of an instance is of an unsupported kind."""


class ConfigError(Error, ValueError):
    """A configuration is invalid.

    Attributes:
        problems: Every problem, each with the dotted path of its key.
    """

    def __init__(self, name: str, problems: list[str]) -> None:
        super().__init__("\n".join(f"{name}: {problem}" for problem in problems))
        self.problems = problems


class NoInstanceError(Error, ConnectionError):
    """No instance listens at the address, or the connection was rejected or lost."""


class JobException(Error, RuntimeError):  # noqa: N818 - RFC 21 calls it an exception
    """A job's fatal exception (RFC 21): it was denied, cancelled, timed out or could not run.

    Attributes:
        jobid: The job.
        type: The exception's type, such as `alloc`, `cancel`, `timeout` or `exec`.
        severity: 0.
        note: Human-readable text; may be empty.
    """

    def __init__(self, jobid: int, type: str, severity: int, note: str) -> None:  # noqa: A002
        super().__init__(jobid, type, severity, note)
        self.jobid = jobid
        self.type = type
        self.severity = severity
        self.note = note

    def __str__(self) -> str:
        return f"{self.type}: {self.note}" if self.note else self.type


# The names of the `pmix_status_t` values that deny a request.
_PMIX_DENIALS = {
    pmix_status.NO_PERMISSIONS: "no permission",
    pmix_status.TIMEOUT: "timeout",
    pmix_status.UNREACHABLE: "unreachable",
    pmix_status.BAD_PARAM: "bad parameter",
    pmix_status.OUT_OF_RESOURCE: "out of resources",
    pmix_status.NOT_FOUND: "not found",
    pmix_status.NOT_SUPPORTED: "not supported",
    pmix_status.CANCELED: "cancelled",
}


class DeniedError(Error, OSError):
    """A request of a running job was not granted (PMIx RFC 0005).

    Attributes:
        status: The PMIx status, such as -29.
        reason: The reason, in words.
    """

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(f"{_PMIX_DENIALS.get(status, 'denied')} ({status}): {reason}")
        self.status = status
        self.reason = reason


class DirectiveError(Error, ValueError):
    """A submission directive (RFC 36) cannot be read; the text names the line."""


class ScriptError(DirectiveError):
    """A script cannot be submitted."""


class UsageError(Error, ValueError):
    """Options or arguments of a command contradict each other; the text says which."""


class FormatError(Error, ValueError):
    """An output format names an unknown field, or cannot be read."""


class TraceError(Error, ValueError):
    """A trace cannot be read; the text says which one and why."""


class PolicyError(Error, ValueError):
    """A policy of one's own cannot be read, or does not work with an option of the simulation."""


class MachineError(Error, ValueError):
    """The machine to simulate cannot be determined; the text says what is wrong and where."""


class FailuresError(Error, ValueError):
    """The node failures to simulate cannot be read; the text says what is wrong and where."""


class FilesError(Error, ValueError):
    """The files of a simulation's results cannot be written; the text says why."""


class InventoryError(Error, ValueError):
    """The inventory cannot be determined; the text says what is wrong and where."""


class RecordingError(Error, ValueError):
    """A file is not a recording of messages; the text names the line."""


class OutputError(Error, OSError):
    """An output file cannot be opened, or its template cannot be filled in."""


class BadHostlist(Error):  # noqa: N818 - the name in python-hostlist
    """A text is not a hostlist in the sense of `penstock.compat.hostlist`, or it is too large."""


class PmixError(Error):
    """The PMIx server of a job cannot be started."""


class ProtocolError(RuntimeError):
    """A response that RFC 32 does not allow now: a fault of this service, not of its peer."""


class RequestError(Exception):
    """A request is rejected.

    Args:
        errnum: the errno of the response.
        text: the reason, for the requester; empty for the errno's usual text.
    """

    def __init__(self, errnum: int, text: str = "") -> None:
        super().__init__(errnum, text)
        self.errnum = errnum
        self.text = text


class TooManyListenersError(Exception):
    """A page of `penstock web` cannot be live: too many are open."""


class ForbiddenError(Exception):
    """The reader of a page of `penstock web` lacks the permission for an action."""


class DetachedError(Exception):
    """The user has detached a command from its jobs, which continue."""
