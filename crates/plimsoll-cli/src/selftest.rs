//! `plimsoll selftest`: whether memory on this machine does what is relied on, and kernels compute what they should.

use crate::Result;
use crate::show::{self, AnswerIsNo};
use plimsoll::DeviceName;
use plimsoll::selftest::{Report, SelfTest, Subject, Verdict, cases};
use serde_json::json;
use std::io::Write;
use std::process::Command;

/// Try what a device is relied on for, on the device itself
///
/// Its memory first, then every kind of kernel: at the edges of what numbers can be against double precision, and on a
/// GPU in all shapes and types against the CPU. A GPU is filled for a moment, so nothing else should
/// be using it.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The device: cuda: and its number, or cpu
    #[arg(long, value_name = "DEVICE", default_value = "cuda:0")]
    device: DeviceName,
    /// Try only kernels whose name has this in it
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Begin with the kernel of this number
    #[arg(long, value_name = "NUMBER", default_value_t = 0, hide = true)]
    from: usize,
    /// Print what did not pass and the sums, and nothing while it runs
    #[arg(long)]
    quiet: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A kernel, or something else that was tried, and what came of it.
type Tried = (String, Report);

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result {
    let subject = Subject::open(args.device)?;
    let everything = args.only.is_none() && args.from == 0;
    let checks = if everything { subject.memory() } else { Vec::new() };
    if !args.json && !args.quiet {
        show_checks(&checks, out)?;
    }
    let (tried, broken_at) = try_kernels(args, &subject, everything, out)?;
    drop(subject);
    if args.json {
        return json_report(args, &checks, &tried, out);
    }
    let result = summary(args, &checks, &tried, out);
    match broken_at {
        // Only another process can use the device after a kernel broke it.
        Some(next) => go_on(args, next, out).and(result),
        None => result,
    }
}

/// Tries kernels one after another; the number of the next one if the device broke.
fn try_kernels(
    args: &Args,
    subject: &Subject,
    everything: bool,
    out: &mut dyn Write,
) -> Result<(Vec<Tried>, Option<usize>)> {
    let mut tried = Vec::new();
    let compared = !subject.is_reference();
    if everything && compared {
        tried.extend(subject.executor().into_iter().map(|(name, report)| (name.to_string(), report)));
    }
    for (name, report) in &tried {
        show_tried(args, name, report, out)?;
    }
    let wanted = |name: &str| args.only.as_ref().is_none_or(|only| name.contains(only.as_str()));
    let cases = if compared { cases() } else { vec![] };
    for (number, case) in cases.iter().enumerate().skip(args.from) {
        if !wanted(case.name()) {
            continue;
        }
        let report = case.run(subject);
        show_tried(args, case.name(), &report, out)?;
        let broken = report.verdict == Verdict::Broken;
        tried.push((case.name().to_string(), report));
        if broken {
            return Ok((tried, Some(number + 1)));
        }
    }
    let mut shown = Ok(());
    let tell = &mut |name: String, report: Report| {
        if shown.is_ok() {
            shown = show_tried(args, &name, &report, out);
        }
        tried.push((name, report));
    };
    subject.edges(&wanted, tell);
    if compared {
        subject.eager(&wanted, tell);
        subject.trainings(&wanted, tell);
    }
    shown?;
    Ok((tried, None))
}

/// Tries the rest in another process.
fn go_on(args: &Args, next: usize, out: &mut dyn Write) -> Result {
    writeln!(out, "\nthe device is of no more use to this process; another goes on\n")?;
    out.flush()?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["selftest", "--device", &args.device.to_string(), "--from", &next.to_string()]);
    if args.quiet {
        command.arg("--quiet");
    }
    if let Some(only) = &args.only {
        command.args(["--only", only]);
    }
    match command.status()?.success() {
        true => Ok(()),
        false => Err("the checks that another process went on with failed".into()),
    }
}

fn show_checks(checks: &[SelfTest], out: &mut dyn Write) -> Result {
    for check in checks {
        let mark = if check.passed { "ok" } else { "FAILED" };
        show::lines(&format!("{mark:<6}  {:>6.2} s  {}", check.seconds, check.name), 18, out)?;
        show::lines(&format!("{:18}{}", "", check.detail), 18, out)?;
    }
    Ok(())
}

fn show_tried(args: &Args, name: &str, report: &Report, out: &mut dyn Write) -> Result {
    if args.json || args.quiet {
        return Ok(());
    }
    let mark = mark(report.verdict);
    let (seconds, microseconds, error) = (report.seconds, report.microseconds, report.error);
    let line = format!("{mark:<6}  {seconds:>6.2} s {microseconds:>9.1} µs  {error:>8.3} of bound  {name}");
    show::lines(&line, 18, out)?;
    if report.verdict != Verdict::Passed || microseconds == 0.0 {
        for line in report.detail.lines() {
            show::lines(&format!("{:18}{line}", ""), 18, out)?;
        }
    }
    Ok(out.flush()?)
}

fn mark(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Passed => "ok",
        Verdict::Failed => "FAILED",
        Verdict::Missing => "none",
        Verdict::Broken => "BROKEN",
    }
}

fn summary(args: &Args, checks: &[SelfTest], tried: &[Tried], out: &mut dyn Write) -> Result {
    let failed = checks.iter().filter(|check| !check.passed).count();
    if !checks.is_empty() {
        writeln!(out, "\n{} of {} checks passed on {}", checks.len() - failed, checks.len(), args.device)?;
    }
    let count = |verdict| tried.iter().filter(|(_, report)| report.verdict == verdict).count();
    let (passed, missing) = (count(Verdict::Passed), count(Verdict::Missing));
    if !tried.is_empty() {
        let wrong = tried.len() - passed - missing;
        let line = format!(
            "{passed} of {} kernels and trainings give what they should, {wrong} do not, {missing} are missing",
            tried.len()
        );
        show::lines(&line, 0, out)?;
        for (name, report) in tried.iter().filter(|(_, report)| report.verdict != Verdict::Passed) {
            writeln!(out, "{:<6}  {name}", mark(report.verdict))?;
        }
    }
    outcome(args, failed + tried.len() - passed, checks.len() + tried.len())
}

fn json_report(args: &Args, checks: &[SelfTest], tried: &[Tried], out: &mut dyn Write) -> Result {
    let passed = |report: &Report| report.verdict == Verdict::Passed;
    let failed = checks.iter().filter(|check| !check.passed).count()
        + tried.iter().filter(|(_, report)| !passed(report)).count();
    let of_checks = checks.iter().map(|check| {
        json!({ "name": check.name, "passed": check.passed, "detail": check.detail, "seconds": check.seconds })
    });
    let of_kernels = tried.iter().map(|(name, report)| {
        json!({
            "name": name,
            "passed": passed(report),
            "verdict": mark(report.verdict),
            "error": report.error,
            "microseconds": report.microseconds,
            "detail": report.detail,
            "seconds": report.seconds,
        })
    });
    let (of_checks, of_kernels): (Vec<_>, Vec<_>) = (of_checks.collect(), of_kernels.collect());
    let all = json!({ "device": args.device.to_string(), "passed": failed == 0, "checks": of_checks, "kernels": of_kernels });
    show::json(&all, out)?;
    outcome(args, failed, checks.len() + tried.len())
}

fn outcome(args: &Args, failed: usize, all: usize) -> Result {
    match failed {
        0 => Ok(()),
        _ if args.json => Err(AnswerIsNo.into()),
        _ => Err(format!("{failed} of {all} checks failed on {}", args.device).into()),
    }
}
