//! The plain pair of commands that most programs use, and the limit.

use std::sync::Arc;

use anyhow::Result;
use async_trait::async_trait;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, cmd};

use crate::figures::Figures;
use crate::run::{Contestant, Load, measure};

/// The driver's default timeout of half a second would abandon BLPOP and lose a token.
fn patient() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new().set_response_timeout(None)
}

/// A list of tokens: BLPOP takes one, RPUSH returns it. Each task has its own connection, since BLPOP blocks the
/// connection.
pub(crate) struct Pair(Client);

impl Pair {
    pub(crate) fn open(url: &str) -> Result<Self> {
        Ok(Self(Client::open(url)?))
    }
}

struct PairUser {
    connection: MultiplexedConnection,
    key: String,
}

#[async_trait]
impl crate::run::Pair for PairUser {
    async fn pair(&self) -> Result<()> {
        let mut connection = self.connection.clone();
        let (_, token): (String, String) =
            cmd("BLPOP").arg(&self.key).arg(0).query_async(&mut connection).await?;
        let _: u32 = cmd("RPUSH").arg(&self.key).arg(token).query_async(&mut connection).await?;
        Ok(())
    }
}

#[async_trait]
impl Contestant for Pair {
    fn name(&self) -> &'static str {
        "plain pair"
    }

    async fn run(&self, load: &Load, seconds: f64) -> Result<Figures> {
        let key = format!("tokens-{}", load.permits);
        let mut users: Vec<Arc<dyn crate::run::Pair>> = Vec::new();
        let config = patient();
        for _ in 0..load.tasks {
            let connect = self.0.get_multiplexed_async_connection_with_config(&config);
            users.push(Arc::new(PairUser { connection: connect.await?, key: key.clone() }));
        }
        let mut connection = self.0.get_multiplexed_async_connection().await?;
        let _: u32 = cmd("DEL").arg(&key).query_async(&mut connection).await?;
        for token in 0..load.permits {
            let _: u32 = cmd("RPUSH").arg(&key).arg(token).query_async(&mut connection).await?;
        }
        measure(users, seconds).await
    }
}

/// Two PINGs on a connection shared by all tasks: no protocol with two requests is faster.
pub(crate) struct Ping(MultiplexedConnection);

impl Ping {
    pub(crate) async fn open(url: &str) -> Result<Self> {
        let client = Client::open(url)?;
        Ok(Self(client.get_multiplexed_async_connection_with_config(&patient()).await?))
    }
}

struct PingUser(MultiplexedConnection);

#[async_trait]
impl crate::run::Pair for PingUser {
    async fn pair(&self) -> Result<()> {
        let mut connection = self.0.clone();
        for _ in 0..2 {
            let _: String = cmd("PING").query_async(&mut connection).await?;
        }
        Ok(())
    }
}

#[async_trait]
impl Contestant for Ping {
    fn name(&self) -> &'static str {
        "two PINGs"
    }

    async fn run(&self, load: &Load, seconds: f64) -> Result<Figures> {
        let make = |_| Arc::new(PingUser(self.0.clone())) as Arc<dyn crate::run::Pair>;
        measure((0..load.tasks).map(make).collect(), seconds).await
    }
}
