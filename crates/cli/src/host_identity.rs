//! User, host, label and addresses of this process, for batch records and the list of workers.

use std::net::{IpAddr, Ipv4Addr};

use crate::env;

/// `user@host`, the initiator of a batch.
pub fn initiator() -> String {
    format!("{}@{}", user_name(), host())
}

/// The user's login.
pub fn user_name() -> String {
    user(|name| std::env::var(name).ok())
}

/// This machine's name.
pub fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The label of the sessions of a process of this host.
pub fn worker_label(pid: u32) -> String {
    format!("{}:{pid}", host())
}

/// The addresses at which other machines can reach this one.
pub fn addresses() -> Vec<IpAddr> {
    local_addresses(&std::fs::read_to_string("/proc/net/fib_trie").unwrap_or_default())
}

/// The addresses that the kernel's routing table lists as local, without loopback.
fn local_addresses(table: &str) -> Vec<IpAddr> {
    let mut found = Vec::new();
    let mut last = None;
    for line in table.lines() {
        if let Some((_, address)) = line.split_once("|-- ") {
            last = address.trim().parse::<Ipv4Addr>().ok();
        } else if line.contains("/32 host LOCAL")
            && let Some(address) = last.filter(|address| !address.is_loopback())
            && !found.contains(&IpAddr::from(address))
        {
            found.push(address.into());
        }
    }
    found
}

/// The login, or the user's number without one, as in a container.
fn user(var: impl Fn(&str) -> Option<String>) -> String {
    let login = env::USER.into_iter().filter_map(var).find(|name| !name.is_empty());
    login.unwrap_or_else(|| rustix::process::getuid().as_raw().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_login_comes_first_and_the_number_last() {
        let both = |name: &str| Some(name.to_lowercase());
        assert_eq!(user(both), "user");
        let only = |name: &str| (name == "LOGNAME").then(|| "ada".to_owned());
        assert_eq!(user(only), "ada");
        assert_eq!(user(|_| Some(String::new())), user(|_| None), "an empty one does not count");
        assert!(user(|_| None).parse::<u32>().is_ok());
    }

    #[test]
    fn own_addresses_are_read_from_the_kernels_table() {
        let table = "Local:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 10.1.2.3\n        /32 host LOCAL\n     \
                     |-- 10.1.2.255\n        /32 link BROADCAST\n        |-- 127.0.0.1\n           \
                     /32 host LOCAL\n     |-- 10.1.2.3\n        /32 host LOCAL\n";
        assert_eq!(local_addresses(table), [IpAddr::from([10, 1, 2, 3])]);
    }

    #[test]
    fn an_initiator_has_a_name_and_a_place() {
        let (user, host) = initiator().split_once('@').map(|(u, h)| (u.len(), h.len())).unwrap();
        assert!(user > 0 && host > 0);
    }
}
