//! The embedded renderer and npm's mjml, in CPU time.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};
use longshore_mail::mjml::{EmbeddedRenderer, MjmlTemplate, Roots};
use rustix::time::{ClockId, clock_gettime};

pub(crate) fn measure(folder: &Path, mjml: &Path, renderings: u32) -> anyhow::Result<()> {
    let templates = templates(folder)?;
    // Both get the same text, with includes resolved.
    let expanded = tempfile::tempdir()?;
    for (name, template) in &templates {
        std::fs::write(expanded.path().join(name), template.text())?;
    }
    let theirs = theirs(mjml, expanded.path(), renderings)?;
    println!("{:<24} {:>12} {:>12} {:>8}", "CPU ms", "embedded", "npm mjml", "ratio");
    let (mut ours_all, mut theirs_all) = (0.0, 0.0);
    for (name, template) in &templates {
        let Ok(ours) = ours(template, renderings * 10) else {
            println!("{name:<24} {:>12}", "refused");
            continue;
        };
        let theirs = theirs.get(name).copied().with_context(|| format!("nothing of {name}"))?;
        (ours_all, theirs_all) = (ours_all + ours, theirs_all + theirs);
        println!("{name:<24} {ours:>12.3} {theirs:>12.2} {:>8.1}", theirs / ours);
    }
    println!("{:<24} {ours_all:>12.3} {theirs_all:>12.2} {:>8.1}", "all", theirs_all / ours_all);
    Ok(())
}

fn templates(folder: &Path) -> anyhow::Result<BTreeMap<String, MjmlTemplate>> {
    let roots = Roots::new([folder])?;
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.ends_with(".mjml") && !name.starts_with('_') {
            found.insert(name, MjmlTemplate::read(&path, &roots)?);
        }
    }
    Ok(found)
}

fn ours(template: &MjmlTemplate, renderings: u32) -> anyhow::Result<f64> {
    let cpu = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        time.tv_sec as f64 * 1e3 + time.tv_nsec as f64 / 1e6
    };
    EmbeddedRenderer::render_blocking(template)?;
    let before = cpu();
    for _ in 0..renderings {
        std::hint::black_box(EmbeddedRenderer::render_blocking(template)?);
    }
    Ok((cpu() - before) / f64::from(renderings))
}

fn theirs(mjml: &Path, folder: &Path, renderings: u32) -> anyhow::Result<BTreeMap<String, f64>> {
    let script = crate::here().join("peers/mjml.cjs");
    let mut command = Command::new("node");
    command.arg(script).arg(mjml).arg(folder).arg(renderings.to_string());
    let output = command.output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "npm's mjml: `npm install --prefix target/mjml mjml`\n{said}");
    let text = String::from_utf8(output.stdout)?;
    let line = |line: &str| {
        let (name, time) = line.split_once(' ')?;
        Some((name.to_owned(), time.parse().ok()?))
    };
    Ok(text.lines().filter_map(line).collect())
}
