//! Suggests a known name for a misspelt one.

/// The candidate most similar to `given`, if the similarity is high enough. Case does not count.
pub fn did_you_mean<'a>(given: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let given = given.to_lowercase();
    let similarity = |word: &str| strsim::jaro_winkler(&given, &word.to_lowercase());
    let scored = candidates.into_iter().map(|word| (similarity(word), word));
    let best = scored.max_by(|a, b| a.0.total_cmp(&b.0));
    best.filter(|(score, _)| *score > 0.75).map(|(_, word)| word)
}

/// `, did you mean `x`?`, to append to an error; empty if no candidate is similar.
pub fn suggestion<'a>(given: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    did_you_mean(given, candidates).map_or_else(String::new, |word| format!(", did you mean `{word}`?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_word_like_another_is_suggested() {
        assert_eq!(did_you_mean("slot", ["store", "slots"]), Some("slots"));
        assert_eq!(did_you_mean("zebra", ["store", "slots"]), None);
    }

    #[test]
    fn a_suggestion_ends_an_error() {
        assert_eq!(suggestion("Slot", ["store", "slots"]), ", did you mean `slots`?");
        assert_eq!(suggestion("zebra", ["store"]), "");
    }
}
