//! Callbacks of libpmix, called once each, on libpmix's own thread.
//!
//! Before 5.0.10 they are not safe to be called from other threads. The callback of `PMIx_server_deregister_client` is
//! known to run on libpmix's thread; for an unknown namespace that function does nothing else.

#![expect(unsafe_code, reason = "calls back into C")]

use std::collections::VecDeque;
use std::ffi::{c_char, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use penstock_pmix::response::Response;
use penstock_pmix::{Outgoing, status};

use super::ffi;
use super::native::{Infos, proc};

/// The `cbdata` that libpmix gets back with a response.
#[derive(Debug)]
pub struct CallbackData(pub *mut c_void);

// SAFETY: the pointer is only handed back, never dereferenced.
unsafe impl Send for CallbackData {}

/// A callback that has not been called; calling it consumes it.
pub enum Callback {
    /// Takes a status and attributes.
    Info(ffi::InfoCallback, CallbackData),
    /// Takes a status.
    Op(ffi::OpCallback, CallbackData),
    /// Takes a status and the data of a fence.
    Modex(ffi::ModexCallback, CallbackData, Vec<u8>),
    /// Sends this response to the instance, which checks that libpmix's thread runs.
    Ping(Sender<Outgoing>, Vec<u8>),
    /// Wakes a thread of this server that checks the same.
    Thread(Sender<()>),
}

struct Call {
    callback: Callback,
    response: Response,
}

#[derive(Default)]
struct Queue {
    calls: VecDeque<Call>,
    /// Whether libpmix is about to call [`run_queue`].
    is_scheduled: bool,
}

/// Counts of calls, and of arrays lent to libpmix and returned by it.
#[derive(Debug, Default)]
pub struct Counts {
    /// Callbacks called.
    pub answered: AtomicU64,
    /// Arrays lent.
    pub lent: AtomicU64,
    /// Arrays returned.
    pub back: AtomicU64,
}

/// The calls that wait for libpmix's thread.
pub struct Callbacks {
    /// An unknown process, by which libpmix's thread is reached.
    no_process: ffi::Proc,
    queue: Mutex<Queue>,
    /// The counts so far.
    pub counts: Counts,
}

static CALLBACKS: LazyLock<Callbacks> = LazyLock::new(Callbacks::default);

/// The calls of this process, for functions that C calls.
pub fn callbacks() -> &'static Callbacks {
    &CALLBACKS
}

impl Default for Callbacks {
    fn default() -> Self {
        Self {
            no_process: proc(c"penstock.no-process", 0),
            queue: Mutex::default(),
            counts: Counts::default(),
        }
    }
}

impl Callbacks {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a callback called with this response, on libpmix's thread.
    pub fn enqueue(&'static self, callback: Callback, response: Response) {
        for error in &response.errors {
            eprintln!("penstock-pmix: response: {error}");
        }
        let mut queue = self.queue();
        queue.calls.push_back(Call { callback, response });
        self.schedule(queue);
    }

    fn schedule(&'static self, mut queue: MutexGuard<'_, Queue>) {
        if queue.is_scheduled {
            return;
        }
        queue.is_scheduled = true;
        drop(queue);
        // SAFETY: the process is copied; `run_queue` uses this object only, which lives as long as the process.
        unsafe {
            ffi::PMIx_server_deregister_client(
                &raw const self.no_process,
                Some(run_queue),
                ptr::from_ref(self).cast_mut().cast(),
            );
        }
    }

    /// Lends an array of attributes to libpmix, and counts it.
    pub fn lend(&self, infos: Infos) -> *mut Infos {
        self.counts.lent.fetch_add(1, Ordering::Relaxed);
        Box::into_raw(Box::new(infos))
    }

    /// Frees a lent array.
    ///
    /// # Safety
    /// `infos` came from [`Self::lend`], and is freed once.
    pub unsafe fn free_lent(&self, infos: *mut Infos) {
        // SAFETY: as the caller promises.
        drop(unsafe { Box::from_raw(infos) });
        self.counts.back.fetch_add(1, Ordering::Relaxed);
    }

    fn call_all(&'static self) {
        let calls = {
            let mut queue = self.queue();
            queue.is_scheduled = false;
            std::mem::take(&mut queue.calls)
        };
        for Call { callback, response } in calls {
            self.call(callback, &response);
        }
    }

    fn call(&'static self, callback: Callback, response: &Response) {
        self.counts.answered.fetch_add(1, Ordering::Relaxed);
        match callback {
            // Without the writing thread the server is ending.
            Callback::Ping(outgoing, frame) => drop(outgoing.send(Outgoing::Frame(frame))),
            // A thread that has stopped waiting needs no wake-up.
            Callback::Thread(waker) => drop(waker.send(())),
            Callback::Op(Some(callback), CallbackData(cbdata)) => {
                // SAFETY: on libpmix's thread, once, with its own data.
                unsafe { callback(response.status, cbdata) };
            }
            Callback::Info(Some(callback), CallbackData(cbdata)) => {
                let mut errors = Vec::new();
                let infos = Infos::new(&response.infos, &mut errors);
                for error in errors {
                    eprintln!("penstock-pmix: response: {error}");
                }
                let (first, count) = (infos.first(), infos.count());
                let lent = self.lend(infos);
                // SAFETY: as above; the attributes live until the library calls `release`, which it does once.
                unsafe {
                    callback(
                        response.status,
                        first,
                        count,
                        cbdata,
                        Some(release),
                        lent.cast(),
                    );
                }
            }
            Callback::Modex(Some(callback), CallbackData(cbdata), data) => {
                let (first, size) = (data.as_ptr().cast::<c_char>(), data.len());
                let lent = Box::into_raw(Box::new(data)).cast();
                self.counts.lent.fetch_add(1, Ordering::Relaxed);
                // SAFETY: as above; the data lives until the library calls `release_data`, which it does once.
                unsafe {
                    callback(
                        response.status,
                        first,
                        size,
                        cbdata,
                        Some(release_data),
                        lent,
                    );
                }
            }
            // libpmix needs no call.
            Callback::Op(None, _) | Callback::Info(None, _) | Callback::Modex(None, ..) => {}
        }
    }

    /// Notifies all clients that a request has ended.
    pub fn notify(&'static self, source: &ffi::Proc, response: &Response) {
        let mut errors = response.errors.clone();
        let infos = Infos::new(&response.infos, &mut errors);
        for error in errors {
            eprintln!("penstock-pmix: event: {error}");
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
                eprintln!("penstock-pmix: event not sent: status {code}");
            }
            // SAFETY: the library will not call `notified`.
            unsafe { self.free_lent(lent) };
        }
    }
}

/// Calls the queued callbacks; runs on libpmix's thread.
unsafe extern "C" fn run_queue(status: c_int, cbdata: *mut c_void) {
    // SAFETY: `schedule` hands over a reference that lives as long as the process.
    let callbacks: &'static Callbacks = unsafe { &*cbdata.cast::<Callbacks>().cast_const() };
    if status != ffi::SUCCESS {
        // Called within `schedule`, since libpmix has failed; the next call tries again.
        eprintln!("penstock-pmix: libpmix's thread cannot be reached: status {status}");
        callbacks.queue().is_scheduled = false;
        return;
    }
    callbacks.call_all();
}

/// Takes the attributes of a response back from libpmix.
unsafe extern "C" fn release(cbdata: *mut c_void) {
    // SAFETY: `call` hands over what `lend` made, and the library calls this once for it.
    unsafe { callbacks().free_lent(cbdata.cast()) };
}

/// Takes the data of a fence back from libpmix.
unsafe extern "C" fn release_data(cbdata: *mut c_void) {
    // SAFETY: `call` hands over a boxed vector, and the library calls this once for it.
    drop(unsafe { Box::from_raw(cbdata.cast::<Vec<u8>>()) });
    let counts = &callbacks().counts;
    counts.back.fetch_add(1, Ordering::Relaxed);
}

/// Takes the attributes of an event back from libpmix.
unsafe extern "C" fn notified(_status: c_int, cbdata: *mut c_void) {
    // SAFETY: `notify` hands over what `lend` made, and the library calls this once for it.
    unsafe { callbacks().free_lent(cbdata.cast()) };
}
