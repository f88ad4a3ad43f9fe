//! Payloads of requests to the instance, and of those that the instance sends.

use penstock_flux::Text;
use penstock_flux::pmix::AbortRequest;
use penstock_flux::pmix_attribute;
use penstock_flux::pmix_server::AllocRequest;

use crate::{Info, Value};

/// The payload of `pmix.alloc`: a request of a task for the job's allocation. Attributes without a key are left out.
pub fn alloc(rank: Option<u32>, directive: u8, attributes: &[Info]) -> AllocRequest {
    AllocRequest {
        rank,
        directive,
        attributes: attributes
            .iter()
            // Libraries pad their arrays with blank ones.
            .filter(|info| !info.key.is_empty())
            .map(Info::to_json)
            .collect(),
    }
}

/// Characters of the message of [`abort`] that are passed on.
const MAX_MESSAGE_CHARS: usize = 1000;

/// The payload of `pmix.abort`: a task aborts the job. A long message is truncated, since the job ends in any case.
pub fn abort(rank: u32, status: i32, message: &str) -> AbortRequest<'_> {
    let end = message.char_indices().nth(MAX_MESSAGE_CHARS);
    let message = end.map_or(message, |(end, _)| &message[..end]);
    AbortRequest {
        rank,
        status,
        message: Text::from(message),
    }
}

/// The request id in a query's qualifiers: under `pmix.alloc.reqid` as libpmix names it, or under
/// `pmix.alloc.id` as RFC 0005 does. `None` for all requests.
pub fn request_id(qualifiers: &[Info]) -> Option<&str> {
    [pmix_attribute::REQUEST_ID, pmix_attribute::ALLOC_ID]
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
    use serde_json::json;

    use super::*;

    #[test]
    fn blank_attributes_are_left_out() {
        let infos = [
            Info::new("", Value::Other(0)),
            Info::new("pmix.alloc.nnodes", Value::Uint64(12)),
        ];
        assert_eq!(
            serde_json::to_value(alloc(Some(0), 1, &infos)).unwrap(),
            json!({"rank": 0, "directive": 1, "attributes": [
                {"key": "pmix.alloc.nnodes", "required": false, "type": "uint64", "value": 12}
            ]})
        );
    }

    #[test]
    fn the_message_of_an_abort_is_truncated() {
        let long = "é".repeat(1 << 20);
        assert_eq!(*abort(1, 7, &long).message, "é".repeat(MAX_MESSAGE_CHARS));
        assert_eq!(*abort(1, 7, "no reason").message, *"no reason");
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
