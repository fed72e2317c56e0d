//! hyper-util's client as a service.

use std::fmt;
use std::task::{Context, Poll};

use http::{Request, Response};
use hyper::body::Incoming;
use hyper_util::client::legacy::connect::Connect;
use hyper_util::client::legacy::{Client, Error, ResponseFuture};
use tower::Service;

use crate::body::ReplayBody;

/// hyper-util's client at the bottom of a stack.
///
/// The client alone can be wrapped in a layer, too. Through this service the layer knows that nothing stands
/// between the request body and the client, so that a request which the client gave up without
/// asking for its body is proven not sent, whatever the error, timeouts included.
///
/// The client's own retry (on by default) is harmless: it repeats only what was never written.
///
/// ```
/// use hyper_util::client::legacy::Client;
/// use hyper_util::rt::TokioExecutor;
/// use tower::Layer;
/// use tower_http_retry::{HyperService, RetryLayer};
///
/// let client = Client::builder(TokioExecutor::new()).build_http();
/// let service = RetryLayer::default().layer(HyperService::new(client));
/// ```
pub struct HyperService<C> {
    client: Client<C, ReplayBody>,
}

impl<C> HyperService<C> {
    /// Over `client`.
    pub fn new(client: Client<C, ReplayBody>) -> Self {
        Self { client }
    }
}

impl<C> Service<Request<ReplayBody>> for HyperService<C>
where
    C: Connect + Clone + Send + Sync + 'static,
{
    type Response = Response<Incoming>;
    type Error = Error;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.client.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<ReplayBody>) -> ResponseFuture {
        request.body_mut().sits_on_client();
        self.client.request(request)
    }
}

impl<C: Clone> Clone for HyperService<C> {
    fn clone(&self) -> Self {
        Self {
            client: self.client.clone(),
        }
    }
}

impl<C> fmt::Debug for HyperService<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HyperService").finish_non_exhaustive()
    }
}
