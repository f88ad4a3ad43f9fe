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
"""

from penstock._core import fluid_dothex, fluid_f58, fluid_parse

__all__ = ["dothex", "f58", "parse"]


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
