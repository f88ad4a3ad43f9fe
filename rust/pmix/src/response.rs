//! Payloads of the instance's responses, as attributes for a task.

use serde_json::Value as Json;

use crate::request::QUERY;
use crate::{Error, Info, Value, status};

/// The key of a request's status code in events and queries; PMIx has none.
pub const STATUS: &str = "penstock.alloc.status";
/// The key of a human-readable text (`PMIX_EVENT_TEXT_MESSAGE`): the reason of a denial.
pub const TEXT: &str = "pmix.evtext";
const REQUEST: &str = "pmix.alloc.reqid";
const ALLOCATION: &str = "pmix.alloc.id";

/// The response to a task: a status code and attributes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Response {
    /// The status code.
    pub status: i32,
    /// The attributes.
    pub infos: Vec<Info>,
    /// Results that were left out because they cannot be read, for the log.
    pub errors: Vec<Error>,
}

impl Response {
    /// Makes a response without attributes.
    pub fn of_status(status: i32) -> Self {
        Self {
            status,
            ..Self::default()
        }
    }

    /// Reads a response to `pmix.alloc`: its `status`, `reason` and `results`.
    pub fn from_alloc(errnum: u32, payload: Option<&[u8]>) -> Self {
        Self::read(errnum, payload, |json, response| {
            let mut infos: Vec<Info> = text(TEXT, &json["reason"]).into_iter().collect();
            response.errors.extend(add_results(&mut infos, json));
            response.infos = infos;
        })
    }

    /// Reads a response to `pmix.query`: the attributes of one request, or those of each in an array of its own.
    pub fn from_query(errnum: u32, payload: Option<&[u8]>, one: bool) -> Self {
        Self::read(errnum, payload, |json, response| {
            for request in json["requests"].as_array().into_iter().flatten() {
                let infos = response.describe(request);
                if one {
                    response.infos.extend(infos);
                } else {
                    response.infos.push(Info::new(QUERY, Value::Infos(infos)));
                }
            }
        })
    }

    /// Reads an event of `pmix.events`: a request has ended.
    pub fn from_event(payload: &[u8]) -> Self {
        Self::read(0, Some(payload), |json, response| {
            response.infos = describe_ids(json);
            let code = Value::Status(response.status);
            response.infos.push(Info::new(STATUS, code));
            response.infos.extend(text(TEXT, &json["reason"]));
            let errors = add_results(&mut response.infos, json);
            response.errors.extend(errors);
        })
    }

    fn read(errnum: u32, payload: Option<&[u8]>, take: impl FnOnce(&Json, &mut Self)) -> Self {
        if errnum != 0 {
            return Self::of_status(status::of_errnum(errnum));
        }
        let json = serde_json::from_slice::<Json>(payload.unwrap_or(b"{}"));
        let code = json.as_ref().ok().and_then(|json| json["status"].as_i64());
        let (Ok(json), Some(Ok(code))) = (json, code.map(i32::try_from)) else {
            return Self {
                errors: vec![Error::value("expected an object with a `status`")],
                ..Self::of_status(status::ERROR)
            };
        };
        let mut response = Self::of_status(code);
        take(&json, &mut response);
        response
    }

    /// The state of one request: what it was granted, or else what it asks for.
    fn describe(&mut self, request: &Json) -> Vec<Info> {
        let mut infos: Vec<Info> = text(QUERY, &request["state"]).into_iter().collect();
        infos.extend(describe_ids(request));
        if let Some(Ok(code)) = request["status"].as_i64().map(i32::try_from) {
            infos.push(Info::new(STATUS, Value::Status(code)));
        }
        infos.extend(text(TEXT, &request["reason"]));
        if request["status"] == 0 {
            self.errors.extend(add_results(&mut infos, request));
            return infos;
        }
        for (name, key) in [
            ("nodes", "pmix.alloc.nnodes"),
            ("cores", "pmix.alloc.ncpus"),
        ] {
            // Zero: the request does not ask for this.
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
                Err(error) => self.errors.push(error),
            }
        }
        if let Some(time) = request["estimate"].as_f64() {
            infos.push(Info::new("penstock.alloc.estimate", Value::Double(time)));
        }
        infos
    }
}

/// Adds the results whose keys are new; returns the errors of those that cannot be read.
fn add_results(infos: &mut Vec<Info>, json: &Json) -> Vec<Error> {
    let mut errors = Vec::new();
    for result in json["results"].as_array().into_iter().flatten() {
        match Info::from_json(result) {
            Ok(info) if infos.iter().any(|it| it.key == info.key) => {}
            Ok(info) => infos.push(info),
            Err(error) => errors.push(error),
        }
    }
    errors
}

/// Seconds without their fraction; out of range, a number that is rejected as such.
fn whole(seconds: f64) -> i64 {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a cast from float saturates"
    )]
    let whole = seconds.trunc() as i64;
    whole
}

/// The id of a request and of its allocation, as far as they are there.
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
    fn a_grant_has_its_results() {
        let payload = json!({"status": 0, "reason": "", "results": [
            {"key": "pmix.alloc.id", "type": "string", "value": "ƒ12"},
            {"key": "pmix.alloc.time", "type": "uint32", "value": 60},
        ]});
        let response = Response::from_alloc(0, Some(payload.to_string().as_bytes()));
        assert_eq!(response.status, 0);
        assert_eq!(
            response.infos,
            [
                string("pmix.alloc.id", "ƒ12"),
                Info::new("pmix.alloc.time", Value::Uint32(60)),
            ]
        );
    }

    #[test]
    fn a_response_has_its_reason() {
        let payload = json!({"status": 0, "reason": "in part: 4 of 5 nodes", "results": [
            {"key": "pmix.alloc.id", "type": "string", "value": "ƒ12"},
        ]});
        let response = Response::from_alloc(0, Some(payload.to_string().as_bytes()));
        let reason = string(TEXT, "in part: 4 of 5 nodes");
        assert_eq!(response.infos, [reason, string("pmix.alloc.id", "ƒ12")]);
    }

    #[test]
    fn an_error_of_the_service_is_a_status() {
        assert_eq!(
            Response::from_alloc(38, Some(b"no service")),
            Response::of_status(-47)
        );
    }

    #[test]
    fn a_malformed_response_is_an_error() {
        for payload in [
            &b""[..],
            b"{",
            b"[]",
            b"{\"status\":\"ok\"}",
            b"{\"status\":4294967296}",
        ] {
            let response = Response::from_alloc(0, Some(payload));
            assert_eq!(
                (response.status, response.errors.len()),
                (status::ERROR, 1),
                "{payload:?}"
            );
        }
        let unknown = br#"{"status":0,"results":[{"key":"pmix.x","type":"blob","value":1}]}"#;
        let response = Response::from_alloc(0, Some(unknown));
        assert_eq!((response.status, response.errors.len()), (0, 1));
    }

    #[test]
    fn a_query_has_the_state_of_a_request() {
        let payload = json!({"status": 0, "requests": [{
            "id": "mine", "alloc": "ƒ12", "directive": "new", "status": -29, "state": "refused",
            "reason": "too big", "nodes": 12, "cores": 48, "time": 60.5, "estimate": null,
        }]});
        let payload = payload.to_string();
        let one = Response::from_query(0, Some(payload.as_bytes()), true);
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
        let all = Response::from_query(0, Some(payload.as_bytes()), false);
        assert_eq!(all.infos, [Info::new(QUERY, Value::Infos(one.infos))]);
    }

    #[test]
    fn a_query_and_an_event_have_the_same_attributes_of_a_grant() {
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
        let event = Response::from_event(payload.to_string().as_bytes());
        let all = json!({"status": 0, "requests": [payload]}).to_string();
        let query = Response::from_query(0, Some(all.as_bytes()), true);
        let state = string("pmix.query.alloc", "granted");
        assert_eq!(query.infos, [vec![state], event.infos].concat());
        assert_eq!(query.infos.len(), 9);
        assert!(query.errors.is_empty());
    }

    #[test]
    fn amounts_that_were_not_requested_are_left_out() {
        let payload = json!({"status": 0, "requests": [
            {"id": "", "state": "queued", "status": 1, "nodes": 0, "cores": 0, "time": 0}
        ]});
        let one = Response::from_query(0, Some(payload.to_string().as_bytes()), true);
        let keys: Vec<&str> = one.infos.iter().map(|info| info.key.as_str()).collect();
        assert_eq!(keys, [QUERY, STATUS]);
    }

    #[test]
    fn an_event_has_the_ids_the_status_and_the_reason() {
        let payload = json!({"id": "mine", "alloc": "ƒ12", "status": -29, "reason": "too big",
            "results": [{"key": "pmix.alloc.id", "type": "string", "value": "ƒ12"},
                        {"key": "pmix.alloc.nlist", "type": "string", "value": "n[1-2]"}]});
        let response = Response::from_event(payload.to_string().as_bytes());
        assert_eq!(
            response.infos,
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
