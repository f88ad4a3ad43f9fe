//! Payloads of the instance's responses, as attributes for a task.

use penstock_flux::pmix::{EventResponse, FinalResponse, QueryResponse, RequestRow};
use penstock_flux::pmix_attribute::{
    ALLOC_ID, CPUS, ESTIMATE, NODES, QUERY, REQUEST_ID, STATUS, TEXT, TIME,
};
use serde::Deserialize;
use serde_json::Value as Json;

use crate::{Error, Info, Value, status};

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

/// The requests whose state a query asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queried {
    /// One request: its attributes are those of the response.
    One,
    /// All requests: each has an array of its own.
    All,
}

impl Response {
    /// Makes a response without attributes.
    pub fn of_status(status: i32) -> Self {
        Self {
            status,
            ..Self::default()
        }
    }

    /// Reads a response to `pmix.alloc`: its status, reason and results.
    pub fn from_alloc(errnum: u32, payload: Option<&[u8]>) -> Self {
        Self::read(errnum, payload, |outcome: FinalResponse| {
            let mut response = Self::of_status(outcome.status);
            response.add_text(TEXT, Some(&outcome.reason));
            response.add_results(&outcome.results);
            response
        })
    }

    /// Reads a response to `pmix.query`: the state of the queried requests.
    pub fn from_query(errnum: u32, payload: Option<&[u8]>, queried: Queried) -> Self {
        Self::read(errnum, payload, |answer: QueryResponse| {
            let mut response = Self::of_status(answer.status);
            for row in &answer.requests {
                let Self { infos, errors, .. } = Self::of_row(row);
                response.errors.extend(errors);
                match queried {
                    Queried::One => response.infos.extend(infos),
                    Queried::All => response.infos.push(Info::new(QUERY, Value::Infos(infos))),
                }
            }
            response
        })
    }

    /// Reads an event of `pmix.events`: a request has ended.
    pub fn from_event(payload: Option<&[u8]>) -> Self {
        Self::read(0, payload, |event: EventResponse| {
            let mut response = Self::of_status(event.status);
            response.add_text(REQUEST_ID, event.id.as_deref());
            response.add_text(ALLOC_ID, event.alloc.as_deref());
            response.add(STATUS, Value::Status(event.status));
            response.add_text(TEXT, Some(&event.reason));
            response.add_results(&event.results);
            response
        })
    }

    fn read<'a, T: Deserialize<'a>>(
        errnum: u32,
        payload: Option<&'a [u8]>,
        convert: impl FnOnce(T) -> Self,
    ) -> Self {
        if errnum != 0 {
            return Self::of_status(status::of_errnum(errnum));
        }
        match penstock_flux::read(payload) {
            Ok(payload) => convert(payload),
            Err(error) => Self {
                errors: vec![error.into()],
                ..Self::of_status(status::ERROR)
            },
        }
    }

    /// The state of one request: the granted resources, or else the requested ones.
    fn of_row(row: &RequestRow) -> Self {
        let mut response = Self::of_status(row.status);
        response.add_text(QUERY, Some(&row.state));
        response.add_text(REQUEST_ID, row.id.as_deref());
        response.add_text(ALLOC_ID, row.alloc.as_deref());
        response.add(STATUS, Value::Status(row.status));
        response.add_text(TEXT, row.reason.as_str());
        if row.status == status::SUCCESS {
            response.add_results(&row.results);
            return response;
        }
        for (key, count) in [(NODES, row.nodes), (CPUS, row.cores)] {
            // Zero: this is not requested.
            if count > 0 {
                response.add(key, Value::Uint64(count));
            }
        }
        match u32::try_from(row.time) {
            Ok(0) => {}
            Ok(seconds) => response.add(TIME, Value::Uint32(seconds)),
            // RFC 0005 has whole seconds of 32 bits.
            Err(_) => {
                let text = format!("expected seconds of 32 bits, found {}", row.time);
                response.errors.push(Error::attribute(TIME, &text));
            }
        }
        if let Some(time) = row.estimate.as_ref().and_then(Json::as_f64) {
            response.add(ESTIMATE, Value::Double(time));
        }
        response
    }

    fn add(&mut self, key: &str, value: Value) {
        self.infos.push(Info::new(key, value));
    }

    /// Adds a text, unless it is empty.
    fn add_text(&mut self, key: &str, text: Option<&str>) {
        if let Some(text) = text.filter(|text| !text.is_empty()) {
            self.add(key, Value::String(text.to_owned()));
        }
    }

    /// Adds the results whose keys are new; those that cannot be read become errors.
    fn add_results(&mut self, results: &[Json]) {
        for result in results {
            match Info::from_json(result) {
                Ok(new) if self.infos.iter().any(|info| info.key == new.key) => {}
                Ok(new) => self.infos.push(new),
                Err(error) => self.errors.push(error),
            }
        }
    }
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
            "id": "mine", "alloc": "ƒ12", "directive": "new", "status": -29, "state": "denied",
            "reason": "too big", "nodes": 12, "cores": 48, "time": 60, "estimate": null, "results": [],
        }]});
        let payload = payload.to_string();
        let one = Response::from_query(0, Some(payload.as_bytes()), Queried::One);
        assert_eq!(
            one.infos,
            [
                string("pmix.query.alloc", "denied"),
                string("pmix.alloc.reqid", "mine"),
                string("pmix.alloc.id", "ƒ12"),
                Info::new(STATUS, Value::Status(-29)),
                string(TEXT, "too big"),
                Info::new("pmix.alloc.nnodes", Value::Uint64(12)),
                Info::new("pmix.alloc.ncpus", Value::Uint64(48)),
                Info::new("pmix.alloc.time", Value::Uint32(60)),
            ]
        );
        let all = Response::from_query(0, Some(payload.as_bytes()), Queried::All);
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
        let event = Response::from_event(Some(payload.to_string().as_bytes()));
        let all = json!({"status": 0, "requests": [payload]}).to_string();
        let query = Response::from_query(0, Some(all.as_bytes()), Queried::One);
        let state = string("pmix.query.alloc", "granted");
        assert_eq!(query.infos, [vec![state], event.infos].concat());
        assert_eq!(query.infos.len(), 9);
        assert!(query.errors.is_empty());
    }

    #[test]
    fn amounts_that_were_not_requested_are_left_out() {
        let payload = json!({"status": 0, "requests": [{
            "id": "", "directive": "new", "state": "queued", "status": 1, "reason": null,
            "nodes": 0, "cores": 0, "time": 0, "results": [],
        }]});
        let one = Response::from_query(0, Some(payload.to_string().as_bytes()), Queried::One);
        let keys: Vec<&str> = one.infos.iter().map(|info| info.key.as_str()).collect();
        assert_eq!(keys, [QUERY, STATUS]);
    }

    #[test]
    fn an_event_has_the_ids_the_status_and_the_reason() {
        let payload = json!({"id": "mine", "alloc": "ƒ12", "directive": "new", "status": -29,
            "reason": "too big", "results": [{"key": "pmix.alloc.id", "type": "string", "value": "ƒ12"},
                        {"key": "pmix.alloc.nlist", "type": "string", "value": "n[1-2]"}]});
        let response = Response::from_event(Some(payload.to_string().as_bytes()));
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
