//! An input as the facts that `decide` gets.

use std::num::NonZeroU32;
use std::time::Duration;

use http::{HeaderName, HeaderValue, Request, Response, request, response};
use tower_http_retry::{BodyState, Facts, Failure, Policy, Verdict, decide};

use crate::input::{Deadline, Ended, Hint, Input, Number, STATUSES};

pub(crate) const LONG: Duration = Duration::from_secs(21);
pub(crate) const TIGHT: Duration = Duration::from_millis(10);
pub(crate) const SHORT: Duration = Duration::from_millis(3);

pub(crate) static STOP: HeaderName = HeaderName::from_static("x-stop");
pub(crate) static REFUSED: HeaderName = HeaderName::from_static("x-refused");
pub(crate) const YES: HeaderValue = HeaderValue::from_static("yes");

/// The heads of all inputs.
pub(crate) struct Heads {
    /// By `early_data`.
    requests: [request::Parts; 2],
    /// By `stop` and `refused`, then by status.
    responses: [[Vec<response::Parts>; 2]; 2],
}

impl Heads {
    pub(crate) fn new() -> Self {
        let request = |early: bool| {
            let mut request = Request::builder();
            if early {
                request = request.header("early-data", "1");
            }
            request.body(()).unwrap().into_parts().0
        };
        let responses = |stop: bool, refused: bool| {
            let head = |status: &u16| {
                let mut response = Response::builder().status(*status);
                for (name, _) in [(&STOP, stop), (&REFUSED, refused)]
                    .iter()
                    .filter(|(_, on)| *on)
                {
                    response = response.header(*name, YES);
                }
                response.body(()).unwrap().into_parts().0
            };
            STATUSES.iter().map(head).collect()
        };
        Self {
            requests: [request(false), request(true)],
            responses: [false, true]
                .map(|stop| [false, true].map(|refused| responses(stop, refused))),
        }
    }

    pub(crate) fn decide(&self, policy: &impl Policy, attempts: u32, input: &Input) -> Verdict {
        let request = &self.requests[usize::from(input.early_data)];
        let responses = &self.responses[usize::from(input.stop)][usize::from(input.refused)];
        let response =
            |status: u16| &responses[STATUSES.iter().position(|known| *known == status).unwrap()];
        let failure = match input.ended {
            Ended::NotSent => Failure::not_sent(input.kind()),
            Ended::SentNoResponse => Failure::sent_no_response(input.kind()),
            Ended::Headless | Ended::Response(_) | Ended::BrokenAtOnce(_) => {
                Failure::response_received(input.kind())
            }
            Ended::BrokenLater(_) => Failure::partial_response(input.kind()),
        };
        let mut facts = match input.ended {
            Ended::NotSent | Ended::SentNoResponse | Ended::Headless => {
                Facts::failure(request, &failure)
            }
            Ended::Response(status) => Facts::response(request, response(status)),
            Ended::BrokenAtOnce(status) | Ended::BrokenLater(status) => {
                Facts::response(request, response(status)).partial(&failure)
            }
        };
        let number = match input.number {
            Number::First => 1,
            Number::Second => 2,
            Number::Last => attempts,
        };
        facts = facts
            .attempt_number(NonZeroU32::new(number).unwrap())
            .max_attempts(NonZeroU32::new(attempts).unwrap())
            .idempotency(input.idempotency)
            .min_attempt(Duration::from_millis(4));
        if input.budget_empty {
            facts = facts.budget_empty();
        }
        if input.body_gone {
            facts = facts.body_state(BodyState::Consumed);
        }
        if input.delivered {
            facts = facts.delivered();
        }
        if input.draining {
            facts = facts.draining();
        }
        if !input.no_refresh {
            facts = facts.refresh_available();
        }
        if input.prior_unknown {
            facts = facts.prior_unknown();
        }
        facts = match input.deadline {
            Deadline::None => facts,
            Deadline::Tight => facts.remaining(TIGHT),
            Deadline::Short => facts.remaining(SHORT),
        };
        facts = match input.hint {
            Hint::None => facts,
            Hint::Short => facts.retry_after(Duration::from_millis(7)),
            Hint::Long => facts.retry_after(LONG),
        };
        decide(policy, &facts.attempt())
    }
}
