/*
 * Times one collective of an MPI library, exactly as bench/src/bin/peer-timing.rs times ringfold's.
 * A change to one needs the same change to the other.
 *
 *     timing COLLECTIVE PLACES SECONDS BATCHES BYTES:CALLS...
 *
 * COLLECTIVE is all_reduce, all_gather, reduce_scatter, broadcast, reduce or barrier, which ignores
 * sizes; PLACES is out, in or out,in.
 * Elements are float, the operation is the sum, the root is rank 0. BYTES is nccl-tests' size: of
 * the larger of the two buffers of a rank.
 *
 * For each cell: a call whose result is checked in full; CALLS/10 calls (at least one) to warm up;
 * then BATCHES batches of CALLS calls back to back on the same buffers, a barrier before each. A
 * batch counts with its slowest rank, the cell with its middle batch. Where the warm-up shows that
 * this would take longer than SECONDS, batches have fewer calls; a cell that has taken SECONDS
 * begins no more batches. Rank 0 prints for each cell
 *
 *     cell PLACE BYTES BUFFER_BYTES CALLS BATCHES MICROSECONDS_PER_CALL WRONG_ELEMENTS
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BATCHES_MAX = 1000 };

typedef enum { ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, BROADCAST, REDUCE, BARRIER, KINDS } collective;

static const char *const NAMES[KINDS] = {"all_reduce", "all_gather", "reduce_scatter",
                                         "broadcast",  "reduce",     "barrier"};

static collective what;
static int rank, ranks;
/* Both buffers have the length of the largest cell, and all cells use them. */
static float *input, *output;

/* Elements of an all-gather's input, of a reduce-scatter's output, or else of a buffer. */
static size_t count_of(size_t bytes) {
    size_t elements = bytes / sizeof(float);
    if (what == ALL_GATHER || what == REDUCE_SCATTER) elements /= (size_t)ranks;
    return elements > 0 ? elements : 1;
}

/* Elements of the larger buffer. */
static size_t length_of(size_t count) {
    return what == ALL_GATHER || what == REDUCE_SCATTER ? count * (size_t)ranks : count;
}

static void perform(size_t count, int in_place) {
    const void *from = in_place ? MPI_IN_PLACE : input;
    int n = (int)count;
    switch (what) {
    case ALL_REDUCE:
        MPI_Allreduce(from, output, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        break;
    case ALL_GATHER:
        MPI_Allgather(from, n, MPI_FLOAT, output, n, MPI_FLOAT, MPI_COMM_WORLD);
        break;
    case REDUCE_SCATTER:
        MPI_Reduce_scatter_block(from, output, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        break;
    case BROADCAST:
        MPI_Bcast(output, n, MPI_FLOAT, 0, MPI_COMM_WORLD);
        break;
    case REDUCE:
        if (in_place && rank != 0) from = output;
        MPI_Reduce(from, output, n, MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD);
        break;
    case BARRIER:
    case KINDS:
        MPI_Barrier(MPI_COMM_WORLD);
        break;
    }
}

/* The value of rank `who` at `index`, small enough for exact sums. */
static float value(int who, size_t index) { return (float)(who + 1) * (float)(index % 7 + 1); }

static float value_of_all(size_t index) {
    return (float)(ranks * (ranks + 1) / 2) * (float)(index % 7 + 1);
}

static void fill(size_t count, int in_place) {
    size_t own = what == ALL_GATHER ? count : length_of(count);
    float *to = input;
    memset(output, 0xa5, length_of(count) * sizeof(float));
    if (in_place) to = output + (what == ALL_GATHER ? (size_t)rank * count : 0);
    if (what == BROADCAST && rank != 0) return;
    for (size_t i = 0; i < own; i++) to[i] = value(rank, i);
}

static long long wrong(size_t count) {
    size_t first = what == REDUCE_SCATTER ? (size_t)rank * count : 0;
    size_t length = what == ALL_GATHER ? length_of(count) : count;
    long long mine = 0, all = 0;
    if (what == BARRIER || (what == REDUCE && rank != 0)) length = 0;
    for (size_t i = 0; i < length; i++) {
        float expected = value(0, i);
        if (what == ALL_REDUCE || what == REDUCE_SCATTER || what == REDUCE)
            expected = value_of_all(first + i);
        if (what == ALL_GATHER) expected = value((int)(i / count), i % count);
        mine += output[i] != expected;
    }
    MPI_Allreduce(&mine, &all, 1, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
    return all;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Seconds that `calls` calls take on the slowest rank. */
static double time_batch(size_t count, int in_place, long calls) {
    double mine, slowest;
    MPI_Barrier(MPI_COMM_WORLD);
    double start = now();
    for (long call = 0; call < calls; call++) perform(count, in_place);
    mine = now() - start;
    MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return slowest;
}

/* Seconds per call; `batches` becomes the number of batches. */
static double time_calls(size_t count, int in_place, long calls, int *batches, double seconds) {
    double times[BATCHES_MAX], spent = 0;
    int made = 0;
    while (made < *batches && (made == 0 || spent < seconds)) {
        double time = time_batch(count, in_place, calls);
        spent += time;
        times[made++] = time / (double)calls;
    }
    *batches = made;
    qsort(times, (size_t)made, sizeof *times, by_size);
    return times[made / 2];
}

static void measure(size_t bytes, int in_place, long calls, int batches, double seconds) {
    size_t count = count_of(bytes);
    fill(count, in_place);
    perform(count, in_place);
    long long errors = wrong(count);
    /* Repeated sums in place of nonzero values would overflow. */
    if (in_place) memset(output, 0, length_of(count) * sizeof(float));
    long first = calls < 10 ? 1 : calls / 10;
    double warm = time_batch(count, in_place, first) / (double)first;
    if (warm * (double)calls * batches > seconds) calls = (long)(seconds / batches / warm);
    if (calls < 1) calls = 1;
    double time = time_calls(count, in_place, calls, &batches, seconds);
    if (rank != 0) return;
    printf("cell %s %zu %zu %ld %d %.4f %lld\n", in_place ? "in" : "out", bytes,
           length_of(count) * sizeof(float), calls, batches, time * 1e6, errors);
    fflush(stdout);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int known = 0;
    while (argc > 5 && known < KINDS && strcmp(argv[1], NAMES[known]) != 0) known++;
    if (argc <= 5 || known == KINDS) {
        fprintf(stderr, "timing COLLECTIVE PLACES SECONDS BATCHES BYTES:CALLS...\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    what = (collective)known;
    double seconds = atof(argv[3]);
    int batches = atoi(argv[4]);
    if (batches < 1 || batches > BATCHES_MAX) batches = 1;

    size_t longest = 0;
    for (int i = 5; i < argc; i++) {
        size_t length = length_of(count_of(strtoull(argv[i], NULL, 10)));
        if (length > longest) longest = length;
    }
    input = calloc(longest, sizeof(float));
    output = calloc(longest, sizeof(float));
    if (input == NULL || output == NULL) MPI_Abort(MPI_COMM_WORLD, 3);
    for (int i = 5; i < argc; i++) {
        char *rest;
        size_t bytes = strtoull(argv[i], &rest, 10);
        long calls = *rest == ':' ? atol(rest + 1) : 1;
        for (int in_place = 0; in_place < 2; in_place++)
            if (strstr(argv[2], in_place ? "in" : "out"))
                measure(bytes, in_place, calls < 1 ? 1 : calls, batches, seconds);
    }
    MPI_Finalize();
    return 0;
}
