//! What compiles and runs kernels on a device: its properties, the code that was compiled for it, NVIDIA's libraries.

use crate::codegen::cache::{self, Cache, Key};
use crate::codegen::compiler::Compiler;
use crate::codegen::function::{Function, Module};
use crate::conv::dnn::Dnn;
use crate::driver::device::{self, Shared};
use crate::driver::devices::driver_version;
use crate::error::{Error, ErrorKind, Result};
use crate::gemm::blas::Blas;
use crate::gemm::cublaslt_gemm::Choices;
use cudarc::driver::sys::{
    CUdevice_attribute_enum as Attribute, CUdeviceptr, CUfunction,
    CUfunction_attribute_enum as FunctionAttribute, CUmodule, CUstream,
};
use std::collections::HashMap;
use std::ffi::{CString, c_int};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// The dynamic shared memory that a function may be launched with without opting in to more.
const SHARED_UNASKED: u32 = 48 << 10;

/// What runs kernels on one device.
pub(crate) struct Engine {
    pub(crate) shared: Arc<Shared>,
    properties: Properties,
    /// Machine code, by what it was compiled from.
    modules: Mutex<HashMap<Key, Arc<Module>>>,
    cache: Cache,
    blas: OnceLock<Result<Blas>>,
    dnn: OnceLock<Result<Dnn>>,
    /// What autotuning chose for products.
    pub(crate) choices: Mutex<Choices>,
    pub(crate) choices_cache: Cache,
    /// Whether products of f32 may round their operands to the 19 bits of TF32.
    tf32: AtomicBool,
}

/// What a device can do, as it says itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Properties {
    /// What it is called.
    pub(crate) name: String,
    /// Its compute capability, major and minor.
    pub(crate) capability: (u32, u32),
    /// Streaming multiprocessors.
    pub(crate) processors: u32,
    /// Threads that a block may have.
    pub(crate) threads_per_block: u32,
    /// Threads that a multiprocessor holds at once.
    pub(crate) threads_per_processor: u32,
    /// Bytes of shared memory that a block may have where its function asks for them.
    pub(crate) shared_per_block: u32,
    /// Bytes of shared memory of a multiprocessor.
    pub(crate) shared_per_processor: u32,
    /// Bytes of the second-level cache.
    pub(crate) cache_bytes: u64,
}

#[cfg(test)]
impl Properties {
    /// Those of an H100, for tests of what is planned for a device.
    pub(crate) fn h100() -> Properties {
        Properties {
            name: "H100".into(),
            capability: (9, 0),
            processors: 132,
            threads_per_block: 1024,
            threads_per_processor: 2048,
            shared_per_block: 227 << 10,
            shared_per_processor: 228 << 10,
            cache_bytes: 50 << 20,
        }
    }
}

impl Properties {
    fn read(shared: &Shared) -> Result<Properties> {
        let read = |which| {
            let value = device::attribute(shared.driver, shared.id, shared.device, which)?;
            Ok(value.max(0) as u32)
        };
        Ok(Properties {
            name: device::name(shared.driver, shared.id, shared.device)?,
            capability: (
                read(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
                read(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
            ),
            processors: read(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?.max(1),
            threads_per_block: read(Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
            threads_per_processor: read(Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR)?,
            shared_per_block: read(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
            shared_per_processor: read(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR)?,
            cache_bytes: read(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?.into(),
        })
    }
}

impl Engine {
    pub(crate) fn new(shared: Arc<Shared>) -> Result<Engine> {
        let properties = Properties::read(&shared)?;
        Ok(Engine {
            shared,
            properties,
            modules: Mutex::default(),
            cache: Cache::of("kernels"),
            blas: OnceLock::new(),
            dnn: OnceLock::new(),
            choices: Mutex::default(),
            choices_cache: Cache::of("products"),
            tf32: AtomicBool::new(false),
        })
    }

    /// The library for matrix products, started when the first is asked for.
    ///
    /// # Errors
    /// If it is not on this machine.
    pub(crate) fn blas(&self) -> Result<&Blas> {
        self.blas.get_or_init(|| Blas::new(&self.shared)).as_ref().map_err(Clone::clone)
    }

    /// The library for convolutions, started when the first is asked for.
    ///
    /// # Errors
    /// If it is not on this machine.
    pub(crate) fn dnn(&self) -> Result<&Dnn> {
        self.dnn.get_or_init(|| Dnn::new(&self.shared)).as_ref().map_err(Clone::clone)
    }

    /// Whether products of f32 may round their operands to the 19 bits of TF32.
    pub(crate) fn tf32(&self) -> bool {
        self.tf32.load(Ordering::Relaxed)
    }

    pub(crate) fn allow_tf32(&self, allowed: bool) {
        self.tf32.store(allowed, Ordering::Relaxed);
    }

    /// Enqueues zeros, with the device's context current.
    ///
    /// # Safety
    /// So many bytes must be valid at the address when the stream comes to it.
    pub(crate) unsafe fn zero(&self, address: CUdeviceptr, bytes: u64, stream: CUstream) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        let driver = self.shared.driver;
        // SAFETY: as the caller vouches.
        let code = unsafe { (driver.functions.set_bytes_async)(address, 0, bytes as usize, stream) };
        driver.check(code, || format!("set {bytes} bytes of {} to zero", self.shared.id))
    }

    /// Enqueues a copy of so many bytes, with the device's context current.
    ///
    /// # Safety
    /// So many bytes must be valid at both addresses when it runs, and not overlap.
    pub(crate) unsafe fn copy(
        &self,
        from: CUdeviceptr,
        to: CUdeviceptr,
        bytes: u64,
        stream: CUstream,
    ) -> Result<()> {
        let driver = self.shared.driver;
        // SAFETY: as the caller vouches.
        let code = unsafe { (driver.functions.copy_async)(to, from, bytes as usize, stream) };
        driver.check(code, || format!("copy {bytes} bytes of {}", self.shared.id))
    }

    /// What the device can do.
    pub(crate) fn properties(&self) -> &Properties {
        &self.properties
    }

    /// Compiles CUDA C++ and finds the `extern "C" __global__` function `name` in it. What was compiled before for
    /// such a device is taken from memory or disk. A function that is to be launched with more than 48 KiB of
    /// dynamic shared memory says so in `shared`.
    ///
    /// # Errors
    /// If there is no compiler on this machine, the source does not compile, or has no such function.
    pub(crate) fn compile(&self, source: &str, name: &str, shared: u32) -> Result<Function> {
        let module = self.module(source, name)?;
        let function = self.shared.with_context(|driver| {
            let symbol = CString::new(name).map_err(|_| {
                Error::new(ErrorKind::Compile, format!("`{}` is no name", name.escape_debug()))
            })?;
            let mut function: CUfunction = ptr::null_mut();
            // SAFETY: the pointer is to a live pointer, the module is loaded, and the name ends in a zero.
            let code = unsafe {
                (driver.functions.module_get_function)(&mut function, module.module, symbol.as_ptr())
            };
            driver.check(code, || format!("find `{name}` in what was compiled for it"))?;
            if shared > SHARED_UNASKED {
                let which = FunctionAttribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
                // SAFETY: the function was found above.
                let code =
                    unsafe { (driver.functions.function_set_attribute)(function, which, shared as c_int) };
                driver.check(code, || format!("let `{name}` have {shared} bytes of shared memory"))?;
            }
            Ok(function)
        })?;
        Ok(Function { module, function, name: name.into() })
    }

    /// The code that a source compiles to, loaded.
    fn module(&self, source: &str, name: &str) -> Result<Arc<Module>> {
        let compiler = Compiler::get()?;
        let options = compiler.options(self.properties.capability);
        let made_by = format!("{:?} {:?} {:?}", compiler.version(), driver_version()?, self.properties);
        let key = cache::digest(&[source.as_bytes(), options.join(" ").as_bytes(), made_by.as_bytes()]);
        if let Some(module) = self.modules().get(&key) {
            return Ok(module.clone());
        }
        let kept = self.cache.get(key).and_then(|code| self.load(&code, name).ok());
        let module = match kept {
            Some(module) => module,
            None => {
                let code = compiler.compile(source, name, &options)?;
                let module = self.load(&code, name)?;
                self.cache.put(key, &code);
                module
            }
        };
        // Another thread may have been first.
        Ok(self.modules().entry(key).or_insert(Arc::new(module)).clone())
    }

    /// Puts machine code on the device.
    fn load(&self, code: &[u8], name: &str) -> Result<Module> {
        self.shared.with_context(|driver| {
            let mut module: CUmodule = ptr::null_mut();
            // SAFETY: the pointer is to a live pointer; the code is what the compiler made, whole as its digest says,
            // and tells its own length.
            let code = unsafe { (driver.functions.module_load_data)(&mut module, code.as_ptr().cast()) };
            driver.check(code, || format!("load the code of `{name}` on {}", self.shared.id))?;
            Ok(Module { shared: self.shared.clone(), module })
        })
    }

    /// The modules. A panic elsewhere leaves them as they were.
    fn modules(&self) -> MutexGuard<'_, HashMap<Key, Arc<Module>>> {
        self.modules.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
