//! `command` in `[pre]` and `[post]`: a persistent program that is called for each row.

use crate::definition::CommandSpec;

use super::error::FileError;
use super::section::{Field, Section};
use super::source_map::SourceMap;

/// The keys that only a command has.
pub(super) const LIMIT_KEYS: [&str; 4] = ["min", "max", "timeout", "start_timeout"];

/// The command of a section, if any. With a command, the section must have none of `excluded_keys`;
/// without one, none of [`LIMIT_KEYS`].
pub(super) fn read(
    section: &Section<'_>,
    excluded_keys: &[&str],
    source_map: &mut SourceMap,
) -> Result<Option<CommandSpec>, FileError> {
    let Some(field) = section.field("command") else {
        return match LIMIT_KEYS.iter().find_map(|key| section.field(key)) {
            None => Ok(None),
            Some(limit) => Err(limit.error(format!("`{}` is for a `command`", limit.name))),
        };
    };
    for key in excluded_keys {
        section.exclusive(&[key, "command"])?;
    }
    source_map.put(&field.name, field.location());
    let dir = field.file.dir.to_str().ok_or_else(|| field.error("its folder is not valid UTF-8"))?;
    read_limits(section, CommandSpec::new(argv(&field)?, dir)).map(Some)
}

fn read_limits(section: &Section<'_>, mut command: CommandSpec) -> Result<CommandSpec, FileError> {
    if let Some(field) = section.field("max") {
        command.max = field.small_count()?;
    }
    if let Some(field) = section.field("min") {
        let min = u32::try_from(field.whole()?).ok().filter(|min| *min <= command.max);
        let above = || field.error(format!("`{}` is above `max`, {}", field.name, command.max));
        command.min = min.ok_or_else(above)?;
    }
    if let Some(field) = section.field("timeout") {
        command.timeout = field.positive_duration()?;
    }
    if let Some(field) = section.field("start_timeout") {
        command.start_timeout = field.positive_duration()?;
    }
    Ok(command)
}

/// A program and its arguments. A program with a slash is relative to the batch file's folder.
pub(super) fn argv(field: &Field<'_>) -> Result<Vec<String>, FileError> {
    let form = || field.type_error("a list of words").hint("as command = [\"./notify.sh\", \"--now\"]");
    let argv = field.items().ok_or_else(form)?;
    let argv: Result<Vec<&str>, FileError> = argv
        .iter()
        .map(|word| word.value().as_str().ok_or_else(|| word.type_error("text in quotes")))
        .collect();
    let mut argv: Vec<String> = argv?.into_iter().map(str::to_owned).collect();
    let Some(program) = argv.first_mut().filter(|program| !program.trim().is_empty()) else {
        return Err(field.error(format!("`{}` names no program", field.name)));
    };
    if program.contains('/') {
        let path = field.file.dir.join(program.as_str());
        if !path.is_file() {
            return Err(field.error(format!("`{}`: there is no file {program}", field.name)));
        }
        *program = path.display().to_string();
    }
    Ok(argv)
}
