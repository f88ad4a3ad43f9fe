//! Flags in a message's header (RFC 3).

/// Flag: the message has a topic.
pub const TOPIC: u8 = 0x01;
/// Flag: the message has a payload.
pub const PAYLOAD: u8 = 0x02;
/// Flag: the request must not be answered, not even with an error.
pub const NORESPONSE: u8 = 0x04;
/// Flag: the message has a route stack, perhaps an empty one.
pub const ROUTE: u8 = 0x08;
/// Flag: the request goes upstream of the rank in its nodeid.
pub const UPSTREAM: u8 = 0x10;
/// Flag: the event is for the sender and the instance owner only.
pub const PRIVATE: u8 = 0x20;
/// Flag: the message belongs to an RPC with many responses (RFC 6).
pub const STREAMING: u8 = 0x40;
/// Flag: free for users; nothing in Flux reads it.
pub const USER: u8 = 0x80;

/// The nodeid of a request to any rank.
pub const NODEID_ANY: u32 = u32::MAX;
/// The userid of a message whose sender is not authenticated yet: the broker overwrites it.
pub const USERID_UNKNOWN: u32 = u32::MAX;
/// The matchtag of a request that needs no response.
pub const MATCHTAG_NONE: u32 = 0;
/// The greatest matchtag.
pub const MATCHTAG_MAX: u32 = u32::MAX;
