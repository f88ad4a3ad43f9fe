//! The payloads of what the instance answers, as attributes for a task.

use serde_json::Value as Json;

use crate::request::QUERY;
use crate::{Info, Value, status};

/// The key of a request's status code in events and queries: libraries have none of their own.
pub const STATUS: &str = "penstock.alloc.status";
/// The key of a text for people (`PMIX_EVENT_TEXT_MESSAGE`): the reason of a refusal.
pub const TEXT: &str = "pmix.evtext";
const REQUEST: &str = "pmix.alloc.reqid";
const ALLOCATION: &str = "pmix.alloc.id";

/// How a request ended: a status code, what was granted, and what of the answer could not be understood.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// The status code.
    pub status: i32,
    /// What goes to the task.
    pub infos: Vec<Info>,
    /// What was left out, for the log.
    pub faults: Vec<String>,
}

impl Answer {
    /// An answer that is no more than a status code.
    pub fn of(status: i32) -> Self {
        Self {
            status,
            ..Self::default()
        }
    }

    /// Reads a response to `pmix.alloc`: its `status`, `reason` and `results`.
    pub fn to_alloc(errnum: u32, payload: Option<&[u8]>) -> Self {
        Self::read(errnum, payload, |json, answer| {
            let mut infos: Vec<Info> = text(TEXT, &json["reason"]).into_iter().collect();
            answer.faults.extend(add_results(&mut infos, json));
            answer.infos = infos;
        })
    }

    /// Reads a response to `pmix.query`, with the status of the one request that was asked for, else of all.
    pub fn to_query(errnum: u32, payload: Option<&[u8]>, one: bool) -> Self {
        Self::read(errnum, payload, |json, answer| {
            for request in json["requests"].as_array().into_iter().flatten() {
                let infos = answer.describe(request);
                if one {
                    answer.infos.extend(infos);
                } else {
                    answer.infos.push(Info::new(QUERY, Value::Infos(infos)));
                }
            }
        })
    }

    /// Reads what `pmix.events` tells of a request that is over.
    pub fn to_event(payload: &[u8]) -> Self {
        Self::read(0, Some(payload), |json, answer| {
            answer.infos = describe_ids(json);
            let code = Value::Status(answer.status);
            answer.infos.push(Info::new(STATUS, code));
            answer.infos.extend(text(TEXT, &json["reason"]));
            let faults = add_results(&mut answer.infos, json);
            answer.faults.extend(faults);
        })
    }

    fn read(errnum: u32, payload: Option<&[u8]>, take: impl FnOnce(&Json, &mut Self)) -> Self {
        if errnum != 0 {
            return Self::of(status::of_errnum(errnum));
        }
        let json = serde_json::from_slice::<Json>(payload.unwrap_or(b"{}"));
        let code = json.as_ref().ok().and_then(|json| json["status"].as_i64());
        let (Ok(json), Some(Ok(code))) = (json, code.map(i32::try_from)) else {
            return Self {
                faults: vec!["expected an object with a `status`".to_owned()],
                ..Self::of(status::ERROR)
            };
        };
        let mut answer = Self::of(code);
        take(&json, &mut answer);
        answer
    }

    /// How one request stands: what it was granted, or what it asks for.
    fn describe(&mut self, request: &Json) -> Vec<Info> {
        let mut infos: Vec<Info> = text(QUERY, &request["state"]).into_iter().collect();
        infos.extend(describe_ids(request));
        if let Some(Ok(code)) = request["status"].as_i64().map(i32::try_from) {
            infos.push(Info::new(STATUS, Value::Status(code)));
        }
        infos.extend(text(TEXT, &request["reason"]));
        if request["status"] == 0 {
            self.faults.extend(add_results(&mut infos, request));
            return infos;
        }
        for (name, key) in [
            ("nodes", "pmix.alloc.nnodes"),
            ("cores", "pmix.alloc.ncpus"),
        ] {
            // Zero is what was not asked for.
            if let Some(count) = request[name].as_u64().filter(|&count| count > 0) {
                infos.push(Info::new(key, Value::Uint64(count)));
            }
        }
        if let Some(seconds) = request["time"].as_f64().filter(|&time| time != 0.0) {
            // RFC 0005 has whole seconds of 32 bits.
            match Info::from_json(&serde_json::json!({
                "key": "pmix.alloc.time", "type": "uint32", "value": Json::from(whole(seconds)),
            })) {
                Ok(info) => infos.push(info),
                Err(fault) => self.faults.push(fault),
            }
        }
        if let Some(time) = request["estimate"].as_f64() {
            infos.push(Info::new("penstock.alloc.estimate", Value::Double(time)));
        }
        infos
    }
}

/// Adds `results`, without what the infos have already; returns what could not be understood.
fn add_results(infos: &mut Vec<Info>, json: &Json) -> Vec<String> {
    let mut faults = Vec::new();
    for result in json["results"].as_array().into_iter().flatten() {
        match Info::from_json(result) {
            Ok(info) if infos.iter().any(|it| it.key == info.key) => {}
            Ok(info) => infos.push(info),
            Err(fault) => faults.push(fault),
        }
    }
    faults
}

/// Seconds without their fraction; what is no such number stays one that is refused.
fn whole(seconds: f64) -> i64 {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a cast from float saturates"
    )]
    let whole = seconds.trunc() as i64;
    whole
}

/// The user's id of a request and the id of its allocation.
fn describe_ids(json: &Json) -> Vec<Info> {
    let ids = [(REQUEST, &json["id"]), (ALLOCATION, &json["alloc"])];
    ids.into_iter()
        .filter_map(|(key, id)| text(key, id))
        .collect()
}

fn text(key: &str, json: &Json) -> Option<Info> {
    let text = json.as_str().filter(|text| !text.is_empty())?;
    Some(Info::new(key, Value::String(text.to_owned())))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn string(key: &str, text: &str) -> Info {
        Info::new(key, Value::String(text.to_owned()))
    }

    #[test]
    fn what_was_granted_is_told() {
        let payload = json!({"status": 0, "reason": "", "results": [
            {"key": "pmix.alloc.id", "type": "string", "value": "ƒ12"},
            {"key": "pmix.alloc.time", "type": "uint32", "value": 60},
        ]});
        let answer = Answer::to_alloc(0, Some(payload.to_string().as_bytes()));
        assert_eq!(answer.status, 0);
        assert_eq!(
            answer.infos,
            [
                string("pmix.alloc.id", "ƒ12"),
                Info::new("pmix.alloc.time", Value::Uint32(60)),
            ]
        );
    }

    #[test]
    fn an_answer_has_its_reason() {
        let payload = json!({"status": 0, "reason": "in part: 4 of 5 nodes", "results": [
            {"key": "pmix.alloc.id", "type": "string", "value": "ƒ12"},
        ]});
        let answer = Answer::to_alloc(0, Some(payload.to_string().as_bytes()));
        let reason = string(TEXT, "in part: 4 of 5 nodes");
        assert_eq!(answer.infos, [reason, string("pmix.alloc.id", "ƒ12")]);
    }

    #[test]
    fn an_error_of_the_service_is_a_status() {
        assert_eq!(Answer::to_alloc(38, Some(b"no service")), Answer::of(-47));
    }

    #[test]
    fn a_malformed_answer_is_an_error_and_is_said() {
        for payload in [
            &b""[..],
            b"{",
            b"[]",
            b"{\"status\":\"ok\"}",
            b"{\"status\":4294967296}",
        ] {
            let answer = Answer::to_alloc(0, Some(payload));
            assert_eq!(
                (answer.status, answer.faults.len()),
                (status::ERROR, 1),
                "{payload:?}"
            );
        }
        let unknown = br#"{"status":0,"results":[{"key":"pmix.x","type":"blob","value":1}]}"#;
        let answer = Answer::to_alloc(0, Some(unknown));
        assert_eq!((answer.status, answer.faults.len()), (0, 1));
    }

    #[test]
    fn a_query_tells_how_one_request_stands() {
        let payload = json!({"status": 0, "requests": [{
            "id": "mine", "alloc": "ƒ12", "directive": "new", "status": -29, "state": "refused",
            "reason": "too big", "nodes": 12, "cores": 48, "time": 60.5, "estimate": null,
        }]});
        let payload = payload.to_string();
        let one = Answer::to_query(0, Some(payload.as_bytes()), true);
        assert_eq!(
            one.infos,
            [
                string("pmix.query.alloc", "refused"),
                string("pmix.alloc.reqid", "mine"),
                string("pmix.alloc.id", "ƒ12"),
                Info::new(STATUS, Value::Status(-29)),
                string(TEXT, "too big"),
                Info::new("pmix.alloc.nnodes", Value::Uint64(12)),
                Info::new("pmix.alloc.ncpus", Value::Uint64(48)),
                Info::new("pmix.alloc.time", Value::Uint32(60)),
            ]
        );
        let all = Answer::to_query(0, Some(payload.as_bytes()), false);
        assert_eq!(all.infos, [Info::new(QUERY, Value::Infos(one.infos))]);
    }

    #[test]
    fn a_query_tells_what_was_granted_in_the_words_of_the_event() {
        let payload = json!({
            "id": "mine", "alloc": "ƒ12", "directive": "new", "status": 0, "state": "granted",
            "reason": "in part: 2 of 3 nodes", "nodes": 2, "cores": 8, "time": 60, "results": [
                {"key": "pmix.alloc.id", "type": "string", "value": "ƒ12"},
                {"key": "pmix.alloc.reqid", "type": "string", "value": "mine"},
                {"key": "pmix.alloc.nlist", "type": "string", "value": "n[1-2]"},
                {"key": "pmix.alloc.ncpulist", "type": "string", "value": "4,4"},
                {"key": "pmix.alloc.time", "type": "uint32", "value": 60},
                {"key": "penstock.alloc.dropped", "type": "string", "value": "pmix.alloc.msize"},
            ],
        });
        let event = Answer::to_event(payload.to_string().as_bytes());
        let all = json!({"status": 0, "requests": [payload]}).to_string();
        let query = Answer::to_query(0, Some(all.as_bytes()), true);
        let state = string("pmix.query.alloc", "granted");
        assert_eq!(query.infos, [vec![state], event.infos].concat());
        assert_eq!(query.infos.len(), 9);
        assert!(query.faults.is_empty());
    }

    #[test]
    fn what_was_not_asked_for_is_not_told() {
        let payload = json!({"status": 0, "requests": [
            {"id": "", "state": "queued", "status": 1, "nodes": 0, "cores": 0, "time": 0}
        ]});
        let one = Answer::to_query(0, Some(payload.to_string().as_bytes()), true);
        let keys: Vec<&str> = one.infos.iter().map(|info| info.key.as_str()).collect();
        assert_eq!(keys, [QUERY, STATUS]);
    }

    #[test]
    fn an_event_has_the_ids_the_status_and_the_reason() {
        let payload = json!({"id": "mine", "alloc": "ƒ12", "status": -29, "reason": "too big",
            "results": [{"key": "pmix.alloc.id", "type": "string", "value": "ƒ12"},
                        {"key": "pmix.alloc.nlist", "type": "string", "value": "n[1-2]"}]});
        let answer = Answer::to_event(payload.to_string().as_bytes());
        assert_eq!(
            answer.infos,
            [
                string("pmix.alloc.reqid", "mine"),
                string("pmix.alloc.id", "ƒ12"),
                Info::new(STATUS, Value::Status(-29)),
                string(TEXT, "too big"),
                string("pmix.alloc.nlist", "n[1-2]"),
            ]
        );
    }
}
