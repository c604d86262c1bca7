// Convolutions whose every channel has filters of its own or that read few channels, and their gradients for the images:
// for each element written the elements around it, times the taps.
//
// A thread has WRITTEN neighbouring elements of TILE places side by side of one line, so that an element read is multiplied
// with every tap that it meets. The workers of a block have lines one below the other: what these share comes from the
// first-level cache.
//
// S: E, BACK (whether the images' gradient is written, from that of the results), PAIRED (whether each result belongs to one
// channel; if not, all of what is read of a place belongs to all), READ and WRITTEN (the elements of a place that a thread
// has), ALL_READ and ALL_WRITTEN (those that there are), PACKS (of WRITTEN elements), SLICE and WORKERS (a block has SLICE
// packs of so many lines), HEIGHT and WIDTH (of what is read), DOWN and ACROSS (of what is written), TAPS_Y, TAPS_X,
// STRIDE_Y, STRIDE_X, DILATION_Y, DILATION_X, TOP, LEFT, TILE (a multiple of STRIDE_X if BACK), TILES (of a line), BLOCK.

// What does not change with batch: the places that a tile reads, counted from its first, and which tap an element read
// meets an element written at, or none (-1).
template <class S> struct Tile {
    static constexpr int READ = S::READ, WRITTEN = S::WRITTEN;
    // The taps of a place, in the order of the filter's elements: those of one channel after those of another.
    static constexpr int PAIRS = !S::PAIRED ? READ * WRITTEN : READ > WRITTEN ? READ : WRITTEN;
    static constexpr int RESULTS = S::BACK ? READ : WRITTEN, CHANNELS = S::BACK ? WRITTEN : READ;
    static __device__ __forceinline__ constexpr int channel_of(int pair) {
        return S::PAIRED ? pair / (RESULTS / CHANNELS) : pair / RESULTS;
    }
    static __device__ __forceinline__ constexpr int result_of(int pair) { return S::PAIRED ? pair : pair % RESULTS; }
    static constexpr int STRIDE = S::STRIDE_X, REACH = ((int)S::TAPS_X - 1) * (int)S::DILATION_X, SIZE = S::TILE;
    static constexpr int FIRST = S::BACK ? -(REACH / STRIDE) : 0;
    static constexpr int SPAN = S::BACK ? (SIZE - 1) / STRIDE + 1 - FIRST : (SIZE - 1) * STRIDE + REACH + 1;
    static __device__ __forceinline__ constexpr int tap(int read, int written) {
        const int apart = S::BACK ? written - (read + FIRST) * STRIDE : read - written * STRIDE;
        return apart < 0 || apart > REACH || apart % (int)S::DILATION_X != 0 ? -1 : apart / (int)S::DILATION_X;
    }
    static __device__ __forceinline__ constexpr bool meets_any(int read) {
        bool any = false;
        for (int written = 0; written < SIZE; ++written) any = any || tap(read, written) >= 0;
        return any;
    }
};

// Adds a line of what is read, times a line of taps. INSIDE: whether all of what the tile reads is within the line.
template <class S, bool INSIDE>
__device__ __forceinline__ void add_line(typename Of<typename S::E>::Acc (&sums)[S::TILE][Tile<S>::WRITTEN],
                                         const typename S::E *line, int column, const typename S::E *taps) {
    typedef Tile<S> T;
    typedef typename Of<typename S::E>::Acc Acc;
    constexpr int TOGETHER = S::PAIRED || S::BACK ? T::PAIRS : T::RESULTS, ROW = S::BACK ? S::ALL_READ : S::ALL_WRITTEN;
    constexpr int TAP = S::PAIRED ? ROW : (int)(S::ALL_READ * S::ALL_WRITTEN);
    Acc factors[S::TAPS_X][T::PAIRS / TOGETHER][TOGETHER];
#pragma unroll
    for (int s = 0; s < (int)S::TAPS_X; ++s)
#pragma unroll
        for (int c = 0; c < T::PAIRS / TOGETHER; ++c) load_numbers(factors[s][c], taps + s * TAP + c * ROW);
#pragma unroll
    for (int read = 0; read < T::SPAN; ++read) {
        if (!T::meets_any(read)) continue;
        Acc numbers[T::READ] = {};
        if (INSIDE || (unsigned)(column + read) < (unsigned)S::WIDTH)
            load_numbers(numbers, line + (long long)(column + read) * (int)S::ALL_READ);
#pragma unroll
        for (int written = 0; written < T::SIZE; ++written) {
            const int s = T::tap(read, written);
            if (s < 0) continue;
#pragma unroll
            for (int pair = 0; pair < T::PAIRS; ++pair) {
                const int c = T::channel_of(pair), k = T::result_of(pair);
                sums[written][S::BACK ? c : k] +=
                    numbers[S::BACK ? k : c] * factors[s][pair / TOGETHER][pair % TOGETHER];
            }
        }
    }
}

// Lines of tiles, of which there are `lines`, are counted down a column of an image, then by columns, then by images: what
// neighbouring workers read is much the same.
template <class S>
__device__ __forceinline__ void depthwise(const typename S::E *read, const typename S::E *filter,
                                          typename S::E *written, Index lines) {
    typedef Tile<S> T;
    typedef typename Of<typename S::E>::Acc Acc;
    const Index pack = blockIdx.y * S::SLICE + threadIdx.x % S::SLICE, worker = threadIdx.x / S::SLICE;
    const Index at = blockIdx.x * S::WORKERS + worker;
    if (pack >= S::PACKS || worker >= S::WORKERS || at >= lines) return;
    // Places that are written are counted such that the first of a tile meets the first tap at a place that is read.
    constexpr int BEFORE = S::BACK ? (int)(S::LEFT % S::STRIDE_X) : 0;
    const int y = (int)(at % S::DOWN), tile = (int)(at / S::DOWN % S::TILES);
    const Index image = at / S::DOWN / S::TILES;
    const int left = S::BACK ? (int)(S::LEFT / S::STRIDE_X) + tile * (int)(S::TILE / S::STRIDE_X)
                             : tile * (int)(S::TILE * S::STRIDE_X) - (int)S::LEFT;
    const int column = left + T::FIRST;
    // Whoever reads few elements of a place reads all of them.
    constexpr Index OWN = S::PAIRED ? S::READ : 0;
    constexpr Index TAP = S::PAIRED ? (S::BACK ? S::ALL_READ : S::ALL_WRITTEN) : S::ALL_READ * S::ALL_WRITTEN;
    constexpr Index OWN_TAPS = S::PAIRED || S::BACK ? T::PAIRS : T::RESULTS;
    const bool inside = column >= 0 && column + T::SPAN <= (int)S::WIDTH;
    Acc sums[T::SIZE][T::WRITTEN] = {};
#pragma unroll 1
    for (int r = 0; r < (int)S::TAPS_Y; ++r) {
        int row = S::BACK ? y + (int)S::TOP - r * (int)S::DILATION_Y
                          : y * (int)S::STRIDE_Y - (int)S::TOP + r * (int)S::DILATION_Y;
        if (S::BACK) {
            if (row < 0 || row % (int)S::STRIDE_Y != 0) continue;
            row /= (int)S::STRIDE_Y;
        }
        if ((unsigned)row >= (unsigned)S::HEIGHT) continue;
        const typename S::E *line = read + (image * S::HEIGHT + row) * (S::WIDTH * S::ALL_READ) + pack * OWN;
        const typename S::E *taps = filter + r * S::TAPS_X * TAP + pack * OWN_TAPS;
        if (inside)
            add_line<S, true>(sums, line, column, taps);
        else
            add_line<S, false>(sums, line, column, taps);
    }
    const int start = tile * (int)S::TILE - BEFORE;
    typename S::E *to = written + (image * S::DOWN + y) * (S::ACROSS * S::ALL_WRITTEN) + pack * T::WRITTEN;
#pragma unroll
    for (int j = 0; j < T::SIZE; ++j)
        if ((unsigned)(start + j) < (unsigned)S::ACROSS)
            store_numbers(to + (long long)(start + j) * (int)S::ALL_WRITTEN, sums[j]);
}
