/*
 * Times one operation of an MPI library, exactly as bench/src/bin/peer-timing.rs times ringfold's.
 * A change to one needs the same change to the other.
 *
 *     timing [--type TYPE] OPERATION PLACES SECONDS BATCHES BYTES:CALLS...
 *     timing --types      prints the types that this MPI has
 *
 * TYPE is f32, f16 or bf16; the default is f32. MPI has no standard name of a short float.
 * OPERATION is one of NAMES; a barrier ignores sizes. PLACES is out, in or out,in.
 * Sums are of MPI_SUM, the root is rank 0. BYTES is nccl-tests' size: of the larger of the two
 * buffers of a rank. send_recv sends to the next rank, receives from the previous one, and has no
 * form in place. The parts of the operations whose names end in _v are shares of a buffer of BYTES:
 * r + 1 shares for rank r, or (s + r) mod n shares from rank s to rank r in an all_to_all_v.
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
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BATCHES_MAX = 1000 };

typedef enum {
    ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, BROADCAST, REDUCE, BARRIER, ALL_TO_ALL, GATHER, SCATTER,
    SCAN, EXSCAN, SEND_RECV, ALL_TO_ALL_V, GATHER_V, SCATTER_V, ALL_GATHER_V, REDUCE_SCATTER_V,
    KINDS
} operation;

static const char *const NAMES[KINDS] = {
    "all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce",    "barrier",
    "all_to_all", "gather",     "scatter",        "scan",      "exscan",    "send_recv",
    "all_to_all_v", "gather_v", "scatter_v",      "all_gather_v", "reduce_scatter_v"};

/* A type of this MPI: a float with these bits. */
typedef struct {
    const char *name;
    MPI_Datatype type;
    int bytes, mantissa_bits, exponent_bias;
} element;

static const element *type;
static operation what;
static int rank, ranks;
/* Both buffers have the length of the largest cell, and all cells use them. */
static unsigned char *input, *output;
/* The parts of the buffer in an operation with uneven parts, in elements. */
static int *counts, *begins;

/* Returns the type with this name, or NULL. Without a name, prints all names. */
static const element *find_type(const char *name) {
    static element found;
    const element all[] = {
        {"f32", MPI_FLOAT, 4, 23, 127},
#if defined(MPIX_C_FLOAT16)
        {"f16", MPIX_C_FLOAT16, 2, 10, 15},
#endif
#if defined(MPIX_BFLOAT16)
        {"bf16", MPIX_BFLOAT16, 2, 7, 127},
#elif defined(MPIX_C_BF16)
        {"bf16", MPIX_C_BF16, 2, 7, 127},
#endif
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (name == NULL) puts(all[i].name);
        found = all[i];
        if (name != NULL && strcmp(name, found.name) == 0) return &found;
    }
    return NULL;
}

static int has_blocks(void) {
    return what == ALL_GATHER || what == REDUCE_SCATTER || what == ALL_TO_ALL || what == GATHER ||
           what == SCATTER;
}

static int is_uneven(void) { return what >= ALL_TO_ALL_V; }

static size_t shares(void) {
    size_t n = (size_t)ranks;
    return what == ALL_TO_ALL_V && n > 1 ? n * (n - 1) / 2 : n * (n + 1) / 2;
}

/* Elements of a block, or of all parts, or else of a buffer. A block and a share have at least one
 * element. */
static size_t count_of(size_t bytes) {
    size_t elements = bytes / (size_t)type->bytes;
    size_t blocks = has_blocks() ? (size_t)ranks : is_uneven() ? shares() : 1;
    elements /= blocks;
    if (elements == 0) elements = 1;
    return is_uneven() ? elements * blocks : elements;
}

/* Elements of the larger buffer. */
static size_t length_of(size_t count) { return has_blocks() ? count * (size_t)ranks : count; }

/* Elements of part `part` of the buffer of rank `who`. */
static size_t part_of(int who, int part, size_t count) {
    size_t share = count / shares();
    if (what != ALL_TO_ALL_V || ranks == 1) return ((size_t)part + 1) * share;
    return (size_t)((who + part) % ranks) * share;
}

/* The element at which part `part` of the buffer of rank `who` begins. */
static size_t begin_of(int who, int part, size_t count) {
    size_t begin = 0;
    for (int before = 0; before < part; before++) begin += part_of(who, before, count);
    return begin;
}

/* Sets the parts of the buffer of this rank. */
static void divide(size_t count) {
    for (int part = 0; is_uneven() && part < ranks; part++) {
        counts[part] = (int)part_of(rank, part, count);
        begins[part] = (int)begin_of(rank, part, count);
    }
}

/* A rank with one part of a buffer has it where it lies in the whole. Only a reduce-scatter leaves
 * its result at the start. */
static void perform(size_t count, int in_place) {
    const void *from = in_place ? MPI_IN_PLACE : input;
    /* In place, only the root has MPI_IN_PLACE. */
    const void *to_root = in_place && rank != 0 ? output : from;
    unsigned char *from_root = in_place && rank == 0 ? MPI_IN_PLACE : output;
    MPI_Datatype of = type->type;
    MPI_Comm all = MPI_COMM_WORLD;
    int n = (int)count;
    size_t own = is_uneven() ? (size_t)begins[rank] * (size_t)type->bytes : 0;
    switch (what) {
    case ALL_REDUCE:
        MPI_Allreduce(from, output, n, of, MPI_SUM, all);
        break;
    case ALL_GATHER:
        MPI_Allgather(from, n, of, output, n, of, all);
        break;
    case REDUCE_SCATTER:
        MPI_Reduce_scatter_block(from, output, n, of, MPI_SUM, all);
        break;
    case BROADCAST:
        MPI_Bcast(output, n, of, 0, all);
        break;
    case REDUCE:
        MPI_Reduce(to_root, output, n, of, MPI_SUM, 0, all);
        break;
    case ALL_TO_ALL:
        MPI_Alltoall(from, n, of, output, n, of, all);
        break;
    case GATHER:
        MPI_Gather(to_root, n, of, output, n, of, 0, all);
        break;
    case SCATTER:
        MPI_Scatter(in_place ? output : input, n, of, from_root, n, of, 0, all);
        break;
    case SCAN:
        MPI_Scan(from, output, n, of, MPI_SUM, all);
        break;
    case EXSCAN:
        MPI_Exscan(from, output, n, of, MPI_SUM, all);
        break;
    case SEND_RECV:
        MPI_Sendrecv(input, n, of, (rank + 1) % ranks, 0, output, n, of, (rank + ranks - 1) % ranks,
                     0, all, MPI_STATUS_IGNORE);
        break;
    case ALL_TO_ALL_V:
        MPI_Alltoallv(from, counts, begins, of, output, counts, begins, of, all);
        break;
    case GATHER_V:
        if (to_root != MPI_IN_PLACE) to_root = (const unsigned char *)to_root + own;
        MPI_Gatherv(to_root, counts[rank], of, output, counts, begins, of, 0, all);
        break;
    case SCATTER_V:
        if (from_root != MPI_IN_PLACE) from_root += own;
        MPI_Scatterv(in_place ? output : input, counts, begins, of, from_root, counts[rank], of, 0,
                     all);
        break;
    case ALL_GATHER_V:
        MPI_Allgatherv(in_place ? from : input + own, counts[rank], of, output, counts, begins, of,
                       all);
        break;
    case REDUCE_SCATTER_V:
        MPI_Reduce_scatter(from, output, counts, of, MPI_SUM, all);
        break;
    case BARRIER:
    case KINDS:
        MPI_Barrier(all);
        break;
    }
}

/* The value of rank `who` at `index`. Every partial sum of up to 48 ranks is exact in every type. */
enum { PERIOD = 11 };

static unsigned value(int who, size_t index) { return (unsigned)((size_t)who + index) % PERIOD; }

/* The sum of the values of the first `summands` ranks. */
static unsigned sum_of(int summands, size_t index) {
    unsigned sum = 0;
    for (int who = 0; who < summands; who++) sum += value(who, index);
    return sum;
}

/* The bits of a whole number in the type. */
static unsigned encode(unsigned number) {
    unsigned exponent = 0, bits = (unsigned)type->mantissa_bits;
    if (number == 0) return 0;
    while (number >> exponent > 1) exponent++;
    unsigned long long mantissa = ((unsigned long long)number << bits >> exponent);
    return (((unsigned)type->exponent_bias + exponent) << bits) +
           (unsigned)(mantissa - (1ULL << bits));
}

static void put(unsigned char *buffer, size_t index, unsigned bits) {
    uint32_t whole = bits;
    uint16_t half = (uint16_t)bits;
    if (type->bytes == 4) memcpy(buffer + index * sizeof whole, &whole, sizeof whole);
    else memcpy(buffer + index * sizeof half, &half, sizeof half);
}

static unsigned get(const unsigned char *buffer, size_t index) {
    uint32_t whole;
    uint16_t half;
    if (type->bytes == 4) return memcpy(&whole, buffer + index * sizeof whole, sizeof whole), whole;
    return memcpy(&half, buffer + index * sizeof half, sizeof half), half;
}

/* The bytes of so many elements. */
static size_t bytes_of(size_t length) { return length * (size_t)type->bytes; }

static void fill(size_t count, int in_place) {
    size_t own = what == ALL_GATHER || what == GATHER ? count : length_of(count);
    size_t first = in_place && what == ALL_GATHER ? (size_t)rank * count : 0;
    unsigned char *to = in_place ? output : input;
    memset(output, 0xa5, bytes_of(length_of(count)));
    if ((what == BROADCAST || what == SCATTER) && rank != 0) return;
    unsigned bits[PERIOD];
    for (size_t i = 0; i < PERIOD; i++) bits[i] = encode(value(rank, i));
    for (size_t i = 0; i < own; i++) put(to, first + i, bits[i % PERIOD]);
}

/* Counts the wrong elements of a part of the output. It has the values of rank `from` from element
 * `first` on, or the sums of the first `summands` ranks. */
static long long wrong_part(size_t at, size_t length, int from, size_t first, int summands) {
    long long found = 0;
    unsigned bits[PERIOD];
    for (size_t i = 0; i < PERIOD; i++)
        bits[i] = encode(summands ? sum_of(summands, i) : value(from, i));
    for (size_t i = 0; i < length; i++) found += get(output, at + i) != bits[(first + i) % PERIOD];
    return found;
}

/* Whether this rank has a result. */
static int has_result(void) {
    if (what == REDUCE || what == GATHER || what == GATHER_V) return rank == 0;
    return what != BARRIER && (what != EXSCAN || rank > 0);
}

/* Whether the result has a part of each rank. */
static int is_of_all(void) {
    return what == ALL_GATHER || what == GATHER || what == ALL_TO_ALL || what == ALL_TO_ALL_V ||
           what == GATHER_V || what == ALL_GATHER_V;
}

/* The ranks whose inputs a result sums up, or 0. */
static int summands(void) {
    if (what == SCAN || what == EXSCAN) return rank + (what == SCAN);
    int sums = what == ALL_REDUCE || what == REDUCE || what == REDUCE_SCATTER ||
               what == REDUCE_SCATTER_V;
    return sums ? ranks : 0;
}

static long long wrong(size_t count) {
    long long mine = 0, all = 0;
    size_t own = (size_t)rank * count;
    for (int who = 0; has_result() && is_of_all() && who < ranks; who++) {
        size_t at = is_uneven() ? (size_t)begins[who] : (size_t)who * count;
        size_t first = what == ALL_TO_ALL ? own : is_uneven() ? at : 0;
        if (what == ALL_TO_ALL_V) first = begin_of(who, rank, count);
        mine += wrong_part(at, is_uneven() ? (size_t)counts[who] : count, who, first, 0);
    }
    if (has_result() && !is_of_all()) {
        size_t first = what == REDUCE_SCATTER || what == SCATTER ? own : 0;
        if (is_uneven()) first = (size_t)begins[rank];
        int from = what == SEND_RECV ? (rank + ranks - 1) % ranks : 0;
        size_t at = what == SCATTER_V ? first : 0;
        mine += wrong_part(at, is_uneven() ? (size_t)counts[rank] : count, from, first, summands());
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
    divide(count);
    fill(count, in_place);
    perform(count, in_place);
    long long errors = wrong(count);
    /* Repeated sums in place of nonzero values would overflow. */
    if (in_place) memset(output, 0, bytes_of(length_of(count)));
    long first = calls < 10 ? 1 : calls / 10;
    double warm = time_batch(count, in_place, first) / (double)first;
    if (warm * (double)calls * batches > seconds) calls = (long)(seconds / batches / warm);
    if (calls < 1) calls = 1;
    double time = time_calls(count, in_place, calls, &batches, seconds);
    if (rank != 0) return;
    printf("cell %s %zu %zu %ld %d %.4f %lld\n", in_place ? "in" : "out", bytes,
           bytes_of(length_of(count)), calls, batches, time * 1e6, errors);
    fflush(stdout);
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "--types") == 0) return find_type(NULL), 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int known = 0, is_typed = argc > 2 && strcmp(argv[1], "--type") == 0;
    type = find_type(is_typed ? argv[2] : "f32");
    argc -= 2 * is_typed, argv += 2 * is_typed;
    while (argc > 5 && known < KINDS && strcmp(argv[1], NAMES[known]) != 0) known++;
    if (argc <= 5 || known == KINDS || type == NULL) {
        fprintf(stderr, "timing [--type TYPE] OPERATION PLACES SECONDS BATCHES BYTES:CALLS...\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    what = (operation)known;
    double seconds = atof(argv[3]);
    int batches = atoi(argv[4]);
    if (batches < 1 || batches > BATCHES_MAX) batches = 1;

    size_t longest = 0;
    for (int i = 5; i < argc; i++) {
        size_t length = length_of(count_of(strtoull(argv[i], NULL, 10)));
        if (length > longest) longest = length;
    }
    input = calloc(longest, (size_t)type->bytes);
    output = calloc(longest, (size_t)type->bytes);
    counts = calloc((size_t)ranks, sizeof *counts);
    begins = calloc((size_t)ranks, sizeof *begins);
    if (input == NULL || output == NULL || counts == NULL || begins == NULL)
        MPI_Abort(MPI_COMM_WORLD, 3);
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
