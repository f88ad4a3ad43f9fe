"""Random configurations: each is read, or rejected with a message; no other exception comes of one.

Keys of the declared ones get values of any type, and texts of valid ones lose, gain and change
characters.
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config import Config, ConfigError, parse, to_toml
from penstock.config.declaration import keys
from penstock.config.tables import manager_settings, scheduler_settings
from penstock.config.toml import from_dict

CORPUS = sorted((Path(__file__).parents[1] / "vectors" / "configuration").glob("*.toml"))
# Names of queues, hosts and so on take the place of the names that a user chooses.
CHOSEN = st.sampled_from(["batch", "x", "NAME", "", "a.b", "ƒ", "\0", "x" * 300])
CHARACTERS = "aZ09-+_.,:;=[]{}()#\"'\\/ \t\n\x7fƒ\ud7ff\U0010ffff"
TEXTS = st.one_of(
    st.sampled_from(
        """
        0-3 node[0-3] 1h -1 inf nan 1e400h hybrid:4 hybrid:0 own process pack
        127.0.0.1:9470 [::1]:0 /run/x batch 0-4294967295
        """.split()
    ),
    st.text(CHARACTERS, max_size=8),
)
NUMBERS = st.one_of(
    st.sampled_from([0, 1, -1, -2, 8, 2**31, 2**63 - 1, -(2**63), 2**64, 10**30]),
    st.floats(),
)
SCALARS = st.one_of(NUMBERS, TEXTS, st.booleans(), st.dates(), st.times())
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.one_of(CHOSEN, TEXTS), inner, max_size=3)
    ),
    max_leaves=4,
)
PATHS = sorted({key.path for key in keys(Config)})


@st.composite
def documents(draw):
    """Documents with some of the declared keys."""
    document = {}
    for path in draw(st.lists(st.sampled_from(PATHS), max_size=6)):
        table = document
        *above, last = [draw(CHOSEN) if part.isupper() else part for part in path]
        for part in above:
            inner = table.setdefault(part, {})
            if not isinstance(inner, dict):
                break
            table = inner
        table[last] = draw(VALUES)
    return document


def read(parser, source):
    """The configuration; None if it is rejected with a message."""
    try:
        return parser(source)
    except ConfigError:
        return None


@given(documents())
def test_any_document_is_read_or_rejected(document):
    config = read(from_dict, document)
    if config is not None:
        # The settings of the services that follow from it have a form in JSON.
        json.dumps([manager_settings(config), scheduler_settings(config)])


VALID = """
[resource]
exclude = "node[0-1]"
[[resource.config]]
hosts = "node[0-3]"
cores = "0-7"
[queues.batch.policy.limits]
duration = "8h"
job-size.max.nnodes = 2
[policy.jobspec.defaults.system]
queue = "batch"
[penstock.scheduler]
policy = "hybrid:4"
[penstock.quota]
requests = -1
"""


@given(
    st.lists(
        st.tuples(st.integers(0, len(VALID)), st.integers(0, 12), st.text(CHARACTERS, max_size=6)),
        max_size=4,
    )
)
def test_any_text_is_read_or_rejected(changes):
    text = VALID
    for at, removed, added in changes:
        text = text[:at] + added + text[at + removed :]
    config = read(parse, text)
    if config is not None:
        assert parse(to_toml(tomllib.loads(text))) == config


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_every_text_of_the_corpus_is_read_or_rejected(path):
    text = path.read_bytes().decode()
    config = read(parse, text)
    if config is not None:
        json.dumps([manager_settings(config), scheduler_settings(config)])
        assert parse(to_toml(tomllib.loads(text))) == config


def test_the_corpus_has_texts():
    assert len(CORPUS) >= 30
