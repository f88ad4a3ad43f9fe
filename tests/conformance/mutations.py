"""Mutations: branches of the source without which a conformance test must fail.

`python tests/conformance/mutations.py` (`make mutations`) works on a copy of the tree. After a run
of all named tests, which must pass, it removes one branch at a time, compiles the extension if the
branch is Rust, and runs the test that must fail. CI checks only that each branch still exists.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTS = Path("tests", "conformance")
PARTS = ("rust", "python", "tests", "Cargo.toml", "Cargo.lock", "clippy.toml", "pyproject.toml")
UNWANTED = shutil.ignore_patterns("target", "__pycache__", "_core*.so", ".hypothesis")
FAILED = 1  # pytest's exit code where a test has failed


@dataclass(frozen=True)
class Mutation:
    """A branch to remove, and the test (`file::name`) that must fail without it."""

    what: str
    file: str
    old: str
    new: str
    test: str


MUTATIONS = (
    Mutation(
        "a second acquire gets EBUSY",
        "rust/resource/src/acquire.rs",
        "        if self.holder.is_some() {\n"
        '            return Message::error_to(request, EBUSY, "");\n'
        "        }\n",
        "        let _ = EBUSY;\n",
        "test_current.py::test_acquire_is_exclusive_and_streaming",
    ),
    Mutation(
        "acquire sends transitions only",
        "rust/resource/src/acquire.rs",
        "            up: some(&up - &holder.up, IdSet::is_empty),\n"
        "            down: some(&holder.up - &up, IdSet::is_empty),\n",
        "            up: some(up.clone(), IdSet::is_empty),\n"
        "            down: some(&ranks - &up, IdSet::is_empty),\n",
        "test_rfc28.py::test_changes_hold_transitions_only",
    ),
    Mutation(
        "nothing follows the final release",
        "python/penstock/protocol/execution.py",
        "        if final:\n            self.state = State.RELEASED\n",
        "",
        "test_rfc32.py::test_nothing_comes_after_the_final_release",
    ),
    Mutation(
        "a rejected exec-hello is fatal",
        "python/penstock/instance/services.py",
        "        if self._exec.failure is not None:\n"
        '            raise OSError(errno.EPROTO, f"simulated execution: {self._exec.failure}")\n',
        "",
        "test_rfc32.py::test_a_rejected_hello_ends_the_service",
    ),
    Mutation(
        "a rejected scheduler exits",
        "python/penstock/sched.py",
        "        if scheduler.failure is not None:\n            return 1\n",
        "",
        "test_rfc27.py::test_the_scheduler_logs_an_error_and_exits",
    ),
    Mutation(
        "hello must be streaming",
        "rust/manager/src/router.rs",
        "            message.require_streaming()?;\n",
        "",
        "test_current.py::test_hello_must_be_streaming",
    ),
    Mutation(
        "hello ends with ENODATA",
        "rust/manager/src/scheduler/handshake.rs",
        "                return cx.end_stream(&request);\n",
        "                return;\n",
        "test_rfc27.py::test_hello_announces_each_job_with_resources_once",
    ),
    Mutation(
        "limited mode limits",
        "rust/manager/src/scheduler/request.rs",
        "            if !self.has_room(mode) {\n"
        "                return self.displace_last(cx);\n"
        "            }\n",
        "",
        "test_rfc27.py::test_limited_mode_keeps_to_its_limit",
    ),
    Mutation(
        "an error response suspends scheduling",
        "rust/manager/src/scheduler/response.rs",
        "            return self.suspend(cx, &errno::failure(response.topic(), errnum, None));\n",
        "            return;\n",
        "test_rfc27.py::test_a_conventional_error_stops_requests_until_ready",
    ),
    Mutation(
        "the note of DENY goes into the exception",
        "rust/manager/src/scheduler/response.rs",
        "let note = alloc.note.unwrap_or_default();",
        "let note = penstock_flux::Text::default();",
        "test_rfc27_responses.py::test_the_note_of_deny_is_in_the_exception",
    ),
    Mutation(
        "null removes an annotation",
        "rust/manager/src/annotations.rs",
        "            (_, Value::Null) => {\n"
        "                current.shift_remove(key);\n"
        "            }\n",
        "",
        "test_rfc27_responses.py::test_null_removes_a_key",
    ),
    Mutation(
        "annotations merge recursively",
        "rust/manager/src/annotations.rs",
        "            (Some(Value::Object(old)), Value::Object(new)) => merge(old, new),\n",
        "",
        "test_rfc27_responses.py::test_dictionaries_are_merged_recursively",
    ),
    Mutation(
        "a disconnect of the scheduler suspends scheduling",
        "rust/manager/src/scheduler/handshake.rs",
        "        if self.session.origin.as_deref() == Some(origin) {\n",
        "        if self.session.origin.as_deref() == Some(origin) && false {\n",
        "test_rfc27.py::test_a_disconnect_of_the_scheduler_suspends_scheduling",
    ),
    Mutation(
        "an error response stops starts",
        "rust/manager/src/exec.rs",
        "            return self.stop(cx, &loss);\n",
        "            let _ = loss;\n            return;\n",
        "test_rfc32.py::test_a_conventional_error_stops_starts_until_exec_hello",
    ),
    Mutation(
        "exec-hello is rejected if configured",
        "rust/manager/src/exec.rs",
        "            (Some(current), _) if outstanding > 0 => {\n",
        "            (Some(current), _) if outstanding > usize::MAX - 1 => {\n",
        "test_rfc32.py::test_hello_is_rejected_while_starts_are_outstanding_if_configured",
    ),
    Mutation(
        "ENOSYS from sched.expiration is success",
        "rust/manager/src/scheduler/expiration.rs",
        "            0 | ENOSYS => ",
        "            0 => ",
        "test_current.py::test_an_accepted_change_of_expiration_is_made",
    ),
    Mutation(
        "ready waits for the end of hello",
        "rust/sched/src/handshake.rs",
        "self.phase == Phase::Greeting && hello.has_ended && hello.lookups_outstanding == 0",
        "self.phase == Phase::Greeting && hello.lookups_outstanding == 0",
        "test_rfc27.py::test_ready_comes_after_the_end_of_hello",
    ),
    Mutation(
        "targets that are down are not allocated",
        "rust/sched/src/acquisition.rs",
        "            engine.mark_down(down);\n",
        "            let _ = down;\n",
        "test_rfc28.py::test_the_scheduler_follows_up_and_down",
    ),
    Mutation(
        "a current free has no response",
        "rust/sched/src/alloc.rs",
        "Ok(free.r.is_none().then(|| response.to_payload()))",
        "Ok(Some(response.to_payload()))",
        "test_current.py::test_a_current_free_has_no_response",
    ),
    Mutation(
        "the scheduler gets a redacted jobspec",
        "rust/jobspec/src/jobspec.rs",
        '        system.shift_remove("environment");\n',
        "",
        "test_rfc27.py::test_the_full_jobspec_is_durable_before_the_alloc_request",
    ),
)


class Copy:
    """A copy of the tree, in which branches are removed and restored.

    Args:
        root: where it goes.
        target: the build directory of cargo.
    """

    def __init__(self, root: Path, target: Path) -> None:
        self.root = root
        self._target = target
        for name in PARTS:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, root / name, ignore=UNWANTED)
            elif source.exists():
                shutil.copy(source, root / name)

    def build(self) -> None:
        """Compiles the extension and puts it into the package."""
        environment = {**os.environ, "CARGO_TARGET_DIR": str(self._target)}
        # Not optimised: many builds, few and small tests.
        command = ["cargo", "build", "--quiet", "--locked", "-p", "penstock-py"]
        done = subprocess.run(
            command, cwd=self.root, env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(f"the extension does not build:\n{done.stderr}")
        built = self._target / "debug"
        (library,) = (path for path in built.glob("lib_core.*") if path.suffix in (".so", ".dylib"))
        shutil.copy(library, self.root / "python" / "penstock" / "_core.abi3.so")

    def run(self, *tests: str) -> int:
        """Runs tests; returns pytest's exit code."""
        environment = {**os.environ, "PYTHONPATH": str(self.root / "python")}
        names = [str(TESTS / test) for test in tests]
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *names]
        done = subprocess.run(
            command, cwd=self.root, env=environment, capture_output=True, text=True, check=False
        )
        self.output = done.stdout + done.stderr
        return done.returncode

    def replace(self, file: str, old: str, new: str) -> None:
        """Replaces a text that must occur once in a file."""
        path = self.root / file
        text = path.read_text()
        if text.count(old) != 1:
            raise SystemExit(
                f"{file}: expected this once, found it {text.count(old)} times:\n{old}"
            )
        path.write_text(text.replace(old, new))


def run_mutation(copy: Copy, mutation: Mutation) -> str:
    """Removes a branch, runs its test, and restores it; returns the result as text."""
    rust = mutation.file.endswith(".rs")
    text = (copy.root / mutation.file).read_text()
    copy.replace(mutation.file, mutation.old, mutation.new)
    try:
        if rust:
            copy.build()
        code = copy.run(mutation.test)
    finally:
        (copy.root / mutation.file).write_text(text)
    if code == FAILED:
        return "fails, as expected"
    return "PASSES" if code == 0 else f"ENDS WITH {code}:\n{copy.output}"


def main() -> int:
    """Removes the branches one at a time; returns how many tests passed nevertheless."""
    parser = argparse.ArgumentParser(description="removes branches of the source: a test must fail")
    parser.add_argument("--target-dir", type=Path, default=ROOT / "target" / "mutations")
    parser.add_argument("--only", default="", help="those with this text in name, file or test")
    options = parser.parse_args()
    chosen = [
        entry for entry in MUTATIONS if options.only in f"{entry.what} {entry.file} {entry.test}"
    ]
    options.target_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="penstock-mutations-") as root:
        copy = Copy(Path(root), options.target_dir.resolve())
        copy.build()
        if copy.run(*dict.fromkeys(entry.test for entry in chosen)):
            raise SystemExit(f"before the first mutation:\n{copy.output}")
        unnoticed = 0
        for mutation in chosen:
            began = time.monotonic()
            outcome = run_mutation(copy, mutation)
            unnoticed += outcome != "fails, as expected"
            took = f"{time.monotonic() - began:.0f} s"
            print(f"{mutation.what}: {mutation.test} {outcome} ({took})", flush=True)
    print(f"{len(chosen)} mutations, {unnoticed} unnoticed")
    return unnoticed


if __name__ == "__main__":
    sys.exit(min(main(), 1))
