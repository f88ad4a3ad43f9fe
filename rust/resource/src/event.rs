//! Events of the resource eventlog: one JSON object (RFC 18) for each change.

use std::fmt;

use penstock_hostlist::Hostlist;
use penstock_idset::IdSet;
use penstock_rset::ResourceSet;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::Error;

/// The targets of an event: their ranks, and their hosts at that time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Targets {
    /// The ranks.
    pub ranks: IdSet,
    /// The hosts in the order of the ranks; empty if the event does not name them.
    pub hosts: Hostlist,
}

/// The treatment of targets that are drained already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overwrite {
    /// A target keeps its time, and its reason unless that is empty.
    #[default]
    Keep,
    /// A target keeps its time and gets the new reason.
    Reason,
    /// A target gets the new time and the new reason.
    All,
}

/// A change of the inventory or of the state of some targets.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Targets take no new jobs.
    Drain {
        /// The targets.
        targets: Targets,
        /// The administrator's reason; may be empty.
        reason: String,
        /// The treatment of targets that are drained already.
        overwrite: Overwrite,
    },
    /// Targets take jobs again.
    Undrain {
        /// The targets.
        targets: Targets,
        /// The administrator's reason.
        reason: Option<String>,
    },
    /// A monitor has begun to report targets alive.
    Online(Targets),
    /// The last monitor of these targets has disconnected.
    Offline(Targets),
    /// Targets count as online without a monitor.
    Unmonitor(Targets),
    /// The inventory gains targets.
    Grow(ResourceSet),
    /// The inventory loses targets permanently.
    Shrink(Targets),
    /// Targets gain a property.
    PropertyAdd {
        /// The targets.
        targets: Targets,
        /// The property.
        name: String,
    },
    /// Targets lose a property.
    PropertyRemove {
        /// The targets.
        targets: Targets,
        /// The property.
        name: String,
    },
    /// The expiration of the inventory changes: seconds since the epoch, `None` for no expiration.
    Expiration(Option<f64>),
    /// Configuration excludes targets from scheduling; recorded for the history only.
    Exclude(Targets),
    /// Configuration no longer excludes targets; recorded for the history only.
    Unexclude(Targets),
}

impl Change {
    /// The event's name in the eventlog.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Drain { .. } => "drain",
            Self::Undrain { .. } => "undrain",
            Self::Online(_) => "online",
            Self::Offline(_) => "offline",
            Self::Unmonitor(_) => "unmonitor",
            Self::Grow(_) => "grow",
            Self::Shrink(_) => "shrink",
            Self::PropertyAdd { .. } => "property-add",
            Self::PropertyRemove { .. } => "property-remove",
            Self::Expiration(_) => "expiration",
            Self::Exclude(_) => "exclude",
            Self::Unexclude(_) => "unexclude",
        }
    }

    fn context(&self) -> Context {
        let about = |targets: &Targets| Context {
            idset: Some(targets.ranks.clone()),
            nodelist: Some(targets.hosts.clone()),
            ..Context::default()
        };
        match self {
            Self::Drain {
                targets,
                reason,
                overwrite,
            } => Context {
                reason: Some(reason.clone()),
                overwrite: Some(match overwrite {
                    Overwrite::Keep => 0,
                    Overwrite::Reason => 1,
                    Overwrite::All => 2,
                }),
                ..about(targets)
            },
            Self::Undrain { targets, reason } => Context {
                reason: reason.clone(),
                ..about(targets)
            },
            Self::Grow(resources) => Context {
                idset: Some(resources.ranks()),
                nodelist: Some(resources.nodelist()),
                resources: Some(resources.clone()),
                ..Context::default()
            },
            Self::PropertyAdd { targets, name } | Self::PropertyRemove { targets, name } => {
                Context {
                    name: Some(name.clone()),
                    ..about(targets)
                }
            }
            Self::Expiration(expiration) => Context {
                expiration: Some(expiration.unwrap_or(0.0)),
                ..Context::default()
            },
            Self::Online(targets)
            | Self::Offline(targets)
            | Self::Unmonitor(targets)
            | Self::Shrink(targets)
            | Self::Exclude(targets)
            | Self::Unexclude(targets) => about(targets),
        }
    }
}

/// One event of the resource eventlog.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// When it happened, in seconds since the epoch.
    pub timestamp: f64,
    /// The change.
    pub change: Change,
}

/// The context of every event; which keys there are depends on its name.
#[derive(Default, Deserialize, Serialize)]
struct Context {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    idset: Option<IdSet>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    nodelist: Option<Hostlist>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    overwrite: Option<u8>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expiration: Option<f64>,
    #[serde(rename = "R", default, skip_serializing_if = "Option::is_none")]
    resources: Option<ResourceSet>,
}

impl Context {
    fn targets(self, event: &str) -> Result<Targets, Error> {
        Ok(Targets {
            ranks: required(self.idset, event, "idset")?,
            hosts: self.nodelist.unwrap_or_default(),
        })
    }

    fn property(mut self, event: &str) -> Result<(Targets, String), Error> {
        let name = required(self.name.take(), event, "name")?;
        Ok((self.targets(event)?, name))
    }
}

fn required<T>(value: Option<T>, event: &str, key: &str) -> Result<T, Error> {
    value.ok_or_else(|| invalid_context(event, format_args!("expected the key `{key}`")))
}

fn invalid_context(event: &str, detail: impl fmt::Display) -> Error {
    invalid(format_args!("`{event}`: {detail}"))
}

fn invalid(detail: impl fmt::Display) -> Error {
    Error::event(format!("invalid resource event: {detail}"))
}

/// The change that an event of this name and context records; `None` for an unknown name, whatever its context.
fn change(name: &str, context: &str) -> Result<Option<Change>, Error> {
    let context =
        || serde_json::from_str::<Context>(context).map_err(|error| invalid_context(name, error));
    Ok(Some(match name {
        "drain" => {
            let mut context = context()?;
            Change::Drain {
                reason: context.reason.take().unwrap_or_default(),
                overwrite: match context.overwrite {
                    Some(1) => Overwrite::Reason,
                    Some(2) => Overwrite::All,
                    _ => Overwrite::Keep,
                },
                targets: context.targets(name)?,
            }
        }
        "undrain" => {
            let mut context = context()?;
            Change::Undrain {
                reason: context.reason.take(),
                targets: context.targets(name)?,
            }
        }
        "online" => Change::Online(context()?.targets(name)?),
        "offline" => Change::Offline(context()?.targets(name)?),
        "unmonitor" => Change::Unmonitor(context()?.targets(name)?),
        "grow" => Change::Grow(required(context()?.resources, name, "R")?),
        "shrink" => Change::Shrink(context()?.targets(name)?),
        "property-add" => {
            let (targets, name) = context()?.property(name)?;
            Change::PropertyAdd { targets, name }
        }
        "property-remove" => {
            let (targets, name) = context()?.property(name)?;
            Change::PropertyRemove { targets, name }
        }
        "expiration" => {
            let end = required(context()?.expiration, name, "expiration")?;
            Change::Expiration(Some(end).filter(|&end| end != 0.0))
        }
        "exclude" => Change::Exclude(context()?.targets(name)?),
        "unexclude" => Change::Unexclude(context()?.targets(name)?),
        _ => return Ok(None),
    }))
}

impl Event {
    /// Reads a line of the eventlog; `None` for an event of a later version.
    ///
    /// # Errors
    ///
    /// The line is no event, or lacks a key that its name calls for.
    pub fn from_json(line: &str) -> Result<Option<Self>, Error> {
        #[derive(Deserialize)]
        struct Line<'a> {
            timestamp: f64,
            name: String,
            #[serde(borrow)]
            context: &'a RawValue,
        }

        let read: Line<'_> = serde_json::from_str(line).map_err(invalid)?;
        let change = change(&read.name, read.context.get())?;
        Ok(change.map(|change| Self {
            timestamp: read.timestamp,
            change,
        }))
    }

    /// Writes the event as a line of the eventlog, without a newline.
    ///
    /// # Errors
    ///
    /// The event has no JSON form.
    pub fn to_json(&self) -> Result<String, Error> {
        #[derive(Serialize)]
        struct Line {
            timestamp: f64,
            name: &'static str,
            context: Context,
        }

        let line = Line {
            timestamp: self.timestamp,
            name: self.change.name(),
            context: self.change.context(),
        };
        serde_json::to_string(&line).map_err(|error| Error::event(error.to_string()))
    }
}
