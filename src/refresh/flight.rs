//! One future that several calls wait for.

use std::collections::BTreeMap;
use std::mem;
use std::pin::Pin;
#[cfg(not(all(loom_models, test)))]
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
#[cfg(not(all(loom_models, test)))]
use std::sync::{Mutex, MutexGuard};
use std::task::{Context, Poll, Wake, Waker};

#[cfg(all(loom_models, test))]
use loom::sync::atomic::{AtomicBool, Ordering};
#[cfg(all(loom_models, test))]
use loom::sync::{Mutex, MutexGuard};

/// A future that is driven by whoever waits for it and is polled: there is no task behind it, and a
/// call that goes away, or that nobody polls, leaves it to the others.
///
/// It must not panic, nor poll one of its own waiters.
pub(super) struct Flight<T> {
    /// Locked while the future is polled, never across an await.
    state: Mutex<State<T>>,
    lounge: Arc<Lounge>,
}

enum State<T> {
    Flying(Pin<Box<dyn Future<Output = T> + Send>>),
    Landed(T),
}

impl<T: Clone> Flight<T> {
    pub(super) fn new(future: impl Future<Output = T> + Send + 'static) -> Self {
        Self {
            state: Mutex::new(State::Flying(Box::pin(future))),
            lounge: Arc::new(Lounge {
                is_called: AtomicBool::new(true),
                waiting: Mutex::default(),
            }),
        }
    }

    pub(super) fn wait(self: Arc<Self>) -> Waiter<T> {
        let id = self.lounge.enter();
        Waiter { flight: self, id }
    }

    fn poll(&self) -> Poll<T> {
        let mut state = lock(&self.state);
        let result = match &mut *state {
            State::Landed(result) => return Poll::Ready(result.clone()),
            // All are woken, and one poll is enough: the others would ask in vain.
            State::Flying(_) if !self.lounge.take_call() => return Poll::Pending,
            State::Flying(future) => {
                let waker = Waker::from(Arc::clone(&self.lounge));
                match future.as_mut().poll(&mut Context::from_waker(&waker)) {
                    Poll::Ready(result) => result,
                    Poll::Pending => return Poll::Pending,
                }
            }
        };
        // Nobody sleeps through it: the call that led to this poll woke all who waited, and whoever
        // was polled since took the call or stands before the lock.
        *state = State::Landed(result.clone());
        Poll::Ready(result)
    }
}

/// One of those who wait. Dropped, it is woken no more; the last one takes the future along.
pub(super) struct Waiter<T> {
    flight: Arc<Flight<T>>,
    id: u64,
}

impl<T: Clone> Future for Waiter<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        // First: a call that comes from here on reaches this waiter, and one that came before is
        // seen by the poll.
        self.flight.lounge.sit(self.id, cx.waker());
        self.flight.poll()
    }
}

impl<T> Drop for Waiter<T> {
    fn drop(&mut self) {
        self.flight.lounge.leave(self.id);
    }
}

/// Where they wait. As the waker of the future it wakes all of them: whichever is polled drives it.
struct Lounge {
    /// The future is to be polled.
    is_called: AtomicBool,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    entered: u64,
    /// Woken in the order in which they came.
    wakers: BTreeMap<u64, Waker>,
}

impl Lounge {
    fn enter(&self) -> u64 {
        let mut waiting = lock(&self.waiting);
        waiting.entered += 1;
        waiting.entered
    }

    // A waker that is dropped may drop a task, and that a waiter: never while the lock is held.

    fn sit(&self, id: u64, waker: &Waker) {
        let waker = waker.clone();
        let _earlier = lock(&self.waiting).wakers.insert(id, waker);
    }

    fn leave(&self, id: u64) {
        let _waker = lock(&self.waiting).wakers.remove(&id);
    }

    fn call(&self) {
        // Not a store: all changes read the one before, so that none is lost between two of them.
        self.is_called.swap(true, Ordering::AcqRel);
        let wakers = mem::take(&mut lock(&self.waiting).wakers);
        wakers.into_values().for_each(Waker::wake);
    }

    fn take_call(&self) -> bool {
        self.is_called.swap(false, Ordering::AcqRel)
    }
}

impl Wake for Lounge {
    fn wake(self: Arc<Self>) {
        self.call();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.call();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing is left half done by a panic: every change is one step.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(all(test, not(loom_models)))]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::thread;

    use tokio::sync::oneshot;

    use super::*;

    /// Counts how often it is woken.
    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// A waiter and what wakes it.
    struct Task {
        waiter: Waiter<u32>,
        count: Arc<Count>,
    }

    impl Task {
        fn new(flight: &Arc<Flight<u32>>) -> Self {
            Self {
                waiter: Arc::clone(flight).wait(),
                count: Arc::default(),
            }
        }

        fn poll(&mut self) -> Poll<u32> {
            let waker = Waker::from(Arc::clone(&self.count));
            Pin::new(&mut self.waiter).poll(&mut Context::from_waker(&waker))
        }

        fn woken(&self) -> usize {
            self.count.0.load(Ordering::SeqCst)
        }
    }

    fn flight() -> (oneshot::Sender<u32>, Arc<Flight<u32>>) {
        let (sender, receiver) = oneshot::channel();
        let flight = Flight::new(async move { receiver.await.unwrap_or(0) });
        (sender, Arc::new(flight))
    }

    #[test]
    fn whoever_is_polled_drives_it_while_the_starter_is_idle() {
        let (sender, flight) = flight();
        let [mut idle, mut other] = [(); 2].map(|()| Task::new(&flight));
        assert!(idle.poll().is_pending());
        assert!(other.poll().is_pending());
        sender.send(7).unwrap();
        assert_eq!((idle.woken(), other.woken()), (1, 1));
        assert_eq!(other.poll(), Poll::Ready(7));
        assert_eq!(idle.poll(), Poll::Ready(7), "however late");
    }

    #[test]
    fn one_that_comes_after_the_wake_drives_it() {
        let (sender, flight) = flight();
        let mut idle = Task::new(&flight);
        assert!(idle.poll().is_pending());
        sender.send(7).unwrap();
        assert_eq!(Task::new(&flight).poll(), Poll::Ready(7));
        assert_eq!(idle.woken(), 1);
    }

    #[test]
    fn a_dropped_starter_and_a_dropped_waiter_leave_it_to_the_others() {
        let (sender, flight) = flight();
        let mut tasks = [(); 4].map(|()| Task::new(&flight));
        for task in &mut tasks {
            assert!(task.poll().is_pending());
        }
        let [starter, mut second, third, mut fourth] = tasks;
        let gone = [&starter, &third].map(|task| Arc::clone(&task.count));
        drop((starter, third));
        sender.send(7).unwrap();
        assert!(gone.iter().all(|count| count.0.load(Ordering::SeqCst) == 0));
        assert_eq!((second.woken(), fourth.woken()), (1, 1));
        assert_eq!(fourth.poll(), Poll::Ready(7));
        assert_eq!(second.poll(), Poll::Ready(7));
    }

    #[test]
    fn the_last_one_takes_the_future_along() {
        let (sender, flight) = flight();
        let [mut first, second] = [(); 2].map(|()| Task::new(&flight));
        drop(flight);
        assert!(first.poll().is_pending());
        drop(first);
        assert!(!sender.is_closed());
        drop(second);
        assert!(sender.is_closed());
    }

    #[test]
    fn a_wake_within_its_own_poll_is_kept_for_whoever_comes_next() {
        let mut polled = false;
        let flight = Arc::new(Flight::new(std::future::poll_fn(move |cx| {
            if polled {
                return Poll::Ready(7);
            }
            polled = true;
            cx.waker().wake_by_ref();
            Poll::Pending
        })));
        let [mut first, mut second] = [(); 2].map(|()| Task::new(&flight));
        assert!(first.poll().is_pending());
        assert_eq!(first.woken(), 1);
        assert_eq!(second.poll(), Poll::Ready(7));
        assert_eq!(first.poll(), Poll::Ready(7));
    }

    #[test]
    fn a_spurious_poll_neither_polls_the_future_nor_loses_the_wake() {
        let polls = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&polls);
        let (sender, mut receiver) = oneshot::channel();
        let flight = Arc::new(Flight::new(std::future::poll_fn(move |cx| {
            count.fetch_add(1, Ordering::SeqCst);
            Pin::new(&mut receiver)
                .poll(cx)
                .map(|sent| sent.unwrap_or(0))
        })));
        let mut task = Task::new(&flight);
        for _ in 0..3 {
            assert!(task.poll().is_pending());
        }
        assert_eq!(polls.load(Ordering::SeqCst), 1);
        sender.send(7).unwrap();
        assert_eq!((task.woken(), task.poll()), (1, Poll::Ready(7)));
    }

    #[test]
    fn many_waiters_on_several_threads_lose_no_wake() {
        for round in 0..50 {
            let (sender, flight) = flight();
            let runtime = || {
                let mut runtime = tokio::runtime::Builder::new_current_thread();
                runtime.build().unwrap()
            };
            let threads: Vec<_> = (0..3)
                .map(|_| {
                    let waiters: Vec<_> = (0..8).map(|_| Arc::clone(&flight).wait()).collect();
                    thread::spawn(move || {
                        runtime().block_on(async {
                            let tasks: Vec<_> = waiters.into_iter().map(tokio::spawn).collect();
                            for (number, task) in tasks.into_iter().enumerate() {
                                if number % 3 == 2 {
                                    task.abort();
                                } else {
                                    assert_eq!(task.await.unwrap(), round);
                                }
                            }
                        });
                    })
                })
                .collect();
            sender.send(round).unwrap();
            for thread in threads {
                thread.join().unwrap();
            }
        }
    }
}
