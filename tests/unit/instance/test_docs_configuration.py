"""`docs/configuration.md` lists every key of the configuration."""

from __future__ import annotations

import json
import re
import tomllib
import typing

import pytest
from configuration_page import PAGE, rendered, service_settings

from penstock._core import JobManager, Scheduler
from penstock.config import Config, manager_settings, parse, scheduler_settings
from penstock.config.declaration import invalid_values, keys, reloadable_paths
from penstock.errors import ConfigError

TEXT = PAGE.read_text()
EXAMPLES = [
    block.replace("# path", "path")
    for block in re.findall(r"^```toml\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
]
KEYS = [".".join(key.path) for key in keys(Config)]


def test_the_tables_are_those_of_the_declaration() -> None:
    assert rendered(TEXT) == TEXT, "run `make configuration`"


def test_the_settings_of_the_services_are_those_of_the_declaration() -> None:
    for path, text in service_settings().items():
        assert path.read_text() == text, "run `make configuration`"


def test_every_key_has_a_description() -> None:
    assert len(KEYS) == len(set(KEYS))
    assert all(key.doc and not key.doc.endswith(".") for key in keys(Config))


def test_the_examples_are_right_and_have_every_key() -> None:
    given: set[str] = set()
    for text in EXAMPLES:
        parse(text)
        given |= set(leaves(tomllib.loads(text)))
    assert set(KEYS) - {"queues.NAME.policy"} <= given


def test_the_keys_that_a_reload_may_change_are_those_below_its_paths() -> None:
    paths = [".".join(path) for path in reloadable_paths(Config)]
    for key in keys(Config):
        name = ".".join(key.path)
        assert key.reloadable == any(f"{name}.".startswith(f"{path}.") for path in paths), name


@pytest.mark.parametrize("text", ["", *EXAMPLES])
def test_the_services_accept_the_declared_settings(text: str) -> None:
    config = parse(text)
    assert not list(invalid_values(config))
    Scheduler(settings=json.dumps(scheduler_settings(config)))
    JobManager(None, json.dumps({"owner": 1, **manager_settings(config)}), 0.0)


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize(
    "value", ["0", "-1", f"{2**63 - 1}", f"{2**63}", "9" * 23, "1e-300", "1e300", "inf", "nan"]
)
def test_a_number_that_the_configuration_accepts_is_one_for_the_services(
    key: str, value: str
) -> None:
    try:
        config = parse(f"queues.a = {{}}\n{key.replace('NAME', 'a')} = {value}\n")
    except ConfigError:
        return
    Scheduler(settings=json.dumps(scheduler_settings(config)))
    JobManager(None, json.dumps({"owner": 1, **manager_settings(config)}), 0.0)


def test_every_setting_of_a_service_has_a_name_of_its_own() -> None:
    full = manager_settings(parse(FULL_CONFIG))
    assert full["limits"] == {
        "duration": 60.0,
        "max_nnodes": 1,
        "max_ncores": 2,
        "max_ngpus": 3,
        "min_nnodes": 1,
        "min_ncores": 1,
        "min_ngpus": 0,
    }
    assert (full["default_duration"], full["default_queue"]) == (30.0, "a")
    assert full["queues"] == {
        "a": {"requires": ["x"], "constraint": {"ranks": ["0"]}, "limits": {"duration": 0.0}}
    }
    assert (full["inactive_age_limit"], full["inactive_num_limit"]) == (3600.0, 5)
    assert full["exec_hello"] == "reject"
    assert full["elastic"] == {"job": {"requests": 9}, "user": {"ncores": 8}}


FULL_CONFIG = """
[policy.limits]
duration = 60
job-size.max = {nnodes = 1, ncores = 2, ngpus = 3}
job-size.min = {nnodes = 1, ncores = 1, ngpus = 0}
[policy.jobspec.defaults.system]
duration = 30
queue = "a"
[queues.a]
requires = ["x"]
constraint = {ranks = ["0"]}
policy.limits.duration = 0
[job-manager]
inactive-age-limit = "1h"
inactive-num-limit = 5
[compat]
exec-hello = "reject"
[penstock.elastic]
job.requests = 9
user.ncores = 8
"""


def leaves(value: object, path: str = "") -> typing.Iterator[str]:
    """The dotted keys of a document, with `NAME` for what a user has named."""
    if isinstance(value, list):
        yield path
        for item in value:
            if isinstance(item, dict):
                yield from leaves(item, f"{path}[]")
    elif isinstance(value, dict) and path != "queues.NAME.constraint":
        for key, item in value.items():
            named = path in ("queues", "resource.properties", "penstock.scheduler.queues")
            name = "NAME" if named else key.replace("_", "-")
            yield from leaves(item, f"{path}.{name}" if path else name)
    else:
        yield path
