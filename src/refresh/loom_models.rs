//! Every interleaving, by loom: `RUSTFLAGS="--cfg loom_models" cargo test --lib --release loom_`

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use http::header::AUTHORIZATION;
use http::{HeaderValue, Request, Response, request, response};
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::sync::{Condvar, Mutex};
use loom::thread;

use super::flight::Flight;
use super::{Refresh, Refresher, Refreshing};
use crate::BoxError;

/// What the future in the air waits for.
#[derive(Default)]
struct Server {
    answered: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Server {
    fn answer(&self) {
        self.answered.store(true, Ordering::SeqCst);
        let waker = self.waker.lock().unwrap().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        let _earlier = self.waker.lock().unwrap().replace(cx.waker().clone());
        if self.answered.load(Ordering::SeqCst) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }
}

/// Wakes a thread of the model. (In loom, an `unpark` of a thread that waits for a lock is lost.)
#[derive(Default)]
struct Bell {
    rung: Mutex<bool>,
    ringing: Condvar,
}

impl Bell {
    fn wait(&self) {
        let mut rung = self.rung.lock().unwrap();
        while !*rung {
            rung = self.ringing.wait(rung).unwrap();
        }
        *rung = false;
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        *self.rung.lock().unwrap() = true;
        self.ringing.notify_one();
    }
}

/// A wake that is lost is a deadlock, which loom finds.
fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let bell = Arc::new(Bell::default());
    loop {
        match poll_once(future.as_mut(), &bell) {
            Poll::Ready(output) => return output,
            Poll::Pending => bell.wait(),
        }
    }
}

fn poll_once<F: Future + ?Sized>(future: Pin<&mut F>, bell: &Arc<Bell>) -> Poll<F::Output> {
    let waker = Waker::from(Arc::clone(bell));
    future.poll(&mut Context::from_waker(&waker))
}

fn model(test: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(4);
    builder.check(test);
}

fn flight(server: &Arc<Server>) -> Arc<Flight<u32>> {
    let server = Arc::clone(server);
    let mut landed = false;
    Arc::new(Flight::new(poll_fn(move |cx| {
        assert!(!landed, "polled after its end");
        let polled = server.poll(cx).map(|()| 7);
        landed = polled.is_ready();
        polled
    })))
}

/// Runs both in threads of their own while this one answers.
fn race(server: &Server, threads: [Box<dyn FnOnce() + Send>; 2]) {
    let threads = threads.map(|run| thread::spawn(run));
    server.answer();
    for thread in threads {
        thread.join().unwrap();
    }
}

#[test]
fn all_who_wait_get_the_result() {
    model(|| {
        let server = Arc::new(Server::default());
        let flight = flight(&server);
        let wait = || -> Box<dyn FnOnce() + Send> {
            let waiter = Arc::clone(&flight).wait();
            Box::new(|| assert_eq!(block_on(waiter), 7))
        };
        race(&server, [wait(), wait()]);
    });
}

#[test]
fn one_that_comes_at_any_time_gets_the_result() {
    model(|| {
        let server = Arc::new(Server::default());
        let flight = flight(&server);
        let wait = || -> Box<dyn FnOnce() + Send> {
            let flight = Arc::clone(&flight);
            Box::new(|| assert_eq!(block_on(flight.wait()), 7))
        };
        race(&server, [wait(), wait()]);
    });
}

#[test]
fn a_starter_that_goes_at_any_time_leaves_it_to_the_other() {
    model(|| {
        let server = Arc::new(Server::default());
        let flight = flight(&server);
        let mut starter = Arc::clone(&flight).wait();
        let other = flight.wait();
        race(
            &server,
            [
                Box::new(move || {
                    let _ = poll_once(Pin::new(&mut starter), &Arc::default());
                }),
                Box::new(|| assert_eq!(block_on(other), 7)),
            ],
        );
    });
}

/// A hook that waits for the server, and notices when an earlier refresh of its own is polled.
#[derive(Default)]
struct Hook {
    server: Server,
    asked: AtomicUsize,
    /// The first one fails so.
    fails: Option<fn() -> BoxError>,
}

impl Refresh for Hook {
    async fn refresh(
        &self,
        stale: &request::Parts,
        _: &response::Parts,
    ) -> Result<HeaderValue, BoxError> {
        let number = self.asked.fetch_add(1, Ordering::SeqCst);
        poll_fn(|cx| {
            let newest = self.asked.load(Ordering::SeqCst) - 1;
            assert_eq!(number, newest, "two of one credential are driven");
            self.server.poll(cx)
        })
        .await;
        if let (0, Some(error)) = (number, self.fails) {
            return Err(error());
        }
        Ok(match stale.headers[AUTHORIZATION].as_bytes() {
            b"old" => HeaderValue::from_static("new"),
            _ => HeaderValue::from_static("newest"),
        })
    }
}

fn refresh(refresher: &Arc<Refresher>, carried: &'static str) -> Refreshing {
    let request = Request::get("http://shop.example/").header(AUTHORIZATION, carried);
    let (stale, ()) = request.body(()).unwrap().into_parts();
    let (challenge, ()) = Response::new(()).into_parts();
    refresher.refresh(stale, challenge)
}

/// Its result, and whoever drives it: a panic in one is the hook's own finding.
fn drive(refreshing: Refreshing) -> Option<HeaderValue> {
    match block_on(refreshing) {
        Ok(credential) => Some(credential),
        Err(error) if error.to_string() == "down" => None,
        Err(error) => panic!("{error}"),
    }
}

fn world(fails: Option<fn() -> BoxError>) -> (Arc<Hook>, Arc<Refresher>) {
    let hook = Arc::new(Hook {
        fails,
        ..Hook::default()
    });
    let refresher = Arc::new(Refresher::new(Arc::clone(&hook)));
    (hook, refresher)
}

#[test]
fn one_credential_is_refreshed_once() {
    model(|| {
        let (hook, refresher) = world(None);
        let call = || -> Box<dyn FnOnce() + Send> {
            let refresher = Arc::clone(&refresher);
            Box::new(move || assert_eq!(drive(refresh(&refresher, "old")).unwrap(), "new"))
        };
        race(&hook.server, [call(), call()]);
        assert_eq!(hook.asked.load(Ordering::SeqCst), 1);
    });
}

#[test]
fn a_call_that_goes_at_any_time_leaves_the_refresh_to_the_other() {
    model(|| {
        let (hook, refresher) = world(None);
        let [first, second] = [(); 2].map(|()| Arc::clone(&refresher));
        race(
            &hook.server,
            [
                Box::new(move || {
                    let polled = poll_once(refresh(&first, "old").as_mut(), &Arc::default());
                    assert!(!matches!(polled, Poll::Ready(Err(_))));
                }),
                Box::new(move || assert_eq!(drive(refresh(&second, "old")).unwrap(), "new")),
            ],
        );
        // Once more only where everybody had left the first.
        assert!(hook.asked.load(Ordering::SeqCst) <= 2);
    });
}

#[test]
fn a_straggler_starts_no_other_refresh() {
    model(|| {
        let (hook, refresher) = world(None);
        hook.server.answer();
        assert_eq!(drive(refresh(&refresher, "old")).unwrap(), "new");
        hook.server.answered.store(false, Ordering::SeqCst);
        let [current, straggler] = [(); 2].map(|()| Arc::clone(&refresher));
        race(
            &hook.server,
            [
                Box::new(move || {
                    assert_eq!(drive(refresh(&current, "new")).unwrap(), "newest");
                }),
                Box::new(move || {
                    let found = drive(refresh(&straggler, "old")).unwrap();
                    assert!(["new", "newest"].contains(&found.to_str().unwrap()));
                }),
            ],
        );
        assert_eq!(hook.asked.load(Ordering::SeqCst), 2);
    });
}

#[test]
fn a_failure_is_told_to_those_who_waited_and_to_nobody_later() {
    model(|| {
        let (hook, refresher) = world(Some(|| "down".into()));
        let failed = Arc::new(AtomicUsize::new(0));
        let call = || -> Box<dyn FnOnce() + Send> {
            let (refresher, failed) = (Arc::clone(&refresher), Arc::clone(&failed));
            Box::new(move || match drive(refresh(&refresher, "old")) {
                Some(new) => assert_eq!(new, "new"),
                None => drop(failed.fetch_add(1, Ordering::SeqCst)),
            })
        };
        race(&hook.server, [call(), call()]);
        let asked = hook.asked.load(Ordering::SeqCst);
        // Shared, or one after the other.
        assert_eq!(asked + failed.load(Ordering::SeqCst), 3);
        assert_eq!(drive(refresh(&refresher, "old")).unwrap(), "new");
    });
}
