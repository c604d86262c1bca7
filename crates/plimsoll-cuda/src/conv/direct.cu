// Convolutions as they are defined. The text before this defines ELEMENT and SUM, the types of elements and sums;
// LOAD and STORE between them; the extents BATCH, HEIGHT, WIDTH, CHANNELS, TAPS_Y, TAPS_X, RESULTS, OUT_Y, OUT_X; the
// geometry STRIDE_Y, STRIDE_X, TOP, LEFT, DILATION_Y, DILATION_X; INNER and OUTER, the channels in and out of a group;
// and PARTS, the ranges that the sums of the filter's gradient are split into.

typedef long long Index;

extern "C" __global__ void forward(const ELEMENT* image, const ELEMENT* filter, ELEMENT* out) {
    Index count = (Index)BATCH * OUT_Y * OUT_X * RESULTS, step = (Index)gridDim.x * blockDim.x;
    for (Index i = (Index)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        int result = i % RESULTS, x = i / RESULTS % OUT_X, y = i / RESULTS / OUT_X % OUT_Y;
        Index n = i / RESULTS / OUT_X / OUT_Y;
        int first = result / OUTER * INNER;
        SUM sum = 0;
        for (int r = 0; r < TAPS_Y; ++r) {
            int from_y = y * STRIDE_Y - TOP + r * DILATION_Y;
            if (from_y < 0 || from_y >= HEIGHT) continue;
            for (int s = 0; s < TAPS_X; ++s) {
                int from_x = x * STRIDE_X - LEFT + s * DILATION_X;
                if (from_x < 0 || from_x >= WIDTH) continue;
                const ELEMENT* pixel = image + ((n * HEIGHT + from_y) * WIDTH + from_x) * CHANNELS + first;
                const ELEMENT* tap = filter + (Index)(r * TAPS_X + s) * INNER * RESULTS + result;
                for (int c = 0; c < INNER; ++c) sum += LOAD(pixel[c]) * LOAD(tap[(Index)c * RESULTS]);
            }
        }
        STORE(out[i], sum);
    }
}

extern "C" __global__ void input(const ELEMENT* filter, const ELEMENT* gradient, ELEMENT* image) {
    Index count = (Index)BATCH * HEIGHT * WIDTH * CHANNELS, step = (Index)gridDim.x * blockDim.x;
    for (Index i = (Index)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        int channel = i % CHANNELS, x = i / CHANNELS % WIDTH, y = i / CHANNELS / WIDTH % HEIGHT;
        Index n = i / CHANNELS / WIDTH / HEIGHT;
        int group = channel / INNER, c = channel % INNER;
        SUM sum = 0;
        for (int r = 0; r < TAPS_Y; ++r) {
            int down = y + TOP - r * DILATION_Y;
            if (down < 0 || down % STRIDE_Y || down / STRIDE_Y >= OUT_Y) continue;
            for (int s = 0; s < TAPS_X; ++s) {
                int across = x + LEFT - s * DILATION_X;
                if (across < 0 || across % STRIDE_X || across / STRIDE_X >= OUT_X) continue;
                Index at = ((n * OUT_Y + down / STRIDE_Y) * OUT_X + across / STRIDE_X) * RESULTS;
                const ELEMENT* from = gradient + at + group * OUTER;
                const ELEMENT* tap = filter + ((Index)(r * TAPS_X + s) * INNER + c) * RESULTS + group * OUTER;
                for (int k = 0; k < OUTER; ++k) sum += LOAD(from[k]) * LOAD(tap[k]);
            }
        }
        STORE(image[i], sum);
    }
}

// A block sums one range of positions for one tap and channel and 32 results: a warp each takes every eighth
// position of the range.
extern "C" __global__ void filter_parts(const ELEMENT* image, const ELEMENT* gradient, SUM* parts) {
    __shared__ SUM sums[8][32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int groups = (RESULTS + 31) / 32, part = blockIdx.y;
    int result = blockIdx.x % groups * 32 + lane, place = blockIdx.x / groups;
    int c = place % INNER, s = place / INNER % TAPS_X, r = place / INNER / TAPS_X;
    Index positions = (Index)BATCH * OUT_Y * OUT_X, size = (positions + PARTS - 1) / PARTS;
    Index begin = size * part, end = begin + size < positions ? begin + size : positions;
    SUM sum = 0;
    if (result < RESULTS) {
        int channel = result / OUTER * INNER + c;
        for (Index p = begin + warp; p < end; p += 8) {
            int x = p % OUT_X, y = p / OUT_X % OUT_Y;
            Index n = p / OUT_X / OUT_Y;
            int from_y = y * STRIDE_Y - TOP + r * DILATION_Y, from_x = x * STRIDE_X - LEFT + s * DILATION_X;
            if (from_y < 0 || from_y >= HEIGHT || from_x < 0 || from_x >= WIDTH) continue;
            Index pixel = ((n * HEIGHT + from_y) * WIDTH + from_x) * CHANNELS + channel;
            sum += LOAD(image[pixel]) * LOAD(gradient[p * RESULTS + result]);
        }
    }
    sums[warp][lane] = sum;
    __syncthreads();
    if (warp == 0 && result < RESULTS) {
        for (int w = 1; w < 8; ++w) sum += sums[w][lane];
        parts[((Index)part * TAPS_Y * TAPS_X * INNER + place) * RESULTS + result] = sum;
    }
}

extern "C" __global__ void filter_sum(const SUM* parts, ELEMENT* filter) {
    Index count = (Index)TAPS_Y * TAPS_X * INNER * RESULTS, step = (Index)gridDim.x * blockDim.x;
    for (Index i = (Index)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        SUM sum = 0;
        for (int part = 0; part < PARTS; ++part) sum += parts[part * count + i];
        STORE(filter[i], sum);
    }
}
