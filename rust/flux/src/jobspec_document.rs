//! The text of a jobspec with what execution services in the same process need of it.

use std::sync::{Arc, OnceLock};

use penstock_jobspec::{Jobspec, copies};
use serde::Deserialize;
use serde_json::Value;

use crate::payload::{object, optional_object, read};

/// A jobspec as its JSON text. The keys that simulated execution needs are parsed at most once.
#[derive(Clone, Debug)]
pub struct JobspecDocument {
    text: Arc<str>,
    simulation: OnceLock<Result<Simulation, crate::Error>>,
    /// The text without the ids of copies.
    template: OnceLock<Box<str>>,
}

impl JobspecDocument {
    /// The document of a text that is not parsed yet.
    pub fn new(text: Arc<str>) -> Self {
        Self {
            text,
            simulation: OnceLock::new(),
            template: OnceLock::new(),
        }
    }

    /// The document of a text and the jobspec that it was parsed to, or was made from.
    pub fn parsed(text: Arc<str>, jobspec: &Jobspec) -> Self {
        let document = Self::new(text);
        // An invalid `exec` is left to the parser of the text, whose error names the place.
        if let Ok(simulation) = Simulation::of(jobspec) {
            let _ = document.simulation.set(Ok(simulation));
        }
        document
    }

    /// The jobspec of one of the copies that share this one.
    #[must_use]
    pub fn copy(&self, id: u32) -> Self {
        let template = self.template.get_or_init(|| {
            let template = Jobspec::from_json(&self.text).map(Jobspec::without_copy_ids);
            // A jobspec of copies was valid when it was stored.
            template.map_or_else(
                |_| self.text.as_ref().into(),
                |template| template.to_text().into(),
            )
        });
        let copy = Self::new(copies::expand(template, id).into());
        if let Ok(simulation) = self.simulation()
            && simulation.is_same_for_copies()
        {
            let _ = copy.simulation.set(Ok(simulation.clone()));
        }
        copy
    }

    /// The JSON text.
    pub fn text(&self) -> &Arc<str> {
        &self.text
    }

    /// The run time of the job under simulated execution.
    ///
    /// # Errors
    ///
    /// Fails as [`Simulation::from_json`] does.
    pub fn simulation(&self) -> Result<&Simulation, &crate::Error> {
        let simulation = || Simulation::from_json(&self.text);
        self.simulation.get_or_init(simulation).as_ref()
    }
}

/// The part of a jobspec that decides how long the job takes under simulated execution.
#[derive(Clone, Debug, PartialEq)]
pub struct Simulation {
    /// The time limit in seconds; 0 for none.
    pub duration: f64,
    /// `attributes.system.exec.test.run_duration`, if the jobspec has it.
    pub run_duration: Option<Value>,
}

#[derive(Deserialize)]
struct Document {
    #[serde(deserialize_with = "object")]
    attributes: Attributes,
}

#[derive(Deserialize)]
struct Attributes {
    #[serde(deserialize_with = "object")]
    system: System,
}

#[derive(Deserialize)]
struct System {
    #[serde(default)]
    duration: f64,
    #[serde(default, deserialize_with = "optional_object")]
    exec: Option<Exec>,
}

#[derive(Deserialize)]
struct Exec {
    #[serde(default, deserialize_with = "optional_object")]
    test: Option<Test>,
}

#[derive(Deserialize)]
struct Test {
    run_duration: Option<Value>,
}

impl Simulation {
    /// Reads it from the text of a jobspec; the rest of the text need not be a valid jobspec.
    ///
    /// # Errors
    ///
    /// Fails if the text is malformed, or has no such attributes.
    pub fn from_json(text: &str) -> Result<Self, crate::Error> {
        let Document { attributes } = read(Some(text.as_bytes()))?;
        let System { duration, exec } = attributes.system;
        Ok(Self::new(duration, exec))
    }

    /// Whether it has no text in which the id of a copy can take a place.
    fn is_same_for_copies(&self) -> bool {
        match &self.run_duration {
            None | Some(Value::Null | Value::Number(_)) => true,
            Some(Value::String(text)) => !text.contains('{'),
            Some(_) => false,
        }
    }

    fn of(jobspec: &Jobspec) -> Result<Self, serde_json::Error> {
        let exec = jobspec.attribute("system.exec");
        let exec = exec.map(optional_object).transpose()?;
        Ok(Self::new(jobspec.duration(), exec.flatten()))
    }

    fn new(duration: f64, exec: Option<Exec>) -> Self {
        Self {
            duration,
            run_duration: exec
                .and_then(|exec| exec.test)
                .and_then(|test| test.run_duration),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{JobspecDocument, Simulation};
    use penstock_jobspec::Jobspec;
    use penstock_jobspec::copies::CopyIds;
    use penstock_jobspec::job_id::JobId;
    use serde_json::json;

    #[test]
    fn a_parsed_jobspec_gives_the_simulation_that_its_text_gives() {
        for exec in [
            json!(null),
            json!({}),
            json!({"test": null}),
            json!({"test": {"run_duration": "2s"}}),
            json!({"test": {"run_duration": 2.5, "mock_exception": "init"}}),
            json!({"test": 5}),
            json!("exec"),
        ] {
            let text = json!({
                "version": 1,
                "resources": [{"type": "slot", "count": 1, "label": "task",
                    "with": [{"type": "core", "count": 1}]}],
                "tasks": [{"command": ["true"], "slot": "task", "count": {"per_slot": 1}}],
                "attributes": {"system": {"duration": 60.5, "exec": exec}},
            })
            .to_string();
            let jobspec = Jobspec::from_json(&text).unwrap();
            let document = JobspecDocument::parsed(text.as_str().into(), &jobspec);
            let parsed = Simulation::from_json(&text);
            assert_eq!(document.simulation(), parsed.as_ref(), "{text}");
        }
    }

    #[test]
    fn a_copy_has_the_simulation_that_its_text_gives() {
        for run_duration in [
            json!(null),
            json!(2.5),
            json!("2s"),
            json!("{cc}s"),
            json!(["{cc}"]),
        ] {
            let text = json!({
                "version": 1,
                "resources": [{"type": "slot", "count": 1, "label": "task",
                    "with": [{"type": "core", "count": 1}]}],
                "tasks": [{"command": ["{cc}"], "slot": "task", "count": {"per_slot": 1}}],
                "attributes": {"system": {"duration": 60.5, "exec": {"test": {"run_duration": run_duration}}}},
            })
            .to_string();
            let mut jobspec = Jobspec::from_json(&text).unwrap();
            jobspec.set_copy_ids(&CopyIds::new(JobId::new(1), "7-9".parse().unwrap()));
            let document = JobspecDocument::parsed(jobspec.to_text().into(), &jobspec);
            let copy = document.copy(8);
            assert_eq!(**copy.text(), *text.replace("{cc}", "8"));
            let parsed = Simulation::from_json(copy.text());
            assert_eq!(copy.simulation(), parsed.as_ref(), "{text}");
        }
    }

    #[test]
    fn an_array_is_no_object_of_a_simulation() {
        for (exec, place) in [
            (json!({"test": [3]}), "exec.test"),
            (json!([[3]]), "exec"),
            (json!([{"run_duration": 3}]), "exec"),
        ] {
            let text = json!({"attributes": {"system": {"exec": exec}}}).to_string();
            assert_eq!(
                Simulation::from_json(&text).unwrap_err().to_string(),
                format!("`attributes.system.{place}`: expected an object, found an array")
            );
        }
    }
}
