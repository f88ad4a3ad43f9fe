"""The check of words: what it reads, what it reports, and how its baseline falls."""

from __future__ import annotations

import re
import tomllib

import pytest
from tests.lint import prose

RULE = prose.Rule("made-up", r"(?i)\bmade up\b", "simulated", "because", {})


def found(file, text, rule=RULE):
    """Line and text of each finding."""
    return [
        (finding.line, " ".join(finding.text.split()))
        for finding in prose.findings(file, text, [rule])
    ]


RUST = """\
//! Made up, and made
//! up.
let made_up = "made up"; // not `made up`
/// A lifetime 'a, a quote '"', and text: made up
fn nodes_made_up<'a>(x: &'a str) { r#"a "made up" one"#; '\\''; /* made
up */ "made \\
up"; "a\\"made up" }
"""


def test_rust_is_read_by_comments_strings_and_names():
    lines = [line for line, _ in found("x.rs", RUST)]
    assert sorted(lines) == [1, 1, 3, 4, 5, 5, 5, 6, 7]


@pytest.mark.parametrize(
    ("file", "text", "lines"),
    [
        ("x.rs", "struct MadeUp {\n    pub made_up: u8,\n    up: u8,\n}", [1, 2]),
        ("x.rs", "const MADE_UP: u8 = 1;\nenum MadeUpNode {}\nmod made_up;", [1, 2, 3]),
        ("x.py", "class MadeUp:\n    made_up: int\n    other = made_up", [1, 2]),
        ("x.py", "MADE_UP = 1\nif made_up == 2: pass\nmade_up(1)", [1]),
        ("x.toml", 'made_up = 1 # made up\na = "made up"\nb = """\nx made\nup"""', [1, 2, 4]),
        ("x.c", '/* Made\n * up */\nint made_up; // made up\nx("made up\\n", \'"\');', [1, 3, 4]),
        ("x.h", '"made \\"up" /* `made up` made up */', [1]),
        ("Makefile", "# Made up\nmade-up: up ## made up\n\techo made up", [1, 2]),
        ("a/made_up.rs", "", [1]),
        ("a/MadeUp.md", "", [1]),
    ],
)
def test_names_files_toml_and_makefiles_are_read(file, text, lines):
    assert [line for line, _ in found(file, text)] == lines


def test_a_variable_named_it_is_found():
    (rule,) = (rule for rule in prose.rules(prose.RULES.read_text()) if rule.name == "it-variable")
    assert len(found("x.rs", "jobs.map(|it| it.id).filter(|&it| it > 1)", rule)) == 2
    assert len(found("x.py", "[it for it in a]\nb = lambda it: it\nit.x()", rule)) == 2


def test_a_type_or_constant_with_a_bare_name_is_found():
    (rule,) = (rule for rule in prose.rules(prose.RULES.read_text()) if rule.name == "bare-name")
    rust = "enum Kind {\n    Held,\n}\npub(crate) const FEW: u8 = 1;\ntype ErrorKind = Kind;"
    assert [line for line, _ in found("x.rs", rust, rule)] == [1, 4]
    python = "class Outcome:\n    LONG: Format = 1\nKIND = 2\nkind = Held(KIND)\nMOST_JOBS = 3"
    assert [line for line, _ in found("x.py", python, rule)] == [1, 2, 3]


def test_a_method_named_after_what_has_happened_is_found_if_it_changes_self():
    (rule,) = (
        rule for rule in prose.rules(prose.RULES.read_text()) if rule.name == "past-participle"
    )
    rust = """\
fn started(&mut self) {}
fn job_ended<T: X>(
    &mut self, id: JobId) {}
fn loan_due(&'a mut self);
fn job_ended(&mut self) -> bool {}
fn next_stale(&mut self) -> Option<u32> {}
fn is_ended(&self) {}
fn ended(id: JobId) {}
fn feed(&mut self) {}
fn take_purged(&mut self) {}
fn start_over(&mut self) {}
fn carry_over(&mut self) {}
"""
    assert [line for line, _ in found("x.rs", rust, rule)] == [1, 2, 4, 5]
    python = """\
def _job_ended(self, id: int) -> None: ...
def started(self) -> bool: ...
def started(id: int) -> None: ...
async def lost(
    self, error: OSError) -> None: ...
"""
    assert [line for line, _ in found("x.py", python, rule)] == [1, 4]


PYTHON = '''\
"""Made
up."""
made_up = 1  # Made
# up.
def nodes_made_up():
    x = f"made up {made_up}"  # `made up` is code
    return 'made up'
'''


def test_python_is_read_by_comments_strings_and_names():
    assert [line for line, _ in found("x.py", PYTHON)] == [1, 3, 3, 5, 6, 7]


MARKDOWN = """\
# Made up

```python
made up
```

A `made up` word, made
up.
"""


def test_markdown_is_read_without_code():
    assert found("x.md", MARKDOWN) == [(1, "Made up"), (7, "made up")]


def test_a_finding_names_the_place_the_word_and_what_to_write():
    (finding,) = prose.findings("docs/x.md", "Nodes that are\nmade\nup.", [RULE])
    assert str(finding) == "docs/x.md:2: `made up`: write simulated (because)"
    assert finding.folder == "docs"


def test_a_file_may_be_allowed():
    rule = prose.Rule("made-up", "made up", "simulated", "because", {"docs/gloss*.md": "lists it"})
    assert found("docs/glossary.md", "made up", rule) == []
    assert len(found("docs/other.md", "made up", rule)) == 1


@pytest.mark.parametrize(
    ("file", "folder"),
    [
        ("README.md", "."),
        ("docs/a.md", "docs"),
        ("rust/sim/src/a/b.rs", "rust/sim"),
        ("tests/unit/cli/test_a.py", "tests/unit"),
    ],
)
def test_the_baseline_counts_by_folder(file, folder):
    text = (
        "made up" if file.endswith(".md") else "'made up'" if file.endswith(".py") else '"made up"'
    )
    (finding,) = prose.findings(file, text, [RULE])
    assert finding.folder == folder


def occurrences(**numbers):
    """The findings in `rust/<name>/x.rs`, of the number given for each name."""
    text = "// made up\n"
    return [
        finding
        for name, number in numbers.items()
        for finding in prose.findings(f"rust/{name}/x.rs", text * number, [RULE])
    ]


def test_more_than_the_baseline_is_reported_and_less_is_not():
    baseline = {"made-up": {"rust/a": 2, "rust/b": 2}}
    assert prose.excess(occurrences(a=2, b=1), baseline) == []
    assert len(prose.excess(occurrences(a=3, b=1), baseline)) == 3
    assert len(prose.excess(occurrences(c=1), baseline)) == 1


def test_tightening_lowers_the_baseline_and_never_raises_it():
    baseline = {"made-up": {"rust/a": 2, "rust/b": 2, "rust/c": 1}, "gone": {"rust/a": 1}}
    lower = prose.tightened(occurrences(a=1, b=5), baseline)
    assert lower == {"made-up": {"rust/a": 1, "rust/b": 2}}
    assert tomllib.loads(prose.written(lower)) == lower


def test_a_rule_needs_all_its_keys():
    table = '[rule.x]\npattern = "a"\ninstead = "b"\n'
    (rule,) = prose.rules('[allow]\n"*.md" = "d"\n' + table + 'reason = "c"\nallow = {"a" = "e"}\n')
    assert (rule.name, rule.allow) == ("x", {"*.md": "d", "a": "e"})
    for wrong in (table, table + 'reason = "c"\nmore = 1\n'):
        with pytest.raises(TypeError):
            prose.rules(wrong)


def test_the_rules_compile_and_the_baseline_is_of_them():
    rules = prose.rules(prose.RULES.read_text())
    for rule in rules:
        assert isinstance(rule.compiled(), re.Pattern)
    assert tomllib.loads(prose.BASELINE.read_text()).keys() <= {rule.name for rule in rules}


# By rule: a text that it reports, and a text that it accepts.
EXAMPLES = [
    ("made-up", "nodes that are made up", "what made the job start"),
    ("what-waits", "the order of what waits", "a job that waits for a hook"),
    ("what-runs", "what runs on a node", "what a run costs"),
    ("is-asked", "nothing is asked of it", "it asks for nodes"),
    ("any-more", "it is not there any more", "any more than two"),
    ("as-long-as-not", "as long as it is not there", "as long as the job runs"),
    ("nobody", "nobody reads it", "no client reads it"),
    ("is-none", "a queue that is none", "the limit is None, and there is none"),
    ("give-back", "nodes that a job gives back", "goes back to the pool"),
    ("have-back", "nodes that are had back, or that it has it back", "a backward pass"),
    ("take-back", "the request is taken back", "it takes a backup"),
    ("put-off", "the pass is put off", "a put request"),
    ("anew", "it is computed anew", "a new one"),
    ("is-over", "the job is over", "the limit is over the maximum"),
    ("no-good", "a file that is no good", "no goods"),
    ("goes-by", "it goes by the id", "it goes bytewise"),
    ("hears-of", "the scheduler hears of it", "a heart beat"),
    ("how-far", "how far a dialogue has come", "however fast"),
    ("what-there-is", "more than what there is", "what is there"),
    ("for-ever", "it waits for ever", "for every job"),
    ("less-and-less", "less and less often", "less memory"),
    ("so-many", "the order of so many jobs", "more than that many cores"),
    ("in-vain", "it looked in vain", "in vanilla Python"),
    ("refuse", "the request is refused", "a request that is rejected"),
    ("is-told", "the owner is told of it", "it tells the owner"),
    ("go-on", "the pass goes on", "it goes on the list"),
    ("starts-with-what", "It ends. Those that run are killed", "Who may ask? The owner."),
    ("starts-with-how", "How a request ended.", "Which one? How many? The number of nodes"),
    ("where-none", "the time, none where there is no job", "a place where nodes are"),
    ("job-waits", "no job waits", "a job waits for its prolog"),
    ("run-on", "the tasks run on until the next start", "nodes that a job may run on"),
    ("is-no", "`x` is no file", "0 is no limit"),
    ("such", "there is none such", "no such queue"),
    ("it-variable", "loop-variable-it", "for it in jobs"),
    ("bare-name", "declares:Kind", "declares:ErrorKind"),
    ("past-participle", "changes-self:job_ended", "changes-self:forget_submitted"),
    ("predicate-acts", "changes-self:is_reachable", "changes-self:check_reachable"),
    ("note-verb", "changes-self:note_start", "changes-self:record_note"),
    ("canceled", "the request is canceled", "the result 'canceled' of a cancelled job"),
]


@pytest.mark.parametrize(("name", "bad", "good"), EXAMPLES)
def test_a_rule_finds_the_habit_and_leaves_the_rest_alone(name, bad, good):
    (rule,) = (rule for rule in prose.rules(prose.RULES.read_text()) if rule.name == name)
    assert found("x.md", bad, rule)
    assert found("x.md", good, rule) == []


def test_every_rule_has_an_example():
    assert [name for name, _, _ in EXAMPLES] == [
        rule.name for rule in prose.rules(prose.RULES.read_text())
    ]
