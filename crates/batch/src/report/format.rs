//! Formats numbers and database URLs for people.

use longshore::text::{group_digits, is_plain_name};

use crate::definition::Database;

/// `12 345 678`, with narrow no-break spaces, which suit every language.
pub(super) fn count(number: u64) -> String {
    group_digits(number, '\u{202f}')
}

/// `20 ms`, `2 s`.
pub(super) fn millis(millis: u64) -> String {
    match millis {
        millis if millis >= 1_000 && millis.is_multiple_of(1_000) => {
            format!("{} s", millis / 1_000)
        }
        millis => format!("{millis} ms"),
    }
}

/// The database's address without passwords.
pub(super) fn database(database: &Database) -> String {
    let Database::Url(url) = database else {
        return "the store's own".to_owned();
    };
    match url.split_once(':').unwrap_or_default() {
        ("sqlite", _) => url.clone(),
        ("env", name) if is_plain_name(name) => url.clone(),
        (scheme @ ("postgres" | "postgresql" | "mysql" | "mariadb"), rest) => {
            // An option may contain an @, too.
            let rest = rest.split('?').next().unwrap_or_default();
            format!("{scheme}://{}", rest.rsplit_once('@').map_or("…", |(_, host)| host))
        }
        (scheme, _) => format!("{scheme}://…"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_times_are_shown_as_people_write_them() {
        assert_eq!(count(0), "0");
        assert_eq!(count(1_234_567).replace('\u{202f}', " "), "1 234 567");
        assert_eq!([millis(20), millis(2_000), millis(1_500)], ["20 ms", "2 s", "1500 ms"]);
    }

    #[test]
    fn no_password_is_shown() {
        let url = |url: &str| database(&Database::Url(url.to_owned()));
        assert_eq!(url("postgres://me:s3cret@db.local/erp?password=s3cret"), "postgres://db.local/erp");
        assert_eq!(url("postgres://me@db.local/erp?password=x@s3cret"), "postgres://db.local/erp");
        assert_eq!(url("postgres://me:s3?cret@db.local/erp"), "postgres://…");
        assert_eq!(url("odbc:DSN=erp;PWD=s3cret"), "odbc://…");
        assert_eq!(url("odbc:PWD=x@s3cret;DSN=erp"), "odbc://…");
        assert_eq!(url("env:postgres://me:s3cret@db.local/erp"), "env://…");
        assert_eq!(url("env:ERP_URL"), "env:ERP_URL");
        assert_eq!(url("sqlite:orders.db"), "sqlite:orders.db");
    }
}
