//! The page, rendered on the server; a short script makes it live.

use axum::Router;
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::response::{Html, IntoResponse};
use axum::routing::get;

/// A job on the page.
struct Job {
    /// Its path under `/run/`.
    path: &'static str,
    title: &'static str,
    words: &'static str,
    pool: &'static str,
}

const JOBS: [Job; 4] = [
    Job {
        path: "sql",
        title: "Blocking SQL",
        words: "Twelve slow queries on SQLite, a connection per worker.",
        pool: "orders · threads",
    },
    Job {
        path: "passwords",
        title: "Password hashes",
        words: "Twenty-four passwords through Argon2, 19 MiB each.",
        pool: "passwords · threads",
    },
    Job {
        path: "picture",
        title: "Smaller pictures",
        words: "Paints a harbour and makes five smaller copies of it.",
        pool: "pictures · threads",
    },
    Job {
        path: "python",
        title: "A Python library",
        words: "What was meant by “Hambrug”? difflib knows, in a process of its own.",
        pool: "python · processes",
    },
];

pub(crate) fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    let style = async || asset("text/css; charset=utf-8", include_str!("page.css"));
    let script = async || asset("text/javascript; charset=utf-8", include_str!("page.js"));
    Router::new()
        .route("/", get(async || page()))
        .route("/page.css", get(style))
        .route("/page.js", get(script))
}

fn page() -> impl IntoResponse {
    let jobs: String = JOBS.iter().map(card).collect();
    let policy = [(CONTENT_SECURITY_POLICY, "default-src 'self'; img-src 'self' data:")];
    (policy, Html(include_str!("page.html").replace("<!-- jobs -->", &jobs)))
}

/// Renders a job. All texts are constants, so nothing needs escaping.
fn card(job: &Job) -> String {
    let Job { path, title, words, pool } = job;
    format!(
        r#"<article class="job" id="{path}">
  <header><h2>{title}</h2><span class="pool">{pool}</span></header>
  <p>{words}</p>
  <div class="far"><progress max="100" value="0" aria-label="{title}"></progress><output>0 %</output></div>
  <p class="result" aria-live="polite"></p>
  <button type="button">Run</button>
</article>
"#
    )
}

fn asset(form: &'static str, text: &'static str) -> impl IntoResponse {
    ([(CONTENT_TYPE, form), (CACHE_CONTROL, "no-cache")], text)
}
