//! Renders pages that differ only in their values once.
//!
//! All mails of a digest come from one template: the same sections with different texts. The rendering of a
//! section depends neither on the texts in it nor on its siblings ([`SplitPage`] checks where that holds).
//! When a page with the same shapes comes a second time, we render a page that has each shape once, with
//! markers in place of values, and cache the result as a [`Skeleton`]. Further pages with these shapes are
//! assembled from the skeleton's parts, which costs a fifth of rendering. Tests compare the result with a
//! full rendering byte by byte.

use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};

use sha2::{Digest, Sha256};

use super::cache::{Cache, CacheKey, CacheSize};
use super::normalise::{push_escaped_text, push_escaped_value};
use super::splitter::{SLOT, SlotValue, SplitPage};

/// The skeletons of one renderer, with first-in-first-out eviction.
#[derive(Debug, Clone)]
pub(super) struct SkeletonCache(Arc<Mutex<Cache<CacheEntry>>>);

/// The state of a set of shapes.
#[derive(Debug)]
enum CacheEntry {
    /// Seen once, not rendered yet. Many pages have values in places that are not slots, so their shapes
    /// never recur.
    SeenOnce,
    /// Cannot be rendered as a skeleton.
    NotCacheable,
    /// Has a skeleton.
    Skeleton(Skeleton),
}

/// Size of the cache.
const MAX_CACHE_BYTES: usize = 8 << 20;
/// Prefix of a marker; a word that no page contains.
const MARKER: &str = "zqlongshore";
/// Number of digits in a marker.
const MARKER_DIGITS: usize = 6;

impl Default for SkeletonCache {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Cache::new(MAX_CACHE_BYTES))))
    }
}

impl SkeletonCache {
    /// Assembles the page from a cached skeleton, or returns `None`. `render` renders the marker page that a
    /// new skeleton is made from.
    pub(super) fn render(&self, page: &str, render: impl Fn(&str) -> Option<String>) -> Option<String> {
        let split = SplitPage::new(page)?;
        let key = shape_key(&split);
        let entry = self.cache().get(&key);
        let entry = match entry.as_deref() {
            None => {
                self.cache().insert(key, &Arc::new(CacheEntry::SeenOnce));
                return None;
            }
            Some(CacheEntry::SeenOnce) => {
                let built =
                    Skeleton::build(&split, render).map_or(CacheEntry::NotCacheable, CacheEntry::Skeleton);
                let built = Arc::new(built);
                self.cache().insert(key, &built);
                built
            }
            Some(_) => entry?,
        };
        match &*entry {
            CacheEntry::Skeleton(skeleton) => Some(skeleton.fill(&split)),
            CacheEntry::SeenOnce | CacheEntry::NotCacheable => None,
        }
    }

    fn cache(&self) -> std::sync::MutexGuard<'_, Cache<CacheEntry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Hashes everything of a page except its values.
fn shape_key(split: &SplitPage<'_>) -> CacheKey {
    let mut hash = Sha256::new();
    let shapes = split.shapes.iter().map(String::as_str);
    for text in std::iter::once(split.head.shape.as_str()).chain(shapes).chain([split.tail]) {
        hash.update((text.len() as u64).to_be_bytes());
        hash.update(text);
    }
    hash.finalize().into()
}

/// A rendered page with slots.
#[derive(Debug)]
pub(super) struct Skeleton {
    head: Vec<Segment>,
    shapes: Vec<Vec<Segment>>,
    tail: String,
}

#[derive(Debug)]
enum Segment {
    Fixed(String),
    /// The slot with this index.
    Slot(usize),
}

impl CacheSize for CacheEntry {
    fn size_bytes(&self) -> usize {
        let size = |segment: &Segment| match segment {
            Segment::Fixed(text) => text.len() + size_of::<Segment>(),
            Segment::Slot(_) => size_of::<Segment>(),
        };
        let more = match self {
            Self::SeenOnce | Self::NotCacheable => 0,
            Self::Skeleton(skeleton) => {
                let segments = skeleton.shapes.iter().flatten().chain(&skeleton.head);
                skeleton.tail.len() + segments.map(size).sum::<usize>()
            }
        };
        // The cache stores the key twice.
        size_of::<Self>() + 2 * size_of::<CacheKey>() + more
    }
}

impl Skeleton {
    /// Renders the marker page and splits it. `None` if the output does not have the expected markers.
    fn build(split: &SplitPage<'_>, render: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let shapes = || std::iter::once(&split.head.shape).chain(&split.shapes);
        if shapes().any(|shape| shape.contains(MARKER)) || split.tail.contains(MARKER) {
            return None;
        }
        // One marker precedes each shape, and one fills each slot.
        let (mut page, mut markers) = (String::new(), 0);
        let mut marker = |page: &mut String| {
            // Writing into a string cannot fail.
            let _ = write!(page, "{MARKER}{markers:0MARKER_DIGITS$}z");
            markers += 1;
            markers
        };
        let mut bounds = Vec::new();
        for (n, shape) in shapes().enumerate() {
            if n > 0 {
                page.push_str("<mj-raw>");
                bounds.push(marker(&mut page));
                page.push_str("</mj-raw>");
            }
            for (n, fixed) in shape.split(SLOT).enumerate() {
                if n > 0 {
                    marker(&mut page);
                }
                page.push_str(fixed);
            }
        }
        let end = {
            page.push_str("<mj-raw>");
            let end = marker(&mut page);
            page.push_str("</mj-raw>");
            end
        };
        page.push_str(split.tail);
        if end >= 10_usize.pow(MARKER_DIGITS as u32) {
            return None;
        }
        bounds.push(end);
        Self::parse(&render(&page)?, &bounds)
    }

    /// Splits a rendered page at its markers. Markers in `bounds` (each given as the number of the next
    /// marker) begin a part; all others are slots of the part they are in.
    fn parse(html: &str, bounds: &[usize]) -> Option<Self> {
        let (mut parts, mut part, mut rest) = (Vec::new(), Vec::new(), html);
        // The first marker of this part, and which of its slots were found.
        let (mut first, mut found) = (0, vec![false; bounds.first()? - 1]);
        while let Some(at) = rest.find(MARKER) {
            let after = &rest[at + MARKER.len()..];
            let number: usize = after.get(..MARKER_DIGITS)?.parse().ok()?;
            part.push(Segment::Fixed(rest[..at].to_owned()));
            rest = after[MARKER_DIGITS..].strip_prefix('z')?;
            match bounds.get(parts.len()) {
                Some(bound) if number + 1 == *bound => {
                    if found.contains(&false) {
                        return None;
                    }
                    parts.push(std::mem::take(&mut part));
                    first = *bound;
                    let next = bounds.get(parts.len()).copied();
                    found = vec![false; next.map_or(0, |next| next - 1 - first)];
                }
                _ => {
                    // A marker that belongs to another part gives an index out of range, and no skeleton.
                    let slot = number.checked_sub(first)?;
                    *found.get_mut(slot)? = true;
                    part.push(Segment::Slot(slot));
                }
            }
        }
        if parts.len() != bounds.len() {
            return None;
        }
        let mut parts = parts.into_iter();
        Some(Self { head: parts.next()?, shapes: parts.collect(), tail: rest.to_owned() })
    }

    fn fill(&self, split: &SplitPage<'_>) -> String {
        let mut html = String::with_capacity(self.size(split));
        fill_part(&self.head, &split.head.values, &mut html);
        for (shape, values) in &split.parts {
            if let Some(segments) = self.shapes.get(*shape) {
                fill_part(segments, values, &mut html);
            }
        }
        html.push_str(&self.tail);
        html
    }

    /// The approximate size of the page.
    fn size(&self, split: &SplitPage<'_>) -> usize {
        let size = |segments: &[Segment]| {
            segments
                .iter()
                .map(|segment| match segment {
                    Segment::Fixed(text) => text.len(),
                    Segment::Slot(_) => 32,
                })
                .sum::<usize>()
        };
        let shapes: Vec<usize> = self.shapes.iter().map(|shape| size(shape)).collect();
        let parts = split.parts.iter().filter_map(|(shape, _)| shapes.get(*shape));
        size(&self.head) + parts.sum::<usize>() + self.tail.len()
    }
}

fn fill_part(segments: &[Segment], values: &[SlotValue<'_>], html: &mut String) {
    for segment in segments {
        match segment {
            Segment::Fixed(text) => html.push_str(text),
            Segment::Slot(n) => match values.get(*n) {
                Some(SlotValue::Text(value)) => push_escaped_text(value, html),
                Some(SlotValue::Attribute(value)) => push_escaped_value(value, html),
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
    use crate::mjml::{EmbeddedRenderer, MjmlTemplate, Roots};

    fn plain(page: &str) -> Option<String> {
        let page = MjmlTemplate::from_text(page, &Roots::default()).ok()?;
        let rendered = EmbeddedRenderer::render_blocking(&page).ok()?;
        rendered.warnings.is_empty().then_some(rendered.html)
    }

    /// The page, rendered the second time it comes.
    fn render_twice(page: &str, render: impl Fn(&str) -> Option<String>) -> Option<String> {
        let skeletons = SkeletonCache::default();
        assert_eq!(skeletons.render(page, &render), None, "it came for the first time");
        skeletons.render(page, render)
    }

    /// Sections of typical digests, with values in every possible slot.
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
        let body: String = sections.iter().map(|(kind, word, link)| section(*kind, word, link)).collect();
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
            // A page that cannot be rendered has no skeleton either.
            if let Some(html) = render_twice(&page, plain) {
                prop_assert_eq!(Some(html), plain(&page));
            }
        }
    }

    #[test]
    fn pages_of_one_shape_are_rendered_once() {
        let (skeletons, rendered) = (SkeletonCache::default(), Cell::new(0));
        for n in 0..20_u8 {
            let is_first = n == 0;
            let word = |m: u8| format!("word é > {n} {m} < \"é\"");
            // With and without an image, in varying number.
            let section = |m: u8| (m % 2, word(m), format!("p/{n}/{m}"));
            let sections: Vec<_> = (0..n % 7 + 2).map(section).collect();
            let page = page(&word(0), &sections);
            let html = skeletons.render(&page, |page| {
                rendered.set(rendered.get() + 1);
                plain(page)
            });
            let whole = plain(&page).filter(|_| !is_first);
            assert!(is_first || whole.is_some());
            assert_eq!(html, whole);
        }
        assert_eq!(rendered.get(), 1);
    }

    #[test]
    fn what_the_renderer_refuses_is_not_made_and_not_tried_again() {
        let (skeletons, tried) = (SkeletonCache::default(), Cell::new(0));
        for word in ["a", "b", "c"] {
            let html = skeletons.render(&page("t", &[(1, word.into(), String::new())]), |_| {
                tried.set(tried.get() + 1);
                None
            });
            assert_eq!(html, None);
        }
        assert_eq!(tried.get(), 1);
    }

    #[test]
    fn a_word_that_turns_up_elsewhere_or_not_at_all_spoils_the_mould() {
        let page = page("t", &[(1, "a".into(), String::new()), (3, "b".into(), String::new())]);
        // Markers: title, preview, the first part, its value, the second part, its value, the end.
        let marker = |n: usize| format!("{MARKER}{n:0MARKER_DIGITS$}z");
        for instead in [String::new(), marker(5), marker(0), marker(99), MARKER.to_owned()] {
            let moved = |page: &str| plain(page).map(|html| html.replace(&marker(3), &instead));
            assert_eq!(render_twice(&page, moved), None, "{instead}");
        }
        assert!(render_twice(&page, plain).is_some());
    }
}
