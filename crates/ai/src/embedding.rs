//! Embeddings: texts as vectors.

use std::hash::{DefaultHasher, Hash, Hasher};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use crate::pricing::estimate_tokens;

/// Texts that are asked for as vectors.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EmbeddingInput {
    /// The texts.
    pub texts: Vec<String>,
    /// How many numbers a vector shall have, if not as many as is usual for the model.
    pub dimensions: Option<u32>,
    /// Tokens that the client sent in place of texts. Only OpenAI's API takes them.
    pub tokens: u64,
}

impl EmbeddingInput {
    /// Estimated tokens.
    pub(crate) fn estimate(&self) -> u64 {
        self.tokens + self.texts.iter().map(|text| estimate_tokens(text)).sum::<u64>()
    }

    /// Vectors that depend on nothing but the texts, for simulated providers.
    pub(crate) fn simulated(&self) -> Vec<Vec<f32>> {
        let dimensions = self.dimensions.unwrap_or(8);
        let number = |text: &str, at: u32| {
            let mut hasher = DefaultHasher::new();
            (text, at).hash(&mut hasher);
            // 16 bits, so that the number is exact.
            f32::from((hasher.finish() >> 48) as u16) / 32_768.0 - 1.0
        };
        self.texts.iter().map(|text| (0..dimensions).map(|at| number(text, at)).collect()).collect()
    }
}

/// A vector as OpenAI's API writes it: numbers, or their bytes in base64.
#[derive(Deserialize)]
#[serde(untagged)]
pub(crate) enum EncodedVector {
    Numbers(Vec<f32>),
    Base64(String),
}

impl EncodedVector {
    /// The numbers; the error says why it is invalid.
    pub(crate) fn decode(self) -> Result<Vec<f32>, String> {
        let text = match self {
            Self::Numbers(numbers) => return Ok(numbers),
            Self::Base64(text) => text,
        };
        let bytes = STANDARD.decode(text).map_err(|error| error.to_string())?;
        let (numbers, rest) = bytes.as_chunks::<4>();
        match rest.is_empty() {
            true => Ok(numbers.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()),
            false => Err("a vector ends within a number".to_owned()),
        }
    }
}

/// A vector in base64.
pub(crate) fn to_base64(vector: &[f32]) -> String {
    STANDARD.encode(vector.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vector_is_the_same_in_both_forms() {
        let vector = vec![0.0, -1.5, f32::MAX];
        let read = |json: &str| serde_json::from_str::<EncodedVector>(json).unwrap().decode();
        assert_eq!(read(&format!("\"{}\"", to_base64(&vector))), Ok(vector.clone()));
        assert_eq!(read("[0, -1.5, 3.4028234663852886e38]"), Ok(vector));
        assert!(read("\"AAAAAAA=\"").is_err() && read("\"!\"").is_err());
    }

    #[test]
    fn simulated_vectors_depend_on_the_text_only() {
        let of = |texts: &[&str]| {
            let texts = texts.iter().map(|text| (*text).to_owned()).collect();
            EmbeddingInput { texts, dimensions: Some(3), tokens: 0 }.simulated()
        };
        let [a, b] = of(&["a", "b"]).try_into().unwrap();
        assert_eq!(of(&["b"])[0], b);
        assert!(a != b && a.len() == 3 && a.iter().all(|number| number.abs() <= 1.0));
    }
}
