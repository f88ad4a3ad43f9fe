//! The vector instructions in use.
use core::fmt;
use std::env::VarError;
use std::string::String;
use std::sync::OnceLock;

/// The environment variable with the highest level to use.
const VARIABLE: &str = "PENSTOCK_SIMD";

/// The vector instructions of a processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    Baseline,
    /// 256 bits at once.
    Avx2,
    /// 512 bits at once, and instructions that count their bits and compress their lanes of 16 bits.
    Avx512,
}

impl Level {
    const ALL: [Self; 3] = [Self::Baseline, Self::Avx2, Self::Avx512];

    const fn name(self) -> &'static str {
        match self {
            Self::Baseline => "baseline",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
        }
    }

    /// The level of this processor.
    #[cfg(target_arch = "x86_64")]
    fn of_processor() -> Self {
        let avx2 = std::is_x86_feature_detected!("avx2")
            && std::is_x86_feature_detected!("bmi1")
            && std::is_x86_feature_detected!("bmi2")
            && std::is_x86_feature_detected!("sse4.2")
            && std::is_x86_feature_detected!("popcnt");
        if avx2
            && std::is_x86_feature_detected!("avx512f")
            && std::is_x86_feature_detected!("avx512bw")
            && std::is_x86_feature_detected!("avx512vl")
            && std::is_x86_feature_detected!("avx512vpopcntdq")
            && std::is_x86_feature_detected!("avx512vbmi2")
        {
            return Self::Avx512;
        }
        if avx2 { Self::Avx2 } else { Self::Baseline }
    }

    /// The level of this processor.
    #[cfg(not(target_arch = "x86_64"))]
    const fn of_processor() -> Self {
        Self::Baseline
    }

    /// Parses the value of the variable; `None` if it is not set.
    fn limit(value: Result<String, VarError>) -> Result<Option<Self>, LevelError> {
        let name = match value {
            Ok(name) => name,
            Err(VarError::NotPresent) => return Ok(None),
            Err(VarError::NotUnicode(bytes)) => bytes.to_string_lossy().into_owned(),
        };
        let level = Self::ALL.into_iter().find(|level| level.name() == name);
        level.map(Some).ok_or_else(|| LevelError {
            found: name,
            level: Self::of_processor(),
        })
    }

    /// The level in use: the processor's, or the limit if that is lower.
    pub(crate) fn current() -> Self {
        match chosen() {
            Ok(level) => *level,
            Err(error) => error.level,
        }
    }
}

/// The level in use, or the rejection of the variable. The environment is read once: all operations use one level.
fn chosen() -> &'static Result<Level, LevelError> {
    static CHOSEN: OnceLock<Result<Level, LevelError>> = OnceLock::new();
    CHOSEN.get_or_init(|| {
        let limit = Level::limit(std::env::var(VARIABLE))?;
        Ok(Level::of_processor().min(limit.unwrap_or(Level::Avx512)))
    })
}

/// Returns the vector instructions that sets use, `baseline`, `avx2` or `avx512`: the best of this processor, limited by the
/// environment variable `PENSTOCK_SIMD`.
///
/// # Errors
///
/// The variable has another value; the best instructions are used then.
pub fn simd_level() -> Result<&'static str, LevelError> {
    chosen().clone().map(Level::name)
}

/// The rejection of a value of `PENSTOCK_SIMD`.
///
/// Its text names the variable, the value and what was expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LevelError {
    found: String,
    /// The level in use.
    level: Level,
}

impl LevelError {
    /// Returns the vector instructions that sets use in spite of the variable: the best of this processor.
    pub fn level_in_use(&self) -> &'static str {
        self.level.name()
    }
}

impl fmt::Display for LevelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [baseline, avx2, avx512] = Level::ALL.map(Level::name);
        write!(
            f,
            "invalid environment variable {VARIABLE}={:?}: expected `{baseline}`, `{avx2}` or `{avx512}`",
            self.found
        )
    }
}

impl core::error::Error for LevelError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_one_of_the_levels() {
        for level in Level::ALL {
            assert_eq!(Level::limit(Ok(level.name().into())), Ok(Some(level)));
        }
        assert_eq!(Level::limit(Err(VarError::NotPresent)), Ok(None));
        for wrong in ["", "avx", "AVX2", "avx512 "] {
            assert!(Level::limit(Ok(wrong.into())).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_error_has_the_best_level_of_the_processor() {
        let error = Level::limit(Ok("avx3".into())).unwrap_err();
        assert_eq!(error.level_in_use(), Level::of_processor().name());
    }

    /// `make test` runs the tests with each of the levels; a processor has those up to its own.
    #[test]
    fn the_level_in_use_is_that_of_the_variable() {
        let own = Level::of_processor();
        let limit = Level::limit(std::env::var(VARIABLE)).expect("a level");
        match limit {
            Some(limit) if limit > own => std::eprintln!(
                "SKIPPED: {VARIABLE}={}: this processor has {} at most",
                limit.name(),
                own.name()
            ),
            _ => assert_eq!(simd_level(), Ok(limit.unwrap_or(own).name())),
        }
    }

    #[test]
    fn an_error_names_the_variable_the_value_and_the_levels() {
        let error = Level::limit(Ok("avx3".into())).unwrap_err();
        assert_eq!(
            error.to_string(),
            "invalid environment variable PENSTOCK_SIMD=\"avx3\": expected `baseline`, `avx2` or `avx512`"
        );
    }
}
