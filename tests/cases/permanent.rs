//! What no further attempt can help: kinds permanent-error-retried, redirects.

use http::Method;
use tower_http_retry::{Budget, Execution, Failure, FailureKind, RetryDenied};

use super::support::{layer, request};
use super::{Reply, get, ok, reset, run, times};

/// PE-01, PE-03, PE-04 and RD-05: the transports' own error types are read in the tests of the
/// adapters.
#[tokio::test(start_paused = true)]
async fn pe_01_pe_03_pe_04_rd_05_permanent_failures_are_told_at_once() {
    for failure in [
        Failure::not_sent(FailureKind::Certificate),
        Failure::not_sent(FailureKind::InvalidRequest), // a relative URL, an invalid header value
        Failure::not_sent(FailureKind::Protocol),       // an unsupported scheme
        Failure::sent_no_response(FailureKind::RedirectLoop),
    ] {
        let ran = run(&layer(), get(), [Reply::fails(failure), ok()]).await;
        ran.waited([]);
        ran.failed(failure.kind());
        let reason = RetryDenied::PermanentFailure(failure.kind());
        assert_eq!(ran.denied(), Some(reason));
        assert!(ran.took.is_zero());
    }
}

/// A failure that only looks transient: attempts and budget are the safety net.
#[tokio::test(start_paused = true)]
async fn pe_06_a_budget_ends_what_looks_transient() {
    let budget = Budget::builder()
        .capacity(1)
        .floor_per_second(0.0)
        .build()
        .unwrap();
    let layer = layer().with_budgets(budget);
    let large = vec![0; 5 * 1024 * 1024];
    let ran = run(&layer, request(Method::PUT, large), times(2, reset)).await;
    ran.waited([100]);
    ran.failed(FailureKind::Reset);
    assert_eq!(ran.error().execution(), Execution::Unknown);
    assert_eq!(ran.denied(), Some(RetryDenied::BudgetExhausted));
}
