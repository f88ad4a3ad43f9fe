"""Text of other users on a terminal."""

from __future__ import annotations

import json
import logging

import pytest

from penstock.cli.logformat import LogFormatter
from penstock.cli.text import json_text, safe, safe_json, safe_lines

UNSAFE_TEXT = "ev\x1b[31mil\nrow\t\r\x00\x7f\x9b\u200b\ufeff\u2028\u202e\udcff"
ESCAPED_TEXT = r"ev\x1b[31mil\nrow\t\r\x00\x7f\x9b\u200b\ufeff\u2028\u202e\udcff"


@pytest.mark.parametrize("text", ["", "plain", "ƒ3ajkTq", "naïve 日本 🙂", "back\\slash", "a\xa0b"])
def test_printable_text_is_unchanged(text):
    assert safe(text) == text
    assert safe_json(json_text(text)) == json.dumps(text, ensure_ascii=False)


def test_control_characters_are_escaped():
    assert safe(UNSAFE_TEXT) == ESCAPED_TEXT
    assert safe_lines("a\n\x1b\nb", indent="  ") == "a\n  \\x1b\n  b"


def test_json_stays_json():
    value = {"a": UNSAFE_TEXT, UNSAFE_TEXT: [1]}
    text = json_text(value)
    assert text.isprintable()
    assert json.loads(text) == value
    document = '{\n\t"a": "\x9b\x7fƒ"\r\n}'
    assert safe_json(document) == '{\n\t"a": "\\u009b\\u007fƒ"\r\n}'
    assert json.loads(safe_json(document)) == json.loads(document)


def test_a_log_line_is_one_line_and_a_traceback_several():
    formatter = LogFormatter("%(name)s: %(message)s")
    record = logging.makeLogRecord({"name": "penstock", "msg": "job %s", "args": (UNSAFE_TEXT,)})
    assert formatter.format(record) == f"penstock: job {ESCAPED_TEXT}"
    try:
        raise ValueError(UNSAFE_TEXT)
    except ValueError as error:
        record.exc_info = type(error), error, error.__traceback__
    first, second, *rest = formatter.format(record).split("\n")
    assert (first, second) == (
        f"penstock: job {ESCAPED_TEXT}",
        "Traceback (most recent call last):",
    )
    assert any(r"ValueError: ev\x1b[31mil" in line for line in rest)
    assert all(line.isprintable() for line in rest)
