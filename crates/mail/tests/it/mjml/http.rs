//! Rendering servers of both kinds, and faulty ones.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::thread::JoinHandle;

use longshore_mail::mjml::{HttpFormat, HttpRenderer, RenderError, RenderedPage, Renderer};

use super::{page, template};

/// Answers one request, and returns the request's head and body.
fn server(status: &'static str, body: &'static str) -> (String, JoinHandle<(String, String)>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/render", listener.local_addr().expect("its address"));
    let serves = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let mut reader = BufReader::new(stream.try_clone().expect("cloned"));
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            reader.read_line(&mut head).expect("a line");
        }
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(": ")?;
            name.eq_ignore_ascii_case("content-length").then(|| value.parse().expect("a number"))
        });
        let mut asked = vec![0; length.expect("a length")];
        reader.read_exact(&mut asked).expect("a body");
        let length = body.len();
        write!(stream, "HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}")
            .expect("answered");
        (head, String::from_utf8(asked).expect("text"))
    });
    (url, serves)
}

async fn ask(url: &str, form: HttpFormat) -> Result<RenderedPage, RenderError> {
    // Normally the binary installs the TLS provider; here the test does.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::new();
    HttpRenderer::new(client, url.parse().expect("an address"), form).render(&template(&page("hello"))).await
}

#[tokio::test]
async fn a_raw_server_gets_the_template_as_it_is() {
    let (url, serves) = server("200 OK", "<html>page</html>");
    assert_eq!(ask(&url, HttpFormat::Raw).await.expect("it renders").html, "<html>page</html>");
    let (head, body) = serves.join().expect("it served");
    assert!(head.to_lowercase().contains("content-type: text/plain"), "{head}");
    assert_eq!(body, page("hello"));
}

#[tokio::test]
async fn no_server_gets_what_it_might_take_for_an_include() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    // No server listens there: had the renderer sent the template, the error would be about the connection.
    let url: reqwest::Url = "http://127.0.0.1:9/".parse().expect("an address");
    let server = HttpRenderer::new(reqwest::Client::new(), url, HttpFormat::Raw);
    for hidden in super::HIDDEN {
        let text = page("x").replace("<mj-body>", &format!("<mj-body>\n{hidden}"));
        let error = server.render(&template(&text)).await.expect_err("it is refused");
        assert!(matches!(&error, RenderError::Template(error) if error.location.line == 2), "{error}");
    }
}

#[tokio::test]
async fn a_json_server_gets_json_and_its_errors_have_lines() {
    let answer = r#"{"html":"<html>page</html>","mjml_version":"4","errors":[{"line":1,"message":"oh"}]}"#;
    let (url, serves) = server("200 OK", answer);
    let rendered = ask(&url, HttpFormat::Json).await.expect("it renders");
    assert_eq!(
        (rendered.html.as_str(), rendered.warnings[0].to_string().as_str()),
        ("<html>page</html>", "line 1: oh")
    );
    let (_, body) = serves.join().expect("it served");
    let body: serde_json::Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!(body["mjml"], page("hello"));
}

#[tokio::test]
async fn what_a_server_answers_says_whether_to_try_again() {
    let cases = [
        ("400 Bad Request", "Parsing failed. Check your mjml.", HttpFormat::Raw, false),
        ("500 Internal Server Error", "oh", HttpFormat::Raw, true),
        ("503 Service Unavailable", "", HttpFormat::Json, true),
        ("200 OK", "", HttpFormat::Raw, false),
        ("200 OK", "<html>", HttpFormat::Json, false),
        ("200 OK", "{}", HttpFormat::Json, false),
    ];
    for (status, body, form, again) in cases {
        let (url, serves) = server(status, body);
        let error = ask(&url, form).await.expect_err("that is no page");
        assert_eq!(error.is_retryable(), again, "{status} {body}: {error}");
        serves.join().expect("it served");
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_may_be_there_later() {
    let address = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("its address");
    let error = ask(&format!("http://key:secret@{address}/"), HttpFormat::Raw).await.expect_err("no server");
    assert!(error.is_retryable());
    assert!(!error.to_string().contains("secret"), "{error}");
}
