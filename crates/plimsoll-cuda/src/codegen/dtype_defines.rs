//! How sources that are written once for all float types see their elements.

use plimsoll_graph::DType;

/// The text that defines what elements of a float type are kept as and computed with.
pub(crate) fn dtype_defines(dtype: DType) -> String {
    let (element, stored, number) = match dtype {
        DType::F64 => (64, "double", "double"),
        DType::BF16 => (17, "unsigned short", "float"),
        DType::F16 => (16, "unsigned short", "float"),
        _ => (32, "float", "float"),
    };
    let text = include_str!("dtype_defines.cu");
    format!("#define ELEMENT {element}\n#define Stored {stored}\n#define Number {number}\n{text}")
}
