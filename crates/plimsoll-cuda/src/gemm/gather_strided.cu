// Copies elements between strided views. The text before this defines ELEMENT, the type that is copied; COUNT, the
// elements; INDEX, the integer type that counts them; and SOURCE(i) and TARGET(i), where element i is and goes.
extern "C" __global__ void pack(const ELEMENT* from, ELEMENT* to) {
    INDEX step = (INDEX)gridDim.x * blockDim.x;
    for (INDEX i = (INDEX)blockIdx.x * blockDim.x + threadIdx.x; i < COUNT; i += step) {
        to[TARGET(i)] = from[SOURCE(i)];
    }
}
