//! Call sites: the one line of a call stack that its reader wrote and can change.
//!
//! A stack of eighty frames begins deep in an allocator and ends in an interpreter's start. What people look
//! for is the innermost frame of their own code, and who of theirs called it.

use crate::moment::CallSite;
use crate::text::cut;
use plimsoll_memory::quoted;
use plimsoll_memory::{Frame, OwnerId, Owners};

/// The most frames looked at, from the innermost out. Real stacks have fewer; hostile ones may have millions.
const DEPTH: usize = 512;

/// The longest text of a location, in characters.
const LENGTH: usize = 160;

/// The call site of an owner.
///
/// ```
/// use plimsoll_explain::call_site;
/// use plimsoll_memory::{Frame, OwnerId, Owners};
/// let mut owners = Owners::default();
/// let frame = |name: &str, file: &str, line| Frame { name: name.into(), file: file.into(), line };
/// let main = owners.child(OwnerId::UNKNOWN, frame("<module>", "train.py", 32));
/// let loss = owners.child(main, frame("loss", "train.py", 15));
/// let inner = owners.child(loss, frame("relu", "/usr/lib/python3.12/site-packages/torch/nn/functional.py", 9));
/// assert_eq!(call_site(&owners, inner).location, "train.py:15 loss");
/// assert_eq!(call_site(&owners, inner).caller.as_deref(), Some("train.py:32 <module>"));
/// ```
pub fn call_site(owners: &Owners, owner: OwnerId) -> CallSite {
    let stack: Vec<&Frame> = owners.stack(owner).take(DEPTH).collect();
    let own = stack[jax_frames(&stack)..].iter().copied();
    let mut own = own.filter(|frame| is_own(frame)).map(describe);
    if let Some(location) = own.next() {
        let caller = own.find(|caller| *caller != location);
        return CallSite { location, caller };
    }
    let library = || stack.iter().copied().find(|frame| is_source(&frame.file)).map(describe);
    let named = || stack.iter().copied().find(|frame| !frame.name.is_empty() || !frame.file.is_empty());
    if let Some(location) = library().or_else(|| backward(&stack)).or_else(|| operator(&stack)) {
        return CallSite { location, caller: None };
    }
    match named() {
        Some(frame) => {
            // Scopes of a model, one within the other.
            let outer = stack.iter().copied().skip_while(|other| *other != frame).nth(1);
            let outer = outer.filter(|o| !o.name.is_empty() && o.file.is_empty() && !o.name.contains("::"));
            CallSite { location: describe(frame), caller: outer.map(describe) }
        }
        None => CallSite { location: "(no stack was recorded)".to_string(), caller: None },
    }
}

/// Whether a file holds source of a language in which models are written.
pub(crate) fn is_source(file: &str) -> bool {
    let interactive = file.starts_with("<stdin>") || file.starts_with("<ipython-input");
    interactive || [".py", ".pyx", ".ipynb", ".rs"].iter().any(|end| file.ends_with(end))
}

/// How many of the innermost frames are of JAX, by file names without folders as its profiles have them. Names that
/// others have too count between those that only JAX has.
fn jax_frames(stack: &[&Frame]) -> usize {
    const OF_JAX: [&str; 12] = [
        "dispatch.py",
        "linear_util.py",
        "lax.py",
        "lax_numpy.py",
        "mlir.py",
        "partial_eval.py",
        "pjit.py",
        "prng.py",
        "pxla.py",
        "sharding_impls.py",
        "traceback_util.py",
        "xla_bridge.py",
    ];
    const MAYBE: [&str; 24] = [
        "ad.py",
        "api.py",
        "api_util.py",
        "array.py",
        "array_constructors.py",
        "array_creation.py",
        "array_methods.py",
        "batching.py",
        "compiler.py",
        "config.py",
        "core.py",
        "custom_derivatives.py",
        "einsum.py",
        "indexing.py",
        "loops.py",
        "profiler.py",
        "random.py",
        "reductions.py",
        "slicing.py",
        "tensor_contractions.py",
        "tree_util.py",
        "ufunc_api.py",
        "ufuncs.py",
        "util.py",
    ];
    let runtime = |frame: &Frame| frame.name.starts_with("PjitFunction(") || frame.name.contains("PjRt");
    let of_jax =
        |frame: &Frame| OF_JAX.contains(&frame.file.as_str()) || frame.file.is_empty() && runtime(frame);
    let Some(first) = stack.iter().position(|frame| of_jax(frame)) else { return 0 };
    let maybe = |frame: &Frame| frame.file.is_empty() || MAYBE.contains(&frame.file.as_str());
    if !stack[..first].iter().all(|frame| maybe(frame)) {
        return 0;
    }
    let runs = stack[first..].iter().take_while(|frame| of_jax(frame) || maybe(frame));
    first + runs.count()
}

/// Whether a frame is of the user's code, not of a library or the interpreter.
pub(crate) fn is_own(frame: &Frame) -> bool {
    is_source(&frame.file) && !is_library(&frame.file)
}

fn is_library(file: &str) -> bool {
    if file.starts_with("<frozen") {
        return true;
    }
    let mut parts = file.split(['/', '\\']).filter(|part| !part.is_empty());
    let mut before = "";
    let relative = !file.starts_with(['/', '\\']);
    if let Some(first) = parts.clone().next().filter(|_| relative)
        && parts.clone().nth(1).is_some()
        && ["torch", "jax", "jaxlib", "tensorflow", "keras", "flax", "optax"].contains(&first)
    {
        return true;
    }
    parts.any(|part| {
        let found = match (before, part) {
            (_, "site-packages" | "dist-packages") => true,
            ("lib" | "lib64" | "Lib", part) => part.starts_with("python3"),
            ("jax", "_src") | ("tensorflow", "python") => true,
            ("torch", part) => {
                ["nn", "optim", "autograd", "utils", "cuda", "_dynamo", "_inductor", "distributed"]
                    .contains(&part)
                    || part.starts_with("_")
            }
            _ => false,
        };
        before = part;
        found
    })
}

/// The step of the backward pass in a stack of PyTorch's native frames.
fn backward(stack: &[&Frame]) -> Option<String> {
    let node = stack.iter().find_map(|frame| {
        let name = frame.name.strip_prefix("torch::autograd::")?;
        let name = name.strip_prefix("generated::").unwrap_or(name);
        name.split_once("::apply(").map(|(node, _)| node)
    })?;
    Some(format!("{} (backward)", cut(&quoted(node), LENGTH)))
}

/// The op that was called in a stack of PyTorch's native frames: the outermost, those within serve it.
fn operator(stack: &[&Frame]) -> Option<String> {
    let name = stack.iter().rev().find_map(|frame| frame.name.strip_prefix("at::_ops::"))?;
    Some(format!("aten::{}", cut(&quoted(name.split("::").next()?), LENGTH)))
}

/// A frame in words: the file without its folders, the line, the function without its arguments.
fn describe(frame: &Frame) -> String {
    let parts: Vec<&str> = frame.file.rsplit(['/', '\\']).take(2).collect();
    let file = match parts[..] {
        // Every package has one of these; its folder tells them apart.
        [file @ ("__init__.py" | "__main__.py"), folder] => format!("{folder}/{file}"),
        [file, ..] if file != "??" => file.to_string(),
        _ => String::new(),
    };
    let native = frame.name.contains("::");
    let name = if native { frame.name.split('(').next().unwrap_or_default() } else { &frame.name };
    let text = match (file.is_empty(), frame.line) {
        (true, _) => name.to_string(),
        (false, 0) => format!("{file} {name}"),
        (false, line) => format!("{file}:{line} {name}"),
    };
    cut(quoted(&text).trim_end(), LENGTH)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The site of a stack told innermost first.
    fn of(stack: &[(&str, &str, u32)]) -> CallSite {
        let mut owners = Owners::default();
        let owner = stack.iter().rev().fold(OwnerId::UNKNOWN, |parent, &(name, file, line)| {
            owners.child(parent, Frame { name: name.into(), file: file.into(), line })
        });
        call_site(&owners, owner)
    }

    const ADAM: (&str, &str, u32) = ("adam", "/v/lib/python3.12/site-packages/torch/optim/adam.py", 971);

    #[test]
    fn the_innermost_frame_of_ones_own_code_is_the_site_and_the_next_one_its_caller() {
        let site = of(&[
            ("c10::Allocator::allocate(unsigned long)", "??", 0),
            ADAM,
            ("train", "/home/me/torch/train.py", 23),
            ("wrapper", "/v/lib/python3.12/contextlib.py", 81),
            ("train", "/home/me/torch/train.py", 23),
            ("<module>", "/home/me/torch/main.py", 35),
        ]);
        assert_eq!(site.location, "train.py:23 train");
        assert_eq!(site.caller.as_deref(), Some("main.py:35 <module>"));
    }

    #[test]
    fn libraries_installed_from_source_and_the_interpreter_are_not_ones_own_code() {
        for file in [
            "torch/nn/modules/linear.py",
            "/src/pytorch/torch/nn/modules/linear.py",
            "/src/pytorch/torch/_tensor.py",
            "/src/jax/jax/_src/api.py",
            "/src/tensorflow/python/eager/execute.py",
            "C:\\py\\Lib\\site-packages\\jax\\api.py",
            "<frozen importlib._bootstrap>",
            "<string>",
            "module.cpp",
            "",
        ] {
            let site = of(&[("inner", file, 1), ("main", "/home/me/tensorflow/main.py", 2)]);
            assert_eq!(site.location, "main.py:2 main", "{file}");
        }
    }

    #[test]
    fn notebooks_and_packages_are_ones_own_code() {
        assert_eq!(of(&[("f", "<ipython-input-3-abc>", 4)]).location, "<ipython-input-3-abc>:4 f");
        assert_eq!(of(&[("f", "/home/me/net/__init__.py", 4)]).location, "net/__init__.py:4 f");
    }

    #[test]
    fn without_ones_own_code_the_library_says_what_it_was_doing() {
        assert_eq!(of(&[("raw", "x.cpp", 0), ADAM]).location, "adam.py:971 adam");
        let op = ("at::_ops::clone::call(at::Tensor const&)", "??", 0);
        let inner = ("at::_ops::empty_like::call(at::Tensor const&)", "??", 0);
        assert_eq!(of(&[inner, op]).location, "aten::clone");
        let node = ("torch::autograd::generated::ViewBackward0::apply(std::vector<at::Tensor>&&)", "??", 0);
        assert_eq!(of(&[inner, op, node]).location, "ViewBackward0 (backward)");
        assert_eq!(of(&[("c10::Thing::malloc(int)", "??", 0)]).location, "c10::Thing::malloc");
    }

    #[test]
    fn scopes_name_the_scope_around_them() {
        let site = of(&[("attention", "", 0), ("block3", "", 0)]);
        assert_eq!((site.location.as_str(), site.caller.as_deref()), ("attention", Some("block3")));
        let unknown = site_of_nobody();
        assert_eq!((unknown.location.as_str(), unknown.caller), ("(no stack was recorded)", None));
    }

    fn site_of_nobody() -> CallSite {
        call_site(&Owners::default(), OwnerId::UNKNOWN)
    }

    #[test]
    fn hostile_names_are_made_plain_and_short() {
        let name = format!("\x1b[2Jfn\u{202e}\n{}", "x".repeat(100_000));
        let site = of(&[(&name, "evil\x07.py", 1)]);
        assert!(site.location.chars().count() <= LENGTH, "{}", site.location.len());
        assert!(!site.location.chars().any(|c| c.is_control() || c == '\u{202e}'), "{:?}", site.location);
        assert!(site.location.starts_with(r"evil\u{7}.py:1 \u{1b}[2Jfn\u{202e}\nx"), "{}", site.location);
    }

    #[test]
    fn a_stack_without_end_is_looked_at_to_a_fixed_depth() {
        let deep: Vec<_> =
            (0..5000).map(|line| ("malloc", "a.cpp", line)).chain([("f", "me.py", 1)]).collect();
        assert_eq!(of(&deep).location, "a.cpp malloc");
    }
}
