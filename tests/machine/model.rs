//! The reference: straight code, which knows nothing of the machine.

use std::convert::Infallible;

use crate::scenario::{
    Answer, DISCARD, Delivered, Download, End, Ends, Ms, Observed, Read, Ready, Scenario, Seen,
    Upload,
};

pub(crate) fn model(scenario: &Scenario) -> Seen {
    let mut call = Call {
        s: scenario,
        now: 0,
        deadline: Ms::MAX,
        sent: 0,
        tokens: scenario.tokens,
        lent: 0,
        told: 0,
        ended: 0,
    };
    let Err(answer) = call.run();
    Seen {
        answer,
        at: call.now,
        sent: call.sent,
        tokens: call.tokens + call.lent,
        told: (call.told, call.ended),
    }
}

struct Call<'a> {
    s: &'a Scenario,
    now: Ms,
    /// From the call, not from the wait for the first readiness.
    deadline: Ms,
    sent: u32,
    tokens: u32,
    /// Withdrawn for an attempt that was not sent yet: it goes back, whatever ends the call.
    lent: u32,
    told: u32,
    ended: u32,
}

/// How an attempt ended.
#[derive(Clone, Copy)]
enum Outcome {
    Response(u16, Rest),
    Broken(u16),
    NotSent { permanent: bool },
    Reset,
}

/// When a response body ends that somebody reads without a pause, and how.
#[derive(Clone, Copy)]
struct Rest {
    at: Ms,
    end: End,
}

/// What is left of the last real outcome.
#[derive(Clone, Copy)]
enum Last {
    Response(u16, Rest),
    /// A head without its body.
    Head,
    NotSent,
    Reset,
}

impl Call<'_> {
    /// One attempt after the other, until something ends the call.
    fn run(&mut self) -> Result<Infallible, Answer> {
        match self.s.behaviours[0].ready {
            Ready::Fails => return Err(Answer::NotReady),
            Ready::After(time) => self.pass(time)?,
            Ready::PanicsAfter(time) => {
                self.pass(time)?;
                return Err(Answer::Panicked);
            }
        }
        let after = |limit: Option<Ms>, now: Ms| limit.map_or(Ms::MAX, |limit| now + limit);
        self.deadline = after(self.s.deadline, self.now);
        let mut last = None;
        let mut consumed = false;
        for number in 1.. {
            let behaviour = self.s.behaviours[number as usize - 1];
            let timeout = after(self.s.attempt_timeout, self.now);
            let in_time = match last {
                None => true,
                Some(last) => self.ready(behaviour.ready, timeout, last)?,
            };
            if in_time {
                self.lent = 0;
                consumed |=
                    self.s.upload == Upload::OneShot && behaviour.ends != Ends::NotSentUnread;
                let outcome = self.attempt(behaviour.takes, behaviour.ends, timeout)?;
                last = Some(self.judge(number, outcome, None, consumed)?);
            } else {
                let outcome = Outcome::NotSent { permanent: false };
                last = Some(self.judge(number, outcome, last, consumed)?);
            }
        }
        unreachable!("one behaviour for each attempt")
    }

    /// A retry waits for readiness. `false`: for so long that it is never sent.
    fn ready(&mut self, ready: Ready, timeout: Ms, last: Last) -> Result<bool, Answer> {
        let time = match ready {
            Ready::Fails => return Err(self.answer(last)),
            Ready::After(time) | Ready::PanicsAfter(time) => self.now + time,
        };
        let drain = self.s.drain.unwrap_or(Ms::MAX);
        let first = time.min(timeout).min(self.deadline).min(drain);
        self.pass_until(first)?;
        if first == self.deadline || first == drain {
            return Err(self.answer(last));
        }
        if first == timeout {
            self.tokens += std::mem::take(&mut self.lent);
            return Ok(false);
        }
        match ready {
            Ready::PanicsAfter(_) => Err(Answer::Panicked),
            Ready::Fails | Ready::After(_) => Ok(true),
        }
    }

    /// The inner service has the request.
    fn attempt(&mut self, takes: Ms, ends: Ends, timeout: Ms) -> Result<Outcome, Answer> {
        self.sent += 1;
        let takes = match ends {
            Ends::PanicsInCall => return Err(Answer::Panicked),
            Ends::Never => Ms::MAX,
            _ => self.now + takes,
        };
        let first = takes.min(timeout).min(self.deadline);
        self.pass_until(first)?;
        if first != takes {
            return Ok(Outcome::Reset);
        }
        match ends {
            Ends::Status(status, body) => self.read(status, body),
            Ends::NotSent | Ends::NotSentUnread => Ok(Outcome::NotSent { permanent: false }),
            Ends::Certificate => Ok(Outcome::NotSent { permanent: true }),
            Ends::Reset => Ok(Outcome::Reset),
            Ends::Panics => Err(Answer::Panicked),
            Ends::Never | Ends::PanicsInCall => unreachable!("it takes for ever, or no time"),
        }
    }

    /// The head is here; the body is read as far as delivery wants it.
    fn read(&mut self, status: u16, body: Option<Download>) -> Result<Outcome, Answer> {
        let Some(body) = body else {
            return Ok(Outcome::Response(status, self.whole()));
        };
        let byte = self.now + body.byte_after.unwrap_or(0);
        let rest = Rest {
            at: byte + body.ends_after,
            end: body.end,
        };
        let to_the_end = match self.s.delivered {
            Delivered::AtHeaders => return Ok(Outcome::Response(status, rest)),
            Delivered::AtFirstByte => body.byte_after.is_none(),
            Delivered::Whole => true,
        };
        let until = if to_the_end { rest.at } else { byte };
        self.pass_until(until.min(self.deadline))?;
        if self.now != until {
            return Ok(Outcome::Broken(status));
        }
        match rest.end {
            _ if !to_the_end => Ok(Outcome::Response(status, rest)),
            End::Clean => Ok(Outcome::Response(status, self.whole())),
            End::Breaks => Ok(Outcome::Broken(status)),
            End::Panics => Err(Answer::Panicked),
        }
    }

    /// The attempt is over. What is left of it at the end of the wait, where another one follows.
    /// `earlier`: the last real outcome, where this attempt never came to be one.
    fn judge(
        &mut self,
        number: u32,
        outcome: Outcome,
        earlier: Option<Last>,
        consumed: bool,
    ) -> Result<Last, Answer> {
        self.tell()?;
        let safe = !self.s.post;
        let broken = Rest {
            at: self.now,
            end: End::Breaks,
        };
        let stays = earlier.unwrap_or(match outcome {
            Outcome::Response(status, rest) => Last::Response(status, rest),
            Outcome::Broken(status) => Last::Response(status, broken),
            Outcome::NotSent { .. } => Last::NotSent,
            Outcome::Reset => Last::Reset,
        });
        let retryable = match outcome {
            Outcome::Response(429, _) | Outcome::Broken(429) => true,
            Outcome::Response(500 | 503, _) | Outcome::Broken(500 | 503 | 200) => safe,
            Outcome::Response(..) | Outcome::Broken(_) => false,
            Outcome::NotSent { permanent } => !permanent,
            Outcome::Reset => safe,
        };
        let wake = self.now + (100 << (number - 1));
        let drain = self.s.drain.unwrap_or(Ms::MAX);
        if !retryable
            || number > self.s.retries
            || self.tokens == 0
            || consumed
            || drain <= self.now
            || self.deadline < wake
        {
            return Err(self.answer(stays));
        }
        self.tokens -= 1;
        self.lent = 1;
        let stays = match (stays, earlier, outcome) {
            (_, None, Outcome::Broken(_)) => Last::Head,
            (Last::Response(status, rest), None, _) => self.discard(status, rest)?,
            (stays, ..) => stays,
        };
        self.pass_until(wake.min(drain))?;
        if self.now == drain {
            return Err(self.answer(stays));
        }
        Ok(stays)
    }

    /// A failed response is read out before the wait, and kept if all of it came.
    fn discard(&mut self, status: u16, rest: Rest) -> Result<Last, Answer> {
        let drain = self.s.drain.unwrap_or(Ms::MAX);
        let first = rest.at.max(self.now).min(self.now + DISCARD);
        self.pass_until(first.min(drain))?;
        if self.now == drain {
            return Err(self.answer(Last::Response(status, rest)));
        }
        match rest.end {
            _ if first < rest.at => Ok(Last::Head),
            End::Clean => Ok(Last::Response(status, self.whole())),
            End::Breaks => Ok(Last::Head),
            End::Panics => Err(Answer::Panicked),
        }
    }

    /// What the caller gets. An operation that must not be repeated was not sent again after an
    /// attempt of unknown execution: so only the last real outcome counts.
    fn answer(&mut self, last: Last) -> Answer {
        if self.s.observed != Observed::ByNobody {
            self.ended += 1;
        }
        match last {
            _ if self.s.observed == Observed::PanicsAtEnd => Answer::Panicked,
            Last::Response(503, _) if self.s.post => Answer::Ambiguous,
            Last::Response(status, rest) => {
                let at = rest.at.max(self.now);
                match (self.s.drop, rest.end) {
                    (Some(drop), _) if drop < at => Answer::Ok(status, Read::Dropped, drop),
                    (_, End::Clean) => Answer::Ok(status, Read::Whole, at),
                    (_, End::Breaks) => Answer::Ok(status, Read::Broken, at),
                    (_, End::Panics) => Answer::Ok(status, Read::Panicked, at),
                }
            }
            Last::Reset if self.s.post => Answer::Ambiguous,
            Last::Head | Last::NotSent | Last::Reset => Answer::Failed,
        }
    }

    fn tell(&mut self) -> Result<(), Answer> {
        match self.s.observed {
            Observed::ByNobody => return Ok(()),
            Observed::Quietly | Observed::PanicsAtEnd | Observed::PanicsAtAttempt(_) => {
                self.told += 1;
            }
        }
        if self.s.observed == Observed::PanicsAtAttempt(self.told) {
            return Err(Answer::Panicked);
        }
        Ok(())
    }

    fn whole(&self) -> Rest {
        Rest {
            at: self.now,
            end: End::Clean,
        }
    }

    fn pass(&mut self, time: Ms) -> Result<(), Answer> {
        self.pass_until(self.now + time)
    }

    /// Time passes, unless the caller loses interest.
    fn pass_until(&mut self, at: Ms) -> Result<(), Answer> {
        let drop = self.s.drop.unwrap_or(Ms::MAX);
        self.now = at.min(drop);
        if drop < at {
            return Err(Answer::Dropped);
        }
        Ok(())
    }
}
