//! Any bytes as the configuration of the job manager and of the scheduler: the JSON that the daemon makes of it.
//!
//! The TOML of the configuration file is read in Python: `tests/property/test_configuration.py` has random ones.

use penstock_manager::{Manager, Settings};
use penstock_sched::{Options, Scheduler, Settings as SchedulerSettings};
use penstock_store::Store;
use serde_json::{Map, Value};

use crate::conversation::{OWNER, START_S, hold};

/// Conversations that the services hold with settings.
const MANAGER_STEPS: &[u8] = include_bytes!("../../corpus/manager_messages/exec-start");
const SCHEDULER_STEPS: &[u8] = include_bytes!("../../corpus/scheduler_messages/alloc-and-free");

/// Reads the bytes as settings of each service. With valid ones, a service that was started with them holds a conversation,
/// and so does one whose settings are changed to them.
///
/// # Panics
///
/// Panics if settings or an error are wrong, and where a service does.
pub fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let is_object = serde_json::from_str::<Map<String, Value>>(text).is_ok();
    match Settings::from_json(text) {
        Ok(settings) => {
            assert!(is_object);
            assert_eq!(Settings::from_json(text).as_ref(), Ok(&settings));
            manage(settings);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    match SchedulerSettings::from_json(text) {
        Ok(settings) => {
            assert!(is_object);
            assert_eq!(SchedulerSettings::from_json(text).as_ref(), Ok(&settings));
            schedule(settings, text);
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            assert!(is_object || error.key().is_empty());
        }
    }
}

fn manage(mut settings: Settings) {
    settings.owner = OWNER;
    let before = Settings {
        owner: OWNER,
        ..Settings::default()
    };
    let open = |settings| {
        let store = Store::in_memory().expect("a store in memory");
        Manager::open(store, settings, START_S).expect("an empty store")
    };
    let mut manager = open(before.clone());
    manager.set_settings(settings.clone(), START_S);
    hold(manager, MANAGER_STEPS);
    let mut manager = open(settings);
    manager.set_settings(before, START_S);
    hold(manager, MANAGER_STEPS);
}

fn schedule(settings: SchedulerSettings, text: &str) {
    let mut steps = SCHEDULER_STEPS.to_vec();
    steps.extend_from_slice(b"\nowner sched.config-reload ");
    steps.extend_from_slice(text.replace(['\n', '\r'], " ").as_bytes());
    for settings in [SchedulerSettings::default(), settings] {
        let mut scheduler = Scheduler::new(Options {
            settings,
            ..Options::default()
        });
        scheduler.start();
        hold(scheduler, &steps);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_corpus_has_valid_settings_of_both_services() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../corpus/settings_text");
        let files = std::fs::read_dir(folder).expect("the corpus");
        let texts = files.map(|file| std::fs::read(file.expect("a file").path()).expect("a file"));
        let texts: Vec<String> = texts
            .filter_map(|text| String::from_utf8(text).ok())
            .filter(|text| text.len() > 4)
            .collect();
        let valid = |text: &&String| Settings::from_json(text).is_ok();
        assert!(texts.iter().filter(valid).count() >= 3);
        let valid = |text: &&String| SchedulerSettings::from_json(text).is_ok();
        assert!(texts.iter().filter(valid).count() >= 3);
    }
}
