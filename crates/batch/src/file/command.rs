//! `command` in `[pre]` and `[post]`: a program that stays and is called for each row.

use crate::definition::Command;

use super::error::FileError;
use super::places::Places;
use super::section::{Field, Section};

/// The keys that belong to a command.
pub(super) const LIMITS: [&str; 4] = ["min", "max", "timeout", "start_timeout"];

/// The command of a section, if it has one; then it must have none of the keys that `exclude` it.
/// Without one it must have none of [`LIMITS`].
pub(super) fn read(
    section: &Section<'_>,
    excluding: &[&str],
    places: &mut Places,
) -> Result<Option<Command>, FileError> {
    let Some(field) = section.field("command") else {
        return match LIMITS.iter().find_map(|key| section.field(key)) {
            None => Ok(None),
            Some(limit) => Err(limit.error(format!("`{}` is for a `command`", limit.name))),
        };
    };
    for key in excluding {
        section.one_of(&[key, "command"])?;
    }
    places.put(&field.name, field.place());
    let dir =
        field.file.dir.to_str().ok_or_else(|| field.error("its folder is not valid UTF-8"))?;
    limited(section, Command::new(words(&field)?, dir)).map(Some)
}

fn limited(section: &Section<'_>, mut command: Command) -> Result<Command, FileError> {
    if let Some(field) = section.field("max") {
        command.max = field.small_count()?;
    }
    if let Some(field) = section.field("min") {
        let min = u32::try_from(field.whole()?).ok().filter(|min| *min <= command.max);
        let above = || field.error(format!("`{}` is above `max`, {}", field.name, command.max));
        command.min = min.ok_or_else(above)?;
    }
    if let Some(field) = section.field("timeout") {
        command.timeout = field.span()?;
    }
    if let Some(field) = section.field("start_timeout") {
        command.start_timeout = field.span()?;
    }
    Ok(command)
}

/// A program and its arguments. A program with a slash is meant from the batch file's folder.
pub(super) fn words(field: &Field<'_>) -> Result<Vec<String>, FileError> {
    let form = || field.wrong("a list of words").hint("as command = [\"./notify.sh\", \"--now\"]");
    let words = field.items().ok_or_else(form)?;
    let words: Result<Vec<&str>, FileError> = words
        .iter()
        .map(|word| word.value().as_str().ok_or_else(|| word.wrong("text in quotes")))
        .collect();
    let mut words: Vec<String> = words?.into_iter().map(str::to_owned).collect();
    let Some(program) = words.first_mut().filter(|program| !program.trim().is_empty()) else {
        return Err(field.error(format!("`{}` names no program", field.name)));
    };
    if program.contains('/') {
        let path = field.file.dir.join(program.as_str());
        if !path.is_file() {
            return Err(field.error(format!("`{}`: there is no file {program}", field.name)));
        }
        *program = path.display().to_string();
    }
    Ok(words)
}
