//! The payload of an `exec` unit.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use longshore::HumanDuration;
use serde::Deserialize;

/// A command to run. Unknown fields are rejected: a misspelt `timeout` must not mean "no timeout".
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExecPayload {
    /// The program and its arguments. No shell: write `["sh", "-c", "…"]` for one.
    pub argv: Vec<String>,
    /// Its standard input; empty if absent.
    #[serde(default)]
    pub stdin: Option<String>,
    /// Its working directory, relative to the worker's `--exec-dir`.
    #[serde(default)]
    pub cwd: Option<PathBuf>,
    /// Added to its environment.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Maximum run time: seconds, or text as "30s".
    #[serde(default)]
    pub timeout: Option<HumanDuration>,
}

impl ExecPayload {
    /// A command with its input and a timeout.
    pub fn simple(argv: Vec<String>, stdin: String, limit: Duration) -> Self {
        let (stdin, timeout) = (Some(stdin), Some(HumanDuration(limit)));
        Self { argv, stdin, cwd: None, env: BTreeMap::new(), timeout }
    }

    /// Rejects what no operating system can run.
    pub fn check(&self) -> Result<(), String> {
        if self.argv.first().is_none_or(String::is_empty) {
            return Err("`argv` names no program".into());
        }
        if self.argv.iter().any(|arg| arg.contains('\0')) {
            return Err("`argv` holds a NUL character".into());
        }
        let name_is_bad = |name: &String| name.is_empty() || name.contains(['=', '\0']);
        if let Some(name) = self.env.keys().find(|name| name_is_bad(name)) {
            return Err(format!("`env` holds the invalid name {name:?}"));
        }
        if self.env.values().any(|value| value.contains('\0')) {
            return Err("`env` holds a NUL character".into());
        }
        Ok(())
    }
}

/// Checks the payload of a unit before it is sent.
pub fn check_payload(payload: &[u8]) -> Result<(), String> {
    let exec: Result<ExecPayload, _> = serde_json::from_slice(payload);
    let checked = exec.map_err(|error| error.to_string()).and_then(|exec| exec.check());
    checked.map_err(|why| format!("is not an exec payload: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<ExecPayload, String> {
        let exec: ExecPayload = serde_json::from_str(text).map_err(|error| error.to_string())?;
        exec.check().map(|()| exec)
    }

    #[test]
    fn a_payload_says_what_to_run() {
        let exec = read(r#"{"argv":["a","b"],"timeout":1.5,"env":{"X":"y"},"cwd":"d"}"#).unwrap();
        assert_eq!(exec.argv, ["a", "b"]);
        assert_eq!(exec.timeout.unwrap().0.as_millis(), 1500);
        assert!(read(r#"{"argv":["a"],"timeout":"2m"}"#).is_ok());
    }

    #[test]
    fn what_cannot_be_run_is_refused_with_the_reason() {
        for (text, why) in [
            (r#"{"argv":[]}"#, "names no program"),
            (r#"{"argv":[""]}"#, "names no program"),
            (r#"{"argv":["a\u0000"]}"#, "NUL"),
            (r#"{"argv":["a"],"env":{"A=B":"1"}}"#, "invalid name"),
            (r#"{"argv":["a"],"timeuot":3}"#, "unknown field `timeuot`"),
            (r#"{"argv":["a"],"timeout":-1}"#, "length of time"),
            (r#"{"argv":"ls"}"#, "expected a sequence"),
            (r#"{}"#, "missing field `argv`"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    const NAMES: &str = "argv|argv|stdin|cwd|env|timeout|x";
    const VALUES: &str = r#"\["(a|=|\\u0000)?"(,"b")?\]|"[a-z0-9]{0,3}"|-?[0-9]{1,3}|null|\{"(A|=|)":"a"\}"#;

    proptest::proptest! {
        #[test]
        fn any_bytes_are_read_or_the_place_of_the_error_is_named(bytes: Vec<u8>) {
            match serde_json::from_slice::<ExecPayload>(&bytes) {
                Ok(exec) => _ = exec.check(),
                Err(error) => proptest::prop_assert!(error.to_string().contains("column")),
            }
        }

        #[test]
        fn anything_like_a_payload_is_read_or_its_problem_is_named(
            fields in proptest::collection::vec((NAMES, VALUES), 0..4),
        ) {
            let fields: Vec<String> = fields.iter().map(|(n, v)| format!("\"{n}\":{v}")).collect();
            let text = format!("{{{}}}", fields.join(","));
            match read(&text) {
                Ok(exec) => proptest::prop_assert!(!exec.argv[0].is_empty()),
                Err(error) => {
                    let names = error.contains("column") || error.starts_with('`');
                    proptest::prop_assert!(names, "{}: {}", text, error);
                }
            }
        }
    }
}
