//! Writes job scripts: checked directives at the top, then lines of bash that change to the working
//! directory and execute the program.
//!
//! No value of a job can break out of its line. A value in a directive must be a plain word,
//! because systems differ in quoting. All other values are in the bash part, quoted. Some systems
//! search the whole script for directives, so no line consists of a job's own text.

use std::fmt::{Display, Write as _};
use std::path::Path;

use super::error::SystemError;
use super::job::Job;
use super::queue_system::BaseSystem;

/// Discards output.
const DEV_NULL: &str = "/dev/null";

/// Writes the script of one job.
pub(super) struct ScriptWriter<'a> {
    system: BaseSystem,
    job: &'a Job,
    /// Prefix of the system's directives.
    prefix: &'static str,
    text: String,
    /// Which program opens the output files.
    opened_by: OutputOpenedBy,
}

/// Which program opens a job's output files.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum OutputOpenedBy {
    /// The base system, if it can be given the path.
    System,
    /// Bash, because the system would show the output only after the job's end.
    Bash,
}

impl<'a> ScriptWriter<'a> {
    /// Checks the job and begins its script.
    pub(super) fn new(
        system: BaseSystem,
        prefix: &'static str,
        job: &'a Job,
        opened_by: OutputOpenedBy,
    ) -> Result<Self, SystemError> {
        check(job).map_err(|what| invalid_job(system, job, what))?;
        Ok(Self { system, job, prefix, text: "#!/bin/bash\n".to_owned(), opened_by })
    }

    /// Appends a directive.
    pub(super) fn directive(&mut self, directive: impl Display) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "{} {directive}", self.prefix);
    }

    /// Appends a directive with an optional value, which must be a plain word.
    pub(super) fn checked_directive(
        &mut self,
        what: &str,
        flag: &str,
        value: Option<&str>,
    ) -> Result<(), SystemError> {
        let Some(value) = value else { return Ok(()) };
        if !is_plain_word(value) {
            let what = format!("{what} `{}` is not one plain word", value.escape_debug());
            return Err(self.invalid_job(what));
        }
        self.directive(format_args!("{flag}{value}"));
        Ok(())
    }

    /// Rejects a job with an attribute that the system does not support.
    pub(super) fn reject_unsupported(
        &self,
        what: &str,
        value: Option<&str>,
        instead: &str,
    ) -> Result<(), SystemError> {
        value.map_or(Ok(()), |_| Err(self.invalid_job(format!("it has no {what}; {instead}"))))
    }

    /// The error of a job that cannot be submitted.
    pub(super) fn invalid_job(&self, what: impl Into<String>) -> SystemError {
        invalid_job(self.system, self.job, what.into())
    }

    /// Appends the job's own options as directives.
    pub(super) fn append_options(&mut self) {
        for option in &self.job.options {
            self.directive(option);
        }
    }

    /// The output file that the system opens, and the error file if it is another.
    pub(super) fn output_paths(&self) -> (String, Option<String>) {
        if self.redirects() {
            return (DEV_NULL.to_owned(), None);
        }
        let plain = |path: Option<&Path>| path.and_then(Path::to_str).map(str::to_owned);
        let (out, err) = self.job.output_files();
        (plain(out).unwrap_or_else(|| DEV_NULL.to_owned()), plain(err))
    }

    /// Whether bash opens the files. Systems expand placeholders in paths, each its own, and tasks
    /// of an array would share a file.
    fn redirects(&self) -> bool {
        let paths = [&self.job.stdout, &self.job.stderr];
        let all_plain = paths.into_iter().flatten().all(|path| path.to_str().is_some_and(is_plain));
        self.opened_by == OutputOpenedBy::Bash || self.job.array.is_some() || !all_plain
    }

    /// Appends the bash part and returns the script. `index` is the system's variable with a task's
    /// index.
    pub(super) fn finish(mut self, index: &str) -> Result<String, SystemError> {
        let mut lines = Vec::new();
        if self.job.array.is_some() {
            lines.push(format!("export LONGSHORE_ARRAY_INDEX=\"${index}\""));
        }
        if self.redirects() {
            lines.push(self.redirection()?);
        }
        lines.push(format!("cd -- {} || exit 126", self.path(&self.job.dir)?));
        let env = &self.job.env;
        lines.extend(env.iter().map(|(name, value)| format!("export {name}={}", shell_quote(value))));
        let args = self.job.program.argv();
        let args = args.ok_or_else(|| self.invalid_job("the script's path is not text"))?;
        let args: Vec<String> = args.iter().map(|arg| shell_quote(arg)).collect();
        lines.push(format!("exec {}", args.join(" ")));
        self.text.push_str(&lines.join("\n"));
        self.text.push('\n');
        Ok(self.text)
    }

    /// The line of bash that redirects the output.
    fn redirection(&self) -> Result<String, SystemError> {
        let index = if self.job.array.is_some() { ".\"$LONGSHORE_ARRAY_INDEX\"" } else { "" };
        let open =
            |path: Option<&Path>| path.map(|path| Ok(format!("{}{index}", self.path(path)?))).transpose();
        let (out, err) = self.job.output_files();
        let out = open(out)?.unwrap_or_else(|| DEV_NULL.to_owned());
        Ok(open(err)?.map_or_else(|| format!("exec >{out} 2>&1"), |err| format!("exec >{out} 2>{err}")))
    }

    fn path(&self, path: &Path) -> Result<String, SystemError> {
        let text = path.to_str();
        text.map(shell_quote)
            .ok_or_else(|| self.invalid_job(format!("the path {} is not text", path.display())))
    }
}

fn invalid_job(system: BaseSystem, job: &Job, what: String) -> SystemError {
    SystemError::InvalidJob { system, job: job.name.escape_debug().to_string(), what }
}

/// Rejects jobs that no system can run. Jobs run elsewhere, so a relative path would name another
/// file.
pub(super) fn check(job: &Job) -> Result<(), String> {
    if job.name.contains(|c: char| c.is_control()) {
        return Err("its name has a line break or another control character".to_owned());
    }
    let script = match &job.program {
        super::JobProgram::Script { path, .. } => Some(path),
        super::JobProgram::Command(args) if args.is_empty() => {
            return Err("there is no command to run".to_owned());
        }
        super::JobProgram::Command(_) => None,
    };
    let paths = [Some(&job.dir), script, job.stdout.as_ref(), job.stderr.as_ref()];
    if let Some(path) = paths.into_iter().flatten().find(|path| !path.is_absolute()) {
        return Err(format!("the path {} is not absolute", path.display()));
    }
    if let Some(option) = job.options.iter().find(|option| option.contains(['\n', '\r', '\0'])) {
        return Err(format!("the option `{}` is more than one line", option.escape_debug()));
    }
    if let Some(name) = job.env.keys().find(|name| !is_variable_name(name)) {
        return Err(format!("`{}` is not a variable name", name.escape_debug()));
    }
    let args = job.program.argv().into_iter().flatten();
    if args.chain(job.env.values().cloned()).any(|word| word.contains('\0')) {
        return Err("an argument or variable has a zero byte".to_owned());
    }
    match job.array {
        Some(array) if array.first > array.last => Err("its array is empty".to_owned()),
        _ => Ok(()),
    }
}

/// Makes a name valid for every system: a letter, then letters, digits, `_`, `.` and `-`.
pub(super) fn sanitise_name(name: &str, max_length: usize) -> String {
    let keep = |c: char| if is_plain_char(c) && c != '/' { c } else { '_' };
    let mut sanitised: String = name.chars().map(keep).collect();
    if !sanitised.starts_with(|c: char| c.is_ascii_alphabetic()) {
        sanitised.insert(0, 'j');
    }
    sanitised.truncate(max_length);
    sanitised
}

fn is_variable_name(name: &str) -> bool {
    let begins = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    begins && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn is_plain_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || "/._-".contains(c)
}

/// Whether the text has no character that a shell or a system could interpret.
fn is_plain(text: &str) -> bool {
    !text.is_empty() && text.chars().all(is_plain_char)
}

/// Whether the value is one word in a directive of any system, such as `a@b`, `x,y`, `u:v`, `n=1`.
fn is_plain_word(value: &str) -> bool {
    let fits = |c: char| is_plain_char(c) || "@,:+=".contains(c);
    !value.is_empty() && !value.starts_with('-') && value.chars().all(fits)
}

/// Quotes a word for bash, on one line.
pub(super) fn shell_quote(word: &str) -> String {
    if is_plain(word) {
        return word.to_owned();
    }
    if !word.contains(|c: char| c.is_control()) {
        return format!("'{}'", word.replace('\'', r"'\''"));
    }
    let escape = |c: char| match c {
        '\\' | '\'' => format!("\\{c}"),
        c if c.is_ascii_control() => format!("\\{:03o}", u32::from(c)),
        c => c.to_string(),
    };
    format!("$'{}'", word.chars().map(escape).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quoted_word_is_one_line_and_means_itself() {
        for word in ["plain/a.b-c", "", "a b", "it's", "$(x) `y` \"z\" \\", "a\nb\t'\\c\u{7f}ä"] {
            let quoted = shell_quote(word);
            assert!(!quoted.contains('\n'), "{quoted}");
            let script = format!("printf %s {quoted}");
            let output = std::process::Command::new("bash").args(["-c", &script]).output().unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), word);
        }
    }

    #[test]
    fn a_tame_name_is_one_that_every_system_takes() {
        assert_eq!(sanitise_name("fit 3/4 \"x\"", 15), "fit_3_4__x_");
        assert_eq!(sanitise_name("12", 15), "j12");
        assert_eq!(sanitise_name("ä", 15), "j_");
        assert_eq!(sanitise_name("a-very-long-name-indeed", 15), "a-very-long-nam");
    }

    #[test]
    fn a_word_of_a_directive_has_nothing_that_a_system_could_read_otherwise() {
        for word in ["main", "a@example.org", "gpu,cpu", "node=1:x+y"] {
            assert!(is_plain_word(word), "{word}");
        }
        for word in ["", "a b", "a\nb", "a\"b", "a'b", "a;b", "$HOME", "-x", "a#b", "a\\"] {
            assert!(!is_plain_word(word), "{word}");
        }
    }
}
