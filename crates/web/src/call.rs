//! One request to the API: admitted, its query checked against the table, its body read.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use longshore::{Scope, TenantId};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tracing::Instrument;

use crate::door::Caller;
use crate::house::House;
use crate::problem::Problem;
use crate::table::{Answer, BASE, Endpoint, Gives, ParamKind, Takes};
use crate::traces;

/// What a page holds if nobody says.
const PAGE: u32 = 100;

/// One request.
pub(crate) struct Call {
    pub(crate) house: Arc<House>,
    pub(crate) endpoint: &'static Endpoint,
    pub(crate) caller: Caller,
    pub(crate) head: Parts,
    path: BTreeMap<String, String>,
    query: BTreeMap<&'static str, String>,
    /// Never locked: it only makes a call something that threads may share, which a body is not.
    body: Mutex<Body>,
}

/// Answers a request to an endpoint.
pub(crate) async fn answer(
    house: Arc<House>,
    endpoint: &'static Endpoint,
    path: BTreeMap<String, String>,
    request: Request,
) -> Response {
    let answered = ask(house, endpoint, path, request).await;
    let mut response = answered.unwrap_or_else(IntoResponse::into_response);
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// The same, for whoever answers in another way.
pub(crate) async fn ask(
    house: Arc<House>,
    endpoint: &'static Endpoint,
    path: BTreeMap<String, String>,
    request: Request,
) -> Answer {
    let (method, place) = (&endpoint.method, endpoint.path);
    let span = traces::request(&request, format_args!("{method} {BASE}{place}"));
    let answered = in_time(house, endpoint, path, request).instrument(span.clone()).await;
    traces::answered(&span, answered.as_ref().map_or_else(Problem::status, Response::status));
    answered
}

async fn in_time(
    house: Arc<House>,
    endpoint: &'static Endpoint,
    path: BTreeMap<String, String>,
    request: Request,
) -> Answer {
    let time = house.limits.time;
    let ending = house.ending();
    let answering = async {
        let call = Call::admit(house, endpoint, path, request).await?;
        (endpoint.run)(call).await
    };
    match endpoint.takes_its_time() {
        true => tokio::select! {
            answered = answering => answered,
            () = ending => Err(Problem::away("the server is about to stop")),
        },
        false => tokio::time::timeout(time, answering)
            .await
            .unwrap_or_else(|_| Err(Problem::slow("it took too long"))),
    }
}

impl Endpoint {
    /// Whether an answer may take as long as who asks likes: it has its own limits.
    fn takes_its_time(&self) -> bool {
        let waits = self.query.iter().any(|param| matches!(param.kind, ParamKind::Seconds(_)));
        waits || self.gives == Gives::Events
    }
}

impl Call {
    async fn admit(
        house: Arc<House>,
        endpoint: &'static Endpoint,
        path: BTreeMap<String, String>,
        request: Request,
    ) -> Result<Self, Problem> {
        let (head, body) = request.into_parts();
        let caller = house.door.admit(&head, house.now()).await?;
        caller.must_be(endpoint.role)?;
        let query = query(endpoint, head.uri.query().unwrap_or_default())?;
        Ok(Self { house, endpoint, caller, head, path, query, body: Mutex::new(body) })
    }

    /// What stands in the path.
    pub(crate) fn path<T: FromStr<Err: ToString>>(&self, name: &str) -> Result<T, Problem> {
        let text = self.path.get(name).map_or("", String::as_str);
        text.parse().map_err(|error: T::Err| Problem::bad(error.to_string()))
    }

    /// What stands in the query, if anything does.
    pub(crate) fn query<T: FromStr<Err: ToString>>(
        &self,
        name: &str,
    ) -> Result<Option<T>, Problem> {
        let given = self.query.get(name).map(|text| text.parse());
        let bad = |error: T::Err| Problem::bad(format!("`{name}`: {}", error.to_string()));
        given.transpose().map_err(bad)
    }

    /// Whose things are meant: `tenant` of the query narrows it.
    pub(crate) fn scope(&self) -> Result<Scope, Problem> {
        self.caller.narrowed(self.query::<TenantId>("tenant")?)
    }

    /// Where the list goes on.
    pub(crate) fn after(&self) -> Option<&str> {
        self.query.get("after").map(String::as_str)
    }

    /// How many are wanted.
    pub(crate) fn limit(&self) -> Result<u32, Problem> {
        Ok(self.query::<u32>("limit")?.unwrap_or(PAGE))
    }

    /// The body, as the JSON that it must be.
    pub(crate) async fn json<T: DeserializeOwned>(&mut self) -> Result<T, Problem> {
        let bytes = self.bytes().await?;
        if bytes.is_empty() && matches!(self.endpoint.takes, Takes::MaybeJson(_)) {
            return read(b"{}");
        }
        let kind = self.head.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let kind = kind.and_then(|kind| kind.split(';').next()).map(str::trim);
        if !kind.is_some_and(|kind| kind.eq_ignore_ascii_case("application/json")) {
            return Err(Problem::media("send `Content-Type: application/json`"));
        }
        read(&bytes)
    }

    /// The body as it is.
    pub(crate) async fn bytes(&mut self) -> Result<bytes::Bytes, Problem> {
        let most = self.house.limits.body;
        let body = Limited::new(self.stream(), most);
        // Also where the answer may take its time: what is asked must not.
        let read = tokio::time::timeout(self.house.limits.time, body.collect()).await;
        let read = read.map_err(|_| Problem::slow("the body does not come"))?;
        let read = read.map_err(|error| match error.is::<LengthLimitError>() {
            true => Problem::too_large(format!("the body is longer than {most} bytes")),
            false => Problem::bad("the body broke off"),
        })?;
        Ok(read.to_bytes())
    }

    /// The body, to be read bit by bit.
    pub(crate) fn stream(&mut self) -> Body {
        std::mem::take(self.body.get_mut().unwrap_or_else(PoisonError::into_inner))
    }
}

fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(bytes).map_err(|error| Problem::bad(format!("the body: {error}")))
}

/// The query, if the table has all of it.
fn query(
    endpoint: &'static Endpoint,
    text: &str,
) -> Result<BTreeMap<&'static str, String>, Problem> {
    let mut query = BTreeMap::new();
    for (name, value) in form_urlencoded::parse(text.as_bytes()) {
        let known = endpoint.query.iter().find(|param| param.name == name);
        let param = known.ok_or_else(|| Problem::bad(format!("`{name}` is not asked for here")))?;
        param.check(&value)?;
        if query.insert(param.name, value.into_owned()).is_some() {
            return Err(Problem::bad(format!("`{name}` is given twice")));
        }
    }
    let needed = endpoint.query.iter().filter(|param| param.kind == ParamKind::Needed);
    if let Some(param) = needed.into_iter().find(|param| !query.contains_key(param.name)) {
        return Err(Problem::bad(format!("`{}` is missing: {}", param.name, param.about)));
    }
    Ok(query)
}

impl crate::table::Param {
    fn check(&self, value: &str) -> Result<(), Problem> {
        let number = |least: u32, most: u32| {
            value.parse::<u32>().is_ok_and(|number| (least..=most).contains(&number))
        };
        let wanted = match self.kind {
            // What it is a name of says what is wrong with it.
            ParamKind::Name | ParamKind::Time => return Ok(()),
            ParamKind::Needed if value.is_empty() => "some text".to_owned(),
            ParamKind::Text | ParamKind::Needed if !value.contains('\0') => return Ok(()),
            ParamKind::Text | ParamKind::Needed => "text without zero characters".to_owned(),
            ParamKind::Number(most) if number(1, most) => return Ok(()),
            ParamKind::Number(most) => format!("a number from 1 to {most}"),
            ParamKind::Seconds(most) if number(0, most) => return Ok(()),
            ParamKind::Seconds(most) => format!("a number of seconds up to {most}"),
            ParamKind::OneOf(words) if words.contains(&value) => return Ok(()),
            ParamKind::OneOf(words) => format!("one of {}", words.join(", ")),
        };
        Err(Problem::bad(format!("`{}` is not {wanted}", self.name)))
    }
}

/// JSON that went well.
pub(crate) fn json(value: &impl Serialize) -> Answer {
    json_with(StatusCode::OK, value)
}

/// JSON that went well in a particular way.
pub(crate) fn json_with(status: StatusCode, value: &impl Serialize) -> Answer {
    let text = serde_json::to_vec(value).map_err(|error| {
        tracing::error!(%error, "an answer cannot be written");
        Problem::from(longshore::Error::Broken { message: error.to_string(), source: None })
    })?;
    let mut response = (status, text).into_response();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}
