"""Changes of the configuration at run time."""

from __future__ import annotations

import tomllib

import pytest

from penstock.config import ConfigError, parse
from penstock.instance.config_reload import merge

OLD_CONFIG = """
[resource]
exclude = "node0"
path = "/etc/R"
[queues."a.b".policy.limits]
duration = "1h"
[policy.limits]
duration = "1d"
[penstock]
state = "/var/p"
[penstock.exec]
kill-timeout = "2s"
oversubscribe = true
"""


def reload(text):
    return merge(parse(OLD_CONFIG), tomllib.loads(text))


def test_the_same_changes_nothing():
    config, changed = reload(OLD_CONFIG)
    assert config == parse(OLD_CONFIG)
    assert changed == []


def test_changeable_keys_change_and_the_rest_stays():
    config, changed = reload(
        '[queues."a.b".policy.limits]\nduration = "2h"\n[queues.c]\n[penstock.exec]\n'
        "oversubscribe = true\noutput-limit = 5\n[policy.jobspec.defaults.system]\nqueue = 'c'\n"
    )
    assert changed == [
        "resource.exclude",
        "queues.a.b.policy.limits.duration",
        "policy.limits.duration",
        "penstock.exec.kill-timeout",
        "penstock.exec.output-limit",
        "queues.c",
        "policy.jobspec.defaults.system.queue",
    ]
    assert config.resource.exclude is None
    assert str(config.resource.path) == "/etc/R"
    assert str(config.penstock.state) == "/var/p"
    assert set(config.queues) == {"a.b", "c"}
    assert config.queues["a.b"].policy.limits.duration == 7200
    assert config.policy.limits.duration is None
    assert (config.penstock.exec.kill_timeout, config.penstock.exec.output_limit) == (5, 5)
    assert config.penstock.exec.oversubscribe


def test_every_key_that_cannot_change_is_named():
    with pytest.raises(ConfigError) as error:
        reload(
            "[resource]\npath = '/other'\n[penstock]\nstate = '/var/p'\nsocket = '/s'\n"
            "[penstock.exec]\noversubscribe = false\n[queues.new]\n"
        )
    assert error.value.problems == [
        f"`{key}` cannot change while the instance runs"
        for key in ("resource.path", "penstock.exec.oversubscribe", "penstock.socket")
    ]


def test_a_key_is_known_by_either_of_its_spellings():
    with pytest.raises(ConfigError) as error:
        reload("[access]\nallow_guest_user = true\n")
    assert error.value.problems == [
        "`access.allow-guest-user` cannot change while the instance runs"
    ]
    _, changed = reload(OLD_CONFIG + "output_limit = 7\n")
    assert changed == ["penstock.exec.output-limit"]


def test_errors_read_as_at_the_start():
    with pytest.raises(ConfigError, match=r"unknown key `resource.exclud`"):
        reload("[resource]\nexclud = '1'")
