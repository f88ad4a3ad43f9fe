//! Runs of scripts, and the search for a shorter script with the same violation.

use std::cell::RefCell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

use crate::script::{Script, StepKind};
use crate::world::{Violation, World};

thread_local! {
    /// The message and place of the last panic of this thread; `None` while panics are not expected.
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Keeps the text of panics in runs, and leaves others to the hook before.
fn keep_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let is_kept = PANIC.with_borrow_mut(|kept| {
                kept.as_mut().map(|kept| *kept = info.to_string()).is_some()
            });
            if !is_kept {
                before(info);
            }
        }));
    });
}

/// The result of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// The steps that were taken without a violation.
    pub steps: usize,
    /// The first violation.
    pub violation: Option<Violation>,
    /// A digest of everything that arrived at an end of a connection.
    pub digest: u64,
}

/// Runs a script until its end or the first violation.
pub fn run(script: &Script) -> Run {
    keep_panics();
    PANIC.set(Some(String::new()));
    let (mut steps, mut digest) = (0, 0);
    let result = panic::catch_unwind(AssertUnwindSafe(|| {
        let mut world = World::new(script.setup);
        for step in &script.steps {
            world.take(*step);
            if step.kind == StepKind::Run {
                world.check_silent();
            }
            world.check_step();
            if !world.violations.is_empty() {
                break;
            }
            steps += 1;
        }
        if world.violations.is_empty() {
            // A restart would hide what the daemon cannot recover from by itself.
            if script.steps.len().is_multiple_of(2) {
                world.restart_daemon();
            }
            world.wind_up();
        }
        digest = world.digest();
        world.violations.first().cloned()
    }));
    let text = PANIC.take().unwrap_or_default();
    let violation = result.unwrap_or_else(|_| Some(Violation::new("panic", text)));
    Run {
        steps,
        violation,
        digest,
    }
}

/// Looks for a shorter script with smaller numbers that violates the same invariant.
pub fn shorten(script: &Script) -> Script {
    let first = run(script);
    let Some(violation) = first.violation else {
        return script.clone();
    };
    let violates = |candidate: &Script| {
        let found = run(candidate).violation;
        found.is_some_and(|other| other.invariant == violation.invariant)
    };
    let mut best = script.clone();
    best.steps.truncate(first.steps + 1);
    if !violates(&best) {
        best = script.clone();
    }
    let mut size = best.steps.len().next_power_of_two() / 2;
    while size > 0 {
        let mut start = 0;
        while start < best.steps.len() {
            let mut candidate = best.clone();
            let end = (start + size).min(candidate.steps.len());
            candidate.steps.drain(start..end);
            if violates(&candidate) {
                best = candidate;
            } else {
                start += size;
            }
        }
        size /= 2;
    }
    for index in 0..best.steps.len() {
        for argument in 0..crate::script::MAX_ARGUMENTS {
            for value in [0, 1, 4, 16, 64] {
                let mut candidate = best.clone();
                let place = candidate.steps.get_mut(index);
                let Some(place) = place.and_then(|step| step.arguments.get_mut(argument)) else {
                    continue;
                };
                if *place <= value {
                    break;
                }
                *place = value;
                if violates(&candidate) {
                    best = candidate;
                    break;
                }
            }
        }
    }
    loop {
        let candidates = best.setup.simpler().map(|setup| Script {
            setup,
            steps: best.steps.clone(),
        });
        let Some(simpler) = candidates.into_iter().find(violates) else {
            break;
        };
        best = simpler;
    }
    best
}
