//! A provider behind a wire: sends what its [`Dialect`] writes, waits no longer than the question allows, and
//! hands what comes back to the dialect.

use std::pin::pin;
use std::time::Duration;

use async_trait::async_trait;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderMap};
use hyper::{Method, Request};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout, timeout_at};

use super::base::Base;
use super::dialect::{Dialect, Draft, Fault, Flow, How, Reading};
use super::failure;
use super::veil::Veil;
use crate::ask::{Answer, AskError, Bill, Code, Headroom, Provider, Question};
use crate::chat::Piece;
use crate::http::{Event, Frames, Framing, Http, MOST_ANSWER, MOST_REFUSAL, Reply, Sent, headroom};

/// How long the words of a refusal are waited for.
const WORDS: Duration = Duration::from_secs(5);

/// How long a stream's connection may take to end after the last event, to be used again.
const TAIL: Duration = Duration::from_millis(100);

/// A provider that is asked over HTTP.
pub(crate) struct Remote<D> {
    pub(crate) dialect: D,
    pub(crate) http: Http,
    pub(crate) base: Base,
    /// Of each request; those with secrets are marked as such.
    pub(crate) headers: HeaderMap,
    pub(crate) model: String,
    pub(crate) veil: Veil,
}

#[async_trait]
impl<D: Dialect> Provider for Remote<D> {
    async fn ask(&self, question: &Question) -> Result<Answer, AskError> {
        let sent = Sent::default();
        let asking = pin!(self.whole(question, &sent));
        within(question.until, &sent, asking).await
    }

    async fn stream(
        &self,
        question: &Question,
        pieces: &mpsc::Sender<Piece>,
    ) -> Result<Answer, AskError> {
        let (began, sent) = (Instant::now(), Sent::default());
        let sending = pin!(self.send(question, How::Streamed, &sent));
        let reply = within(question.until, &sent, sending).await?;
        let headroom = headroom(&reply.headers);
        if comes_whole::<D>(&reply.headers) {
            let reading = pin!(self.read_to(reply, pieces));
            let draft = within(question.until, &sent, reading).await?;
            return self.checked(question, draft, began, headroom);
        }
        let mut stream = Stream::new(self.form(question), D::FRAMING, self.dialect.reading());
        let following = Box::pin(self.follow(reply, &mut stream, pieces));
        let followed = within(question.until, &sent, following).await;
        let draft = stream.reading.draft();
        let error = match followed {
            Ok(Ended::Closed(why)) if draft.finish.is_none() => failure::cut(&self.veil.line(&why)),
            Ok(Ended::Closed(_)) => return self.checked(question, draft, began, headroom),
            Ok(Ended::Unheard) => {
                let took = began.elapsed();
                return Ok(draft.torso(question, self.model(question), took));
            }
            Err(error) => error,
        };
        Err(self.billed(error, question, draft, began))
    }

    async fn health(&self, until: Instant) -> Result<String, AskError> {
        within(until, &Sent::default(), self.looked_at()).await
    }
}

/// Runs something until a moment. Nothing is sent that has no time left. Work that is large comes pinned:
/// moved in here it would need its room twice.
async fn within<T>(
    until: Instant,
    sent: &Sent,
    work: impl Future<Output = Result<T, AskError>>,
) -> Result<T, AskError> {
    if Instant::now() >= until {
        let message = "the deadline passed before the question was sent";
        return Err(AskError::new(Code::Timeout, message));
    }
    let late = || if sent.is_out() { failure::late() } else { failure::unsent() };
    timeout_at(until, work).await.unwrap_or_else(|_| Err(late()))
}

impl<D: Dialect> Remote<D> {
    async fn whole(&self, question: &Question, sent: &Sent) -> Result<Answer, AskError> {
        let began = Instant::now();
        let reply = self.send(question, How::Whole, sent).await?;
        let headroom = headroom(&reply.headers);
        let (draft, body) = self.read(reply).await?;
        let answer = self.checked(question, draft, began, headroom)?;
        let raw = self.dialect.raw(question).map(|_| Box::new(body));
        Ok(Answer { raw, ..answer })
    }

    /// The answer, if it is one to this question. One that is not was paid for all the same.
    fn checked(
        &self,
        question: &Question,
        draft: Draft,
        began: Instant,
        headroom: Headroom,
    ) -> Result<Answer, AskError> {
        let fault = self.dialect.check(question, &draft).err();
        let answer = draft.answer(question, self.model(question), began.elapsed(), headroom);
        match fault {
            None => Ok(answer),
            Some(error) => Err(AskError { bill: Bill::Came(Box::new(answer)), ..error }),
        }
    }

    /// An error that came after some of the answer did: that much was paid for, as far as is known.
    fn billed(
        &self,
        error: AskError,
        question: &Question,
        draft: Draft,
        began: Instant,
    ) -> AskError {
        if error.bill == Bill::Nothing {
            return error;
        }
        if draft.is_empty() {
            return AskError { bill: Bill::Unknown, ..error };
        }
        let came = draft.torso(question, self.model(question), began.elapsed());
        AskError { bill: Bill::Came(Box::new(came)), ..error }
    }

    /// Reads an answer in one. Also as it came.
    async fn read(&self, reply: Reply) -> Result<(Draft, Bytes), AskError> {
        let body = reply.whole(MOST_ANSWER).await?;
        let draft = self.dialect.read(&body).map_err(|why| self.unread(&why, &body))?;
        Ok((draft, body))
    }

    /// The same, from a server that was asked to stream and did not.
    async fn read_to(&self, reply: Reply, pieces: &mpsc::Sender<Piece>) -> Result<Draft, AskError> {
        let (draft, _) = self.read(reply).await?;
        hand_on(draft.pieces(), pieces).await;
        Ok(draft)
    }

    /// Reads a stream to its end, or until nobody listens any more: the dropped connection tells the
    /// provider to stop.
    async fn follow(
        &self,
        mut reply: Reply,
        stream: &mut Stream,
        pieces: &mpsc::Sender<Piece>,
    ) -> Result<Ended, AskError> {
        loop {
            let (came, at_end) = match reply.chunk(MOST_ANSWER).await {
                Ok(Some(bytes)) => (stream.push(&bytes, &self.veil)?, None),
                Ok(None) => {
                    (stream.last(&self.veil)?, Some("the connection was closed".to_owned()))
                }
                Err(broken) => ((Vec::new(), Flow::More), Some(AskError::from(broken).message)),
            };
            let (came, flow) = came;
            if !hand_on(came, pieces).await {
                return Ok(Ended::Unheard);
            }
            match (flow, at_end) {
                (Flow::Done, _) => {
                    let _ = timeout(TAIL, reply.rest()).await;
                    return Ok(Ended::Closed("its last event came too early".to_owned()));
                }
                (Flow::More, Some(why)) => return Ok(Ended::Closed(why)),
                (Flow::More, None) => {}
            }
        }
    }

    async fn looked_at(&self) -> Result<String, AskError> {
        let request = self.request(Method::GET, self.dialect.health_path(), Vec::new())?;
        let reply = self.accepted(self.http.send(request).await?).await?;
        let body = reply.whole(MOST_ANSWER).await?;
        let said: Value = serde_json::from_slice(&body)
            .map_err(|error| self.unread(&error.to_string(), &body))?;
        Ok(self.dialect.health(&self.model, &said))
    }

    async fn send(&self, question: &Question, how: How, sent: &Sent) -> Result<Reply, AskError> {
        let model = self.model(question);
        if model.is_empty() {
            return Err(AskError::new(
                Code::InvalidRequest,
                "neither profile nor question name a model",
            ));
        }
        let path = self.dialect.path(model, question, how)?;
        let body = self.body(model, question, how)?;
        let request = self.request(Method::POST, &path, body)?;
        self.accepted(self.http.send_noting(request, sent).await?).await
    }

    /// What is sent: the question as it came, or a translation that loses nothing.
    fn body(&self, model: &str, question: &Question, how: How) -> Result<Vec<u8>, AskError> {
        let body = match (self.dialect.raw(question), &question.raw) {
            (Some(raw), _) => raw.rewritten(&self.dialect.changes(model, question, raw, how)),
            (None, raw) => match raw.as_ref().and_then(|raw| raw.loss(D::NAME)) {
                Some(loss) => return Err(loss),
                None => serde_json::to_vec(&self.dialect.body(model, question, how)),
            },
        };
        body.map_err(|error| AskError::new(Code::Internal, error.to_string()))
    }

    fn form(&self, question: &Question) -> Form {
        if self.dialect.raw(question).is_some() { Form::Raw } else { Form::Read }
    }

    pub(crate) fn request(
        &self,
        method: Method,
        path: &str,
        body: Vec<u8>,
    ) -> Result<Request<Full<Bytes>>, AskError> {
        // Not with the error's words: the address may have secrets in its path.
        let address = self.base.uri(path).ok_or_else(|| {
            AskError::new(Code::InvalidRequest, "the question makes no address of the provider")
        })?;
        let mut request = Request::new(Full::from(body));
        *request.method_mut() = method;
        *request.uri_mut() = address;
        *request.headers_mut() = self.headers.clone();
        Ok(request)
    }

    /// An answer whose status is good.
    pub(crate) async fn accepted(&self, reply: Reply) -> Result<Reply, AskError> {
        if reply.status.is_success() {
            return Ok(reply);
        }
        Err(Box::pin(self.refused(reply)).await)
    }

    /// Why an answer is none.
    async fn refused(&self, reply: Reply) -> AskError {
        let (status, headers) = (reply.status.as_u16(), reply.headers.clone());
        let mut body = Vec::new();
        // What is known already is not kept waiting for words.
        let _ = timeout(WORDS, reply.beginning(MOST_REFUSAL, &mut body)).await;
        failure::refused(status, &headers, &body, &self.veil)
    }

    /// An answer with status 200 that cannot be read: perhaps it is an error after all.
    pub(crate) fn unread(&self, why: &str, body: &[u8]) -> AskError {
        match serde_json::from_slice::<Value>(body) {
            Ok(json) if json.get("error").is_some_and(|error| !error.is_null()) => {
                // It came in the answer's place: nothing was answered.
                AskError { bill: Bill::Nothing, ..failure::told(&json, true, &self.veil) }
            }
            _ => failure::garbled(why, body, &self.veil),
        }
    }

    pub(crate) fn model<'a>(&'a self, question: &'a Question) -> &'a str {
        question.model.as_deref().unwrap_or(&self.model)
    }
}

/// In which form a stream's pieces are handed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// As they were understood.
    Read,
    /// As they came.
    Raw,
}

/// How a stream came to its end.
enum Ended {
    /// The provider closed it, or said that this was all; or why there will be no more.
    Closed(String),
    /// Nobody listens any more.
    Unheard,
}

/// A stream that is being read.
struct Stream {
    form: Form,
    frames: Frames,
    reading: Box<dyn Reading>,
    /// Some of the answer has come.
    begun: bool,
}

impl Stream {
    fn new(form: Form, framing: Framing, reading: Box<dyn Reading>) -> Self {
        Self { form, frames: Frames::new(framing), reading, begun: false }
    }

    fn push(&mut self, bytes: &[u8], veil: &Veil) -> Result<(Vec<Piece>, Flow), AskError> {
        self.frames.push(bytes);
        let mut came = Vec::new();
        while let Some(event) = self.frames.next() {
            if self.take(&event, &mut came, veil)? == Flow::Done {
                return Ok((came, Flow::Done));
            }
        }
        Ok((came, Flow::More))
    }

    fn last(&mut self, veil: &Veil) -> Result<(Vec<Piece>, Flow), AskError> {
        let mut came = Vec::new();
        if let Some(event) = self.frames.last() {
            self.take(&event, &mut came, veil)?;
        }
        Ok((came, Flow::More))
    }

    fn take(
        &mut self,
        event: &Event,
        came: &mut Vec<Piece>,
        veil: &Veil,
    ) -> Result<Flow, AskError> {
        let understood = came.len();
        let flow = self.reading.take(event, came).map_err(|fault| match fault {
            Fault::Told(error) => failure::told(&error, self.begun, veil),
            Fault::Garbled(why) => failure::garbled(&why, event.data.as_bytes(), veil),
        })?;
        if self.form == Form::Raw {
            came.truncate(understood);
            came.push(Piece::Raw(one_line(&event.data)));
        }
        self.begun |= !came.is_empty();
        Ok(flow)
    }
}

/// JSON on one line: whatever breaks it stands between its parts.
fn one_line(data: &str) -> String {
    data.replace('\n', " ")
}

/// Hands pieces on; whether anybody listens.
async fn hand_on(came: Vec<Piece>, pieces: &mpsc::Sender<Piece>) -> bool {
    for piece in came {
        if pieces.send(piece).await.is_err() {
            return false;
        }
    }
    true
}

/// Some servers answer in one although they were asked for a stream; error pages are always whole.
fn comes_whole<D: Dialect>(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    D::FRAMING == Framing::Sse
        && ["application/json", "text/html"].iter().any(|whole| kind.starts_with(whole))
}
