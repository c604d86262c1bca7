//! What terminals and shells are given: colours, completions, manual pages.

mod common;

use common::Place;
use std::process::Command;

#[test]
fn colours_are_where_they_are_asked_for_and_nowhere_else() {
    let place = Place::new();
    for (script, coloured) in [
        ("$PLIMSOLL forecast digits", false),
        ("$PLIMSOLL forecast digits --color always", true),
        ("CLICOLOR_FORCE=1 $PLIMSOLL forecast digits", true),
        ("CLICOLOR_FORCE=1 NO_COLOR=1 $PLIMSOLL forecast digits", false),
        ("CLICOLOR_FORCE=1 TERM=dumb $PLIMSOLL forecast digits", false),
        ("CLICOLOR_FORCE=1 $PLIMSOLL forecast digits --color never", false),
        ("$PLIMSOLL forecast digits --json --color always", false),
        ("$PLIMSOLL --color always train nothing 2>&1", true),
    ] {
        let ran = place.shell(&format!("unset NO_COLOR CLICOLOR CLICOLOR_FORCE; TERM=xterm; {script}"));
        assert_eq!(ran.stdout.contains('\u{1b}'), coloured, "{script}: {}", ran.stdout);
    }
}

#[test]
fn bash_completes_commands_and_options() {
    let place = Place::new();
    let complete = |words: &str, index: usize, current: &str| {
        let script = format!(
            "$PLIMSOLL completions bash > script && bash -c 'source ./script; COMP_WORDS=({words}); \
             COMP_CWORD={index}; _plimsoll plimsoll {current} plimsoll; echo ${{COMPREPLY[@]}}'"
        );
        place.shell(&script).stdout
    };
    if Command::new("bash").arg("--version").output().is_ok() {
        assert_eq!(complete("plimsoll fo", 1, "fo"), "forecast\n");
        assert!(complete("plimsoll forecast --max", 2, "--max").contains("--max-batch"));
    }
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = place.succeed(&["completions", shell]).stdout;
        for word in ["forecast", "summary", "max-batch"] {
            assert!(script.contains(word), "{shell} has no {word}");
        }
    }
}

#[test]
fn there_is_a_page_for_each_command() {
    let place = Place::new();
    place.succeed(&["man", "pages"]);
    let pages = place.list("pages");
    for command in ["", "-train", "-forecast", "-summary", "-explain", "-new", "-devices"] {
        assert!(pages.contains(&format!("plimsoll{command}.1")), "{pages:?}");
    }
    let page = place.succeed(&["man"]).stdout;
    for part in [".TH plimsoll 1", ".SH NAME", ".SH SYNOPSIS", "plimsoll\\-train(1)"] {
        assert!(page.contains(part), "no `{part}` in {page}");
    }
    if Command::new("man").arg("--version").output().is_ok() {
        let shown = place.shell("MANWIDTH=80 man -l pages/plimsoll-forecast.1 | col -b");
        assert!(shown.stdout.contains("--max-batch") && shown.stderr.is_empty(), "{shown:?}");
    }
}
