//! Pages that differ in their words only are rendered once.
//!
//! A digest is written for thousands, with one template: the same sections with other words. What a section
//! becomes does not depend on the words in it, nor on the sections beside it ([`Cut`] says where that holds).
//! So when shapes come a second time, a page that has each of them once, with marks in the place of words, is
//! rendered and kept as a [`Mould`]; every page with these shapes is then put together of its pieces, which
//! costs a fifth of rendering it. Tests hold the result against what the renderer makes of the whole page,
//! byte by byte.

use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};

use sha2::{Digest, Sha256};

use super::cache::{Cache, Key, Weighed};
use super::cut::{Cut, HOLE, Word};
use super::normalise::{text_into, value_into};

/// The moulds of one renderer, the oldest of which are forgotten.
#[derive(Debug, Clone)]
pub(super) struct Moulds(Arc<Mutex<Cache<Known>>>);

/// What is known of pages with these shapes.
#[derive(Debug)]
enum Known {
    /// There was one. Many have words where we do not look for them and never come again.
    Once,
    /// There is no mould for them.
    Never,
    /// There is.
    Mould(Mould),
}

/// Moulds that are kept, in bytes.
const KEPT: usize = 8 << 20;
/// What a mark begins with; no page has such a word.
const MARK: &str = "zqlongshore";
/// Digits of a mark's number.
const DIGITS: usize = 6;

impl Default for Moulds {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Cache::new(KEPT))))
    }
}

impl Moulds {
    /// The page, if it could be put together. `render` renders a page that has all that this one has.
    pub(super) fn pour(
        &self,
        page: &str,
        render: impl Fn(&str) -> Option<String>,
    ) -> Option<String> {
        let cut = Cut::of(page)?;
        let key = key(&cut);
        let known = self.cache().find(&key);
        let known = match known.as_deref() {
            None => {
                self.cache().keep(key, &Arc::new(Known::Once));
                return None;
            }
            Some(Known::Once) => {
                let made = Mould::make(&cut, render).map_or(Known::Never, Known::Mould);
                let made = Arc::new(made);
                self.cache().keep(key, &made);
                made
            }
            Some(_) => known?,
        };
        match &*known {
            Known::Mould(mould) => Some(mould.pour(&cut)),
            Known::Once | Known::Never => None,
        }
    }

    fn cache(&self) -> std::sync::MutexGuard<'_, Cache<Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All of a page but its words.
fn key(cut: &Cut<'_>) -> Key {
    let mut hash = Sha256::new();
    let shapes = cut.shapes.iter().map(String::as_str);
    for text in std::iter::once(cut.head.shape.as_str()).chain(shapes).chain([cut.tail]) {
        hash.update((text.len() as u64).to_be_bytes());
        hash.update(text);
    }
    hash.finalize().into()
}

/// A rendered page with holes.
#[derive(Debug)]
pub(super) struct Mould {
    head: Vec<Bit>,
    shapes: Vec<Vec<Bit>>,
    tail: String,
}

#[derive(Debug)]
enum Bit {
    Fixed(String),
    /// The word of this number.
    Hole(usize),
}

impl Weighed for Known {
    fn weight(&self) -> usize {
        let bit = |bit: &Bit| match bit {
            Bit::Fixed(text) => text.len() + size_of::<Bit>(),
            Bit::Hole(_) => size_of::<Bit>(),
        };
        let more = match self {
            Self::Once | Self::Never => 0,
            Self::Mould(mould) => {
                let bits = mould.shapes.iter().flatten().chain(&mould.head);
                mould.tail.len() + bits.map(bit).sum::<usize>()
            }
        };
        // With the key, which is there twice.
        size_of::<Self>() + 2 * size_of::<Key>() + more
    }
}

impl Mould {
    /// Nothing if the renderer made something else of it than was foreseen.
    fn make(cut: &Cut<'_>, render: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let shapes = || std::iter::once(&cut.head.shape).chain(&cut.shapes);
        if shapes().any(|shape| shape.contains(MARK)) || cut.tail.contains(MARK) {
            return None;
        }
        // Marks: one before each shape, and one for each hole.
        let (mut page, mut marks) = (String::new(), 0);
        let mut mark = |page: &mut String| {
            // Writing into a string cannot fail.
            let _ = write!(page, "{MARK}{marks:0DIGITS$}z");
            marks += 1;
            marks
        };
        let mut bounds = Vec::new();
        for (n, shape) in shapes().enumerate() {
            if n > 0 {
                page.push_str("<mj-raw>");
                bounds.push(mark(&mut page));
                page.push_str("</mj-raw>");
            }
            for (n, fixed) in shape.split(HOLE).enumerate() {
                if n > 0 {
                    mark(&mut page);
                }
                page.push_str(fixed);
            }
        }
        let end = {
            page.push_str("<mj-raw>");
            let end = mark(&mut page);
            page.push_str("</mj-raw>");
            end
        };
        page.push_str(cut.tail);
        if end >= 10_usize.pow(DIGITS as u32) {
            return None;
        }
        bounds.push(end);
        Self::read(&render(&page)?, &bounds)
    }

    /// Cuts a rendered page at its marks: those in `bounds` (each with the number of the mark after it)
    /// begin a part, all others are holes of the part they are in.
    fn read(html: &str, bounds: &[usize]) -> Option<Self> {
        let (mut parts, mut part, mut rest) = (Vec::new(), Vec::new(), html);
        // The first mark of this part, and how many of its holes were seen.
        let (mut first, mut seen) = (0, vec![false; bounds.first()? - 1]);
        while let Some(at) = rest.find(MARK) {
            let after = &rest[at + MARK.len()..];
            let number: usize = after.get(..DIGITS)?.parse().ok()?;
            part.push(Bit::Fixed(rest[..at].to_owned()));
            rest = after[DIGITS..].strip_prefix('z')?;
            match bounds.get(parts.len()) {
                Some(bound) if number + 1 == *bound => {
                    if seen.contains(&false) {
                        return None;
                    }
                    parts.push(std::mem::take(&mut part));
                    first = *bound;
                    let next = bounds.get(parts.len()).copied();
                    seen = vec![false; next.map_or(0, |next| next - 1 - first)];
                }
                _ => {
                    // A word that turned up elsewhere is told by nobody's number.
                    let hole = number.checked_sub(first)?;
                    *seen.get_mut(hole)? = true;
                    part.push(Bit::Hole(hole));
                }
            }
        }
        if parts.len() != bounds.len() {
            return None;
        }
        let mut parts = parts.into_iter();
        Some(Self { head: parts.next()?, shapes: parts.collect(), tail: rest.to_owned() })
    }

    fn pour(&self, cut: &Cut<'_>) -> String {
        let mut html = String::with_capacity(self.size(cut));
        fill(&self.head, &cut.head.words, &mut html);
        for (shape, words) in &cut.parts {
            if let Some(bits) = self.shapes.get(*shape) {
                fill(bits, words, &mut html);
            }
        }
        html.push_str(&self.tail);
        html
    }

    /// What the page will have, about.
    fn size(&self, cut: &Cut<'_>) -> usize {
        let bits = |bits: &[Bit]| {
            bits.iter()
                .map(|bit| match bit {
                    Bit::Fixed(text) => text.len(),
                    Bit::Hole(_) => 32,
                })
                .sum::<usize>()
        };
        let shapes: Vec<usize> = self.shapes.iter().map(|shape| bits(shape)).collect();
        let parts = cut.parts.iter().filter_map(|(shape, _)| shapes.get(*shape));
        bits(&self.head) + parts.sum::<usize>() + self.tail.len()
    }
}

fn fill(bits: &[Bit], words: &[Word<'_>], html: &mut String) {
    for bit in bits {
        match bit {
            Bit::Fixed(text) => html.push_str(text),
            Bit::Hole(n) => match words.get(*n) {
                Some(Word::Text(word)) => text_into(word, html),
                Some(Word::Value(word)) => value_into(word, html),
                None => {}
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use proptest::prelude::*;

    use super::*;
    use crate::mjml::{Embedded, Roots, Template};

    fn plain(page: &str) -> Option<String> {
        let page = Template::from_text(page, &Roots::default()).ok()?;
        let rendered = Embedded::render_here(&page).ok()?;
        rendered.warnings.is_empty().then_some(rendered.html)
    }

    /// The page as it is when it has come before.
    fn poured(page: &str, render: impl Fn(&str) -> Option<String>) -> Option<String> {
        let moulds = Moulds::default();
        assert_eq!(moulds.pour(page, &render), None, "it came for the first time");
        moulds.pour(page, render)
    }

    /// Sections as digests have them, with words in every place where words may be.
    fn section(kind: u8, word: &str, link: &str) -> String {
        match kind {
            0 => format!(
                "\n<mj-section><mj-column width=\"25%\"><mj-image src=\"{link}\" alt=\"{link}\"/></mj-column>\
<mj-column width=\"75%\"><mj-text mj-class=\"small\"> <b class=\"tag\">{word}</b> and {word}</mj-text>\
<mj-button href=\"https://e.org/{link}\">{word}</mj-button></mj-column></mj-section>"
            ),
            1 => format!(
                "<mj-section><mj-column><mj-text font-family=\"Lato\">{word}</mj-text></mj-column></mj-section>"
            ),
            2 => format!(
                "<mj-wrapper padding=\"1px\"><mj-section><mj-group><mj-column><mj-text>{word}<br/>{word}</mj-text>\
</mj-column><mj-column><mj-table><tr><td title='{link}'>{word}</td></tr></mj-table></mj-column></mj-group>\
</mj-section></mj-wrapper>"
            ),
            3 => format!("\n  <mj-hero height=\"100px\"><mj-text>{word}</mj-text></mj-hero>"),
            _ => format!(
                "<mj-section><mj-column><mj-accordion><mj-accordion-element><mj-accordion-title>{word}</mj-accordion-title>\
<mj-accordion-text>{word}</mj-accordion-text></mj-accordion-element></mj-accordion><mj-social>\
<mj-social-element name=\"facebook\" href=\"{link}\">{word}</mj-social-element></mj-social></mj-column></mj-section>"
            ),
        }
    }

    fn page(title: &str, sections: &[(u8, String, String)]) -> String {
        let body: String =
            sections.iter().map(|(kind, word, link)| section(*kind, word, link)).collect();
        format!(
            "<mjml>\n<mj-head><mj-title>{title}</mj-title><mj-preview>{title} new</mj-preview>\
<mj-attributes><mj-all color=\"red\"/><mj-class name=\"small\" font-size=\"9px\"/></mj-attributes>\
<mj-style>.tag {{ color: blue; }}</mj-style></mj-head><mj-body>{body}\n</mj-body></mjml>"
        )
    }

    proptest! {
        #[test]
        fn a_page_put_together_is_the_page_that_is_rendered_whole(
            title in "[a-zA-Z \"'&>ä\\\\-]{0,12}",
            sections in prop::collection::vec(
                (0..5_u8, "[ -;=-~äß–€\u{200b}\u{2}\u{b}\n]{0,20}", "[#-&(-;=-~ä\u{200b}\u{2}]{0,12}"),
                0..8,
            ),
        ) {
            let page = page(&title, &sections);
            // What cannot be rendered cannot be put together either.
            if let Some(poured) = poured(&page, plain) {
                prop_assert_eq!(Some(poured), plain(&page));
            }
        }
    }

    #[test]
    fn pages_of_one_shape_are_rendered_once() {
        let (moulds, rendered) = (Moulds::default(), Cell::new(0));
        for n in 0..20_u8 {
            let is_first = n == 0;
            let word = |m: u8| format!("word é > {n} {m} < \"é\"");
            // With a picture and without, any number of them.
            let section = |m: u8| (m % 2, word(m), format!("p/{n}/{m}"));
            let sections: Vec<_> = (0..n % 7 + 2).map(section).collect();
            let page = page(&word(0), &sections);
            let poured = moulds.pour(&page, |page| {
                rendered.set(rendered.get() + 1);
                plain(page)
            });
            let whole = plain(&page).filter(|_| !is_first);
            assert!(is_first || whole.is_some());
            assert_eq!(poured, whole);
        }
        assert_eq!(rendered.get(), 1);
    }

    #[test]
    fn what_the_renderer_refuses_is_not_made_and_not_tried_again() {
        let (moulds, tried) = (Moulds::default(), Cell::new(0));
        for word in ["a", "b", "c"] {
            let poured = moulds.pour(&page("t", &[(1, word.into(), String::new())]), |_| {
                tried.set(tried.get() + 1);
                None
            });
            assert_eq!(poured, None);
        }
        assert_eq!(tried.get(), 1);
    }

    #[test]
    fn a_word_that_turns_up_elsewhere_or_not_at_all_spoils_the_mould() {
        let page = page("t", &[(1, "a".into(), String::new()), (3, "b".into(), String::new())]);
        // Marks: title, preview, the first part, its word, the second part, its word, the end.
        let mark = |n: usize| format!("{MARK}{n:0DIGITS$}z");
        for instead in [String::new(), mark(5), mark(0), mark(99), MARK.to_owned()] {
            let moved = |page: &str| plain(page).map(|html| html.replace(&mark(3), &instead));
            assert_eq!(poured(&page, moved), None, "{instead}");
        }
        assert!(poured(&page, plain).is_some());
    }
}
