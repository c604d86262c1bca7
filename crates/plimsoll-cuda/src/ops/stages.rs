//! A kernel of a program as launches of templates, one after another.

use crate::codegen::engine::Engine;
use crate::codegen::launches::{CompiledLaunch, LaunchArgument, LaunchSequence};
use crate::error::{Error, ErrorKind, Result};
use crate::routine::{ALIGNMENT, PointerTo, Routine};
use std::fmt::Write;
use std::sync::Arc;

/// What every source begins with.
const COMMON: &str = include_str!("common.cu");

/// The most blocks along the first axis of a grid.
const MOST_BLOCKS: usize = i32::MAX as usize;
/// The most blocks along the second.
const MOST_DOWN: usize = 65535;

/// Launches one after another, their source, and the workspace they share.
pub(crate) struct Stages {
    pub(crate) source: String,
    pub(crate) launches: Vec<StageLaunch>,
    pub(crate) workspace: u64,
}

/// One launch.
#[derive(Debug)]
pub(crate) struct StageLaunch {
    /// The function of the source.
    pub(crate) name: String,
    pub(crate) grid: [u32; 2],
    pub(crate) block: u32,
    /// The bytes of dynamic shared memory of a block.
    pub(crate) shared: u32,
    pub(crate) arguments: Vec<LaunchArgument>,
}

/// One of the kernel's reads as an argument of a launch.
pub(crate) fn read(index: usize) -> LaunchArgument {
    LaunchArgument::Pointer(PointerTo::Read(index))
}

/// One of the kernel's writes as an argument of a launch.
pub(crate) fn write(index: usize) -> LaunchArgument {
    LaunchArgument::Pointer(PointerTo::Write(index))
}

/// A number as an argument of a launch.
pub(crate) fn count(number: usize) -> (&'static str, LaunchArgument) {
    ("unsigned long long", LaunchArgument::Count(number as u64))
}

/// What a template is instantiated with: the members of a struct in CUDA C++.
#[derive(Default)]
pub(crate) struct Traits(String);

impl Traits {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// A type.
    pub(crate) fn ty(mut self, name: &str, ty: &str) -> Self {
        _ = writeln!(self.0, "    typedef {ty} {name};");
        self
    }

    /// Numbers that elements are counted with.
    pub(crate) fn numbers<const N: usize>(mut self, numbers: [(&str, usize); N]) -> Self {
        for (name, number) in numbers {
            _ = writeln!(self.0, "    static constexpr Index {name} = {number};");
        }
        self
    }

    /// Whether something is so.
    pub(crate) fn flag(mut self, name: &str, flag: bool) -> Self {
        _ = writeln!(self.0, "    static constexpr bool {name} = {flag};");
        self
    }

    /// A number that the function `name` returns, exactly.
    pub(crate) fn float(self, name: &str, value: f64) -> Self {
        let bits = value.to_bits();
        self.text(&format!("static __device__ f64 {name}() {{ return __longlong_as_double({bits:#x}ll); }}"))
    }

    /// A member as it is.
    pub(crate) fn text(mut self, text: &str) -> Self {
        _ = writeln!(self.0, "    {text}");
        self
    }
}

impl Stages {
    /// No launches yet of the templates in `texts`, which count up to `elements` elements.
    pub(crate) fn new(elements: usize, texts: &[&str]) -> Self {
        // Half of the range is left for positions past the end that loops come to.
        let index = if elements <= i32::MAX as usize { "unsigned" } else { "unsigned long long" };
        let mut source = format!("typedef {index} Index;\n{COMMON}");
        for text in texts {
            source.push('\n');
            source.push_str(text);
        }
        Self { source, launches: vec![], workspace: 0 }
    }

    /// Bytes of workspace, apart from all others.
    pub(crate) fn reserve(&mut self, bytes: usize) -> LaunchArgument {
        let place = LaunchArgument::Pointer(PointerTo::Workspace(self.workspace));
        self.workspace += (bytes as u64).next_multiple_of(ALIGNMENT);
        place
    }

    /// Launches `template` with these traits and arguments, which are each a type in CUDA C++ and an address of such
    /// elements, or a [`count`]. A grid without blocks is not launched.
    ///
    /// # Errors
    /// If there are more blocks than a grid may have.
    pub(crate) fn launch<const N: usize>(
        &mut self,
        template: &str,
        traits: Traits,
        grid: [usize; 2],
        block: u32,
        arguments: [(&str, LaunchArgument); N],
    ) -> Result<()> {
        if grid.contains(&0) {
            return Ok(());
        }
        let [across, down] = grid;
        if across > MOST_BLOCKS || down > MOST_DOWN {
            let message = format!(
                "`{template}` would need {across} by {down} blocks of threads, and {MOST_BLOCKS} by {MOST_DOWN} are \
                 the most there can be; use a smaller batch"
            );
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        let number = self.launches.len();
        let function = format!("{template}_{number}");
        let [mut declared, mut passed] = [vec![], vec![]];
        for (i, (ty, place)) in arguments.iter().enumerate() {
            let is_number = matches!(place, LaunchArgument::Count(_));
            declared.push(if is_number { format!("{ty} a{i}") } else { format!("{ty} *a{i}") });
            passed.push(if is_number { format!("(Index)a{i}") } else { format!("a{i}") });
        }
        let members = traits.numbers([("BLOCK", block as usize)]).0;
        _ = write!(
            self.source,
            "\nstruct S{number} {{\n{members}}};\nextern \"C\" __global__ void __launch_bounds__({block}) \
             {function}({}) {{\n    {template}<S{number}>({});\n}}\n",
            declared.join(", "),
            passed.join(", "),
        );
        let arguments = arguments.map(|(_, place)| place).to_vec();
        self.launches.push(StageLaunch {
            name: function,
            grid: [across as u32, down as u32],
            block,
            shared: 0,
            arguments,
        });
        Ok(())
    }

    /// Gives the blocks of the last launch dynamic shared memory.
    pub(crate) fn share(&mut self, bytes: u32) {
        if let Some(last) = self.launches.last_mut() {
            last.shared = bytes;
        }
    }

    /// The launches compiled for a device.
    ///
    /// # Errors
    /// If they cannot be compiled.
    pub(crate) fn prepare(self, engine: &Arc<Engine>) -> Result<Box<dyn Routine>> {
        let compile = |StageLaunch { name, grid: [across, down], block, shared, arguments }| {
            let function = engine.compile(&self.source, &name, shared)?;
            Ok(CompiledLaunch { function, grid: [across, down, 1], threads: block, shared, arguments })
        };
        let launches = self.launches.into_iter().map(compile).collect::<Result<_>>()?;
        // SAFETY: each argument is a number or the address of what the function's declaration, which was written with it,
        // takes.
        Ok(Box::new(unsafe { LaunchSequence::new(launches, self.workspace) }))
    }
}

/// The blocks of a launch whose threads have one task each, or several where the grid would be too large.
pub(crate) fn blocks(tasks: usize, each: u32) -> usize {
    tasks.div_ceil(each as usize).min(MOST_BLOCKS)
}
