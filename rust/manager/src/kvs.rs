//! `kvs.commit` and `kvs.lookup` over the job schema of RFC 16, for who schedules or executes
//! from outside: `job.<dothex>.R`, `.jobspec`, `.eventlog`. Other keys are plain values.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use penstock_jobspec::fluid::Fluid;
use penstock_wire::Message;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::claims::RCommit;
use crate::manager::Manager;
use crate::rpc::{self, EINVAL, ENOENT, EPERM, RequestError};

/// The one namespace there is.
const NAMESPACE: &str = "primary";

#[derive(Deserialize)]
struct Commit {
    #[serde(default)]
    namespace: Option<String>,
    ops: Vec<Op>,
}

#[derive(Deserialize)]
struct Op {
    key: String,
    #[serde(default)]
    flags: i64,
    #[serde(default)]
    dirent: Option<Dirent>,
}

#[derive(Deserialize)]
struct Dirent {
    #[serde(rename = "type")]
    kind: String,
    data: Value,
}

#[derive(Deserialize)]
struct Lookup {
    #[serde(default)]
    namespace: Option<String>,
    key: String,
}

/// One operation of a commit on a key that is not a job's.
enum Write {
    Set(String, Vec<u8>),
    Remove(String),
}

/// `job.<dothex>.<document>` as its two parts.
fn job_key(key: &str) -> Option<(u64, &str)> {
    let (dothex, document) = key.strip_prefix("job.")?.rsplit_once('.')?;
    let id: Fluid = dothex.parse().ok()?;
    (id.dothex() == dothex).then_some((id.0, document))
}

fn check_namespace(namespace: Option<&str>) -> Result<(), RequestError> {
    match namespace {
        None | Some(NAMESPACE) => Ok(()),
        Some(other) => Err(RequestError::new(ENOENT, format!("no namespace `{other}`"))),
    }
}

impl Manager {
    fn check_owner(&self, request: &Message) -> Result<(), RequestError> {
        if request.userid == self.settings.owner {
            Ok(())
        } else {
            Err(RequestError::new(
                EPERM,
                "the store is the instance owner's",
            ))
        }
    }

    /// `kvs.commit`: all operations or, where one cannot be done, none.
    pub(crate) fn kvs_commit(&mut self, request: &Message) -> Result<Value, RequestError> {
        let done = self.commit_all(request);
        if let Err(refusal) = &done {
            self.complain(format!("kvs.commit refused: {}", refusal.text));
        }
        done
    }

    fn commit_all(&mut self, request: &Message) -> Result<Value, RequestError> {
        self.check_owner(request)?;
        let commit: Commit = rpc::payload(request)?;
        check_namespace(commit.namespace.as_deref())?;
        let mut writes = Vec::new();
        let mut allocations = Vec::new();
        for op in commit.ops {
            if op.flags != 0 {
                let text = format!(
                    "`{}`: flags {}: appending is not supported",
                    op.key, op.flags
                );
                return Err(RequestError::new(EINVAL, text));
            }
            let data = op
                .dirent
                .map(|dirent| decode(&op.key, &dirent))
                .transpose()?;
            match job_key(&op.key) {
                Some((id, "R")) => {
                    let text = data.and_then(|data| String::from_utf8(data).ok());
                    let text = text.ok_or_else(|| {
                        RequestError::new(
                            EINVAL,
                            format!("`{}`: expected the text of an R", op.key),
                        )
                    })?;
                    let r = Arc::new(self.check_r(id, &text)?);
                    allocations.push(RCommit { id, r, text });
                }
                Some(_) => {
                    let text = format!("`{}`: only R of a job can be committed", op.key);
                    return Err(RequestError::new(EINVAL, text));
                }
                None => writes.push(match data {
                    Some(data) => Write::Set(op.key, data),
                    None => Write::Remove(op.key),
                }),
            }
        }
        let claimed = self.claims.commit(&allocations);
        claimed.map_err(|text| RequestError::new(EINVAL, text))?;
        for allocation in allocations {
            self.take_r(allocation);
        }
        for write in writes {
            let stored = match write {
                Write::Set(key, data) => self.store.set_value(&key, &data),
                Write::Remove(key) => self.store.remove_value(&key),
            };
            self.keep(stored);
        }
        Ok(json!({ "rootseq": self.next_commit() }))
    }

    /// `kvs.lookup`.
    pub(crate) fn kvs_lookup(&mut self, request: &Message) -> Result<Value, RequestError> {
        let lookup: Lookup = rpc::payload(request)?;
        check_namespace(lookup.namespace.as_deref())?;
        let data = if let Some((id, document)) = job_key(&lookup.key) {
            self.may_see(request, id)?;
            self.document(id, document)?.map(String::into_bytes)
        } else {
            self.check_owner(request)?;
            let value = self.store.value(&lookup.key);
            self.keep(value)
        };
        let Some(data) = data else {
            return Err(RequestError::new(ENOENT, ""));
        };
        Ok(json!({"val": {"ver": 1, "type": "val", "data": BASE64.encode(data)}}))
    }
}

fn decode(key: &str, dirent: &Dirent) -> Result<Vec<u8>, RequestError> {
    let refuse = |why: &str| RequestError::new(EINVAL, format!("`{key}`: {why}"));
    if dirent.kind != "val" {
        return Err(refuse("expected a dirent of type `val`"));
    }
    let data = dirent.data.as_str();
    let data = data.ok_or_else(|| refuse("expected `data` to be a base64 string"))?;
    BASE64
        .decode(data)
        .map_err(|error| refuse(&format!("invalid base64: {error}")))
}

#[cfg(test)]
mod tests {
    use super::job_key;

    #[test]
    fn a_job_key_is_recognised_by_its_exact_form() {
        let id = 6_731_191_091_817_518;
        assert_eq!(job_key("job.0017.e9fb.8df1.6c2e.R"), Some((id, "R")));
        assert_eq!(
            job_key("job.0017.e9fb.8df1.6c2e.eventlog"),
            Some((id, "eventlog"))
        );
        for other in [
            "job.nope.R",
            "job.17.e9fb.8df1.6c2e.R",
            "penstock.a",
            "job.R",
            "job",
        ] {
            assert_eq!(job_key(other), None, "{other}");
        }
    }
}
