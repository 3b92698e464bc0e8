/* The inner loops of networks, with the bits of NumPy.

   NumPy is the specification: whatever is computed here is computed with NumPy as well, where this
   file was not compiled or differs. Products are those of NumPy's own BLAS, called as np.matmul
   calls it; tanh, exp and the like are NumPy's own loops; the rest is arithmetic that IEEE 754
   determines, in NumPy's order (so no contraction to fused operations, and no -ffast-math).

   Plain C: `kernels.py` loads it with ctypes and hands out the addresses of arrays that it keeps.
   All arrays are float32 and contiguous, but for what is said otherwise. */

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

typedef int64_t i64;

/* Loops over many numbers, for the vectors of the processor that is there. A compiler that knows no
   such thing leaves it at the vectors that every processor of its kind has. */
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__)
#define WIDE __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define WIDE
#endif

/* ---- what NumPy lends */

enum { ROW_MAJOR = 101, COLUMN_MAJOR = 102, AS_IT_IS = 111, TRANSPOSED = 112 };

typedef void (*Gemm64)(int, int, int, i64, i64, i64, float, const float *, i64, const float *, i64,
                       float, float *, i64);
typedef void (*Gemm32)(int, int, int, int, int, int, float, const float *, int, const float *, int,
                       float, float *, int);
typedef void (*Gemv64)(int, int, i64, i64, float, const float *, i64, const float *, i64, float,
                       float *, i64);
typedef void (*Gemv32)(int, int, int, int, float, const float *, int, const float *, int, float,
                       float *, int);
/* The address, the size and the strides are of NumPy's type intptr_t. */
typedef void (*Loop)(char **arrays, const intptr_t *size, const intptr_t *strides, void *data);

typedef struct {
    Loop loop;
    void *data;
} Function;

static struct {
    void *gemm, *gemv;
    i64 has_64_bits, num_cores, sum_block;
    Function tanh, exp, log, maximum;
} numpy;

/* Of this file, by `setup.py`. */
#ifndef VERSION
#define VERSION 0
#endif
unsigned version(void) { return VERSION; }

int lent_size(void) { return (int)sizeof(numpy); }

void lend(const void *lent) { memcpy(&numpy, lent, sizeof(numpy)); }

/* c [m, n] = a [m, k] @ b [k, n], either of which may be stored transposed. */
static void product(int how_a, int how_b, i64 m, i64 n, i64 k, const float *a, i64 row_a,
                    const float *b, i64 row_b, float *c, i64 row_c) {
    if (numpy.has_64_bits)
        ((Gemm64)numpy.gemm)(ROW_MAJOR, how_a, how_b, m, n, k, 1.0f, a, row_a, b, row_b, 0.0f, c,
                             row_c);
    else
        ((Gemm32)numpy.gemm)(ROW_MAJOR, how_a, how_b, (int)m, (int)n, (int)k, 1.0f, a, (int)row_a,
                             b, (int)row_b, 0.0f, c, (int)row_c);
}

static void vector_product(int order, i64 m, i64 n, const float *a, i64 row_a, const float *x,
                           float *y) {
    if (numpy.has_64_bits)
        ((Gemv64)numpy.gemv)(order, TRANSPOSED, m, n, 1.0f, a, row_a, x, 1, 0.0f, y, 1);
    else
        ((Gemv32)numpy.gemv)(order, TRANSPOSED, (int)m, (int)n, 1.0f, a, (int)row_a, x, 1, 0.0f, y,
                             1);
}

static void apply(Function f, float *in, float *out, i64 size) {
    char *arrays[2] = {(char *)in, (char *)out};
    intptr_t count = size, strides[2] = {sizeof(float), sizeof(float)};
    f.loop(arrays, &count, strides, f.data);
}

/* f(values, number) */
static void apply_with(Function f, float *values, float number, float *out, i64 size) {
    char *arrays[3] = {(char *)values, (char *)&number, (char *)out};
    intptr_t count = size, strides[3] = {sizeof(float), 0, sizeof(float)};
    f.loop(arrays, &count, strides, f.data);
}

static i64 half_of_sum(i64 size) {
    i64 half = size / 2;
    return half - half % 8;
}

/* Sums of up to 128, added in pairs. */
static float sum_in_pairs(const float *values, i64 size) {
    if (size < 8) {
        float total = -0.0f;
        for (i64 i = 0; i < size; i++) total += values[i];
        return total;
    }
    if (size <= 128) {
        float part[8], total;
        i64 i = 8, whole = size - size % 8;
        memcpy(part, values, sizeof(part));
        for (; i < whole; i += 8)
            for (int j = 0; j < 8; j++) part[j] += values[i + j];
        total = ((part[0] + part[1]) + (part[2] + part[3])) +
                ((part[4] + part[5]) + (part[6] + part[7]));
        for (; i < size; i++) total += values[i];
        return total;
    }
    i64 half = half_of_sum(size);
    return sum_in_pairs(values, half) + sum_in_pairs(values + half, size - half);
}

/* np.add.reduce of contiguous numbers. NumPy before 2.3 adds the sums of blocks in turn. */
static float sum(const float *values, i64 size) {
    i64 block = numpy.sum_block;
    float total = sum_in_pairs(values, size < block ? size : block);
    for (i64 i = block; i < size; i += block)
        total += sum_in_pairs(values + i, size - i < block ? size - i : block);
    return total;
}

/* f over all values, in place. */
static void apply_to(Function f, float *values, i64 size) { apply(f, values, values, size); }

/* ---- two things at once

   A second thread for what is worth it: it sleeps unless it was needed in the last 50 µs. What
   either computes does not depend on whether there is one. */

typedef void (*Work)(const void *of);

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    atomic_llong num_asked, num_done;
    atomic_flag is_taken; /* by a thread of the caller's */
    int is_there, is_registered;
    Work work;
    const void *of;
} helper = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0, ATOMIC_FLAG_INIT, 0, 0, 0, 0};

static void pause_a_little(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static i64 now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * (i64)1000000000 + now.tv_nsec;
}

static void wait_for(atomic_llong *number, i64 wanted) {
    i64 until = now_ns() + 50000;
    do
        for (int i = 0; i < 64; i++) {
            if (atomic_load(number) >= wanted) return;
            pause_a_little();
        }
    while (now_ns() < until);
    pthread_mutex_lock(&helper.lock);
    while (atomic_load(number) < wanted) pthread_cond_wait(&helper.changed, &helper.lock);
    pthread_mutex_unlock(&helper.lock);
}

static void count(atomic_llong *number) {
    pthread_mutex_lock(&helper.lock);
    atomic_fetch_add(number, 1);
    pthread_cond_broadcast(&helper.changed);
    pthread_mutex_unlock(&helper.lock);
}

static void *help(void *nothing) {
    for (i64 number = 1;; number++) {
        wait_for(&helper.num_asked, number);
        helper.work(helper.of);
        count(&helper.num_done);
    }
    return nothing;
}

/* In a child that was forked there is no second thread, and nobody holds a lock. */
static void forget(void) {
    pthread_mutex_init(&helper.lock, 0);
    pthread_cond_init(&helper.changed, 0);
    atomic_store(&helper.num_asked, 0);
    atomic_store(&helper.num_done, 0);
    atomic_flag_clear(&helper.is_taken);
    helper.is_there = 0;
}

static int has_helper(void) {
    pthread_t thread;
    sigset_t all, before;
    if (helper.is_there || numpy.num_cores < 2) return helper.is_there;
    if (!helper.is_registered) helper.is_registered = !pthread_atfork(0, 0, forget);
    sigfillset(&all); /* signals are for the threads of Python */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    helper.is_there = helper.is_registered && !pthread_create(&thread, 0, help, 0);
    pthread_sigmask(SIG_SETMASK, &before, 0);
    if (helper.is_there) pthread_detach(thread);
    return helper.is_there;
}

static void do_both(Work first, const void *of_first, Work second, const void *of_second) {
    if (atomic_flag_test_and_set(&helper.is_taken)) { /* two threads of Python learn */
        first(of_first);
        second(of_second);
        return;
    }
    if (has_helper()) {
        helper.work = second, helper.of = of_second;
        count(&helper.num_asked);
        first(of_first);
        wait_for(&helper.num_done, atomic_load(&helper.num_asked));
    } else {
        first(of_first);
        second(of_second);
    }
    atomic_flag_clear(&helper.is_taken);
}

enum { WORTH_TWO = 50000 }; /* numbers: about 10 µs of Adam */

typedef struct {
    void (*work)(const void *of, i64 begin, i64 end);
    const void *of;
    i64 begin, end;
} Part;

static void do_part(const void *of) {
    const Part *part = of;
    part->work(part->of, part->begin, part->end);
}

/* Work on each number by itself, in two halves if there are many. */
static void for_all(void (*work)(const void *, i64, i64), const void *of, i64 size) {
    i64 half = size / 2;
    Part parts[2] = {{work, of, 0, half}, {work, of, half, size}};
    if (size < WORTH_TWO)
        work(of, 0, size);
    else
        do_both(do_part, parts, do_part, parts + 1);
}

/* ---- dense layers in a chain: see MLP in layers.py */

enum { LINEAR = 0, TANH = 1, RELU = 2 };

typedef struct {
    i64 inputs, outputs, activation;
    float *weights;          /* [inputs + 1, outputs] */
    float *weight_gradients; /* likewise */
    float *values;           /* [outputs + 1, batch], the last row ones */
    float *gradient;         /* [outputs, batch] */
} Layer;

static void activate(i64 activation, float *values, i64 size) {
    if (activation == TANH)
        apply_to(numpy.tanh, values, size);
    else if (activation == RELU)
        apply_with(numpy.maximum, values, 0.0f, values, size);
}

WIDE static void activate_backward(const Layer *layer, i64 batch) {
    const float *values = layer->values;
    float *gradient = layer->gradient;
    i64 size = layer->outputs * batch;
    if (layer->activation == TANH)
        for (i64 i = 0; i < size; i++) {
            float square = values[i] * values[i];
            gradient[i] = gradient[i] * (1.0f - square);
        }
    else if (layer->activation == RELU)
        for (i64 i = 0; i < size; i++) gradient[i] = gradient[i] * (values[i] > 0.0f ? 1.0f : 0.0f);
}

/* inputs: [inputs + 1, batch], the last row ones. */
void forward(const Layer *layers, i64 count, i64 batch, const float *inputs) {
    for (const Layer *layer = layers; layer < layers + count; layer++) {
        i64 outputs = layer->outputs, rows = layer->inputs + 1;
        if (outputs == 1)
            vector_product(ROW_MAJOR, rows, batch, inputs, batch, layer->weights, layer->values);
        else
            product(TRANSPOSED, AS_IT_IS, outputs, batch, rows, layer->weights, outputs, inputs,
                    batch, layer->values, batch);
        activate(layer->activation, layer->values, outputs * batch);
        inputs = layer->values;
    }
}

/* The gradient of the last layer's outputs is there already. d_inputs may be NULL. */
void backward(const Layer *layers, i64 count, i64 batch, const float *inputs, float *d_inputs,
              int only_inputs) {
    for (i64 index = count - 1; index >= 0; index--) {
        const Layer *layer = layers + index;
        const float *before = index ? layer[-1].values : inputs;
        float *d_before = index ? layer[-1].gradient : d_inputs, *gradient = layer->gradient;
        i64 outputs = layer->outputs, rows = layer->inputs + 1;
        activate_backward(layer, batch);
        if (!only_inputs && outputs == 1)
            vector_product(COLUMN_MAJOR, batch, rows, before, batch, gradient,
                           layer->weight_gradients);
        else if (!only_inputs)
            product(AS_IT_IS, TRANSPOSED, rows, outputs, batch, before, batch, gradient, batch,
                    layer->weight_gradients, outputs);
        if (!d_before) continue;
        if (outputs == 1)
            for (i64 k = 0; k < layer->inputs; k++)
                for (i64 b = 0; b < batch; b++)
                    d_before[k * batch + b] = layer->weights[k] * gradient[b];
        else
            product(AS_IT_IS, AS_IT_IS, layer->inputs, batch, outputs, layer->weights, outputs,
                    gradient, batch, d_before, batch);
    }
}

/* ---- acting: blocks of rows, each a product of its own; see ActingForward in layers.py */

enum { BLOCK_ROWS = 8 };

/* values: of each layer, and first of the inputs, [blocks * 8, width + 1], the last column ones. */
void act(const Layer *layers, i64 count, i64 blocks, float **values) {
    for (i64 index = 0; index < count; index++) {
        const Layer *layer = layers + index;
        i64 outputs = layer->outputs, rows = layer->inputs + 1, width = outputs + 1;
        for (i64 block = 0; block < blocks; block++) {
            float *out = values[index + 1] + block * BLOCK_ROWS * width;
            product(AS_IT_IS, AS_IT_IS, BLOCK_ROWS, outputs, rows,
                    values[index] + block * BLOCK_ROWS * rows, rows, layer->weights, outputs, out,
                    width);
            if (layer->activation != LINEAR)
                for (int row = 0; row < BLOCK_ROWS; row++)
                    activate(layer->activation, out + row * width, outputs);
        }
    }
}

/* ---- passes of several networks, two at a time */

enum { FORWARD = 0, BACKWARD = 1, BACKWARD_TO_INPUTS = 2 };

typedef struct {
    const Layer *layers;
    i64 count, batch, kind;
    const float *inputs;
    float *d_inputs;
} Pass;

typedef struct {
    const Pass *passes;
    i64 count;
} Passes;

static void run(const void *of) {
    const Passes *all = of;
    for (const Pass *pass = all->passes; pass < all->passes + all->count; pass++)
        if (pass->kind == FORWARD)
            forward(pass->layers, pass->count, pass->batch, pass->inputs);
        else
            backward(pass->layers, pass->count, pass->batch, pass->inputs, pass->d_inputs,
                     pass->kind == BACKWARD_TO_INPUTS);
}

/* The first ones in order, and beside them the others in order. */
void run_both(const Pass *passes, i64 num_first, i64 num_second) {
    Passes first = {passes, num_first}, second = {passes + num_first, num_second};
    do_both(run, &first, run, &second);
}

/* ---- the steps of an LSTM: see recurrent.py; gates stand as i, f, g, o */

typedef struct {
    i64 num_steps, batch, inputs, width;
    const float *weights;                 /* [inputs + 1, 4 * width] */
    const float *recurrent;               /* [width, 4 * width] */
    float *weight_gradients, *recurrent_gradients;
    const float *factors, *sums, *is_tanh; /* [4 * width] */
    float *gates, *d_gates, *slopes;      /* [num_steps, batch, 4 * width] */
    float *hidden, *cells;                /* [num_steps + 1, batch, width] */
    float *tanh_cells;                    /* [num_steps, batch, width] */
    float *scratch;                       /* [6 * width, batch] */
    float *outputs;                       /* [width, num_steps * batch] */
} LstmPlan;

/* The gates hold the part of the inputs. */
WIDE void lstm_forward(const LstmPlan *plan) {
    i64 width = plan->width, gates_width = 4 * width, size = plan->batch * width;
    for (i64 t = 0; t < plan->num_steps; t++) {
        float *gates = plan->gates + 4 * t * size, *hidden = plan->hidden + t * size;
        float *cells = plan->cells + t * size, *next = cells + size;
        float *tanh_cells = plan->tanh_cells + t * size, *products = plan->scratch;
        product(AS_IT_IS, AS_IT_IS, plan->batch, gates_width, width, hidden, width,
                plan->recurrent, gates_width, products, gates_width);
        for (i64 b = 0; b < plan->batch; b++)
            for (i64 k = 0; k < gates_width; k++) {
                i64 at = b * gates_width + k;
                gates[at] = (gates[at] + products[at]) * plan->factors[k];
            }
        apply_to(numpy.tanh, gates, 4 * size);
        for (i64 b = 0; b < plan->batch; b++) {
            float *row = gates + b * gates_width;
            for (i64 k = 0; k < gates_width; k++) row[k] = row[k] * plan->factors[k] + plan->sums[k];
            for (i64 k = 0; k < width; k++) {
                float kept = row[width + k] * cells[b * width + k];
                next[b * width + k] = kept + row[k] * row[2 * width + k];
            }
        }
        apply(numpy.tanh, next, tanh_cells, size);
        for (i64 b = 0; b < plan->batch; b++)
            for (i64 k = 0; k < width; k++)
                hidden[size + b * width + k] =
                    gates[b * gates_width + 3 * width + k] * tanh_cells[b * width + k];
    }
}

/* gradient: of the outputs, [width, num_steps * batch]; overwrites d_gates. */
WIDE static void lstm_backward(const LstmPlan *plan, const float *gradient) {
    i64 width = plan->width, gates_width = 4 * width, size = plan->batch * width;
    i64 batch = plan->batch, row_size = plan->num_steps * batch;
    float *d_hidden = plan->scratch, *d_cells = d_hidden + size;
    for (i64 row = 0; row < row_size; row++)
        for (i64 k = 0; k < gates_width; k++) {
            float gate = plan->gates[row * gates_width + k];
            plan->slopes[row * gates_width + k] = (gate + plan->is_tanh[k]) * (1.0f - gate);
        }
    memset(d_hidden, 0, 2 * size * sizeof(float));
    for (i64 t = plan->num_steps - 1; t >= 0; t--) {
        const float *tanh_cells = plan->tanh_cells + t * size, *cells = plan->cells + t * size;
        for (i64 b = 0; b < batch; b++) {
            const float *gates = plan->gates + 4 * t * size + b * gates_width;
            const float *slopes = plan->slopes + 4 * t * size + b * gates_width;
            float *d_gates = plan->d_gates + 4 * t * size + b * gates_width;
            for (i64 k = 0; k < width; k++) {
                i64 at = b * width + k;
                float d = d_hidden[at] + gradient[k * row_size + t * batch + b];
                float tanh_cell = tanh_cells[at], d_cell;
                d_gates[3 * width + k] = d * tanh_cell * slopes[3 * width + k];
                d_cell = d_cells[at] + d * gates[3 * width + k] * (1.0f - tanh_cell * tanh_cell);
                d_gates[k] = d_cell * gates[2 * width + k] * slopes[k];
                d_gates[2 * width + k] = d_cell * gates[k] * slopes[2 * width + k];
                d_gates[width + k] = d_cell * cells[at] * slopes[width + k];
                d_cells[at] = d_cell * gates[width + k];
            }
        }
        product(AS_IT_IS, TRANSPOSED, batch, width, gates_width, plan->d_gates + 4 * t * size,
                gates_width, plan->recurrent, gates_width, d_hidden, width);
    }
}

typedef struct {
    const LstmPlan *plan;
    const float *inputs;   /* [inputs + 1, num_steps * batch], the last row ones */
    const float *gradient; /* of the outputs; NULL for a forward pass */
    float *d_inputs;       /* [inputs, num_steps * batch], or NULL */
} LstmPass;

void lstm_pass(const void *of) {
    const LstmPass *pass = of;
    const LstmPlan *plan = pass->plan;
    i64 rows = plan->num_steps * plan->batch, width = plan->width, gates = 4 * width;
    const float *after = plan->hidden + plan->batch * width;
    if (!pass->gradient) {
        product(TRANSPOSED, AS_IT_IS, rows, gates, plan->inputs + 1, pass->inputs, rows,
                plan->weights, gates, plan->gates, gates);
        lstm_forward(plan);
        for (i64 k = 0; k < width; k++)
            for (i64 row = 0; row < rows; row++)
                plan->outputs[k * rows + row] = after[row * width + k];
        return;
    }
    lstm_backward(plan, pass->gradient);
    product(AS_IT_IS, AS_IT_IS, plan->inputs + 1, gates, rows, pass->inputs, rows, plan->d_gates,
            gates, plan->weight_gradients, gates);
    product(TRANSPOSED, AS_IT_IS, width, gates, rows, plan->hidden, width, plan->d_gates, gates,
            plan->recurrent_gradients, gates);
    if (pass->d_inputs)
        product(AS_IT_IS, TRANSPOSED, plan->inputs, rows, gates, plan->weights, gates,
                plan->d_gates, gates, pass->d_inputs, rows);
}

void lstm_both(const LstmPass *first, const LstmPass *second) {
    do_both(lstm_pass, first, lstm_pass, second);
}

/* ---- Adam and the norm of gradients: see optimizers.py */

typedef struct {
    i64 size;
    float *parameters, *gradients, *first_moment, *second_moment, *scratch;
    float *rates; /* one for each number, or NULL */
} Optimizer;

typedef struct {
    const Optimizer *of;
    float decay_1, decay_2, epsilon, factor;
} Step;

WIDE static void step(const void *of_step, i64 begin, i64 end) {
    const Step *with = of_step;
    const Optimizer *of = with->of;
    float *restrict parameters = of->parameters, *restrict first = of->first_moment;
    float *restrict second = of->second_moment;
    const float *restrict gradients = of->gradients, *restrict rates = of->rates;
    float decay_1 = with->decay_1, decay_2 = with->decay_2;
    float epsilon = with->epsilon, factor = with->factor;
    for (i64 i = begin; i < end; i++) {
        float gradient = gradients[i], square = gradient * gradient, quotient;
        first[i] = first[i] + (gradient - first[i]) * decay_1;
        second[i] = second[i] + (square - second[i]) * decay_2;
        quotient = first[i] / (sqrtf(second[i]) + epsilon);
        if (rates) quotient = quotient * rates[i];
        parameters[i] = parameters[i] - quotient * factor;
    }
}

/* The numbers are those of one step: 1 - beta of both moments, what is added to the root of the
   second one, and the factor of the quotient. */
void adam(const Optimizer *of, float decay_1, float decay_2, float epsilon, float factor) {
    Step with = {of, decay_1, decay_2, epsilon, factor};
    for_all(step, &with, of->size);
}

typedef struct {
    const float *gradients;
    float *out, *total;
    i64 size;
} Squares;

WIDE static void square(const void *of_part) {
    const Squares *part = of_part;
    float *restrict out = part->out;
    const float *restrict gradients = part->gradients;
    for (i64 i = 0; i < part->size; i++) out[i] = gradients[i] * gradients[i];
    *part->total = sum(out, part->size);
}

/* The sum of the squares of gradients, which are left in the scratch memory. */
float squares(const Optimizer *of) {
    float totals[2];
    i64 half = half_of_sum(of->size);
    Squares all = {of->gradients, of->scratch, totals, of->size};
    Squares halves[2] = {{of->gradients, of->scratch, totals, half},
                         {of->gradients + half, of->scratch + half, totals + 1, of->size - half}};
    if (of->size < WORTH_TWO || of->size > numpy.sum_block) {
        square(&all);
        return totals[0];
    }
    do_both(square, halves, square, halves + 1);
    return totals[0] + totals[1];
}

typedef struct {
    float *values;
    float factor;
} Scaling;

WIDE static void scale_part(const void *of_scaling, i64 begin, i64 end) {
    const Scaling *of = of_scaling;
    float *restrict values = of->values, factor = of->factor;
    for (i64 i = begin; i < end; i++) values[i] = values[i] * factor;
}

void scale(float *values, i64 size, float factor) {
    Scaling of = {values, factor};
    for_all(scale_part, &of, size);
}

typedef struct {
    float *target;
    const float *source;
    float share;
} Following;

WIDE static void follow_part(const void *of_following, i64 begin, i64 end) {
    const Following *of = of_following;
    float *restrict target = of->target;
    const float *restrict source = of->source;
    float share = of->share;
    for (i64 i = begin; i < end; i++) target[i] = target[i] + (source[i] - target[i]) * share;
}

/* Moves the target by a share of the way to the source. */
void follow(float *target, const float *source, i64 size, float share) {
    Following of = {target, source, share};
    for_all(follow_part, &of, size);
}

/* ---- the loss of PPO: see ppo/loss.py, and `evaluate` and `backward` in distributions.py

   Networks lay out [batch, width] as width rows of batch numbers; what comes from a minibatch is
   laid out as it says. Where NumPy adds up numbers that stand side by side, so does `sum`; else it
   adds row to row. */

typedef struct {
    i64 batch, width;
    const float *inputs; /* of the distribution: logits, or means and then log deviations */
    const float *values;
    float *d_inputs, *d_values;
    float *scratch; /* (7 + 5 * width) * batch + width numbers */
} PolicyPlan;

typedef struct {
    const void *actions; /* int64 [batch], or float [batch, width] */
    const float *logp, *reference, *advantages, *targets;
} Minibatch;

typedef struct {
    float lowest_ratio, highest_ratio, d_surrogate; /* of the clipped objective */
    float value_limit, d_value;
    float d_entropy, d_kl;
    float log_std_limit, logp_constant, entropy_constant; /* of normal distributions */
} PolicyNumbers;

typedef struct {
    float sums[5]; /* surrogates, limited and unlimited squared errors, entropies, divergences */
    i64 num_clipped, num_within;
} PolicySums;

static float smaller(float a, float b) { return a < b || a != a ? a : b; }

/* From the ratios: the surrogates, and the derivatives for log probabilities. */
static void clip_ratios(const PolicyPlan *plan, const Minibatch *rows, const PolicyNumbers *with,
                        const float *ratios, float *surrogates, float *d_logp, PolicySums *sums) {
    sums->num_clipped = 0;
    for (i64 b = 0; b < plan->batch; b++) {
        float ratio = ratios[b], clipped = ratio < with->lowest_ratio ? with->lowest_ratio : ratio;
        float unclipped = ratio * rows->advantages[b];
        clipped = clipped > with->highest_ratio ? with->highest_ratio : clipped;
        sums->num_clipped += clipped != ratio;
        clipped = clipped * rows->advantages[b];
        surrogates[b] = smaller(unclipped, clipped);
        d_logp[b] = (unclipped <= clipped ? unclipped : 0.0f) * with->d_surrogate;
    }
}

static void learn_values(const PolicyPlan *plan, const Minibatch *rows, const PolicyNumbers *with,
                         float *limited, float *squares, PolicySums *sums) {
    sums->num_within = 0;
    for (i64 b = 0; b < plan->batch; b++) {
        float error = plan->values[b] - rows->targets[b], square = error * error;
        int is_within = square <= with->value_limit;
        squares[b] = square;
        limited[b] = smaller(square, with->value_limit);
        sums->num_within += is_within;
        plan->d_values[b] = (is_within ? error : 0.0f) * with->d_value;
    }
}

/* The parts that both distributions have in common, once log probabilities are there. */
static void finish(const PolicyPlan *plan, const Minibatch *rows, const PolicyNumbers *with,
                   float *parts, float *ratios, float *d_logp, PolicySums *sums) {
    i64 batch = plan->batch;
    for (i64 b = 0; b < batch; b++) ratios[b] = ratios[b] - rows->logp[b];
    apply_to(numpy.exp, ratios, batch);
    clip_ratios(plan, rows, with, ratios, parts, d_logp, sums);
    learn_values(plan, rows, with, parts + batch, parts + 2 * batch, sums);
    for (int part = 0; part < 5; part++) sums->sums[part] = sum(parts + part * batch, batch);
}

/* 0: an action is none of those that there are, and nothing was computed. */
WIDE int ppo_categorical(const PolicyPlan *plan, const Minibatch *rows, const PolicyNumbers *with,
                         PolicySums *sums) {
    i64 batch = plan->batch, width = plan->width, size = batch * width;
    const int64_t *actions = rows->actions;
    const float *reference = rows->reference;
    float *parts = plan->scratch, *entropies = parts + 3 * batch, *kl = parts + 4 * batch;
    float *log_probs = parts + 5 * batch, *probs = log_probs + size, *old = probs + size;
    float *terms = old + size, *ratios = terms + width, *d_logp = ratios + batch;
    for (i64 b = 0; b < batch; b++)
        if (actions[b] < 0 || actions[b] >= width) return 0;
    for (i64 b = 0; b < batch; b++) { /* the largest logit first: no exponential overflows */
        float largest = plan->inputs[b];
        for (i64 k = 1; k < width; k++) {
            float logit = plan->inputs[k * batch + b];
            largest = largest >= logit || largest != largest ? largest : logit;
        }
        kl[b] = largest;
    }
    for (i64 k = 0; k < width; k++)
        for (i64 b = 0; b < batch; b++)
            log_probs[k * batch + b] = plan->inputs[k * batch + b] - kl[b];
    apply(numpy.exp, log_probs, probs, size);
    memcpy(entropies, probs, batch * sizeof(float));
    for (i64 k = 1; k < width; k++)
        for (i64 b = 0; b < batch; b++) entropies[b] += probs[k * batch + b];
    apply_to(numpy.log, entropies, batch);
    for (i64 k = 0; k < width; k++)
        for (i64 b = 0; b < batch; b++) log_probs[k * batch + b] -= entropies[b];
    apply(numpy.exp, log_probs, probs, size);
    apply(numpy.exp, (float *)reference, old, size); /* [batch, width] */
    for (i64 b = 0; b < batch; b++) {
        for (i64 k = 0; k < width; k++)
            terms[k] = old[b * width + k] * (reference[b * width + k] - log_probs[k * batch + b]);
        kl[b] = sum(terms, width);
        entropies[b] = probs[b] * log_probs[b];
    }
    for (i64 k = 1; k < width; k++)
        for (i64 b = 0; b < batch; b++) entropies[b] += probs[k * batch + b] * log_probs[k * batch + b];
    for (i64 b = 0; b < batch; b++) {
        entropies[b] = -entropies[b];
        ratios[b] = log_probs[actions[b] * batch + b];
    }
    finish(plan, rows, with, parts, ratios, d_logp, sums);
    for (i64 k = 0; k < width; k++)
        for (i64 b = 0; b < batch; b++) {
            i64 at = k * batch + b;
            float d = log_probs[at] + entropies[b];
            d = d * with->d_entropy;
            d = d + d_logp[b];
            d = -(d * probs[at]);
            plan->d_inputs[at] = d + (probs[at] - old[b * width + k]) * with->d_kl;
        }
    for (i64 b = 0; b < batch; b++) plan->d_inputs[actions[b] * batch + b] += d_logp[b];
    return 1;
}

static float within(float value, float limit) {
    float clipped = value < -limit ? -limit : value;
    return clipped > limit ? limit : clipped;
}

WIDE int ppo_gaussian(const PolicyPlan *plan, const Minibatch *rows, const PolicyNumbers *with,
                      PolicySums *sums) {
    i64 batch = plan->batch, width = plan->width, size = batch * width;
    const float *actions = rows->actions, *means = plan->inputs, *given = plan->inputs + size;
    float *parts = plan->scratch, *entropies = parts + 3 * batch, *kl = parts + 4 * batch;
    float *log_std = parts + 5 * batch, *inverse = log_std + size; /* [width, batch] */
    float *error = inverse + size, *shift = error + size, *ratio = shift + size; /* [batch, width] */
    float *terms = ratio + size, *logp = terms + width, *d_logp = logp + batch;
    float limit = with->log_std_limit;
    for (i64 i = 0; i < size; i++) {
        log_std[i] = within(given[i], limit);
        inverse[i] = -log_std[i];
    }
    apply_to(numpy.exp, inverse, size);
    for (i64 b = 0; b < batch; b++) {
        const float *reference = rows->reference + b * 2 * width;
        for (i64 k = 0; k < width; k++) {
            i64 at = k * batch + b, here = b * width + k;
            float log_ratio = within(reference[width + k], limit) - log_std[at];
            error[here] = (actions[here] - means[at]) * inverse[at];
            shift[here] = (means[at] - reference[k]) * inverse[at];
            ratio[here] = 2.0f * log_ratio;
        }
    }
    apply_to(numpy.exp, ratio, size);
    memcpy(entropies, log_std, batch * sizeof(float));
    for (i64 k = 1; k < width; k++)
        for (i64 b = 0; b < batch; b++) entropies[b] += log_std[k * batch + b];
    for (i64 b = 0; b < batch; b++) {
        const float *reference = rows->reference + b * 2 * width;
        float total;
        for (i64 k = 0; k < width; k++) terms[k] = error[b * width + k] * error[b * width + k];
        total = sum(terms, width) * -0.5f;
        total = total - entropies[b];
        logp[b] = total - with->logp_constant;
        for (i64 k = 0; k < width; k++) {
            i64 here = b * width + k;
            float log_ratio = within(reference[width + k], limit) - log_std[k * batch + b];
            float part = ratio[here] + shift[here] * shift[here];
            part = 0.5f * (part - 1.0f);
            terms[k] = part - log_ratio;
        }
        kl[b] = sum(terms, width);
        entropies[b] = entropies[b] + with->entropy_constant;
    }
    finish(plan, rows, with, parts, logp, d_logp, sums);
    for (i64 k = 0; k < width; k++)
        for (i64 b = 0; b < batch; b++) {
            i64 at = k * batch + b, here = b * width + k;
            float d_mean = error[here] * d_logp[b], d_log_std = error[here] * error[here];
            float left = 1.0f - ratio[here];
            d_log_std = (d_log_std - 1.0f) * d_logp[b];
            d_log_std = d_log_std + with->d_entropy;
            d_mean = d_mean + shift[here] * with->d_kl;
            d_log_std = d_log_std + (left - shift[here] * shift[here]) * with->d_kl;
            plan->d_inputs[at] = d_mean * inverse[at];
            plan->d_inputs[size + at] = d_log_std * (log_std[at] == given[at] ? 1.0f : 0.0f);
        }
    return 1;
}

/* ---- whole steps: forward passes, loss, backward pass, norm, clipping and Adam */

/* Rows [batch, width] as columns [width, batch]; the row of ones below is there. */
static void lay_out(const float *rows, i64 width, i64 batch, float *columns) {
    for (i64 k = 0; k < width; k++)
        for (i64 b = 0; b < batch; b++) columns[k * batch + b] = rows[b * width + k];
}

typedef struct {
    float decay_1, decay_2, epsilon, factor; /* see `adam` */
    double limit;                            /* of the norm; infinity for none */
} StepNumbers;

/* Clips and moves; 0 and nothing moved if the loss or the norm is not finite. */
static int move(const Optimizer *of, const StepNumbers *with, double loss, double *norm) {
    *norm = sqrt((double)squares(of));
    if (!isfinite(*norm) || !isfinite(loss)) return 0;
    if (*norm > with->limit) scale(of->gradients, of->size, (float)(with->limit / *norm));
    adam(of, with->decay_1, with->decay_2, with->epsilon, with->factor);
    return 1;
}

/* ---- a step of DQN: see dqn.py */

typedef struct {
    const Layer *network, *target;
    i64 num_layers, num_target_layers, batch, num_obs, num_actions, is_double, is_huber;
    float *columns, *target_columns; /* [num_obs + 1, batch] */
    float *errors, *selected, *scratch; /* [batch] */
    const Optimizer *optimizer;
} DqnPlan;

typedef struct {
    const float *obs, *next_obs;
    const int64_t *actions;
    const float *rewards, *discounts, *weights;
} Transitions;

/* 1: the step was made; 0: the loss or a gradient is not finite; -1: an action is none of those
   that there are, and nothing was computed. */
WIDE int dqn_step(const DqnPlan *plan, const Transitions *rows, const StepNumbers *with,
                  double *loss, double *norm) {
    i64 batch = plan->batch, num_actions = plan->num_actions;
    const Layer *last = plan->network + plan->num_layers - 1;
    const float *values = last->values;
    const float *next = plan->target[plan->num_target_layers - 1].values;
    float *next_values = plan->scratch, *losses = plan->scratch, *gradient = last->gradient;
    float count = (float)batch;
    for (i64 b = 0; b < batch; b++)
        if (rows->actions[b] < 0 || rows->actions[b] >= num_actions) return -1;
    lay_out(rows->next_obs, plan->num_obs, batch, plan->target_columns);
    forward(plan->target, plan->num_target_layers, batch, plan->target_columns);
    if (plan->is_double) {
        lay_out(rows->next_obs, plan->num_obs, batch, plan->columns);
        forward(plan->network, plan->num_layers, batch, plan->columns);
    }
    for (i64 b = 0; b < batch; b++) {
        const float *chooser = plan->is_double ? values : next;
        i64 best = 0;
        for (i64 k = 1; k < num_actions; k++) {
            float highest = chooser[best * batch + b], value = chooser[k * batch + b];
            if (value > highest || (value != value && highest == highest)) best = k;
        }
        next_values[b] = next[best * batch + b];
    }
    lay_out(rows->obs, plan->num_obs, batch, plan->columns);
    forward(plan->network, plan->num_layers, batch, plan->columns);
    memset(gradient, 0, num_actions * batch * sizeof(float));
    for (i64 b = 0; b < batch; b++) {
        i64 at = rows->actions[b] * batch + b;
        float target = rows->discounts[b] * next_values[b], error, slope, cost;
        target = rows->rewards[b] + target;
        error = values[at] - target;
        if (plan->is_huber) {
            slope = error < -1.0f ? -1.0f : error;
            slope = slope > 1.0f ? 1.0f : slope;
            cost = slope * (error - 0.5f * slope);
        } else {
            slope = 2.0f * error;
            cost = error * error;
        }
        plan->errors[b] = error;
        plan->selected[b] = values[at];
        losses[b] = rows->weights[b] * cost;
        gradient[at] = rows->weights[b] * slope / count;
    }
    *loss = (double)sum(losses, batch) / (double)batch;
    backward(plan->network, plan->num_layers, batch, plan->columns, 0, 0);
    return move(plan->optimizer, with, *loss, norm);
}
