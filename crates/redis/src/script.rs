//! The Lua scripts, one per operation; each file documents itself.

use std::sync::LazyLock;

use redis::Script as RedisScript;

/// A script, and the hash that `EVALSHA` takes.
pub(crate) struct Script {
    text: &'static str,
    hash: LazyLock<String>,
}

macro_rules! script {
    ($name:ident, $($file:literal),+) => {
        pub(crate) static $name: Script = {
            const TEXT: &str = concat!($(include_str!(concat!("../scripts/", $file, ".lua")), "\n"),+);
            Script { text: TEXT, hash: LazyLock::new(|| RedisScript::new(TEXT).get_hash().to_owned()) }
        };
    };
}

script!(ACQUIRE, "load_state", "acquire_fast", "pool_ops", "detect_data_loss", "acquire", "acquire_one");
script!(BATCHED, "load_state", "read_clock", "pool_ops", "detect_data_loss", "acquire", "batched");
script!(EXTEND, "load_state", "read_clock", "pool_ops", "extend");
script!(RELEASE, "load_state", "release_fast", "read_clock", "pool_ops", "release");
script!(INIT, "load_state", "read_clock", "pool_ops", "detect_data_loss", "init");
script!(RESIZE, "load_state", "read_clock", "pool_ops", "detect_data_loss", "resize");
script!(RESET, "load_state", "read_clock", "pool_ops", "reset");
script!(STATS, "load_state", "read_clock", "pool_ops", "stats");
script!(ALERT, "alert");

impl Script {
    /// The SHA-1 by which the server caches it.
    pub(crate) fn hash(&self) -> &str {
        &self.hash
    }

    /// The source.
    pub(crate) fn text(&self) -> &str {
        self.text
    }
}
