//! Answers to libpmix: given on its own thread, each once.
//!
//! Its callbacks are not safe to be called from other threads before 5.0.10. What is known to come back on its thread
//! is the callback of `PMIx_server_deregister_client`, which for a namespace that nobody has does nothing else.

#![expect(unsafe_code, reason = "calls back into C")]

use std::collections::VecDeque;
use std::ffi::{c_char, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Mutex, MutexGuard, PoisonError};

use penstock_pmix::answer::Answer;
use penstock_pmix::status;

use super::ffi;
use super::native::{Infos, proc};

/// What libpmix wants back with an answer.
#[derive(Debug)]
pub struct Cookie(pub *mut c_void);

// SAFETY: it is only handed back, never looked into.
unsafe impl Send for Cookie {}

/// A callback that has not been called; calling it uses it up.
pub enum Caller {
    /// Wants a status and attributes.
    Info(ffi::InfoCallback, Cookie),
    /// Wants a status.
    Op(ffi::OpCallback, Cookie),
    /// Wants the data that all have put in.
    Modex(ffi::ModexCallback, Cookie, Vec<u8>),
    /// Is the instance, which wants to know that the library's thread goes on: its response.
    Ping(Vec<u8>),
    /// Is a thread of ours that wants to know the same.
    Thread(Sender<()>),
}

struct Due {
    caller: Caller,
    answer: Answer,
}

#[derive(Default)]
struct Queue {
    due: VecDeque<Due>,
    /// Whether a call of [`give`] is under way.
    called: bool,
}

/// How many answers, and arrays lent to the library and let go of.
#[derive(Debug, Default)]
pub struct Counts {
    /// Answers given.
    pub answered: AtomicU64,
    /// Arrays lent.
    pub lent: AtomicU64,
    /// Arrays back.
    pub back: AtomicU64,
}

/// The answers that wait for the library's thread.
pub struct Answers {
    /// Nobody's name, by which the library's thread is reached.
    nobody: ffi::Proc,
    queue: Mutex<Queue>,
    /// What has happened.
    pub counts: Counts,
}

impl Default for Answers {
    fn default() -> Self {
        Self {
            nobody: proc(c"penstock.nobody", 0),
            queue: Mutex::default(),
            counts: Counts::default(),
        }
    }
}

impl Answers {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a caller answered.
    pub fn put(&'static self, caller: Caller, answer: Answer) {
        for fault in &answer.faults {
            eprintln!("penstock-pmix: answer: {fault}");
        }
        let mut queue = self.queue();
        queue.due.push_back(Due { caller, answer });
        self.call(queue);
    }

    fn call(&'static self, mut queue: MutexGuard<'_, Queue>) {
        if queue.called {
            return;
        }
        queue.called = true;
        drop(queue);
        // SAFETY: the process is copied; `give` looks at this object only, which lives as long as the process.
        unsafe {
            ffi::PMIx_server_deregister_client(
                &raw const self.nobody,
                Some(give),
                ptr::from_ref(self).cast_mut().cast(),
            );
        }
    }

    /// Counts an array of attributes that is lent to the library.
    pub fn lend(&self, infos: Infos) -> *mut Infos {
        self.counts.lent.fetch_add(1, Ordering::Relaxed);
        Box::into_raw(Box::new(infos))
    }

    /// Takes one back.
    ///
    /// # Safety
    /// `infos` came from [`Self::lend`], and comes back for the first time.
    pub unsafe fn take_back(&self, infos: *mut Infos) {
        // SAFETY: as the caller promises.
        drop(unsafe { Box::from_raw(infos) });
        self.counts.back.fetch_add(1, Ordering::Relaxed);
    }

    fn give_all(&'static self) {
        let due = {
            let mut queue = self.queue();
            queue.called = false;
            std::mem::take(&mut queue.due)
        };
        for Due { caller, answer } in due {
            self.give(caller, &answer);
        }
    }

    fn give(&'static self, caller: Caller, answer: &Answer) {
        self.counts.answered.fetch_add(1, Ordering::Relaxed);
        match caller {
            Caller::Ping(response) => super::server().send(response),
            // Where it waits no more, nobody wants to know.
            Caller::Thread(told) => drop(told.send(())),
            Caller::Op(Some(callback), Cookie(cookie)) => {
                // SAFETY: on the library's thread, once, with what it gave us.
                unsafe { callback(answer.status, cookie) };
            }
            Caller::Info(Some(callback), Cookie(cookie)) => {
                let mut faults = Vec::new();
                let infos = Infos::new(&answer.infos, &mut faults);
                for fault in faults {
                    eprintln!("penstock-pmix: answer: {fault}");
                }
                let (first, count) = (infos.first(), infos.count());
                let lent = self.lend(infos);
                // SAFETY: as above; the attributes live until the library calls `release`, which it does once.
                unsafe {
                    callback(
                        answer.status,
                        first,
                        count,
                        cookie,
                        Some(release),
                        lent.cast(),
                    );
                }
            }
            Caller::Modex(Some(callback), Cookie(cookie), data) => {
                let (first, size) = (data.as_ptr().cast::<c_char>(), data.len());
                let lent = Box::into_raw(Box::new(data)).cast();
                self.counts.lent.fetch_add(1, Ordering::Relaxed);
                // SAFETY: as above; the data lives until the library calls `release_data`, which it does once.
                unsafe {
                    callback(answer.status, first, size, cookie, Some(release_data), lent);
                }
            }
            // Nobody wants to know.
            Caller::Op(None, _) | Caller::Info(None, _) | Caller::Modex(None, ..) => {}
        }
    }

    /// Tells all clients that a request is over.
    pub fn notify(&'static self, source: &ffi::Proc, answer: &Answer) {
        let mut faults = answer.faults.clone();
        let infos = Infos::new(&answer.infos, &mut faults);
        for fault in faults {
            eprintln!("penstock-pmix: event: {fault}");
        }
        let (first, count) = (infos.first(), infos.count());
        let lent = self.lend(infos);
        // SAFETY: the attributes live until `notified`, which is called once, or not at all if the call fails.
        let code = unsafe {
            ffi::PMIx_Notify_event(
                status::NOTIFY_ALLOC_COMPLETE,
                source,
                ffi::RANGE_LOCAL,
                first,
                count,
                Some(notified),
                lent.cast(),
            )
        };
        if code != ffi::SUCCESS {
            if code != ffi::OPERATION_SUCCEEDED {
                eprintln!("penstock-pmix: event not told: status {code}");
            }
            // SAFETY: the library will not call `notified`.
            unsafe { self.take_back(lent) };
        }
    }
}

/// On the library's thread: gives the answers that are due.
unsafe extern "C" fn give(status: c_int, cbdata: *mut c_void) {
    // SAFETY: `call` hands over a reference that lives as long as the process.
    let answers: &'static Answers = unsafe { &*cbdata.cast::<Answers>().cast_const() };
    if status != ffi::SUCCESS {
        // Called by `call` itself, since the library cannot; the next answer tries again.
        eprintln!("penstock-pmix: the library's thread cannot be reached: status {status}");
        answers.queue().called = false;
        return;
    }
    answers.give_all();
}

/// The library is done with the attributes of an answer.
unsafe extern "C" fn release(cbdata: *mut c_void) {
    // SAFETY: `give` hands over what `lend` made, and the library calls this once for it.
    unsafe { super::server().answers.take_back(cbdata.cast()) };
}

/// The library is done with the data of a fence.
unsafe extern "C" fn release_data(cbdata: *mut c_void) {
    // SAFETY: `give` hands over a boxed vector, and the library calls this once for it.
    drop(unsafe { Box::from_raw(cbdata.cast::<Vec<u8>>()) });
    let counts = &super::server().answers.counts;
    counts.back.fetch_add(1, Ordering::Relaxed);
}

/// The library is done with the attributes of an event.
unsafe extern "C" fn notified(_status: c_int, cbdata: *mut c_void) {
    // SAFETY: `notify` hands over what `lend` made, and the library calls this once for it.
    unsafe { super::server().answers.take_back(cbdata.cast()) };
}
