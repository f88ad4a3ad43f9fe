"""The configuration: its tables as dataclasses, read and written."""

from __future__ import annotations

import dataclasses
import difflib
import json
import math
import re
import tomllib
import types
import typing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock._core import parse_duration, validate_constraint
from penstock.config.contradictions import contradictions
from penstock.errors import ConfigError, Error

Seconds = typing.NewType("Seconds", float)
# A number of things, or -1 for any number.
Count = typing.NewType("Count", int)
# A constraint of RFC 31.
Constraint = typing.NewType("Constraint", dict[str, Any])


@dataclass(frozen=True)
class HostEntry:
    """`resource.config[…]`: what some hosts have."""

    hosts: str = ""
    cores: str = ""
    gpus: str = ""
    properties: tuple[str, ...] = ()


@dataclass(frozen=True)
class Resource:
    """`resource`: what the instance has."""

    exclude: str | None = None
    path: Path | None = None
    config: tuple[HostEntry, ...] = ()
    properties: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Amounts:
    """Numbers of nodes, cores and gpus."""

    nnodes: Count | None = None
    ncores: Count | None = None
    ngpus: Count | None = None


@dataclass(frozen=True)
class JobSize:
    """`job-size`: the least and the most that a job may ask for."""

    min: Amounts = Amounts()
    max: Amounts = Amounts()


@dataclass(frozen=True)
class Limits:
    """`limits`: what a job may ask for."""

    duration: Seconds | None = None
    job_size: JobSize = JobSize()


@dataclass(frozen=True)
class System:
    """`defaults.system`: what a jobspec gets that does not say."""

    duration: Seconds | None = None
    queue: str | None = None


@dataclass(frozen=True)
class Defaults:
    """`jobspec.defaults`."""

    system: System = System()


@dataclass(frozen=True)
class JobspecPolicy:
    """`policy.jobspec`."""

    defaults: Defaults = Defaults()


@dataclass(frozen=True)
class Policy:
    """`policy`, and `queues.NAME.policy`."""

    limits: Limits = Limits()
    jobspec: JobspecPolicy = JobspecPolicy()


@dataclass(frozen=True)
class Queue:
    """`queues.NAME`: the properties and the constraint that its targets meet, and its policy."""

    requires: tuple[str, ...] = ()
    constraint: Constraint | None = None
    policy: Policy = Policy()


@dataclass(frozen=True)
class Access:
    """`access`: who may connect beside the owner."""

    allow_guest_user: bool = False
    allow_root_owner: bool = True


@dataclass(frozen=True)
class Hook:
    """`job-manager.prolog`, `job-manager.epilog`: a command, and its time (0: any)."""

    command: tuple[str, ...] = ()
    timeout: Seconds = Seconds(1800.0)


@dataclass(frozen=True)
class JobManagerSettings:
    """`job-manager`: how long, and how many, inactive jobs are kept; what runs around jobs."""

    inactive_age_limit: Seconds | None = None
    inactive_num_limit: int | None = None
    prolog: Hook = Hook()
    epilog: Hook = Hook()


@dataclass(frozen=True)
class Compat:
    """`compat`: the one of two behaviours where versions of the protocols differ.

    `exec_hello`: a second execution service replaces the one that has jobs, or is refused.
    """

    exec_hello: typing.Literal["replace", "refuse"] = "replace"


@dataclass(frozen=True)
class QueueSettings:
    """`penstock.scheduler.queues.NAME`: how the scheduler treats a queue.

    Queues of one `group` share an order: a job that waits goes before the later ones of its group.
    `order` says which that is. The others are what the jobs of a queue may hold at a time.
    """

    group: str | None = None
    order: typing.Literal["priority", "fifo", "shortest", "smallest", "largest"] | None = None
    max_jobs: Count | None = None
    max_nodes: Count | None = None
    max_cores: Count | None = None


@dataclass(frozen=True)
class SchedulerSettings:
    """`penstock.scheduler`: where it runs, and how it decides.

    `limit`: requests that it takes at a time (0: all); `overlong`: what becomes of a job that would
    outlive the resources; `annotate`: for how many of the jobs that wait, from the first on, it
    keeps the reason and the estimated start in `penstock jobs`.
    """

    mode: typing.Literal["inside", "process", "none"] = "inside"
    limit: int = 0
    policy: str = "easy"
    selection: typing.Literal["first", "pack", "spread", "thrifty", "contiguous"] = "first"
    overlong: typing.Literal["shorten", "deny"] = "shorten"
    annotate: int = 100
    queues: dict[str, QueueSettings] = field(default_factory=dict)


@dataclass(frozen=True)
class ExecSettings:
    """`penstock.exec`: how jobs are run.

    The time between SIGTERM and SIGKILL; whether tasks are left unbound; bytes of output that a
    job may leave with the instance before it is ended (0: any number).
    """

    kill_timeout: Seconds = Seconds(5.0)
    oversubscribe: bool = False
    output_limit: int = 1 << 30


@dataclass(frozen=True)
class Most:
    """The most that requests of running jobs may have: those that wait; nodes and cores."""

    requests: Count | None = None
    nnodes: Count | None = None
    ncores: Count | None = None


@dataclass(frozen=True)
class MostOfJob(Most):
    """The same for the requests of one job; of those that wait there is an end by default."""

    requests: Count | None = Count(4096)


@dataclass(frozen=True)
class ElasticSettings:
    """`penstock.elastic`: what one job, and one user, may have by requests of running jobs."""

    job: MostOfJob = MostOfJob()
    user: Most = Most()


@dataclass(frozen=True)
class StoreSettings:
    """`penstock.store`: `full` survives a power cut, `normal` a crash of the daemon."""

    synchronous: typing.Literal["full", "normal"] = "full"


@dataclass(frozen=True)
class Penstock:
    """`penstock`: what Flux has no table for."""

    socket: Path | None = None
    state: Path | None = None
    scheduler: SchedulerSettings = SchedulerSettings()
    exec: ExecSettings = ExecSettings()
    store: StoreSettings = StoreSettings()
    elastic: ElasticSettings = ElasticSettings()


@dataclass(frozen=True)
class Config:
    """The whole configuration; `Config()` is the default."""

    resource: Resource = Resource()
    queues: dict[str, Queue] = field(default_factory=dict)
    policy: Policy = Policy()
    access: Access = Access()
    job_manager: JobManagerSettings = JobManagerSettings()
    compat: Compat = Compat()
    penstock: Penstock = Penstock()

    def to_dict(self) -> dict[str, Any]:
        """The effective configuration under its TOML keys; what is unset is left out."""
        plain = _plain(self)
        assert isinstance(plain, dict)
        return plain


def scheduler_settings(config: Config) -> dict[str, Any]:
    """What a scheduler gets to know of the configuration."""
    settings = config.penstock.scheduler
    chosen = {
        key: getattr(settings, key) for key in ("policy", "selection", "overlong", "annotate")
    }
    return chosen | {"queues": {name: _plain(queue) for name, queue in settings.queues.items()}}


def parse(text: str, name: str = "configuration") -> Config:
    """Reads a configuration.

    Args:
        text: TOML.
        name: what to call it in errors.

    Raises:
        ConfigError: with every problem there is.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(name, [str(error)]) from error
    return from_dict(document, name)


def from_dict(document: dict[str, Any], name: str = "configuration") -> Config:
    """A configuration from its tables, as TOML or `to_dict` has them.

    Raises:
        ConfigError: with every problem there is.
    """
    problems: list[str] = []
    config = _build(Config, document, "", problems)
    if not problems:
        problems += contradictions(config, scheduler_settings(config))
    if problems:
        raise ConfigError(name, problems)
    assert isinstance(config, Config)
    return config


def load(path: Path) -> Config:
    """Reads a configuration file.

    Raises:
        ConfigError: the file cannot be read, or what is in it is wrong.
    """
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"`{path}`", [reason]) from error
    return parse(text, f"`{path}`")


def _build(kind: Any, value: Any, path: str, problems: list[str]) -> Any:
    """A value of the annotated kind; what does not fit is a problem with its path."""

    def wrong(expected: str) -> None:
        problems.append(f"{path}: expected {expected}, found {_show(value)}")

    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        (kind,) = (arg for arg in args if arg is not types.NoneType)
        return _build(kind, value, path, problems)
    if dataclasses.is_dataclass(kind):
        return _build_table(kind, value, path, problems)
    if origin is dict:
        if not isinstance(value, dict):
            return wrong("a table")
        return {
            key: _build(args[1], item, _join(path, key), problems) for key, item in value.items()
        }
    if origin is tuple:
        if not isinstance(value, list):
            return wrong("a list")
        items = enumerate(value)
        return tuple(_build(args[0], item, f"{path}[{n}]", problems) for n, item in items)
    if origin is typing.Literal:
        return value if value in args else wrong(" or ".join(f'"{arg}"' for arg in args))
    return _build_scalar(kind, value, wrong)


def _build_scalar(kind: Any, value: Any, wrong: typing.Callable[[str], None]) -> Any:
    if kind is Seconds:
        try:
            if isinstance(value, str):
                seconds = parse_duration(value)
            else:
                number = isinstance(value, (int, float)) and not isinstance(value, bool)
                seconds = float(value) if number and value >= 0 else math.nan
        except (Error, OverflowError):
            seconds = math.nan
        if math.isinf(seconds):
            return wrong("a finite duration")
        if math.isnan(seconds):
            return wrong('a duration such as "30m", or seconds')
        return Seconds(seconds)
    if kind is Constraint:
        return _build_constraint(value, wrong)
    if kind is Count:
        good = isinstance(value, int) and not isinstance(value, bool) and value >= -1
        return value if good else wrong("a whole number, or -1 for any number")
    if kind is Path:
        return Path(value) if isinstance(value, str) and value else wrong("a path")
    if kind is int:
        good = isinstance(value, int) and not isinstance(value, bool) and value >= 0
        return value if good else wrong("a whole number")
    names = {str: "a string", bool: "true or false"}
    return value if isinstance(value, kind) else wrong(names[kind])


def _build_constraint(value: Any, wrong: typing.Callable[[str], None]) -> Any:
    if not isinstance(value, dict):
        return wrong("a constraint of RFC 31")
    try:
        validate_constraint(json.dumps(value, default=str))
    except Error as error:
        return wrong(f"a constraint of RFC 31 ({error})")
    return value


def _build_table(kind: Any, value: Any, path: str, problems: list[str]) -> Any:
    if not isinstance(value, dict):
        problems.append(f"{path}: expected a table, found {_show(value)}")
        return kind()
    hints = typing.get_type_hints(kind)
    known = {one.name.replace("_", "-"): one.name for one in dataclasses.fields(kind)}
    built = {}
    for key, item in value.items():
        # Flux spells some of its keys with `_`; either will do.
        name = known.get(key.replace("_", "-"))
        if name in built:
            problems.append(f"`{_join(path, key)}` is there twice, with `-` and with `_`")
        elif name is not None:
            built[name] = _build(hints[name], item, _join(path, key), problems)
        else:
            close = difflib.get_close_matches(key, known, 1)
            hint = f": did you mean `{close[0]}`?" if close else f": expected {', '.join(known)}"
            problems.append(f"unknown key `{_join(path, key)}`{hint}")
    return kind(**built)


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _show(value: Any) -> str:
    return "a table" if isinstance(value, dict) else json.dumps(value, default=str)


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        pairs = ((one.name, getattr(value, one.name)) for one in dataclasses.fields(value))
        plain = ((name.replace("_", "-"), _plain(item)) for name, item in pairs)
        return {name: item for name, item in plain if item not in (None, {}, [])}
    if isinstance(value, dict):
        # Whatever a user has named is kept, even where nothing is said of it.
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def to_toml(document: dict[str, Any], prefix: str = "") -> str:
    """A configuration dictionary as TOML."""
    lines, tables = [], []
    for key, value in document.items():
        name = key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _quoted(key)
        path = f"{prefix}.{name}" if prefix else name
        if isinstance(value, dict):
            tables.append(to_toml(value, path))
        else:
            lines.append(f"{name} = {_inline(value)}\n")
    # A table that holds nothing is still one that somebody has named.
    head = f"[{prefix}]\n" if prefix and (lines or not tables) else ""
    body = head + "".join(lines)
    return "\n".join(part for part in [body, *tables] if part)


def _inline(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_inline, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_inline(item)}" for key, item in value.items()) + "}"
    if isinstance(value, float) and value == float("inf"):
        return "inf"
    return _quoted(value) if isinstance(value, str) else json.dumps(value)


def _quoted(text: str) -> str:
    # JSON's escapes are TOML's, but for pairs of surrogates and for DEL.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
