//! Data that people have: from a file to a workload that is written for it, a trained model, and predictions for files that lack
//! what is predicted.

mod common;

use common::Place;
use std::fs;
use std::path::Path;

/// Penguins, as people would have them: numbers of rows, notes, names in place of numbers, and cells that are empty.
fn penguins() -> String {
    let mut text = "row,island,bill,mass,note,\"kind, of bird\"\n".to_string();
    for row in 0..90u32 {
        let kind = row % 3;
        let bill = if row % 11 == 5 { "NA".to_string() } else { (35 + 5 * kind + row % 4).to_string() };
        let island = ["Biscoe", "Dream", "Torgersen, west"][((row / 7 + kind) % 3) as usize];
        let mass = 3500.0 + 400.0 * f64::from(kind) + f64::from(row % 5) * 30.5;
        let name = ["Adelie", "Chinstrap", "Gentoo, or \"long-tailed\""][kind as usize].replace('"', "\"\"");
        text += &format!("{row},\"{island}\",{bill},{mass},seen {row},\"{name}\"\n");
    }
    text
}

/// The same without the last column.
fn without_answer(table: &str) -> String {
    table.lines().map(|line| format!("{}\n", line.rsplit_once(",\"").unwrap().0)).collect()
}

#[test]
fn a_workload_is_written_for_a_table_and_predicts_rows_without_an_answer() {
    let place = Place::new();
    place.write("birds.csv", &penguins());
    let said = place.succeed(&["new", "birds", "--data", "birds.csv"]).stdout;
    assert!(said.contains("plimsoll train birds.toml"), "{said}");
    let workload = place.read("birds.toml");
    for line in [
        "label = \"kind, of bird\"",
        "classes = [\"Adelie\", \"Chinstrap\", \"Gentoo, or \\\"long-tailed\\\"\"]",
        "features = [\"island\", \"bill\", \"mass\"]",
        "# not among them: row, which counts the rows",
        "# not among them: note, which has 90 different texts",
        "\"island\" = { categories = [\"Biscoe\", \"Dream\", \"Torgersen, west\"] }",
    ] {
        assert!(workload.contains(line), "{line}\n{workload}");
    }
    assert!(
        workload.contains("\"bill\" = { missing = ") && workload.contains("# missing in 8 rows"),
        "{workload}"
    );
    place.succeed(&["train", "birds.toml", "--quiet"]);
    let accuracy = place.json("runs/birds/run.json")["final_metrics"]["accuracy"].as_f64();
    assert!(accuracy > Some(0.9), "{accuracy:?}");

    place.write("new.csv", &without_answer(&penguins()));
    place.succeed(&["predict", "runs/birds", "new.csv", "--out", "asked.csv"]);
    place.succeed(&["predict", "runs/birds", "birds.csv", "--out", "known.csv"]);
    let asked = place.read("asked.csv");
    assert_eq!(asked, place.read("known.csv"));
    let rows: Vec<&str> = asked.lines().collect();
    assert_eq!((rows.len(), rows[0]), (91, "class,prediction0,prediction1,prediction2"));
    assert!(
        rows[1].starts_with("Adelie,") && rows[3].starts_with("\"Gentoo, or \"\"long-tailed\"\"\","),
        "{asked}"
    );

    let error = place.fail(&["evaluate", "runs/birds", "new.csv"]);
    assert!(error.contains("`kind, of bird`") && error.contains("bill"), "{error}");
    // Columns are found by name, wherever they stand.
    let turned: String = place
        .read("new.csv")
        .lines()
        .map(|line| {
            let (rest, note) = line.rsplit_once(',').unwrap();
            format!("{note},{rest}\n")
        })
        .collect();
    place.write("turned.csv", &turned);
    place.succeed(&["predict", "runs/birds", "turned.csv", "--out", "turned-asked.csv"]);
    assert_eq!(place.read("turned-asked.csv"), asked);
}

#[test]
fn numbers_are_predicted_in_their_own_units() {
    let place = Place::new();
    let price = |row: u32| 250_000.0 + 3000.0 * f64::from(row * 7 % 50) + 20_000.0 * f64::from(row % 3);
    let town = |row: u32| ["a", "b", "c"][(row % 3) as usize];
    let rows = (0..150u32).map(|row| {
        format!("{};{};{}.{}.2024;{},5\n", row * 7 % 50, town(row), 1 + row % 28, 1 + row % 2, price(row))
    });
    place.write("homes.csv", &format!("area;town;sold;price\n{}", rows.collect::<String>()));
    place.succeed(&["new", "homes", "--data", "homes.csv", "--target", "price", "--quiet"]);
    let workload = place.read("homes.toml");
    for line in [
        "delimiter = \";\"",
        "decimal = \",\"",
        "rescale = ",
        "not among them: sold, which holds dates or times",
    ] {
        assert!(workload.contains(line), "{line}\n{workload}");
    }
    place.succeed(&["train", "homes.toml", "--quiet"]);
    let metrics = &place.json("runs/homes/run.json")["final_metrics"];
    assert!(metrics["r2"].as_f64() > Some(0.95), "{metrics}");
    assert!((100.0..20_000.0).contains(&metrics["mae"].as_f64().unwrap()), "{metrics}");
    place.succeed(&["predict", "runs/homes", "homes.csv", "--out", "p.csv"]);
    let first: f64 = place.read("p.csv").lines().nth(1).unwrap().parse().unwrap();
    assert!((first - price(0)).abs() < 40_000.0, "{first}");
    place.succeed(&["export", "runs/homes", "--out", "homes.onnx"]);
}

/// Reviews, some over several lines, of which two words tell.
fn reviews(rows: u32) -> String {
    let review = |n: u32| {
        let (word, kind) = [("wonderful", "good"), ("dreadful", "bad")][(n * 7 / 3 % 2) as usize];
        let before = ["The film, all of it,", "\"\"Well\"\", she said", "On\nthe whole"][(n % 3) as usize];
        format!(
            "{n},\"{before} was {word} to me the {n}th time {}\",{kind}\n",
            "and more ".repeat((n % 5) as usize)
        )
    };
    "id,review,kind\n".to_string() + &(0..rows).map(review).collect::<String>()
}

#[test]
fn texts_are_told_apart_by_their_words() {
    let place = Place::new();
    place.write("reviews.csv", &reviews(120));
    place.succeed(&["new", "reviews", "--data", "reviews.csv"]);
    let workload = place.read("reviews.toml");
    for line in
        ["text = \"review\"\nlength = ", "words = 20000 ", "classes = [\"bad\", \"good\"]", "# not read: id"]
    {
        assert!(workload.contains(line), "{line}\n{workload}");
    }
    place.write("reviews.toml", &workload.replace("epochs = ", "epochs = 12 #"));
    place.succeed(&["train", "reviews.toml", "--quiet"]);
    place.write("new.csv", "review\n\"It was\ndreadful\"\nSo wonderful\n");
    place.succeed(&["predict", "runs/reviews", "new.csv", "--out", "new-out.csv"]);
    let predicted = place.read("new-out.csv");
    let classes: Vec<&str> = predicted.lines().filter_map(|line| line.split(',').next()).collect();
    assert_eq!(classes, ["class", "bad", "good"]);

    let lines =
        workload.replace("kind = \"csv\"", "kind = \"jsonl\"").replace("reviews.csv", "reviews.jsonl");
    place.write("lines.toml", &lines.replace("epochs = ", "epochs = 1 #"));
    let bad = "{\"kind\": \"bad\", \"review\": \"dreadful\"}\n";
    let good = "{\"review\": \"fine\", \"kind\": \"good\"}\n";
    place.write("reviews.jsonl", &[bad, good].concat().repeat(20));
    place.succeed(&["train", "lines.toml", "--quiet"]);
    place.write("new.jsonl", "{\"review\": \"wonderful\"}\n{\"review\": \"\"}\n");
    place.succeed(&["predict", "runs/lines", "new.jsonl", "--out", "lines.csv"]);
    assert_eq!(place.read("lines.csv").lines().count(), 3);
}

#[test]
fn a_text_is_read_in_place_of_other_columns_where_that_is_asked_for() {
    let place = Place::new();
    place.write("birds.csv", &penguins());
    place.succeed(&["new", "birds", "--data", "birds.csv", "--text", "note", "--target", "mass"]);
    let workload = place.read("birds.toml");
    assert!(
        workload.contains("text = \"note\"\nlength = 8 ") && workload.contains("rescale = "),
        "{workload}"
    );
    let shown = place.succeed(&["summary", "birds.toml"]).stdout;
    assert!(shown.contains("32×8×64") && shown.contains("global_mean_pool"), "{shown}");
    let wrong =
        [("mass", "is what is to be predicted, and not the text"), ("colour", "there is no column `colour`")];
    for (text, expected) in wrong {
        let error = place.fail(&["new", "b", "--data", "birds.csv", "--text", text, "--target", "mass"]);
        assert!(error.contains(expected), "{error}");
    }
}

/// Hours of a load that goes by the hour of the day, and of a temperature before it.
fn hours(rows: u32) -> String {
    let load = |n: u32| 100.0 + 30.0 * (f64::from(n) / 24.0 * std::f64::consts::TAU).sin();
    let row = |n: u32| {
        format!("2024-01-{:02} {:02}:00,{:.3},{:.3}\n", 1 + n / 24 % 28, n % 24, load(n), load(n + 1) / 5.0)
    };
    "time,load,temperature\n".to_string() + &(0..rows).map(row).collect::<String>()
}

#[test]
fn what_comes_next_is_predicted_from_the_rows_before() {
    let place = Place::new();
    place.write("hours.csv", &hours(400));
    place.succeed(&["new", "hours", "--data", "hours.csv", "--target", "load", "--window", "12"]);
    let workload = place.read("hours.toml");
    for line in [
        "window = 12\nhorizon = 1 ",
        "features = [\"load\", \"temperature\"]",
        "\"flatten\"",
        "\"load\" = { mean",
    ] {
        assert!(workload.contains(line), "{line}\n{workload}");
    }
    let shown = place.succeed(&["data", "hours.toml"]).stdout;
    assert!(shown.contains("310 to train on, and 78 held out") && shown.contains("f32 [12, 2]"), "{shown}");
    place.succeed(&["train", "hours.toml", "--quiet"]);
    let r2 = place.json("runs/hours/run.json")["final_metrics"]["r2"].as_f64();
    assert!(r2 > Some(0.9), "{r2:?}");
    // The hour after the last is predicted too, which the file does not have.
    place.write("known.csv", &hours(50));
    place.succeed(&["predict", "runs/hours", "known.csv", "--out", "next.csv"]);
    assert_eq!(place.read("next.csv").lines().count(), 1 + 50 - 12 + 1);
    let measured = place.succeed(&["evaluate", "runs/hours", "known.csv"]).stdout;
    assert!(measured.contains("samples    38"), "{measured}");
    place.write("short.csv", &hours(9));
    let error = place.fail(&["evaluate", "runs/hours", "short.csv"]);
    assert!(error.contains("there are 9 rows, and a window with what comes after it has 13"), "{error}");
}

#[test]
fn what_cannot_be_predicted_is_said_and_nothing_is_written() {
    let place = Place::new();
    place.write("birds.csv", &penguins());
    place.write("holes.csv", "x,y\n1,a\n2,\n3,b\n");
    place.write("same.csv", "x,y\n1,a\n2,a\n");
    place.write("lone.csv", "name,y\nann,1.5\nbob,2.5\neve,3.5\n");
    for (arguments, expected) in [
        (
            &["--data", "birds.csv", "--label", "colour"][..],
            "there is no column `colour`; there are: row, island",
        ),
        (
            &["--data", "birds.csv", "--target", "island"],
            "`island` is no column of numbers, with cells such as `Biscoe`",
        ),
        (&["--data", "holes.csv"], "column `y`, which is to be predicted, has 1 empty cells"),
        (&["--data", "same.csv"], "all rows have the same `y`"),
        (&["--data", "lone.csv"], "there is no column to predict `y` from"),
        (&["--data", "nowhere.csv"], "nowhere.csv"),
        (&["--data", "birds.xlsx"], "birds.xlsx: workloads are written for tables"),
        (&["--label", "x"], "name it by --data FILE"),
    ] {
        let error = place.fail(&[&["new", "mine"], arguments].concat());
        assert!(error.contains(expected), "{expected}: {error}");
        assert!(!place.list("").contains(&"mine.toml".to_string()));
    }
}

/// The files that the readers of data are tested with.
fn fixture(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../plimsoll-data/tests/data").join(name);
    fs::canonicalize(path).unwrap().into_os_string().into_string().unwrap()
}

const REST: &str = r#"
[optimizer]
kind = "adam"
rate = 0.01
[train]
batch = 2
steps = 2
"#;

#[test]
fn files_of_every_kind_are_predicted_from_without_their_answers() {
    let jsonl = "path = \"seen.jsonl\"\nkind = \"jsonl\"\nfeatures = \"v\"\nshape = [2]\nlabel = \"mood\"\nclasses = [\"bad\", \"good\"]";
    let seen = (0..6)
        .map(|n| format!("{{\"v\": [{n}, 1], \"mood\": \"{}\"}}\n", if n % 2 == 0 { "bad" } else { "good" }));
    let asked = (0..6).map(|n| format!("{{\"v\": [{n}, 1]}}\n"));
    let images = fixture("images-idx3-ubyte");
    let idx = format!(
        "kind = \"idx\"\npath = \"{images}\"\nlabels = \"{}\"\nclasses = 10\nscale = true",
        fixture("labels-idx1-ubyte")
    );
    let npy = format!(
        "kind = \"npy\"\ninputs = \"{}\"\ntargets = \"{}\"",
        fixture("little-f4.npy"),
        fixture("targets.npy")
    );
    let place = Place::new();
    place.write("seen.jsonl", &seen.collect::<String>());
    place.write("asked.jsonl", &asked.collect::<String>());
    for (name, data, loss, units, alone) in [
        ("jsonl", jsonl, "sparse_cross_entropy", 2, "asked.jsonl".to_string()),
        ("idx", &idx, "sparse_cross_entropy", 10, images.clone()),
        ("npy", &npy, "mse", 1, fixture("little-f4.npy")),
    ] {
        let model = format!("[model]\nkind = \"sequential\"\nlayers = [\"flatten\", {{ dense = {units} }}]");
        place.write(&format!("{name}.toml"), &format!("loss = \"{loss}\"\n[data]\n{data}\n{model}\n{REST}"));
        place.succeed(&["train", &format!("{name}.toml"), "--quiet"]);
        let folder = format!("runs/{name}");
        place.succeed(&["predict", &folder, "--out", &format!("{name}-own.npy")]);
        if name == "idx" {
            // A copy that has no file of labels beside it.
            fs::copy(&images, place.path("images-idx3-ubyte")).unwrap();
        }
        let alone = if name == "idx" { "images-idx3-ubyte".to_string() } else { alone };
        place.succeed(&["predict", &folder, &alone, "--out", &format!("{name}-alone.npy")]);
        let read = |file: &str| fs::read(place.path(file)).unwrap();
        assert_eq!(read(&format!("{name}-own.npy")), read(&format!("{name}-alone.npy")), "{name}");
    }
}

#[test]
fn images_are_trained_on_by_folder_and_predicted_from_without_folders() {
    let place = Place::new();
    let pictures: Vec<_> =
        fs::read_dir(fixture("pictures/png")).unwrap().map(|entry| entry.unwrap().path()).collect();
    let is_image =
        |path: &&std::path::PathBuf| path.extension().is_some_and(|end| end == "png" || end == "jpg");
    let mut images: Vec<_> = pictures.iter().filter(is_image).filter(|path| path.is_file()).collect();
    images.sort();
    assert!(images.len() >= 4, "{pictures:?}");
    for (number, image) in images.iter().take(4).enumerate() {
        let class = place.path("sorted").join(["bird", "cat"][number / 2]);
        fs::create_dir_all(&class).unwrap();
        fs::create_dir_all(place.path("flat")).unwrap();
        let name = format!("{number}-{}", image.file_name().unwrap().to_str().unwrap());
        fs::copy(image, class.join(&name)).unwrap();
        fs::copy(image, place.path("flat").join(&name)).unwrap();
    }
    place.succeed(&["new", "pets", "--data", "sorted", "--quiet"]);
    assert!(place.read("pets.toml").contains("{ dense = 2 }"));
    let shorter = place.read("pets.toml").replace("held_out = 0.2", "").replace("epochs = 20", "steps = 2");
    place.write("pets.toml", &shorter);
    place.succeed(&["train", "pets.toml", "--quiet"]);
    place.succeed(&["predict", "runs/pets", "--out", "own.npy"]);
    place.succeed(&["predict", "runs/pets", "flat", "--out", "flat.npy"]);
    assert_eq!(fs::read(place.path("own.npy")).unwrap(), fs::read(place.path("flat.npy")).unwrap());
    place.succeed(&["predict", "runs/pets", "flat", "--out", "flat.csv"]);
    place.succeed(&["predict", "runs/pets", "--out", "own.csv"]);
    let names = |table: &str| {
        let text = place.read(table);
        text.lines().map(|line| line.split(',').next().unwrap().to_string()).collect::<Vec<String>>()
    };
    let (flat, own) = (names("flat.csv"), names("own.csv"));
    assert_eq!((flat.len(), &*flat[0], &*own[0]), (5, "file", "file"));
    assert!(
        flat[1].starts_with("0-") && own[1].starts_with("bird/0-") && own[3].starts_with("cat/2-"),
        "{flat:?} {own:?}"
    );
    assert!(place.fail(&["new", "other", "--data", "flat"]).contains("there are no folders in it"));
}

#[test]
fn rows_and_objects_that_are_broken_are_left_out_where_that_is_asked_for() {
    let place = Place::new();
    let is_broken = |row: u32| row % 12 == 7;
    let cell = |row: u32| if is_broken(row) { "oops".to_string() } else { row.to_string() };
    let rows: String = (0..36).map(|row| format!("{},{}\n", cell(row), row % 2)).collect();
    place.write("rows.csv", &format!("x,y\n{rows}"));
    let objects = |row: u32| format!("{{\"x\": [{}], \"y\": {}}}\n", cell(row), row % 2);
    place.write("rows.jsonl", &(0..36).map(objects).collect::<String>());
    let model = "[model]\nkind = \"sequential\"\nlayers = [{ dense = 2 }]";
    for (kind, keys) in
        [("csv", "path = \"rows.csv\""), ("jsonl", "path = \"rows.jsonl\"\nfeatures = \"x\"\nshape = [1]")]
    {
        let train = |skipped: &str, held_out: &str| {
            let data =
                format!("[data]\nkind = \"{kind}\"\n{keys}\nlabel = \"y\"\nclasses = 2\n{skipped}\n{model}");
            place.write("rows.toml", &format!("loss = \"sparse_cross_entropy\"\n{data}\n{REST}{held_out}\n"));
            place.run(&["train", "rows.toml", "--quiet"])
        };
        let refused = train("", "").error();
        assert!(
            refused.contains(&format!("rows.{kind}")) && refused.contains("oops") || kind == "jsonl",
            "{refused}"
        );
        assert!(train("skip_errors = 2", "").error().contains("rows."), "{kind}");
        assert_eq!(train("skip_errors = 3", "").code, Some(0), "{kind}");
        assert_eq!(train("skip_errors = 3", "held_out = 0.25").code, Some(0), "{kind}");
    }
}
