//! Events of the resource eventlog: one JSON object (RFC 18) for each change.

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
        /// Which.
        targets: Targets,
        /// The administrator's reason, or an empty one.
        reason: String,
        /// What becomes of those that are drained.
        overwrite: Overwrite,
    },
    /// Targets take jobs again.
    Undrain {
        /// Which.
        targets: Targets,
        /// The administrator's reason.
        reason: Option<String>,
    },
    /// A monitor has begun to report targets alive.
    Online(Targets),
    /// The last monitor of these targets has gone.
    Offline(Targets),
    /// Targets count as online without a monitor.
    Unmonitor(Targets),
    /// Targets are new.
    Grow(ResourceSet),
    /// Targets are gone for good.
    Shrink(Targets),
    /// Targets have got a property.
    PropertyAdd {
        /// Which.
        targets: Targets,
        /// The property.
        name: String,
    },
    /// Targets have lost a property.
    PropertyRemove {
        /// Which.
        targets: Targets,
        /// The property.
        name: String,
    },
    /// The resources have another end: seconds since the epoch, `None` for none.
    Expiration(Option<f64>),
    /// Configuration excludes targets from scheduling; recorded for the history alone.
    Exclude(Targets),
    /// Configuration no longer excludes targets; recorded for the history alone.
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
    /// What has changed.
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
    fn targets(self) -> Result<Targets, String> {
        Ok(Targets {
            ranks: required(self.idset, "idset")?,
            hosts: self.nodelist.unwrap_or_default(),
        })
    }

    fn property(mut self) -> Result<(Targets, String), String> {
        let name = required(self.name.take(), "name")?;
        Ok((self.targets()?, name))
    }
}

fn required<T>(value: Option<T>, key: &str) -> Result<T, String> {
    value.ok_or_else(|| format!("expected the key `{key}`"))
}

/// The change that an event of this name and context records; `None` for an unknown name, whatever its context.
fn change(name: &str, context: &str) -> Result<Option<Change>, String> {
    let context = || serde_json::from_str::<Context>(context).map_err(|error| error.to_string());
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
                targets: context.targets()?,
            }
        }
        "undrain" => {
            let mut context = context()?;
            Change::Undrain {
                reason: context.reason.take(),
                targets: context.targets()?,
            }
        }
        "online" => Change::Online(context()?.targets()?),
        "offline" => Change::Offline(context()?.targets()?),
        "unmonitor" => Change::Unmonitor(context()?.targets()?),
        "grow" => Change::Grow(required(context()?.resources, "R")?),
        "shrink" => Change::Shrink(context()?.targets()?),
        "property-add" => {
            let (targets, name) = context()?.property()?;
            Change::PropertyAdd { targets, name }
        }
        "property-remove" => {
            let (targets, name) = context()?.property()?;
            Change::PropertyRemove { targets, name }
        }
        "expiration" => {
            let end = required(context()?.expiration, "expiration")?;
            Change::Expiration(Some(end).filter(|&end| end != 0.0))
        }
        "exclude" => Change::Exclude(context()?.targets()?),
        "unexclude" => Change::Unexclude(context()?.targets()?),
        _ => return Ok(None),
    }))
}

impl Event {
    /// Reads a line of the eventlog; `None` for an event that only a later version knows.
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

        let invalid = |detail: String| Error::event(format!("invalid resource event: {detail}"));
        let read: Line<'_> =
            serde_json::from_str(line).map_err(|error| invalid(error.to_string()))?;
        let change = change(&read.name, read.context.get())
            .map_err(|detail| invalid(format!("`{}`: {detail}", read.name)))?;
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
