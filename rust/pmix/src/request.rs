//! Payloads of requests to the instance, and of those that the instance sends.

use serde_json::{Value as Json, json};

use crate::{Error, Info, Value};

/// The key of a query for the status of requests.
pub const QUERY: &str = "pmix.query.alloc";

/// The payload of `pmix.alloc`: a request of a task for the job's allocation. Attributes without a key are left out.
pub fn alloc(rank: Option<u32>, directive: u8, attributes: &[Info]) -> String {
    let attributes: Vec<Json> = attributes
        .iter()
        // Libraries pad their arrays with blank ones.
        .filter(|info| !info.key.is_empty())
        .map(Info::to_json)
        .collect();
    json!({"rank": rank, "directive": directive, "attributes": attributes}).to_string()
}

/// The payload of `pmix.query`: for the status of one request, or of all of the job's.
pub fn query(id: Option<&str>) -> String {
    match id {
        Some(id) => json!({"rank": null, "id": id}).to_string(),
        None => json!({"rank": null}).to_string(),
    }
}

/// Characters of the message of [`abort`] that are passed on.
const MAX_MESSAGE_CHARS: usize = 1000;

/// The payload of `pmix.abort`: a task aborts the job. A long message is truncated, since the job ends in any case.
pub fn abort(rank: u32, status: i32, message: &str) -> String {
    let message: String = message.chars().take(MAX_MESSAGE_CHARS).collect();
    json!({"rank": rank, "status": status, "message": message}).to_string()
}

/// Reads the payload of `pmix.ended`: the rank of a task that has ended.
///
/// # Errors
///
/// The payload is not JSON, or has no rank.
pub fn ended(payload: &[u8]) -> Result<u32, Error> {
    let json: Json = serde_json::from_slice(payload).map_err(|error| Error::syntax(&error))?;
    json["rank"]
        .as_u64()
        .and_then(|rank| u32::try_from(rank).ok())
        .ok_or_else(|| {
            let found = &json["rank"];
            Error::value(format!(
                "`rank`: expected a number of 32 bits, found {found}"
            ))
        })
}

/// The request id in a query's qualifiers: under `pmix.alloc.reqid` as libpmix names it, or under
/// `pmix.alloc.id` as RFC 0005 does. `None` for all requests.
pub fn request_id(qualifiers: &[Info]) -> Option<&str> {
    ["pmix.alloc.reqid", "pmix.alloc.id"]
        .iter()
        .find_map(|key| {
            let info = qualifiers.iter().find(|info| info.key == *key)?;
            match &info.value {
                Value::String(id) => Some(id.as_str()),
                _ => None,
            }
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blank_attributes_are_left_out() {
        let infos = [
            Info::new("", Value::Other(0)),
            Info::new("pmix.alloc.nnodes", Value::Uint64(12)),
        ];
        let payload: Json = serde_json::from_str(&alloc(Some(0), 1, &infos)).unwrap();
        assert_eq!(
            payload,
            json!({"rank": 0, "directive": 1, "attributes": [
                {"key": "pmix.alloc.nnodes", "required": false, "type": "uint64", "value": 12}
            ]})
        );
    }

    #[test]
    fn the_message_of_an_abort_is_truncated() {
        let payload: Json = serde_json::from_str(&abort(1, 7, &"é".repeat(1 << 20))).unwrap();
        assert_eq!(payload["message"], "é".repeat(MAX_MESSAGE_CHARS));
    }

    #[test]
    fn the_request_id_has_two_keys() {
        let id = |key: &str, id: &str| Info::new(key, Value::String(id.to_owned()));
        assert_eq!(request_id(&[id("pmix.alloc.id", "mine")]), Some("mine"));
        let both = [id("pmix.alloc.id", "ƒ12"), id("pmix.alloc.reqid", "mine")];
        assert_eq!(request_id(&both), Some("mine"));
        assert_eq!(
            request_id(&[Info::new("pmix.alloc.id", Value::Uint32(1))]),
            None
        );
        assert_eq!(request_id(&[]), None);
    }
}
