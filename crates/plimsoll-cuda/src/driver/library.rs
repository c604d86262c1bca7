//! NVIDIA's libraries beside the driver, found at run time.
//!
//! A machine that trains may have them from a toolkit, a Python package or a container, in one of several versions,
//! and a machine that only plans has none. So they are looked for when the first kernel needs one, under every name
//! they go by; what is missing is said by name, with where it is to be had.

use crate::error::{Error, ErrorKind, Result};
use std::ffi::{CStr, c_void};
use std::path::PathBuf;
use std::ptr;

/// A library of NVIDIA's, loaded for good: what it started is never safe to unload.
pub(crate) struct Library {
    /// What it is called in errors.
    what: &'static str,
    library: libloading::Library,
}

/// How a library is found.
pub(crate) struct Name {
    /// What it is called in errors.
    pub(crate) what: &'static str,
    /// The file's name without what the system puts around it: `nvrtc` is `libnvrtc.so.13` or `nvrtc64_130_0.dll`.
    pub(crate) stem: &'static str,
    /// The versions of its interface that are understood, the best first.
    pub(crate) versions: &'static [u32],
    /// What a person installs to get it.
    pub(crate) package: &'static str,
}

impl Library {
    /// Loads a library from wherever the system looks for libraries, or from a CUDA toolkit.
    ///
    /// # Errors
    /// If it is in none of these places, or does not load.
    pub(crate) fn open(name: &Name) -> Result<Library> {
        let files = files(name);
        let mut refusals = Vec::new();
        for path in files.iter().map(PathBuf::from).chain(in_toolkits(&files)) {
            // SAFETY: loading runs what NVIDIA's library does on loading, which is all that it is for.
            match unsafe { libloading::Library::new(&path) } {
                Ok(library) => return Ok(Library { what: name.what, library }),
                // A file that is there and does not load is the one to hear about.
                Err(error) if path.is_file() => refusals.push(error.to_string()),
                Err(_) => (),
            }
        }
        let refusals = match refusals.is_empty() {
            true => String::new(),
            false => format!(" ({})", refusals.join("; ")),
        };
        let message = format!(
            "{} is not on this machine: none of {} is where libraries are looked for or in a CUDA toolkit{refusals}; \
             install the CUDA toolkit, or `pip install {}`, and put the folder of the library on LD_LIBRARY_PATH (PATH \
             on Windows)",
            name.what,
            files.join(", "),
            name.package
        );
        Err(Error::new(ErrorKind::NoLibrary, message))
    }

    /// The address of a symbol, or null.
    pub(crate) fn find(&self, symbol: &CStr) -> *const c_void {
        // SAFETY: the symbol is only taken as an address here, which has no signature to get wrong.
        let found = unsafe { self.library.get::<*const c_void>(symbol.to_bytes_with_nul()) };
        found.map_or(ptr::null(), |address| *address)
    }

    /// The error for symbols that are missing.
    pub(crate) fn lacks(&self, missing: &[&str]) -> Error {
        let message = format!(
            "the {} of this machine is too old or too new: it lacks {}",
            self.what,
            missing.join(", ")
        );
        Error::new(ErrorKind::NoLibrary, message)
    }
}

/// The names that a library's file may have.
fn files(name: &Name) -> Vec<String> {
    let Name { stem, versions, .. } = name;
    let mut files: Vec<String> = if cfg!(windows) {
        versions.iter().flat_map(|v| [format!("{stem}64_{v}0_0.dll"), format!("{stem}64_{v}.dll")]).collect()
    } else {
        versions.iter().map(|v| format!("lib{stem}.so.{v}")).collect()
    };
    files.push(format!("{}{stem}{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX));
    files
}

/// The files in the toolkits that the environment names, or that are where toolkits usually are.
fn in_toolkits(files: &[String]) -> impl Iterator<Item = PathBuf> {
    let named = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(std::env::var_os).map(PathBuf::from);
    let folders = named.chain([PathBuf::from("/usr/local/cuda")]);
    let folders = folders.flat_map(|home| ["lib64", "lib", "bin"].map(|folder| home.join(folder)));
    folders.flat_map(|folder| files.iter().map(move |file| folder.join(file)))
}

/// Declares the functions of a library that are used, and how they are found: every symbol before the first call.
macro_rules! library {
    ($(#[$doc:meta])* $name:ident { $($field:ident = $symbol:literal ($($argument:ty),*) -> $result:ty;)* }) => {
        $(#[$doc])*
        #[allow(clippy::type_complexity)]
        pub(crate) struct $name {
            $(pub(crate) $field: unsafe extern "C" fn($($argument),*) -> $result,)*
            /// Keeps the functions loaded.
            _library: $crate::driver::library::Library,
        }

        impl $name {
            /// Finds every function.
            ///
            /// # Safety
            /// The library must be the one that the functions are declared as in the headers of.
            pub(crate) unsafe fn find(library: $crate::driver::library::Library) -> $crate::error::Result<$name> {
                $(let $field = library.find($symbol);)*
                let missing: Vec<&str> = [$(($field, $symbol)),*]
                    .iter()
                    .filter(|(address, _)| address.is_null())
                    .filter_map(|(_, symbol)| symbol.to_str().ok())
                    .collect();
                if !missing.is_empty() {
                    return Err(library.lacks(&missing));
                }
                Ok($name {
                    // SAFETY: none is null, and the caller vouches for the signatures, with results as the
                    // numbers that C enumerations are.
                    $($field: unsafe {
                        std::mem::transmute::<*const std::ffi::c_void, unsafe extern "C" fn($($argument),*) -> $result>(
                            $field,
                        )
                    },)*
                    _library: library,
                })
            }
        }
    };
}
pub(crate) use library;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_missing_is_named_with_its_files_and_its_package() {
        let name = Name { what: "Example", stem: "plimsoll-none", versions: &[13, 12], package: "example" };
        let error = Library::open(&name).err().expect("there is no such library");
        assert_eq!(error.kind(), ErrorKind::NoLibrary);
        for part in ["Example", "plimsoll-none", "13", "12", "pip install example"] {
            assert!(error.to_string().contains(part), "{error}");
        }
    }
}
