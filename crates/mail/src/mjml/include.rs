//! Puts what a template includes into its place.
//!
//! Done once, before any renderer sees the template: only here is it decided which files may be read, and
//! only so can every fault be told with the file and line that somebody has to open.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::{Fault, Place};
use super::scan::{Attribute, Piece, What, scan};
use super::template::{Roots, Template};

/// Includes within includes, at most.
const DEEPEST: usize = 16;
/// All of a template, at most: what is sent to many should be small.
const LARGEST: usize = 4 << 20;

pub(super) fn expand(
    file: Option<Arc<Path>>,
    folder: Option<&Path>,
    text: &str,
    roots: &Roots,
) -> Result<Template, Fault> {
    let mut writer = Writer { text: String::new(), places: Vec::new(), roots, open: Vec::new() };
    writer.go_to(&file, 1);
    let source = Source { file, folder: folder.map(Path::to_path_buf), text: tidy(text) };
    writer.add(&source, Part::Whole)?;
    Ok(Template::new(writer.text, writer.places))
}

/// Renderers do not tell capitals from small letters, so neither do we.
const INCLUDE: &str = "mj-include";

fn is_include(name: &str) -> bool {
    name.eq_ignore_ascii_case(INCLUDE)
}

/// Where in a text something begins that any renderer might take for an include: also in a comment, a style
/// or a declaration, for where those end is a matter of opinion.
pub(crate) fn any_include(text: &str) -> Option<usize> {
    let begins = |at: &usize| text.get(at + 1..at + 1 + INCLUDE.len()).is_some_and(is_include);
    text.match_indices('<').map(|(at, _)| at).find(begins)
}

/// Line ends and marks that no renderer should have to know.
pub(super) fn tidy(text: &str) -> String {
    text.strip_prefix('\u{feff}').unwrap_or(text).replace('\r', "")
}

struct Source {
    file: Option<Arc<Path>>,
    folder: Option<PathBuf>,
    text: String,
}

/// How much of a source is wanted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Whole,
    /// What is inside of its `mj-head` or `mj-body`, if it is a document; all of it if it is not.
    Inside(&'static str),
}

struct Writer<'a> {
    text: String,
    /// Where each line begun so far is from.
    places: Vec<Place>,
    roots: &'a Roots,
    /// Files being included, the outermost first.
    open: Vec<PathBuf>,
}

impl Writer<'_> {
    /// What comes next is on a line of its own, from there.
    fn go_to(&mut self, file: &Option<Arc<Path>>, line: usize) {
        if !self.places.is_empty() {
            self.text.push('\n');
        }
        self.places.push(Place { file: file.clone(), line });
    }

    fn push(&mut self, text: &str, file: &Option<Arc<Path>>, line: usize) {
        self.text.push_str(text);
        let newlines = text.bytes().filter(|byte| *byte == b'\n').count();
        let place = |n| Place { file: file.clone(), line: line + n };
        self.places.extend((1..=newlines).map(place));
    }

    fn add(&mut self, source: &Source, part: Part) -> Result<(), Fault> {
        let fault =
            |line, what: String| Fault { place: Place { file: source.file.clone(), line }, what };
        let endless = |endless: super::scan::Endless| {
            fault(endless.line, format!("a {} that never ends", endless.what))
        };
        let pieces = scan(&source.text).map_err(endless)?;
        let pieces = match part {
            Part::Whole => &pieces[..],
            Part::Inside(section) => {
                inside(&pieces, section).map_err(|(line, what)| fault(line, what))?
            }
        };
        let mut section = match part {
            Part::Inside(section) => section,
            Part::Whole => "mj-body",
        };
        for piece in pieces {
            match &piece.what {
                What::Open { name, attributes, .. } if is_include(name) => {
                    self.include(source, piece.line, attributes, section)?;
                }
                What::Close { name } if is_include(name) => {}
                What::Open { name: "mj-head", closed: false, .. } => {
                    section = "mj-head";
                    self.push(piece.raw, &source.file, piece.line);
                }
                _ => {
                    if matches!(piece.what, What::Close { name: "mj-head" }) {
                        section = "mj-body";
                    }
                    self.push(piece.raw, &source.file, piece.line);
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
    ) -> Result<(), Fault> {
        let here = Place { file: from.file.clone(), line };
        let fault = |what: String| Fault { place: here.clone(), what };
        let said = |name| attributes.iter().find(|one| one.name == name).map(|one| one.value);
        let path = said("path").ok_or_else(|| fault("an mj-include without a path".into()))?;
        let path = from.folder.as_deref().unwrap_or(Path::new("")).join(path);
        let path = self.roots.resolve(&path).map_err(fault)?;
        if self.open.contains(&path) || self.open.len() >= DEEPEST {
            return Err(fault(format!("{} includes itself, or too deep", path.display())));
        }
        let text = std::fs::read_to_string(&path);
        let text =
            text.map_err(|cause| fault(format!("cannot include {}: {cause}", path.display())))?;
        if self.text.len() + text.len() > LARGEST {
            return Err(fault(format!("with {} the template is too large", path.display())));
        }
        let (kind, inline) = (said("type").unwrap_or("mjml"), said("css-inline") == Some("inline"));
        let source = Source {
            file: Some(path.as_path().into()),
            folder: path.parent().map(Path::to_path_buf),
            text: tidy(&text),
        };
        self.open.push(path);
        match (kind, section) {
            ("mjml", _) => {
                self.go_to(&source.file, 1);
                self.add(&source, Part::Inside(section))?;
            }
            ("css", "mj-head") => {
                let sheet = if inline { r#"<mj-style inline="inline">"# } else { "<mj-style>" };
                self.wrapped(&source, sheet, "</mj-style>").map_err(fault)?;
            }
            ("css", _) => return Err(fault("styles are included in mj-head".into())),
            ("html", _) => self.wrapped(&source, "<mj-raw>", "</mj-raw>").map_err(fault)?,
            _ => return Err(fault(format!("`{kind}` is no type of include: mjml, css or html"))),
        }
        self.open.pop();
        self.go_to(&from.file, line);
        Ok(())
    }

    fn wrapped(&mut self, source: &Source, before: &str, after: &str) -> Result<(), String> {
        if source.text.contains(after) {
            return Err(format!("what is included must not contain {after}"));
        }
        self.text.push_str(before);
        self.go_to(&source.file, 1);
        self.push(&source.text, &source.file, 1);
        self.text.push_str(after);
        Ok(())
    }
}

/// What is inside of a document's section. The other section must be empty: it would be lost.
fn inside<'p, 't>(
    pieces: &'p [Piece<'t>],
    section: &str,
) -> Result<&'p [Piece<'t>], (usize, String)> {
    let is_document = pieces.iter().any(|p| matches!(p.what, What::Open { name: "mjml", .. }));
    if !is_document {
        return Ok(pieces);
    }
    let other = if section == "mj-head" { "mj-body" } else { "mj-head" };
    let lost = between(pieces, other).iter().find(|p| matches!(p.what, What::Open { .. }));
    match lost {
        Some(piece) => {
            let why =
                format!("this document is included in {section}, and its {other} would be lost");
            Err((piece.line, why))
        }
        None => Ok(between(pieces, section)),
    }
}

fn between<'p, 't>(pieces: &'p [Piece<'t>], section: &str) -> &'p [Piece<'t>] {
    let opens =
        |p: &Piece<'_>| matches!(p.what, What::Open { name, closed: false, .. } if name == section);
    let closes = |p: &Piece<'_>| matches!(p.what, What::Close { name } if name == section);
    let Some(from) = pieces.iter().position(opens) else { return &[] };
    let to = pieces.iter().rposition(closes).unwrap_or(pieces.len());
    pieces.get(from + 1..to).unwrap_or(&[])
}
