//! The public API is written down in `docs/public-api.txt`, in rustdoc's own words, so that a change of it
//! shows in a review. What each feature compiles in is checked beside it.

#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

const LIST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/public-api.txt");

/// Every item's page, as `all.html` lists them, with its methods and the traits it implements.
#[test]
#[ignore = "builds the documentation: cargo test --test public_api -- --ignored"]
fn the_public_api_is_what_is_written_down() {
    let pages = documentation();
    let all = std::fs::read_to_string(pages.join("all.html")).unwrap();
    let all = all.split("<main>").nth(1).unwrap();
    let mut items: Vec<&str> = between(all, "<li><a href=\"", "\"").collect();
    items.sort_by_key(|page| page.replace(['/', '.'], " "));
    let mut found = String::new();
    for page in items.into_iter().filter(|page| !page.starts_with("docs/")) {
        let html = std::fs::read_to_string(pages.join(page)).unwrap();
        let module = page.rsplit_once('/').map_or("", |(module, _)| module);
        describe(&html, module, &mut found);
    }
    if std::env::var("PUBLIC_API").as_deref() == Ok("write") {
        std::fs::write(LIST, &found).unwrap();
    }
    let written = std::fs::read_to_string(LIST).unwrap();
    let gone = written
        .lines()
        .filter(|line| !found.lines().any(|new| new == *line));
    let new = found
        .lines()
        .filter(|line| !written.lines().any(|old| old == *line));
    let change: Vec<String> = (gone.map(|line| format!("- {line}")))
        .chain(new.map(|line| format!("+ {line}")))
        .collect();
    assert!(
        change.is_empty() && written == found,
        "the public API has changed; if it is meant: PUBLIC_API=write cargo test --test public_api -- --ignored\n{}",
        change.join("\n")
    );
}

/// Builds it with all features, and says where it is.
fn documentation() -> std::path::PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let status = Command::new(env!("CARGO"))
        .args([
            "doc",
            "--quiet",
            "--no-deps",
            "--all-features",
            "--target-dir",
        ])
        .arg(target)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status();
    assert!(status.unwrap().success(), "cargo doc");
    target.join("doc/tower_http_retry")
}

fn describe(html: &str, module: &str, list: &mut String) {
    // What follows comes from the compiler and from blanket impls: no promise of ours.
    let own = html
        .split("id=\"synthetic-implementations\"")
        .next()
        .unwrap();
    let declaration = between(own, "<pre class=\"rust item-decl\"><code>", "</code></pre>");
    let declaration = text(declaration.into_iter().next().unwrap());
    let head = match declaration.find("pub trait") {
        Some(_) => declaration.split(" {").next().unwrap(),
        None => &declaration,
    };
    let module = if module.is_empty() {
        String::new()
    } else {
        format!("[{module}] ")
    };
    writeln!(list, "{module}{head}").unwrap();

    let mut members: Vec<String> = Vec::new();
    for section in own.split("<section id=\"").skip(1) {
        let class = between(section, "class=\"", "\"").next().unwrap();
        let kept = matches!(
            class,
            "method" | "impl" | "associatedconstant" | "associatedtype"
        );
        if let (true, Some(code)) = (
            kept,
            between(section, "class=\"code-header\">", "</h").next(),
        ) {
            members.push(text(code));
        }
    }
    // An inherent impl's header says nothing that its methods do not.
    members.retain(|member| !member.starts_with("impl") || member.contains(" for "));
    members.retain(|member| !member.contains("StructuralPartialEq") && !member.contains("__pin"));
    members.sort();
    members.dedup();
    for member in members {
        writeln!(list, "    {member}").unwrap();
    }
}

fn between<'a>(html: &'a str, start: &'a str, end: &'a str) -> impl Iterator<Item = &'a str> {
    let parts = html.split(start).skip(1);
    parts.map(move |part| part.split(end).next().unwrap())
}

/// Without tags and entities, on one line.
fn text(html: &str) -> String {
    let mut plain = String::new();
    // rustdoc folds long enums.
    let html = match (html.find("<summary"), html.find("</summary>")) {
        (Some(start), Some(end)) => [&html[..start], &html[end..]].concat(),
        _ => html.to_owned(),
    };
    let html = html.replace("<div", " <div").replace("</div>", "</div> ");
    for part in html.split('<') {
        plain.push_str(part.split_once('>').map_or(part, |(_, text)| text));
    }
    let plain = plain
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&quot;", "\"")
        .replace("&#39;", "'")
        .replace("&nbsp;", " ")
        .replace("&amp;", "&");
    plain.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn no_transports_type_is_public_outside_of_its_adapter() {
    let list = std::fs::read_to_string(LIST).unwrap();
    let (hyper, reqwest) = (
        ["HyperService", "Incoming"],
        ["ReqwestService", "ReqwestFuture"],
    );
    for line in list.lines() {
        let lower = line.to_lowercase();
        assert!(
            !lower.contains("rustls") && !lower.contains("h2::"),
            "{line}"
        );
        for (transport, names) in [("hyper", &hyper), ("reqwest", &reqwest)] {
            let own = names.iter().any(|name| line.contains(name));
            assert!(own || !lower.contains(transport), "{line}");
        }
    }
}

/// Crates that are compiled in with these features.
fn crates(features: &str) -> Vec<String> {
    let output = Command::new(env!("CARGO"))
        .args([
            "tree",
            "--offline",
            "--edges",
            "normal",
            "--prefix",
            "none",
            "--no-default-features",
        ])
        .args(["--package", "tower-http-retry", "--features", features])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    let lines = String::from_utf8(output.stdout).unwrap();
    let names = lines.lines().filter_map(|line| line.split(' ').next());
    names.map(str::to_owned).collect()
}

/// What is not compiled in cannot be in a signature.
#[test]
fn without_its_feature_a_transport_is_not_even_compiled() {
    let transports = [
        "h2",
        "hyper",
        "hyper-util",
        "metrics",
        "reqwest",
        "rustls",
        "tracing",
    ];
    for (features, expected) in [
        ("", &[][..]),
        ("fs", &[]),
        ("multipart", &[]),
        ("tracing", &["tracing"]),
        ("metrics", &["metrics"]),
        ("rustls", &["rustls"]),
    ] {
        let crates = crates(features);
        let found: Vec<_> = transports
            .into_iter()
            .filter(|name| crates.iter().any(|it| it == name))
            .collect();
        assert_eq!(found, expected, "with the features \"{features}\"");
    }
    let hyper = crates("hyper");
    assert!(
        !hyper
            .iter()
            .any(|name| name == "reqwest" || name == "rustls")
    );
}

/// `docs/design.md` gives a reason for each.
#[test]
fn every_dependency_of_the_bare_crate_has_its_reason_on_the_page() {
    let manifest = include_str!("../Cargo.toml");
    let section = manifest.split("\n[dependencies]\n").nth(1).unwrap();
    let section = section.split("\n[").next().unwrap();
    let page = include_str!("../docs/design.md");
    let lines = section
        .lines()
        .filter(|line| line.contains(" = ") && !line.contains("optional"));
    let names: Vec<_> = lines.map(|line| line.split(' ').next().unwrap()).collect();
    assert!(names.len() > 10, "{names:?}");
    for name in names {
        assert!(page.contains(&format!("`{name}`")), "{name} has no reason");
    }
}

/// A page that is not mounted is a page whose code nobody compiles.
#[test]
fn every_page_is_mounted_into_rustdoc() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mounts = ["src/docs.rs", "src/observe/mod.rs"];
    let mounts = mounts
        .map(|file| std::fs::read_to_string(root.join(file)).unwrap())
        .concat();
    for page in root.join("docs").read_dir().unwrap() {
        let name = page.unwrap().file_name().into_string().unwrap();
        let mounted = mounts.contains(&format!("docs/{name}\")"));
        assert!(
            mounted || !name.ends_with(".md"),
            "docs/{name} is not in src/docs.rs"
        );
    }
}
