"""Submission directives (RFC 36)."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.directives import DirectiveError, parse


def words(text):
    return [word for directive in parse(text) for word in directive.words]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("#!/bin/sh\nhostname\n", []),
        ("# flux: -N4 # -c2 : comment out for now\n", ["-N4"]),
        ("#FLUX: -N4     # four\n#FLUX: --queue=batch\nflux run\n", ["-N4", "--queue=batch"]),
        ("#penstock: -n2\r\n", ["-n2"]),
        ("#PENSTOCK:-n2\n", ["-n2"]),
        ("--\n-- flux: -N1 --exclusive\n-- flux: -o x\n", ["-N1", "--exclusive", "-o", "x"]),
        ("# Set\n#FLUX: -N1\n# Name:\n\n#FLUX: --job-name=a\nhostname\n", ["-N1", "--job-name=a"]),
        (
            '"""\nflux: --nodes=4\n\nSet it:\nflux: --setattr=user.foo="hello, earth"\n"""\n',
            ["--nodes=4", "--setattr=user.foo=hello, earth"],
        ),
        ("""# flux: --setattr=user.data='{"a": "b"}'\n""", ['--setattr=user.data={"a": "b"}']),
        ("""# flux: --job-name='''It's a "job"'''\n""", ["""--job-name=It's a "job\""""]),
        ('# flux: a"""{"key": 42}"""b\n', ['a{"key": 42}b']),
        (r'# flux: a\ b "c\"\d" ' + "'e\\f' ''\n", ["a b", 'c"\\d', "e\\f", ""]),
        ("echo flux: -N1\n", []),
        # Commands before the first directive do not end the search.
        ("#!/bin/sh\necho hi\necho ho\n#FLUX: -N1\n#FLUX: -n2\n", ["-N1", "-n2"]),
        ("# fluxion: -N1\n", []),
    ],
)
def test_directives_of_the_specification(text, expected):
    assert words(text) == expected


def test_a_multiline_text_loses_its_indentation_and_its_first_line_end():
    text = (
        '# flux: --setattr=user.conf="""\n# flux: [config]\n# flux:   item = "foo"\n'
        '# flux: """\n# flux: -N1\n'
    )
    first, second = parse(text)
    assert first.words == ('--setattr=user.conf=[config]\n  item = "foo"\n',)
    assert (second.line, second.words) == (5, ("-N1",))


def test_a_docstring_of_python():
    text = f"""#!/usr/bin/env python3
def main():
    \"\"\"
    flux: -N4
    flux: --job-name="my python job"
{" " * 4}
    # Set some arbitrary user data:
    flux: --setattr=user.data='''
    flux: x, y, z
    flux: a, b, c
    flux: '''
    \"\"\"
    run()
"""
    assert words(text) == [
        "-N4",
        "--job-name=my python job",
        "--setattr=user.data=x, y, z\na, b, c\n",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("#!/bin/sh\n#FLUX: -N1\nhostname\n#FLUX: -n2\n", "line 4: a directive after line 3"),
        ("# flux: -N1\n#x\n# flux: -n2\n", "line 3: a directive after line 2"),
        ("# flux: -N1\n# FLUX: -n2\n", "line 2: expected `# flux:` as in the first"),
        ("# flux: -N1\n# penstock: -n2\n", "line 2: expected `# flux:` as in the first"),
        ("# flux: 'a\n", "line 1: expected a closing '"),
        ('#\n# flux: "a\\"\n', 'line 2: expected a closing "'),
        ('# flux: """a\n# flux: b"""\n', 'line 1: expected """ at the end of the line'),
        ('# flux: """\n# b\n# flux: """\n', 'line 1: expected closing """'),
        ('# flux: """\n', 'line 1: expected closing """'),
    ],
)
def test_an_invalid_directive_is_named_by_its_line(text, message):
    with pytest.raises(DirectiveError) as caught:
        parse(text)
    assert str(caught.value).startswith(message)


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Zl", "Zp"]))))
def test_quoted_words_come_back(expected):
    line = "#flux: " + " ".join(shlex.quote(word) for word in expected)
    if "'''" not in line and '"""' not in line:
        assert words(line) == expected
