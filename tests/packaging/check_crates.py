"""Packages the published crates, and uses the packages alone in an empty project.

The crates are those of the workspace that may be published. `make test-crates` runs it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
TARGET = ROOT / "target" / "crates"
METADATA = ["description", "documentation", "readme", "keywords", "categories", "license"]
FILES = {"Cargo.toml", "README.md", "LICENSE-APACHE", "LICENSE-MIT", "src/lib.rs"}

PROGRAM = """
use penstock_engine::{Decision, Engine, Job, QueueId};
use penstock_hostlist::Hostlist;
use penstock_idset::IdSet;
use penstock_jobspec::Jobspec;
use penstock_rset::ResourceSet;
use penstock_wire::{DEFAULT_MAX_FRAME_BYTES, Decoder, Message};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let drained: IdSet = "1-2".parse()?;
    let cluster = ResourceSet::from_json(
        r#"{"version":1,"execution":{"R_lite":[{"rank":"0-3","children":{"core":"0-7"}}],
            "nodelist":["node[0-3]"]}}"#,
    )?;
    let up = &cluster.ranks() - &drained;
    let mut engine = Engine::new(&cluster)?;
    engine.mark_up(&up);
    let jobspec = Jobspec::from_json(
        r#"{"version":1,"resources":[{"type":"slot","count":2,"label":"t",
            "with":[{"type":"core","count":8}]}],
            "tasks":[{"command":["a"],"slot":"t","count":{"per_slot":1}}],
            "attributes":{"system":{"duration":60}}}"#,
    )?;
    let id = "7".parse()?;
    let request = jobspec.request().clone();
    engine.submit(Job { id, priority: 16, request, queue: QueueId::default() })?;
    assert_eq!(engine.schedule(0.0, 1), [Decision::Alloc { id, backfilled: false }]);
    let r = engine.r(id)?;
    let expected: Hostlist = "node[0,3]".parse()?;
    assert_eq!(r.nodelist(), expected);
    let mut frame = Vec::new();
    Message::request("job.start", &r.to_json()).encode(&mut frame);
    let mut messages = Vec::new();
    Decoder::new(DEFAULT_MAX_FRAME_BYTES).feed(&frame, &mut messages)?;
    println!("{} to {}", messages[0].topic(), r.nodelist());
    Ok(())
}
"""


def cargo(*arguments: object, cwd: Path = ROOT) -> str:
    """The output of a command of cargo."""
    command = ["cargo", *map(str, arguments)]
    done = subprocess.run(command, cwd=cwd, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"`{' '.join(command)}` failed with {done.returncode}")
    return done.stdout


def published() -> dict[str, str]:
    """The names and versions of the crates of the workspace that may be published."""
    metadata = json.loads(cargo("metadata", "--format-version=1", "--no-deps", "--locked"))
    packages = [package for package in metadata["packages"] if package["publish"] != []]
    for package in packages:
        if missing := [key for key in [*METADATA, "rust_version"] if not package[key]]:
            sys.exit(f"{package['name']}: Cargo.toml lacks {missing}")
    return {package["name"]: package["version"] for package in packages}


def check(folder: Path) -> None:
    """Packages, unpacks and uses the crates."""
    crates = published()
    names = [f"--package={name}" for name in crates]
    quiet = ("--quiet", "--locked", "--allow-dirty", "--no-verify", "--target-dir", TARGET)
    cargo("package", *quiet, *names)
    dependencies, patches = [], []
    for name, version in crates.items():
        with tarfile.open(TARGET / "package" / f"{name}-{version}.crate") as tar:
            tar.extractall(folder, filter="data")
        crate = folder / f"{name}-{version}"
        missing = [file for file in FILES if not (crate / file).is_file()]
        if missing:
            sys.exit(f"{name}: the package lacks {missing}")
        dependencies.append(f'{name} = "{version}"')
        patches.append(f'{name} = {{ path = "{crate}" }}')
    project = folder / "project"
    (project / "src").mkdir(parents=True)
    (project / "src" / "main.rs").write_text(PROGRAM)
    manifest = ["[package]", 'name = "project"', 'edition = "2024"', "[dependencies]"]
    manifest += [*dependencies, "[patch.crates-io]", *patches, ""]
    (project / "Cargo.toml").write_text("\n".join(manifest))
    # The versions of other crates that the workspace has.
    (project / "Cargo.lock").write_bytes((ROOT / "Cargo.lock").read_bytes())
    output = cargo("run", "--quiet", "--target-dir", TARGET, cwd=project)
    if output != "job.start to node[0,3]\n":
        sys.exit(f"the program printed {output!r}")
    print(f"{len(crates)} crates: packaged; a program uses them alone: {', '.join(crates)}")


def main() -> None:
    """Checks the crates."""
    with tempfile.TemporaryDirectory() as folder:
        check(Path(folder))


if __name__ == "__main__":
    main()
