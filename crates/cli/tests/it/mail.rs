//! `longshore mail`: templates, the spool, and a real mail server.

use std::time::Duration;

use longshore_testkit::servers::{MailSecurity, PrivateSmtp};

use crate::support::{Place, eventually};

const LIMIT: Duration = Duration::from_secs(60);

const PAGE: &str = "<mjml><mj-body><mj-section><mj-column>\n<mj-text>hello</mj-text>\n</mj-column></mj-section></mj-body></mjml>";

fn put<'a>(page: &'a str, key: &'a str, to: &'a str) -> Vec<&'a str> {
    vec![
        "mail",
        "spool",
        page,
        "--key",
        key,
        "--from",
        "a@example.org",
        "--to",
        to,
        "--subject",
        "Hi",
    ]
}

#[test]
fn a_template_becomes_a_page_and_what_is_wrong_has_a_line() {
    let place = Place::new();
    place.write("good.mjml", PAGE);
    place.write("bad.mjml", PAGE.replace("mj-text>", "mj-txt>"));
    let run = place.run(&["mail", "compile", "good.mjml"]).ok();
    assert!(run.out.contains("<!doctype html>") && run.out.contains("hello"), "{}", run.out);
    place
        .run(&["mail", "compile", "bad.mjml"])
        .ends(1)
        .says("bad.mjml:2: <mj-txt> is no component of MJML");
    place.run(&["mail", "compile", ".", "-o", "out"]).ends(3).says("bad.mjml:2");
    assert!(place.read("out/good.html").contains("hello"));
    assert!(!place.path("out/bad.html").exists());
}

#[test]
fn includes_come_from_allowed_folders_only() {
    let place = Place::new();
    std::fs::create_dir(place.path("mails")).unwrap();
    place.write("secret.html", "the secret");
    place.write(
        "mails/m.mjml",
        "<mjml><mj-body><mj-include type=\"html\" path=\"../secret.html\" /></mj-body></mjml>",
    );
    let run = place.run(&["mail", "compile", "mails/m.mjml"]).ends(1);
    run.says("outside of the allowed folders");
    let run = place.run(&["mail", "compile", "mails/m.mjml", "--include", "."]).ok();
    assert!(run.out.contains("the secret"));
}

#[test]
fn a_message_is_spooled_once_sent_and_counted() {
    let place = Place::new();
    place.write("hello.mjml", PAGE);
    let server = PrivateSmtp::start(MailSecurity::None).unwrap();
    let port = server.port();
    place.write(
        "longshore.toml",
        format!("[mail.smtp]\nserver = \"127.0.0.1:{port}\"\nsecurity = \"none\"\n"),
    );
    place.run(&put("hello.mjml", "welcome/1", "ann@example.org")).ok();
    place.run(&put("hello.mjml", "welcome/1", "ann@example.org")).ok();
    place.run(&put("hello.mjml", "welcome/2", "refuse@example.org")).ok();
    let sent = place.run(&["mail", "send", "--json"]).ok().json();
    assert_eq!((&sent["sent"], &sent["failed"]), (&1.into(), &1.into()), "{sent}");
    let arrived = server.arrived().unwrap();
    assert_eq!((arrived.len(), &arrived[0]["to"][0]), (1, &"ann@example.org".into()));
    assert!(server.goodbyes().unwrap() > 0, "it left without a word");
    let stats = place.run(&["mail", "stats", "--json", "--check"]).ok().json();
    assert_eq!(
        (&stats["failed"], &stats["pending"], &stats["health"]),
        (&1.into(), &0.into(), &"good".into())
    );
    place
        .run(&["mail", "retry", "welcome/1"])
        .ends(1)
        .says("no message of key `welcome/1` has failed");
    let failures = place.run(&["mail", "failures", "--json"]).ok().json();
    let failed = &failures[0];
    assert_eq!(
        (&failed["key"], &failed["to"][0]),
        (&"welcome%2f2".into(), &"refuse@example.org".into())
    );
    assert!(failed["why"].as_str().unwrap().contains("55"), "{failures}");
    let seen = place.run(&["mail", "failures"]).ok().out;
    assert!(seen.contains("WHY") && seen.contains("refuse@example.org"), "{seen}");
    // As it is listed, or as it was given.
    for key in ["welcome%2f2", "welcome/2"] {
        place.run(&["mail", "retry", key]).ok();
        assert_eq!(place.run(&["mail", "stats", "--json"]).ok().json()["due"], 1);
        place.run(&["mail", "send"]).ok();
    }
    assert_eq!(place.run(&["mail", "failures", "--limit", "0", "--json"]).ok().out.trim(), "[]");
}

#[test]
fn a_daemon_sends_what_comes_and_stops_when_told() {
    let place = Place::new();
    place.write("page.html", "<p>hello</p>");
    let mut running = place.start(&["mail", "send", "--daemon", "--folder", "out"]);
    place.run(&put("page.html", "1", "ann@example.org")).ok();
    eventually(LIMIT, || {
        let mut files = std::fs::read_dir(place.path("out")).ok()?.flatten();
        files.find(|file| file.path().extension().is_some_and(|end| end == "eml"))
    });
    place.run(&["mail", "send", "--folder", "out"]).ends(1).says("another sender has bucket");
    running.signal("TERM");
    assert_eq!(running.ends_within(LIMIT), 0);
    place.run(&["mail", "send", "--folder", "out"]).ok();
}

#[test]
fn a_daemon_takes_leave_of_its_server() {
    let place = Place::new();
    place.write("page.html", "<p>hello</p>");
    let server = PrivateSmtp::start(MailSecurity::None).unwrap();
    let port = server.port();
    place.write(
        "longshore.toml",
        format!("[mail.smtp]\nserver = \"127.0.0.1:{port}\"\nsecurity = \"none\"\n"),
    );
    place.run(&put("page.html", "1", "ann@example.org")).ok();
    let mut running = place.start(&["mail", "send", "--daemon"]);
    eventually(LIMIT, || server.arrived().unwrap().pop());
    assert_eq!(server.goodbyes().unwrap(), 0, "connections stay");
    running.signal("TERM");
    assert_eq!(running.ends_within(LIMIT), 0);
    assert_eq!(server.goodbyes().unwrap(), 1);
}

#[test]
fn a_sender_without_a_server_or_a_password_says_what_to_do() {
    let place = Place::new();
    place.run(&["mail", "send"]).ends(2).says("no mail server is configured").says("--folder DIR");
    place.write("longshore.toml", "[mail.smtp]\nserver = \"localhost:25\"\nuser = \"me\"\n");
    place.run(&["mail", "send"]).ends(2).says("LONGSHORE_SMTP_PASSWORD");
    place.write("longshore.toml", "[mail]\nrenderer = \"fast\"\n");
    place.run(&["mail", "stats"]).ends(2).says("mail.renderer");
}
