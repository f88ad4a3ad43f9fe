"""`ClusterShell.NodeUtils`: sources of node groups, and the resolvers that ask them.

Example:
    >>> from penstock.compat.ClusterShell.NodeUtils import GroupResolver, GroupSource
    >>> resolver = GroupResolver(GroupSource("local", {"gpu": "node[1-4]"}))
    >>> resolver.group_nodes("gpu"), resolver.grouplist()
    (['node[1-4]'], ['gpu'])

`GroupResolverConfig` reads the files of ClusterShell: `groups.conf`, the `.conf` files of its
`confdir`, and the YAML files of its `autodir`; those need PyYAML.
"""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any, TypeAlias

from penstock.clock import SYSTEM_CLOCK
from penstock.compat.ClusterShell.errors import (
    GroupResolverConfigError,
    GroupResolverError,
    GroupResolverIllegalCharError,
    GroupResolverSourceError,
    GroupSourceError,
    GroupSourceNoUpcall,
    GroupSourceQueryFailed,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from configparser import RawConfigParser

__all__ = [
    "FileGroupSource",
    "GroupResolver",
    "GroupResolverConfig",
    "GroupResolverConfigError",
    "GroupResolverError",
    "GroupResolverIllegalCharError",
    "GroupResolverSourceError",
    "GroupSource",
    "GroupSourceError",
    "GroupSourceNoUpcall",
    "GroupSourceQueryFailed",
    "UpcallGroupSource",
    "YAMLGroupLoader",
]

_DEFAULT_CACHE_TIME = 3600
_COMMAS = re.compile(r"\s*,\s*")

Nodes: TypeAlias = "str | Iterable[str] | None"
"""The nodes of a group: a text, several of them, or none."""


class GroupSource:
    """A group source with the groups of a mapping.

    Args:
        name: Name of the source, as in `@name:group`.
        groups: The nodes of each group.
        allgroups: All nodes, if that is not the union of the groups.
    """

    has_reverse = False
    """Whether `resolv_reverse` answers."""

    def __init__(
        self, name: str, groups: Mapping[str, Any] | None = None, allgroups: Nodes = None
    ) -> None:
        self.name = name
        self._groups: Mapping[str, Any] = groups or {}
        self._allgroups = allgroups

    @property
    def groups(self) -> Mapping[str, Any]:
        """The nodes of each group."""
        return self._groups

    @property
    def allgroups(self) -> Nodes:
        """All nodes, None if they are the union of the groups."""
        return self._allgroups

    def resolv_map(self, group: str) -> Nodes:
        """The nodes of a group; an empty text for an unknown one."""
        nodes: Nodes = self.groups.get(group, "")
        return nodes

    def resolv_list(self) -> Nodes:
        """The names of all groups."""
        return list(self.groups)

    def resolv_all(self) -> Nodes:
        """All nodes.

        Raises:
            GroupSourceNoUpcall: the source does not know them.
        """
        if self.allgroups is None:
            raise GroupSourceNoUpcall("All", self)
        return self.allgroups

    def resolv_reverse(self, node: str) -> Nodes:
        """The groups of a node.

        Raises:
            GroupSourceNoUpcall: the source does not know them.
        """
        raise GroupSourceNoUpcall("Reverse", self)


class FileGroupSource(GroupSource):
    """A group source whose groups are in a file.

    Args:
        name: Name of the source.
        loader: Loads the file again when its cache has expired.
    """

    def __init__(self, name: str, loader: YAMLGroupLoader) -> None:
        super().__init__(name)
        self.loader = loader

    @property
    def groups(self) -> Mapping[str, Any]:
        """The nodes of each group."""
        return self.loader.groups(self.name)

    @property
    def allgroups(self) -> Nodes:
        """The nodes of the group `all`, None if there is no such group."""
        found: Nodes = self.groups.get("all")
        return found


class UpcallGroupSource(GroupSource):
    """A group source that runs commands.

    Args:
        name: Name of the source.
        map_upcall: Command that prints the nodes of `$GROUP`.
        all_upcall: Command that prints all nodes.
        list_upcall: Command that prints the names of the groups.
        reverse_upcall: Command that prints the groups of `$NODE`.
        cfgdir: The commands' working directory, and `$CFGDIR`.
        cache_time: Seconds for which an output is reused; 3600 if None.
        mapall_upcall: Command that prints a line `group: nodes` for each group.
    """

    def __init__(
        self,
        name: str,
        map_upcall: str | None = None,
        all_upcall: str | None = None,
        list_upcall: str | None = None,
        reverse_upcall: str | None = None,
        cfgdir: str | None = None,
        cache_time: float | None = None,
        mapall_upcall: str | None = None,
    ) -> None:
        super().__init__(name)
        commands = {
            "map": map_upcall,
            "all": all_upcall,
            "list": list_upcall,
            "reverse": reverse_upcall,
            "mapall": mapall_upcall,
        }
        self.upcalls = {key: command for key, command in commands.items() if command}
        self.has_reverse = "reverse" in self.upcalls
        self.cfgdir = cfgdir
        self.cache_time: float = _DEFAULT_CACHE_TIME if cache_time is None else cache_time
        self._cache: dict[str, dict[str | None, tuple[float, str]]] = {}
        self._mapall_expiry = 0.0
        self.clear_cache()

    def clear_cache(self) -> None:
        """Forgets all outputs."""
        self._cache = {"map": {}, "reverse": {}, "list": {}, "all": {}}
        self._mapall_expiry = 0.0

    def _upcall_read(self, cmdtpl: str, args: Mapping[str, str] = {}) -> str:
        """The output of a command.

        Raises:
            GroupSourceQueryFailed: it ended with another status than 0.
        """
        import subprocess

        values = {"SOURCE": self.name, "CFGDIR": self.cfgdir or "", **args}
        command = Template(self.upcalls[cmdtpl]).safe_substitute(values)
        # Without close_fds it starts by vfork.
        done = subprocess.run(
            command,
            shell=True,
            cwd=self.cfgdir,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            close_fds=False,
            check=False,
        )
        if done.returncode:
            raise GroupSourceQueryFailed(command, self)
        return done.stdout.decode(errors="surrogateescape")

    def _ask(self, question: str, key: str | None, args: Mapping[str, str]) -> str:
        """The cached output of a command, or a new one.

        Raises:
            GroupSourceNoUpcall: there is no such command.
        """
        if question not in self.upcalls:
            raise GroupSourceNoUpcall(question, self)
        cached = self._cache[question].get(key)
        now = SYSTEM_CLOCK.now()
        if cached and now < cached[0]:
            return cached[1]
        output = self._upcall_read(question, args) or ""
        if self.cache_time > 0:
            self._cache[question][key] = now + self.cache_time, output
        return output

    def _read_mapall(self) -> dict[str, str]:
        """The nodes of each group.

        Raises:
            GroupSourceQueryFailed: the command failed, or a line of its output is invalid.
        """
        groups: dict[str, str] = {}
        for line in (self._upcall_read("mapall") or "").splitlines():
            if not line.strip():
                continue
            name, colon, nodes = line.partition(":")
            name, nodes = name.strip(), nodes.strip()
            if not colon or len(name.split()) != 1:
                raise GroupSourceQueryFailed(f"expected `group: nodes`, found {line!r}", self)
            before = groups.get(name)
            groups[name] = f"{before},{nodes}" if before and nodes else before or nodes
        return groups

    def _refresh(self) -> dict[str | None, tuple[float, str]]:
        """The cache of groups; it holds all of them while the output of `mapall` is fresh."""
        now = SYSTEM_CLOCK.now()
        if now >= self._mapall_expiry:
            groups = self._read_mapall()
            expiry = now + self.cache_time
            self._cache["map"] = {name: (expiry, nodes) for name, nodes in groups.items()}
            self._cache["list"] = {None: (expiry, "\n".join(groups))}
            self._mapall_expiry = expiry
        return self._cache["map"]

    def resolv_map(self, group: str) -> Nodes:
        """The nodes of a group."""
        if "mapall" in self.upcalls:
            if self.cache_time > 0:
                cached = self._refresh().get(group)
                if cached or "map" not in self.upcalls:
                    return cached[1] if cached else ""
            elif "map" not in self.upcalls:
                return self._read_mapall().get(group, "")
        return self._ask("map", group, {"GROUP": group})

    def resolv_list(self) -> Nodes:
        """The names of all groups."""
        if "mapall" in self.upcalls:
            if self.cache_time > 0:
                self._refresh()
                return self._cache["list"][None][1]
            if "list" not in self.upcalls:
                return list(self._read_mapall())
        return self._ask("list", None, {})

    def resolv_all(self) -> Nodes:
        """All nodes."""
        return self._ask("all", None, {})

    def resolv_reverse(self, node: str) -> Nodes:
        """The groups of a node."""
        return self._ask("reverse", node, {"NODE": node})


class YAMLGroupLoader:
    """The group sources of a YAML file: each has a mapping of groups to nodes.

    Args:
        filename: The file.
        cache_time: Seconds after which it is read again; 3600 if None.

    Raises:
        GroupResolverConfigError: the file is invalid or cannot be read, or there is no PyYAML.
    """

    def __init__(self, filename: str, cache_time: float | None = None) -> None:
        self.filename = filename
        self.cache_time: float = _DEFAULT_CACHE_TIME if cache_time is None else cache_time
        self._groups: dict[str, dict[str, str]] = {}
        self._expiry = 0.0
        self._load()
        self._sources = [FileGroupSource(name, self) for name in self._groups]

    def _load(self) -> None:
        try:
            yaml = import_module("yaml")
        except ImportError as error:
            raise GroupResolverConfigError(
                f"{self.filename}: to read groups from YAML, install PyYAML ({error})"
            ) from error
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        try:
            with Path(self.filename).open(encoding="utf-8") as file:
                sources = yaml.load(file, Loader=loader)
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise GroupResolverConfigError(f"{self.filename}: {error}") from error
        if not isinstance(sources, dict):
            raise GroupResolverConfigError(f"{self.filename}: expected a mapping of group sources")
        self._groups = {name: self._check(name, groups) for name, groups in sources.items()}
        self._expiry = SYSTEM_CLOCK.now() + self.cache_time

    def _check(self, name: object, groups: object) -> dict[str, str]:
        if not isinstance(name, str):
            raise GroupResolverConfigError(
                f"{self.filename}: invalid group source {name!r}: expected a string (add quotes)"
            )
        if not isinstance(groups, dict):
            raise GroupResolverConfigError(
                f"{self.filename}: {name}: expected a mapping of groups, found {groups!r}"
            )
        checked = {}
        for group, nodes in groups.items():
            if not isinstance(group, str):
                raise GroupResolverConfigError(
                    f"{self.filename}: {name}: invalid group {group!r}: expected a string "
                    "(add quotes)"
                )
            if nodes is None:
                checked[group] = ""
            else:
                checked[group] = (
                    ",".join(map(str, nodes)) if isinstance(nodes, list) else str(nodes)
                )
        return checked

    def __iter__(self) -> Iterator[FileGroupSource]:
        return iter(self._sources)

    def groups(self, sourcename: str) -> dict[str, str]:
        """The groups of a source, from the file again if the cache has expired."""
        if SYSTEM_CLOCK.now() >= self._expiry:
            self._load()
        return self._groups.get(sourcename, {})


class GroupResolver:
    """Asks the group sources that are added to it.

    Args:
        default_source: The source of groups without one, such as `@group`.
        illegal_chars: Characters that no name of a group may have.
    """

    def __init__(
        self,
        default_source: GroupSource | None = None,
        illegal_chars: Iterable[str] | None = None,
    ) -> None:
        self._sources: dict[str, GroupSource] = {}
        self._default_source = default_source
        self.illegal_chars = frozenset(illegal_chars or ())
        if default_source:
            self._sources[default_source.name] = default_source

    def _init(self) -> None:
        """Loads the sources, before the first question."""

    def set_verbosity(self, value: int) -> None:
        """Does nothing, as in ClusterShell."""

    def add_source(self, group_source: GroupSource) -> None:
        """Adds a source.

        Raises:
            ValueError: there is one of that name.
        """
        if group_source.name in self._sources:
            raise ValueError(f"GroupSource '{group_source.name}': name collision")
        self._sources[group_source.name] = group_source

    def sources(self) -> list[str]:
        """The names of all sources, the default one first."""
        self._init()
        default = self._default_source
        first = [default.name] if default else []
        return first + [name for name in self._sources if name not in first]

    @property
    def default_source_name(self) -> str | None:
        """The name of the default source, None if there is none."""
        self._init()
        return self._default_source.name if self._default_source else None

    @default_source_name.setter
    def default_source_name(self, sourcename: str) -> None:
        self._default_source = self._source(sourcename)

    def _source(self, namespace: str | None) -> GroupSource:
        self._init()
        source = self._sources.get(namespace) if namespace else self._default_source
        if source is None:
            raise GroupResolverSourceError(namespace or "<default>")
        return source

    def _texts(self, answer: Nodes) -> list[str]:
        """An answer as a list of texts."""
        if answer is None:
            return []
        if isinstance(answer, str):
            return _COMMAS.sub(",", answer).split()
        return [text for item in answer for text in self._texts(item)]

    def _names(self, answer: Nodes) -> list[str]:
        """An answer as a list of names of groups."""
        names = self._texts(answer)
        for name in names:
            if illegal := self.illegal_chars.intersection(name):
                raise GroupResolverIllegalCharError(
                    f"group name {name!r}: illegal character {min(illegal)!r}"
                )
        return names

    def group_nodes(self, group: str, namespace: str | None = None) -> list[str]:
        """The nodes of a group, as texts that a NodeSet reads.

        Raises:
            GroupResolverSourceError: there is no such source.
            GroupSourceError: the source cannot tell.
        """
        return self._texts(self._source(namespace).resolv_map(group))

    def all_nodes(self, namespace: str | None = None) -> list[str]:
        """All nodes of a source; raises as `group_nodes`."""
        return self._texts(self._source(namespace).resolv_all())

    def grouplist(self, namespace: str | None = None) -> list[str]:
        """The names of a source's groups; raises as `group_nodes`.

        Raises:
            GroupResolverIllegalCharError: a name has one of `illegal_chars`.
        """
        return self._names(self._source(namespace).resolv_list())

    def has_node_groups(self, namespace: str | None = None) -> bool:
        """Whether `node_groups` answers."""
        try:
            return self._source(namespace).has_reverse
        except GroupResolverSourceError:
            return False

    def node_groups(self, node: str, namespace: str | None = None) -> list[str]:
        """The names of the groups of a node; raises as `grouplist`."""
        return self._names(self._source(namespace).resolv_reverse(node))


class GroupResolverConfig(GroupResolver):
    """The group sources of configuration files, which are read on first use.

    Args:
        filenames: A `groups.conf`, or several: a later one overrides those before.
        illegal_chars: Characters that no name of a group may have.

    The methods also raise `GroupResolverConfigError`: a file is invalid.
    """

    SECTION_MAIN = "Main"

    def __init__(
        self, filenames: str | Iterable[str], illegal_chars: Iterable[str] | None = None
    ) -> None:
        super().__init__(illegal_chars=illegal_chars)
        self.filenames = [filenames] if isinstance(filenames, str) else list(filenames)
        self._loaded = False

    def _init(self) -> None:
        if not self._loaded:
            self._sources = {}
            self._read()
            self._loaded = True

    def _read(self) -> None:
        config, read = _read_config(self.filenames)
        if not read:
            return
        cfgdir = str(Path(read[-1]).parent)
        main = config[self.SECTION_MAIN] if config.has_section(self.SECTION_MAIN) else {}
        self._add_sections(config, cfgdir)
        confdirs = main.get("groupsdir", "") or main.get("confdir", "")
        for path in _files(confdirs, cfgdir, "*.conf"):
            self._add_sections(_read_config([str(path)])[0], str(path.parent))
        for path in _files(main.get("autodir", ""), cfgdir, "*.yaml"):
            for source in YAMLGroupLoader(str(path)):
                self._add(source)
        default = main.get("default", "")
        if default and default not in self._sources:
            raise GroupResolverConfigError(f'Default group source not found: "{default}"')
        first = next(iter(self._sources), None)
        name = default or first
        self._default_source = self._sources[name] if name else None

    def _add(self, source: GroupSource) -> None:
        try:
            self.add_source(source)
        except ValueError as error:
            raise GroupResolverConfigError(str(error)) from None

    def _add_sections(self, config: RawConfigParser, cfgdir: str) -> None:
        for section in config.sections():
            if section == self.SECTION_MAIN:
                continue
            options = config[section]
            if not options.get("map") and not options.get("mapall"):
                raise GroupResolverConfigError(f"[{section}]: expected an option `map` or `mapall`")
            try:
                cache_time = options.getfloat("cache_time", _DEFAULT_CACHE_TIME)
            except ValueError as error:
                raise GroupResolverConfigError(f"[{section}]: cache_time: {error}") from None
            for name in section.split(","):
                self._add(
                    UpcallGroupSource(
                        name.strip(),
                        options.get("map"),
                        options.get("all"),
                        options.get("list"),
                        options.get("reverse"),
                        cfgdir,
                        cache_time,
                        options.get("mapall"),
                    )
                )


def _read_config(paths: list[str]) -> tuple[RawConfigParser, list[str]]:
    """The sections of those files that can be read, and these files."""
    import configparser

    config = configparser.RawConfigParser()
    try:
        return config, config.read(paths)
    except (configparser.Error, UnicodeDecodeError) as error:
        raise GroupResolverConfigError(str(error)) from error


def _files(folders: str, cfgdir: str, pattern: str) -> Iterator[Path]:
    """The readable files of folders, each folder once; those that do not exist have none."""
    import os
    import shlex

    try:
        texts = shlex.split(folders)
    except ValueError as error:
        raise GroupResolverConfigError(f"{folders!r}: {error}") from None
    for text in dict.fromkeys(texts):
        folder = Path(Template(text).safe_substitute(CFGDIR=cfgdir))
        if not folder.exists():
            continue
        if not folder.is_dir():
            raise GroupResolverConfigError(f"{folder} is not a directory")
        yield from (path for path in sorted(folder.glob(pattern)) if os.access(path, os.R_OK))
