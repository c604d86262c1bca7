//! A device of nobody's.

use plimsoll_plan::{Copies, EfficiencyTable, Profile, Rates};

/// What is known of it: made-up numbers of a GPU's size.
pub(crate) fn profile() -> Profile {
    let rates = Rates {
        elementwise: 1e12,
        matrix: 1e12,
        matrix_half: 1e12,
        convolution: 1e12,
        convolution_half: 1e12,
        attention: 1e12,
    };
    Profile {
        name: "far-away".into(),
        about: "Example 9000, 8 GiB, elsewhere".into(),
        memory_bytes: 8 << 30,
        alignment: 256,
        workspace_bytes: 4096,
        context_bytes: 300 << 20,
        launch_seconds: 1e-6,
        bandwidth: 1e12,
        rates,
        copies: Copies { bandwidth: 1e11, latency_seconds: 1e-6, overlap: true },
        step_seconds: 0.0,
        efficiency: EfficiencyTable::default(),
    }
}
