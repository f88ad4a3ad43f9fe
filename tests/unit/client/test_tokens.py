"""Tokens of submissions: none is given twice, not in a child process either."""

from __future__ import annotations

import os

from penstock.client.tokens import new_token


def test_tokens_differ():
    tokens = {new_token() for _ in range(1000)}
    assert len(tokens) == 1000
    assert {len(token) for token in tokens} == {32}


def test_a_child_process_begins_elsewhere():
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, new_token().encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        token = pipe.read()
    os.waitpid(child, 0)
    # 2^64 tokens are more than any process makes.
    assert abs(int(token, 16) - int(new_token(), 16)) > 2**64
