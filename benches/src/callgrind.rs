//! Instructions of a call, counted by valgrind: exact, whatever else the machine does.
//!
//! The benchmark runs itself under callgrind, which counts inside one function only.

use std::process::Command;
use std::{env, fs, process};

use crate::cases::{self, Case};
use crate::inner::Upstream;
use crate::request::Profile;
use crate::rounds;

const CHILD: &str = "count-instructions-of";
const BATCH: usize = 32;

/// To be called first by whatever counts: in the process under valgrind this makes the calls.
pub fn child() {
    let arguments: Vec<String> = env::args().skip(1).take(3).collect();
    let [mark, profile, index] = arguments.as_slice() else {
        return;
    };
    if mark != CHILD {
        return;
    }
    let profile = match profile.as_str() {
        "POST" => Profile::Post,
        _ => Profile::Get,
    };
    let index: usize = index.parse().expect("a number");
    let mut cases = cases::all(profile, Upstream::Well);
    let case = &mut *cases[index];
    for _ in 0..10 {
        case.prepare(BATCH);
        case.run();
    }
    case.prepare(BATCH);
    counted_by_callgrind(case);
    process::exit(0);
}

/// Whether valgrind is there.
pub fn is_available() -> bool {
    Command::new("valgrind")
        .arg("--version")
        .output()
        .is_ok_and(|output| output.status.success())
}

/// Instructions of a call over its base, for each of `names`.
pub fn net(profile: Profile, names: &[&'static str]) -> Vec<i64> {
    let cases = cases::all(profile, Upstream::Well);
    names
        .iter()
        .map(|name| {
            let index = rounds::position(&cases, name);
            let base = rounds::position(&cases, cases[index].base());
            whole(profile, index) - whole(profile, base)
        })
        .collect()
}

fn whole(profile: Profile, index: usize) -> i64 {
    let out = env::temp_dir().join(format!("callgrind.{}.{index}", process::id()));
    let status = Command::new("valgrind")
        .args(["-q", "--tool=callgrind", "--collect-atstart=no"])
        // No debugger is waited for: its pipes in the temporary directory are one thing less to fail.
        .arg("--vgdb=no")
        .arg("--toggle-collect=*counted_by_callgrind*")
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(env::current_exe().expect("a path of its own"))
        .args([CHILD, profile.name(), &index.to_string()])
        .status()
        .expect("valgrind runs");
    assert!(status.success(), "the run under valgrind failed: {status}");
    let counts = fs::read_to_string(&out).expect("callgrind wrote its counts");
    fs::remove_file(&out).ok();
    let total: i64 = counts
        .lines()
        .find_map(|line| line.strip_prefix("summary: "))
        .and_then(|total| total.trim().parse().ok())
        .expect("a total");
    total / BATCH as i64
}

#[inline(never)]
fn counted_by_callgrind(case: &mut dyn Case) {
    case.run();
    // Not a tail call: the function is on the stack while the case runs.
    std::hint::black_box(());
}
