"""Jobspecs V1 (RFC 25) from the options of a command line."""

from __future__ import annotations

import base64
import fnmatch
import math
import os
import re
import stat
from datetime import datetime
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

from penstock import count as counts
from penstock._core import fluid_parse, parse_duration
from penstock.clock import SYSTEM_CLOCK
from penstock.constraint import parse_requires
from penstock.errors import JobspecError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from penstock.clock import Clock
    from penstock.count import Count


def from_command(
    command: Sequence[str],
    *,
    ntasks: Count | None = None,
    cores_per_task: Count = 1,
    gpus_per_task: Count = 0,
    nodes: Count | None = None,
    tasks_per_node: int | None = None,
    exclusive: bool = False,
    duration: float = 0.0,
    queue: str | None = None,
    requires: str | Mapping[str, Any] | None = None,
    dependencies: Iterable[str] = (),
    name: str | None = None,
    cwd: str | os.PathLike[str] | None = None,
    environment: Mapping[str, str] | None = None,
    input: str | None = None,  # noqa: A002 - the option's name
    output: str | None = None,
    error: str | None = None,
    setattr: Mapping[str, Any] | None = None,  # noqa: A002 - the option's name
    clock: Clock = SYSTEM_CLOCK,
) -> dict[str, Any]:
    """A jobspec for a command.

    A count is a number, or a range: as text (RFC 45), such as `"2-4"`, `"2+"`, `"1-9:2"`,
    `"2+:2:*"`, or an idset; or as the dictionary of RFC 14. The job gets the most of a range that
    there is when it starts, and runs as many tasks as it gets slots. A fixed number of tasks goes
    on a range of nodes; a range of tasks goes on a fixed number of nodes where it can be the same
    on each.

    Args:
        command: program and arguments.
        ntasks: tasks, each in a slot of its own; by default one, or one a node with `nodes`.
        cores_per_task: cores of each slot.
        gpus_per_task: gpus of each slot.
        nodes: distinct nodes to spread the tasks over; without `ntasks` they are exclusive.
        tasks_per_node: tasks on each of `nodes`, which are exclusive; in place of `ntasks`.
        exclusive: whole nodes only; needs `nodes`.
        duration: time limit in seconds; 0 for none.
        queue: queue name.
        requires: a constraint, in RFC 35's syntax or as an RFC 31 object.
        dependencies: `scheme:value` each (RFC 26), such as `afterok:ƒ2` or `begin-time:+2h`.
        name: job name.
        cwd: working directory; by default the current one.
        environment: the tasks' environment; by default the current one, as far as it is UTF-8.
        input: file for stdin of every task, relative to `cwd`; by default it is empty.
        output: template of the file for stdout; by default output is kept by the instance.
        error: template of the file for stderr; by default the file for stdout.
        setattr: further attributes by dotted path, below `attributes`.
        clock: the time from which a relative `begin-time` counts.

    Raises:
        JobspecError: numbers that contradict each other, or a text that cannot be read.

    Examples:
        >>> spec = from_command(["hostname"], ntasks=4, nodes=2, environment={}, cwd="/")
        >>> spec["resources"][0]["count"], spec["resources"][0]["with"][0]["count"]
        (2, 2)
    """
    if not command:
        raise JobspecError("expected a command")
    for place, word in enumerate(command):
        if "\0" in word or not is_text(word):
            raise JobspecError(f"word {place} of the command: expected UTF-8 without NUL")
    tasks = None if ntasks is None else counts.normal("ntasks", ntasks, 1)
    cores = counts.normal("cores per task", cores_per_task, 1)
    gpus = counts.normal("gpus per task", gpus_per_task, 0)
    on_nodes = None if nodes is None else counts.normal("nodes", nodes, 1)
    texts = {
        "queue": queue,
        "job name": name,
        "working directory": os.fspath(cwd) if cwd is not None else str(Path.cwd()),
        "input": input,
        "output": output,
        "error": error,
    }
    for what, text in texts.items():
        if text is not None and ("\0" in text or not is_text(text)):
            raise JobspecError(f"{what}: expected UTF-8 without NUL, found {text!r}")
    if tasks_per_node is not None and (tasks is not None or on_nodes is None):
        raise JobspecError("tasks per node: expected a number of nodes, and no number of tasks")
    resources, count = _resources(tasks, cores, gpus, on_nodes, exclusive=exclusive)
    if tasks_per_node is not None:
        (slot,) = resources["with"]
        slot["count"] = counts.normal("tasks per node", tasks_per_node, 1)
    system: dict[str, Any] = {
        "duration": duration,
        "cwd": texts["working directory"],
        "environment": environment_from_rules(()) if environment is None else dict(environment),
    }
    if queue is not None:
        system["queue"] = queue
    if requires is not None:
        system["constraints"] = parse_requires(requires) if isinstance(requires, str) else requires
    if parsed := [dependency(text, clock) for text in dependencies]:
        system["dependencies"] = parsed
    if name is not None:
        system["job"] = {"name": name}
    files = {"stdout": output, "stderr": error}
    options = {
        stream: {"type": "file", "path": path} for stream, path in files.items() if path is not None
    }
    shell: dict[str, Any] = {"output": options} if options else {}
    if input is not None:
        shell["input"] = {"stdin": {"type": "file", "path": input}}
    if shell:
        system["shell"] = {"options": shell}
    spec: dict[str, Any] = {
        "version": 1,
        "resources": [resources],
        "tasks": [{"command": list(command), "slot": "task", "count": count}],
        "attributes": {"system": system},
    }
    for path, value in (setattr or {}).items():
        set_attribute(spec, path, value)
    return spec


def file_object(content: bytes, permissions: int = 0o600) -> dict[str, Any]:
    r"""A file for `attributes.system.files`, as a file system object (RFC 37).

    Args:
        content: the bytes of the file; in base64 if they are not UTF-8.
        permissions: the permission bits.

    Examples:
        >>> spec = from_command(["cat", "{{tmpdir}}/data"], environment={}, cwd="/")
        >>> set_attribute(spec, "system.files", {"data": file_object(b"1\n")})
        >>> spec["attributes"]["system"]["files"]["data"]["size"]
        2
    """
    try:
        encoding, data = "utf-8", content.decode()
    except UnicodeDecodeError:
        encoding, data = "base64", base64.b64encode(content).decode()
    mode = stat.S_IFREG | permissions
    return {"mode": mode, "size": len(content), "encoding": encoding, "data": data}


def _resources(
    ntasks: Count | None, cores: Count, gpus: Count, nodes: Count | None, *, exclusive: bool
) -> tuple[dict[str, Any], dict[str, int]]:
    children = [{"type": "core", "count": cores}]
    if gpus:
        children.append({"type": "gpu", "count": gpus})
    slot = {"type": "slot", "count": ntasks or 1, "with": children, "label": "task"}
    if nodes is None:
        if exclusive:
            raise JobspecError("exclusive: expected a number of nodes as well")
        return slot, {"per_slot": 1}
    count = {"per_slot": 1}
    # As `flux submit`: nodes without tasks are one task a node, and the nodes are the job's own.
    if ntasks is None:
        exclusive = True
    elif isinstance(ntasks, int):
        if ntasks < (least := counts.minimum(nodes)):
            raise JobspecError(
                f"nodes: expected at most {ntasks} (the number of tasks), found {least}"
            )
        nodes = counts.up_to("nodes", nodes, ntasks)
        slot["count"], rest = -(-ntasks // least), ntasks % least
        if rest or not isinstance(nodes, int):
            count = {"total": ntasks}
    else:
        if not isinstance(nodes, int):
            raise JobspecError("ntasks: expected a number, not a range, with a range of nodes")
        slot["count"] = counts.divided("ntasks", ntasks, nodes)
    node: dict[str, Any] = {"type": "node", "count": nodes, "with": [slot]}
    if exclusive:
        node["exclusive"] = True
    return node, count


def dependency(text: str, clock: Clock = SYSTEM_CLOCK) -> dict[str, str]:
    """A dependency from its command-line form `scheme:value[?key=value]` (RFC 26).

    For `begin-time` the value may be `+FSD` from now or an ISO date and time as well: it becomes
    seconds since the epoch.
    """
    scheme, separator, rest = text.partition(":")
    value, _, query = rest.partition("?")
    if not separator or not scheme or not value:
        raise JobspecError(f"dependency `{text}`: expected scheme:value")
    if scheme.startswith("after"):
        # Checked here, so that a malformed id is reported before anything is sent.
        fluid_parse(value)
    elif scheme == "begin-time":
        value = _begin_time(value, clock)
    parsed = {"scheme": scheme, "value": value}
    for pair in filter(None, query.replace(";", "&").split("&")):
        key, _, item = pair.partition("=")
        parsed[key] = item
    return parsed


def _begin_time(text: str, clock: Clock) -> str:
    try:
        if text.startswith("+"):
            when = clock.now() + parse_duration(text[1:])
        elif re.fullmatch(r"[0-9.]+", text):
            when = float(text)
        else:
            when = datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        when = -1.0
    if not 0.0 <= when < math.inf:
        raise JobspecError(
            f"dependency `begin-time:{text}`: expected seconds since the epoch, an ISO date and "
            "time, or +FSD from now (+2h)"
        )
    return f"{when:.6f}".rstrip("0").rstrip(".")


def set_attribute(spec: dict[str, Any], path: str, value: Any) -> None:
    """Sets an attribute by its dotted path.

    A path that begins with neither `attributes.`, `system.` nor `user.` is below
    `attributes.system`.
    """
    keys = path.removeprefix("attributes.").split(".")
    if keys[0] not in ("system", "user"):
        keys.insert(0, "system")
    if not all(keys):
        raise JobspecError(f"attribute `{path}`: expected names between the periods")
    place = spec["attributes"]
    for key in keys[:-1]:
        place = place.setdefault(key, {})
        if not isinstance(place, dict):
            raise JobspecError(f"attribute `{path}`: `{key}` is not an object")
    place[keys[-1]] = value


def shell_option(spec: Mapping[str, Any], path: str) -> Any:
    """The shell option at a dotted path; None without one, whatever else the jobspec has there.

    >>> spec = from_command(["true"], output="file", environment={}, cwd="/")
    >>> shell_option(spec, "output.stdout.path"), shell_option(spec, "pty")
    ('file', None)
    """
    place: Any = spec["attributes"]["system"]
    for key in ("shell", "options", *path.split(".")):
        place = place.get(key) if isinstance(place, dict) else None
    return place


def environment_from_rules(rules: Sequence[str]) -> dict[str, str]:
    """The environment that `--env` rules make of the current one, as flux submit documents them.

    Rules apply in order:

    - `-PATTERN` removes; `PATTERN` is a glob, or with `/` in front a regular expression;
    - `NAME=VALUE` sets; `$NAME` and `${NAME}` stand for the values so far, else for those of the
      current environment has, `$$` for `$`;
    - `^FILE` reads rules from a file, one a line;
    - `PATTERN` copies missing variables from the current environment.

    Names and values that are not UTF-8 cannot be sent and are left out.

    Raises:
        JobspecError: a value names a variable that is not set, a regular expression or a file
            cannot be read.
    """
    environment = dict(os.environ)
    _apply(rules, environment, frozenset())
    return {name: value for name, value in environment.items() if is_text(name + value)}


def is_text(word: str) -> bool:
    """Whether a word of the command line or environment is UTF-8: JSON carries nothing else."""
    try:
        word.encode()
    except UnicodeEncodeError:
        return False
    return True


def _apply(rules: Iterable[str], environment: dict[str, str], files: frozenset[Path]) -> None:
    for rule in rules:
        if rule.startswith("-"):
            for name in _matching(rule[1:], environment):
                del environment[name]
        elif rule.startswith("^"):
            path = Path(rule[1:]).expanduser().resolve()
            if path in files:
                raise JobspecError(f"environment rule `{rule}`: the file names itself")
            try:
                lines = path.read_text().splitlines()
            except OSError as error:
                text = error.strerror or str(error)
                raise JobspecError(f"environment rule `{rule}`: {text}") from error
            except UnicodeDecodeError as error:
                raise JobspecError(f"environment rule `{rule}`: {error}") from error
            _apply(filter(None, map(str.strip, lines)), environment, files | {path})
        elif "=" in rule and not rule.startswith("/"):
            name, _, value = rule.partition("=")
            environment[name] = _expand(rule, value, environment)
        else:
            for name in _matching(rule, os.environ):
                environment.setdefault(name, os.environ[name])


def _matching(pattern: str, environment: Mapping[str, str]) -> list[str]:
    if not pattern.startswith("/"):
        return fnmatch.filter(environment, pattern)
    try:
        expression = re.compile(pattern[1:].removesuffix("/"))
    except re.error as error:
        raise JobspecError(f"environment pattern `{pattern}`: {error}") from error
    return [name for name in environment if expression.search(name)]


def _expand(rule: str, text: str, environment: Mapping[str, str]) -> str:
    try:
        return Template(text).substitute({**os.environ, **environment})
    except KeyError as error:
        raise JobspecError(f"environment rule `{rule}`: `{error.args[0]}` is not set") from None
    except ValueError:
        raise JobspecError(
            f"environment rule `{rule}`: expected `$NAME`, `${{NAME}}` or `$$`"
        ) from None
