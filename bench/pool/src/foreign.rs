//! Pools of other languages: programs in `peers/` that run the two measurements of [`crate::clock`]
//! themselves and print the results.

use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use crate::clock::{Sample, WIDTH};
use crate::install::{Tool, Words, peers};

/// A pool of another language.
#[derive(Clone, Copy)]
pub(crate) struct Foreign {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) tool: Tool,
    program: &'static str,
    /// The program's argument, if it supports several pools.
    which: &'static str,
    /// The entry of ours that it is compared with.
    pub(crate) beside: &'static str,
}

const fn python(name: &'static str, title: &'static str, tool: Tool) -> Foreign {
    Foreign { name, title, tool, program: "python/pools.py", which: name, beside: "ours-python" }
}

const fn node(
    name: &'static str,
    title: &'static str,
    program: &'static str,
    which: &'static str,
) -> Foreign {
    Foreign { name, title, tool: Tool::Node, program, which, beside: "ours-node" }
}

/// All pools of other languages.
pub(crate) const PEERS: [Foreign; 7] = [
    python("process-pool-executor", "Python ProcessPoolExecutor", Tool::PlainPython),
    python("loky", "loky", Tool::Python),
    python("pebble", "pebble", Tool::Python),
    node("piscina", "piscina (threads)", "node/piscina.cjs", ""),
    node("workerpool-thread", "workerpool, threads", "node/workerpool.cjs", "thread"),
    node("workerpool-process", "workerpool, processes", "node/workerpool.cjs", "process"),
    Foreign {
        name: "io-async",
        title: "IO::Async::Function (Perl)",
        tool: Tool::Perl,
        program: "perl/io-async.pl",
        which: "",
        beside: "ours-perl",
    },
];

impl Foreign {
    /// One run: both measurements, each for the time `part`.
    pub(crate) fn run(&self, words: &Words, part: Duration) -> Result<Sample> {
        let said = self.say(words, &part.as_secs_f64().to_string())?;
        let figure = |name: &str| -> Result<f64> {
            word(&said, name)?.parse().with_context(|| format!("{name} in {said:?}"))
        };
        Ok(Sample { p50: figure("p50")?, rate: figure("rate")? })
    }

    /// Its version, as the program reports it.
    pub(crate) fn version(&self, words: &Words) -> Result<String> {
        Ok(word(&self.say(words, "0")?, "version")?.to_owned())
    }

    fn say(&self, words: &Words, seconds: &str) -> Result<String> {
        let mut command = Command::new(words.first().context("no command")?);
        command.args(&words[1..]).arg(peers(self.program)).arg(self.which);
        command.stdin(Stdio::null()).stderr(Stdio::inherit());
        command.env("SECONDS", seconds).env("WIDTH", WIDTH.to_string());
        let output = command.output()?;
        ensure!(output.status.success(), "{} ended with {}", self.name, output.status);
        Ok(String::from_utf8(output.stdout)?)
    }
}

fn word<'a>(said: &'a str, name: &str) -> Result<&'a str> {
    let line = said.lines().find_map(|line| line.strip_prefix(name));
    line.map(str::trim).with_context(|| format!("no {name} in {said:?}"))
}
