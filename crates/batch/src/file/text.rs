//! Reads the files of a batch: only regular files, of limited size, in UTF-8.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::error::FileError;

/// Maximum file size: a definition with all its texts must fit into the store.
pub const MAX_FILE: u64 = 2 * 1024 * 1024;

/// The text of a file; errors name it `display_path`.
pub(super) fn read(path: &Path, display_path: &str) -> Result<String, FileError> {
    let read_error = |error: std::io::Error| {
        FileError::new(display_path, describe_io_error(&error))
            .hint("check the path, relative to the current directory")
    };
    // Checked before opening: opening a named pipe would wait for a writer.
    if !std::fs::metadata(path).map_err(read_error)?.is_file() {
        return Err(FileError::new(display_path, "this is not a file"));
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(read_error)?;
    file.take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(read_error)?;
    if bytes.len() as u64 > MAX_FILE {
        let message = format!("the file is larger than {} MB", MAX_FILE / (1024 * 1024));
        return Err(FileError::new(display_path, message).hint("is it the right file?"));
    }
    decode_utf8(bytes, display_path)
}

fn describe_io_error(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "there is no such file".to_owned(),
        _ => format!("the file cannot be read: {error}"),
    }
}

fn decode_utf8(bytes: Vec<u8>, display_path: &str) -> Result<String, FileError> {
    let text = String::from_utf8(bytes).map_err(|error| {
        let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = valid.iter().filter(|byte| **byte == b'\n').count() + 1;
        let message = "the file is not valid UTF-8";
        FileError::new(display_path, message).at(line).hint("save it as UTF-8")
    })?;
    // Some editors write a byte order mark; it is not part of the text.
    Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
}
