//! Signed jobspecs (RFC 15) of the mechanism `none`, as Flux's tools submit them: `J`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use penstock_flux::{Credentials, RequestError};

use crate::authorize;

/// The header of a `J`.
#[derive(Debug, Default, PartialEq, Eq)]
struct Header {
    version: Option<i64>,
    userid: Option<i64>,
    mechanism: Option<String>,
}

fn wrong(text: impl std::fmt::Display) -> RequestError {
    RequestError::invalid(format!("malformed J: {text}"))
}

fn decode(part: &str, what: &str) -> Result<String, RequestError> {
    let bytes = BASE64
        .decode(part)
        .map_err(|error| wrong(format!("{what}: {error}")))?;
    String::from_utf8(bytes).map_err(|error| wrong(format!("{what}: {error}")))
}

/// Reads a header: pairs of `key NUL type-and-value NUL`; the type is `i` or `s`.
fn read_header(text: &str) -> Result<Header, RequestError> {
    let mut header = Header::default();
    let mut words = text.strip_suffix('\0').unwrap_or(text).split('\0');
    while let Some(key) = words.next() {
        let value = words
            .next()
            .ok_or_else(|| wrong(format!("`{key}` of the header has no value")))?;
        let number = || {
            let number = value
                .strip_prefix('i')
                .and_then(|digits| digits.parse().ok());
            number.ok_or_else(|| wrong(format!("expected `{key}` of the header to be an integer")))
        };
        match key {
            "version" => header.version = Some(number()?),
            "userid" => header.userid = Some(number()?),
            "mechanism" => header.mechanism = value.strip_prefix('s').map(str::to_owned),
            _ => {}
        }
    }
    Ok(header)
}

/// Extracts the jobspec's text. The signer must be the sender; root may sign for the instance owner.
pub(crate) fn unwrap(j: &str, sender: Credentials) -> Result<String, RequestError> {
    let parts: Vec<_> = j.splitn(4, '.').collect();
    let [header, payload, signature] = parts.as_slice() else {
        return Err(wrong("expected HEADER.PAYLOAD.SIGNATURE"));
    };
    let header = read_header(&decode(header, "header")?)?;
    if header.version != Some(1) {
        return Err(wrong("expected version 1"));
    }
    let mechanism = header.mechanism.as_deref().unwrap_or_default();
    if mechanism != "none" || *signature != "none" {
        let shown = mechanism.escape_debug();
        let text = format!("J is signed by `{shown}`: only the mechanism `none` is supported");
        return Err(RequestError::invalid(text));
    }
    let signer = header.userid.ok_or_else(|| wrong("expected a userid"))?;
    authorize::signer(sender, signer)?;
    decode(payload, "payload")
}

/// The `J` of a jobspec, as if its user had signed it.
pub(crate) fn wrap(jobspec: &str, userid: u32) -> String {
    let header = format!("version\0i1\0userid\0i{userid}\0mechanism\0snone\0");
    let (header, payload) = (BASE64.encode(header), BASE64.encode(jobspec));
    format!("{header}.{payload}.none")
}

#[cfg(test)]
mod tests {
    use super::{BASE64, unwrap, wrap};
    use base64::Engine as _;
    use penstock_flux::{Credentials, role};

    fn guest(userid: u32) -> Credentials {
        Credentials {
            userid,
            rolemask: role::USER,
        }
    }

    #[test]
    fn a_wrapped_jobspec_is_that_of_its_user() {
        let wrapped = wrap("{}", 7);
        assert_eq!(unwrap(&wrapped, guest(7)).unwrap(), "{}");
        assert!(unwrap(&wrapped, guest(8)).is_err());
    }

    fn j(header: &str, payload: &str, signature: &str) -> String {
        let (header, payload) = (BASE64.encode(header), BASE64.encode(payload));
        format!("{header}.{payload}.{signature}")
    }

    const GOOD: &str = "version\0i1\0userid\0i7\0mechanism\0snone\0";

    #[test]
    fn the_payload_comes_out() {
        let root = GOOD.replace("i7", "i0");
        for (header, sender) in [(GOOD, guest(7)), (&root, Credentials::owner(5))] {
            let text = unwrap(&j(header, "{}", "none"), sender).unwrap();
            assert_eq!(text, "{}");
        }
    }

    #[test]
    fn everything_else_is_rejected_by_name() {
        let munge = GOOD.replace("snone", "smunge");
        let cases = [
            ("x".to_owned(), "HEADER.PAYLOAD.SIGNATURE"),
            ("?.e30=.none".to_owned(), "header"),
            (j(GOOD, "{}", "none").replace("e30", "?"), "payload"),
            (j(&GOOD.replace("i1", "i2"), "{}", "none"), "version 1"),
            (j(&GOOD.replace("i7", "sx"), "{}", "none"), "`userid`"),
            (j(&GOOD.replace("i7", "i8"), "{}", "none"), "user 8"),
            (j(&GOOD.replace("i7", "i0"), "{}", "none"), "user 0"),
            (j("version\0i1\0mechanism\0snone\0", "{}", "none"), "userid"),
            (j("version", "{}", "none"), "no value"),
            (j(&munge, "{}", "none"), "`munge`"),
            (j(GOOD, "{}", "forged"), "`none`"),
        ];
        for (text, expected) in cases {
            let error = unwrap(&text, guest(7)).unwrap_err();
            assert!(error.text.contains(expected), "{}: {expected}", error.text);
        }
    }
}
