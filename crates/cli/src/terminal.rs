//! Live views in the terminal: the feature `tui`. A build without it prints one frame instead.

#[cfg(feature = "tui")]
mod tui;
#[cfg(not(feature = "tui"))]
mod without_tui;

#[cfg(feature = "tui")]
pub(crate) use tui::{KeyAction, Screen};
#[cfg(not(feature = "tui"))]
pub(crate) use without_tui::Screen;

/// A bar of this width in brackets. A part above the whole is a full bar.
pub(crate) fn bar(part: u64, whole: u64, width: usize) -> String {
    let full = filled_width(part, whole, width);
    format!("[{}{}]", "#".repeat(full), ".".repeat(width - full))
}

/// How much of `width` a part of a whole takes; all of it if it is above the whole.
pub(crate) fn filled_width(part: u64, whole: u64, width: usize) -> usize {
    let part = usize::try_from(part.min(whole)).unwrap_or(usize::MAX);
    let whole = usize::try_from(whole.max(1)).unwrap_or(usize::MAX);
    width.saturating_mul(part) / whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_never_fuller_than_full() {
        assert_eq!(bar(1, 2, 4), "[##..]");
        assert_eq!(bar(9, 2, 4), "[####]");
        assert_eq!(bar(0, 0, 4), "[....]");
    }
}
