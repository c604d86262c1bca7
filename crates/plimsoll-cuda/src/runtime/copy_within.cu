// Copies bytes, 16 at once. Both places are aligned to as many.
extern "C" __global__ void __launch_bounds__(256)
    copy_within(const uint4 *__restrict__ from, uint4 *__restrict__ to, const unsigned long long bytes) {
    const unsigned long long packs = bytes / 16, first = blockIdx.x * 256ull + threadIdx.x;
    for (unsigned long long at = first; at < packs; at += gridDim.x * 256ull) to[at] = from[at];
    // The last few, one each.
    const unsigned long long rest = packs * 16 + first;
    if (rest < bytes) ((unsigned char *)to)[rest] = ((const unsigned char *)from)[rest];
}
