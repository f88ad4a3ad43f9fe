"""Job ids (RFC 19) in the forms that people and the store see.

A job id is a FLUID: a number of 64 bits that grows with time. Messages carry the number, people
see it in base 58, and keys of the store have it in dotted hexadecimal.

>>> from penstock import jobid
>>> jobid.f58(6731191091817518)
'ƒuZZybuNNy'
>>> jobid.dothex(6731191091817518)
'0017.e9fb.8df1.6c2e'
>>> jobid.parse("ƒuZZybuNNy")
6731191091817518

`JobId` is a number that shows itself in base 58:

>>> job = jobid.JobId("ƒuZZybuNNy")
>>> print(job, job == 6731191091817518)
ƒuZZybuNNy True
"""

from penstock._core import fluid_dothex, fluid_f58, fluid_parse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Self

__all__ = ["JobId", "dothex", "f58", "parse"]


class JobId(int):
    """A job id: an `int` that prints in base 58.

    In a format without a type it is text, with one (`d`, `x`) a number.

    Args:
        job: a number, or a text in any of the forms of `parse`.

    Raises:
        JobspecError: the text is not a job id.
        OverflowError: the number is negative, or does not fit into 64 bits.
    """

    __slots__ = ()

    def __new__(cls, job: int | str) -> "Self":
        """Checks the number."""
        number = fluid_parse(job) if isinstance(job, str) else job
        fluid_f58(number)
        return super().__new__(cls, number)

    @property
    def f58(self) -> str:
        """In base 58, as people see it."""
        return fluid_f58(int(self))

    @property
    def dothex(self) -> str:
        """In dotted hexadecimal, as the store's keys have it."""
        return fluid_dothex(int(self))

    def __str__(self) -> str:
        return self.f58

    def __repr__(self) -> str:
        return f"JobId({self.f58!r})"

    def __format__(self, layout: str) -> str:
        if layout and layout[-1] in "bcdoxXneEfFgG%":
            return format(int(self), layout)
        return format(self.f58, layout)


def parse(text: str) -> int:
    """The number of a job id in any of its forms.

    >>> parse("ƒuZZybuNNy") == parse("fuZZybuNNy") == parse("0017.e9fb.8df1.6c2e")
    True
    >>> parse("0x17e9fb8df16c2e") == parse("6731191091817518")
    True

    Args:
        text: base 58, with `ƒ` or `f` in front; dotted hexadecimal; hexadecimal, with `0x`; or
            decimal.

    Raises:
        JobspecError: the text is not a job id in any of these forms.
    """
    return fluid_parse(text)


def f58(job: int) -> str:
    """A job id in base 58, as people see it.

    >>> f58(0)
    'ƒ1'

    Raises:
        OverflowError: the number is negative, or does not fit into 64 bits.
    """
    return fluid_f58(job)


def dothex(job: int) -> str:
    """A job id in dotted hexadecimal, as the store's keys have it.

    >>> f"job.{dothex(6731191091817518)}.R"
    'job.0017.e9fb.8df1.6c2e.R'

    Raises:
        OverflowError: the number is negative, or does not fit into 64 bits.
    """
    return fluid_dothex(job)
