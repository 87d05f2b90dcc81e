/* Every operation, out of place and in place, against plain sums in C. Run it as a job. */
#include <stdint.h>

#include "check.h"

enum { COUNT = 1000, RANKS_MAX = 16 };

static uint32_t rank, size;
static ringfold_comm_t comm;

/* The element that a rank contributes. Small integers, so every sum is exact in every type. */
static int element(uint32_t of, size_t index) { return (int)((of * 7 + index) % 5) + 1; }

/* The reduction of all ranks' elements, in plain C. */
static double reduced(ringfold_op_t op, size_t index) {
    double sum = 0, prod = 1, min = 1e9, max = -1e9;
    int all_bits = -1, any_bits = 0, odd_bits = 0;
    for (uint32_t r = 0; r < size; r++) {
        double value = element(r, index);
        all_bits &= element(r, index);
        any_bits |= element(r, index);
        odd_bits ^= element(r, index);
        sum += value;
        prod *= value;
        min = value < min ? value : min;
        max = value > max ? value : max;
    }
    switch (op) {
    case RINGFOLD_SUM: return sum;
    case RINGFOLD_PROD: return prod;
    case RINGFOLD_MIN: return min;
    case RINGFOLD_MAX: return max;
    case RINGFOLD_AVG: return sum / size;
    case RINGFOLD_BAND: return all_bits;
    case RINGFOLD_BOR: return any_bits;
    case RINGFOLD_BXOR: return odd_bits;
    /* No element is 0, and a single rank keeps its value. */
    case RINGFOLD_LXOR: return size == 1 ? sum : size % 2;
    default: return size == 1 ? sum : 1;
    }
}

/* Tests the reductions of one type. */
#define REDUCTIONS(NAME, CTYPE, TYPE)                                                    \
    static void NAME(ringfold_op_t op) {                                                 \
        static CTYPE in[COUNT * RANKS_MAX], out[COUNT * RANKS_MAX];                      \
        size_t n = COUNT * size;                                                         \
        for (size_t i = 0; i < n; i++) in[i] = (CTYPE)element(rank, i);                  \
        memcpy(out, in, sizeof in);                                                      \
        OK(ringfold_all_reduce(NULL, out, n, TYPE, op, comm));                           \
        for (size_t i = 0; i < n; i++) CHECK(out[i] == (CTYPE)reduced(op, i));           \
        memcpy(out, in, sizeof in);                                                      \
        OK(ringfold_all_reduce(out, out, n, TYPE, op, comm));                            \
        for (size_t i = 0; i < n; i++) CHECK(out[i] == (CTYPE)reduced(op, i));           \
        memset(out, 0, sizeof out);                                                      \
        OK(ringfold_all_reduce(in, out, n, TYPE, op, comm));                             \
        for (size_t i = 0; i < n; i++) CHECK(out[i] == (CTYPE)reduced(op, i));           \
        OK(ringfold_reduce_scatter(in, out, COUNT, TYPE, op, comm));                     \
        for (size_t i = 0; i < COUNT; i++)                                               \
            CHECK(out[i] == (CTYPE)reduced(op, rank * COUNT + i));                       \
        memcpy(out, in, sizeof in);                                                      \
        OK(ringfold_reduce_scatter(out, out + rank * COUNT, COUNT, TYPE, op, comm));     \
        for (size_t i = rank * COUNT; i < (rank + 1) * COUNT; i++)                       \
            CHECK(out[i] == (CTYPE)reduced(op, i));                                      \
        memcpy(out, in, sizeof in);                                                      \
        OK(ringfold_reduce_scatter(NULL, out, COUNT, TYPE, op, comm));                   \
        for (size_t i = rank * COUNT; i < (rank + 1) * COUNT; i++)                       \
            CHECK(out[i] == (CTYPE)reduced(op, i));                                      \
        for (uint32_t root = 0; root < size; root++) {                                   \
            int is_root = rank == root;                                                  \
            memset(out, 0, sizeof out);                                                  \
            OK(ringfold_reduce(in, is_root ? out : NULL, n, TYPE, op, root, comm));      \
            for (size_t i = 0; i < n; i++)                                               \
                CHECK(out[i] == (is_root ? (CTYPE)reduced(op, i) : 0));                  \
            memcpy(out, in, sizeof in);                                                  \
            OK(ringfold_reduce(NULL, out, n, TYPE, op, root, comm));                     \
            for (size_t i = 0; i < n; i++)                                               \
                CHECK(out[i] == (is_root ? (CTYPE)reduced(op, i) : in[i]));              \
            memcpy(out, in, sizeof in);                                                  \
            OK(ringfold_reduce(is_root ? NULL : in, out, n, TYPE, op, root, comm));      \
            for (size_t i = 0; i < n; i++)                                               \
                CHECK(out[i] == (is_root ? (CTYPE)reduced(op, i) : in[i]));              \
        }                                                                                \
    }

REDUCTIONS(int32, int32_t, RINGFOLD_INT32)
REDUCTIONS(uint32, uint32_t, RINGFOLD_UINT32)
REDUCTIONS(int64, int64_t, RINGFOLD_INT64)
REDUCTIONS(uint64, uint64_t, RINGFOLD_UINT64)
REDUCTIONS(float32, float, RINGFOLD_FLOAT32)
REDUCTIONS(float64, double, RINGFOLD_FLOAT64)

/* Short types: bfloat16 is the upper half of a float, and the sums are exact. */
static void short_types(void) {
    static uint16_t half[COUNT];
    static int8_t small[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        float value = (float)element(rank, i);
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        half[i] = (uint16_t)(bits >> 16);
        small[i] = (int8_t)element(rank, i);
    }
    OK(ringfold_all_reduce(NULL, half, COUNT, RINGFOLD_BFLOAT16, RINGFOLD_MAX, comm));
    OK(ringfold_all_reduce(NULL, small, COUNT, RINGFOLD_INT8, RINGFOLD_SUM, comm));
    for (size_t i = 0; i < COUNT; i++) {
        uint32_t bits = (uint32_t)half[i] << 16;
        float value;
        memcpy(&value, &bits, sizeof value);
        CHECK(value == (float)reduced(RINGFOLD_MAX, i));
        CHECK(small[i] == (int8_t)reduced(RINGFOLD_SUM, i));
    }
}

/* Movements: bytes of any alignment. */
static void movements(void) {
    static char in[COUNT + 1], out[COUNT * RANKS_MAX + 1];
    char *own = out + 1 + rank * COUNT;
    for (size_t i = 0; i < COUNT; i++) in[1 + i] = (char)element(rank, i);
    for (int way = 0; way < 3; way++) {
        memset(out, 0, sizeof out);
        if (way > 0) memcpy(own, in + 1, COUNT);
        const char *input = way == 0 ? in + 1 : way == 1 ? own : NULL;
        OK(ringfold_all_gather(input, out + 1, COUNT, RINGFOLD_UINT8, comm));
        for (size_t i = 0; i < COUNT * size; i++)
            CHECK(out[1 + i] == element((uint32_t)(i / COUNT), i % COUNT));
    }
    for (uint32_t root = 0; root < size; root++) {
        int is_root = rank == root;
        memset(out, 0, sizeof out);
        OK(ringfold_broadcast(is_root ? in + 1 : NULL, out + 1, COUNT, RINGFOLD_INT8, root, comm));
        for (size_t i = 0; i < COUNT; i++) CHECK(out[1 + i] == element(root, i));
        if (is_root) memcpy(out + 1, in + 1, COUNT);
        else memset(out, 0, sizeof out);
        OK(ringfold_broadcast(NULL, out + 1, COUNT, RINGFOLD_INT8, root, comm));
        for (size_t i = 0; i < COUNT; i++) CHECK(out[1 + i] == element(root, i));
    }
    /* Nothing at all is a call too. */
    OK(ringfold_all_reduce(NULL, NULL, 0, RINGFOLD_FLOAT64, RINGFOLD_SUM, comm));
    OK(ringfold_all_gather(NULL, NULL, 0, RINGFOLD_FLOAT64, comm));
}

/* A block for each rank: from every rank to every other, to one rank, and from one rank. */
static void blocks(void) {
    static int32_t in[COUNT * RANKS_MAX], out[COUNT * RANKS_MAX];
    size_t all = COUNT * size, own = rank * COUNT, bytes = COUNT * sizeof *in;
    for (size_t i = 0; i < all; i++) in[i] = element(rank, i);
    for (int in_place = 0; in_place < 2; in_place++) {
        if (in_place) memcpy(out, in, size * bytes);
        else memset(out, 0, sizeof out);
        OK(ringfold_all_to_all(in_place ? NULL : in, out, COUNT, RINGFOLD_INT32, comm));
        for (size_t i = 0; i < all; i++)
            CHECK(out[i] == element((uint32_t)(i / COUNT), own + i % COUNT));
    }
    for (uint32_t root = 0; root < size; root++) {
        int is_root = rank == root;
        for (int way = 0; way < 3; way++) {
            const int32_t *input = way == 0 || !is_root ? in : way == 1 ? out + own : NULL;
            memset(out, 0, sizeof out);
            if (way > 0) memcpy(out + own, in, bytes);
            OK(ringfold_gather(input, is_root ? out : NULL, COUNT, RINGFOLD_INT32, root, comm));
            for (size_t i = 0; i < all && is_root; i++)
                CHECK(out[i] == element((uint32_t)(i / COUNT), i % COUNT));
        }
        for (int way = 0; way < 3; way++) {
            const int32_t *input = !is_root ? NULL : way == 0 ? in : way == 1 ? out : NULL;
            int32_t *output = is_root && way == 1 ? out + own : out;
            memset(out, 0, sizeof out);
            if (is_root && way > 0) memcpy(out, in, size * bytes);
            OK(ringfold_scatter(input, output, COUNT, RINGFOLD_INT32, root, comm));
            const int32_t *result = is_root && way > 0 ? out + own : out;
            for (size_t i = 0; i < COUNT; i++) CHECK(result[i] == element(root, own + i));
        }
    }
}

/* Sums of the ranks up to this one, and of those below it. */
static void scans(void) {
    static int64_t in[COUNT], out[COUNT];
    for (size_t i = 0; i < COUNT; i++) in[i] = element(rank, i);
    for (int way = 0; way < 4; way++) {
        int is_exclusive = way % 2, in_place = way / 2;
        if (in_place) memcpy(out, in, sizeof in);
        else memset(out, 0, sizeof out);
        const int64_t *input = in_place ? NULL : in;
        if (is_exclusive) OK(ringfold_exscan(input, out, COUNT, RINGFOLD_INT64, RINGFOLD_SUM, comm));
        else OK(ringfold_scan(input, out, COUNT, RINGFOLD_INT64, RINGFOLD_SUM, comm));
        for (size_t i = 0; i < COUNT; i++) {
            int64_t sum = 0;
            for (uint32_t other = 0; other < rank; other++) sum += element(other, i);
            if (!is_exclusive) sum += in[i];
            else if (rank == 0) sum = in_place ? in[i] : 0;
            CHECK(out[i] == sum);
        }
    }
}

/* Sums in windows, and after multiplication by a factor. */
static void windows(void) {
    ringfold_window_t in, out;
    void *memory, *result;
    ringfold_op_t scaled;
    OK(ringfold_op_create_pre_mul_sum(0.5, &scaled));
    OK(ringfold_window_alloc(COUNT * sizeof(double), comm, &in, &memory));
    OK(ringfold_window_alloc(COUNT * sizeof(double), comm, &out, &result));
    double *input = memory, *output = result;
    for (size_t i = 0; i < COUNT; i++) {
        CHECK(input[i] == 0 && output[i] == 0);
        input[i] = element(rank, i);
    }
    size_t part = COUNT / 2, offset = 8 * sizeof(double);
    OK(ringfold_all_reduce_window(in, out, offset, part, RINGFOLD_FLOAT64, RINGFOLD_SUM, comm));
    for (size_t i = 0; i < COUNT; i++) {
        int within = i >= 8 && i < 8 + part;
        CHECK(output[i] == (within ? reduced(RINGFOLD_SUM, i) : 0));
    }
    OK(ringfold_all_reduce_window(NULL, in, 0, COUNT, RINGFOLD_FLOAT64, scaled, comm));
    for (size_t i = 0; i < COUNT; i++) CHECK(input[i] == reduced(RINGFOLD_SUM, i) / 2);
    for (size_t i = 0; i < COUNT; i++) output[i] = element(rank, i);
    OK(ringfold_all_reduce(NULL, output, COUNT, RINGFOLD_FLOAT64, scaled, comm));
    for (size_t i = 0; i < COUNT; i++) CHECK(output[i] == reduced(RINGFOLD_SUM, i) / 2);
    EXPECT(RINGFOLD_ERROR_ARGUMENT, "exceed the window",
           ringfold_all_reduce_window(NULL, in, 8, COUNT, RINGFOLD_FLOAT64, RINGFOLD_SUM, comm));
    /* Several calls wait for one window, which is freed before they end. */
    ringfold_request_t halves[2], prepared, none;
    ringfold_comm_t later;
    for (size_t i = 0; i < COUNT; i++) input[i] = element(rank, i);
    OK(ringfold_prepare(comm, &later));
    OK(ringfold_start_all_reduce_window(in, out, 0, COUNT, RINGFOLD_FLOAT64, RINGFOLD_SUM, later,
                                        &prepared));
    for (int i = 0; i < 2; i++) {
        size_t begin = i ? part * sizeof(double) : 0, count = i ? COUNT - part : part;
        OK(ringfold_start_all_reduce_window(i ? in : NULL, in, begin, count, RINGFOLD_FLOAT64,
                                            RINGFOLD_SUM, comm, &halves[i]));
    }
    EXPECT(RINGFOLD_ERROR_ARGUMENT, "exceed the window",
           ringfold_start_all_reduce_window(NULL, in, 8, COUNT, RINGFOLD_FLOAT64, RINGFOLD_SUM,
                                            comm, &none));
    OK(ringfold_start(prepared));
    OK(ringfold_window_free(out));
    OK(ringfold_wait(halves[1]));
    OK(ringfold_wait(halves[0]));
    for (size_t i = 0; i < COUNT; i++) CHECK(input[i] == reduced(RINGFOLD_SUM, i));
    OK(ringfold_wait(prepared));
    for (size_t i = 0; i < COUNT; i++) CHECK(output[i] == reduced(RINGFOLD_SUM, i) * size);
    OK(ringfold_request_free(prepared));
    OK(ringfold_op_free(scaled));
    OK(ringfold_window_free(in));
}

/* Groups of the ranks, which outlive nothing but their own calls. */
static void groups(void) {
    ringfold_comm_t group, again;
    uint32_t place, members, value = rank, first[1] = {0};
    OK(ringfold_comm_split(comm, rank % 2 ? RINGFOLD_NO_COLOR : 7, -(int64_t)rank, &group));
    CHECK((group == NULL) == (rank % 2 == 1));
    if (group) {
        OK(ringfold_comm_size(group, &members));
        OK(ringfold_comm_rank(group, &place));
        CHECK(members == (size + 1) / 2 && place == members - 1 - rank / 2);
        OK(ringfold_all_reduce(NULL, &value, 1, RINGFOLD_UINT32, RINGFOLD_SUM, group));
        CHECK(value == members * (members - 1));
        OK(ringfold_comm_free(group));
    }
    OK(ringfold_comm_duplicate(comm, &again));
    value = 1;
    OK(ringfold_all_reduce(NULL, &value, 1, RINGFOLD_UINT32, RINGFOLD_SUM, again));
    CHECK(value == size);
    OK(ringfold_comm_free(again));
    OK(ringfold_comm_subset(comm, first, 1, &group));
    CHECK((group != NULL) == (rank == 0));
    if (group) OK(ringfold_comm_free(group));
    /* Without a failure, and with two ranks that are left out. */
    OK(ringfold_comm_duplicate(comm, &again));
    if (size > 2 && rank == size - 1) {
        EXPECT(RINGFOLD_ERROR_REGROUP, "without this one",
               ringfold_comm_shrink(again, NULL, 0, &group));
    } else {
        uint32_t last[1] = {size - 1}, identity;
        OK(ringfold_comm_shrink(again, last, size > 2 ? 1 : 0, &group));
        OK(ringfold_comm_size(group, &members));
        CHECK(members == (size > 2 ? size - 1 : size));
        OK(ringfold_comm_identity(group, members - 1, &identity));
        CHECK(identity == members - 1);
        value = 1;
        OK(ringfold_all_reduce(NULL, &value, 1, RINGFOLD_UINT32, RINGFOLD_SUM, group));
        CHECK(value == members);
        OK(ringfold_comm_free(group));
    }
    OK(ringfold_comm_free(again));
    /* A revoked communicator, whose ranks agree and shrink. */
    uint64_t flag = ~(UINT64_C(1) << rank);
    uint32_t failed[RANKS_MAX];
    size_t count = 1;
    OK(ringfold_comm_duplicate(comm, &again));
    /* A rank that revokes it too soon would keep others from joining. */
    OK(ringfold_barrier(comm));
    if (rank == size - 1) OK(ringfold_comm_revoke(again));
    OK(ringfold_comm_agree(again, &flag));
    CHECK(flag == UINT64_MAX << size);
    EXPECT(RINGFOLD_ERROR_FAILED, "revoked the communicator", ringfold_barrier(again));
    OK(ringfold_comm_failed_ranks(again, failed, &count));
    CHECK(count == 0);
    OK(ringfold_comm_shrink(again, NULL, 0, &group));
    OK(ringfold_comm_size(group, &members));
    CHECK(members == size);
    OK(ringfold_comm_free(group));
    OK(ringfold_comm_free(again));
}

int main(void) {
    CHECK(ringfold_version() == RINGFOLD_VERSION);
    OK(ringfold_init(RINGFOLD_VERSION, &comm));
    OK(ringfold_comm_rank(comm, &rank));
    OK(ringfold_comm_size(comm, &size));
    CHECK(size <= RANKS_MAX);
    for (ringfold_op_t op = RINGFOLD_SUM; op <= RINGFOLD_LXOR; op++) {
        /* No operation has this code. */
        if (op == RINGFOLD_AVG + 1) continue;
        int32(op);
        uint32(op);
        int64(op);
        uint64(op);
        if (op > RINGFOLD_AVG) {
            float no_integer = 1;
            CHECK(ringfold_all_reduce(NULL, &no_integer, 1, RINGFOLD_FLOAT32, op, comm) ==
                  RINGFOLD_ERROR_ARGUMENT);
            continue;
        }
        /* A quotient may round in another way than in C. */
        if (op == RINGFOLD_AVG && (size & (size - 1)) != 0) continue;
        float32(op);
        float64(op);
    }
    short_types();
    movements();
    blocks();
    scans();
    windows();
    groups();
    OK(ringfold_barrier(comm));
    OK(ringfold_comm_free(comm));
    printf("rank %u of %u is content\n", (unsigned)rank, (unsigned)size);
    return 0;
}
