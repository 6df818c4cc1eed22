//! The app, served by one thread, as when it runs normally.

use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use longshore_pool::axum::Pools;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

pub(crate) struct App {
    pub(crate) url: String,
    pub(crate) pools: Pools,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl App {
    pub(crate) async fn start() -> Self {
        let (ready, is_ready) = oneshot::channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(serve(ready, stopped));
        });
        let (url, pools) = is_ready.await.unwrap();
        Self { url, pools, stop, thread }
    }

    /// Shuts the app down, waits for its end, and checks that no worker is left.
    pub(crate) async fn stop(self) {
        self.stop.send(()).unwrap();
        tokio::task::spawn_blocking(|| self.thread.join().unwrap()).await.unwrap();
        assert!(self.pools.iter().all(|pool| pool.stats().workers == 0));
    }
}

async fn serve(ready: oneshot::Sender<(String, Pools)>, stopped: oneshot::Receiver<()>) {
    let folder = tempfile::tempdir().unwrap();
    let (app, pools) = example_web::open(folder.path()).await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    assert!(ready.send((url, pools.clone())).is_ok());
    let server = |stop| axum::serve(listener, app).with_graceful_shutdown(stop);
    let asked = async { stopped.await.unwrap() };
    pools.serve(asked, Duration::from_secs(30), server).await.unwrap();
}

/// A gate where calls wait until the test opens it.
#[derive(Clone, Default)]
pub(crate) struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    pub(crate) fn wait(&self) {
        let open = self.0.0.lock().unwrap();
        drop(self.0.1.wait_while(open, |open| !*open).unwrap());
    }

    pub(crate) fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }
}
