"""The exceptions of ClusterShell's modules, with their names and their hierarchy.

They derive from `penstock.errors.Error` besides. They are not in `penstock.errors`, so that
`import penstock` does not pay for them.
"""

from __future__ import annotations

from penstock.errors import Error

__all__ = [
    "GroupResolverConfigError",
    "GroupResolverError",
    "GroupResolverIllegalCharError",
    "GroupResolverSourceError",
    "GroupSourceError",
    "GroupSourceNoUpcall",
    "GroupSourceQueryFailed",
    "NodeSetError",
    "NodeSetException",
    "NodeSetExternalError",
    "NodeSetParseError",
    "NodeSetParseRangeError",
    "RangeSetException",
    "RangeSetPaddingError",
    "RangeSetParseError",
]


class RangeSetException(Error):  # noqa: N818 - ClusterShell's name
    """Base of the exceptions of `RangeSet`."""


class RangeSetParseError(RangeSetException):
    """A text is not a set of indexes.

    Attributes:
        part: The part of the text with the error.
    """

    def __init__(self, part: str | None, msg: str) -> None:
        super().__init__(f'{msg} : "{part}"' if part else msg)
        self.part = part


class RangeSetPaddingError(RangeSetParseError):
    """The padding of an index is wrong.

    Like ClusterShell 1.10, this module raises `RangeSetParseError` only.
    """

    def __init__(self, part: str | None, msg: str) -> None:
        super().__init__(part, f"padding mismatch ({msg})")


class NodeSetException(Error):  # noqa: N818 - ClusterShell's name
    """Base of the exceptions of `NodeSet`."""


class NodeSetError(NodeSetException):
    """A set cannot be made or shown."""


class NodeSetParseError(NodeSetError):
    """A text is not a node set.

    Attributes:
        part: The part of the text with the error.
    """

    def __init__(self, part: str, msg: str) -> None:
        super().__init__(f'{msg} : "{part}"' if part else msg)
        self.part = part


class NodeSetParseRangeError(NodeSetParseError):
    """The indexes of a name are not a set of indexes."""

    def __init__(self, rset_exc: Exception) -> None:
        super().__init__("", str(rset_exc))


class NodeSetExternalError(NodeSetError):
    """A source of groups cannot answer."""


class GroupSourceError(Error):
    """A group source cannot answer.

    Attributes:
        group_source: The source.
    """

    def __init__(self, message: str, group_source: object) -> None:
        super().__init__(message)
        self.group_source = group_source


class GroupSourceNoUpcall(GroupSourceError):  # noqa: N818 - ClusterShell's name
    """A group source has no call for a question."""


class GroupSourceQueryFailed(GroupSourceError):  # noqa: N818 - ClusterShell's name
    """The command of a group source failed, or its output is invalid."""


class GroupResolverError(Error):
    """Base of the exceptions of resolvers."""


class GroupResolverSourceError(GroupResolverError):
    """There is no such group source."""


class GroupResolverIllegalCharError(GroupResolverError):
    """The name of a group has a character that no name may have."""


class GroupResolverConfigError(GroupResolverError):
    """A configuration file of groups is invalid."""
