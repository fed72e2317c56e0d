//! `RetryLayer`, `Retry` and what they are set up with.

use std::time::Duration;

use http::{HeaderName, Request, Response};
use http_body::Body;
use tower::Service;
use tower_http_retry::*;

fn the_settings<P: Policy>(policy: P, budget: Budget, refresh: impl Refresh) -> RetryLayer<P> {
    RetryLayer::new(policy)
        .with_budgets(budget)
        .with_budgets(Budgets::default())
        .without_budgets()
        .with_drain(Drain::new())
        .with_seed(7)
        .with_attempt_header(HeaderName::from_static("x-attempt"))
        .with_deadline(Duration::MAX)
        .with_min_attempt(Duration::ZERO)
        .with_attempt_timeout(Duration::ZERO)
        .with_delivery(Delivery::AtHeaders)
        .with_delivery(Delivery::AtFirstByte)
        .with_delivery(Delivery::Whole { limit: 1 })
        .with_discard(Discard::none().within(Duration::ZERO).up_to(0))
        .with_peer_promises(PeerPromises::Distrust)
        .with_refresh(refresh)
}

fn hooks(layer: RetryLayer, observer: impl Observer, reconcile: impl Reconcile) -> RetryLayer {
    layer
        .with_observer(observer)
        .with_observer(|_: &AttemptEnded<'_>| ())
        .with_classifier(|_: &FailedAttempt<'_>| None)
        .with_reconcile(reconcile)
}

fn shared(layer: &RetryLayer<Box<dyn Policy>>) -> RetryLayer<Box<dyn Policy>> {
    let _: RetryLayer = RetryLayer::default();
    layer.clone()
}

/// The one impl, in the words of the contract.
fn call<S, P, B>(service: &mut Retry<S, P>, request: Request<ReplayBody>)
where
    S: Service<Request<ReplayBody>, Response = Response<B>> + Clone,
    S::Error: Into<BoxError>,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
    P: Policy,
{
    fn is<F, B>(future: F) -> F
    where
        F: Future<Output = Result<Response<ResponseBody<B>>, Error>>,
    {
        future
    }
    let future: future::ResponseFuture<S, P, B> = is(service.call(request));
    drop(future);
}

fn layered<S: Clone, P: Policy>(layer: &RetryLayer<P>, inner: S) -> S {
    let mut service: Retry<S, P> = tower_layer::Layer::layer(layer, inner);
    let _: &S = service.get_ref();
    let _: &mut S = service.get_mut();
    service.into_inner()
}

/// The request type is concrete, so nothing needs to be named here.
async fn the_request_is_inferred<S>(mut service: Retry<S>) -> Result<(), Error>
where
    S: Service<Request<ReplayBody>, Response = Response<String>, Error = BoxError> + Clone,
{
    use tower::ServiceExt;
    let request = Request::new("hello".into());
    service.ready().await?.call(request).await?;
    Ok(())
}
