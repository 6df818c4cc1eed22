//! `longshore mail`: templates, the spool, and a real mail server.

use std::time::Duration;

use longshore_testkit::servers::{MailSecurity, PrivateSmtp};

use crate::support::{TestDir, eventually};

const MAX_WAIT: Duration = Duration::from_secs(60);

const PAGE: &str = "<mjml><mj-body><mj-section><mj-column>\n<mj-text>hello</mj-text>\n</mj-column></mj-section></mj-body></mjml>";

fn spool_args<'a>(page: &'a str, key: &'a str, to: &'a str) -> Vec<&'a str> {
    vec!["mail", "spool", page, "--key", key, "--from", "a@example.org", "--to", to, "--subject", "Hi"]
}

#[test]
fn a_template_becomes_a_page_and_what_is_wrong_has_a_line() {
    let dir = TestDir::new();
    dir.write("good.mjml", PAGE);
    dir.write("bad.mjml", PAGE.replace("mj-text>", "mj-txt>"));
    let run = dir.run(&["mail", "compile", "good.mjml"]).ok();
    assert!(run.out.contains("<!doctype html>") && run.out.contains("hello"), "{}", run.out);
    dir.run(&["mail", "compile", "bad.mjml"]).ends(1).says("bad.mjml:2: <mj-txt> is no component of MJML");
    dir.run(&["mail", "compile", ".", "-o", "out"]).ends(3).says("bad.mjml:2");
    assert!(dir.read("out/good.html").contains("hello"));
    assert!(!dir.path("out/bad.html").exists());
}

#[test]
fn includes_come_from_allowed_folders_only() {
    let dir = TestDir::new();
    std::fs::create_dir(dir.path("mails")).unwrap();
    dir.write("secret.html", "the secret");
    dir.write(
        "mails/m.mjml",
        "<mjml><mj-body><mj-include type=\"html\" path=\"../secret.html\" /></mj-body></mjml>",
    );
    let run = dir.run(&["mail", "compile", "mails/m.mjml"]).ends(1);
    run.says("outside of the allowed folders");
    let run = dir.run(&["mail", "compile", "mails/m.mjml", "--include", "."]).ok();
    assert!(run.out.contains("the secret"));
}

#[test]
fn a_message_is_spooled_once_sent_and_counted() {
    let dir = TestDir::new();
    dir.write("hello.mjml", PAGE);
    let server = PrivateSmtp::start(MailSecurity::None).unwrap();
    let port = server.port();
    dir.write("longshore.toml", format!("[mail.smtp]\nserver = \"127.0.0.1:{port}\"\nsecurity = \"none\"\n"));
    dir.run(&spool_args("hello.mjml", "welcome/1", "ann@example.org")).ok();
    dir.run(&spool_args("hello.mjml", "welcome/1", "ann@example.org")).ok();
    dir.run(&spool_args("hello.mjml", "welcome/2", "refuse@example.org")).ok();
    let sent = dir.run(&["mail", "send", "--json"]).ok().json();
    assert_eq!((&sent["sent"], &sent["failed"]), (&1.into(), &1.into()), "{sent}");
    let arrived = server.messages().unwrap();
    assert_eq!((arrived.len(), &arrived[0]["to"][0]), (1, &"ann@example.org".into()));
    assert!(server.quit_count().unwrap() > 0, "the client sent no QUIT");
    let stats = dir.run(&["mail", "stats", "--json", "--check"]).ok().json();
    assert_eq!(
        (&stats["failed"], &stats["pending"], &stats["health"]),
        (&1.into(), &0.into(), &"good".into())
    );
    dir.run(&["mail", "retry", "welcome/1"]).ends(1).says("no message of key `welcome/1` has failed");
    let failures = dir.run(&["mail", "failures", "--json"]).ok().json();
    let failed = &failures[0];
    assert_eq!((&failed["key"], &failed["to"][0]), (&"welcome%2f2".into(), &"refuse@example.org".into()));
    assert!(failed["why"].as_str().unwrap().contains("55"), "{failures}");
    let seen = dir.run(&["mail", "failures"]).ok().out;
    assert!(seen.contains("WHY") && seen.contains("refuse@example.org"), "{seen}");
    // By the key as listed, or as given.
    for key in ["welcome%2f2", "welcome/2"] {
        dir.run(&["mail", "retry", key]).ok();
        assert_eq!(dir.run(&["mail", "stats", "--json"]).ok().json()["due"], 1);
        dir.run(&["mail", "send"]).ok();
    }
    assert_eq!(dir.run(&["mail", "failures", "--limit", "0", "--json"]).ok().out.trim(), "[]");
}

#[test]
fn a_daemon_sends_what_comes_and_stops_when_told() {
    let dir = TestDir::new();
    dir.write("page.html", "<p>hello</p>");
    let mut running = dir.start(&["mail", "send", "--daemon", "--folder", "out"]);
    dir.run(&spool_args("page.html", "1", "ann@example.org")).ok();
    eventually(MAX_WAIT, || {
        let mut files = std::fs::read_dir(dir.path("out")).ok()?.flatten();
        files.find(|file| file.path().extension().is_some_and(|end| end == "eml"))
    });
    dir.run(&["mail", "send", "--folder", "out"]).ends(1).says("another sender has bucket");
    running.signal("TERM");
    assert_eq!(running.ends_within(MAX_WAIT), 0);
    dir.run(&["mail", "send", "--folder", "out"]).ok();
}

#[test]
fn a_daemon_takes_leave_of_its_server() {
    let dir = TestDir::new();
    dir.write("page.html", "<p>hello</p>");
    let server = PrivateSmtp::start(MailSecurity::None).unwrap();
    let port = server.port();
    dir.write("longshore.toml", format!("[mail.smtp]\nserver = \"127.0.0.1:{port}\"\nsecurity = \"none\"\n"));
    dir.run(&spool_args("page.html", "1", "ann@example.org")).ok();
    let mut running = dir.start(&["mail", "send", "--daemon"]);
    eventually(MAX_WAIT, || server.messages().unwrap().pop());
    assert_eq!(server.quit_count().unwrap(), 0, "connections stay open");
    running.signal("TERM");
    assert_eq!(running.ends_within(MAX_WAIT), 0);
    assert_eq!(server.quit_count().unwrap(), 1);
}

#[test]
fn a_sender_without_a_server_or_a_password_says_what_to_do() {
    let dir = TestDir::new();
    dir.run(&["mail", "send"]).ends(2).says("no mail server is configured").says("--folder DIR");
    dir.write("longshore.toml", "[mail.smtp]\nserver = \"localhost:25\"\nuser = \"me\"\n");
    dir.run(&["mail", "send"]).ends(2).says("LONGSHORE_SMTP_PASSWORD");
    dir.write("longshore.toml", "[mail]\nrenderer = \"fast\"\n");
    dir.run(&["mail", "stats"]).ends(2).says("mail.renderer");
}
