// The filter's gradient where few of its elements belong to one channel: sums over all places of all images of products of
// two elements each.
//
// Threads side by side have neighbouring packs of channels, LANED of what they read together; what is not laned is the same
// few elements for all of them. A thread has all taps of TAP_ROWS lines of its pack's filters in registers and goes through
// lines of TILE places. The workers of a block and then the blocks are added up in an order of their own.
//
// S: E, PAIRED (whether each result belongs to one channel, or every one to all), IMAGES and SLOPES (the elements of a pack
// of the images and of the results' gradient), IMAGES_LANED and SLOPES_LANED (whether each thread has others), PACKS, SLICE
// and WORKERS (a block has SLICE packs and so many columns), CHANNELS, RESULTS, HEIGHT, WIDTH, DOWN and ACROSS (of the
// results), TAPS_Y, TAPS_X, STRIDE_Y, STRIDE_X, DILATION_Y, DILATION_X, TOP, LEFT, TAP_ROWS, GROUPS (of so many lines of
// taps), TILE, TILES (of a line), BLOCK.
template <class S> struct Sums {
    static constexpr int IMAGES = S::IMAGES, SLOPES = S::SLOPES, TILE = S::TILE;
    static constexpr int PAIRS = S::PAIRED ? SLOPES : IMAGES * SLOPES;
    static constexpr int STRIDE = S::STRIDE_X, REACH = ((int)S::TAPS_X - 1) * (int)S::DILATION_X;
    static constexpr int SPAN = (TILE - 1) * STRIDE + REACH + 1;
    static __device__ __forceinline__ constexpr int image_of(int pair) {
        return S::PAIRED ? pair / (SLOPES / IMAGES) : pair / SLOPES;
    }
    static __device__ __forceinline__ constexpr int slope_of(int pair) { return S::PAIRED ? pair : pair % SLOPES; }
    // Which tap an element of the images is seen through from a place of the tile, or none (-1).
    static __device__ __forceinline__ constexpr int tap(int read, int place) {
        const int apart = read - place * STRIDE;
        return apart < 0 || apart > REACH || apart % (int)S::DILATION_X != 0 ? -1 : apart / (int)S::DILATION_X;
    }
    static __device__ __forceinline__ constexpr bool seen(int read) {
        bool any = false;
        for (int place = 0; place < TILE; ++place) any = any || tap(read, place) >= 0;
        return any;
    }
};

// A line of the images and the slopes of a tile, for one line of taps. INSIDE: whether all that the tile sees is within it.
template <class S, bool INSIDE>
__device__ __forceinline__ void add_products(f32 (&sums)[S::TAPS_X][Sums<S>::PAIRS], const typename S::E *line, int column,
                                             const f32 (&slopes)[S::TILE][S::SLOPES]) {
    typedef Sums<S> T;
#pragma unroll
    for (int read = 0; read < T::SPAN; ++read) {
        if (!T::seen(read)) continue;
        f32 numbers[T::IMAGES] = {};
        if (INSIDE || (unsigned)(column + read) < (unsigned)S::WIDTH)
            load_numbers(numbers, line + (long long)(column + read) * (int)S::CHANNELS);
#pragma unroll
        for (int place = 0; place < T::TILE; ++place) {
            const int s = T::tap(read, place);
            if (s < 0) continue;
#pragma unroll
            for (int pair = 0; pair < T::PAIRS; ++pair)
                sums[s][pair] += numbers[T::image_of(pair)] * slopes[place][T::slope_of(pair)];
        }
    }
}

// Lines of tiles, of which there are `lines`, are counted down a column of the results, then by columns, then by images. The
// workers of a block have neighbouring ones at a time, `run` times: what these read is much the same.
template <class S>
__device__ __forceinline__ void filter_parts(const typename S::E *images, const typename S::E *slopes, f32 *parts,
                                             Index lines, Index run) {
    typedef Sums<S> T;
    __shared__ f32 held[S::WORKERS * S::TAPS_X * S::SLICE * T::PAIRS];
    const Index slice = blockIdx.y / S::GROUPS, own = threadIdx.x % S::SLICE, worker = threadIdx.x / S::SLICE;
    const Index pack = slice * S::SLICE + own;
    const int first_row = (int)(blockIdx.y % S::GROUPS * S::TAP_ROWS);
    const bool works = pack < S::PACKS && worker < S::WORKERS;
    const Index begin = blockIdx.x * S::WORKERS * run;
    const Index end = !works ? 0 : begin + S::WORKERS * run < lines ? begin + S::WORKERS * run : lines;
    images += S::IMAGES_LANED ? pack * S::IMAGES : 0;
    slopes += S::SLOPES_LANED ? pack * S::SLOPES : 0;
    f32 sums[S::TAP_ROWS][S::TAPS_X][T::PAIRS] = {};
    for (Index at = begin + worker; at < end; at += S::WORKERS) {
        const int y = (int)(at % S::DOWN), tile = (int)(at / S::DOWN % S::TILES);
        const Index image = at / S::DOWN / S::TILES;
        const int start = tile * (int)S::TILE, column = start * (int)S::STRIDE_X - (int)S::LEFT;
        const typename S::E *from = slopes + ((image * S::DOWN + y) * S::ACROSS + start) * S::RESULTS;
        f32 factors[T::TILE][T::SLOPES];
#pragma unroll
        for (int place = 0; place < T::TILE; ++place) {
#pragma unroll
            for (int k = 0; k < T::SLOPES; ++k) factors[place][k] = 0;
            if (start + place < (int)S::ACROSS)
                load_numbers(factors[place], from + place * (int)S::RESULTS);
        }
        const bool inside = column >= 0 && column + T::SPAN <= (int)S::WIDTH;
#pragma unroll
        for (int q = 0; q < (int)S::TAP_ROWS; ++q) {
            const int r = first_row + q;
            const int row = y * (int)S::STRIDE_Y - (int)S::TOP + r * (int)S::DILATION_Y;
            if (r >= (int)S::TAPS_Y || (unsigned)row >= (unsigned)S::HEIGHT) continue;
            const typename S::E *line = images + (image * S::HEIGHT + row) * (S::WIDTH * S::CHANNELS);
            if (inside)
                add_products<S, true>(sums[q], line, column, factors);
            else
                add_products<S, false>(sums[q], line, column, factors);
        }
    }
    constexpr Index FILTER_ROW = S::TAPS_X * (S::PAIRED ? S::RESULTS : S::CHANNELS * S::RESULTS);
    parts += blockIdx.x * (S::TAPS_Y * FILTER_ROW);
#pragma unroll
    for (int q = 0; q < (int)S::TAP_ROWS; ++q) {
        const int r = first_row + q;
        if (r >= (int)S::TAPS_Y) break;
        __syncthreads();
        if (worker < S::WORKERS) {
#pragma unroll
            for (int s = 0; s < (int)S::TAPS_X; ++s)
#pragma unroll
                for (int pair = 0; pair < T::PAIRS; ++pair)
                    held[((worker * S::TAPS_X + s) * S::SLICE + own) * T::PAIRS + pair] = sums[q][s][pair];
        }
        __syncthreads();
        constexpr Index HELD = S::TAPS_X * S::SLICE * T::PAIRS;
        for (Index i = threadIdx.x; i < HELD; i += S::BLOCK) {
            const Index s = i / (S::SLICE * T::PAIRS), of = slice * S::SLICE + i / T::PAIRS % S::SLICE;
            if (of >= S::PACKS) continue;
            f32 sum = 0;
            for (Index w = 0; w < S::WORKERS; ++w) sum += held[w * HELD + i];
            const int pair = (int)(i % T::PAIRS), c = T::image_of(pair), k = T::slope_of(pair);
            const Index channel = S::PAIRED ? 0 : (S::IMAGES_LANED ? of * S::IMAGES : 0) + c;
            const Index result = (S::SLOPES_LANED ? of * S::SLOPES : 0) + k;
            parts[r * FILTER_ROW + (s * (FILTER_ROW / S::TAPS_X / S::RESULTS) + channel) * S::RESULTS + result] = sum;
        }
    }
}

// Adds up the parts of the filter's elements, 32 of them in a block: each warp takes every eighth part.
template <class S>
__device__ __forceinline__ void filter_sum(const f32 *parts, typename S::E *filter, Index count) {
    __shared__ f32 held[S::BLOCK];
    const Index lane = threadIdx.x % 32, warp = threadIdx.x / 32, at = (Index)blockIdx.x * 32 + lane;
    f32 sum = 0;
    if (at < S::ELEMENTS) {
#pragma unroll 8
        for (Index part = warp; part < count; part += S::BLOCK / 32) sum += parts[part * S::ELEMENTS + at];
    }
    held[threadIdx.x] = sum;
    __syncthreads();
    if (warp == 0 && at < S::ELEMENTS) {
#pragma unroll
        for (Index other = 1; other < S::BLOCK / 32; ++other) sum += held[other * 32 + lane];
        filter[at] = narrow<typename S::E>(sum);
    }
}
