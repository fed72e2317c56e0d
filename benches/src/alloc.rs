//! An allocator that counts.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator. Counts what each thread asks for, and what of it is not given back.
pub struct Counting;

thread_local! {
    static CALLS: Cell<u64> = const { Cell::new(0) };
    static LIVE: Cell<i64> = const { Cell::new(0) };
}

/// What a piece of work did on this thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Count {
    /// Allocations and reallocations.
    pub allocations: u64,
    /// Bytes allocated and still held at its end.
    pub held: i64,
}

/// Counts what `work` allocates.
pub fn count<T>(work: impl FnOnce() -> T) -> (T, Count) {
    let (calls, live) = (CALLS.get(), LIVE.get());
    let done = work();
    let count = Count {
        allocations: CALLS.get() - calls,
        held: LIVE.get() - live,
    };
    (done, count)
}

/// Allocations of this thread up to now.
pub fn allocations() -> u64 {
    CALLS.get()
}

fn asked(bytes: usize) {
    CALLS.set(CALLS.get() + 1);
    LIVE.set(LIVE.get() + bytes as i64);
}

fn gave_back(bytes: usize) {
    LIVE.set(LIVE.get() - bytes as i64);
}

// SAFETY: every call goes to the system's allocator as it is; the counters are plain cells without a
// destructor, so they can be used at any time of a thread's life, and they allocate nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        asked(layout.size());
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        asked(layout.size());
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        gave_back(layout.size());
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        gave_back(layout.size());
        asked(size);
        unsafe { System.realloc(at, layout, size) }
    }
}
