//! Random choices that a seed makes repeatable (splitmix64).

/// A source of random numbers.
#[derive(Debug, Clone)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// The same seed gives the same numbers.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ (x >> 31)) % limit.max(1)
    }
}

/// A random seed, short enough to be typed again.
pub fn seed() -> u64 {
    use longshore::Clock;
    longshore::SystemClock.now().as_micros().unsigned_abs() % 1_000_000
}
