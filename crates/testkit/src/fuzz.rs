//! Mutation fuzzing of parsers that untrusted clients reach.
//!
//! [`fuzz`] runs a target on every file of its corpus, then on random mutations of them: for a moment, or for
//! minutes with `LONGSHORE_SOAK`. An input that makes the target panic or take too long is added to the
//! corpus, so that it stays a test.

#![expect(clippy::expect_used, clippy::print_stderr, reason = "a test fails loudly")]

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

use proptest::prelude::Rng as _;
use proptest::test_runner::{RngAlgorithm, TestRng};

/// Longest input.
const MAX_INPUT: usize = 64 * 1024;
/// How long one input may take, on a slow machine.
const MAX_DURATION: Duration = Duration::from_secs(10);
/// Bytes that parsers treat in their own way.
const SPECIAL: &[u8] = b"\0\r\n\t \"'\\{}[]()<>,:;=#/*-+.%&?|~0193eEnt\x7f\x80\xc3\xe2\xf0\xff";

/// Runs `target` on `crates/<crate>/tests/corpus/<name>/*` and on mutations of these files.
#[track_caller]
pub fn fuzz(crate_dir: &str, name: &str, mut target: impl FnMut(&[u8])) {
    let folder = Path::new(crate_dir).join("tests/corpus").join(name);
    let corpus = corpus(&folder);
    assert!(!corpus.is_empty(), "no corpus in {}", folder.display());
    corpus.iter().for_each(|input| check(&folder, input, &mut target));
    let soak = std::env::var_os("LONGSHORE_SOAK").is_some();
    let end = Instant::now() + if soak { Duration::from_secs(120) } else { Duration::from_millis(300) };
    let mut mutator = Mutator { corpus, random: random(soak) };
    while Instant::now() < end {
        let input = mutator.next();
        check(&folder, &input, &mut target);
    }
}

fn corpus(folder: &Path) -> Vec<Vec<u8>> {
    let Ok(files) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut files: Vec<_> = files.map(|file| file.expect("a corpus file").path()).collect();
    files.sort();
    files.iter().map(|file| std::fs::read(file).expect("a corpus file")).collect()
}

/// The same mutations in every run; other ones in every soak.
fn random(soak: bool) -> TestRng {
    let mut seed = [7; 32];
    if soak {
        let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos();
        seed[..16].copy_from_slice(&now.to_le_bytes());
    }
    TestRng::from_seed(RngAlgorithm::ChaCha, &seed)
}

/// Runs the target on one input; keeps the input if it fails.
fn check(folder: &Path, input: &[u8], target: &mut impl FnMut(&[u8])) {
    let began = Instant::now();
    let ended = catch_unwind(AssertUnwindSafe(|| target(input)));
    let slow = began.elapsed() > MAX_DURATION;
    if ended.is_ok() && !slow {
        return;
    }
    let hash = input.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let file = folder.join(format!("found-{hash:016x}"));
    std::fs::write(&file, input).expect("the input is kept");
    assert!(!slow, "{} took {:?}", file.display(), began.elapsed());
    if let Err(panic) = ended {
        eprintln!("the input is kept in {}", file.display());
        resume_unwind(panic);
    }
}

struct Mutator {
    corpus: Vec<Vec<u8>>,
    random: TestRng,
}

impl Mutator {
    fn below(&mut self, limit: usize) -> usize {
        (self.random.next_u64() % limit.max(1) as u64) as usize
    }

    fn range(&mut self, length: usize) -> std::ops::Range<usize> {
        let start = self.below(length + 1);
        start..start + self.below((length - start).min(64) + 1)
    }

    fn next(&mut self) -> Vec<u8> {
        let at = self.below(self.corpus.len());
        let mut input = self.corpus[at].clone();
        for _ in 0..=self.below(6) {
            self.mutate(&mut input);
        }
        input.truncate(MAX_INPUT);
        input
    }

    fn mutate(&mut self, input: &mut Vec<u8>) {
        let (at, range) = (self.below(input.len() + 1), self.range(input.len()));
        match self.below(8) {
            0 if at < input.len() => input[at] ^= 1 << self.below(8),
            1 if at < input.len() => input[at] = SPECIAL[self.below(SPECIAL.len())],
            2 => input.insert(at, SPECIAL[self.below(SPECIAL.len())]),
            3 => drop(input.drain(range)),
            // A repeated piece makes long numbers, deep nests and duplicate keys.
            4 => {
                let piece = input[range].repeat(1 << self.below(9));
                input.splice(at..at, piece.into_iter().take(MAX_INPUT));
            }
            5 => {
                let other = self.below(self.corpus.len());
                let range = self.range(self.corpus[other].len());
                let piece = self.corpus[other][range].to_vec();
                input.splice(at..at, piece);
            }
            6 => input.truncate(at),
            _ => {
                let number = ["-1", "18446744073709551616", "1e999", "null", "\u{feff}", "é"][self.below(6)];
                input.splice(range, number.bytes());
            }
        }
    }
}
