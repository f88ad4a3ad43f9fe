//! The payloads of what is asked of the instance.

use serde_json::{Value as Json, json};

use crate::{Info, Value};

/// The key of a query for the status of requests.
pub const QUERY: &str = "pmix.query.alloc";

/// `pmix.alloc`: what a rank asks of the job's allocation. Attributes without a key are left out.
pub fn alloc(rank: Option<u32>, directive: u8, attributes: &[Info]) -> String {
    let attributes: Vec<Json> = attributes
        .iter()
        // Libraries pad their arrays with blank ones.
        .filter(|info| !info.key.is_empty())
        .map(Info::to_json)
        .collect();
    json!({"rank": rank, "directive": directive, "attributes": attributes}).to_string()
}

/// `pmix.query`: how a request stands, or all of the job's.
pub fn query(id: Option<&str>) -> String {
    match id {
        Some(id) => json!({"rank": null, "id": id}).to_string(),
        None => json!({"rank": null}).to_string(),
    }
}

/// The longest text of [`abort`], in characters.
const MAX_TEXT: usize = 1000;

/// `pmix.abort`: a rank gives the job up. Of a long text the start is told: the job ends whatever it is.
pub fn abort(rank: u32, status: i32, message: &str) -> String {
    let message: String = message.chars().take(MAX_TEXT).collect();
    json!({"rank": rank, "status": status, "message": message}).to_string()
}

/// `pmix.ended`: the rank of a task that has ended.
pub fn ended(payload: &[u8]) -> Result<u32, String> {
    let json: Json = serde_json::from_slice(payload).map_err(|error| error.to_string())?;
    json["rank"]
        .as_u64()
        .and_then(|rank| u32::try_from(rank).ok())
        .ok_or_else(|| {
            format!(
                "`rank`: expected a number of 32 bits, found {}",
                json["rank"]
            )
        })
}

/// The request that a query's qualifiers name: by `pmix.alloc.reqid`, as the library calls the user's id, or by
/// `pmix.alloc.id`, as RFC 0005 does. `None` if they name none.
pub fn named(qualifiers: &[Info]) -> Option<&str> {
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
    fn an_abort_is_told_however_long_its_text_is() {
        let payload: Json = serde_json::from_str(&abort(1, 7, &"é".repeat(1 << 20))).unwrap();
        assert_eq!(payload["message"], "é".repeat(MAX_TEXT));
    }

    #[test]
    fn the_users_id_has_two_names() {
        let id = |key: &str, id: &str| Info::new(key, Value::String(id.to_owned()));
        assert_eq!(named(&[id("pmix.alloc.id", "mine")]), Some("mine"));
        let both = [id("pmix.alloc.id", "ƒ12"), id("pmix.alloc.reqid", "mine")];
        assert_eq!(named(&both), Some("mine"));
        assert_eq!(named(&[Info::new("pmix.alloc.id", Value::Uint32(1))]), None);
        assert_eq!(named(&[]), None);
    }
}
