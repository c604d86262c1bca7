//! Files that strangers sent: whatever is in them, nothing acts on the terminal, waits or takes without end.

mod common;

use common::{FLOWERS, Place, Ran};

/// All controls but the end of a line, and marks of direction.
fn hostile() -> String {
    let controls = (0..0x20).chain(0x7f..0xa0).filter(|&code| code != 0x0a).filter_map(char::from_u32);
    controls.chain("\u{202e}\u{2066}\u{200f}\u{61c}\u{2028}".chars()).collect()
}

/// The same as the text of a TOML string.
fn escaped() -> String {
    hostile().chars().map(|character| format!("\\u{:04x}", character as u32)).collect()
}

const DIGITS: &str = include_str!("../../plimsoll/workloads/digits.toml");

#[track_caller]
fn assert_plain(ran: &Ran) {
    let found = [&ran.stdout, &ran.stderr].into_iter().flat_map(|text| text.chars()).find(|&character| {
        character != '\n'
            && (character.is_control() || "\u{202e}\u{2066}\u{200f}\u{61c}\u{2028}".contains(character))
    });
    assert_eq!(found, None, "{:?}\n{:?}", ran.stdout, ran.stderr);
    assert!(!ran.stderr.contains("panicked"), "{}", ran.stderr);
}

#[test]
fn nothing_in_a_workload_acts_on_the_terminal() {
    let place = Place::new();
    let text = escaped();
    let csv = "a,b,species\n1,2,0\n3,4,1\n1,3,0\n2,4,1\n";
    place.write("data.csv", csv);
    let workload = FLOWERS.replace("epochs = 40", "steps = 1");
    let cases = [
        format!("about = \"{text}\"\n{workload}"),
        format!("name = \"{text}\"\n{workload}"),
        format!("\"{text}\" = 1\n{workload}"),
        workload.replace("sparse_cross_entropy", &text),
        workload.replace("kind = \"csv\"", &format!("kind = \"{text}\"")),
        workload.replace("data.csv", &text),
        workload.replace("label = \"species\"", &format!("label = \"{text}\"")),
        workload.replace("{ dense = 8,", &format!("{{ dense = 8, name = \"{text}\",")),
        workload.replace("\"relu\"", &format!("\"{text}\"")),
        workload.replace("kind = \"adam\"", &format!("kind = \"{text}\"")),
        workload.replace("batch = 4", &format!("batch = 4\ndevice = \"{text}\"")),
        // Not escaped in the file: no TOML, and shown as it is in the message.
        format!("about = \"{}\"\n{workload}", hostile()),
    ];
    for case in cases {
        place.write("w.toml", &case);
        for command in [
            &["train", "w.toml", "--out", "out"][..],
            &["forecast", "w.toml"],
            &["bench", "w.toml", "--steps", "1"],
        ] {
            assert_plain(&place.run(command));
        }
    }
}

#[test]
fn nothing_in_data_profiles_or_names_acts_on_the_terminal() {
    let place = Place::new();
    let cells: String = hostile().chars().filter(|&character| character != '\r').collect();
    for csv in [format!("a,b{cells},species\n1,x{cells},0\n"), format!("a,b,species{cells}\n1,2,0\n")] {
        place.write("data.csv", &csv);
        place.write("w.toml", FLOWERS);
        assert_plain(&place.run(&["train", "w.toml"]));
    }
    place.write("p.toml", &format!("about = \"{}\"\n\"{}\" = 1\n", escaped(), escaped()));
    assert_plain(&place.run(&["forecast", "digits", "--device", "./p.toml"]));
    place.write("x.csv", &format!("id,lower,upper,size\n{cells},0,{cells},4\n"));
    assert_plain(&place.run(&["pack", "x.csv"]));
    let name: String = hostile().chars().filter(|&character| character != '\0').collect();
    for command in ["train", "forecast", "bench", "pack", "explain", "replay", "workloads"] {
        assert_plain(&place.run(&[command, &name]));
    }
    assert_plain(&place.run(&[&format!("--{name}")]));
    place.write(
        "log.txt",
        &format!("RuntimeError: CUDA out of memory. Tried to allocate {name} GiB (GPU 0; {name}\n"),
    );
    assert_plain(&place.run(&["explain", "log.txt"]));
    assert_plain(&place.run(&["explain", "log.txt", "--json"]));
}

#[cfg(target_os = "linux")]
#[test]
fn files_without_end_are_refused() {
    let place = Place::new();
    place.write("w.toml", &FLOWERS.replace("data.csv", "/dev/zero"));
    assert!(place.fail(&["train", "w.toml"]).contains("it is no regular file"));
    for command in [&["train", "/dev/zero"][..], &["forecast", "digits", "--device", "/dev/zero"]] {
        assert!(place.fail(command).contains("it has more than the"), "{command:?}");
    }
}

#[cfg(unix)]
#[test]
fn whatever_is_read_from_a_pipe_says_that_it_is_waited_for() {
    let recorded = include_str!("../../plimsoll-explain/tests/data/explained/torch-leak.oom.txt");
    let packing = "id,lower,upper,size\nx,0,1,8\n";
    let device = include_str!("../../plimsoll/devices/t4.toml");
    let cases: [(&[&str], &str); 6] = [
        (&["explain", "pipe"], recorded),
        (&["replay", "pipe"], recorded),
        (&["pack", "pipe"], packing),
        (&["forecast", "pipe"], DIGITS),
        (&["train", "pipe", "--out", "out"], DIGITS),
        (&["forecast", "digits", "--device", "./link.toml"], device),
    ];
    for (command, text) in cases {
        let place = Place::new();
        // Nothing is written before the command has said what it waits for.
        let script = format!(
            "mkfifo pipe heard; ln -s pipe link.toml; $PLIMSOLL {} 2> heard & read line < heard; echo \"$line\"; \
             cat > pipe <<'END'\n{text}\nEND\nwait",
            command.join(" ")
        );
        let ran = place.shell(&script);
        let name = if command.contains(&"./link.toml") { "./link.toml" } else { "pipe" };
        let said = format!("waiting for what is written to the pipe {name}\n");
        assert!(ran.stdout.starts_with(&said), "{command:?}: {}\n{}", ran.stdout, ran.stderr);
    }
}

#[cfg(unix)]
#[test]
fn the_pipes_of_a_shell_are_read_without_a_word() {
    let place = Place::new();
    place.write("x.csv", "id,lower,upper,size\nx,0,1,8\n");
    let ran = place.shell("cat x.csv | $PLIMSOLL pack /dev/stdin");
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{}", ran.stdout);
}
