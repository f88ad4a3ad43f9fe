//! Users' estimates of run times, as models generate them.

use std::fmt;
use std::str::FromStr;

use crate::Error;
use crate::error::excerpt;
use crate::random::Random;

/// The distribution of the estimates of a generated workload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Estimates {
    /// The exact run time.
    Exact,
    /// The run time times a uniform factor between 1 and this one (the f-model of Feitelson and
    /// Weil, 1998).
    Factor(f64),
    /// A round value: the fraction of the estimate that a job uses is uniform in (0, 1], and users
    /// write 15 minutes or 2 hours, not 13:47 (after Tsafrir, Etsion and Feitelson, 2005, who found
    /// a score of values to cover nine jobs of ten).
    Modal,
}

/// The round values, in minutes.
const ROUND_MINUTES: [u32; 22] = [
    5, 10, 15, 20, 30, 40, 45, 60, 90, 120, 180, 240, 300, 360, 480, 600, 720, 900, 1080, 1440,
    2160, 2880,
];

impl Estimates {
    /// Draws the estimate of a job that runs for `run` seconds: whole seconds, no less than the run
    /// time.
    pub fn draw(self, run: f64, random: &mut Random) -> f64 {
        match self {
            Self::Exact => run,
            Self::Factor(most) => {
                let factor = 1.0 + (most - 1.0) * random.uniform();
                (run * factor).round().max(run)
            }
            Self::Modal => {
                let wish = run / random.positive();
                let mut values = ROUND_MINUTES
                    .iter()
                    .map(|minutes| f64::from(*minutes) * 60.0);
                let most = f64::from(ROUND_MINUTES[ROUND_MINUTES.len() - 1]) * 60.0;
                let least = wish.min(most).max(run);
                let day = 86400.0;
                values
                    .find(|value| *value >= least)
                    .unwrap_or_else(|| (least / day).ceil() * day)
            }
        }
    }
}

impl fmt::Display for Estimates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact => f.write_str("exact"),
            Self::Factor(most) => write!(f, "factor:{most}"),
            Self::Modal => f.write_str("modal"),
        }
    }
}

impl FromStr for Estimates {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let factor = text
            .strip_prefix("factor:")
            .and_then(|factor| factor.parse().ok());
        match (text, factor) {
            ("exact", _) => Ok(Self::Exact),
            ("modal", _) => Ok(Self::Modal),
            (_, Some(most)) if (1.0..=1e6).contains(&most) => Ok(Self::Factor(most)),
            _ => Err(Error::new(format!(
                "invalid estimates `{}`: expected exact, modal or factor:F with F from 1 on",
                excerpt(text)
            ))),
        }
    }
}
