/* Collectives with parts of any lengths, and operations of the program. Run it as a job. */
#include <stdint.h>

#include "check.h"

#define ARGUMENT RINGFOLD_ERROR_ARGUMENT
#define INT RINGFOLD_INT32

enum { RANKS_MAX = 16, PART_MAX = 30, GAP = 3, LONG = RANKS_MAX * (PART_MAX + GAP), LEFT = -7 };

static uint32_t rank, size;
static ringfold_comm_t comm;

/* The parts of a buffer: one after the other, or from back to front with gaps. */
static size_t counts[RANKS_MAX], begins[RANKS_MAX], others[RANKS_MAX], other_begins[RANKS_MAX];

static int32_t element(uint32_t from, uint32_t to, size_t index) {
    return (int32_t)(from * 10007 + to * 101 + index);
}

/* The length of a part, which may be 0. Both ends get the same one if it is the same for both. */
static size_t length(uint32_t one, uint32_t other) { return (one + other) * 7 % PART_MAX; }

static void place(int with_gaps, const size_t *of, size_t *at) {
    size_t next = 0;
    for (uint32_t r = 0; r < size; r++) {
        uint32_t part = with_gaps ? size - 1 - r : r;
        at[part] = with_gaps ? next + GAP : next;
        next = at[part] + of[part];
    }
}

/* Displacements to pass: NULL if the parts follow one another. */
#define GIVEN(with_gaps, at) ((with_gaps) ? (at) : NULL)

/* Makes a call with parts, or starts it and waits for it. */
#define PARTS(call, ...)                                                                 \
    do {                                                                                 \
        if (starts) {                                                                    \
            OK(ringfold_start_##call(__VA_ARGS__, &request));                            \
            OK(ringfold_wait(request));                                                  \
        } else OK(ringfold_##call(__VA_ARGS__));                                         \
    } while (0)

static int starts;
static ringfold_request_t request;

static void clear(int32_t *data) {
    for (size_t i = 0; i < LONG; i++) data[i] = LEFT;
}

/* Checks that the call has written nothing between the parts. */
static void check_rest(const int32_t *data) {
    for (size_t i = 0; i < LONG; i++) {
        int within = 0;
        for (uint32_t r = 0; r < size; r++)
            within |= i >= begins[r] && i < begins[r] + counts[r];
        CHECK(within || data[i] == LEFT);
    }
}

static void all_to_all(int with_gaps) {
    static int32_t in[LONG], out[LONG];
    /* Rank r sends as many elements to rank s as 3 r + s says, so most lengths differ. */
    for (uint32_t r = 0; r < size; r++) {
        others[r] = length(3 * rank, r);
        counts[r] = length(3 * r, rank);
    }
    place(with_gaps, others, other_begins);
    place(with_gaps, counts, begins);
    clear(out);
    for (uint32_t to = 0; to < size; to++)
        for (size_t i = 0; i < others[to]; i++) in[other_begins[to] + i] = element(rank, to, i);
    PARTS(all_to_all_v, in, others, GIVEN(with_gaps, other_begins), out, counts,
                             GIVEN(with_gaps, begins), INT, comm);
    for (uint32_t from = 0; from < size; from++)
        for (size_t i = 0; i < counts[from]; i++)
            CHECK(out[begins[from] + i] == element(from, rank, i));
    check_rest(out);
    /* In place each part comes back with the same length. */
    for (uint32_t r = 0; r < size; r++) counts[r] = length(r, rank);
    place(with_gaps, counts, begins);
    clear(out);
    for (uint32_t to = 0; to < size; to++)
        for (size_t i = 0; i < counts[to]; i++) out[begins[to] + i] = element(rank, to, i);
    PARTS(all_to_all_v, NULL, NULL, NULL, out, counts, GIVEN(with_gaps, begins), INT, comm);
    for (uint32_t from = 0; from < size; from++)
        for (size_t i = 0; i < counts[from]; i++)
            CHECK(out[begins[from] + i] == element(from, rank, i));
    check_rest(out);
    /* Rank 0 alone sends. A rank without anything to send has no input. */
    for (uint32_t r = 0; r < size; r++) {
        others[r] = rank == 0 ? length(r, 1) : 0;
        counts[r] = r == 0 ? length(rank, 1) : 0;
    }
    place(0, others, other_begins);
    for (uint32_t to = 0; to < size; to++)
        for (size_t i = 0; i < others[to]; i++) in[other_begins[to] + i] = element(0, to, i);
    PARTS(all_to_all_v, rank == 0 ? in : NULL, others, NULL, out, counts, NULL, INT, comm);
    for (size_t i = 0; i < counts[0]; i++) CHECK(out[i] == element(0, rank, i));
}

/* WAY is out of place, in place by NULL, or in place by the address of the own part. */
static void gathers(int with_gaps, int way, uint32_t root) {
    static int32_t in[PART_MAX], out[LONG];
    size_t own = counts[rank];
    for (size_t i = 0; i < own; i++) in[i] = element(rank, 0, i);
    for (int to_all = 0; to_all < 2; to_all++) {
        int receives = to_all || rank == root;
        clear(out);
        if (receives && way > 0) memcpy(out + begins[rank], in, own * sizeof *in);
        const int32_t *input = !receives || way == 0 ? in : way == 1 ? NULL : out + begins[rank];
        size_t count = input ? own : SIZE_MAX;
        const size_t *at = GIVEN(with_gaps, begins);
        if (to_all) PARTS(all_gather_v, input, count, out, counts, at, INT, comm);
        else if (receives) PARTS(gather_v, input, count, out, counts, at, INT, root, comm);
        else PARTS(gather_v, input, count, NULL, NULL, NULL, INT, root, comm);
        for (uint32_t from = 0; from < size && receives; from++)
            for (size_t i = 0; i < counts[from]; i++)
                CHECK(out[begins[from] + i] == element(from, 0, i));
        if (receives) check_rest(out);
    }
}

static void scatters(int with_gaps, int way, uint32_t root) {
    static int32_t in[LONG], out[LONG];
    size_t own = counts[rank];
    const size_t *at = GIVEN(with_gaps, begins);
    clear(in);
    clear(out);
    for (uint32_t to = 0; to < size; to++)
        for (size_t i = 0; i < counts[to]; i++) in[begins[to] + i] = element(root, to, i);
    int32_t *result = way > 0 && rank == root ? in + begins[rank] : out;
    if (rank != root) PARTS(scatter_v, NULL, NULL, NULL, out, own, INT, root, comm);
    else if (way == 1) PARTS(scatter_v, NULL, counts, at, in, SIZE_MAX, INT, root, comm);
    else PARTS(scatter_v, in, counts, at, result, own, INT, root, comm);
    for (size_t i = 0; i < own; i++) CHECK(result[i] == element(root, rank, i));
    CHECK(out[own] == LEFT);

    clear(in);
    clear(out);
    for (uint32_t to = 0; to < size; to++)
        for (size_t i = 0; i < counts[to]; i++) in[begins[to] + i] = element(rank, to, i);
    result = way > 0 ? in + begins[rank] : out;
    PARTS(reduce_scatter_v, way == 1 ? NULL : in, way == 1 ? in : result, counts, at, INT,
                                 RINGFOLD_SUM, comm);
    for (size_t i = 0; i < own; i++) {
        int32_t sum = 0;
        for (uint32_t from = 0; from < size; from++) sum += element(from, rank, i);
        CHECK(result[i] == sum);
    }
    check_rest(in);
    CHECK(out[own] == LEFT);
}

/* Wrong parts. Every rank refuses its own call, so nothing begins. */
static void wrong_parts(void) {
    static int32_t in[LONG], out[LONG];
    for (uint32_t r = 0; r < size; r++) counts[r] = 2, begins[r] = 2 * r, others[r] = 2;
    EXPECT(ARGUMENT, "the counts of the output is NULL",
           ringfold_all_gather_v(in, 2, out, NULL, NULL, INT, comm));
    request = (ringfold_request_t)comm;
    EXPECT(ARGUMENT, "the counts of the output is NULL",
           ringfold_start_all_gather_v(in, 2, out, NULL, NULL, INT, comm, &request));
    CHECK(request == NULL);
    EXPECT(ARGUMENT, "request is NULL",
           ringfold_start_all_gather_v(in, 2, out, counts, NULL, INT, comm, NULL));
    EXPECT(ARGUMENT, "the counts of the input is NULL",
           ringfold_all_to_all_v(in, NULL, NULL, out, counts, NULL, INT, comm));
    EXPECT(ARGUMENT, "the input is NULL",
           ringfold_all_to_all_v(NULL, counts, NULL, out, counts, NULL, INT, comm));
    EXPECT(ARGUMENT, "the output is NULL",
           ringfold_all_gather_v(in, 2, NULL, counts, begins, INT, comm));
    EXPECT(ARGUMENT, "the input has 12 bytes and needs 8",
           ringfold_all_gather_v(in, 3, out, counts, NULL, INT, comm));
    EXPECT(ARGUMENT, "the output has 4 bytes and needs 8",
           ringfold_scatter_v(in, counts, NULL, out, 1, INT, rank, comm));
    EXPECT(ARGUMENT, "overlap",
           ringfold_all_gather_v(out + 2 * rank + 1, 2, out, counts, NULL, INT, comm));
    EXPECT(ARGUMENT, "overlap",
           ringfold_all_to_all_v(out + 1, others, NULL, out, counts, NULL, INT, comm));
    EXPECT(ARGUMENT, "is no data type",
           ringfold_all_gather_v(in, 2, out, counts, NULL, (enum ringfold_type)12, comm));
    EXPECT(ARGUMENT, "is no reduction operation",
           ringfold_reduce_scatter_v(in, out, counts, NULL, INT, 99, comm));
    EXPECT(ARGUMENT, "root", ringfold_gather_v(in, 2, out, counts, NULL, INT, size, comm));
    EXPECT(ARGUMENT, "root", ringfold_scatter_v(in, counts, NULL, out, 2, INT, size, comm));
    EXPECT(RINGFOLD_ERROR_HANDLE, "is NULL",
           ringfold_all_gather_v(in, 2, out, counts, NULL, INT, NULL));
    ringfold_comm_t group;
    OK(ringfold_group_start(comm, &group));
    EXPECT(RINGFOLD_ERROR_HANDLE, "is a group of calls",
           ringfold_all_gather_v(in, 2, out, counts, NULL, INT, group));
    OK(ringfold_group_discard(group));
    if (size > 1) {
        begins[1] = 1;
        EXPECT(ARGUMENT, "parts 0 and 1 overlap",
               ringfold_all_gather_v(in, 2, out, counts, begins, INT, comm));
        EXPECT(ARGUMENT, "parts 0 and 1 overlap",
               ringfold_all_to_all_v(in, others, NULL, out, counts, begins, INT, comm));
        begins[1] = 2;
    }
    begins[size - 1] = SIZE_MAX;
    EXPECT(ARGUMENT, "exceeds the address space",
           ringfold_all_gather_v(in, 2, out, counts, begins, INT, comm));
    begins[size - 1] = SIZE_MAX / 4;
    EXPECT(ARGUMENT, "longer than the address space",
           ringfold_all_gather_v(in, 2, out, counts, begins, INT, comm));
    counts[size - 1] = SIZE_MAX;
    EXPECT(ARGUMENT, "address space",
           ringfold_all_gather_v(in, 2, out, counts, NULL, INT, comm));
    EXPECT(ARGUMENT, "address space",
           ringfold_reduce_scatter_v(NULL, out, counts, NULL, INT, RINGFOLD_SUM, comm));
    EXPECT(ARGUMENT, "address space",
           ringfold_scatter_v(in, counts, NULL, out, 2, INT, rank, comm));
    EXPECT(ARGUMENT, "address space",
           ringfold_all_to_all_v(in, others, NULL, out, counts, NULL, INT, comm));
}

/* The smallest value and the ranks that have it: 12 bytes. */
struct smallest {
    float value;
    uint32_t rank, ranks;
};

struct context {
    unsigned calls;
    int code;
};

static int combine(void *context, void *into, const void *from, size_t count) {
    struct context *kept = context;
    struct smallest *left = into;
    const struct smallest *right = from;
    kept->calls++;
    for (size_t i = 0; i < count; i++) {
        uint32_t ranks = left[i].ranks + right[i].ranks;
        if (right[i].value < left[i].value) left[i] = right[i];
        left[i].ranks = ranks;
    }
    return kept->code;
}

/* A function that calls back gets an error, also for another communicator. */
static int calls_back(void *context, void *into, const void *from, size_t count) {
    uint32_t number;
    (void)context, (void)into, (void)from, (void)count;
    EXPECT(ARGUMENT, "must not call functions of ringfold", ringfold_barrier(comm));
    EXPECT(ARGUMENT, "must not call", ringfold_comm_rank(comm, &number));
    EXPECT(ARGUMENT, "must not call", ringfold_init(RINGFOLD_VERSION, &(ringfold_comm_t){0}));
    EXPECT(ARGUMENT, "must not call", ringfold_op_free(*(ringfold_op_t *)context));
    CHECK(ringfold_version() == RINGFOLD_VERSION);
    CHECK(strcmp(ringfold_result_name(RINGFOLD_SUCCESS), "RINGFOLD_SUCCESS") == 0);
    return 0;
}

static void operations(void) {
    /* The longest parts travel in several rounds, which must not cut an element. */
    enum { MOST = 300007 };
    static struct smallest in[MOST + 1], out[MOST + 1];
    struct context context = {0, 0};
    ringfold_op_t op, other;
    OK(ringfold_op_create("smallest", sizeof *in, combine, &context, comm, &op));
    const size_t lengths[] = {0, 1, 2, 37, MOST};
    for (int in_place = 0; in_place < 2; in_place++) {
        for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
            size_t count = lengths[l];
            for (size_t i = 0; i <= count; i++)
                in[i] = (struct smallest){(float)((rank * 5 + i) % 7), rank, 1};
            memset(out, 0, sizeof out);
            if (in_place) memcpy(out, in, count * sizeof *in);
            starts = (int)(l % 2) ^ in_place;
            PARTS(all_reduce_by, in_place ? NULL : in, out, count, op, comm);
            for (size_t i = 0; i < count; i++) {
                uint32_t best = 0;
                for (uint32_t r = 1; r < size; r++)
                    if ((r * 5 + i) % 7 < (best * 5 + i) % 7) best = r;
                CHECK(out[i].rank == best && out[i].ranks == size);
                CHECK(out[i].value == (float)((best * 5 + i) % 7));
            }
            CHECK(out[count].ranks == 0);
        }
    }
    CHECK((context.calls > 0) == (size > 1));
    OK(ringfold_all_reduce_by(out, out, 1, op, comm));

    /* Wrong arguments. */
    EXPECT(ARGUMENT, "which ringfold_all_reduce_by takes",
           ringfold_all_reduce(NULL, out, 3, RINGFOLD_FLOAT32, op, comm));
    EXPECT(ARGUMENT, "is no operation of ringfold_op_create",
           ringfold_all_reduce_by(NULL, out, 1, RINGFOLD_SUM, comm));
    EXPECT(ARGUMENT, "the output is NULL", ringfold_all_reduce_by(in, NULL, 1, op, comm));
    EXPECT(ARGUMENT, "overlap", ringfold_start_all_reduce_by(out, out + 1, 2, op, comm, &request));
    EXPECT(ARGUMENT, "request is NULL", ringfold_start_all_reduce_by(in, out, 1, op, comm, NULL));
    EXPECT(ARGUMENT, "overlap", ringfold_all_reduce_by(out, out + 1, 2, op, comm));
    EXPECT(ARGUMENT, "address space", ringfold_all_reduce_by(NULL, out, SIZE_MAX / 8, op, comm));
    EXPECT(RINGFOLD_ERROR_HANDLE, "is NULL", ringfold_all_reduce_by(NULL, out, 1, op, NULL));
    EXPECT(ARGUMENT, "the name is NULL", ringfold_op_create(NULL, 4, combine, NULL, comm, &other));
    EXPECT(ARGUMENT, "a name of 0 bytes", ringfold_op_create("", 4, combine, NULL, comm, &other));
    EXPECT(ARGUMENT, "the function is NULL",
           ringfold_op_create("no", 4, NULL, NULL, comm, &other));
    EXPECT(ARGUMENT, "an element of 0 bytes",
           ringfold_op_create("no", 0, combine, NULL, comm, &other));
    EXPECT(ARGUMENT, "bytes is not 1 to",
           ringfold_op_create("no", SIZE_MAX, combine, NULL, comm, &other));
    EXPECT(ARGUMENT, "op is NULL", ringfold_op_create("no", 4, combine, NULL, comm, NULL));
    EXPECT(RINGFOLD_ERROR_HANDLE, "is NULL",
           ringfold_op_create("no", 4, combine, NULL, NULL, &other));
    CHECK(other == 0);
    if (size > 1) {
        EXPECT(ARGUMENT, "rank 0 registers",
               ringfold_op_create(rank == 0 ? "one" : "other", 4, combine, NULL, comm, &other));
        EXPECT(ARGUMENT, "with elements of 12 bytes",
               ringfold_op_create("same", rank == 0 ? 12 : 8, combine, NULL, comm, &other));
    }

    OK(ringfold_op_create("calls back", 4, calls_back, &other, comm, &other));
    OK(ringfold_all_reduce_by(NULL, out, 5, other, comm));
    OK(ringfold_op_free(other));
    EXPECT(RINGFOLD_ERROR_HANDLE, "is no reduction operation", ringfold_op_free(other));
    EXPECT(ARGUMENT, "is no operation", ringfold_all_reduce_by(NULL, out, 1, other, comm));

    /* A function that fails on one rank fails the job of its communicator. The operation stays. */
    ringfold_comm_t again;
    OK(ringfold_comm_duplicate(comm, &again));
    context.code = rank == 0 ? 5 : 0;
    if (size > 1) {
        EXPECT(RINGFOLD_ERROR_FAILED, "its function returned 5",
               ringfold_all_reduce_by(NULL, out, 100, op, again));
        CHECK(strstr(ringfold_last_error(), "smallest"));
    }
    OK(ringfold_comm_free(again));
    context.code = 0;
    OK(ringfold_all_reduce_by(NULL, out, 100, op, comm));
    OK(ringfold_op_free(op));
}

int main(void) {
    OK(ringfold_init(RINGFOLD_VERSION, &comm));
    OK(ringfold_comm_rank(comm, &rank));
    OK(ringfold_comm_size(comm, &size));
    CHECK(size <= RANKS_MAX);
    for (int way_of_call = 0; way_of_call < 4; way_of_call++) {
        int with_gaps = way_of_call % 2;
        starts = way_of_call / 2;
        all_to_all(with_gaps);
        for (uint32_t r = 0; r < size; r++) counts[r] = length(r, 0);
        place(with_gaps, counts, begins);
        for (int way = 0; way < 3; way++) {
            for (uint32_t root = 0; root < size; root++) {
                gathers(with_gaps, way, root);
                scatters(with_gaps, way, root);
            }
        }
    }
    wrong_parts();
    operations();
    OK(ringfold_barrier(comm));
    OK(ringfold_comm_free(comm));
    printf("rank %u of %u is content\n", (unsigned)rank, (unsigned)size);
    return 0;
}
