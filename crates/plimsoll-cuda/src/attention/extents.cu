// What changes with batch and length is given to each launch, so that one compilation serves them all: it takes seconds.
struct Extents {
    long long pairs, queries, keys;
    // From one element of the batch to the next.
    long long q_batch, k_batch, v_batch, o_batch, u_batch;
};
#define PAIRS ((int)extents.pairs)
#define QUERIES ((int)extents.queries)
#define KEYS ((int)extents.keys)
// Query i sees keys up to i + SHIFT if CAUSAL.
#define SHIFT (KEYS > QUERIES ? KEYS - QUERIES : 0)
#define Q_BATCH ((Index)extents.q_batch)
#define K_BATCH ((Index)extents.k_batch)
#define V_BATCH ((Index)extents.v_batch)
#define O_BATCH ((Index)extents.o_batch)
#define U_BATCH ((Index)extents.u_batch)
