//! The responses of the server.

use std::fmt::Write;

use crate::{MAX_KEY_BYTES, MAX_NAME_BYTES, MAX_VALUE_BYTES};

/// The result of a request, a return code of RFC 13.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// Success.
    Success = 0,
    /// The operation has failed.
    Fail = -1,
    /// The values need too much memory.
    NoMemory = 2,
    /// The key-value space is another one.
    InvalidArgument = 3,
    /// The key belongs to the process manager.
    InvalidKey = 4,
    /// The key is too long.
    InvalidKeyLength = 5,
    /// The value has characters that it may not have.
    InvalidValue = 6,
    /// The value is too long.
    InvalidValueLength = 7,
}

/// A response to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Response {
    /// To `init`: the version of the connection, or that there is none.
    Init(Option<(u32, u32)>),
    /// To `get_maxes`.
    Maxes,
    /// To `get_universe_size`.
    UniverseSize(u32),
    /// To `get_appnum`.
    Appnum,
    /// To `get_my_kvsname`.
    MyKvsname(String),
    /// To `put`.
    Put(Code),
    /// To `get`.
    Get(Result<String, Code>),
    /// To `barrier_in`.
    BarrierOut(Code),
    /// To `finalize`.
    Finalize,
    /// To `abort`.
    Abort,
    /// To a request for what is not supported: the name of the response.
    Unsupported(&'static str),
}

impl Response {
    /// The line of the response.
    pub fn line(&self) -> String {
        let mut line = match self {
            Self::Init(Some((version, subversion))) => format!(
                "cmd=response_to_init rc=0 pmi_version={version} pmi_subversion={subversion}"
            ),
            Self::Init(None) => format!("cmd=response_to_init rc={}", Code::Fail as i32),
            Self::Maxes => format!(
                "cmd=maxes rc=0 kvsname_max={MAX_NAME_BYTES} keylen_max={MAX_KEY_BYTES} vallen_max={MAX_VALUE_BYTES}"
            ),
            Self::UniverseSize(size) => format!("cmd=universe_size rc=0 size={size}"),
            Self::Appnum => "cmd=appnum rc=0 appnum=0".to_owned(),
            Self::MyKvsname(name) => format!("cmd=my_kvsname rc=0 kvsname={name}"),
            Self::Put(code) => format!("cmd=put_result rc={}", *code as i32),
            Self::Get(Ok(value)) => format!("cmd=get_result rc=0 value={value}"),
            Self::Get(Err(code)) => format!("cmd=get_result rc={}", *code as i32),
            Self::BarrierOut(code) => format!("cmd=barrier_out rc={}", *code as i32),
            Self::Finalize => "cmd=finalize_ack rc=0".to_owned(),
            Self::Abort => String::new(),
            Self::Unsupported(name) => {
                let mut line = format!("cmd={name} rc={}", Code::Fail as i32);
                if *name != "spawn_result" {
                    // Writing to a string does not fail.
                    let _ = write!(line, " msg=not_supported");
                }
                line
            }
        };
        line.push('\n');
        line
    }
}
