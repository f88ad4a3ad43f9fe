"""The exceptions of Penstock.

Every one derives from `Error`, and from the built-in exception that a caller would guess:
`ValueError` for what cannot be read or is refused, `LookupError` for what is not there, `OSError`
for what a service answered with an error number.
"""

# `typing` would be most of what `import penstock` costs.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from penstock._core import Batch

__all__ = [
    "EngineError",
    "Error",
    "HostlistError",
    "IdsetError",
    "JobspecError",
    "MendedWarning",
    "NotFoundError",
    "ResourceSetError",
    "RpcError",
    "StartError",
    "StoreError",
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
        offset: Byte of the text (in UTF-8) at which the fault was found; None where there is no
            text to blame.
    """

    offset: int | None = None


class HostlistError(Error, ValueError):
    """A text is not a hostlist or host name (RFC 29), or a list would become too long.

    Attributes:
        offset: Byte of the text (in UTF-8) at which the fault was found; None where there is no
            text to blame.
    """

    offset: int | None = None


class ResourceSetError(Error, ValueError):
    """A document is not an R (RFC 20), or an operation on one is refused.

    Attributes:
        path: Where in the document, such as `execution.R_lite[0].rank`; None where that is not
            known.
        offset: Byte of the text at which the fault was found; None where that is not known.
    """

    path: str | None = None
    offset: int | None = None


class JobspecError(Error, ValueError):
    """A document is not a jobspec (RFC 25), or a part of one is bad.

    The same goes for durations (RFC 23), constraints (RFC 31) and job ids (RFC 19) by themselves.
    """


class WireError(Error, ValueError):
    """Bytes are not a message (RFC 3), or a payload is not what it says it is.

    Attributes:
        offset: Byte at which the fault was found; None where that is not known.
        index: Position in its batch of the message whose payload it is; None for anything else.
        messages: What a decoder read before the frame at fault; None where no decoder failed.
    """

    offset: int | None = None
    index: int | None = None
    messages: "Batch | None" = None


class EngineError(Error, ValueError):
    """The engine is asked for what contradicts what it knows.

    Such as a job twice, or resources that are taken or unknown.
    """


class NotFoundError(Error, LookupError):
    """What was asked for is not there: a job, a host, a rank, a service."""


class StoreError(Error, OSError):
    """The store of an instance cannot be opened, read or written; the text says what and why."""


class RpcError(Error, OSError):
    """A service answered with an error.

    Args:
        errno: The error number, as in the module `errno`.
        strerror: What the service said, or the number's usual text.
    """


class WorkloadError(Error, ValueError):
    """A workload cannot be read or made, or a simulation of it is refused.

    Attributes:
        line: Line of the file at fault, counted from 1; None where that is not known.
    """

    line: int | None = None


class StartError(Error):
    """An instance cannot be started; the text says why, and how to start it."""
