//! A client and what holds its retries back: the crate's `Budget`, and its peers.

use tower::retry::budget::{Budget as _, TpsBudget};
use tower_http_retry::{Budget, BudgetBuilder, ConfigError};

/// What limits the retries of a fleet's clients. Each client has its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Limit {
    /// Three attempts, whatever happens.
    None,
    /// This crate with default settings.
    Default,
    /// This crate, sized for what each client sends.
    Sized,
    /// The same with another capacity.
    Capacity(u32),
    /// tower's budget with default settings.
    Tower,
    /// The AWS SDKs' quota of 500: a retry costs 5, as after a server error.
    Aws5,
    /// The same with the costs of 2026: 14, or 5 after throttling.
    Aws14,
    /// gRPC: 10 tokens, ratio 0.1.
    Grpc,
}

#[derive(Debug)]
pub(crate) enum Client {
    Unlimited,
    Budget(Budget),
    Tower(TpsBudget),
    Aws {
        quota: u32,
        cost: u32,
    },
    /// In thousandths of a token, as its implementations count.
    Grpc {
        tokens: u32,
    },
}

impl Limit {
    /// The rows of the tables.
    pub(crate) const ALL: [Self; 7] = [
        Self::None,
        Self::Default,
        Self::Sized,
        Self::Tower,
        Self::Aws5,
        Self::Aws14,
        Self::Grpc,
    ];

    /// What a choice of one's own is about.
    pub(crate) const OWN: [Self; 3] = [Self::None, Self::Default, Self::Sized];

    /// Without [`Limit::Sized`]: for a client of 1 000 calls a second it is the default.
    pub(crate) const FOR_LARGE_FLEETS: [Self; 2] = [Self::None, Self::Default];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::None => "no budget",
            Self::Default => "this crate, defaults",
            Self::Sized => "this crate, sized",
            Self::Capacity(_) => "this crate, another capacity",
            Self::Tower => "tower `TpsBudget`",
            Self::Aws5 => "AWS, a retry costs 5",
            Self::Aws14 => "AWS, a retry costs 14",
            Self::Grpc => "gRPC",
        }
    }

    /// A client that sends so many calls a second.
    pub(crate) fn client(self, calls_per_second: f64) -> Result<Client, ConfigError> {
        Ok(match self {
            Self::None => Client::Unlimited,
            Self::Default => Client::Budget(Budget::default()),
            Self::Sized => Client::Budget(sized(calls_per_second).build()?),
            Self::Capacity(capacity) => {
                Client::Budget(sized(calls_per_second).capacity(capacity).build()?)
            }
            Self::Tower => Client::Tower(TpsBudget::default()),
            Self::Aws5 => Client::aws(5),
            Self::Aws14 => Client::aws(14),
            Self::Grpc => Client::Grpc {
                tokens: Client::GRPC_MAX,
            },
        })
    }
}

/// The rule of `docs/budgets-and-backoff.md`. At 1 000 calls a second these are the defaults.
pub(crate) fn sized(calls_per_second: f64) -> BudgetBuilder {
    Budget::builder()
        .floor_per_second(calls_per_second / 100.0)
        .capacity((calls_per_second / 10.0).max(10.0) as u32)
}

impl Client {
    const AWS_QUOTA: u32 = 500;
    const GRPC_MAX: u32 = 10_000;

    const fn aws(cost: u32) -> Self {
        Self::Aws {
            quota: Self::AWS_QUOTA,
            cost,
        }
    }

    /// An attempt failed, the last one included.
    pub(crate) fn failed(&mut self) {
        match self {
            Self::Grpc { tokens } => *tokens = tokens.saturating_sub(1_000),
            Self::Unlimited | Self::Budget(_) | Self::Tower(_) | Self::Aws { .. } => {}
        }
    }

    /// Whether there is a token for a retry, which is taken.
    pub(crate) fn may_retry(&mut self) -> bool {
        match self {
            Self::Unlimited => true,
            Self::Budget(budget) => match budget.try_withdraw() {
                Some(token) => {
                    token.spend();
                    true
                }
                None => false,
            },
            Self::Tower(budget) => budget.withdraw(),
            Self::Aws { quota, cost } => match quota.checked_sub(*cost) {
                Some(left) => {
                    *quota = left;
                    true
                }
                None => false,
            },
            Self::Grpc { tokens } => *tokens > Self::GRPC_MAX / 2,
        }
    }

    /// The call was answered: one deposit, whatever its attempts.
    pub(crate) fn answered(&mut self, attempts: u32) {
        match self {
            Self::Unlimited => {}
            Self::Budget(budget) => budget.deposit(),
            Self::Tower(budget) => budget.deposit(),
            // A first attempt is worth 1; a retry that works gets its cost back.
            Self::Aws { quota, cost } => {
                let reward = if attempts == 1 { 1 } else { *cost };
                *quota = (*quota + reward).min(Self::AWS_QUOTA);
            }
            Self::Grpc { tokens } => *tokens = (*tokens + 100).min(Self::GRPC_MAX),
        }
    }
}
