//! An HTTP/2 server by the `h2` crate that fails on purpose.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use http::{Request, Response};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;

use crate::fault::{End, Fault};
use crate::ledger::Ledger;
use crate::op::Told;
use crate::serve::{HANG, Reset};

/// One connection, until it ends.
pub(crate) async fn connection<S>(stream: S, reset: Reset, ledger: Arc<Ledger>, random: StdRng)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let _ = streams(stream, reset, ledger, random).await;
}

async fn streams<S>(
    stream: S,
    reset: Reset,
    ledger: Arc<Ledger>,
    mut random: StdRng,
) -> Result<(), h2::Error>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut server = h2::server::Builder::new()
        .max_concurrent_streams(random.random_range(2..40))
        .handshake::<_, Bytes>(stream)
        .await?;
    let die = Arc::new(Notify::new());
    let mut streams = tokio::task::JoinSet::new();
    loop {
        tokio::select! {
            accepted = server.accept() => {
                let Some(accepted) = accepted else { return Ok(()) };
                let (request, respond) = accepted?;
                let fault = Fault::random(&mut random);
                match fault {
                    Fault::GoAway => server.graceful_shutdown(),
                    Fault::GoAwayAtOnce => server.abrupt_shutdown(Reason::INTERNAL_ERROR),
                    _ => {}
                }
                let random = StdRng::seed_from_u64(random.random());
                streams.spawn(stream_of(request, respond, fault, Arc::clone(&ledger), random, Arc::clone(&die)));
            }
            // The whole connection, with all its streams.
            () = die.notified() => {
                reset.set_to(random.random_bool(0.5));
                return Ok(());
            }
        }
    }
}

async fn stream_of(
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    fault: Fault,
    ledger: Arc<Ledger>,
    mut random: StdRng,
    die: Arc<Notify>,
) {
    let (head, mut body) = request.into_parts();
    let told = Told::of(|name| Some(head.headers.get(name)?.to_str().ok()?.to_owned()));
    let Some(told) = told else { return };
    ledger.note(told.op, fault.name());
    let end = |respond: &mut SendResponse<Bytes>, end: End, random: &mut StdRng| match end {
        End::Fin => respond.send_reset(Reason::CANCEL),
        End::Rst if random.random_bool(0.3) => die.notify_one(),
        End::Rst => respond.send_reset(Reason::INTERNAL_ERROR),
        End::Hang => {}
    };
    match fault {
        // Promised not to be processed, whatever was read.
        Fault::Refused => return respond.send_reset(Reason::REFUSED_STREAM),
        Fault::CutHead(_, how) => {
            end(&mut respond, how, &mut random);
            return hang(how, respond).await;
        }
        Fault::CutRequest(share, how) => {
            let some = told.length * usize::from(share) / 256;
            let mut read = 0;
            while read < some
                && let Some(Ok(data)) = body.data().await
            {
                let _ = body.flow_control().release_capacity(data.len());
                read += data.len();
            }
            end(&mut respond, how, &mut random);
            return hang(how, respond).await;
        }
        Fault::Early(status) => {
            let _ = answer(&mut respond, status, "early");
            return;
        }
        _ => {}
    }
    let mut bytes = Vec::new();
    while let Some(data) = body.data().await {
        let Ok(data) = data else { return };
        let _ = body.flow_control().release_capacity(data.len());
        bytes.extend_from_slice(&data);
    }
    ledger.received(&told, &bytes);
    let execute = || ledger.execute(&told);
    match fault {
        Fault::Fine | Fault::FineThenClose | Fault::GoAway | Fault::GoAwayAtOnce => {
            execute();
            let _ = answer(&mut respond, 200, "done");
        }
        Fault::Unexecuted(how) => {
            end(&mut respond, how, &mut random);
            hang(how, respond).await;
        }
        Fault::Executed(how) | Fault::HalfHead(how) => {
            execute();
            end(&mut respond, how, &mut random);
            hang(how, respond).await;
        }
        Fault::HalfBody(how) => {
            execute();
            let head = Response::builder()
                .header("content-length", 100)
                .body(())
                .unwrap();
            if let Ok(mut stream) = respond.send_response(head, false) {
                let _ = stream.send_data(Bytes::from_static(b"half"), false);
                tokio::time::sleep(Duration::from_millis(1)).await;
                // Also the reset that hyper shows as a clean end.
                stream.send_reset(if how == End::Fin {
                    Reason::NO_ERROR
                } else {
                    Reason::CANCEL
                });
            }
        }
        Fault::WrongLength => {
            execute();
            let head = Response::builder().header("content-length", 2);
            if let Ok(mut stream) = respond.send_response(head.body(()).unwrap(), false) {
                let _ = stream.send_data(Bytes::from_static(b"done"), true);
            }
        }
        Fault::Late(ms) => {
            execute();
            tokio::time::sleep(Duration::from_millis(ms)).await;
            let _ = answer(&mut respond, 200, "done");
        }
        Fault::Status(status, executed) => {
            if executed {
                execute();
            }
            let _ = answer(&mut respond, status, "no");
        }
        Fault::Informational(how) => {
            end(&mut respond, how, &mut random);
            hang(how, respond).await;
        }
        Fault::Refused | Fault::CutHead(..) | Fault::CutRequest(..) | Fault::Early(_) => {}
    }
}

/// Keeps the stream open.
async fn hang(end: End, respond: SendResponse<Bytes>) {
    if end == End::Hang {
        tokio::time::sleep(HANG).await;
    }
    drop(respond);
}

fn answer(
    respond: &mut SendResponse<Bytes>,
    status: u16,
    text: &'static str,
) -> Result<(), h2::Error> {
    let head = Response::builder().status(status).body(()).unwrap();
    respond
        .send_response(head, false)?
        .send_data(Bytes::from_static(text.as_bytes()), true)
}
