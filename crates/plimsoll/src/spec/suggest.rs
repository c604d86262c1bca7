//! What somebody meant by a name that does not exist.

/// The name among `known` that is spelled most like `name`, if one is spelled much like it.
pub(crate) fn nearest<'a>(known: impl IntoIterator<Item = &'a str>, name: &str) -> Option<&'a str> {
    let allowed = (name.chars().count() / 3).max(1);
    known
        .into_iter()
        .map(|known| (distance(known, name), known))
        .filter(|&(distance, known)| distance <= allowed && distance < known.chars().count())
        .min_by_key(|&(distance, _)| distance)
        .map(|(_, known)| known)
}

/// What to write in place of a name that is not known.
pub(crate) fn hint(known: &[&str], name: &str) -> String {
    match nearest(known.iter().copied(), name) {
        Some(meant) => format!("did you mean `{meant}`?"),
        None => format!("there are: {}", known.join(", ")),
    }
}

/// How many letters must be added, removed, replaced or swapped with their neighbour to make one of the other.
fn distance(a: &str, b: &str) -> usize {
    let [a, b]: [Vec<char>; 2] = [a, b].map(|text| text.chars().collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = replaced.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_finger_finds_the_name() {
        let known = ["batch", "epochs", "seed", "digits", "gpt-small"];
        for (slip, meant) in [
            ("bach", "batch"),
            ("epoch", "epochs"),
            ("sede", "seed"),
            ("digit", "digits"),
            ("gpt_small", "gpt-small"),
        ] {
            assert_eq!(nearest(known, slip), Some(meant), "{slip}");
        }
    }

    #[test]
    fn a_name_unlike_all_others_finds_none() {
        assert_eq!(nearest(["batch", "epochs", "seed", "path"], "momentum"), None);
        assert_eq!(nearest(["dense", "init", "bias"], "units"), None);
        assert_eq!(nearest(["to"], "x"), None);
        assert_eq!(nearest([], ""), None);
    }
}
