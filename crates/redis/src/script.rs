//! The scripts: one per verb, each a file that says why.

use std::sync::LazyLock;

use redis::Script as Loaded;

/// A script, and the name by which the server knows it.
pub(crate) struct Script {
    text: &'static str,
    hash: LazyLock<String>,
}

macro_rules! script {
    ($name:ident, $($file:literal),+) => {
        pub(crate) static $name: Script = {
            const TEXT: &str = concat!($(include_str!(concat!("../scripts/", $file, ".lua")), "\n"),+);
            Script { text: TEXT, hash: LazyLock::new(|| Loaded::new(TEXT).get_hash().to_owned()) }
        };
    };
}

script!(ASK, "open", "ask_at_once", "pool", "recall", "ask", "ask_one");
script!(GATHERED, "open", "now", "pool", "recall", "ask", "gathered");
script!(EXTEND, "open", "now", "pool", "extend");
script!(RELEASE, "open", "release_at_once", "now", "pool", "release");
script!(INIT, "open", "now", "pool", "recall", "init");
script!(RESIZE, "open", "now", "pool", "recall", "resize");
script!(RESET, "open", "now", "pool", "reset");
script!(STATS, "open", "now", "pool", "stats");
script!(ALERT, "alert");

impl Script {
    /// What the server keeps it under once it has seen it.
    pub(crate) fn hash(&self) -> &str {
        &self.hash
    }

    /// All of it.
    pub(crate) fn text(&self) -> &str {
        self.text
    }
}
