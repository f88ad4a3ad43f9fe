//! The bytes that rows count for their users, as SQL: jobs, jobspecs, and submissions with tokens.

macro_rules! job_bytes {
    () => {
        2048
    };
}
macro_rules! jobspec_bytes {
    () => {
        64
    };
}
macro_rules! submission_bytes {
    () => {
        128
    };
}

/// The bytes that a job counts: about what its row, its events, its resources and its share of other rows take.
pub const JOB_BYTES: u64 = job_bytes!();

/// The bytes that a jobspec counts beside its text.
pub const JOBSPEC_BYTES: u64 = jobspec_bytes!();

/// The bytes that a submission with a token counts beside its texts.
pub(crate) const SUBMISSION_BYTES: u64 = submission_bytes!();

/// The bytes of each user by the rows. A float: garbage in a row is no error.
macro_rules! sums {
    () => {
        concat!(
            "SELECT userid, CAST(min(total(bytes), 1e15) AS INTEGER) AS bytes FROM (",
            "SELECT userid, count(*) * ",
            job_bytes!(),
            " + total(max(bytes, 0)) AS bytes FROM jobs GROUP BY userid UNION ALL ",
            "SELECT userid, count(*) * ",
            jobspec_bytes!(),
            " + total(octet_length(text)) FROM jobspecs GROUP BY userid UNION ALL ",
            "SELECT userid, count(*) * ",
            submission_bytes!(),
            " + total(octet_length(token) + octet_length(result)) FROM submissions GROUP BY userid",
            ") WHERE typeof(userid) = 'integer' AND userid BETWEEN 0 AND 4294967295 GROUP BY userid"
        )
    };
}

/// The sums of all users by their rows.
pub(crate) const SELECT_SUMS: &str = sums!();

/// Recomputes the table.
pub(crate) const RECOUNT: &str = concat!(
    "DELETE FROM user_bytes; INSERT INTO user_bytes ",
    sums!(),
    ";"
);

/// Gives the jobspecs of earlier formats, which name no user, to a user of their jobs.
pub(crate) const ATTRIBUTE: &str = "
UPDATE jobspecs SET userid = users.userid FROM
    (SELECT spec, min(userid) AS userid FROM jobs
     WHERE typeof(userid) = 'integer' AND userid BETWEEN 0 AND 4294967295 GROUP BY spec) AS users
    WHERE jobspecs.userid IS NULL AND users.spec = jobspecs.id;
UPDATE jobspecs SET userid = 0 WHERE userid IS NULL;
";

/// The users whose sums are not those of their rows: the user, the bytes of the rows, and the sum.
pub(crate) const SELECT_WRONG: &str = concat!(
    "SELECT userid, total(expected), total(found) FROM (SELECT userid, bytes AS expected, 0 AS found FROM (",
    sums!(),
    ") UNION ALL SELECT userid, 0, bytes FROM user_bytes) GROUP BY userid HAVING total(expected) <> total(found)"
);
