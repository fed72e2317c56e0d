//! Budgets in whole calls: kind budget. The bucket's own arithmetic has its own tests.

use http::Request;
use tower_http_retry::{Budget, Budgets, ReplayBody, RetryDenied, UpstreamKey};

use super::support::{MS, layer};
use super::{busy, get, ok, run, times};

fn bucket(capacity: u32, ratio: f64) -> Budget {
    Budget::builder()
        .capacity(capacity)
        .ratio(ratio)
        .floor_per_second(0.0)
        .build()
        .unwrap()
}

fn get_from(uri: &'static str) -> Request<ReplayBody> {
    let mut request = get();
    *request.uri_mut() = uri.parse().unwrap();
    request
}

#[tokio::test(start_paused = true)]
async fn bu_03_good_first_attempts_fill_a_dry_bucket() {
    let layer = layer().with_budgets(bucket(1, 0.1));
    let a = run(&layer, get(), times(2, busy)).await;
    a.waited([100]);
    assert_eq!(a.status(), 503);
    assert_eq!(a.denied(), Some(RetryDenied::BudgetExhausted));
    for _ in 0..10 {
        assert_eq!(run(&layer, get(), [ok()]).await.status(), 200);
    }
    let b = run(&layer, get(), [busy(), ok()]).await;
    b.waited([100]);
    assert_eq!(b.status(), 200);
}

#[tokio::test(start_paused = true)]
async fn bu_05_a_pause_in_the_traffic_does_no_harm() {
    let budget = bucket(40, 0.2);
    while let Some(token) = budget.try_withdraw() {
        token.spend();
    }
    let layer = layer().with_budgets(budget.clone());
    for pause in [600_000, 0] {
        for _ in 0..100 {
            run(&layer, get(), [ok()]).await;
        }
        tokio::time::sleep(pause * MS).await;
    }
    assert!((budget.balance() - 40.0).abs() < 1e-6);
    run(&layer, get(), [busy(), ok()]).await.waited([100]);
}

/// The contract differs: deposits are made when calls end, so that the 200 tokens are there before.
#[tokio::test(start_paused = true)]
async fn bu_06_a_token_is_withdrawn_before_the_wait() {
    let layer = layer().with_budgets(bucket(200, 0.2));
    let calls = (0..1000).map(|_| {
        let layer = layer.clone();
        tokio::spawn(async move { run(&layer, get(), [busy(), ok()]).await })
    });
    let (mut denied, mut went_on) = (0, 0);
    for call in calls.collect::<Vec<_>>() {
        let ran = call.await.unwrap();
        if ran.status() == 200 {
            ran.waited([100]);
            went_on += 1;
        } else {
            ran.waited([]);
            assert!(ran.took.is_zero());
            assert_eq!(ran.denied(), Some(RetryDenied::BudgetExhausted));
            denied += 1;
        }
    }
    assert_eq!((denied, went_on), (800, 200));
}

#[tokio::test(start_paused = true)]
async fn bu_08_one_upstream_does_not_use_up_anothers_tokens() {
    let budgets = Budgets::builder()
        .capacity(2)
        .floor_per_second(0.0)
        .build()
        .unwrap();
    let layer = layer().with_budgets(budgets);
    let mut attempts = 0;
    for _ in 0..10 {
        let ran = run(&layer, get_from("http://a.example/"), times(4, busy)).await;
        assert_eq!(ran.status(), 503);
        attempts += ran.script.attempts();
    }
    assert_eq!(attempts, 12);
    let ran = run(&layer, get_from("http://b.example/"), [busy(), ok()]).await;
    ran.waited([100]);
    assert_eq!(ran.status(), 200);
}

#[tokio::test(start_paused = true)]
async fn bu_09_operations_of_one_upstream_share_tokens_and_the_reason_shows() {
    let layer = layer().with_budgets(bucket(2, 0.2));
    let x = run(&layer, get_from("http://a.example/x"), times(3, busy)).await;
    x.waited([100, 200]);
    let y = run(&layer, get_from("http://a.example/y"), [busy()]).await;
    y.waited([]);
    assert_eq!(y.status(), 503);
    assert_eq!(y.denied(), Some(RetryDenied::BudgetExhausted));
}

/// A name of the caller's own sets operations apart where sharing is not wanted.
#[tokio::test(start_paused = true)]
async fn a_key_of_its_own_sets_an_operation_apart() {
    let budgets = Budgets::builder()
        .capacity(1)
        .floor_per_second(0.0)
        .build()
        .unwrap();
    let layer = layer().with_budgets(budgets);
    run(&layer, get(), times(2, busy)).await.waited([100]);
    let mut apart = get();
    apart.extensions_mut().insert(UpstreamKey::new("search"));
    run(&layer, apart, [busy(), ok()]).await.waited([100]);
}

#[test]
fn bu_13_a_reward_that_is_no_number_or_no_ratio_is_refused() {
    for ratio in [f64::NAN, f64::INFINITY, 1e38, -0.1] {
        let error = Budget::builder().ratio(ratio).build().unwrap_err();
        assert_eq!(error.setting(), "ratio");
    }
}
