"""The levels of vector instructions, which `PENSTOCK_SIMD` limits: all have the same results."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

LEVELS = ["baseline", "avx2", "avx512"]

#: Compares operations on sets of all forms with those on Python's sets, and prints the level.
PROGRAM = """
import operator, random
from penstock import IDset, _core

draw = random.Random(5)

def ranges(most):
    found = set()
    for first in draw.sample(range(200_000), 2_000):
        found.update(range(first, first + draw.randint(1, most)))
    return found

FORMS = [
    set(draw.sample(range(200_000), 100_000)),
    set(draw.sample(range(200_000), 2_000)),
    set(draw.sample(range(200_000), 20)),
    set(draw.sample(range(70_000, 71_000), 700)),
    ranges(3),
    ranges(40),
    set(range(1_000, 170_000)),
    set(range(0, 65_536)),
    {0, 65_535, 65_536, 131_071},
    set(range(65_536)) - {40},
]
OPERATIONS = [operator.or_, operator.and_, operator.sub, operator.xor]
for left in FORMS:
    for right in FORMS:
        for operation in OPERATIONS:
            made = operation(IDset(left), IDset(right))
            expected = operation(left, right)
            assert len(made) == len(expected) and set(made) == expected
            assert IDset(str(made)) == made == IDset(expected)
        sets = IDset(left), IDset(right)
        assert (sets[0] <= sets[1]) == (left <= right)
        assert sets[0].isdisjoint(sets[1]) == left.isdisjoint(right)
        assert (sets[0] == sets[1]) == (left == right)
print(_core.SIMD_LEVEL)
"""


def run(program, level, *options):
    environment = os.environ | {"PENSTOCK_SIMD": level}
    path = f"import sys; sys.path[:0] = {sys.path!r}\n"
    command = [sys.executable, *options, "-c", path + program]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


@pytest.mark.parametrize("level", LEVELS)
def test_each_level_has_the_results_of_sets(level):
    done = run(PROGRAM, level)
    assert done.stderr == ""
    used = done.stdout.strip()
    if used != level:
        # It is a limit: a processor without these instructions uses the best that it has.
        assert LEVELS.index(used) < LEVELS.index(level)
        pytest.skip(f"this processor has {used} at most, not {level}")


@pytest.mark.parametrize("value", ["avx3", "", "AVX2", "avx2 "])
def test_a_value_that_names_no_level_is_warned_about(value):
    level = "from penstock import IDset, _core; print(_core.SIMD_LEVEL)"
    done = run(f"{level}; print(IDset('0-3') | IDset('5'))", value)
    expected = "expected `baseline`, `avx2` or `avx512`"
    [line] = [line for line in done.stderr.splitlines() if "RuntimeWarning" in line]
    assert f'invalid environment variable PENSTOCK_SIMD="{value}": {expected}' in line
    assert done.stdout == run(level, "avx512").stdout + "0-3,5\n"


def test_a_warning_about_the_level_can_be_an_error():
    done = run("import penstock", "avx3", "-W", "error")
    assert done.returncode == 1
    assert 'RuntimeWarning: invalid environment variable PENSTOCK_SIMD="avx3"' in done.stderr
