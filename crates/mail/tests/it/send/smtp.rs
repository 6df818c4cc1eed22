//! A real mail server, with all kinds of replies.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use longshore::RetryPolicy;
use longshore_mail::send::{Credentials, DomainRate, Security, SenderSettings, Smtp, Transport};
use longshore_mail::spool::{DeliveryPolicy, NewMessage, OnUnanswered, Spool};
use longshore_testkit::servers::{MailSecurity, PrivateSmtp};
use tempfile::TempDir;

use super::{letter, now, send, send_with, settings, smtp};

fn spool() -> (TempDir, Spool) {
    let folder = TempDir::new().expect("a folder");
    let spool = Spool::open(folder.path()).expect("a spool");
    (folder, spool)
}

#[tokio::test]
async fn letters_arrive_as_they_were_written_over_few_connections() {
    let server = PrivateSmtp::start(MailSecurity::None).expect("a server");
    let (_folder, spool) = spool();
    let letters: Vec<_> =
        (0..50).map(|n| letter(&format!("user{n}@example.org"), &format!("d/{n}"))).collect();
    spool.enqueue(&letters, now()).expect("kept");
    let (carrier, four) =
        (smtp(&server, Security::None), SenderSettings { connections: 4, ..Default::default() });
    let sent = send_with(&spool, carrier.clone(), four).await;
    assert_eq!((sent.sent, sent.retried, sent.failed), (50, 0, 0));
    let arrived = server.messages().expect("read");
    let ids: HashSet<&str> = arrived.iter().map(|one| one["id"].as_str().expect("an id")).collect();
    assert_eq!((arrived.len(), ids.len()), (50, 50));
    assert!(letters.iter().all(|letter| ids.contains(letter.message_id.as_str())));
    let peers: HashSet<u64> = arrived.iter().map(|one| one["peer"].as_u64().expect("a port")).collect();
    assert!(peers.len() <= 4, "{} connections", peers.len());
    assert_eq!(arrived[0]["from"], "bounces@example.org");
    let content = arrived[0]["content"].as_str().expect("text");
    assert!(content.contains("text/plain") && content.contains("text/html"), "{content}");
    carrier.close().await;
    assert_eq!(server.quit_count().expect("read"), peers.len(), "each connection ended with a word");
}

#[tokio::test]
async fn a_connection_that_has_carried_enough_ends_with_a_word() {
    let server = PrivateSmtp::start(MailSecurity::None).expect("a server");
    let (_folder, spool) = spool();
    let letters: Vec<_> = (0..4).map(|n| letter("a@x.org", &n.to_string())).collect();
    spool.enqueue(&letters, now()).expect("kept");
    let mut settings = settings(&server, Security::None);
    settings.max_messages = 2;
    let carrier = Arc::new(Smtp::new(settings).expect("no TLS"));
    let one = SenderSettings { connections: 1, ..Default::default() };
    assert_eq!(send_with(&spool, carrier, one).await.sent, 4);
    assert_eq!(server.quit_count().expect("read"), 2);
}

#[tokio::test]
async fn a_sender_killed_while_the_server_delays_its_reply_to_quit_sends_nothing_again() {
    let server = PrivateSmtp::start(MailSecurity::None).expect("a server");
    let (_folder, spool) = spool();
    spool.enqueue(&[letter("linger@x.org", "1")], now()).expect("kept");
    let mut settings = settings(&server, Security::None);
    settings.max_messages = 1;
    let carrier = Arc::new(Smtp::new(settings).expect("no TLS"));
    let quits = async {
        while server.quit_count().expect("read") == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::select! {
        sent = send(&spool, carrier.clone()) => panic!("QUIT has no reply yet: {sent:?}"),
        () = quits => {}
    }
    let sent = send(&spool, carrier).await;
    assert_eq!((sent.sent, sent.retried, sent.failed), (0, 0, 0), "{sent:?}");
    assert_eq!(server.messages().expect("read").len(), 1);
}

#[tokio::test]
async fn a_message_that_is_too_large_fails_and_a_full_mailbox_is_tried_again() {
    let server = PrivateSmtp::start(MailSecurity::None).expect("a server");
    let (_folder, spool) = spool();
    spool.enqueue(&[letter("large@x.org", "1"), letter("full@x.org", "2")], now()).expect("kept");
    let sent = send(&spool, smtp(&server, Security::None)).await;
    assert_eq!((sent.sent, sent.retried, sent.failed), (0, 1, 1), "{sent:?}");
}

#[tokio::test]
async fn a_message_to_several_domains_waits_for_each_of_them() {
    let server = PrivateSmtp::start(MailSecurity::None).expect("a server");
    let (_folder, spool) = spool();
    let mut letters = [letter("a@x.org", "1"), letter("a@y.org", "2")];
    letters[1].envelope.to.push("b@x.org".into());
    let per_domain = Some(DomainRate { per_minute: 1.0, burst: 1.0 });
    spool.enqueue(&letters, now()).expect("kept");
    let settings = SenderSettings { per_domain, connections: 1, ..Default::default() };
    let sent = send_with(&spool, smtp(&server, Security::None), settings).await;
    assert_eq!((sent.sent, sent.put_off), (1, 1), "{sent:?}");
}

#[tokio::test]
async fn a_server_is_spoken_to_securely_or_not_at_all() {
    let (_folder, spool) = spool();
    for (n, (there, here)) in
        [(MailSecurity::StartTls, Security::StartTls), (MailSecurity::Tls, Security::Tls)]
            .into_iter()
            .enumerate()
    {
        let server = PrivateSmtp::start_with_auth(there).expect("a server");
        let (user, password) = server.user();
        let credentials = |password: &str| Credentials { user: user.into(), password: password.into() };
        let carrier = |credentials| {
            let settings = settings(&server, here);
            Arc::new(Smtp::new(longshore_mail::send::SmtpSettings { credentials, ..settings }).expect("TLS"))
        };
        spool.enqueue(&[letter("a@example.org", &format!("secure/{n}"))], now()).expect("kept");
        let sent = send(&spool, carrier(Some(credentials(password)))).await;
        assert_eq!(sent.sent, 1, "{there:?}: {sent:?}");
        let arrived = server.messages().expect("read");
        assert_eq!((&arrived[0]["secure"], &arrived[0]["user"]), (&true.into(), &user.into()));
        // A wrong password concerns the configuration and not the message.
        spool.enqueue(&[letter("a@example.org", &format!("wrong/{n}"))], now()).expect("kept");
        let sent = send(&spool, carrier(Some(credentials("wrong")))).await;
        assert_eq!((sent.sent, sent.retried, sent.failed), (0, 1, 0), "{there:?}");
    }
}

#[tokio::test]
async fn no_mail_goes_to_whom_we_do_not_know_or_in_the_clear() {
    let (_folder, spool) = spool();
    let (plain, untrusted) = (PrivateSmtp::start(MailSecurity::None), PrivateSmtp::start(MailSecurity::Tls));
    let (plain, untrusted) = (plain.expect("a server"), untrusted.expect("a server"));
    spool.enqueue(&[letter("a@example.org", "1")], now()).expect("kept");
    let sent = send(&spool, smtp(&plain, Security::StartTls)).await;
    assert_eq!((sent.sent, sent.retried), (0, 1), "it offers no STARTTLS");
    spool.enqueue(&[letter("a@example.org", "2")], now()).expect("kept");
    // The trusted authority did not sign this server's certificate.
    let mut settings = settings(&untrusted, Security::Tls);
    settings.authorities = Some(plain.ca_certificate());
    let sent = send(&spool, Arc::new(Smtp::new(settings).expect("TLS"))).await;
    assert_eq!((sent.sent, sent.retried), (0, 1), "its certificate is not trusted");
    assert!(plain.messages().expect("read").is_empty() && untrusted.messages().expect("read").is_empty());
}

#[tokio::test]
async fn each_answer_has_its_consequence() {
    let server = PrivateSmtp::start(MailSecurity::None).expect("a server");
    let (_folder, spool) = spool();
    let people = ["refuse@x.org", "defer@x.org", "spam@x.org", "fine@x.org", "hang@x.org", "no address"];
    let mut letters: Vec<_> = people[..5].iter().map(|to| letter(to, to)).collect();
    letters.push(letter("a@x.org", "no address"));
    letters[5].envelope.to = vec!["no address".into()];
    spool.enqueue(&letters, now()).expect("kept");
    let sent = send(&spool, smtp(&server, Security::None)).await;
    assert_eq!((sent.sent, sent.retried, sent.failed), (1, 2, 3), "{sent:?}");
    let failed: Vec<String> = std::fs::read_dir(spool.folder().join("failed"))
        .expect("read")
        .map(|entry| std::fs::read_to_string(entry.expect("an entry").path()).expect("read"))
        .collect();
    for words in ["550", "554", "is no address"] {
        assert!(failed.iter().any(|text| text.contains(words)), "{words} is nowhere");
    }
}

#[tokio::test]
async fn of_several_recipients_each_gets_it_once_or_is_told_as_a_failure() {
    let server = PrivateSmtp::start(MailSecurity::None).expect("a server");
    let (_folder, spool) = spool();
    let to = |letter: &mut NewMessage, people: &[&str]| {
        letter.envelope.to = people.iter().map(|to| (*to).to_owned()).collect();
    };
    let mut letters = ["1", "2"].map(|about| letter("fine@x.org", about));
    to(&mut letters[0], &["refuse@x.org", "fine@x.org", "no address"]);
    to(&mut letters[1], &["fine@x.org", "once@x.org"]);
    spool.enqueue(&letters, now()).expect("kept");
    let retry = RetryPolicy { base: Duration::ZERO, ..DeliveryPolicy::default().retry };
    let settings = || SenderSettings {
        policy: DeliveryPolicy { retry: retry.clone(), ..DeliveryPolicy::default() },
        ..Default::default()
    };
    let first = send_with(&spool, smtp(&server, Security::None), settings()).await;
    assert_eq!((first.sent, first.retried, first.failed), (0, 1, 1), "{first:?}");
    let second = send_with(&spool, smtp(&server, Security::None), settings()).await;
    assert_eq!((second.sent, second.retried, second.failed), (1, 0, 0), "{second:?}");
    let arrived = server.messages().expect("read");
    let mut to: Vec<String> = arrived.iter().map(|one| one["to"].to_string()).collect();
    to.sort();
    assert_eq!(to, ["[\"fine@x.org\"]", "[\"fine@x.org\"]", "[\"once@x.org\"]"]);
    // A retry does not write to recipients that have the message.
    assert!(spool.retry(&letters[0].key, now()).expect("retried"));
    let third = send_with(&spool, smtp(&server, Security::None), settings()).await;
    assert_eq!((third.sent, third.failed), (0, 1), "{third:?}");
    assert_eq!(server.messages().expect("read").len(), 3);
}

#[tokio::test]
async fn what_may_have_arrived_is_sent_again_or_not_as_the_policy_says() {
    let server = PrivateSmtp::start(MailSecurity::None).expect("a server");
    for (on_unanswered, again, failed) in [(OnUnanswered::Again, 1, 0), (OnUnanswered::Fail, 0, 1)] {
        let (_folder, spool) = spool();
        spool.enqueue(&[letter("hang@x.org", "1")], now()).expect("kept");
        let policy = DeliveryPolicy { on_unanswered, ..DeliveryPolicy::default() };
        let settings = SenderSettings { policy, ..Default::default() };
        let sent = send_with(&spool, smtp(&server, Security::None), settings).await;
        assert_eq!((sent.retried, sent.failed), (again, failed), "{on_unanswered:?}");
    }
    assert_eq!(server.messages().expect("read").len(), 2, "it did arrive");
}

#[tokio::test]
async fn a_server_that_was_away_costs_no_letter() {
    let mut server = PrivateSmtp::start(MailSecurity::None).expect("a server");
    let (_folder, spool) = spool();
    let carrier = smtp(&server, Security::None);
    spool.enqueue(&[letter("a@example.org", "1")], now()).expect("kept");
    assert_eq!(send(&spool, carrier.clone()).await.sent, 1);
    server.restart().expect("it starts again");
    // The pooled connection is dead, so a new one is made.
    spool.enqueue(&[letter("a@example.org", "2")], now()).expect("kept");
    assert_eq!(send(&spool, carrier.clone()).await.sent, 1);
    server.stop();
    spool.enqueue(&[letter("a@example.org", "3")], now()).expect("kept");
    let sent = send(&spool, carrier).await;
    assert_eq!((sent.sent, sent.retried, sent.failed), (0, 1, 0));
    assert!(sent.next.is_none(), "it is in hand when the round looks");
    assert_eq!(spool.stats(now()).expect("counted").pending, 1);
}

#[tokio::test]
async fn a_domain_gets_no_more_than_its_share_and_others_do_not_wait() {
    let server = PrivateSmtp::start(MailSecurity::None).expect("a server");
    let (_folder, spool) = spool();
    let mut letters: Vec<_> = (0..10).map(|n| letter(&format!("u{n}@big.example"), &n.to_string())).collect();
    letters.push(letter("a@small.example", "small"));
    spool.enqueue(&letters, now()).expect("kept");
    let per_domain = Some(DomainRate { per_minute: 1.0, burst: 3.0 });
    let settings = SenderSettings { per_domain, ..Default::default() };
    let sent = send_with(&spool, smtp(&server, Security::None), settings).await;
    assert_eq!((sent.sent, sent.put_off), (4, 7));
    let stats = spool.stats(now()).expect("counted");
    assert_eq!((stats.pending, stats.postponed), (7, 7), "they are due later");
}

#[tokio::test]
async fn a_round_that_was_given_up_leaves_nothing_in_hand_for_the_next() {
    let server = PrivateSmtp::start(MailSecurity::None).expect("a server");
    let (_folder, spool) = spool();
    let letters: Vec<_> = (0..20).map(|n| letter(&format!("u{n}@x.org"), &n.to_string())).collect();
    spool.enqueue(&letters, now()).expect("kept");
    let shard = spool.shard(longshore_mail::spool::Share::ALL).expect("the lock is free");
    let carrier = smtp(&server, Security::None);
    let clock = Arc::new(longshore::SystemClock);
    let sender = longshore_mail::send::Sender::new(shard, carrier, SenderSettings::default(), clock);
    let sender = sender.await.expect("it begins");
    // Dropped as soon as the first message has arrived.
    let arrived = async {
        while server.messages().expect("read").is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        round = sender.round(&|| false) => drop(round.expect("it sends")),
        () = arrived => {}
    }
    while spool.stats(now()).expect("counted").sent.values().sum::<usize>() < 20 {
        sender.round(&|| false).await.expect("it sends");
    }
    let stats = spool.stats(now()).expect("counted");
    assert_eq!((stats.pending, stats.sending, stats.failed), (0, 0, 0));
}
