//! CUDA C++ to machine code, by NVRTC.
//!
//! Kernels are written for the sizes at hand, so they are compiled on the machine that runs them, for the device in it.
//! Neither a toolkit nor its headers are needed for that, only this one library.

use crate::driver::library::{Library, Name, library};
use crate::error::{Error, ErrorKind, Result};
use cudarc::nvrtc::sys::nvrtcProgram;
use std::ffi::{CStr, CString, c_char, c_int, c_uint};
use std::ptr;
use std::sync::OnceLock;

/// What a function of NVRTC returns; 0 is success.
type Code = c_uint;

library! {
    /// The functions of NVRTC that are used.
    Functions {
        version = c"nvrtcVersion" (*mut c_int, *mut c_int) -> Code;
        error_string = c"nvrtcGetErrorString" (Code) -> *const c_char;
        create = c"nvrtcCreateProgram"
            (*mut nvrtcProgram, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char) -> Code;
        compile = c"nvrtcCompileProgram" (nvrtcProgram, c_int, *const *const c_char) -> Code;
        log_size = c"nvrtcGetProgramLogSize" (nvrtcProgram, *mut usize) -> Code;
        log = c"nvrtcGetProgramLog" (nvrtcProgram, *mut c_char) -> Code;
        cubin_size = c"nvrtcGetCUBINSize" (nvrtcProgram, *mut usize) -> Code;
        cubin = c"nvrtcGetCUBIN" (nvrtcProgram, *mut c_char) -> Code;
        destroy = c"nvrtcDestroyProgram" (*mut nvrtcProgram) -> Code;
    }
}

/// NVRTC, loaded.
pub(crate) struct Compiler {
    functions: Functions,
    version: (i32, i32),
}

impl Compiler {
    /// The compiler of this machine. It is loaded by the first call and kept for good.
    ///
    /// # Errors
    /// If there is none.
    pub(crate) fn get() -> Result<&'static Compiler> {
        static COMPILER: OnceLock<Result<Compiler>> = OnceLock::new();
        COMPILER.get_or_init(Compiler::load).as_ref().map_err(Clone::clone)
    }

    fn load() -> Result<Compiler> {
        let library = Library::open(&Name {
            what: "the compiler for kernels, NVRTC,",
            stem: "nvrtc",
            versions: &[13, 12],
            package: "nvidia-cuda-nvrtc",
        })?;
        // SAFETY: the library is NVRTC, and the signatures are those of `nvrtc.h`.
        let functions = unsafe { Functions::find(library) }?;
        let mut compiler = Compiler { functions, version: (0, 0) };
        let (major, minor) = (&mut compiler.version.0, &mut compiler.version.1);
        // SAFETY: the pointers are to live integers.
        let code = unsafe { (compiler.functions.version)(major, minor) };
        compiler.check(code, "say its version")?;
        Ok(compiler)
    }

    /// The version of CUDA it belongs to, major and minor.
    pub(crate) fn version(&self) -> (i32, i32) {
        self.version
    }

    /// The options that code for a device of this capability is compiled with.
    pub(crate) fn options(&self, (major, minor): (u32, u32)) -> Vec<String> {
        // What is compiled runs on this very device: it may use what only its architecture has.
        let own = if (major, minor) >= (9, 0) { "a" } else { "" };
        vec![
            format!("--gpu-architecture=sm_{major}{minor}{own}"),
            "--std=c++17".into(),
            "-default-device".into(),
        ]
    }

    /// Compiles a source to machine code.
    ///
    /// # Errors
    /// If it does not compile: the error has what the compiler says of it.
    pub(crate) fn compile(&self, source: &str, name: &str, options: &[String]) -> Result<Vec<u8>> {
        let c = |text: &str| {
            CString::new(text).map_err(|_| {
                Error::new(ErrorKind::Compile, format!("the source of `{name}` has a zero byte in it"))
            })
        };
        let (text, file) = (c(source)?, c(&format!("{name}.cu"))?);
        let options = options.iter().map(|option| c(option)).collect::<Result<Vec<CString>>>()?;
        let options: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        let mut program = Program { compiler: self, program: ptr::null_mut() };
        // SAFETY: the texts live, end in a zero and are copied; there are no headers.
        let code = unsafe {
            let create = self.functions.create;
            create(&mut program.program, text.as_ptr(), file.as_ptr(), 0, ptr::null(), ptr::null())
        };
        self.check(code, "take a source")?;
        // SAFETY: the program was made above, and there are as many options as are said, each a live text.
        let code =
            unsafe { (self.functions.compile)(program.program, options.len() as c_int, options.as_ptr()) };
        if code != 0 {
            let message = format!(
                "the kernel `{name}` does not compile under NVRTC {}.{} ({}):\n{}",
                self.version.0,
                self.version.1,
                self.text(code),
                program.log()
            );
            return Err(Error::new(ErrorKind::Compile, message));
        }
        program.cubin()
    }

    fn check(&self, code: Code, attempt: &str) -> Result<()> {
        match code {
            0 => Ok(()),
            _ => {
                let message = format!("NVRTC does not {attempt}: {}", self.text(code));
                Err(Error::new(ErrorKind::Library, message))
            }
        }
    }

    fn text(&self, code: Code) -> String {
        // SAFETY: takes no pointer and returns a text that is never freed, or null.
        let text = unsafe { (self.functions.error_string)(code) };
        if text.is_null() {
            return format!("code {code}");
        }
        // SAFETY: not null, and C texts end in a zero.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }
}

/// A source that NVRTC holds.
struct Program<'a> {
    compiler: &'a Compiler,
    program: nvrtcProgram,
}

impl Program<'_> {
    /// What the compiler said.
    fn log(&self) -> String {
        let Functions { log_size, log, .. } = self.compiler.functions;
        let bytes = self.bytes(log_size, log).unwrap_or_default();
        String::from_utf8_lossy(&bytes).trim_end_matches('\0').trim().to_owned()
    }

    /// The machine code.
    fn cubin(&self) -> Result<Vec<u8>> {
        let Functions { cubin_size, cubin, .. } = self.compiler.functions;
        self.bytes(cubin_size, cubin)
    }

    fn bytes(
        &self,
        size: unsafe extern "C" fn(nvrtcProgram, *mut usize) -> Code,
        get: unsafe extern "C" fn(nvrtcProgram, *mut c_char) -> Code,
    ) -> Result<Vec<u8>> {
        let mut length = 0;
        // SAFETY: the program lives, and the pointer is to a live integer.
        let code = unsafe { size(self.program, &mut length) };
        self.compiler.check(code, "say how long what it made is")?;
        let mut bytes = vec![0u8; length];
        // SAFETY: there is room for as many bytes as were announced.
        let code = unsafe { get(self.program, bytes.as_mut_ptr().cast()) };
        self.compiler.check(code, "hand out what it made")?;
        Ok(bytes)
    }
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        if !self.program.is_null() {
            // SAFETY: the program was made by this compiler and is used no more.
            unsafe { (self.compiler.functions.destroy)(&mut self.program) };
        }
    }
}
