//! Maps database errors to HTTP statuses: the request's fault, the database's, or a timeout. The
//! response has a fixed text, because the database's message may quote a row.

use ::axum::http::StatusCode as Status;

use super::errors::{LATER, Meaning, SOON};
use crate::database::{DbError, Reason};
use crate::error::CallError;

/// Prefix of database operations, in every language.
const OPERATIONS: &str = "db.";

/// SQLSTATEs of statements that the server itself stopped after a timeout: PostgreSQL's, MySQL's.
const TOO_SLOW: [&str; 2] = ["57014", "70100"];

/// The SQLSTATE class of violated constraints: unique, foreign key, check, not null.
const CONSTRAINTS: &str = "23";

/// The response to a database error, if it is more specific than "the operation failed".
pub(super) fn meaning(error: &CallError) -> Option<Meaning> {
    if !error.operation.starts_with(OPERATIONS) {
        return None;
    }
    let told = DbError::of(error)?;
    match told.reason {
        Reason::Sql => of_code(&told),
        Reason::TimeLimit => Some(too_slow()),
        Reason::Unreachable => Some(Meaning {
            status: Status::SERVICE_UNAVAILABLE,
            detail: "The database cannot be reached at the moment.",
            kind: "unreachable",
            retry_after: LATER,
        }),
        Reason::Lost if told.outcome_unknown => Some(Meaning {
            status: Status::BAD_GATEWAY,
            detail: "The database was lost in the middle; it may be done or not.",
            kind: "lost",
            retry_after: None,
        }),
        Reason::Lost => Some(Meaning {
            status: Status::SERVICE_UNAVAILABLE,
            detail: "The database was lost in the middle; nothing was done.",
            kind: "lost",
            retry_after: SOON,
        }),
        Reason::Cancelled => Some(Meaning {
            status: Status::SERVICE_UNAVAILABLE,
            detail: "It was taken back.",
            kind: "cancelled",
            retry_after: SOON,
        }),
        Reason::ExpectedRows => Some(Meaning {
            status: Status::CONFLICT,
            detail: "It is not, or no longer, as the request takes it to be.",
            kind: "expected_rows",
            retry_after: None,
        }),
        Reason::RowLimit | Reason::SizeLimit | Reason::Refused => None,
    }
}

/// The response to an SQL error, by its SQLSTATE.
fn of_code(told: &DbError) -> Option<Meaning> {
    let code = told.code.as_deref().unwrap_or_default();
    if TOO_SLOW.contains(&code) {
        return Some(too_slow());
    }
    if code.starts_with(CONSTRAINTS) {
        return Some(Meaning {
            status: Status::CONFLICT,
            detail: "It conflicts with what is there, or must be.",
            kind: "constraint",
            retry_after: None,
        });
    }
    // Locks, deadlocks, too many connections.
    told.retryable.then_some(Meaning {
        status: Status::SERVICE_UNAVAILABLE,
        detail: "The database is busy.",
        kind: "busy",
        retry_after: SOON,
    })
}

fn too_slow() -> Meaning {
    Meaning {
        status: Status::GATEWAY_TIMEOUT,
        detail: "It took too long.",
        kind: "time_limit",
        retry_after: None,
    }
}

#[cfg(all(test, not(feature = "_shuttle")))]
mod tests {
    use serde_json::{Value, json};

    use crate::axum::Problem;
    use crate::error::ErrorKind;

    fn shown(operation: &str, data: Value) -> Problem {
        let (message, chain) = ("hunter2 is there already".to_owned(), vec!["hunter2".to_owned()]);
        let kind = ErrorKind::Handler { message, chain, data: Some(data) };
        let problem = Problem::from(&crate::job::error("database", operation, kind.clone(), None));
        assert!(!problem.to_json().contains("hunter2"), "{problem:?}");
        problem
    }

    fn db(data: Value) -> (u16, &'static str, Option<u32>) {
        let Problem { status, kind, retry_after, .. } = shown("db.do", data);
        (status, kind, retry_after)
    }

    #[test]
    fn what_a_database_could_not_do_has_its_status() {
        assert_eq!(db(json!({"reason": "time_limit"})), (504, "time_limit", None));
        assert_eq!(db(json!({"reason": "unreachable"})), (503, "unreachable", Some(5)));
        assert_eq!(db(json!({"reason": "cancelled"})), (503, "cancelled", Some(1)));
        assert_eq!(db(json!({"reason": "expected_rows"})), (409, "expected_rows", None));
        assert_eq!(db(json!({"reason": "lost"})), (503, "lost", Some(1)));
        let unknown = json!({"reason": "lost", "outcome_unknown": true, "retryable": true});
        assert_eq!(db(unknown), (502, "lost", None), "trying again might do it twice");
        for reason in ["row_limit", "size_limit", "refused"] {
            assert_eq!(db(json!({"reason": reason})), (500, "handler", None));
        }
    }

    #[test]
    fn what_a_database_says_no_with_has_its_status() {
        let sql = |code: &str, retryable: bool| {
            db(json!({"reason": "sql", "code": code, "retryable": retryable}))
        };
        for code in ["23505", "23503", "23502", "23514", "23000", "23P01"] {
            assert_eq!(sql(code, false), (409, "constraint", None), "{code}");
        }
        for code in ["57014", "70100"] {
            assert_eq!(sql(code, true), (504, "time_limit", None), "{code}");
        }
        for code in ["55P03", "40001", "40P01", "53300", "HY000"] {
            assert_eq!(sql(code, true), (503, "busy", Some(1)), "{code}");
        }
        for code in ["42601", "HY000", ""] {
            assert_eq!(sql(code, false), (500, "handler", None), "{code}");
        }
    }

    #[test]
    fn data_of_other_operations_is_their_own_affair() {
        let problem = shown("report", json!({"reason": "time_limit", "code": "23505"}));
        assert_eq!((problem.status, problem.kind), (500, "handler"));
    }
}
