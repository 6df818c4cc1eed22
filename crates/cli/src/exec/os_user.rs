//! The user that commands run as, if not the worker's own.

use std::path::PathBuf;

use anyhow::{Context, anyhow};
use tokio::process::Command;

use crate::error::WithHint;

/// The system's list of users.
const PASSWD: &str = "/etc/passwd";

/// A user of `/etc/passwd`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OsUser {
    name: String,
    uid: u32,
    gid: u32,
    home: PathBuf,
}

impl OsUser {
    /// The user with this name. An error if there is none, or if this process may not become another
    /// user.
    pub fn find(name: &str) -> anyhow::Result<Self> {
        if !rustix::process::geteuid().is_root() {
            return Err(anyhow!("cannot run commands as user `{name}`: this worker does not run as root"))
                .hint("start it as root, or as that user without --exec-user");
        }
        let text = std::fs::read_to_string(PASSWD).with_context(|| format!("cannot read {PASSWD}"))?;
        let found = text.lines().filter_map(Self::parse).find(|user| user.name == name);
        found
            .ok_or_else(|| anyhow!("there is no user `{name}` in {PASSWD}"))
            .hint("--exec-user (worker.exec_user) names a user of this machine")
    }

    /// Parses `name:password:uid:gid:comment:home:shell`.
    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.split(':');
        let name = fields.next()?.to_owned();
        let (uid, gid) = (fields.nth(1)?.parse().ok()?, fields.next()?.parse().ok()?);
        let home = fields.nth(1)?.into();
        Some(Self { name, uid, gid, home })
    }

    /// Runs `command` as this user, in the user's own group and no other.
    pub fn apply_to(&self, command: &mut Command) {
        command.uid(self.uid).gid(self.gid);
        command.env("USER", &self.name).env("HOME", &self.home);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_list_is_a_user() {
        let user = OsUser::parse("jobs:x:990:991:Runs jobs,,,:/srv/jobs:/usr/sbin/nologin").unwrap();
        let wanted = OsUser { name: "jobs".into(), uid: 990, gid: 991, home: "/srv/jobs".into() };
        assert_eq!(user, wanted);
        for line in ["", "# comment", "a:x:b:c::/:", "a:x:1"] {
            assert_eq!(OsUser::parse(line), None, "{line}");
        }
    }
}
