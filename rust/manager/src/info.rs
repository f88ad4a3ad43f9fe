//! `job-info`: a job's eventlog, jobspec and R, at once or as they come.

use penstock_jobspec::fluid::Fluid;
use penstock_wire::Message;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::manager::Manager;
use crate::rpc::{self, EINVAL, ENODATA, ENOENT, EPERM, EPROTO, RequestError};
use crate::state::State;

#[derive(Deserialize)]
struct Lookup {
    id: u64,
    keys: Vec<String>,
}

#[derive(Deserialize)]
struct Watch {
    id: u64,
    #[serde(default)]
    path: Option<String>,
}

/// Which of the peer's requests is not wanted any more.
#[derive(Deserialize)]
pub(crate) struct Cancel {
    pub(crate) matchtag: u32,
}

impl Manager {
    /// A job that the asker may see: its owner's or, for the instance owner, any.
    pub(crate) fn may_see(&self, request: &Message, id: u64) -> Result<(), RequestError> {
        let Some(job) = self.jobs.get(&id) else {
            return Err(self.unknown(id));
        };
        if request.userid != self.settings.owner && request.userid != job.userid {
            let text = format!("job {} belongs to another user", Fluid(id));
            return Err(RequestError::new(EPERM, text));
        }
        Ok(())
    }

    /// One document of a job, as text: what RFC 16 keeps under `job.<id>`.
    pub(crate) fn document(&mut self, id: u64, key: &str) -> Result<Option<String>, RequestError> {
        let Some(job) = self.jobs.get(&id) else {
            return Ok(None);
        };
        let spec = job.spec.key;
        let has_r = job.r.is_some();
        let text = match key {
            "eventlog" => {
                self.write_lines();
                self.store.eventlog(id).map(Some)
            }
            "jobspec" => self.store.jobspec(spec),
            "R" if has_r => self.store.r(id),
            "R" => Ok(None),
            _ => return Err(RequestError::new(ENOENT, format!("unknown key `{key}`"))),
        };
        Ok(self.keep(text))
    }

    /// `job-info.lookup`.
    pub(crate) fn lookup(&mut self, request: &Message) -> Result<Value, RequestError> {
        let lookup: Lookup = rpc::payload(request)?;
        self.may_see(request, lookup.id)?;
        let mut found = Map::new();
        found.insert("id".to_owned(), lookup.id.into());
        for key in lookup.keys {
            let extent = self.jobs.get(&lookup.id).and_then(|job| {
                let flex = job.flex.as_ref()?;
                flex.extent.as_ref().filter(|_| key == "R")
            });
            if let Some(extent) = extent {
                found.insert(key, extent.to_json().into());
                continue;
            }
            let Some(text) = self.document(lookup.id, &key)? else {
                let text = format!("job {} has no {key} yet", Fluid(lookup.id));
                return Err(RequestError::new(ENOENT, text));
            };
            found.insert(key, text.into());
        }
        Ok(Value::Object(found))
    }

    /// `job-info.eventlog-watch`: what is logged, then every further line until `clean`.
    pub(crate) fn eventlog_watch(&mut self, request: &Message) {
        if let Err(refusal) = self.start_watch(request) {
            self.refuse(request, &refusal);
        }
    }

    fn start_watch(&mut self, request: &Message) -> Result<(), RequestError> {
        if !request.is_streaming() {
            return Err(RequestError::new(
                EPROTO,
                "eventlog-watch is a streaming request",
            ));
        }
        let watch: Watch = rpc::payload(request)?;
        if watch.path.as_deref().is_some_and(|path| path != "eventlog") {
            return Err(RequestError::new(
                EINVAL,
                "only the path `eventlog` can be watched",
            ));
        }
        self.may_see(request, watch.id)?;
        let log = self.document(watch.id, "eventlog")?.unwrap_or_default();
        for line in log.split_inclusive('\n') {
            self.respond(request, Some(&json!({ "event": line })));
        }
        let state = self.jobs.get(&watch.id).map(|job| job.state);
        if state == Some(State::Inactive) {
            self.refuse(request, &RequestError::new(ENODATA, ""));
        } else {
            self.watchers.follow(watch.id, request.clone());
        }
        Ok(())
    }

    /// `job-info.eventlog-watch-cancel` and `job-list.wait-cancel`: the stream ends with ENODATA.
    pub(crate) fn watch_cancel(&mut self, request: &Message) {
        let cancel: Cancel = match rpc::payload(request) {
            Ok(cancel) => cancel,
            Err(refusal) => return self.refuse(request, &refusal),
        };
        let ended =
            rpc::origin(request).and_then(|origin| self.watchers.cancel(origin, cancel.matchtag));
        if let Some(ended) = ended {
            self.refuse(&ended, &RequestError::new(ENODATA, ""));
        }
        self.respond(request, None);
    }
}
