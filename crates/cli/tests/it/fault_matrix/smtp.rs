//! The mail sender and a mail server behind a proxy.

use std::collections::BTreeSet;
use std::time::Duration;

use longshore_testkit::fault_proxy::FaultProxy;
use longshore_testkit::servers::{MailSecurity, PrivateSmtp};

use super::cell::{AlertReceiver, Bystanders, CellReport, Fault, recovery};
use super::shim::Shim;
use crate::support::{TIMEOUT, TestDir, eventually, stretch};

/// Messages that are spooled before, during and after the fault.
const PART: usize = 4;
const CONNECTIONS: usize = 2;
/// A message that was deferred is sent again within a minute.
const DELIVERY_LIMIT: Duration = Duration::from_secs(180);

pub fn run(fault: Fault) -> CellReport {
    let dir = TestDir::new();
    dir.write("page.html", "<p>hello</p>");
    let mut server = PrivateSmtp::start(MailSecurity::None).unwrap();
    let proxy = FaultProxy::start(format!("127.0.0.1:{}", server.port())).unwrap();
    let alerts = AlertReceiver::start();
    let config = format!(
        "{}[mail.smtp]\nserver = \"{}\"\nsecurity = \"none\"\ntimeout = \"10s\"\nconnections = {CONNECTIONS}\n",
        alerts.config(),
        proxy.address()
    );
    dir.write("longshore.toml", config);
    let shim = (fault == Fault::Clock).then(|| Shim::build(&dir, "none"));
    let mut sender = dir.start_with(&["mail", "send", "--daemon"], |command| {
        shim.iter().for_each(|shim| shim.load(command));
    });
    spool(&dir, 0);
    eventually(TIMEOUT, || (server.messages().unwrap().len() == PART).then_some(()));
    let bystanders = Bystanders::new([&sender]);
    // The sender finds messages during the fault.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            spool_range(&dir, 1, 0..PART / 2);
            // The sender finds some under the second jump of its clock.
            if fault == Fault::Clock {
                std::thread::sleep(Fault::duration() / 2);
            }
            spool_range(&dir, 1, PART / 2..PART);
        });
        match fault {
            Fault::Restart => {
                server.stop();
                std::thread::sleep(Fault::duration());
                server.restart().unwrap();
            }
            _ => match &shim {
                Some(shim) => shim.jump(Fault::duration(), || unique(&server).len()),
                None => fault.inject(&proxy),
            },
        }
    });
    spool(&dir, 2);
    let recovery = recovery(|| unique(&server).len(), 3 * PART);
    eventually(stretch(DELIVERY_LIMIT), || (unique(&server).len() == 3 * PART).then_some(()));
    bystanders.assert_alive_and_bounded();
    sender.signal("TERM");
    assert_eq!(sender.ends_within(TIMEOUT), 0, "{}", dir.read("stderr"));
    let stats = dir.run(&["mail", "stats", "--json"]).ok().json();
    assert_eq!((&stats["pending"], &stats["failed"]), (&0.into(), &0.into()), "{stats}");
    // If a reply is lost, its message arrives again with the same Message-ID: at most one per connection.
    let repeats = server.messages().unwrap().len() - 3 * PART;
    assert!(repeats <= CONNECTIONS, "{repeats} messages arrived twice");
    assert!(matches!(fault, Fault::Cut | Fault::HalfOpen | Fault::Stall | Fault::Restart) || repeats == 0);
    // Nothing could be sent: one alert, however many messages wait.
    let outage = matches!(fault, Fault::Cut | Fault::Restart);
    let raised = alerts.count("mail server", usize::from(outage));
    assert!(raised <= 1, "{raised} alerts");
    CellReport {
        recovery,
        notes: format!("{repeats} messages arrived twice, {raised} alerts"),
        skipped: None,
    }
}

fn spool(dir: &TestDir, part: usize) {
    spool_range(dir, part, 0..PART);
}

fn spool_range(dir: &TestDir, part: usize, numbers: std::ops::Range<usize>) {
    for n in numbers {
        let key = format!("{part}/{n}");
        let to = format!("r{part}{n}@example.org");
        let args = ["mail", "spool", "page.html", "--key", &key, "--from", "a@example.org", "--to", &to];
        dir.run(&[&args[..], &["--subject", "Hi"]].concat()).ok();
    }
}

/// The recipients of all messages that arrived.
fn unique(server: &PrivateSmtp) -> BTreeSet<String> {
    let messages = server.messages().unwrap();
    messages.iter().map(|message| message["to"][0].as_str().unwrap().to_owned()).collect()
}
