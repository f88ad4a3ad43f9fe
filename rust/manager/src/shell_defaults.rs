//! Shell options of jobs that Flux's clients submit: what Flux's shell does for a job whose jobspec does not say.

use penstock_jobspec::Jobspec;
use serde_json::{Map, Value, json};

/// A word of output templates: the job's id in ASCII.
pub(crate) const F58_PLAIN: &str = "{{id.f58plain}}";

/// Adds the defaults of Flux's shell to a jobspec: clients can write to the standard input of its tasks, output is
/// retained by task, a task that a signal has ended counts with the exit code of a shell, and several tasks, or brokers, have PMI, and the
/// names of output files have ids in the form that clients in the job's locale show. An invalid jobspec stays as it is.
pub(crate) fn add(text: String) -> String {
    let Ok(jobspec) = Jobspec::from_json(&text) else {
        return text;
    };
    let Ok(mut document) = serde_json::from_str::<Value>(&text) else {
        return text;
    };
    let mut members = ["attributes", "system", "shell", "options"].into_iter();
    let options = members.try_fold(&mut document, |value, name| member(value, name));
    let Some(options) = options else {
        return text;
    };
    add_input(options);
    if let Some(options) = options.as_object_mut() {
        let exit_code = options.entry("signal-exit-code");
        exit_code.or_insert_with(|| true.into());
        // One task needs no PMI to find the others; the server would be a second process for each job. The brokers of
        // batch jobs, which have `per-resource`, learn by PMI that they are the instance of a job, even a single one.
        if jobspec.ntasks() > 1 || options.contains_key("per-resource") {
            let pmi = options.entry("pmi");
            pmi.or_insert_with(|| "simple".into());
        }
    }
    if jobspec.ntasks() > 1 && !has(options.get("pty")) {
        label_output(options);
    }
    if shows_ids_in_ascii(&jobspec) {
        name_output_in_ascii(options);
    }
    document.to_string()
}

/// A member of an object, made if it is missing; `None` if the value is no object.
fn member<'a>(value: &'a mut Value, name: &str) -> Option<&'a mut Value> {
    let members = value.as_object_mut()?;
    let member = members.entry(name).or_insert_with(|| json!({}));
    member.is_object().then_some(member)
}

/// Whether an option is there and switched on.
fn has(option: Option<&Value>) -> bool {
    option.is_some_and(|value| !matches!(value, Value::Null | Value::Bool(false)) && value != 0)
}

fn add_input(options: &mut Value) {
    let stdin = member(options, "input").and_then(|input| member(input, "stdin"));
    if let Some(Value::Object(stdin)) = stdin
        && stdin.is_empty()
    {
        stdin.insert("type".to_owned(), "service".into());
    }
}

/// Whether clients with the environment of the job show ids in ASCII: in a locale of another character set than UTF-8, or on
/// request.
fn shows_ids_in_ascii(jobspec: &Jobspec) -> bool {
    let Some(environment) = jobspec.attribute("system.environment") else {
        return false;
    };
    let variable = |name: &str| {
        let value = environment.get(name)?.as_str()?;
        (!value.is_empty()).then_some(value)
    };
    // The first one decides (POSIX, 8.2).
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
        .into_iter()
        .find_map(variable);
    let is_utf8 = locale.is_some_and(|name| {
        let name = name.to_ascii_lowercase();
        name.ends_with("utf-8") || name.ends_with("utf8")
    });
    !is_utf8 || variable("FLUX_F58_FORCE_ASCII").is_some()
}

fn name_output_in_ascii(options: &mut Value) {
    for stream in ["stdout", "stderr"] {
        let stream = options
            .get_mut("output")
            .and_then(|output| output.get_mut(stream));
        if let Some(Value::String(path)) = stream.and_then(|stream| stream.get_mut("path")) {
            for word in ["{{id}}", "{{jobid}}", "{{id.f58}}"] {
                *path = path.replace(word, F58_PLAIN);
            }
        }
    }
}

/// Lets the lines of each stream that is retained have labels, unless parts of lines are wanted, whose task no label tells.
fn label_output(options: &mut Value) {
    let Some(Value::Object(output)) = member(options, "output") else {
        return;
    };
    let is_set = |output: &Map<String, Value>, stream: &str, names: &[&str]| {
        let mut value = output.get(stream);
        for name in names {
            value = value.and_then(|value| value.get(name));
        }
        value.filter(|value| has(Some(value))).cloned()
    };
    if is_set(output, "stdout", &["buffer", "type"]).is_some_and(|kind| kind == "none") {
        return;
    }
    // Standard error goes to the file of standard output unless it has one of its own.
    let stdout = is_set(output, "stdout", &["path"]).is_some();
    let stderr = stdout || is_set(output, "stderr", &["path"]).is_some();
    for (stream, is_redirected) in [("stdout", stdout), ("stderr", stderr)] {
        if !is_redirected
            && let Value::Object(members) = output.entry(stream).or_insert_with(|| json!({}))
        {
            members.insert("label".to_owned(), true.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::add;

    fn options(ntasks: u64, given: &Value) -> Value {
        let jobspec = json!({
            "version": 1,
            "resources": [{"type": "slot", "count": ntasks, "label": "task", "with": [{"type": "core", "count": 1}]}],
            "tasks": [{"command": ["cat"], "slot": "task", "count": {"per_slot": 1}}],
            "attributes": {"system": {"duration": 0, "shell": {"options": given}}},
        });
        let document: Value = serde_json::from_str(&add(jobspec.to_string())).unwrap();
        document["attributes"]["system"]["shell"]["options"].clone()
    }

    #[test]
    fn signals_count_as_exit_codes_unless_the_jobspec_says_otherwise() {
        let option = |given: &Value| options(1, given)["signal-exit-code"].clone();
        assert_eq!(option(&json!({})), true);
        assert_eq!(option(&json!({"signal-exit-code": 0})), 0);
    }

    #[test]
    fn several_tasks_have_pmi_unless_the_jobspec_says_otherwise() {
        let option = |ntasks, given: &Value| options(ntasks, given)["pmi"].clone();
        assert_eq!(option(1, &json!({})), Value::Null);
        assert_eq!(option(2, &json!({})), "simple");
        assert_eq!(option(2, &json!({"pmi": "off"})), "off");
        let per_node = json!({"per-resource": {"type": "node"}});
        assert_eq!(option(1, &per_node), "simple");
    }

    #[test]
    fn standard_input_can_be_written_unless_the_jobspec_says_otherwise() {
        let input = |given: &Value| options(1, given)["input"].clone();
        assert_eq!(input(&json!({})), json!({"stdin": {"type": "service"}}));
        let file = json!({"stdin": {"type": "file", "path": "x"}});
        assert_eq!(input(&json!({ "input": file })), file);
    }

    #[test]
    fn retained_output_of_several_tasks_has_labels() {
        let output = |given: Value| options(2, &json!({ "output": given }))["output"].clone();
        let labels = json!({"stdout": {"label": true}, "stderr": {"label": true}});
        assert_eq!(output(json!({})), labels);
        let redirected = json!({"stdout": {"type": "file", "path": "x"}});
        assert_eq!(output(redirected.clone()), redirected);
        let error = json!({"stderr": {"path": "x"}});
        let both = json!({"stderr": {"path": "x"}, "stdout": {"label": true}});
        assert_eq!(output(error), both);
        let unbuffered = json!({"stdout": {"buffer": {"type": "none"}}});
        assert_eq!(output(unbuffered.clone()), unbuffered);
        assert_eq!(
            options(2, &json!({"pty": {"interactive": 1}}))["output"],
            json!(null)
        );
    }

    #[test]
    fn invalid_jobspecs_stay_as_they_are() {
        for text in ["{}", "[", "7"] {
            assert_eq!(add(text.to_owned()), text);
        }
    }

    #[test]
    fn names_of_files_have_ids_as_clients_in_the_locale_show_them() {
        let path = |environment: &Value| {
            let jobspec = json!({
                "version": 1,
                "resources": [{"type": "slot", "count": 1, "label": "task", "with": [{"type": "core", "count": 1}]}],
                "tasks": [{"command": ["cat"], "slot": "task", "count": {"per_slot": 1}}],
                "attributes": {"system": {
                    "duration": 0,
                    "environment": environment,
                    "shell": {"options": {"output": {"stdout": {"path": "a-{{id}}.{{id.dec}}"}}}},
                }},
            });
            let document: Value = serde_json::from_str(&add(jobspec.to_string())).unwrap();
            let options = &document["attributes"]["system"]["shell"]["options"];
            options["output"]["stdout"]["path"]
                .as_str()
                .unwrap()
                .to_owned()
        };
        let (plain, as_given) = ("a-{{id.f58plain}}.{{id.dec}}", "a-{{id}}.{{id.dec}}");
        for (environment, expected) in [
            (json!({}), plain),
            (json!({"LC_ALL": "C"}), plain),
            (json!({"LC_ALL": "C", "LANG": "de_DE.UTF-8"}), plain),
            (json!({"LANG": "en_US.ISO-8859-1"}), plain),
            (json!({"LC_ALL": "", "LC_CTYPE": "C.UTF-8"}), as_given),
            (json!({"LANG": "en_US.utf8"}), as_given),
            (
                json!({"LANG": "C.UTF-8", "FLUX_F58_FORCE_ASCII": "1"}),
                plain,
            ),
        ] {
            assert_eq!(path(&environment), expected, "{environment}");
        }
    }
}
