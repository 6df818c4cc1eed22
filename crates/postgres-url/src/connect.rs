//! Connects to the hosts of a URL.
//!
//! The driver tries one host after another and limits only TCP's handshake, so a host that accepts the connection and
//! never answers would keep it from the next one. Here the hosts share `connect_timeout`, or 5 s if that is less: a host is
//! tried as soon as the one before has failed or has used its share. Hosts that have not answered are still awaited,
//! because one of them may be a slow primary. The first connection that opens is used.

use std::collections::VecDeque;
use std::hash::{BuildHasher as _, RandomState};

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::time::sleep;
use tokio_postgres::config::{Host, LoadBalanceHosts};
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Client, Config, Connection, Error, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::url::CONNECT_TIMEOUT;

type Stream = <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream;

/// Opens a connection, which must be polled. The caller limits the time.
pub(crate) async fn connect(
    config: &Config,
    tls: &MakeRustlsConnect,
) -> Result<(Client, Connection<Socket, Stream>), Error> {
    let hosts = one_per_host(config);
    let [_, _, ..] = hosts.as_slice() else { return config.connect(tls.clone()).await };
    let limit = config.get_connect_timeout().map_or(CONNECT_TIMEOUT, |limit| (*limit).min(CONNECT_TIMEOUT));
    let share = limit / u32::try_from(hosts.len()).unwrap_or(u32::MAX);
    let attempts = hosts.iter().map(|host| host.connect(tls.clone()));
    let mut waiting: VecDeque<_> = attempts.collect();
    let mut running = FuturesUnordered::new();
    loop {
        running.extend(waiting.pop_front());
        let failed = tokio::select! {
            biased;
            Some(opened) = running.next() => match opened {
                Ok(connection) => return Ok(connection),
                Err(error) => Some(error),
            },
            () = sleep(share), if !waiting.is_empty() => None,
        };
        if let Some(error) = failed.filter(|_| running.is_empty() && waiting.is_empty()) {
            return Err(error);
        }
    }
}

/// A configuration for each host, in the order in which they are tried. If the numbers of hosts, addresses and ports
/// differ, there is only one configuration, and the driver rejects it.
fn one_per_host(config: &Config) -> Vec<Config> {
    let (hosts, addresses, ports) = (config.get_hosts(), config.get_hostaddrs(), config.get_ports());
    let count = hosts.len().max(addresses.len());
    let fits = |len: usize| len == 0 || len == count;
    if !fits(hosts.len()) || !fits(addresses.len()) || !(ports.len() == 1 || fits(ports.len())) {
        return vec![config.clone()];
    }
    let mut order: Vec<usize> = (0..count).collect();
    if config.get_load_balance_hosts() == LoadBalanceHosts::Random {
        order.sort_by_cached_key(|index| RandomState::new().hash_one(index));
    }
    let host_of = |index: usize| {
        let mut one = without_hosts(config);
        match hosts.get(index) {
            Some(Host::Tcp(name)) => _ = one.host(name),
            Some(Host::Unix(path)) => _ = one.host_path(path),
            None => {}
        }
        if let Some(address) = addresses.get(index) {
            one.hostaddr(*address);
        }
        if let Some(port) = ports.get(index).or(ports.first()) {
            one.port(*port);
        }
        one
    };
    order.into_iter().map(host_of).collect()
}

/// Copies everything but hosts, addresses and ports, which the driver cannot remove.
fn without_hosts(config: &Config) -> Config {
    let mut copy = Config::new();
    if let Some(user) = config.get_user() {
        copy.user(user);
    }
    if let Some(password) = config.get_password() {
        copy.password(password);
    }
    if let Some(name) = config.get_dbname() {
        copy.dbname(name);
    }
    if let Some(options) = config.get_options() {
        copy.options(options);
    }
    if let Some(name) = config.get_application_name() {
        copy.application_name(name);
    }
    if let Some(timeout) = config.get_connect_timeout() {
        copy.connect_timeout(*timeout);
    }
    if let Some(timeout) = config.get_tcp_user_timeout() {
        copy.tcp_user_timeout(*timeout);
    }
    if let Some(interval) = config.get_keepalives_interval() {
        copy.keepalives_interval(interval);
    }
    if let Some(retries) = config.get_keepalives_retries() {
        copy.keepalives_retries(retries);
    }
    copy.keepalives(config.get_keepalives())
        .keepalives_idle(config.get_keepalives_idle())
        .ssl_mode(config.get_ssl_mode())
        .ssl_negotiation(config.get_ssl_negotiation())
        .target_session_attrs(config.get_target_session_attrs())
        .channel_binding(config.get_channel_binding())
        .load_balance_hosts(config.get_load_balance_hosts());
    copy
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;

    #[test]
    fn each_host_has_its_own_configuration_with_all_options() {
        let options = "connect_timeout=3&application_name=a&options=-c%20x%3d1&target_session_attrs=read-write\
             &channel_binding=require&sslmode=require&sslnegotiation=direct&keepalives=0&keepalives_idle=7\
             &keepalives_interval=8&keepalives_retries=9&tcp_user_timeout=6";
        let config =
            |hosts: &str| parse(&format!("postgres://me:p@{hosts}/orders?{options}")).unwrap().config;
        let both = one_per_host(&config("one:5433,%2Frun%2Fpg:5434"));
        assert_eq!(both, [config("one:5433"), config("%2Frun%2Fpg:5434")]);
        assert_eq!(one_per_host(&config("one,two")), [config("one"), config("two")]);
        let addresses = parse("postgres://me@a,b/x?hostaddr=127.0.0.1,127.0.0.2").unwrap().config;
        let parts = one_per_host(&addresses);
        assert_eq!(parts.iter().map(|part| part.get_hostaddrs().len()).collect::<Vec<_>>(), [1, 1]);
        let unequal = parse("postgres://me@a,b/x?hostaddr=127.0.0.1").unwrap().config;
        assert_eq!(one_per_host(&unequal), std::slice::from_ref(&unequal), "the driver says what is wrong");
    }

    #[test]
    fn hosts_are_shuffled_only_if_the_url_says_so() {
        let first = |options: &str| {
            let config = parse(&format!("postgres://me@a,b,c/x{options}")).unwrap().config;
            move || one_per_host(&config)[0].get_hosts()[0].clone()
        };
        let (ordered, random) = (first(""), first("?load_balance_hosts=random"));
        let a = ordered();
        assert!((0..50).all(|_| ordered() == a));
        assert!((0..50).any(|_| random() != a));
    }
}
