//! The command line: one finished attempt, in words.

use std::num::NonZeroU32;
use std::str::FromStr;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, request, response};
use tower_http_retry::{
    BodyState, Evidence, Failure, FailureKind, Idempotency, StandardPolicy, Upstream,
};

pub(crate) const HELP: &str = "\
Explains a retry decision: the nine steps, one by one, for an attempt that you describe.

USAGE: explain [OPTIONS]

The request
  --method M          default GET
  --idempotency I     declares it: safe, idempotent, keyed, non-idempotent (default: by the method)
  --key K             sends Idempotency-Key: K to an upstream that honours it
  --early-data        the caller's request carries Early-Data: 1
  --body STATE        empty (default), replayable, reopenable, untouched, consumed, overflowed

How the attempt ended: a status, or evidence, or both (a response whose body broke)
  --status N          the response's status (default 503 if there is no evidence either)
  --retry-after V     the response's Retry-After: seconds or an HTTP date
  --evidence E        not-sent, sent-no-response, response-received, partial-response
  --kind K            the failure's kind: reset, connect, certificate, request-body, ...

The call
  --attempt N         which attempt it was, default 1
  --max-attempts N    default: the policy's, 3
  --remaining MS      what is left until the deadline, default: no deadline
  --min-attempt MS    the least time an attempt is worth, default 0
  --budget-empty      the retry budget has no token
  --delivered         the caller already holds a part of the response
  --draining          the process is shutting down
  --prior-unknown     an earlier attempt may have been executed
  --refresh           a new credential can be had

The policy
  --policy P          standard (default), conventional, none
  --transient-500     the upstream's 500 is worth a retry

  --help              this text

EXAMPLES
  explain --method POST --evidence sent-no-response --attempt 2
  explain --method GET --status 503 --retry-after 60
  explain --method DELETE --status 404 --attempt 2 --prior-unknown
";

/// An attempt, and the policy that is asked about it.
#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) policy: StandardPolicy,
    pub(crate) request: request::Parts,
    pub(crate) ended: Ended,
    pub(crate) attempt: NonZeroU32,
    pub(crate) max_attempts: Option<NonZeroU32>,
    pub(crate) body: BodyState,
    pub(crate) remaining: Option<Duration>,
    pub(crate) min_attempt: Duration,
    pub(crate) flags: Vec<Flag>,
}

/// How the attempt ended: an `Outcome` that owns its parts.
#[derive(Debug)]
pub(crate) enum Ended {
    Response(response::Parts),
    Failure(Failure),
    Broken(response::Parts, Failure),
}

/// What is so, or is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flag {
    BudgetEmpty,
    Delivered,
    Draining,
    PriorUnknown,
    Refresh,
}

/// What the command line asks for.
#[derive(Debug)]
pub(crate) enum Command {
    Explain(Box<Question>),
    Help,
}

impl Command {
    /// Reads the arguments after the program's name.
    pub(crate) fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Self, String> {
        let mut arguments = arguments.into_iter();
        let mut request = Request::new(()).into_parts().0;
        let mut policy = StandardPolicy::default();
        let mut upstream = Upstream::new();
        let (mut status, mut hints) = (None, HeaderMap::new());
        let (mut evidence, mut kind) = (None, None);
        let (mut attempt, mut max_attempts) = (NonZeroU32::MIN, None);
        let (mut remaining, mut min_attempt) = (None, Duration::ZERO);
        let (mut body, mut flags) = (BodyState::Empty, Vec::new());

        while let Some(option) = arguments.next() {
            let mut value = || arguments.next().ok_or(format!("{option} needs a value"));
            match option.as_str() {
                "--method" => request.method = read::<Method>(&option, &value()?)?,
                "--idempotency" => {
                    let declared = one_of(&option, &value()?, &IDEMPOTENCIES)?;
                    request.extensions.insert(declared);
                }
                "--key" => {
                    let key = read::<HeaderValue>(&option, &value()?)?;
                    request.headers.insert("idempotency-key", key);
                    upstream = upstream.honours_idempotency_key();
                }
                "--early-data" => {
                    let yes = HeaderValue::from_static("1");
                    request.headers.insert("early-data", yes);
                }
                "--body" => body = one_of(&option, &value()?, &BODY_STATES)?,
                "--status" => status = Some(read::<StatusCode>(&option, &value()?)?),
                "--retry-after" => {
                    let hint = read::<HeaderValue>(&option, &value()?)?;
                    hints.append(http::header::RETRY_AFTER, hint);
                }
                "--evidence" => evidence = Some(one_of(&option, &value()?, &EVIDENCE)?),
                "--kind" => kind = Some(one_of(&option, &value()?, &KINDS)?),
                "--attempt" => attempt = read(&option, &value()?)?,
                "--max-attempts" => max_attempts = Some(read(&option, &value()?)?),
                "--remaining" => remaining = Some(millis(&option, &value()?)?),
                "--min-attempt" => min_attempt = millis(&option, &value()?)?,
                "--budget-empty" => flags.push(Flag::BudgetEmpty),
                "--delivered" => flags.push(Flag::Delivered),
                "--draining" => flags.push(Flag::Draining),
                "--prior-unknown" => flags.push(Flag::PriorUnknown),
                "--refresh" => flags.push(Flag::Refresh),
                "--policy" => policy = self::policy(&value()?)?,
                "--transient-500" => upstream = upstream.transient_500(),
                "--help" | "-h" => return Ok(Self::Help),
                _ => return Err(format!("unknown option {option}; try --help")),
            }
        }

        let failed = (evidence.is_some() || kind.is_some())
            .then(|| failure(evidence.unwrap_or(Evidence::SentNoResponse), kind));
        let head = |status| {
            let mut head = Response::new(()).into_parts().0;
            head.status = status;
            head.headers = hints.clone();
            head
        };
        let ended = match (status, failed) {
            (Some(status), Some(failure)) => Ended::Broken(head(status), failure),
            (Some(status), None) => Ended::Response(head(status)),
            (None, Some(_)) if !hints.is_empty() => {
                return Err("--retry-after comes with a response: give its --status".into());
            }
            (None, Some(failure)) => Ended::Failure(failure),
            (None, None) => Ended::Response(head(StatusCode::SERVICE_UNAVAILABLE)),
        };
        let policy = policy.to_builder().default_upstream(upstream).build();
        Ok(Self::Explain(Box::new(Question {
            policy: policy.map_err(|error| error.to_string())?,
            request,
            ended,
            attempt,
            max_attempts,
            body,
            remaining,
            min_attempt,
            flags,
        })))
    }
}

const IDEMPOTENCIES: [Idempotency; 4] = [
    Idempotency::Safe,
    Idempotency::Idempotent,
    Idempotency::Keyed,
    Idempotency::NonIdempotent,
];

const BODY_STATES: [BodyState; 6] = [
    BodyState::Empty,
    BodyState::Replayable,
    BodyState::Reopenable,
    BodyState::Untouched,
    BodyState::Consumed,
    BodyState::Overflowed,
];

const EVIDENCE: [Evidence; 4] = [
    Evidence::NotSent,
    Evidence::SentNoResponse,
    Evidence::ResponseReceived,
    Evidence::PartialResponse,
];

const KINDS: [FailureKind; 23] = [
    FailureKind::Dns,
    FailureKind::Connect,
    FailureKind::ConnectTimeout,
    FailureKind::PoolTimeout,
    FailureKind::Tls,
    FailureKind::Certificate,
    FailureKind::StreamRefused,
    FailureKind::GoAway,
    FailureKind::Closed,
    FailureKind::Reset,
    FailureKind::Truncated,
    FailureKind::ResponseTimeout,
    FailureKind::DeadlineReached,
    FailureKind::Protocol,
    FailureKind::Rejected,
    FailureKind::InvalidRequest,
    FailureKind::RequestBody,
    FailureKind::BodyChanged,
    FailureKind::RedirectLoop,
    FailureKind::LocalOverload,
    FailureKind::AlreadyRetried,
    FailureKind::Readiness,
    FailureKind::Unknown,
];

/// The failure that is typical for the evidence, unless its kind is given.
fn failure(evidence: Evidence, kind: Option<FailureKind>) -> Failure {
    match evidence {
        Evidence::NotSent => Failure::not_sent(kind.unwrap_or(FailureKind::Connect)),
        Evidence::SentNoResponse => Failure::sent_no_response(kind.unwrap_or(FailureKind::Reset)),
        Evidence::ResponseReceived => {
            Failure::response_received(kind.unwrap_or(FailureKind::Closed))
        }
        Evidence::PartialResponse => {
            Failure::partial_response(kind.unwrap_or(FailureKind::Truncated))
        }
    }
}

fn policy(name: &str) -> Result<StandardPolicy, String> {
    match name {
        "standard" => Ok(StandardPolicy::default()),
        "conventional" => Ok(StandardPolicy::conventional()),
        "none" => Ok(StandardPolicy::none()),
        _ => Err(format!(
            "--policy cannot be {name}: standard, conventional or none"
        )),
    }
}

fn read<T: FromStr>(option: &str, value: &str) -> Result<T, String> {
    value
        .parse()
        .map_err(|_| format!("{option} cannot be {value}"))
}

fn millis(option: &str, value: &str) -> Result<Duration, String> {
    read(option, value).map(Duration::from_millis)
}

/// A variant by its name: `sent-no-response` is `SentNoResponse`.
fn one_of<T: std::fmt::Debug + Copy>(option: &str, value: &str, all: &[T]) -> Result<T, String> {
    let plain = |name: &str| name.replace(['-', '_'], "").to_lowercase();
    let found = all
        .iter()
        .find(|one| plain(&format!("{one:?}")) == plain(value));
    found.copied().ok_or_else(|| {
        let names: Vec<String> = all.iter().map(|one| kebab(&format!("{one:?}"))).collect();
        format!("{option} cannot be {value}; one of: {}", names.join(", "))
    })
}

fn kebab(name: &str) -> String {
    let mut words = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !words.is_empty() {
            words.push('-');
        }
        words.extend(letter.to_lowercase());
    }
    words
}
