// A time step of layers over time, element by element: thread i has element i of the `[batch, hidden]` states.
//
// Products with weights are made before a step is launched. `state` and what else goes from one step to the next is
// densely packed, and sums are kept in the type that is computed with; results of all steps are `[batch, time, ..]`.
//
// Before this text comes number.cu. Defined are HIDDEN and Index. Every kernel is told BATCH and TIME after all else, so
// that it does for any batch and length.

#if ELEMENT == 64
#define TANH tanh
#else
#define TANH tanhf
#endif

__device__ __forceinline__ Number sigmoid(Number x) { return 1 / (1 + EXP(-x)); }

#define EXTENTS unsigned long long batch, unsigned long long time
#define BATCH ((Index)batch)
#define TIME ((Index)time)

// The element of this thread, its row and column, and its place among the states of all steps.
#define ELEMENT_OF_THREAD                                                    \
    const Index i = (Index)blockIdx.x * blockDim.x + threadIdx.x;            \
    if (i >= BATCH * HIDDEN) return;                                         \
    const Index row = i / HIDDEN, column = i % HIDDEN;                       \
    const Index moment = row * TIME + step, at = moment * HIDDEN + column

// Element `column` of gate `gate` in row `row` of `gates` gates.
#define GATE(row, gates, gate) ((row) * ((gates) * HIDDEN) + (gate) * HIDDEN + column)

// `gates` holds the products with the inputs, and then the activated gates.
extern "C" __global__ void lstm_step(const Number* __restrict__ product, const Stored* __restrict__ bias,
                                     Stored* __restrict__ gates, const Stored* __restrict__ first_cell,
                                     Stored* cells, Stored* __restrict__ states, Stored* __restrict__ state,
                                     unsigned step, EXTENTS) {
    ELEMENT_OF_THREAD;
    Number gate[4];
#pragma unroll
    for (int g = 0; g < 4; g++) {
        const Number sum = widened(gates[GATE(moment, 4, g)]) + product[GATE(row, 4, g)] +
                           widened(bias[g * HIDDEN + column]);
        gate[g] = g == 2 ? TANH(sum) : sigmoid(sum);
        gates[GATE(moment, 4, g)] = narrowed(gate[g]);
    }
    const Number before = widened(step == 0 ? first_cell[i] : cells[at - HIDDEN]);
    const Number cell = gate[1] * before + gate[0] * gate[2];
    cells[at] = narrowed(cell);
    states[at] = state[i] = narrowed(gate[3] * TANH(cell));
}

// `product` is the gradient of the state from the step after. Writes the gradients of the gates before activation
// among those of all steps and alone, the cell's for the step before, and the state before beside the others.
extern "C" __global__ void lstm_grad_step(const Stored* __restrict__ gates, const Stored* __restrict__ cells,
                                          const Stored* __restrict__ states, const Stored* __restrict__ first_cell,
                                          const Stored* __restrict__ first_hidden,
                                          const Stored* __restrict__ upstream, const Number* __restrict__ product,
                                          Number* __restrict__ dcell, Stored* __restrict__ slopes,
                                          Stored* __restrict__ all_slopes, Stored* __restrict__ befores,
                                          Stored* __restrict__ dfirst_cell, unsigned step, EXTENTS) {
    ELEMENT_OF_THREAD;
    const bool last = step + 1 == TIME;
    Number gate[4], slope[4];
#pragma unroll
    for (int g = 0; g < 4; g++) gate[g] = widened(gates[GATE(moment, 4, g)]);
    const Number dstate = widened(upstream[at]) + (last ? (Number)0 : product[i]);
    const Number shown = TANH(widened(cells[at]));
    const Number before = widened(step == 0 ? first_cell[i] : cells[at - HIDDEN]);
    const Number kept = (last ? (Number)0 : dcell[i]) + dstate * gate[3] * (1 - shown * shown);
    slope[0] = kept * gate[2] * gate[0] * (1 - gate[0]);
    slope[1] = kept * before * gate[1] * (1 - gate[1]);
    slope[2] = kept * gate[0] * (1 - gate[2] * gate[2]);
    slope[3] = dstate * shown * gate[3] * (1 - gate[3]);
#pragma unroll
    for (int g = 0; g < 4; g++) all_slopes[GATE(moment, 4, g)] = slopes[GATE(row, 4, g)] = narrowed(slope[g]);
    befores[at] = step == 0 ? first_hidden[i] : states[at - HIDDEN];
    dcell[i] = kept * gate[1];
    if (step == 0) dfirst_cell[i] = narrowed(kept * gate[1]);
}

// `gates` holds the products with the inputs, in the columns of the first three, and then the activated gates and the
// new gate's hidden product. `state` is that before the step, and then the next.
extern "C" __global__ void gru_step(const Number* __restrict__ product,
                                    const Stored* __restrict__ input_bias, const Stored* __restrict__ hidden_bias,
                                    const Stored* __restrict__ first_hidden, Stored* __restrict__ gates,
                                    Stored* __restrict__ states, Stored* __restrict__ state, unsigned step, EXTENTS) {
    ELEMENT_OF_THREAD;
    Number a[3], b[3];
#pragma unroll
    for (int g = 0; g < 3; g++) {
        a[g] = widened(gates[GATE(moment, 4, g)]) + widened(input_bias[g * HIDDEN + column]);
        b[g] = product[GATE(row, 3, g)] + widened(hidden_bias[g * HIDDEN + column]);
    }
    const Number reset = sigmoid(a[0] + b[0]), update = sigmoid(a[1] + b[1]), fresh = TANH(a[2] + reset * b[2]);
    const Number before = widened(step == 0 ? first_hidden[i] : state[i]);
    gates[GATE(moment, 4, 0)] = narrowed(reset);
    gates[GATE(moment, 4, 1)] = narrowed(update);
    gates[GATE(moment, 4, 2)] = narrowed(fresh);
    gates[GATE(moment, 4, 3)] = narrowed(b[2]);
    states[at] = state[i] = narrowed((1 - update) * fresh + update * before);
}

// The gradient of the state from the step after is `product` and, past the gates, `dstate`. Writes the gradients of
// both products of all steps, that of the hidden product alone too, and the state before beside the others.
extern "C" __global__ void gru_grad_step(const Stored* __restrict__ gates, const Stored* __restrict__ states,
                                         const Stored* __restrict__ first_hidden,
                                         const Stored* __restrict__ upstream, const Number* __restrict__ product,
                                         Number* __restrict__ dstate, Stored* __restrict__ slopes,
                                         Stored* __restrict__ input_slopes, Stored* __restrict__ hidden_slopes,
                                         Stored* __restrict__ befores, unsigned step, EXTENTS) {
    ELEMENT_OF_THREAD;
    const bool last = step + 1 == TIME;
    const Number reset = widened(gates[GATE(moment, 4, 0)]), update = widened(gates[GATE(moment, 4, 1)]);
    const Number fresh = widened(gates[GATE(moment, 4, 2)]), hidden = widened(gates[GATE(moment, 4, 3)]);
    const Stored before = step == 0 ? first_hidden[i] : states[at - HIDDEN];
    const Number slope = widened(upstream[at]) + (last ? (Number)0 : product[i] + dstate[i]);
    const Number dfresh = slope * (1 - update) * (1 - fresh * fresh);
    const Number dreset = dfresh * hidden * reset * (1 - reset);
    const Number dupdate = slope * (widened(before) - fresh) * update * (1 - update);
    const Number both[3] = {dreset, dupdate, dfresh};
#pragma unroll
    for (int g = 0; g < 3; g++) {
        input_slopes[GATE(moment, 3, g)] = narrowed(both[g]);
        hidden_slopes[GATE(moment, 3, g)] = slopes[GATE(row, 3, g)] = narrowed(g == 2 ? dfresh * reset : both[g]);
    }
    befores[at] = before;
    dstate[i] = slope * update;
}

// The gradient of the first hidden state, rounded.
extern "C" __global__ void lstm_grad_first(const Number* __restrict__ product, Stored* __restrict__ dfirst, EXTENTS) {
    const Index i = (Index)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < BATCH * HIDDEN) dfirst[i] = narrowed(product[i]);
}

extern "C" __global__ void gru_grad_first(const Number* __restrict__ product, const Number* __restrict__ dstate,
                                          Stored* __restrict__ dfirst, EXTENTS) {
    const Index i = (Index)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < BATCH * HIDDEN) dfirst[i] = narrowed(product[i] + dstate[i]);
}
