"""The configuration: keys, defaults, and error messages."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from penstock import limits
from penstock.cli import main
from penstock.config import Config, ConfigError, HostEntry, load, parse, to_toml
from penstock.errors import InventoryError
from penstock.inventory import from_config, from_file

FULL_CONFIG = """
[resource]
exclude = "node[0-1]"
[[resource.config]]
hosts = "node[0-3]"
cores = "0-7"
properties = ["big"]

[queues.batch]
requires = ["big"]
[queues.batch.policy.limits]
duration = "8h"
job-size.max.nnodes = 2

[policy.limits]
duration = 86400
[policy.jobspec.defaults.system]
duration = "1h"
queue = "batch"

[access]
allow-guest-user = true

[penstock.scheduler]
mode = "process"
limit = 8
policy = "hybrid:4"
selection = "pack"
[penstock.scheduler.queues.batch]
max-jobs = 5
[penstock.exec]
kill-timeout = "1s"
"""


def test_given_keys_are_read_and_others_have_defaults():
    config = parse(FULL_CONFIG)
    assert config.resource.exclude == "node[0-1]"
    assert config.resource.config[0].properties == ("big",)
    assert config.queues["batch"].requires == ("big",)
    assert config.queues["batch"].policy.limits.duration == 28800
    assert config.queues["batch"].policy.limits.job_size.max.nnodes == 2
    assert config.policy.jobspec.defaults.system.duration == 3600
    assert config.access.allow_guest_user
    assert config.penstock.scheduler.mode == "process"
    assert config.penstock.scheduler.policy == "hybrid:4"
    assert config.penstock.scheduler.queues["batch"].max_jobs == 5
    assert (config.penstock.scheduler.overlong, config.penstock.scheduler.annotate) == (
        "shorten",
        100,
    )
    assert config.penstock.exec.kill_timeout == 1
    assert config.penstock.store.synchronous == "full"


NAMES = r"""
[queues.batch]
[queues."größe"]
[queues."a.b"]
requires = ["big"]
[policy.jobspec.defaults.system]
queue = "größe"
[penstock]
state = "/tmp/ä\U0001f600\u007f\n"
"""


@pytest.mark.parametrize(
    "config", [Config(), parse(FULL_CONFIG), parse(NAMES), parse("[queues.a]\n[queues.b]")]
)
def test_the_effective_configuration_reads_back(config):
    text = to_toml(config.to_dict())
    assert tomllib.loads(text) == config.to_dict()
    assert parse(text) == config


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("x = ", "Invalid value (at end of document)"),
        ("queue = 1", "unknown key `queue`: did you mean `queues`?"),
        ("[access]\nallow-guest = true", "unknown key `access.allow-guest`"),
        ("[resource]\nexclude = 3", "resource.exclude: expected a string, found 3"),
        (
            "[access]\nallow-guest-user = 1",
            "access.allow-guest-user: expected true or false, found 1",
        ),
        ("[queues]\nbatch = 1", "queues.batch: expected a table, found 1"),
        ("[queues.b]\nrequires = [1]", "queues.b.requires[0]: expected a string, found 1"),
        (
            "[policy.limits]\nduration = 'soon'",
            'policy.limits.duration: expected a duration such as "30m", or seconds, found "soon"',
        ),
        (
            "[penstock.scheduler.queues.gone]\nmax-jobs = 1",
            "penstock.scheduler.queues.gone: unknown queue `gone`: expected ",
        ),
        (
            "[penstock.scheduler]\nmode = 'outside'",
            'penstock.scheduler.mode: expected "inside" or "process" or "none", found "outside"',
        ),
        (
            "[policy.limits]\njob-size.max.nnodes = -2",
            "policy.limits.job-size.max.nnodes: expected a whole number up to",
        ),
        (
            "[queues.b]\nconstraint = {nosuch = []}",
            "queues.b.constraint: expected a constraint of RFC 31 (",
        ),
        (
            "[queues.b]\nconstraint = 'n0'",
            'queues.b.constraint: expected a constraint of RFC 31, found "n0"',
        ),
        (
            "[penstock.quota]\njobspec-bytes = -1",
            "penstock.quota.jobspec-bytes: expected a whole number up to 9223372036854775807,",
        ),
        (
            "[job-manager.prolog]\ncommand = 'x'",
            'job-manager.prolog.command: expected a list, found "x"',
        ),
        (
            "[compat]\nexec_hello = 'maybe'",
            'compat.exec_hello: expected "replace" or "reject", found "maybe"',
        ),
        (
            "[compat]\nexec_hello = 'reject'\nexec-hello = 'reject'",
            "`compat.exec-hello` is given twice, with `-` and with `_`",
        ),
        (
            "[policy.jobspec.defaults.system]\nqueue = 'b'",
            "policy.jobspec.defaults.system.queue: unknown queue `b`: expected a table `queues`",
        ),
        ('[queues.""]', 'queues: expected a name for each queue, found ""'),
        (
            "[queues.b.policy.jobspec.defaults.system]\nqueue = 'b'",
            "queues.b.policy.jobspec.defaults.system.queue: the default queue is set by `policy",
        ),
        (
            "[job-manager.epilog]\ncommand = ['', 'x']",
            'job-manager.epilog.command[0]: expected a command, found ""',
        ),
        (
            "policy.limits.job-size.max.nnodes = 2\nqueues.b.policy.limits.job-size.min.nnodes = 3",
            "queues.b.policy.limits.job-size: min.nnodes (3) exceeds max (2)",
        ),
        (
            "[policy.limits]\nduration = '1h'\n[policy.jobspec.defaults.system]\nduration = '2h'",
            "policy.jobspec.defaults.system.duration: the default (7200 s) exceeds the limit (3600",
        ),
        (
            "policy.jobspec.defaults.system.duration = '1h'\nqueues.b.policy.limits.duration = 60",
            "queues.b.policy.jobspec.defaults.system.duration: the default (3600 s) exceeds the",
        ),
        ("[penstock]\nsocket = ''", 'penstock.socket: expected a path, found ""'),
        (
            "[resource.properties]\n'a&b' = '0'",
            'resource.properties: invalid property name "a&b": expected none of ! & ',
        ),
        (
            "[[resource.config]]\nhosts = 'n0'\nproperties = ['']",
            "resource.config[0].properties[0]: expected a property name, found an empty one",
        ),
        (
            "[queues.b]\nrequires = ['^fast', 'a|b']",
            "queues.b.requires: invalid constraint: properties[1]: invalid property `a|b`",
        ),
        ("[[resource.config]]\ncores = '0'", "resource.config[0]: expected the key `hosts`"),
        (
            "[[resource.config]]\nhosts = 'a'\ncores = '0-x'",
            'resource.config[0].cores: invalid idset "0-x": expected a number at byte 2',
        ),
        ("[[resource.config]]\nhosts = 'a['", 'resource.config[0].hosts: invalid hostlist "a["'),
        (
            "[[resource.config]]\nhosts = 'a[0-999999999]'",
            "resource.config[0].hosts: expected at most 1000000 hosts, found 1000000000",
        ),
        (
            "[[resource.config]]\nhosts = 'a'\ncores = '0-1000000'",
            "resource.config[0].cores: expected at most 1000000 ids, found 1000001",
        ),
        ("[resource]\nexclude = 'a[1-'", 'resource.exclude: invalid hostlist "a[1-"'),
        (
            "[policy.limits]\nduration = 'inf'",
            'policy.limits.duration: expected a finite duration, found "inf"',
        ),
        (
            "[queues.b.policy.limits]\njob-size.min.nnodes = 4\njob-size.max.nnodes = 2",
            "queues.b.policy.limits.job-size: min.nnodes (4) exceeds max (2)",
        ),
    ],
)
def test_a_problem_names_its_key(text, problem):
    with pytest.raises(ConfigError) as caught:
        parse(text)
    assert any(found.startswith(problem) for found in caught.value.problems), caught.value.problems


def test_a_file_without_an_end_is_not_read(monkeypatch):
    monkeypatch.setattr(limits, "MAX_TEXT_BYTES", 1 << 20)
    with pytest.raises(ConfigError, match="`/dev/zero`: too long: expected at most 1048576 bytes"):
        load(Path("/dev/zero"))
    with pytest.raises(InventoryError, match="`/dev/zero`: too long"):
        from_file(Path("/dev/zero"))


def test_more_hosts_than_memory_has_room_for_are_rejected(monkeypatch):
    monkeypatch.setattr(limits, "MAX_HOSTS", 3)
    entries = [HostEntry(hosts=hosts, cores="0") for hosts in ("a[0-1]", "b[0-1]")]
    with pytest.raises(InventoryError, match=r"resource\.config\[1\]: more than 3 hosts"):
        from_config(entries)
    assert from_config(entries[:1]).nnodes == 2


def test_a_key_is_spelled_with_hyphens_or_underscores():
    for text in ("[compat]\nexec_hello = 'reject'", "[compat]\nexec-hello = 'reject'"):
        assert parse(text).compat.exec_hello == "reject"
    assert parse("").compat.exec_hello == "replace"
    config = parse("[job_manager]\ninactive_age_limit = '7d'\ninactive-num-limit = 1000")
    assert config.job_manager.inactive_age_limit == 7 * 86400
    assert config.job_manager.inactive_num_limit == 1000


def test_hooks_constraints_and_limits_without_an_end_come_back_as_they_were_written():
    config = parse(
        """
        [job-manager.prolog]
        command = ["/etc/prolog", "a b"]
        timeout = "1m"
        [queues.batch]
        requires = ["ssd"]
        constraint = {or = [{hostlist = ["n[0-3]"]}, {ranks = ["7"]}]}
        [queues.batch.policy.limits]
        duration = 0
        job-size.max.nnodes = -1
        job-size.min.nnodes = 2
        """
    )
    assert config.job_manager.prolog.command == ("/etc/prolog", "a b")
    assert config.job_manager.prolog.timeout == 60
    assert config.job_manager.epilog.command == ()
    queue = config.queues["batch"]
    assert queue.constraint == {"or": [{"hostlist": ["n[0-3]"]}, {"ranks": ["7"]}]}
    assert queue.policy.limits.job_size.max.nnodes == -1
    assert parse(to_toml(config.to_dict())) == config


def test_check_lists_every_problem_and_dump_shows_the_effective_configuration(tmp_path, capsys):
    file = tmp_path / "penstock.toml"
    file.write_text("queue = 1\n[resource]\nexclude = 3\n")
    assert main(["config", "check", str(file)]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert all(line.startswith(f"`{file}`: ") for line in lines)
    file.write_text(FULL_CONFIG)
    assert main(["config", "check", str(file)]) == 0
    assert main(["config", "dump", str(file)]) == 0
    assert parse(capsys.readouterr().out.partition("\n")[2]) == parse(FULL_CONFIG)
    assert main(["config", "check", str(tmp_path / "nosuch.toml")]) == 1
    assert capsys.readouterr().err == f"`{tmp_path / 'nosuch.toml'}`: No such file or directory\n"


def test_a_queue_overrides_general_limits():
    config = parse(
        """
        [policy.limits]
        duration = "1h"
        job-size.max.nnodes = 2
        [queues.free.policy.limits]
        duration = 0
        job-size.max.nnodes = -1
        job-size.min.nnodes = 3
        [queues.free.policy.jobspec.defaults.system]
        duration = "1d"
        """
    )
    assert config.queues["free"].policy.jobspec.defaults.system.duration == 86400


def test_every_problem_is_found_at_once():
    text = """
        [queus.batch]
        [queues.batch]
        requires = "x"
        [policy.jobspec.defaults.system]
        queue = "bathc"
        duration = "soon"
        [penstock.scheduler]
        policy = "esy"
        selection = "frist"
        [penstock.scheduler.queues.bacth]
    """
    with pytest.raises(ConfigError) as caught:
        parse(text)
    starts = (
        "unknown key `queus`: did you mean `queues`?",
        "queues.batch.requires: expected a list",
        "policy.jobspec.defaults.system.duration: expected a duration",
        "penstock.scheduler.selection: expected",
        "policy.jobspec.defaults.system.queue: unknown queue `bathc`: expected batch; did you mean",
        "penstock.scheduler.queues.bacth: unknown queue `bacth`: expected batch; did you mean",
        "penstock.scheduler.policy: invalid policy `esy`",
    )
    for start, problem in zip(sorted(starts), sorted(caught.value.problems), strict=True):
        assert problem.startswith(start)


def test_a_required_key_of_another_kind_is_one_problem():
    with pytest.raises(ConfigError) as caught:
        parse("[[resource.config]]\nhosts = 3\n")
    (problem,) = caught.value.problems
    assert problem.startswith("resource.config[0].hosts: expected a string")


@pytest.fixture
def directory(tmp_path):
    folder = tmp_path / "conf.d"
    folder.mkdir()
    (folder / "20-site.toml").write_text(
        '[queues.batch]\n[policy.jobspec.defaults.system]\nqueue = "batch"\n'
        '[penstock.scheduler]\npolicy = "fcfs"\n'
    )
    (folder / "10-default.toml").write_text(
        '[queues.debug]\n[penstock.scheduler]\npolicy = "easy"\nselection = "pack"\n'
    )
    (folder / "notes.txt").write_text("no TOML")
    return folder


def test_the_files_of_a_directory_are_joined_and_a_later_one_wins(directory):
    config = load(directory)
    assert list(config.queues) == ["debug", "batch"]
    assert config.penstock.scheduler.policy == "fcfs"
    assert config.penstock.scheduler.selection == "pack"


def test_a_contradiction_of_two_files_is_checked(directory, capsys):
    (directory / "30.toml").write_text('[policy.jobspec.defaults.system]\nqueue = "large"\n')
    assert main(["config", "check", str(directory)]) == 1
    assert f"`{directory}`: policy.jobspec.defaults.system.queue" in capsys.readouterr().err
    (directory / "40.toml").write_text("[queues.large]\n")
    assert main(["config", "check", str(directory)]) == 0


def test_a_file_of_a_directory_that_is_no_toml_is_named(directory):
    (directory / "30.toml").write_text("a = ")
    with pytest.raises(ConfigError, match=r"conf\.d/30\.toml`: "):
        load(directory)


def test_an_empty_directory_is_the_default_configuration(tmp_path):
    assert load(tmp_path) == Config()
