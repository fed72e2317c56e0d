//! A faulty server, a retrying client, and a judge that holds every answer against the ledger of
//! what was executed: `cargo run --example demo --features hyper`.

pub(crate) mod acts;
pub(crate) mod client;
pub(crate) mod cue;
pub(crate) mod judge;
pub(crate) mod ledger;
pub(crate) mod lookup;
pub(crate) mod options;
pub(crate) mod payload;
pub(crate) mod scene;
pub(crate) mod server;
pub(crate) mod table;

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;

use tower_http_retry::BoxError;

use client::Caller;
use judge::{Case, Claim, Findings};
use ledger::Ledger;
use options::{Command, LEGEND, Options, help};
use server::Door;
use table::Row;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let options = match Command::parse(std::env::args().skip(1)) {
        Ok(Command::Run(options)) => options,
        Ok(Command::Help) => {
            print!("{}", help());
            return ExitCode::SUCCESS;
        }
        Err(mistake) => {
            eprintln!("{mistake}");
            return ExitCode::from(2);
        }
    };
    match run(&options, &mut io::stdout()).await {
        Ok(findings) => exit_code(&findings),
        Err(error) => {
            eprintln!("the demo itself failed: {error}");
            ExitCode::from(3)
        }
    }
}

pub(crate) fn exit_code(findings: &Findings) -> ExitCode {
    if findings.is_clean() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Makes every call, prints the table, and gives what the judge found.
pub(crate) async fn run(options: &Options, out: &mut impl Write) -> Result<Findings, BoxError> {
    let ledger = Ledger::default();
    let caller = Caller::new(options, &ledger)?;
    let mut total = Findings::default();
    let (mut order, mut attempts) = (0, 0);

    writeln!(out, "{LEGEND}\n{}", table::heading(options.colour))?;
    for act in acts::acts() {
        writeln!(out, "\n{}", table::title(options.colour, act.title))?;
        for scene in &act.scenes {
            order += 1;
            let made = scene.payload.make(order).await?;
            let sent = made.bytes.clone();
            let door = Arc::new(Door::new(&ledger, scene.protocol, scene.cues.clone())?);
            let told = caller.call(scene, order, made, &door).await?;

            let truth = ledger.entry(order);
            let claims: Vec<_> = told.attempts.iter().map(Claim::from).collect();
            let findings = judge::judge(&Case {
                nature: scene.nature,
                sent: &sent,
                claims: &claims,
                answer: &told.answer,
                receipt: &Ledger::receipt(order),
                truth: &truth,
            });
            let row = Row {
                order,
                scene,
                told: &told,
                truth: &truth,
                findings: &findings,
            };
            write!(out, "{}", row.print(options.colour))?;
            attempts += told.attempts.len();
            total.add(findings);
        }
    }
    let totals = table::totals(options.colour, order, attempts, &total);
    writeln!(out, "\n{totals}")?;
    Ok(total)
}
