//! Over, under and inside what others build.

use std::convert::Infallible;

use axum::Router;
use axum::error_handling::HandleError;
use http::{Request, Response};
use http_body::Body;
use tower::util::{BoxCloneService, BoxCloneSyncService, BoxService};
use tower::{Layer, Service, ServiceBuilder, ServiceExt};
use tower_http_retry::*;

/// Generic code needs these bounds and no others.
fn generic<S, B, P>(layer: &RetryLayer<P>, inner: S) -> impl Retrying<B> + use<S, B, P>
where
    S: Service<Request<ReplayBody>, Response = Response<B>> + Clone + Send + Sync + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
    P: Policy,
{
    layer.layer(inner)
}

trait Retrying<B>:
    Service<Request<ReplayBody>, Response = Response<ResponseBody<B>>, Error = Error, Future: Send>
    + Clone
    + Send
    + Sync
{
}

impl<B, S> Retrying<B> for S where
    S: Service<
            Request<ReplayBody>,
            Response = Response<ResponseBody<B>>,
            Error = Error,
            Future: Send,
        > + Clone
        + Send
        + Sync
{
}

/// hyper-util's client is such a service as it is.
fn over_hyper_utils_client(layer: &RetryLayer) {
    let client = hyper_util::client::legacy::Client::builder(hyper_util::rt::TokioExecutor::new())
        .build_http::<ReplayBody>();
    let service = generic(layer, client);
    boxed(service);
}

#[cfg(feature = "hyper")]
fn over_the_hyper_adapter<C>(layer: &RetryLayer, connector: C)
where
    C: hyper_util::client::legacy::connect::Connect + Clone + Send + Sync + 'static,
{
    let client = hyper_util::client::legacy::Client::builder(hyper_util::rt::TokioExecutor::new())
        .build(connector);
    let adapter: HyperService<C> = HyperService::new(client);
    boxed(generic::<_, hyper::body::Incoming, _>(
        layer,
        adapter.clone(),
    ));
}

#[cfg(feature = "hyper")]
fn a_servers_request_goes_on(body: hyper::body::Incoming) -> ReplayBody {
    body.into()
}

#[cfg(feature = "reqwest")]
fn over_reqwest(layer: &RetryLayer, client: reqwest::Client) -> Result<(), reqwest::Error> {
    let built: ReqwestService = ReqwestService::build(reqwest::Client::builder())?;
    let given: ReqwestService = ReqwestService::new(client);
    boxed(generic::<_, reqwest::Body, _>(layer, built));
    boxed(generic::<_, reqwest::Body, _>(layer, given.clone()));
    fn future<S>(_: &S)
    where
        S: Service<
                Request<ReplayBody>,
                Response = Response<reqwest::Body>,
                Error = reqwest::Error,
                Future = future::ReqwestFuture,
            >,
    {
    }
    future(&given);
    Ok(())
}

fn over_a_tonic_channel(layer: &RetryLayer, channel: tonic::transport::Channel) {
    let channel = ServiceBuilder::new()
        .map_request(|request: Request<ReplayBody>| request.map(tonic::body::Body::new))
        .service(channel);
    boxed(generic::<_, tonic::body::Body, _>(layer, channel));
}

/// A router as the inner service, and the whole inside a router: axum wants its services `Sync`.
fn over_and_inside_an_axum_router(layer: &RetryLayer, inner: Router) -> Router {
    let inner = ServiceBuilder::new()
        .map_request(|request: Request<ReplayBody>| request.map(axum::body::Body::new))
        .service(inner);
    let answering = generic::<_, axum::body::Body, _>(layer, inner).map_request(
        |request: Request<axum::body::Body>| {
            request.map(|body| ReplayBody::buffered(body, ReplayBody::DEFAULT_BUFFER_LIMIT))
        },
    );
    Router::new().fallback_service(HandleError::new(answering, async |error: Error| {
        (http::StatusCode::BAD_GATEWAY, error.to_string())
    }))
}

/// Boxed, over a boxed one, one layer over another.
fn boxed<S, B>(service: S)
where
    S: Retrying<B> + 'static,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    type Answer<B> = Response<ResponseBody<B>>;
    let _ = BoxService::<_, Answer<B>, _>::new(service.clone());
    let once = BoxCloneService::<_, Answer<B>, _>::new(service.clone());
    let _ = RetryLayer::default().layer(once);
    let sync = BoxCloneSyncService::<_, Answer<B>, _>::new(service);
    let nested = RetryLayer::new(Box::new(StandardPolicy::none()) as Box<dyn Policy>).layer(sync);
    let _: BoxCloneSyncService<_, Response<ResponseBody<ResponseBody<B>>>, Error> =
        BoxCloneSyncService::new(nested);
}

/// An inner service that is `Send` alone.
fn over_one_that_is_not_sync(layer: &RetryLayer) {
    let inner = std::cell::Cell::new(0);
    let service = layer.layer(tower::service_fn(move |_: Request<ReplayBody>| {
        inner.set(inner.get() + 1);
        async { Ok::<_, Infallible>(Response::new(String::new())) }
    }));
    let _ = BoxCloneService::new(service);
}

/// In a `ServiceBuilder`, among others.
fn in_a_stack(layer: RetryLayer) {
    use std::time::Duration;
    let service = ServiceBuilder::new()
        .layer(tower_http::trace::TraceLayer::new_for_http())
        .layer(layer)
        .concurrency_limit(10)
        .timeout(Duration::from_secs(1))
        .service_fn(async |_: Request<ReplayBody>| Ok::<_, BoxError>(Response::new(String::new())));
    let _ = service.boxed_clone();
}
