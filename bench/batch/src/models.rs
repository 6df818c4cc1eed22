//! Models with a constant answer: one immediately, one after an exact time.

use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use longshore_ai::{Answer, AskError, Code, Provider, Question};
use tokio::sync::oneshot;

const ANSWER: &str = r#"{"verdict":"APPROVE","reason":"Quantity and price are as usual.","confidence":0.93}"#;

fn answer(took: Duration) -> Answer {
    Answer {
        text: ANSWER.to_owned(),
        model: "bench".to_owned(),
        tokens_in: 100,
        tokens_out: 25,
        latency_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        simulated: true,
        ..Answer::default()
    }
}

/// Answers immediately.
pub(crate) struct Immediate;

#[async_trait]
impl Provider for Immediate {
    async fn ask(&self, _question: &Question) -> Result<Answer, AskError> {
        Ok(answer(Duration::ZERO))
    }

    fn is_simulated(&self) -> bool {
        true
    }
}

/// Answers every request after the same time, from its own thread, as a remote server would. The runtime's timer
/// has a resolution of one millisecond and would add up to one more.
pub(crate) struct Paced {
    pace: Duration,
    questions: Option<mpsc::Sender<Asked>>,
    thread: Option<JoinHandle<()>>,
}

struct Asked {
    due: Instant,
    answer: oneshot::Sender<()>,
}

impl Paced {
    pub(crate) fn new(pace: Duration) -> std::io::Result<Self> {
        let (questions, inbox) = mpsc::channel();
        let thread = std::thread::Builder::new().spawn(move || serve(&inbox))?;
        Ok(Self { pace, questions: Some(questions), thread: Some(thread) })
    }
}

/// All requests take the same time, so they are due in the order of arrival.
fn serve(inbox: &mpsc::Receiver<Asked>) {
    while let Ok(Asked { due, answer }) = inbox.recv() {
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        // The receiver may be gone.
        let _ = answer.send(());
    }
}

#[async_trait]
impl Provider for Paced {
    async fn ask(&self, _question: &Question) -> Result<Answer, AskError> {
        let gone = || AskError::new(Code::Internal, "the model's thread has ended");
        let begun = Instant::now();
        let (answered, answers) = oneshot::channel();
        let asked = Asked { due: begun + self.pace, answer: answered };
        let questions = self.questions.as_ref().ok_or_else(gone)?;
        questions.send(asked).map_err(|_| gone())?;
        answers.await.map_err(|_| gone())?;
        Ok(answer(begun.elapsed()))
    }

    fn is_simulated(&self) -> bool {
        true
    }
}

impl Drop for Paced {
    fn drop(&mut self) {
        self.questions.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
