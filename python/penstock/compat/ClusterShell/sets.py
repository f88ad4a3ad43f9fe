"""Set algebra and its operators, by the in-place methods of a class."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Generic, Self, TypeVar

Operand_contra = TypeVar("Operand_contra", contravariant=True)


class SetAlgebra(Generic[Operand_contra]):
    """Base of a mutable set: its subclass has `copy` and the four methods that change it."""

    __slots__ = ()

    @abstractmethod
    def copy(self) -> Self:
        """A copy."""

    @abstractmethod
    def update(self, other: Operand_contra, /) -> None:
        """Adds the elements of `other`."""

    @abstractmethod
    def intersection_update(self, other: Operand_contra, /) -> None:
        """Keeps only the elements that are also in `other`."""

    @abstractmethod
    def difference_update(self, other: Operand_contra, /) -> None:
        """Removes the elements of `other`."""

    @abstractmethod
    def symmetric_difference_update(self, other: Operand_contra, /) -> None:
        """Keeps the elements that are in exactly one of this set and `other`."""

    @abstractmethod
    def _is_set(self, other: object) -> bool:
        """Whether an operator takes `other`."""

    def _is_set_in_place(self, other: object) -> bool:
        """Whether an operator that changes this set takes `other`; may raise `TypeError` itself."""
        return self._is_set(other)

    def union(self, other: Operand_contra) -> Self:
        """The elements of either set."""
        made = self.copy()
        made.update(other)
        return made

    def intersection(self, other: Operand_contra) -> Self:
        """The elements of both sets."""
        made = self.copy()
        made.intersection_update(other)
        return made

    def difference(self, other: Operand_contra) -> Self:
        """The elements that are not in `other`."""
        made = self.copy()
        made.difference_update(other)
        return made

    def symmetric_difference(self, other: Operand_contra) -> Self:
        """The elements that are in exactly one of the sets."""
        made = self.copy()
        made.symmetric_difference_update(other)
        return made

    def __or__(self, other: Any) -> Self:
        return self.union(other) if self._is_set(other) else NotImplemented

    def __and__(self, other: Any) -> Self:
        return self.intersection(other) if self._is_set(other) else NotImplemented

    def __sub__(self, other: Any) -> Self:
        return self.difference(other) if self._is_set(other) else NotImplemented

    def __xor__(self, other: Any) -> Self:
        return self.symmetric_difference(other) if self._is_set(other) else NotImplemented

    def __ior__(self, other: Any) -> Self:
        if not self._is_set_in_place(other):
            return NotImplemented
        self.update(other)
        return self

    def __iand__(self, other: Any) -> Self:
        if not self._is_set_in_place(other):
            return NotImplemented
        self.intersection_update(other)
        return self

    def __isub__(self, other: Any) -> Self:
        if not self._is_set_in_place(other):
            return NotImplemented
        self.difference_update(other)
        return self

    def __ixor__(self, other: Any) -> Self:
        if not self._is_set_in_place(other):
            return NotImplemented
        self.symmetric_difference_update(other)
        return self
