//! An explanation as JSON, for other programs.
//!
//! | key | what |
//! |---|---|
//! | `source` | `files`, `formats` (in the order of the files), `framework`, `device`, `gaps` (what could not be read) |
//! | `verdicts` | the gravest first, each with `kind`, `sentence` and `proof`, a list of facts |
//! | `books` | `of` what, `total_bytes`, and `lines` with `name` and `bytes` that sum to it |
//! | `advice` | the best first, each with `change`, `would_survive` and `peak_reserved_bytes` (`null` where replay cannot tell) and `because` |
//! | `others` | the same for the recording's other devices |
//!
//! A `kind` is one of `too-big`, `fragmented`, `leaking`, `reserved-idle`, `transient-peak`, `limit-low`,
//! `other-process`, `healthy`.

use crate::report::Explanation;
use serde_json::{Value, json};

impl Explanation {
    /// The explanation as JSON, with the keys `source`, `verdicts`, `books`, `advice` and `others`.
    ///
    /// `source` has `files`, `formats`, `framework`, `device` and `gaps`; each of `verdicts` has `kind`,
    /// `sentence` and `proof`; `books` has `of`, `total_bytes` and `lines` (`name`, `bytes`); each of `advice`
    /// has `change`, `would_survive`, `peak_reserved_bytes` and `because`.
    pub fn to_json(&self) -> Value {
        let origin = &self.origin;
        json!({
            "source": {
                "files": origin.files,
                "formats": origin.formats.iter().map(|format| format.name()).collect::<Vec<_>>(),
                "framework": origin.framework.name(),
                "device": self.device,
                "gaps": origin.gaps,
            },
            "verdicts": self.verdicts,
            "books": self.books,
            "advice": self.advice,
            "others": self.others.iter().map(Explanation::to_json).collect::<Vec<_>>(),
        })
    }
}
