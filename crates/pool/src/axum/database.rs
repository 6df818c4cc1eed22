//! Maps database errors to HTTP statuses: the request's fault, the database's, or a timeout. The
//! response has a fixed text, because the database's message may quote a row.

use ::axum::http::StatusCode as Status;

use super::errors::{ErrorResponse, RETRY_LATER, RETRY_SOON};
use crate::database::{DbError, Reason};
use crate::error::CallError;

/// Prefix of database operations, in every language.
const OPERATION_PREFIX: &str = "db.";

/// SQLSTATEs of statements that the server itself stopped after a timeout: PostgreSQL's, MySQL's.
const TIMEOUT_CODES: [&str; 2] = ["57014", "70100"];

/// The SQLSTATE class of violated constraints: unique, foreign key, check, not null.
const CONSTRAINT_CLASS: &str = "23";

/// The response to a database error, if it is more specific than "the operation failed".
pub(super) fn response(error: &CallError) -> Option<ErrorResponse> {
    if !error.operation.starts_with(OPERATION_PREFIX) {
        return None;
    }
    let db_error = error.db_error()?;
    match db_error.reason {
        Reason::Sql => sql_response(&db_error),
        Reason::TimeLimit => Some(timeout_response()),
        Reason::Unreachable => Some(ErrorResponse {
            status: Status::SERVICE_UNAVAILABLE,
            detail: "The database cannot be reached at the moment.",
            kind: "unreachable",
            retry_after: RETRY_LATER,
        }),
        Reason::Lost if db_error.outcome_unknown => Some(ErrorResponse {
            status: Status::BAD_GATEWAY,
            detail: "The connection was lost; the statement may have taken effect.",
            kind: "lost",
            retry_after: None,
        }),
        Reason::Lost => Some(ErrorResponse {
            status: Status::SERVICE_UNAVAILABLE,
            detail: "The connection was lost; nothing was changed.",
            kind: "lost",
            retry_after: RETRY_SOON,
        }),
        Reason::Cancelled => Some(ErrorResponse {
            status: Status::SERVICE_UNAVAILABLE,
            detail: "The call was cancelled.",
            kind: "cancelled",
            retry_after: RETRY_SOON,
        }),
        Reason::ExpectedRows => Some(ErrorResponse {
            status: Status::CONFLICT,
            detail: "The rows are not, or no longer, in the expected state.",
            kind: "expected_rows",
            retry_after: None,
        }),
        _ => None,
    }
}

/// The response to an SQL error, by its SQLSTATE.
fn sql_response(db_error: &DbError) -> Option<ErrorResponse> {
    let code = db_error.code.as_deref().unwrap_or_default();
    if TIMEOUT_CODES.contains(&code) {
        return Some(timeout_response());
    }
    if code.starts_with(CONSTRAINT_CLASS) {
        return Some(ErrorResponse {
            status: Status::CONFLICT,
            detail: "The change violates a constraint.",
            kind: "constraint",
            retry_after: None,
        });
    }
    // Locks, deadlocks, too many connections.
    db_error.retryable.then_some(ErrorResponse {
        status: Status::SERVICE_UNAVAILABLE,
        detail: "The database is busy.",
        kind: "busy",
        retry_after: RETRY_SOON,
    })
}

fn timeout_response() -> ErrorResponse {
    ErrorResponse {
        status: Status::GATEWAY_TIMEOUT,
        detail: "The statement took too long.",
        kind: "time_limit",
        retry_after: None,
    }
}

#[cfg(all(test, not(feature = "_shuttle")))]
mod tests {
    use serde_json::{Value, json};

    use crate::axum::Problem;
    use crate::error::ErrorKind;

    fn problem_for(operation: &str, data: Value) -> Problem {
        let (message, chain) = ("hunter2 is there already".to_owned(), vec!["hunter2".to_owned()]);
        let kind = ErrorKind::Handler { message, chain, data: Some(data) };
        let problem = Problem::from(&crate::job::call_error("database", operation, kind.clone(), None));
        assert!(!problem.to_json().contains("hunter2"), "{problem:?}");
        problem
    }

    fn db(data: Value) -> (u16, &'static str, Option<u32>) {
        let Problem { status, kind, retry_after, .. } = problem_for("db.do", data);
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
        let sql =
            |code: &str, retryable: bool| db(json!({"reason": "sql", "code": code, "retryable": retryable}));
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
        let problem = problem_for("report", json!({"reason": "time_limit", "code": "23505"}));
        assert_eq!((problem.status, problem.kind), (500, "handler"));
    }
}
