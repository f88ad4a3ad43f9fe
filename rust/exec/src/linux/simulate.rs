//! Simulated execution as a process of its own: the event loop around [`MockExec`].

use std::collections::BTreeSet;
use std::io;

use penstock_mockexec::MockExec;
use penstock_wire::{Message, MessageType};
use rustix::event::{Timespec, poll};

use super::broker::{Backoff, Broker, Server, log, now};
use crate::Error;

/// The options of simulated execution.
#[derive(Debug, Clone)]
pub struct SimulationOptions {
    /// The instance's address, `local:///PATH`.
    pub uri: String,
    /// The users whose instance it may be, beside this one and root.
    pub server_users: BTreeSet<u32>,
    /// The name under which the service registers.
    pub name: String,
}

/// Simulates the jobs of an instance until the process is killed. When the instance goes away, it reconnects.
///
/// # Errors
///
/// Fails if there is no instance, or if the instance rejects the registration.
pub fn run_simulation(options: &SimulationOptions) -> Result<(), Error> {
    let server = Server::new(&options.uri, &options.server_users)?;
    let failed = |error: io::Error| Error::system("the service failed", &error);
    let mut broker = Broker::connect(&server)?;
    loop {
        let mut simulation = Simulation::new(broker, &options.name);
        let error = simulation.serve().map_err(failed)?;
        if let Some(text) = simulation.exec.failure() {
            return Err(Error::directory(text.to_owned()));
        }
        log(&format!("the instance closed the connection: {error}"));
        let mut backoff = Backoff::default();
        broker = loop {
            backoff.record_failure();
            std::thread::sleep(backoff.remaining());
            if let Ok(broker) = Broker::connect(&server) {
                break broker;
            }
        };
    }
}

/// Simulated execution over one connection: the next one gets the start requests of running jobs again.
struct Simulation {
    exec: MockExec,
    broker: Broker,
    /// The number of unanswered requests of its registration.
    unanswered: usize,
}

impl Simulation {
    fn new(broker: Broker, name: &str) -> Self {
        let exec = MockExec::new(name);
        let requests = exec.start();
        let mut simulation = Self {
            exec,
            broker,
            unanswered: requests.len(),
        };
        simulation.send(requests);
        simulation
    }

    /// Serves the connection until it is lost, and returns why; the registration may have failed meanwhile.
    fn serve(&mut self) -> io::Result<io::Error> {
        loop {
            let mut out = Vec::new();
            self.exec.advance(now(), &mut out);
            self.send(out);
            if let Err(error) = self.broker.flush() {
                return Ok(error);
            }
            self.wait()?;
            let mut messages = Vec::new();
            let received = self.broker.receive(&mut messages);
            for message in &messages {
                self.handle(message);
            }
            if let Err(error) = received {
                return Ok(error);
            }
            if let Some(text) = self.exec.failure() {
                return Ok(io::Error::other(text.to_owned()));
            }
        }
    }

    fn handle(&mut self, message: &Message) {
        let mut out = Vec::new();
        self.exec.handle(message, now(), &mut out);
        self.send(out);
        if message.kind == MessageType::Response && message.errnum() == 0 && self.unanswered > 0 {
            self.unanswered -= 1;
            if self.unanswered == 0 {
                log("ready, execution is simulated");
            }
        }
    }

    fn send(&mut self, messages: Vec<Message>) {
        for message in messages {
            self.broker.send(&message);
        }
    }

    /// Waits for a message, for room to send, or for the end of a job.
    fn wait(&self) -> io::Result<()> {
        let timeout = self.exec.deadline().map(|at| {
            let seconds = (at - now()).max(0.0);
            let timeout = std::time::Duration::try_from_secs_f64(seconds).unwrap_or_default();
            Timespec {
                tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: i64::from(timeout.subsec_nanos()),
            }
        });
        match poll(&mut [self.broker.poll_fd()], timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}
