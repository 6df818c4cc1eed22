//! Resolves includes.
//!
//! Runs once, before any renderer sees the template: only this module decides which files may be read, and it
//! records the source file and line of every line for error messages.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::{MjmlError, MjmlLocation};
use super::lexer::{Attribute, MarkupKind, MarkupToken, tokenise};
use super::template::{MjmlTemplate, Roots};

/// Maximum depth of nested includes.
const MAX_DEPTH: usize = 16;
/// Maximum size of a template with its includes: mail to many recipients should be small.
const MAX_BYTES: usize = 4 << 20;

pub(super) fn expand(
    file: Option<Arc<Path>>,
    folder: Option<&Path>,
    text: &str,
    roots: &Roots,
) -> Result<MjmlTemplate, MjmlError> {
    let mut writer = Writer { text: String::new(), locations: Vec::new(), roots, stack: Vec::new() };
    writer.start_line(&file, 1);
    let source = Source { file, folder: folder.map(Path::to_path_buf), text: normalise_line_ends(text) };
    writer.add(&source, IncludedPart::Whole)?;
    Ok(MjmlTemplate::new(writer.text, writer.locations))
}

/// Compared case-insensitively, as renderers do.
const INCLUDE: &str = "mj-include";

fn is_include(name: &str) -> bool {
    name.eq_ignore_ascii_case(INCLUDE)
}

/// The position of the first text that any renderer might treat as an include. This covers comments, styles
/// and declarations, since renderers disagree on where these end.
pub(crate) fn find_include(text: &str) -> Option<usize> {
    let is_at = |at: &usize| text.get(at + 1..at + 1 + INCLUDE.len()).is_some_and(is_include);
    text.match_indices('<').map(|(at, _)| at).find(is_at)
}

/// Removes the byte order mark and carriage returns.
pub(super) fn normalise_line_ends(text: &str) -> String {
    text.strip_prefix('\u{feff}').unwrap_or(text).replace('\r', "")
}

struct Source {
    file: Option<Arc<Path>>,
    folder: Option<PathBuf>,
    text: String,
}

/// Which part of a source is included.
#[derive(Clone, Copy, PartialEq, Eq)]
enum IncludedPart {
    Whole,
    /// The content of its `mj-head` or `mj-body` if the source is a document; otherwise all of it.
    Inside(&'static str),
}

struct Writer<'a> {
    text: String,
    /// The source location of each line of `text`.
    locations: Vec<MjmlLocation>,
    roots: &'a Roots,
    /// The stack of files being included, outermost first.
    stack: Vec<PathBuf>,
}

impl Writer<'_> {
    /// Starts a new line that comes from this location.
    fn start_line(&mut self, file: &Option<Arc<Path>>, line: usize) {
        if !self.locations.is_empty() {
            self.text.push('\n');
        }
        self.locations.push(MjmlLocation { file: file.clone(), line });
    }

    fn push(&mut self, text: &str, file: &Option<Arc<Path>>, line: usize) {
        self.text.push_str(text);
        let newlines = text.bytes().filter(|byte| *byte == b'\n').count();
        let location = |n| MjmlLocation { file: file.clone(), line: line + n };
        self.locations.extend((1..=newlines).map(location));
    }

    fn add(&mut self, source: &Source, part: IncludedPart) -> Result<(), MjmlError> {
        let error_at = |line, message: String| MjmlError {
            location: MjmlLocation { file: source.file.clone(), line },
            message,
        };
        let missing_end =
            |error: super::lexer::MissingEnd| error_at(error.line, format!("a {} that never ends", error.of));
        let tokens = tokenise(&source.text).map_err(missing_end)?;
        let tokens = match part {
            IncludedPart::Whole => &tokens[..],
            IncludedPart::Inside(section) => {
                inside(&tokens, section).map_err(|(line, message)| error_at(line, message))?
            }
        };
        let mut section = match part {
            IncludedPart::Inside(section) => section,
            IncludedPart::Whole => "mj-body",
        };
        for token in tokens {
            match &token.kind {
                MarkupKind::Open { name, attributes, .. } if is_include(name) => {
                    self.include(source, token.line, attributes, section)?;
                }
                MarkupKind::Close { name } if is_include(name) => {}
                MarkupKind::Open { name: "mj-head", closed: false, .. } => {
                    section = "mj-head";
                    self.push(token.raw, &source.file, token.line);
                }
                _ => {
                    if matches!(token.kind, MarkupKind::Close { name: "mj-head" }) {
                        section = "mj-body";
                    }
                    self.push(token.raw, &source.file, token.line);
                }
            }
        }
        Ok(())
    }

    fn include(
        &mut self,
        from: &Source,
        line: usize,
        attributes: &[Attribute<'_>],
        section: &'static str,
    ) -> Result<(), MjmlError> {
        let here = MjmlLocation { file: from.file.clone(), line };
        let error_at = |message: String| MjmlError { location: here.clone(), message };
        let attribute = |name| attributes.iter().find(|one| one.name == name).map(|one| one.value);
        let path = attribute("path").ok_or_else(|| error_at("an mj-include without a path".into()))?;
        let path = from.folder.as_deref().unwrap_or(Path::new("")).join(path);
        let path = self.roots.resolve(&path).map_err(error_at)?;
        if self.stack.contains(&path) || self.stack.len() >= MAX_DEPTH {
            return Err(error_at(format!("{} includes itself, or is nested too deep", path.display())));
        }
        let text = std::fs::read_to_string(&path);
        let text = text.map_err(|cause| error_at(format!("cannot include {}: {cause}", path.display())))?;
        if self.text.len() + text.len() > MAX_BYTES {
            return Err(error_at(format!("with {} the template is too large", path.display())));
        }
        let (kind, inline) = (attribute("type").unwrap_or("mjml"), attribute("css-inline") == Some("inline"));
        let source = Source {
            file: Some(path.as_path().into()),
            folder: path.parent().map(Path::to_path_buf),
            text: normalise_line_ends(&text),
        };
        self.stack.push(path);
        match (kind, section) {
            ("mjml", _) => {
                self.start_line(&source.file, 1);
                self.add(&source, IncludedPart::Inside(section))?;
            }
            ("css", "mj-head") => {
                let sheet = if inline { r#"<mj-style inline="inline">"# } else { "<mj-style>" };
                self.wrapped(&source, sheet, "</mj-style>").map_err(error_at)?;
            }
            ("css", _) => return Err(error_at("styles are included in mj-head".into())),
            ("html", _) => self.wrapped(&source, "<mj-raw>", "</mj-raw>").map_err(error_at)?,
            _ => {
                return Err(error_at(format!("`{kind}` is no type of include: use mjml, css or html")));
            }
        }
        self.stack.pop();
        self.start_line(&from.file, line);
        Ok(())
    }

    fn wrapped(&mut self, source: &Source, before: &str, after: &str) -> Result<(), String> {
        if source.text.contains(after) {
            return Err(format!("what is included must not contain {after}"));
        }
        self.text.push_str(before);
        self.start_line(&source.file, 1);
        self.push(&source.text, &source.file, 1);
        self.text.push_str(after);
        Ok(())
    }
}

/// The content of a document's section. Fails if the other section is not empty, since its content would be
/// dropped.
fn inside<'p, 't>(
    tokens: &'p [MarkupToken<'t>],
    section: &str,
) -> Result<&'p [MarkupToken<'t>], (usize, String)> {
    let is_document = tokens.iter().any(|token| matches!(token.kind, MarkupKind::Open { name: "mjml", .. }));
    if !is_document {
        return Ok(tokens);
    }
    let other = if section == "mj-head" { "mj-body" } else { "mj-head" };
    let dropped = between(tokens, other).iter().find(|token| matches!(token.kind, MarkupKind::Open { .. }));
    match dropped {
        Some(token) => {
            let why = format!("this document is included in {section}, and its {other} would be lost");
            Err((token.line, why))
        }
        None => Ok(between(tokens, section)),
    }
}

fn between<'p, 't>(tokens: &'p [MarkupToken<'t>], section: &str) -> &'p [MarkupToken<'t>] {
    let opens = |token: &MarkupToken<'_>| matches!(token.kind, MarkupKind::Open { name, closed: false, .. } if name == section);
    let closes =
        |token: &MarkupToken<'_>| matches!(token.kind, MarkupKind::Close { name } if name == section);
    let Some(from) = tokens.iter().position(opens) else { return &[] };
    let to = tokens.iter().rposition(closes).unwrap_or(tokens.len());
    tokens.get(from + 1..to).unwrap_or(&[])
}
