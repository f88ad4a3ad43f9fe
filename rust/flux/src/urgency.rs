//! Urgencies of jobs, and the priorities that follow from them (RFC 30).

/// The job is held.
pub const HOLD: u8 = 0;
/// The urgency of a job that is submitted without one.
pub const DEFAULT: u8 = 16;
/// The greatest urgency: the job is to start as soon as possible.
pub const EXPEDITE: u8 = 31;

/// The priority that an urgency stands for: 0 if held, the greatest if expedited.
pub fn priority(urgency: u8) -> u32 {
    match urgency {
        EXPEDITE.. => u32::MAX,
        urgency => u32::from(urgency),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expedited_job_has_the_greatest_priority_and_a_held_one_the_least() {
        let priorities = [HOLD, DEFAULT, EXPEDITE - 1, EXPEDITE].map(priority);
        assert_eq!(priorities, [0, 16, 30, u32::MAX]);
    }
}
