//! The service `hooks`, as `python/penstock/instance/hooks.py`: commands that run until a step of the script ends them. They
//! do not outlive the daemon.

use std::collections::BTreeSet;

use penstock_flux::hooks::{CancelRequest, HookRequest, HookResponse};
use penstock_flux::{RequestError, topic};
use penstock_rset::ResourceSet;
use penstock_wire::{Message, MessageType};

use crate::site::{Core, cores_of};

/// Seconds from SIGTERM to SIGKILL.
const KILL_DELAY_S: f64 = 5.0;
const SIGTERM: i64 = 15;

/// A command, or one that is queued behind another one of its job.
struct Command {
    request: Message,
    job: u64,
    is_prolog: bool,
    cores: BTreeSet<Core>,
    /// When it is killed, if it was cancelled.
    kill_at: Option<f64>,
    /// The requests that are answered when it has ended.
    cancellations: Vec<Message>,
}

/// A command that runs.
pub struct RunningHook<'a> {
    /// Its job.
    pub job: u64,
    /// The resources of the job.
    pub cores: &'a BTreeSet<Core>,
}

/// The commands, in the order of their requests: the first one of each job runs.
#[derive(Default)]
pub struct HookRunner {
    commands: Vec<Command>,
    /// The jobs whose prolog has succeeded.
    prepared: Vec<u64>,
}

impl HookRunner {
    /// Handles a message. Returns the responses to be sent.
    pub fn handle(&mut self, message: &Message, now: f64) -> Vec<Message> {
        if message.kind != MessageType::Request {
            return Vec::new();
        }
        match message.topic() {
            topic::hooks::PROLOG | topic::hooks::EPILOG => match command(message) {
                Ok(command) => self.commands.push(command),
                Err(error) => {
                    return vec![Message::error_to(message, error.errnum, &error.text)];
                }
            },
            topic::hooks::CANCEL => {
                if let Ok(CancelRequest { id }) = message.read_request() {
                    let mut commands = self.commands.iter_mut().rev();
                    match commands.find(|command| command.job == id.get()) {
                        Some(command) => {
                            command.cancel(now);
                            if !message.is_noresponse() {
                                command.cancellations.push(message.header());
                            }
                        }
                        None if message.is_noresponse() => {}
                        None => return vec![Message::response_to(message, 0, None)],
                    }
                }
            }
            _ if message.method() == topic::DISCONNECT => {
                let origin = message.origin();
                for command in &mut self.commands {
                    if command.request.origin() == origin {
                        command.cancel(now);
                    }
                }
            }
            _ => {}
        }
        self.advance(now)
    }

    /// The positions of the commands that run.
    fn running(&self) -> Vec<usize> {
        let mut jobs = BTreeSet::new();
        let commands = self.commands.iter().enumerate();
        let first = commands.filter(|(_, command)| jobs.insert(command.job));
        first.map(|(position, _)| position).collect()
    }

    /// The commands that run.
    pub fn hooks(&self) -> impl Iterator<Item = RunningHook<'_>> {
        let running = self.running().into_iter();
        let commands = running.filter_map(|position| self.commands.get(position));
        commands.map(|command| RunningHook {
            job: command.job,
            cores: &command.cores,
        })
    }

    /// Ends a command that runs. Returns the responses to be sent.
    pub fn end(&mut self, index: usize, code: u8, now: f64) -> Vec<Message> {
        let running = self.running();
        let found = index.checked_rem(running.len());
        let Some(position) = found.and_then(|found| running.get(found)) else {
            return Vec::new();
        };
        let mut responses = self.finish(*position, i64::from(code) << 8);
        responses.extend(self.advance(now));
        responses
    }

    fn finish(&mut self, position: usize, status: i64) -> Vec<Message> {
        let command = self.commands.remove(position);
        if command.is_prolog && status == 0 {
            self.prepared.push(command.job);
        }
        let note = if status == 0 { "" } else { "it has failed" };
        let response = HookResponse {
            id: None,
            status,
            note: note.into(),
        };
        let ended = Message::response_to(&command.request, 0, None).with_payload(&response);
        let cancelled = command.cancellations.iter();
        let cancelled = cancelled.map(|request| Message::response_to(request, 0, None));
        std::iter::once(ended).chain(cancelled).collect()
    }

    /// Ends the cancelled commands that are killed by now, or begin now. Returns the responses to be sent.
    pub fn advance(&mut self, now: f64) -> Vec<Message> {
        let mut responses = Vec::new();
        loop {
            let mut running = self.running().into_iter();
            let is_over = |position: &usize| {
                let command = self.commands.get(*position);
                command.is_some_and(|command| command.kill_at.is_some_and(|at| at <= now))
            };
            let Some(position) = running.find(is_over) else {
                return responses;
            };
            responses.extend(self.finish(position, SIGTERM));
        }
    }

    /// When [`advance`](Self::advance) is due.
    pub fn deadline(&self) -> Option<f64> {
        let times = self.commands.iter().filter_map(|command| command.kill_at);
        times.min_by(f64::total_cmp)
    }

    /// Takes the jobs whose prolog has succeeded.
    pub fn take_prepared(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.prepared)
    }
}

impl Command {
    fn cancel(&mut self, now: f64) {
        self.kill_at.get_or_insert(now + KILL_DELAY_S);
    }
}

fn command(request: &Message) -> Result<Command, RequestError> {
    let hook: HookRequest<'_> = request.read_request()?;
    let r = hook.r.ok_or_else(|| RequestError::invalid("no R"))?;
    let r = ResourceSet::from_json(r.as_str());
    let r = r.map_err(|error| RequestError::invalid(error.to_string()))?;
    Ok(Command {
        request: request.header(),
        job: hook.id.get(),
        is_prolog: request.topic() == topic::hooks::PROLOG,
        cores: cores_of(&r),
        kill_at: None,
        cancellations: Vec::new(),
    })
}
