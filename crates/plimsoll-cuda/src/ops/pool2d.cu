// Pooling over windows of images, and its gradient, each result gathered by one thread.
//
// S: E, N, MAX, HEIGHT, WIDTH, PACKS (of the channels), DOWN and ACROSS (the windows), WINDOW_HEIGHT,
// WINDOW_WIDTH, STRIDE_DOWN, STRIDE_ACROSS, TOP and LEFT (the padding before), CELL_HEIGHT, CELL_WIDTH, BLOCK.

// What a window covers along one axis of the image, from `first` up to `end`.
struct Span {
    int first, end;
};
__device__ __forceinline__ Span covered(int window, int stride, int before, int size, int extent) {
    const int start = window * stride - before, end = start + size;
    return Span{start < 0 ? 0 : start, end < extent ? end : extent};
}

// The windows along one axis that cover any of `size` places from `first` on, which is counted from the padding's
// begin.
__device__ __forceinline__ Span covering(int first, int size, int stride, int window, int count) {
    const int lowest = first - window + 1, end = (first + size - 1) / stride + 1;
    return Span{lowest <= 0 ? 0 : (lowest + stride - 1) / stride, end < count ? end : count};
}

// A thread for each pack of the result, of which there are `packs`.
template <class S>
__device__ __forceinline__ void pool(const typename S::E *images, typename S::E *pooled, Index packs) {
    typedef typename S::E E;
    typedef typename Of<E>::Acc Acc;
    for (Index at = (Index)blockIdx.x * S::BLOCK + threadIdx.x; at < packs; at += (Index)gridDim.x * S::BLOCK) {
        const Index pack = at % S::PACKS, place = at / S::PACKS;
        const int across = (int)(place % S::ACROSS), down = (int)(place / S::ACROSS % S::DOWN);
        const Index image = place / S::ACROSS / S::DOWN;
        const Span rows = covered(down, S::STRIDE_DOWN, S::TOP, S::WINDOW_HEIGHT, S::HEIGHT);
        const Span columns = covered(across, S::STRIDE_ACROSS, S::LEFT, S::WINDOW_WIDTH, S::WIDTH);
        Acc all[S::N];
#pragma unroll
        for (int i = 0; i < S::N; ++i) all[i] = S::MAX ? Limits<Acc>::lowest() : Acc(0);
        for (int row = rows.first; row < rows.end; ++row) {
#pragma unroll 4
            for (int column = columns.first; column < columns.end; ++column) {
                const Index element = (image * S::HEIGHT + row) * S::WIDTH + column;
                const Pack<E, S::N> from = load<S::N>(images + (element * S::PACKS + pack) * S::N);
#pragma unroll
                for (int i = 0; i < S::N; ++i)
                    all[i] = S::MAX ? larger(all[i], widen(from.at[i])) : all[i] + widen(from.at[i]);
            }
        }
        const Acc count = S::MAX ? Acc(1) : Acc((rows.end - rows.first) * (columns.end - columns.first));
        Pack<E, S::N> to;
#pragma unroll
        for (int i = 0; i < S::N; ++i) to.at[i] = narrow<E>(all[i] / count);
        store(pooled + at * S::N, to);
    }
}

// A thread has a cell of the images, one of `packs` in all, for which it looks at every window that covers any of it. A
// cell of as many places as a window moves on is looked at in its windows once, not once for each place.
template <class S>
__device__ __forceinline__ void pool_grad(const typename S::E *images, const typename S::E *dy, typename S::E *dx,
                                          Index packs) {
    typedef typename S::E E;
    typedef typename Of<E>::Acc Acc;
    constexpr Index CELLS_DOWN = (S::HEIGHT + S::TOP + S::CELL_HEIGHT - 1) / S::CELL_HEIGHT;
    constexpr Index CELLS_ACROSS = (S::WIDTH + S::LEFT + S::CELL_WIDTH - 1) / S::CELL_WIDTH;
    for (Index at = (Index)blockIdx.x * S::BLOCK + threadIdx.x; at < packs; at += (Index)gridDim.x * S::BLOCK) {
        const Index pack = at % S::PACKS, cell = at / S::PACKS, image = cell / CELLS_ACROSS / CELLS_DOWN;
        const int left = (int)(cell % CELLS_ACROSS * S::CELL_WIDTH);
        const int top = (int)(cell / CELLS_ACROSS % CELLS_DOWN * S::CELL_HEIGHT);
        Acc sums[S::CELL_HEIGHT][S::CELL_WIDTH][S::N];
#pragma unroll
        for (int a = 0; a < S::CELL_HEIGHT; ++a)
#pragma unroll
            for (int b = 0; b < S::CELL_WIDTH; ++b)
#pragma unroll
                for (int i = 0; i < S::N; ++i) sums[a][b][i] = 0;
        const Span downs = covering(top, S::CELL_HEIGHT, S::STRIDE_DOWN, S::WINDOW_HEIGHT, S::DOWN);
        const Span acrosses = covering(left, S::CELL_WIDTH, S::STRIDE_ACROSS, S::WINDOW_WIDTH, S::ACROSS);
        for (int down = downs.first; down < downs.end; ++down) {
            for (int across = acrosses.first; across < acrosses.end; ++across) {
                const Span rows = covered(down, S::STRIDE_DOWN, S::TOP, S::WINDOW_HEIGHT, S::HEIGHT);
                const Span columns = covered(across, S::STRIDE_ACROSS, S::LEFT, S::WINDOW_WIDTH, S::WIDTH);
                const Index window = (image * S::DOWN + down) * S::ACROSS + across;
                const Pack<E, S::N> slopes = load<S::N>(dy + (window * S::PACKS + pack) * S::N);
                if constexpr (S::MAX) {
                    Acc largest[S::N];
                    int where[S::N];
#pragma unroll
                    for (int i = 0; i < S::N; ++i) {
                        largest[i] = Limits<Acc>::lowest();
                        where[i] = rows.first * (int)S::WIDTH + columns.first;
                    }
                    for (int row = rows.first; row < rows.end; ++row) {
#pragma unroll 4
                        for (int column = columns.first; column < columns.end; ++column) {
                            const Index element = (image * S::HEIGHT + row) * S::WIDTH + column;
                            const Pack<E, S::N> from = load<S::N>(images + (element * S::PACKS + pack) * S::N);
#pragma unroll
                            for (int i = 0; i < S::N; ++i) {
                                if (replaces(widen(from.at[i]), largest[i])) {
                                    largest[i] = widen(from.at[i]);
                                    where[i] = row * (int)S::WIDTH + column;
                                }
                            }
                        }
                    }
#pragma unroll
                    for (int a = 0; a < S::CELL_HEIGHT; ++a)
#pragma unroll
                        for (int b = 0; b < S::CELL_WIDTH; ++b) {
                            const int row = top + a - (int)S::TOP, column = left + b - (int)S::LEFT;
                            const bool inside = row >= rows.first && row < rows.end && column >= columns.first &&
                                                column < columns.end;
#pragma unroll
                            for (int i = 0; i < S::N; ++i) {
                                if (inside && where[i] == row * (int)S::WIDTH + column)
                                    sums[a][b][i] += widen(slopes.at[i]);
                            }
                        }
                } else {
                    const Acc count = Acc((rows.end - rows.first) * (columns.end - columns.first));
#pragma unroll
                    for (int a = 0; a < S::CELL_HEIGHT; ++a)
#pragma unroll
                        for (int b = 0; b < S::CELL_WIDTH; ++b) {
                            const int row = top + a - (int)S::TOP, column = left + b - (int)S::LEFT;
                            const bool inside = row >= rows.first && row < rows.end && column >= columns.first &&
                                                column < columns.end;
#pragma unroll
                            for (int i = 0; i < S::N; ++i) {
                                if (inside) sums[a][b][i] += widen(slopes.at[i]) / count;
                            }
                        }
                }
            }
        }
#pragma unroll
        for (int a = 0; a < S::CELL_HEIGHT; ++a)
#pragma unroll
            for (int b = 0; b < S::CELL_WIDTH; ++b) {
                const int row = top + a - (int)S::TOP, column = left + b - (int)S::LEFT;
                if (row < 0 || row >= (int)S::HEIGHT || column < 0 || column >= (int)S::WIDTH) continue;
                Pack<E, S::N> to;
#pragma unroll
                for (int i = 0; i < S::N; ++i) to.at[i] = narrow<E>(sums[a][b][i]);
                const Index element = (image * S::HEIGHT + row) * S::WIDTH + column;
                store(dx + (element * S::PACKS + pack) * S::N, to);
            }
    }
}
