//! An explanation as JSON, for other programs.
//!
//! | key | what |
//! |---|---|
//! | `source` | `files`, `formats` (in the order of the files), `framework`, `device`, `gaps` (what could not be read), `partial` (whether that could change what is said) |
//! | `moment` | the one moment that books and verdicts are of: `label`, `kind` (`refusal`, `peak` or `end`), `event` (counted from 1), `refused_bytes`, `reserved_bytes`, `live_bytes` (with rounding), `requested_bytes` (without), `fragmentation` and `holders`; `null` where unknown |
//! | `verdicts` | the gravest first, each with `kind`, `sentence` and `proof`, a list of facts |
//! | `books` | `of` what, `total_bytes`, and `lines` with `name` and `bytes` that sum to it |
//! | `advice` | the best first, each with `change`, `would_survive` and `peak_reserved_bytes` (`null` where replay cannot tell) and `because` |
//! | `others` | the same for the recording's other devices |
//!
//! `fragmentation` has `holes`, `free_bytes`, `largest_hole_bytes` and `largest_hole_address`; each of `holders` has
//! `site`, `caller`, `bytes` and `allocations`, the most bytes first. A verdict's `kind` is one of `incomplete`, `too-big`, `fragmented`,
//! `leaking`, `reserved-idle`, `transient-peak`, `limit-low`, `other-process`, `refused-with-room`, `host-memory`,
//! `not-memory`, `full`, `healthy`.

use crate::explanation::Explanation;
use crate::moment::Snapshot;
use plimsoll_page::quoted_json;
use serde_json::{Value, json};

impl Explanation {
    /// The explanation as JSON, with the keys `source`, `moment`, `verdicts`, `books`, `advice` and `others`.
    ///
    /// `source` has `files`, `formats`, `framework`, `device`, `gaps` and `partial`; `moment` has `label`, `kind`, `event`,
    /// `refused_bytes`, `reserved_bytes`, `live_bytes`, `requested_bytes`, `fragmentation` and `holders`, all of
    /// the one moment that is explained; each of `verdicts` has `kind`,
    /// `sentence` and `proof`; `books` has `of`, `total_bytes` and `lines` (`name`, `bytes`); each of `advice`
    /// has `change`, `would_survive`, `peak_reserved_bytes` and `because`.
    pub fn to_json(&self) -> Value {
        let origin = &self.origin;
        let json = json!({
            "source": {
                "files": origin.files,
                "formats": origin.formats.iter().map(|format| format.name()).collect::<Vec<_>>(),
                "framework": origin.framework.name(),
                "device": self.device,
                "gaps": origin.gaps,
                "partial": origin.partial,
            },
            "moment": moment(&self.snapshot),
            "verdicts": self.verdicts,
            "books": self.books,
            "advice": self.advice,
            "others": self.others.iter().map(Explanation::to_json).collect::<Vec<_>>(),
        });
        quoted_json(json)
    }
}

fn moment(snapshot: &Snapshot) -> Value {
    let holders = snapshot.holders.iter().map(|held| {
        json!({ "site": held.site.location, "caller": held.site.caller, "bytes": held.bytes, "allocations": held.count })
    });
    json!({
        "label": snapshot.moment.to_string(),
        "kind": snapshot.moment.kind,
        "event": snapshot.moment.event.map(|event| event + 1),
        "refused_bytes": snapshot.refused.as_ref().map(|refused| refused.requested),
        "reserved_bytes": snapshot.reserved_bytes,
        "live_bytes": snapshot.live_bytes,
        "requested_bytes": snapshot.requested_bytes,
        "fragmentation": snapshot.fragmentation,
        "holders": holders.collect::<Vec<_>>(),
    })
}
