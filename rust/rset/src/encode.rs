//! Output as JSON, and in the short human-readable form.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;

use serde_json::value::RawValue;

use crate::ResourceSet;
use crate::execution::Execution;
use crate::groups::Groups;
use crate::raw::Carried;

impl ResourceSet {
    /// Writes compact JSON text: one entry of `R_lite` for all ranks with equal resources, one folded hostlist, and
    /// 0.0 for times that are not set. Opaque values are written byte for byte as they were read.
    pub fn to_json(&self) -> String {
        let mut text = Vec::new();
        text.push_text(r#"{"version":1"#);
        if let Some(execution) = &self.execution {
            text.push_text(r#","execution":"#);
            text.push_execution(execution);
        }
        text.push_member("scheduling", self.scheduling());
        text.push_member("attributes", self.attributes());
        text.push_members(&self.others);
        text.push_text("}");
        text.finish()
    }

    /// Writes the short form: `rank[0-3]/core[0-7],gpu0`, groups of equal ranks separated by blanks; empty for an empty
    /// set.
    pub fn summary(&self) -> String {
        let groups = Groups::new(&self.view().segments, |text, children| {
            let parts = [("core", &children.cores), ("gpu", children.gpus())];
            let parts = parts.into_iter().filter(|(_, ids)| !ids.is_empty());
            for (at, (name, ids)) in parts.enumerate() {
                text.push_text(if at == 0 { "/" } else { "," });
                text.push_text(name);
                let brackets = ids.len() != 1;
                text.push_text(if brackets { "[" } else { "" });
                text.push_ids(ids.ranges());
                text.push_text(if brackets { "]" } else { "" });
            }
        });
        let mut text = Vec::new();
        for group in groups.iter() {
            if !text.is_empty() {
                text.push_text(" ");
            }
            let brackets = !group.is_one_rank();
            text.push_text(if brackets { "rank[" } else { "rank" });
            text.push_ids(group.ranks());
            text.push_text(if brackets { "]" } else { "" });
            text.extend_from_slice(group.text());
        }
        text.finish()
    }
}

impl fmt::Display for ResourceSet {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&self.summary())
    }
}

/// An output buffer of UTF-8 text.
trait Text {
    fn finish(self) -> String;
    fn push_text(&mut self, text: &str);
    fn push_number(&mut self, number: u32);
    /// Ranges in the form of RFC 22, without brackets.
    fn push_ids(&mut self, ranges: impl Iterator<Item = RangeInclusive<u32>>);
    fn push_quoted(&mut self, text: &str);
    fn push_member(&mut self, key: &str, value: Option<&RawValue>);
    fn push_members(&mut self, others: &BTreeMap<String, Carried>);
    fn push_execution(&mut self, execution: &Execution);
}

impl Text for Vec<u8> {
    fn finish(self) -> String {
        String::from_utf8(self).expect("what is written is text")
    }

    fn push_text(&mut self, text: &str) {
        self.extend_from_slice(text.as_bytes());
    }

    fn push_number(&mut self, number: u32) {
        let mut digits = [0_u8; 10];
        let mut start = digits.len();
        let mut rest = number;
        loop {
            start -= 1;
            digits[start] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        self.extend_from_slice(&digits[start..]);
    }

    fn push_ids(&mut self, ranges: impl Iterator<Item = RangeInclusive<u32>>) {
        for (at, range) in ranges.enumerate() {
            if at > 0 {
                self.push(b',');
            }
            self.push_number(*range.start());
            if range.start() < range.end() {
                self.push(b'-');
                self.push_number(*range.end());
            }
        }
    }

    fn push_quoted(&mut self, text: &str) {
        self.push_text(&serde_json::to_string(text).expect("a string is JSON"));
    }

    fn push_member(&mut self, key: &str, value: Option<&RawValue>) {
        if let Some(value) = value {
            self.push_text(",");
            self.push_quoted(key);
            self.push_text(":");
            self.push_text(value.get());
        }
    }

    fn push_members(&mut self, others: &BTreeMap<String, Carried>) {
        for (key, value) in others {
            self.push_member(key, Some(value.raw()));
        }
    }

    fn push_execution(&mut self, execution: &Execution) {
        let groups = Groups::new(&execution.segments, |text, children| {
            text.push_text(r#"","children":{"core":""#);
            text.push_ids(children.cores.ranges());
            if !children.gpus().is_empty() {
                text.push_text(r#"","gpu":""#);
                text.push_ids(children.gpus().ranges());
            }
            text.push_text("\"");
            if let Some(others) = children.others() {
                text.push_members(others);
            }
            text.push_text("}}");
        });
        self.reserve(groups.size() + 256);
        self.push_text(r#"{"R_lite":["#);
        for (at, group) in groups.iter().enumerate() {
            self.push_text(if at > 0 {
                r#",{"rank":""#
            } else {
                r#"{"rank":""#
            });
            self.push_ids(group.ranks());
            self.extend_from_slice(group.text());
        }
        self.push_text(r#"],"nodelist":["#);
        self.push_quoted(&execution.hosts.to_string());
        self.push_text("]");
        if !execution.properties.is_empty() {
            self.push_text(r#","properties":{"#);
            for (at, (name, ranks)) in execution.properties.iter().enumerate() {
                self.push_text(if at > 0 { "," } else { "" });
                self.push_quoted(name);
                self.push_text(":\"");
                self.push_text(&ranks.to_text());
                self.push_text("\"");
            }
            self.push_text("}");
        }
        for (key, time) in [
            (r#","starttime":"#, execution.starttime),
            (r#","expiration":"#, execution.expiration),
        ] {
            self.push_text(key);
            let time = serde_json::to_string(&time.unwrap_or(0.0));
            self.push_text(&time.expect("a time is a finite number"));
        }
        if let Some(nslots) = execution.nslots {
            self.push_text(r#","nslots":"#);
            self.push_text(&nslots.to_string());
        }
        self.push_members(&execution.others);
        self.push_text("}");
    }
}
