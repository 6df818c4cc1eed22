//! Live views in the terminal: the feature `tui`. A build without it prints one frame instead.

#[cfg(feature = "tui")]
mod terminal;
#[cfg(not(feature = "tui"))]
mod without_tui;

#[cfg(feature = "tui")]
pub(crate) use terminal::{Key, Screen};
#[cfg(not(feature = "tui"))]
pub(crate) use without_tui::Screen;

/// So much of a whole, as wide as this and its brackets. More than the whole is full.
pub(crate) fn bar(part: u64, whole: u64, width: usize) -> String {
    let full = share(part, whole, width);
    format!("[{}{}]", "#".repeat(full), ".".repeat(width - full))
}

/// How much of `width` a part of a whole takes; all of it if it is more than the whole.
pub(crate) fn share(part: u64, whole: u64, width: usize) -> usize {
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
