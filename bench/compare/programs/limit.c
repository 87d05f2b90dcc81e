/*
 * The limit of this machine: the collectives of timing.c by threads with common memory. One pass
 * over all cores reads every element once from each input and stores it once into each output. The
 * stores are ordinary or non-temporal ones, by speed. The fastest batch counts. Two barriers of
 * cache lines enclose the pass: one for the inputs, one for the outputs. A small all-reduce uses
 * the barrier's own lines. Memory is on huge pages if possible. With more ranks than cores each core
 * does the work of several ranks in turn.
 *
 *     limit COLLECTIVE RANKS PLACES SECONDS BATCHES BYTES:CALLS...   as timing.c; the same output
 *     limit machine       prints: cores N, handover NANOSECONDS, exchange NANOSECONDS,
 *                         copy GB/S (bytes copied by all cores), reduce GB/S (bytes that arrive in
 *                         the results of a 2-rank all-reduce, halved: the size over the time)
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#ifdef __AVX__
#include <immintrin.h>
#endif

enum { RANKS_MAX = 64, INLINE_FLOATS = 14, LINE_FLOATS = 16 };

typedef enum {
    ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, BROADCAST, REDUCE, BARRIER, KINDS, COPY
} collective;

static const char *const NAMES[KINDS] = {"all_reduce", "all_gather", "reduce_scatter",
                                         "broadcast",  "reduce",     "barrier"};

/* A thread's message to the others, in alternating lines: the next may precede the last's read. */
typedef struct {
    _Alignas(128) _Atomic unsigned long number;
    float values[INLINE_FLOATS];
} line;

static line lines[RANKS_MAX][2];
static float *inputs[RANKS_MAX], *outputs[RANKS_MAX];
static int cores[RANKS_MAX], threads, ranks;
/* The current job. */
static collective what;
static size_t count;
static int in_place, streaming, batches;
static long calls;
static double seconds, best;

typedef struct {
    int number;
    unsigned long epoch;
} worker;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static inline void pause_briefly(void) {
#ifdef __x86_64__
    __builtin_ia32_pause();
#endif
}

/* Waits for all threads; each passes up to INLINE_FLOATS values to the others. */
static inline void meet(worker *self, const float *values, size_t length) {
    unsigned long epoch = ++self->epoch;
    line *mine = &lines[self->number][epoch & 1];
    for (size_t i = 0; i < length; i++) mine->values[i] = values[i];
    atomic_store_explicit(&mine->number, epoch, memory_order_release);
    for (int other = 0; other < threads; other++)
        while (atomic_load_explicit(&lines[other][epoch & 1].number, memory_order_acquire) < epoch)
            pause_briefly();
}

/* Sums [from, to) of `n` inputs, or copies a single one, into `m` outputs. Inlined with constants
 * for the usual numbers. */
static inline __attribute__((always_inline)) void
pass(float *const *in, int n, float *const *out, int m, size_t from, size_t to, int stream) {
    size_t i = from;
#ifdef __AVX__
    for (; i < to && ((size_t)(out[0] + i) & 31) != 0; i++) {
        float sum = in[0][i];
        for (int k = 1; k < n; k++) sum += in[k][i];
        for (int k = 0; k < m; k++) out[k][i] = sum;
    }
    for (; i + 8 <= to; i += 8) {
        __m256 sum = _mm256_loadu_ps(in[0] + i);
        for (int k = 1; k < n; k++) sum = _mm256_add_ps(sum, _mm256_loadu_ps(in[k] + i));
        for (int k = 0; k < m; k++) {
            /* All outputs have the same alignment: each begins at a huge page. */
            if (stream) _mm256_stream_ps(out[k] + i, sum);
            else _mm256_storeu_ps(out[k] + i, sum);
        }
    }
#else
    (void)stream;
#endif
    for (; i < to; i++) {
        float sum = in[0][i];
        for (int k = 1; k < n; k++) sum += in[k][i];
        for (int k = 0; k < m; k++) out[k][i] = sum;
    }
#ifdef __AVX__
    if (stream) _mm_sfence();
#endif
}

static void run_pass(float *const *in, int n, float *const *out, int m, size_t from, size_t to) {
    if (streaming) pass(in, n, out, m, from, to, 1);
    else if (n == 2 && m == 2) pass(in, 2, out, 2, from, to, 0);
    else if (n == 2 && m == 1) pass(in, 2, out, 1, from, to, 0);
    else if (n == 1 && m == 1) pass(in, 1, out, 1, from, to, 0);
    else if (n == 1 && m == 2) pass(in, 1, out, 2, from, to, 0);
    else pass(in, n, out, m, from, to, 0);
}

/* This thread's part of `length`, in whole cache lines. */
static void part(int number, size_t length, size_t *from, size_t *to) {
    size_t whole = (length + LINE_FLOATS - 1) / LINE_FLOATS;
    *from = whole * (size_t)number / (size_t)threads * LINE_FLOATS;
    *to = whole * (size_t)(number + 1) / (size_t)threads * LINE_FLOATS;
    if (*to > length) *to = length;
}

static void by_hand(worker *self, float **in) {
    size_t from, to;
    if ((what == ALL_REDUCE || what == REDUCE) && count <= INLINE_FLOATS && threads == ranks) {
        meet(self, in[self->number], count);
        if (what == REDUCE && self->number != 0) return;
        for (size_t i = 0; i < count; i++) {
            float sum = 0;
            for (int k = 0; k < ranks; k++) sum += lines[k][self->epoch & 1].values[i];
            outputs[self->number][i] = sum;
        }
        return;
    }
    meet(self, NULL, 0);
    if (what == BARRIER) return;
    if (what == ALL_REDUCE) {
        part(self->number, count, &from, &to);
        run_pass(in, ranks, outputs, ranks, from, to);
    } else if (what == REDUCE) {
        part(self->number, count, &from, &to);
        run_pass(in, ranks, outputs, 1, from, to);
    } else if (what == BROADCAST) {
        part(self->number, count, &from, &to);
        run_pass(outputs, 1, outputs + 1, ranks - 1, from, to);
    } else {
        for (int r = self->number; r < ranks; r += threads) {
            size_t at = (size_t)r * count;
            float *there[RANKS_MAX], *here = outputs[r] + (in_place ? at : 0);
            int m = 0;
            if (what == COPY) {
                run_pass(&in[r], 1, &outputs[r], 1, 0, count);
            } else if (what == REDUCE_SCATTER) {
                for (int k = 0; k < ranks; k++) there[k] = in[k] + at;
                run_pass(there, ranks, &here, 1, 0, count);
            } else {
                float *block = in_place ? outputs[r] + at : in[r];
                for (int k = 0; k < ranks; k++)
                    if (!in_place || k != r) there[m++] = outputs[k] + at;
                run_pass(&block, 1, there, m, 0, count);
            }
        }
    }
    meet(self, NULL, 0);
}

/* The shortest of one thread's times; the other threads differ by a barrier at most. */
static void *work(void *argument) {
    worker *self = argument;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cores[self->number], &set);
    pthread_setaffinity_np(pthread_self(), sizeof set, &set);
    float **in = in_place ? outputs : inputs;
    double least = 1e9, spent = 0;
    int made = 0;
    static int again;
    for (long call = 0; call < 1 + calls / 10; call++) by_hand(self, in);
    do {
        meet(self, NULL, 0);
        double start = now();
        for (long call = 0; call < calls; call++) by_hand(self, in);
        double time = now() - start;
        spent += time;
        made++;
        if (time / (double)calls < least) least = time / (double)calls;
        if (self->number == 0) again = made < batches && spent < seconds;
        meet(self, NULL, 0);
    } while (again);
    if (self->number == 0) {
        batches = made;
        best = least;
    }
    return NULL;
}

/* Seconds per call of the current job. */
static double time_it(int limit) {
    pthread_t handles[RANKS_MAX];
    worker workers[RANKS_MAX];
    memset(lines, 0, sizeof lines);
    batches = limit;
    for (int i = 0; i < threads; i++) {
        workers[i] = (worker){i, 0};
        if (pthread_create(&handles[i], NULL, work, &workers[i]) != 0) exit(3);
    }
    for (int i = 0; i < threads; i++) pthread_join(handles[i], NULL);
    return best;
}

/* The better of both kinds of stores. */
static double time_both(int limit) {
    streaming = 0;
    double ordinary = time_it(limit);
    if (count * sizeof(float) < 65536) return ordinary;
    streaming = 1;
    double streamed = time_it(limit);
    return ordinary < streamed ? ordinary : streamed;
}

static float *allocate(size_t length) {
    size_t huge = (size_t)2 << 20, bytes = (length * sizeof(float) + huge) / huge * huge;
    char *at = mmap(NULL, bytes + huge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) exit(3);
    at += (huge - (size_t)at % huge) % huge;
    madvise(at, bytes, MADV_HUGEPAGE);
    memset(at, 0, bytes);
    return (float *)at;
}

static void prepare(int ranks_wanted, size_t longest) {
    cpu_set_t set;
    int found = 0;
    sched_getaffinity(0, sizeof set, &set);
    ranks = ranks_wanted;
    for (int core = 0; core < CPU_SETSIZE && found < ranks; core++)
        if (CPU_ISSET(core, &set)) cores[found++] = core;
    threads = found;
    for (int r = 0; r < ranks; r++) {
        inputs[r] = allocate(longest);
        outputs[r] = allocate(longest);
    }
}

/* The latency from one core to another, by a value that two threads pass back and forth. */
static _Alignas(128) _Atomic unsigned long ball;
enum { THROWS = 1000000 };

static void *throw_ball(void *argument) {
    worker *self = argument;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cores[self->number], &set);
    pthread_setaffinity_np(pthread_self(), sizeof set, &set);
    for (unsigned long next = (unsigned long)self->number; next < THROWS; next += 2) {
        while (atomic_load_explicit(&ball, memory_order_acquire) != next) pause_briefly();
        atomic_store_explicit(&ball, next + 1, memory_order_release);
    }
    return NULL;
}

static void describe_machine(void) {
    size_t bytes = (size_t)128 << 20;
    prepare(2, bytes / sizeof(float));
    printf("cores %ld\n", sysconf(_SC_NPROCESSORS_ONLN));
    if (threads < 2) return;
    double fastest = 1;
    for (int round = 0; round < 5; round++) {
        pthread_t handles[2];
        worker workers[2] = {{0, 0}, {1, 0}};
        atomic_store(&ball, 0);
        double start = now();
        for (int i = 0; i < 2; i++)
            if (pthread_create(&handles[i], NULL, throw_ball, &workers[i]) != 0) exit(3);
        for (int i = 0; i < 2; i++) pthread_join(handles[i], NULL);
        double time = (now() - start) / THROWS;
        if (time < fastest) fastest = time;
    }
    printf("handover %.1f\n", fastest * 1e9);
    seconds = 1;
    what = ALL_REDUCE, count = 2, calls = 20000;
    printf("exchange %.1f\n", time_it(20) * 1e9);
    count = bytes / sizeof(float), calls = 1;
    printf("reduce %.2f\n", (double)bytes / time_both(9) / 1e9);
    what = COPY;
    printf("copy %.2f\n", 2 * (double)bytes / time_both(9) / 1e9);
}

static void measure(size_t bytes, int limit) {
    size_t blocks = what == ALL_GATHER || what == REDUCE_SCATTER ? (size_t)ranks : 1;
    count = bytes / sizeof(float) / blocks;
    if (count == 0) count = 1;
    double time = time_both(limit);
    printf("cell %s %zu %zu %ld %d %.4f 0\n", in_place ? "in" : "out", bytes,
           count * blocks * sizeof(float), calls, batches, time * 1e6);
    fflush(stdout);
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "machine") == 0) return describe_machine(), 0;
    int known = 0;
    while (argc > 6 && known < KINDS && strcmp(argv[1], NAMES[known]) != 0) known++;
    int wanted = argc > 6 ? atoi(argv[2]) : 0, limit = argc > 6 ? atoi(argv[5]) : 0;
    if (argc <= 6 || known == KINDS || wanted < 1 || wanted > RANKS_MAX) {
        fprintf(stderr, "limit COLLECTIVE RANKS PLACES SECONDS BATCHES BYTES:CALLS...\n");
        return 2;
    }
    what = (collective)known;
    seconds = atof(argv[4]);
    if (limit < 1) limit = 1;
    size_t longest = 0;
    for (int i = 6; i < argc; i++) {
        size_t bytes = strtoull(argv[i], NULL, 10);
        if (bytes > longest) longest = bytes;
    }
    prepare(wanted, longest / sizeof(float) + (size_t)wanted * LINE_FLOATS);
    for (int i = 6; i < argc; i++) {
        char *rest;
        size_t bytes = strtoull(argv[i], &rest, 10);
        calls = *rest == ':' ? atol(rest + 1) : 1;
        if (calls < 1) calls = 1;
        for (in_place = 0; in_place < 2; in_place++)
            if (strstr(argv[3], in_place ? "in" : "out")) measure(bytes, limit);
    }
    return 0;
}
