//! The way out of an ambiguity: asking the server's ledger.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{Request, Response, request};
use http_body_util::BodyExt;
use tower::ServiceExt;
use tower_http_retry::{BoxError, Outcome, Reconcile, Reconciled, ReplayBody};

use super::client::Bottom;
use super::ledger::Ledger;
use super::server::{LEDGER_PATH, ORDER};

/// Asks the server what became of an order.
pub(crate) struct AskLedger {
    pub(crate) client: Bottom,
    pub(crate) office: SocketAddr,
}

impl Reconcile for AskLedger {
    async fn reconcile(
        &self,
        request: &request::Parts,
        _: Outcome<'_>,
    ) -> Result<Reconciled, BoxError> {
        let order = request
            .headers
            .get(ORDER)
            .ok_or("an order without a number")?;
        let order: u32 = order.to_str()?.parse()?;
        let question = Request::get(format!("http://{}{LEDGER_PATH}{order}", self.office))
            .body(ReplayBody::empty())?;
        let answer = self.client.clone().oneshot(question).await?;
        let executions = answer.into_body().collect().await?.to_bytes();
        // This server books an order before it breaks the connection. Where an order may still be
        // under way, "no execution" is not yet `NotExecuted`: say `Unknown`.
        Ok(if executions == Bytes::from_static(b"0") {
            Reconciled::NotExecuted
        } else {
            Reconciled::Executed(Response::new(Ledger::receipt(order)))
        })
    }
}
