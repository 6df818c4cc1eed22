//! `ai replies`: opens, reads, acknowledges and closes reply queues, on the store or through a server.

use std::sync::Arc;
use std::time::Duration;

use longshore::{Ledger, QueueName, Scope, Store, TenantId, UnitId};
use longshore_ai::worker::{Inbox, MAX_REPLIES};
use longshore_web::client::{ApiClient, ReplyQueueView, ReplyView};
use serde_json::json;
use tokio::time::Instant;

use crate::args::replies::{RepliesArgs, RepliesCommand as Typed};
use crate::commands::connect_with_ledger;
use crate::error::{WithHint, usage};
use crate::exit::ExitCode;
use crate::inference::caller_tenant;
use crate::output::{Table, cell};
use crate::settings::Settings;

/// Longest wait of one read.
const READ_WAIT: Duration = Duration::from_secs(60);

/// Shortest TTL of a queue, as of a server.
const MIN_TTL: Duration = Duration::from_secs(10);

/// Runs the command.
pub async fn run(typed: RepliesArgs, settings: &Settings) -> anyhow::Result<ExitCode> {
    let queues = ReplyQueueAccess::open(settings).await?;
    match typed.command {
        Typed::Open { queue, ttl } => {
            if ttl.0 < MIN_TTL {
                return Err(usage("--ttl is less than 10s")).hint("as --ttl 5m");
            }
            let opened = queues.open_queue(queue.map(|queue| queues.full_name(&queue)), ttl.0).await?;
            match settings.output.is_json() {
                true => settings.output.json(&opened)?,
                // Scripts use the name.
                false => settings.output.line(&opened.reply_queue.name)?,
            }
        }
        Typed::List => {
            let open = queues.list().await?;
            settings.output.list(&open, || {
                let mut table = Table::new([cell("queue")], "no open reply queues");
                open.iter().for_each(|view| table.row([cell(view.queue.as_str())]));
                table
            })?;
        }
        Typed::Read { queue, wait, limit, ack } => {
            let queue = queues.full_name(&queue);
            let replies = queues.read(&queue, limit.0.min(MAX_REPLIES), wait.0).await?;
            for reply in &replies {
                settings.output.json(reply)?;
            }
            if ack && !replies.is_empty() {
                queues.acknowledge(&queue, replies.iter().map(|reply| reply.id).collect()).await?;
            }
        }
        Typed::Ack { queue, ids } => {
            let count = queues.acknowledge(&queues.full_name(&queue), ids).await?;
            let answer = json!({ "acknowledged": count });
            settings.output.answer(&answer, || format!("{count} acknowledged"))?;
        }
        Typed::Close { queue } => {
            let queue = queues.full_name(&queue);
            queues.close(&queue).await?;
            settings.output.answer(&json!({ "closed": queue }), || format!("{queue} is closed"))?;
        }
    }
    Ok(ExitCode::Good)
}

/// Reply queues of a tenant, on the store or through a server.
enum ReplyQueueAccess<'s> {
    Store {
        store: Arc<dyn Store>,
        ledger: Arc<dyn Ledger>,
        tenant: TenantId,
    },
    /// Without a tenant, the token's.
    Server {
        server: &'s ApiClient,
        tenant: Option<&'s TenantId>,
    },
}

impl<'s> ReplyQueueAccess<'s> {
    async fn open(settings: &'s Settings) -> anyhow::Result<Self> {
        if let Some(server) = &settings.server {
            return Ok(Self::Server { server, tenant: settings.tenant.as_ref() });
        }
        let connected = connect_with_ledger(settings).await?;
        let tenant = caller_tenant(settings);
        Ok(Self::Store { store: connected.store, ledger: connected.ledger, tenant })
    }

    /// A queue's name with its tenant, if that is known.
    fn full_name(&self, queue: &QueueName) -> QueueName {
        let tenant = match self {
            Self::Store { tenant, .. } => Some(tenant),
            Self::Server { tenant, .. } => *tenant,
        };
        let full = tenant.filter(|_| queue.owner().is_none()).map(|tenant| format!("{tenant}/{queue}"));
        full.and_then(|full| QueueName::new(full).ok()).unwrap_or_else(|| queue.clone())
    }

    async fn open_queue(&self, queue: Option<QueueName>, ttl: Duration) -> anyhow::Result<ReplyQueueView> {
        match self {
            Self::Server { server, .. } => Ok(server.open_reply_queue(queue, Some(ttl)).await?),
            Self::Store { store, ledger, tenant } => {
                let (store, ledger) = (Arc::clone(store), Arc::clone(ledger));
                let inbox = match &queue {
                    Some(queue) => {
                        let name = own_name(queue, tenant)?;
                        Inbox::open(store, ledger, tenant.clone(), name, ttl).await?
                    }
                    None => Inbox::open_unnamed(store, ledger, tenant.clone(), ttl).await?,
                };
                Ok(ReplyQueueView::new(tenant, inbox.queue().clone()))
            }
        }
    }

    async fn list(&self) -> anyhow::Result<Vec<ReplyQueueView>> {
        match self {
            Self::Server { server, tenant } => Ok(server.reply_queues(*tenant).await?),
            Self::Store { ledger, tenant, .. } => {
                let open = ledger.reply_queues(&Scope::Tenant(tenant.clone()), tenant, None).await?;
                Ok(open.into_iter().map(|open| ReplyQueueView::new(tenant, open.queue)).collect())
            }
        }
    }

    /// Reads replies; a long wait is several reads.
    async fn read(&self, queue: &QueueName, limit: u32, wait: Duration) -> anyhow::Result<Vec<ReplyView>> {
        let until = Instant::now() + wait;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let replies = match self {
                Self::Server { server, .. } => {
                    // A server waits for whole seconds.
                    let wait = Duration::from_secs(left.as_secs_f64().ceil() as u64);
                    server.read_replies(queue, limit, wait.min(READ_WAIT)).await?
                }
                Self::Store { .. } => {
                    let replies = self.inbox(queue).await?.read(limit, left.min(READ_WAIT)).await?;
                    replies.into_iter().map(ReplyView::from).collect()
                }
            };
            if !replies.is_empty() || Instant::now() >= until {
                return Ok(replies);
            }
        }
    }

    async fn acknowledge(&self, queue: &QueueName, ids: Vec<UnitId>) -> anyhow::Result<u32> {
        match self {
            Self::Server { server, .. } => Ok(server.acknowledge_replies(queue, ids).await?),
            Self::Store { .. } => {
                let count = self.inbox(queue).await?.acknowledge(&ids).await?;
                Ok(u32::try_from(count).unwrap_or(u32::MAX))
            }
        }
    }

    async fn close(&self, queue: &QueueName) -> anyhow::Result<()> {
        match self {
            Self::Server { server, .. } => Ok(server.close_reply_queue(queue).await.map(drop)?),
            Self::Store { .. } => Ok(self.inbox(queue).await?.close().await?),
        }
    }

    /// The open queue on the store.
    async fn inbox(&self, queue: &QueueName) -> anyhow::Result<Inbox> {
        match self {
            Self::Store { store, ledger, tenant } => {
                let (store, ledger) = (Arc::clone(store), Arc::clone(ledger));
                Ok(Inbox::find(store, ledger, tenant.clone(), own_name(queue, tenant)?).await?)
            }
            Self::Server { .. } => Err(anyhow::anyhow!("a server's queues are read through the server")),
        }
    }
}

/// A queue's name without its tenant; another tenant's does not exist.
fn own_name<'q>(queue: &'q QueueName, tenant: &TenantId) -> longshore::Result<&'q str> {
    match queue.as_str().split_once('/') {
        Some((owner, name)) if owner == tenant.as_str() => Ok(name),
        Some(_) => Err(longshore::Error::not_found("open reply queue", queue)),
        None => Ok(queue.as_str()),
    }
}
