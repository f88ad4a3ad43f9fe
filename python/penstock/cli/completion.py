"""`penstock completion`: completion of command lines in bash, zsh and fish."""

from __future__ import annotations

import argparse
import importlib
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from penstock.cli import SHORT_FORMS, VERBS, selection
from penstock.cli.parser import Parser
from penstock.cli.text import id_texts, safe
from penstock.client import Client
from penstock.clock import SYSTEM_CLOCK
from penstock.errors import Error, UsageError
from penstock.resource import ResourceSet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

SUMMARY = """Print a script that completes the verbs, options and values of penstock in a shell.

Job ids, queues, hosts and properties are those that the instance has when TAB is pressed:

  bash  eval "$(penstock completion bash)"
  zsh   eval "$(penstock completion zsh)"      (after compinit)
  fish  penstock completion fish | source"""

# Each calls `penstock completion words` with the words up to the cursor; without a result the
# shell completes files.
SCRIPTS = {
    "bash": r"""
_penstock() {
    local value text
    COMPREPLY=()
    while IFS=$'\t' read -r value text; do
        COMPREPLY+=("$value")
    done < <(penstock completion words -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -o default -F _penstock penstock
""",
    "zsh": r"""
_penstock() {
    local value text
    local -a found
    while IFS=$'\t' read -r value text; do
        found+=("${value//:/\\:}:$text")
    done < <(penstock completion words -- "${(@)words[2,CURRENT]}" 2>/dev/null)
    if (( ${#found} )); then
        _describe penstock found
    else
        _files
    fi
}
compdef _penstock penstock
""",
    "fish": r"""
function __penstock_words
    set -l words (commandline -opc) (commandline -ct)
    set -l found (penstock completion words -- $words[2..-1] 2>/dev/null)
    if set -q found[1]
        printf '%s\n' $found
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c penstock -f -a '(__penstock_words)'
""",
}
# In place of a shell: print the values that the last word may become.
WORDS = "words"
# Time limit for the values of an instance.
TIMEOUT_S = 2.0
MAX_VALUES = 1000
# Verbs on jobs that may be inactive; the others complete active jobs.
VERBS_ON_ALL_JOBS = ("eventlog", "info", "jobs", "logs", "purge", "wait", "watch")


class _Shells(tuple[str, ...]):
    """The shells. The word that their scripts pass instead of one is valid, but not shown."""

    __slots__ = ()

    def __contains__(self, word: object) -> bool:
        return word == WORDS or super().__contains__(word)


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    parser.add_argument("shell", choices=_Shells(SCRIPTS), metavar="SHELL", help="bash, zsh, fish")
    words = parser.add_argument("words", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    words.required = False


def main(args: argparse.Namespace) -> int:
    """Runs the verb."""
    if args.shell != WORDS:
        if args.words:
            raise UsageError(f"unexpected argument `{args.words[0]}`")
        print(SCRIPTS[args.shell].strip())
        return 0
    words = args.words[1:] if args.words[:1] == ["--"] else args.words
    for value, text in completions(words or [""]):
        print(f"{value}\t{safe(text)}" if text else value)
    return 0


def completions(words: list[str]) -> list[tuple[str, str]]:
    """The values that the last word may become, with their descriptions.

    Args:
        words: the words after `penstock`, of which the last is incomplete.
    """
    words, prefix = _with_joined_values(words)
    *before, last = words
    if not before:
        found = [(verb, text) for verb, (_, text) in VERBS.items()]
        found += [(verb, f"penstock {' '.join(form)}") for verb, form in SHORT_FORMS.items()]
    else:
        verb, *before = SHORT_FORMS.get(before[0], before[:1]) + before[1:]
        found = _Line(verb, before).values(last) if verb in VERBS else []
    shown = ((value.removeprefix(prefix), text) for value, text in found if value.startswith(last))
    return [*shown][:MAX_VALUES]


def _with_joined_values(words: list[str]) -> tuple[list[str], str]:
    """The words, with `--option=value` as one, and the part of the last word that the shell keeps.

    Bash splits words at `=`.
    """
    joined: list[str] = []
    for word in words:
        if joined and (word == "=" or joined[-1].endswith("=")) and joined[-1].startswith("--"):
            joined[-1] += word
        else:
            joined.append(word)
    is_split = len(joined) < len(words)
    option, separator, _ = joined[-1].partition("=")
    is_value = separator and joined[-1].startswith("--")
    return joined, option + separator if is_split and is_value else ""


class _Line:
    """The parser and the expected argument after the complete words of a command line.

    Args:
        verb: of the line.
        words: the complete words after it.
    """

    def __init__(self, verb: str, words: list[str]) -> None:
        self._verb = verb
        module = importlib.import_module(f"penstock.cli.{VERBS[verb][0]}")
        self._parser: argparse.ArgumentParser = Parser.of_verb(verb, module.SUMMARY)
        self._parser.set_defaults(clock=SYSTEM_CLOCK)
        module.register(self._parser)
        # The option of which the next word is the value.
        self._option: argparse.Action | None = None
        # Positional words so far, of the parser of the operation if there is one.
        self._positionals = 0
        # Whether the rest of the line is another command.
        self._is_remainder = False
        for word in words:
            self._take(word)

    def _actions(self) -> list[argparse.Action]:
        return self._parser._actions

    def _take(self, word: str) -> None:
        if self._option is not None:
            self._option = None
        elif self._is_remainder:
            pass
        elif word.startswith("-") and word != "-":
            action = self._parser._option_string_actions.get(word)
            if action is not None and action.nargs != 0:
                self._option = action
        else:
            action = self._positional()
            if isinstance(action, argparse._SubParsersAction) and word in action.choices:
                self._parser = action.choices[word]
                self._positionals = 0
            elif action is not None:
                self._is_remainder = action.nargs == argparse.REMAINDER
                self._positionals += 1

    def _positional(self) -> argparse.Action | None:
        """The next positional argument; the last one may be repeated."""
        actions = [action for action in self._actions() if not action.option_strings]
        return actions[min(self._positionals, len(actions) - 1)] if actions else None

    def values(self, last: str) -> list[tuple[str, str]]:
        """The possible values of the incomplete word."""
        if self._is_remainder:
            return []
        if self._option is not None:
            return self._values_of(self._option)
        option, separator, _ = last.partition("=")
        if separator and (action := self._parser._option_string_actions.get(option)):
            return [(f"{option}={value}", text) for value, text in self._values_of(action)]
        if last.startswith("-"):
            return [
                (name, (action.help or "").replace("%%", "%"))
                for action in self._actions()
                for name in action.option_strings
                if action.help != argparse.SUPPRESS and name.startswith("--")
            ]
        action = self._positional()
        return [] if action is None else self._values_of(action)

    def _values_of(self, action: argparse.Action) -> list[tuple[str, str]]:
        if isinstance(action, argparse._SubParsersAction):
            helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
            return [(name, helps.get(name, "")) for name in action.choices]
        if action.choices is not None:
            return [(str(choice), "") for choice in action.choices]
        source = self._source(action)
        if source is not None:
            # Without an instance there is nothing to offer.
            with suppress(Error, OSError), Client(timeout=TIMEOUT_S) as client:
                return [*source(client)]
        return []

    def _source(self, action: argparse.Action) -> Callable[[Client], Iterable[Any]] | None:
        """The values of an argument that an instance has."""
        if action.dest == "queue" or (self._verb == "queue" and action.dest == "name"):
            return _queues
        if action.dest in ("targets", "include"):
            return _hosts
        if action.dest == "requires":
            return _properties
        if action.dest in ("id", "job"):
            return _jobs_in_all_states if self._verb in VERBS_ON_ALL_JOBS else _active_jobs
        return None


# --- values that an instance has


def _queues(client: Client) -> list[tuple[str, str]]:
    return [(name, "") for name in client.queue_list()]


def _hosts(client: Client) -> list[tuple[str, str]]:
    return [(host, "") for host in ResourceSet(client.resource_status()["R"]).nodelist]


def _properties(client: Client) -> list[tuple[str, str]]:
    properties = ResourceSet(client.resource_status()["R"]).properties
    return [(name, f"on {len(ranks)} nodes") for name, ranks in properties.items()]


def _active_jobs(client: Client) -> list[tuple[str, str]]:
    return _jobs(client, {"and": [selection.ACTIVE]})


def _jobs_in_all_states(client: Client) -> list[tuple[str, str]]:
    return _jobs(client, {"and": []})


def _jobs(client: Client, constraint: dict[str, Any]) -> list[tuple[str, str]]:
    rows = client.job_rows(constraint=constraint, max_entries=MAX_VALUES, attrs=["name"])
    names = id_texts(row["id"] for row in rows)
    return [(name, row["name"]) for name, row in zip(names, rows, strict=True)]
