//! A provider and the fake behind it.

use std::sync::Arc;
use std::time::Duration;

use longshore_ai::{
    Answer, AnswerPiece, ApiOptions, AskError, Http, Profile, Provider, ProviderName, Question, providers,
};
use longshore_testkit::fake_ai::{FakeAi, FakeAnswer, FakeBehaviour, RecordedRequest};
use tokio::sync::mpsc;
use tokio::time::Instant;

/// A key that can be searched for.
pub(crate) const KEY: &str = "sk-marked-0123456789";

/// A provider and the fake behind it.
pub(crate) struct ProviderFixture {
    pub(crate) fake: FakeAi,
    pub(crate) provider: Arc<dyn Provider>,
    pub(crate) name: ProviderName,
}

impl ProviderFixture {
    pub(crate) async fn of(name: ProviderName) -> Self {
        Self::with(name, ApiOptions::default()).await
    }

    pub(crate) async fn with(name: ProviderName, wire: ApiOptions) -> Self {
        let fake = FakeAi::start().await.unwrap();
        let profile = Profile { model: "fake-1".into(), wire, ..Profile::new("p", name) };
        Self { provider: open_at(profile, &fake.url()), fake, name }
    }

    /// Asks, with the fake acting like this.
    pub(crate) async fn ask(&self, act: FakeBehaviour) -> Result<Answer, AskError> {
        self.fake.push_behaviours([act]);
        self.provider.ask(&question("how are you?")).await
    }

    /// Streams, with the fake acting like this; also returns the pieces.
    pub(crate) async fn stream(&self, act: FakeBehaviour) -> (Result<Answer, AskError>, Vec<AnswerPiece>) {
        self.fake.push_behaviours([act]);
        stream(&*self.provider, &question("how are you?")).await
    }

    /// The request that is sent for a question.
    pub(crate) async fn sent(&self, question: &Question) -> RecordedRequest {
        self.provider.ask(question).await.unwrap();
        self.fake.requests().pop().unwrap()
    }
}

/// A profile's provider at a URL, with the marked key.
pub(crate) fn open_at(profile: Profile, url: &str) -> Arc<dyn Provider> {
    let profile = Profile { endpoint: Some(url.into()), ..profile };
    providers::open(&profile, Some(KEY.into()), &Http::new()).unwrap()
}

/// A question with enough time for a test.
pub(crate) fn question(prompt: &str) -> Question {
    Question::new("q-1", prompt, Instant::now() + Duration::from_secs(60))
}

/// A question with next to no time.
pub(crate) fn hurried(prompt: &str) -> Question {
    Question::new("q-1", prompt, Instant::now() + Duration::from_millis(1_500))
}

/// An answer and its pieces.
pub(crate) async fn stream(
    provider: &dyn Provider,
    question: &Question,
) -> (Result<Answer, AskError>, Vec<AnswerPiece>) {
    let (send, mut came) = mpsc::channel(1);
    let listen = async {
        let mut pieces = Vec::new();
        while let Some(piece) = came.recv().await {
            pieces.push(piece);
        }
        pieces
    };
    let ask = async {
        let answer = provider.stream(question, &send).await;
        drop(send);
        answer
    };
    tokio::join!(ask, listen)
}

/// An answer with a text.
pub(crate) fn saying(text: &str) -> FakeAnswer {
    FakeAnswer { text: Some(text.into()), ..FakeAnswer::default() }
}
