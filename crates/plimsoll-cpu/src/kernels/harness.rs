//! Runs a routine as an executor would, in memory that shows what should not have been touched.

use crate::runtime::Pool;
use crate::runtime::{ALIGNMENT, Call, Routine};

/// What memory holds before it is written.
const POISON: u8 = 0xa5;
/// The bytes behind each buffer that must keep their poison.
const CANARY: usize = 256;

/// Memory of some bytes at an aligned address, with a canary behind.
struct Guarded {
    memory: Vec<u8>,
    start: usize,
    bytes: usize,
}

impl Guarded {
    fn new(bytes: usize) -> Guarded {
        let memory = vec![POISON; bytes + ALIGNMENT + CANARY];
        let start = memory.as_ptr().align_offset(ALIGNMENT);
        Guarded { memory, start, bytes }
    }

    fn of(contents: &[u8]) -> Guarded {
        let mut guarded = Guarded::new(contents.len());
        guarded.memory[guarded.start..][..contents.len()].copy_from_slice(contents);
        guarded
    }

    fn address(&mut self) -> *mut u8 {
        self.memory[self.start..].as_mut_ptr()
    }

    fn contents(&self) -> &[u8] {
        &self.memory[self.start..][..self.bytes]
    }

    fn check(&self, what: &str) {
        let intact = self.memory[self.start + self.bytes..].iter().all(|&byte| byte == POISON);
        assert!(intact, "{what} was written beyond its {} bytes", self.bytes);
    }
}

/// Runs a routine on the bytes of its reads and returns those of its writes, each of `writes` bytes. A write in
/// `in_place` has the address of the read it is paired with.
pub(crate) fn run(
    routine: &dyn Routine,
    reads: &[Vec<u8>],
    writes: &[usize],
    in_place: &[(usize, usize)],
    threads: usize,
) -> Vec<Vec<u8>> {
    let pool = Pool::new(threads).expect("threads for a test");
    let mut inputs: Vec<Guarded> = reads.iter().map(|read| Guarded::of(read)).collect();
    let mut outputs: Vec<Guarded> = writes.iter().map(|&bytes| Guarded::new(bytes)).collect();
    let mut workspace = Guarded::new(routine.workspace(threads));
    let read_addresses: Vec<*const u8> = inputs.iter_mut().map(|i| i.address().cast_const()).collect();
    let partner = |write: usize| in_place.iter().find(|pair| pair.0 == write).map(|pair| pair.1);
    let write_addresses: Vec<*mut u8> = outputs
        .iter_mut()
        .enumerate()
        .map(|(write, output)| match partner(write) {
            Some(read) => read_addresses[read].cast_mut(),
            None => output.address(),
        })
        .collect();
    let call = Call {
        reads: &read_addresses,
        writes: &write_addresses,
        workspace: workspace.address(),
        pool: &pool,
    };
    // SAFETY: every operand has memory of its size, aligned; writes overlap nothing but what is in place.
    unsafe { routine.run(&call) };
    workspace.check("the workspace");
    inputs.iter().for_each(|input| input.check("an operand"));
    outputs.iter().for_each(|output| output.check("a result"));
    for (read, input) in inputs.iter().enumerate() {
        let replaced = in_place.iter().any(|pair| pair.1 == read);
        assert!(replaced || input.contents() == reads[read], "operand {read} was changed");
    }
    (0..writes.len())
        .map(|write| match partner(write) {
            Some(read) => inputs[read].contents()[..writes[write]].to_vec(),
            None => outputs[write].contents().to_vec(),
        })
        .collect()
}

/// Numbers for tests, the same for each seed.
pub(crate) struct Numbers(u64);

impl Numbers {
    pub(crate) fn new(seed: u64) -> Numbers {
        Numbers(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}
