//! reqwest's client as a service.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::{Request, Response, Version};
use pin_project_lite::pin_project;
use reqwest::redirect;
use reqwest::{Body, Client, ClientBuilder, Error};
use tower::Service;

use crate::body::ReplayBody;

/// reqwest's client at the bottom of a stack.
///
/// What reqwest does on its own, redirects and retries, happens below the layer, unseen: a `POST`
/// that was executed and then redirected to a dead host ends in a connect error, and reqwest's own
/// retry has sent requests twice that a server had read before it shut down. So there are two
/// constructors: [`build`](Self::build) turns both off and takes all evidence there is;
/// [`new`](Self::new) takes any client, and less of it.
///
/// `reqwest::Response::from(response.map(reqwest::Body::wrap))` makes an answer reqwest's own again.
#[derive(Clone)]
pub struct ReqwestService {
    client: Client,
    below: Below,
}

/// What the client does on its own.
#[derive(Debug, Clone, Copy)]
enum Below {
    /// It follows no redirect and repeats nothing.
    Nothing,
    /// Who knows.
    Anything,
}

impl ReqwestService {
    /// Builds a client that neither follows redirects nor retries, whatever `builder` says about
    /// these two.
    ///
    /// # Errors
    ///
    /// Those of [`ClientBuilder::build`].
    pub fn build(builder: ClientBuilder) -> Result<Self, Error> {
        let client = builder
            .redirect(redirect::Policy::none())
            .retry(reqwest::retry::never())
            .build()?;
        Ok(Self {
            client,
            below: Below::Nothing,
        })
    }

    /// Over a client that exists already.
    ///
    /// Whether it follows redirects or retries cannot be seen, so its errors prove nothing: they
    /// may be about another request than the one that was sent first. What the body's witness saw
    /// holds for any client: a request that was given up before its first send (no connection, a
    /// timeout while connecting) is `NotSent`. A stream refused by the peer is not.
    ///
    /// Please turn redirects and retries off where you build the client, or use
    /// [`build`](Self::build): otherwise a redirect counts as a part of the attempt, and what
    /// reqwest sends again is no business of the budget.
    pub fn new(client: Client) -> Self {
        Self {
            client,
            below: Below::Anything,
        }
    }
}

impl Service<Request<ReplayBody>> for ReqwestService {
    type Response = Response<Body>;
    type Error = Error;
    type Future = ReqwestFuture;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.client.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<ReplayBody>) -> ReqwestFuture {
        match self.below {
            Below::Nothing => request.body_mut().sent_alone(),
            Below::Anything => {}
        }
        // HTTP/3 does not go through hyper, and sends the head before it asks the body.
        if request.version() != Version::HTTP_3 {
            request.body_mut().sits_on_client();
        }
        // Wrapped, a body cannot be cloned: reqwest does not repeat it.
        match request.map(Body::wrap).try_into() {
            Ok(request) => ReqwestFuture::new(State::Sent {
                pending: self.client.call(request),
            }),
            Err(error) => ReqwestFuture::new(State::Refused { error: Some(error) }),
        }
    }
}

impl fmt::Debug for ReqwestService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReqwestService")
            .field("below", &self.below)
            .finish_non_exhaustive()
    }
}

pin_project! {
    /// A request in reqwest's hands. Dropping it abandons the request.
    #[must_use = "futures do nothing unless polled"]
    pub struct ReqwestFuture {
        #[pin]
        state: State,
    }
}

pin_project! {
    #[project = Project]
    enum State {
        Sent {
            #[pin]
            pending: <Client as Service<reqwest::Request>>::Future,
        },
        // The request is none that reqwest could send.
        Refused {
            error: Option<Error>,
        },
    }
}

impl ReqwestFuture {
    fn new(state: State) -> Self {
        Self { state }
    }
}

impl Future for ReqwestFuture {
    type Output = Result<Response<Body>, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().state.project() {
            Project::Sent { pending } => Poll::Ready(ready!(pending.poll(cx)).map(Response::from)),
            Project::Refused { error } => match error.take() {
                Some(error) => Poll::Ready(Err(error)),
                None => Poll::Pending,
            },
        }
    }
}

impl fmt::Debug for ReqwestFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReqwestFuture").finish_non_exhaustive()
    }
}
