//! Reading the files a batch is made of: only regular ones, only small ones, only UTF-8.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::error::FileError;

/// The largest file: a definition with all its texts must fit the store.
pub const MAX_FILE: u64 = 2 * 1024 * 1024;

/// The text of a file, which messages call `shown`.
pub(super) fn read(path: &Path, shown: &str) -> Result<String, FileError> {
    let cannot = |error: std::io::Error| {
        FileError::new(shown, words(&error)).hint("is its path right, from where this runs?")
    };
    // Asked first: opening a named pipe would wait for a writer.
    if !std::fs::metadata(path).map_err(cannot)?.is_file() {
        return Err(FileError::new(shown, "this is not a file"));
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(cannot)?;
    file.take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(cannot)?;
    if bytes.len() as u64 > MAX_FILE {
        let message = format!("the file is larger than {} MB", MAX_FILE / (1024 * 1024));
        return Err(FileError::new(shown, message).hint("is it the right file?"));
    }
    utf8(bytes, shown)
}

fn words(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "there is no such file".to_owned(),
        _ => format!("the file cannot be read: {error}"),
    }
}

fn utf8(bytes: Vec<u8>, shown: &str) -> Result<String, FileError> {
    let text = String::from_utf8(bytes).map_err(|error| {
        let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = good.iter().filter(|byte| **byte == b'\n').count() + 1;
        let message = "the file is not valid UTF-8";
        FileError::new(shown, message).at(line).hint("save it as UTF-8")
    })?;
    // Some editors put a mark before the text; nobody means it.
    Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
}
