//! One question's call: by its profile, then by the fallback profiles. Each profile's call is
//! admitted, attempted and billed.

use std::borrow::Cow;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use longshore::accounts::{CallRecord, ProfileRecord};
use longshore::{CallOutcome, ProfileName, Scope, TenantId, trace};
use scopeguard::{ScopeGuard, guard};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};
use tracing::field::Empty;
use tracing::{Instrument, Span};

use super::admission::breaker::MAX_WAIT_WITH_FALLBACK;
use super::admission::{AdmissionError, AdmissionGuard};
use super::profile_cache::{ResolvedProfile, ledger_error};
use super::retry_loop::RetryLoop;
use super::{Inference, InferenceOutcome, InferenceRequest, Inner, ProfileDocument};
use crate::chat::AnswerPiece;
use crate::gateway::{InferenceBackend, ProfileSettings};
use crate::model_api::{Answer, AskError, Code, Question, Retryability};
use crate::pricing::PriceMode;
use crate::profile::Profile;
use crate::prompt_quotes::remove_quotes;

impl Inference {
    /// Asks the profile's provider and returns the outcome. The caller has to write the outcome's
    /// records: with the end of its unit, or by [`Inference::record_calls`].
    pub async fn ask(
        &self,
        request: &InferenceRequest,
        pieces: Option<&mpsc::Sender<AnswerPiece>>,
    ) -> InferenceOutcome {
        let first = self.inner.profile_cache.find(&request.tenant, request.profile.as_ref()).await;
        self.ask_from(first, request.profile.as_ref(), request, pieces).await
    }

    /// Asks by an inline profile that is not in the ledger. Its key and its fallback profiles
    /// belong to the request's tenant; the ledger records it by name.
    pub async fn ask_inline(&self, profile: &Profile, request: &InferenceRequest) -> InferenceOutcome {
        let first = self.inner.profile_cache.find_inline(&request.tenant, profile).await;
        let name = ProfileName::new(&profile.name).ok();
        self.ask_from(first, name.as_ref(), request, None).await
    }

    async fn ask_from(
        &self,
        first: Result<Arc<ResolvedProfile>, AskError>,
        name: Option<&ProfileName>,
        request: &InferenceRequest,
        pieces: Option<&mpsc::Sender<AnswerPiece>>,
    ) -> InferenceOutcome {
        if self.inner.is_separate.get().is_none() {
            return self.ask_profiles(first, name, request, pieces).await;
        }
        let request = InferenceRequest { session: None, ..request.clone() };
        let mut outcome = Box::pin(self.ask_profiles(first, name, &request, pieces)).await;
        self.record_calls(std::mem::take(&mut outcome.records)).await;
        outcome
    }

    async fn ask_profiles(
        &self,
        first: Result<Arc<ResolvedProfile>, AskError>,
        name: Option<&ProfileName>,
        request: &InferenceRequest,
        pieces: Option<&mpsc::Sender<AnswerPiece>>,
    ) -> InferenceOutcome {
        // If the caller leaves during a later call, the calls that ended are recorded all the same.
        let record = |outcome: InferenceOutcome| self.record(outcome.records);
        let mut outcome = guard(InferenceOutcome::default(), record);
        let first = match first {
            Ok(entry) => entry,
            Err(error) => {
                self.reject(request, name, error, &mut outcome);
                return ScopeGuard::into_inner(outcome);
            }
        };
        let inner = &*self.inner;
        let fallbacks = self.fallbacks(request, &first).await;
        let has_fallback = !fallbacks.is_empty();
        ProfileCall { inner, entry: &first, request, has_fallback }.make(pieces, &mut outcome).await;
        if has_fallback && !outcome.is_final() {
            // Their reservations are free for the fallbacks.
            self.record(outcome.records.clone());
            // Boxed: fallbacks are rare, and every call's future would carry the space.
            Box::pin(self.ask_others(fallbacks, request, pieces, &mut outcome)).await;
        }
        ScopeGuard::into_inner(outcome)
    }

    /// Asks the fallback profiles in turn.
    async fn ask_others(
        &self,
        fallbacks: Vec<ProfileName>,
        request: &InferenceRequest,
        pieces: Option<&mpsc::Sender<AnswerPiece>>,
        outcome: &mut InferenceOutcome,
    ) {
        let inner = &*self.inner;
        // The requested model belongs to the first profile; fallbacks use their own.
        let sent = request.question.sent.share();
        let question = Question { model: None, sent, ..request.question.clone() };
        let elsewhere = InferenceRequest { question, ..request.clone() };
        let mut left = fallbacks.into_iter();
        while let Some(name) = left.next() {
            match inner.profile_cache.find(&request.tenant, Some(&name)).await {
                Ok(entry) => {
                    let has_fallback = left.len() > 0;
                    let call = ProfileCall { inner, entry: &entry, request: &elsewhere, has_fallback };
                    call.make(pieces, outcome).await;
                }
                Err(error) => self.reject(request, Some(&name), error, outcome),
            }
            if outcome.is_final() {
                break;
            }
        }
    }

    /// The profile's fallbacks, then the tenant's, without repeats.
    async fn fallbacks(&self, request: &InferenceRequest, entry: &ResolvedProfile) -> Vec<ProfileName> {
        let own = entry.profile.fallback.iter().filter_map(|name| ProfileName::new(name).ok());
        let tenants = self.inner.profile_cache.tenant(&request.tenant).await.ok();
        let tenants = tenants.and_then(|owner| owner.sheet.fallback.clone());
        let mut names: Vec<ProfileName> = Vec::new();
        for name in own.chain(tenants) {
            if name != entry.name && !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }

    /// Handles a profile that could not be resolved. The first one is recorded as a failed call; a
    /// fallback is only logged.
    fn reject(
        &self,
        request: &InferenceRequest,
        name: Option<&ProfileName>,
        error: AskError,
        outcome: &mut InferenceOutcome,
    ) {
        if !outcome.is_pending() {
            tracing::warn!(profile = ?name, %error, "a fallback profile cannot be used");
            return;
        }
        let record = name.and_then(|name| self.rejected_record(request, name, &error));
        outcome.reject(record, error);
    }
}

/// A call of one profile.
pub(super) struct ProfileCall<'d> {
    pub(super) inner: &'d Inner,
    pub(super) entry: &'d ResolvedProfile,
    pub(super) request: &'d InferenceRequest,
    /// Another profile is asked if this one cannot be: it is not waited for.
    pub(super) has_fallback: bool,
}

impl ProfileCall<'_> {
    /// Makes the call and adds its result to `outcome`.
    pub(super) async fn make(
        self,
        pieces: Option<&mpsc::Sender<AnswerPiece>>,
        outcome: &mut InferenceOutcome,
    ) {
        let started = Instant::now();
        let question = self.question();
        let provider = self.entry.profile.provider;
        if let Some(error) = question.unsupported_by(provider, self.entry.profile.on_unsupported) {
            return self.reject(&question, error, started, outcome);
        }
        let tenant = &self.request.tenant;
        let bound = match self.inner.bound(self.entry, tenant, &question, PriceMode::Direct).await {
            Ok(bound) => bound,
            Err(error) => return self.reject(&question, error, started, outcome),
        };
        let tokens = self.expected_tokens(&question);
        // Once a question was sent, the unit keeps its slot: a requeued unit would ask again.
        let run = self.request.run.as_ref().filter(|_| !outcome.sent);
        let admitting = pin!(self.admit_in_turn(&question, tokens, &bound, run));
        let admitted = timeout_at(question.until + ADMISSION_GRACE, admitting).await;
        let admission = match admitted.unwrap_or_else(|_| Err(ledger_timeout().into())) {
            Ok(admission) => admission,
            Err(AdmissionError::Yielded) => return outcome.yields = true,
            Err(AdmissionError::Duplicate(other)) => {
                let message = "the same request was asked before";
                outcome.result = Err(AskError::new(Code::DuplicateRequest, message));
                return outcome.duplicate = Some(other);
            }
            Err(AdmissionError::Rejected(error) | AdmissionError::Reserved(error)) => {
                outcome.blocked = error.code == Code::ProviderError;
                return self.reject(&question, error, started, outcome);
            }
        };
        let AdmissionGuard { _concurrency, reservation, charges, mut permit, in_flight, mut call } =
            admission;
        let streams = pieces.is_some();
        call.set_lost_usage(bound.lost_usage(streams, || self.entry.provider.estimate(&question)));
        call.begin(&question);
        let mut attempts_loop = RetryLoop::new(&self, pieces, tokens, charges, in_flight);
        let span = self.span(&question);
        let result = attempts_loop.run(&question).instrument(span.clone()).await;
        let result = result.map_err(|error| self.inner.without_quotes(error, &question));
        record_result(&span, &result);
        if let Some(permit) = &mut permit {
            permit.set_outcome(pool_feedback(&result));
        }
        let end = bound.bill(reservation, &result, attempts_loop.attempts, started);
        let dropped = || self.entry.provider.dropped(&question);
        outcome.result =
            result.map(|answer| Answer { latency_ms: end.latency_ms, dropped: dropped(), ..answer });
        outcome.add(call.finish(end));
        outcome.sent |= attempts_loop.sent;
        outcome.blocked = attempts_loop.blocked;
        outcome.streamed |= attempts_loop.streamed;
        if !attempts_loop.streamed {
            self.repair(&question, &mut attempts_loop, outcome).instrument(span).await;
        }
    }

    /// What a question and its answers take from rate limits, as an estimate.
    pub(super) fn expected_tokens(&self, question: &Question) -> u64 {
        self.entry.provider.estimate(question) + question.max_tokens_out()
    }

    /// The call's span, with OpenTelemetry's attribute names for such calls.
    fn span(&self, question: &Question) -> Span {
        let ResolvedProfile { name, profile, .. } = self.entry;
        tracing::info_span!(
            target: trace::TARGET,
            "chat",
            otel.name = %format_args!("chat {}", profile.asked_model(question.model.as_deref())),
            otel.kind = "client",
            otel.status_code = Empty,
            gen_ai.operation.name = "chat",
            gen_ai.provider.name = profile.provider.as_str(),
            gen_ai.request.model = profile.asked_model(question.model.as_deref()),
            gen_ai.usage.input_tokens = Empty,
            gen_ai.usage.output_tokens = Empty,
            error.type = Empty,
            tenant = %self.request.tenant,
            profile = %name,
        )
    }

    /// The question as this profile sends it: with the profile's system prompt if it has none, and
    /// with less time for the connection if another profile could answer.
    fn question(&self) -> Cow<'_, Question> {
        let asked = &self.request.question;
        let own = self.entry.profile.system.as_ref().filter(|_| asked.system.is_none());
        if own.is_none() && !self.has_fallback {
            return Cow::Borrowed(asked);
        }
        let system = own.or(asked.system.as_ref()).cloned();
        let connect_timeout = self.has_fallback.then_some(MAX_WAIT_WITH_FALLBACK);
        Cow::Owned(Question { system, connect_timeout, sent: asked.sent.share(), ..asked.clone() })
    }

    /// Records a call that was rejected before a provider was asked.
    fn reject(&self, question: &Question, error: AskError, started: Instant, outcome: &mut InferenceOutcome) {
        let latency_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let record = self.inner.rejected_record(self.new_call(question), &error, latency_ms);
        outcome.reject(record, error);
    }
}

/// How long after the deadline an admission is dropped: all waits but those for the ledger end by
/// themselves, and know why.
const ADMISSION_GRACE: Duration = Duration::from_millis(100);

fn ledger_timeout() -> AskError {
    let message = "the ledger did not answer before the deadline; the question was not sent";
    AskError { retry: Retryability::NotSent, ..AskError::new(Code::Internal, message) }
}

impl Inner {
    /// The error without quotes of the question, unless they are allowed.
    pub(super) fn without_quotes(&self, error: AskError, question: &Question) -> AskError {
        AskError { message: self.text_without_quotes(error.message, question), ..error }
    }

    /// The text without quotes of the question, unless they are allowed.
    pub(super) fn text_without_quotes(&self, text: String, question: &Question) -> String {
        match self.quotes_prompts.load(Ordering::Relaxed) {
            true => text,
            false => remove_quotes(&text, question),
        }
    }
}

/// What an adaptive pool learns from the result.
fn pool_feedback(result: &Result<Answer, AskError>) -> CallOutcome {
    match result {
        Err(error) if error.code == Code::RateLimited => CallOutcome::Rejected,
        Err(error) if matches!(error.code, Code::ProviderError | Code::Timeout) => CallOutcome::Failed,
        _ => CallOutcome::Ok,
    }
}

/// Records the result in the trace span; never the prompt or the answer.
fn record_result(span: &Span, result: &Result<Answer, AskError>) {
    match result {
        Ok(answer) => {
            let count = |tokens: u64| i64::try_from(tokens).unwrap_or(i64::MAX);
            span.record("gen_ai.usage.input_tokens", count(answer.tokens_in));
            span.record("gen_ai.usage.output_tokens", count(answer.tokens_out));
        }
        Err(error) => {
            span.record("error.type", error.code.as_str());
            span.record("otel.status_code", "ERROR");
        }
    }
}

/// Profiles read per page.
const PAGE: u32 = 500;

#[async_trait]
impl InferenceBackend for Inference {
    async fn profile_settings(
        &self,
        tenant: &TenantId,
        profile: &ProfileName,
    ) -> Result<ProfileSettings, AskError> {
        let entry = self.inner.profile_cache.find(tenant, Some(profile)).await?;
        let profile = &entry.profile;
        Ok(ProfileSettings {
            on_unsupported: entry.profile.on_unsupported,
            provider: Some(profile.provider),
            model: profile.model.clone(),
            max_tokens: profile.max_tokens,
            temperature: profile.temperature,
        })
    }

    async fn count_tokens(
        &self,
        tenant: &TenantId,
        profile: &ProfileName,
        question: &Question,
    ) -> Result<Option<u64>, AskError> {
        let entry = self.inner.profile_cache.find(tenant, Some(profile)).await?;
        entry.require_model(question.model.as_deref())?;
        entry.provider.count_tokens(question).await
    }

    async fn require_model(
        &self,
        tenant: &TenantId,
        profile: &ProfileName,
        model: &str,
    ) -> Result<(), AskError> {
        let entry = self.inner.profile_cache.find(tenant, Some(profile)).await?;
        entry.require_model(Some(model)).map(drop)
    }

    async fn ask(
        &self,
        request: &InferenceRequest,
        pieces: Option<&mpsc::Sender<AnswerPiece>>,
    ) -> InferenceOutcome {
        self.inner.journal.capacity().await;
        Inference::ask(self, request, pieces).await
    }

    fn budget_used(&self, tenant: &TenantId) -> Option<f64> {
        self.inner.warnings.share(tenant)
    }

    fn record(&self, records: Vec<CallRecord>) {
        records.into_iter().for_each(|record| self.inner.journal.append(record));
    }

    async fn profiles(&self, tenant: &TenantId) -> Result<Vec<ProfileName>, AskError> {
        self.inner.profile_cache.require_active(tenant).await?;
        let scope = Scope::Tenant(tenant.clone());
        let (mut names, mut after) = (Vec::new(), None::<String>);
        loop {
            let page = self.inner.ledger.profiles(&scope, None, after.as_deref(), PAGE).await;
            let page = page.map_err(|error| ledger_error(&error))?;
            let is_one =
                |record: &ProfileRecord| !record.suspended && !ProfileDocument::is_template(&record.body);
            let usable = page.items.into_iter().filter(is_one);
            names.extend(usable.map(|record| record.name).filter(|name| !name.as_str().starts_with('.')));
            after = page.next;
            if after.is_none() {
                return Ok(names);
            }
        }
    }
}
