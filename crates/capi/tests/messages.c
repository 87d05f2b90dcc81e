/* Messages and groups of calls, right and wrong. Run it as a job. */
#include <poll.h>
#include <stdint.h>

#include "check.h"

#define ARGUMENT RINGFOLD_ERROR_ARGUMENT
#define HANDLE RINGFOLD_ERROR_HANDLE
#define INT RINGFOLD_INT32

enum { LONG = 100003, SUMS = 64, RANKS_MAX = 16 };

static uint32_t rank, size;
static ringfold_comm_t comm;

/* The element that a rank sends. */
static int32_t element(uint32_t from, size_t index) {
    return (int32_t)(from * 1000003 + index);
}

static void fill(int32_t *data, size_t count) {
    for (size_t i = 0; i < count; i++) data[i] = element(rank, i);
}

static int is_of(const int32_t *data, size_t count, uint32_t from) {
    for (size_t i = 0; i < count; i++)
        if (data[i] != element(from, i)) return 0;
    return 1;
}

/* Rank 0 exchanges messages with all others, and each rank with its neighbours. */
static void alone(void) {
    static int32_t out[LONG], in[LONG];
    const size_t lengths[] = {0, 1, 7, 257, 4099, LONG};
    uint32_t next = (rank + 1) % size, previous = (rank + size - 1) % size;
    fill(out, LONG);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        size_t count = lengths[i];
        uint32_t tag = i % 2 ? UINT32_MAX : (uint32_t)i;
        for (uint32_t peer = 1; peer < size; peer++) {
            memset(in, 0, sizeof in);
            if (rank == 0) {
                OK(ringfold_send(out, count, INT, peer, tag, comm));
                OK(ringfold_recv(in, count, INT, peer, tag + 1, comm));
                CHECK(is_of(in, count, peer));
            } else if (rank == peer) {
                OK(ringfold_recv(in, count, INT, 0, tag, comm));
                CHECK(is_of(in, count, 0));
                OK(ringfold_send(out, count, INT, 0, tag + 1, comm));
            }
        }
        /* The types of both directions differ, and so do those of the two ends. */
        memset(in, 0, sizeof in);
        OK(ringfold_send_recv(out, count, INT, next, in, 4 * count, RINGFOLD_UINT8, previous, tag,
                              comm));
        CHECK(is_of(in, count, previous));
    }
    OK(ringfold_send_recv(NULL, 0, INT, rank, NULL, 0, INT, rank, 0, comm));
}

/* Rank 0 takes a message of each rank, as they come, and looks at the next ones. */
static void from_any(void) {
    int32_t in[5] = {0};
    uint32_t from, tag;
    size_t bytes;
    int is_there = 0, seen[RANKS_MAX] = {0};
    fill(in, 5);
    if (rank != 0) {
        OK(ringfold_send(in, 5, INT, 0, 9, comm));
        OK(ringfold_send(in, rank, INT, 0, rank, comm));
    }
    for (uint32_t count = 1; rank == 0 && count < size; count++) {
        OK(ringfold_recv_any(in, 5, INT, 9, &from, comm));
        CHECK(from > 0 && from < size && !seen[from] && is_of(in, 5, from));
        seen[from] = 1;
    }
    for (uint32_t peer = 1; rank == 0 && peer < size; peer++) {
        while (!is_there) OK(ringfold_probe(peer, &is_there, &tag, &bytes, comm));
        CHECK(tag == peer && bytes == peer * sizeof *in);
        OK(ringfold_recv(in, peer, INT, peer, peer, comm));
        OK(ringfold_probe(peer, &is_there, &tag, &bytes, comm));
        CHECK(!is_there);
    }
    /* Until here no other message is sent to rank 0. */
    OK(ringfold_barrier(comm));
}

/* Rank 0 receives by tag in reverse, from any rank and with any tag, and by requests. */
static void matched(void) {
    enum { TAGS = 8 };
    static int32_t out[TAGS][LONG], in[LONG + 1];
    ringfold_request_t requests[TAGS], mine[2];
    struct ringfold_message message;
    int32_t to_me = 41, from_me = 0;
    int is_there = 0;
    /* Also of a rank to itself. */
    OK(ringfold_start_recv(&from_me, 1, INT, rank, 3, comm, &mine[0]));
    OK(ringfold_start_send(&to_me, 1, INT, rank, 3, comm, &mine[1]));
    OK(ringfold_wait_message(mine[0], &message));
    OK(ringfold_wait(mine[1]));
    CHECK(from_me == 41 && message.source == rank && message.tag == 3 && message.bytes == 4);
    if (rank != 0) {
        for (uint32_t tag = 0; tag < TAGS; tag++) {
            fill(out[tag], LONG);
            out[tag][0] = (int32_t)tag;
            size_t count = tag % 2 ? LONG : tag + 1;
            OK(ringfold_start_send(out[tag], count, INT, 0, tag, comm, &requests[tag]));
        }
        for (int tag = 0; tag < TAGS; tag++) OK(ringfold_wait(requests[tag]));
        OK(ringfold_send(&to_me, 1, INT, 0, 100 + rank, comm));
    }
    for (uint32_t peer = 1; rank == 0 && peer < size; peer++) {
        for (uint32_t tag = TAGS; tag-- > 0;) {
            size_t count = tag % 2 ? LONG : tag + 1;
            is_there = 0;
            while (!is_there) OK(ringfold_probe_message(peer, tag, &is_there, &message, comm));
            CHECK(message.bytes == count * sizeof *in && message.source == peer);
            EXPECT(RINGFOLD_ERROR_TRUNCATED, "too short for the message",
                   ringfold_recv(in, count - 1, INT, peer, tag, comm));
            OK(ringfold_recv_message(in, LONG + 1, INT, peer, tag, &message, comm));
            CHECK(in[0] == (int32_t)tag && message.bytes == count * sizeof *in);
            CHECK(message.source == peer && message.tag == tag);
        }
    }
    for (uint32_t seen = 1; rank == 0 && seen < size; seen++) {
        ringfold_request_t any;
        OK(ringfold_start_recv(in, 5, INT, RINGFOLD_ANY_SOURCE, RINGFOLD_ANY_TAG, comm, &any));
        int descriptor = -1;
        OK(ringfold_request_descriptor(any, &descriptor));
        struct pollfd ready = {descriptor, POLLIN, 0};
        CHECK(poll(&ready, 1, 60000) == 1);
        OK(ringfold_wait_message(any, &message));
        CHECK(message.tag == 100 + message.source && message.bytes == 4 && in[0] == 41);
    }
    /* A request that is freed goes on. */
    ringfold_request_t freed;
    OK(ringfold_start_send(&to_me, 1, INT, (rank + 1) % size, 9, comm, &freed));
    OK(ringfold_request_free(freed));
    OK(ringfold_start_recv(&from_me, 1, INT, (rank + size - 1) % size, 9, comm, &mine[0]));
    OK(ringfold_wait(mine[0]));
    EXPECT(HANDLE, "it was freed", ringfold_request_free(freed));
    EXPECT(HANDLE, "it was freed", ringfold_wait_message(freed, &message));
    EXPECT(HANDLE, "NULL", ringfold_request_descriptor(NULL, &is_there));
    EXPECT(ARGUMENT, "message is NULL", ringfold_recv_message(in, 1, INT, 0, 0, NULL, comm));
    EXPECT(ARGUMENT, "message is NULL", ringfold_probe_message(0, 0, &is_there, NULL, comm));
    EXPECT(ARGUMENT, "is not one of", ringfold_start_send(in, 1, INT, size, 0, comm, &freed));
    EXPECT(ARGUMENT, "is not one of", ringfold_start_recv(in, 1, INT, size, 0, comm, &freed));
    OK(ringfold_barrier(comm));
}

/* Performs a group of calls, or starts it and waits for it. */
static int starts;
static enum ringfold_result perform(ringfold_comm_t group) {
    ringfold_request_t request;
    if (!starts) return ringfold_group_end(group);
    enum ringfold_result result = ringfold_start_group(group, &request);
    return result == RINGFOLD_SUCCESS ? ringfold_wait(request) : result;
}

/* Messages from every rank to every rank, in an order that would deadlock alone. */
static void together(void) {
    static int32_t out[LONG], in[RANKS_MAX][LONG];
    ringfold_comm_t group;
    fill(out, LONG);
    for (size_t count = 1; count <= LONG; count = count * 57 + 1) {
        memset(in, 0, sizeof in);
        OK(ringfold_group_start(comm, &group));
        for (uint32_t peer = 0; peer < size; peer++)
            OK(ringfold_send(out, count, INT, peer, 3, group));
        for (uint32_t peer = size; peer-- > 0;)
            OK(ringfold_recv(in[peer], count, INT, peer, 3, group));
        CHECK(in[rank][0] == 0);
        OK(perform(group));
        for (uint32_t peer = 0; peer < size; peer++) CHECK(is_of(in[peer], count, peer));
    }
    memset(in, 0, sizeof in);
    OK(ringfold_group_start(comm, &group));
    OK(ringfold_send_recv(out, 9, INT, (rank + 1) % size, in[0], 9, INT, (rank + size - 1) % size,
                          0, group));
    OK(perform(group));
    CHECK(is_of(in[0], 9, (rank + size - 1) % size));
    /* A group without calls is no call. */
    OK(ringfold_group_start(comm, &group));
    OK(perform(group));
}

/* Every collective with equal parts in one group, beside messages. */
static void collectives(void) {
    ringfold_comm_t group;
    int64_t sums[SUMS], scan = rank + 1, exscan = rank + 1, own = rank, from = -1;
    int32_t all[RANKS_MAX], given[RANKS_MAX], taken[RANKS_MAX], blocks[RANKS_MAX], block = -1;
    int32_t root = rank == size - 1 ? 77 : 0, product = 2, gathered[RANKS_MAX], part = -1;
    for (int i = 0; i < SUMS; i++) sums[i] = i + rank;
    for (uint32_t r = 0; r < size; r++) given[r] = element(rank, r), blocks[r] = (int32_t)r;
    OK(ringfold_group_start(comm, &group));
    for (int i = 0; i < SUMS; i++)
        OK(ringfold_all_reduce(NULL, &sums[i], 1, RINGFOLD_INT64, RINGFOLD_SUM, group));
    OK(ringfold_all_gather(&given[rank], all, 1, INT, group));
    OK(ringfold_reduce_scatter(blocks, &block, 1, INT, RINGFOLD_SUM, group));
    OK(ringfold_broadcast(NULL, &root, 1, INT, size - 1, group));
    OK(ringfold_reduce(NULL, &product, 1, INT, RINGFOLD_PROD, 0, group));
    OK(ringfold_all_to_all(given, taken, 1, INT, group));
    OK(ringfold_gather(&given[0], rank == 0 ? gathered : NULL, 1, INT, 0, group));
    OK(ringfold_scatter(rank == 0 ? given : NULL, &part, 1, INT, 0, group));
    OK(ringfold_scan(NULL, &scan, 1, RINGFOLD_INT64, RINGFOLD_SUM, group));
    OK(ringfold_exscan(NULL, &exscan, 1, RINGFOLD_INT64, RINGFOLD_SUM, group));
    OK(ringfold_send(&own, 1, RINGFOLD_INT64, (rank + 1) % size, 5, group));
    OK(ringfold_recv(&from, 1, RINGFOLD_INT64, (rank + size - 1) % size, 5, group));
    CHECK(sums[3] == 3 + rank && from == -1);
    OK(perform(group));
    int64_t ranks = (int64_t)size * (size - 1) / 2;
    for (int i = 0; i < SUMS; i++) CHECK(sums[i] == (int64_t)size * i + ranks);
    for (uint32_t r = 0; r < size; r++) {
        CHECK(all[r] == element(r, r) && taken[r] == element(r, rank));
        CHECK(rank != 0 || gathered[r] == element(r, 0));
    }
    CHECK(block == (int32_t)(rank * size) && root == 77 && part == element(0, rank));
    CHECK(product == (rank == 0 ? 1 << size : 2));
    CHECK(scan == (int64_t)(rank + 1) * (rank + 2) / 2);
    CHECK(exscan == (rank == 0 ? 1 : (int64_t)rank * (rank + 1) / 2));
    CHECK(from == (rank + size - 1) % size);
}

/* Short sums of a group are one call: the next call of the communicator has the number 2. Ranks that
 * make different calls fail, and the error has the number. */
static void packed(void) {
    ringfold_comm_t again, group;
    float sums[SUMS];
    OK(ringfold_comm_duplicate(comm, &again));
    OK(ringfold_group_start(again, &group));
    for (int i = 0; i < SUMS; i++) {
        sums[i] = (float)i;
        OK(ringfold_all_reduce(NULL, &sums[i], 1, RINGFOLD_FLOAT32, RINGFOLD_SUM, group));
    }
    OK(perform(group));
    for (int i = 0; i < SUMS; i++) CHECK(sums[i] == (float)i * (float)size);
    /* Every rank is done with the sums before the group fails. */
    OK(ringfold_barrier(comm));
    if (size == 1) {
        OK(ringfold_comm_abort(again, "a test"));
        EXPECT(RINGFOLD_ERROR_FAILED, "#2 on rank", ringfold_barrier(again));
    } else if (rank == 0) {
        EXPECT(RINGFOLD_ERROR_FAILED, "#2 on rank", ringfold_barrier(again));
    } else {
        EXPECT(RINGFOLD_ERROR_FAILED, "#2 on rank",
               ringfold_broadcast(NULL, sums, 1, RINGFOLD_INT8, 0, again));
    }
    /* A group of a failed communicator fails too, and its handle is freed. */
    OK(ringfold_group_start(again, &group));
    OK(ringfold_all_reduce(NULL, sums, 1, RINGFOLD_FLOAT32, RINGFOLD_SUM, group));
    EXPECT(RINGFOLD_ERROR_FAILED, "#2 ", perform(group));
    EXPECT(HANDLE, "it was freed", perform(group));
    OK(ringfold_comm_free(again));
}

/* Groups that nobody ends delay no call, and leave with their communicator. */
static void abandoned(void) {
    ringfold_comm_t again, group, other;
    int32_t value = 1, never = 5;
    OK(ringfold_comm_duplicate(comm, &again));
    OK(ringfold_group_start(again, &group));
    OK(ringfold_all_reduce(NULL, &never, 1, INT, RINGFOLD_SUM, group));
    OK(ringfold_send(&never, 1, INT, 0, 0, group));
    OK(ringfold_all_reduce(NULL, &value, 1, INT, RINGFOLD_SUM, again));
    CHECK(value == (int32_t)size);
    OK(ringfold_group_start(again, &other));
    CHECK(other != group);
    OK(ringfold_all_reduce(NULL, &value, 1, INT, RINGFOLD_SUM, other));
    OK(ringfold_group_end(other));
    CHECK(value == (int32_t)(size * size));
    OK(ringfold_group_start(again, &other));
    OK(ringfold_recv(&never, 1, INT, 0, 0, other));
    OK(ringfold_group_discard(other));
    EXPECT(HANDLE, "it was freed", ringfold_group_discard(other));
    EXPECT(HANDLE, "it was freed", ringfold_recv(&never, 1, INT, 0, 0, other));
    OK(ringfold_comm_free(again));
    EXPECT(HANDLE, "it was freed", ringfold_group_end(group));
    CHECK(never == 5);
}

/* Wrong arguments, alone and in groups. Nothing begins, and everything works afterwards. */
static void misuse(void) {
    ringfold_comm_t group, other;
    int32_t data[8] = {0};
    uint32_t number, away = (rank + 1) % size;
    size_t bytes;
    int is_there;
    EXPECT(ARGUMENT, "is not one of the", ringfold_send(data, 8, INT, size, 0, comm));
    EXPECT(ARGUMENT, "is not one of the", ringfold_recv(data, 8, INT, UINT32_MAX - 1, 0, comm));
    EXPECT(ARGUMENT, "itself", ringfold_send(data, 8, INT, rank, 0, comm));
    EXPECT(ARGUMENT, "itself", ringfold_recv(data, 8, INT, rank, 0, comm));
    EXPECT(ARGUMENT, "the data is NULL", ringfold_send(NULL, 8, INT, away, 0, comm));
    EXPECT(ARGUMENT, "the data is NULL", ringfold_recv(NULL, 8, INT, away, 0, comm));
    EXPECT(ARGUMENT, "address space", ringfold_send(data, SIZE_MAX / 2, INT, away, 0, comm));
    EXPECT(ARGUMENT, "is no data type",
           ringfold_recv(data, 8, (enum ringfold_type)99, away, 0, comm));
    EXPECT(ARGUMENT, "overlap",
           ringfold_send_recv(data, 4, INT, away, data + 3, 4, INT, away, 0, comm));
    EXPECT(ARGUMENT, "the input is NULL",
           ringfold_send_recv(NULL, 4, INT, away, data, 4, INT, away, 0, comm));
    EXPECT(ARGUMENT, "the output is NULL",
           ringfold_send_recv(data, 4, INT, away, NULL, 4, INT, away, 0, comm));
    EXPECT(ARGUMENT, "does not match",
           ringfold_send_recv(data, 4, INT, rank, data + 4, 3, INT, rank, 0, comm));
    EXPECT(HANDLE, "is NULL", ringfold_send(data, 8, INT, away, 0, NULL));
    EXPECT(ARGUMENT, "from is NULL", ringfold_recv_any(data, 8, INT, 0, NULL, comm));
    EXPECT(ARGUMENT, "the data is NULL", ringfold_recv_any(NULL, 8, INT, 0, &number, comm));
    if (size == 1)
        EXPECT(ARGUMENT, "a group of one", ringfold_recv_any(data, 8, INT, 0, &number, comm));
    EXPECT(ARGUMENT, "is not one of the",
           ringfold_probe(size, &is_there, &number, &bytes, comm));
    OK(ringfold_probe(rank, &is_there, &number, &bytes, comm));
    CHECK(!is_there);
    EXPECT(ARGUMENT, "is_there is NULL", ringfold_probe(away, NULL, &number, &bytes, comm));

    EXPECT(ARGUMENT, "group is NULL", ringfold_group_start(comm, NULL));
    EXPECT(HANDLE, "is NULL", ringfold_group_start(NULL, &group));
    CHECK(group == NULL);
    EXPECT(HANDLE, "the group of calls is NULL", ringfold_group_end(NULL));
    EXPECT(HANDLE, "is no group of calls", ringfold_group_end(comm));
    EXPECT(HANDLE, "is no group of calls", ringfold_group_discard(comm));

    /* A refused call stays refused, and the others of its group do not begin. */
    OK(ringfold_group_start(comm, &group));
    OK(ringfold_all_reduce(NULL, data, 8, INT, RINGFOLD_SUM, group));
    EXPECT(ARGUMENT, "is no reduction operation",
           ringfold_all_reduce(NULL, data, 8, INT, 99, group));
    EXPECT(ARGUMENT, "the data is NULL", ringfold_send(NULL, 8, INT, away, 0, group));
    EXPECT(ARGUMENT, "no call of the group has begun, for one was refused: 0x63 is no reduction",
           ringfold_group_end(group));
    EXPECT(HANDLE, "it was freed", ringfold_group_end(group));

    /* The library of Rust refuses these when the group ends. */
    OK(ringfold_group_start(comm, &group));
    OK(ringfold_all_reduce(NULL, data, 8, INT, RINGFOLD_SUM, group));
    OK(ringfold_broadcast(NULL, data, 0, INT, size, group));
    EXPECT(ARGUMENT, "root", ringfold_group_end(group));
    OK(ringfold_group_start(comm, &group));
    OK(ringfold_send(data, 8, INT, rank, 0, group));
    EXPECT(ARGUMENT, "itself", ringfold_group_end(group));
    OK(ringfold_group_start(comm, &group));
    OK(ringfold_send(data, 4, INT, rank, 0, group));
    OK(ringfold_recv(data + 4, 4, INT, rank, 1, group));
    EXPECT(ARGUMENT, "does not match", ringfold_group_end(group));

    /* Memory that one call writes and another one uses. Two may read the same. */
    OK(ringfold_group_start(comm, &group));
    OK(ringfold_send(data, 8, INT, away, 0, group));
    OK(ringfold_recv(data + 7, 1, INT, away, 0, group));
    EXPECT(ARGUMENT, "use the same memory", ringfold_group_end(group));
    OK(ringfold_group_start(comm, &group));
    OK(ringfold_all_reduce(NULL, data, 4, INT, RINGFOLD_SUM, group));
    OK(ringfold_all_reduce(data + 3, data + 4, 1, INT, RINGFOLD_SUM, group));
    EXPECT(ARGUMENT, "use the same memory", ringfold_group_end(group));
    OK(ringfold_group_start(comm, &group));
    OK(ringfold_all_reduce(data, data + 4, 1, INT, RINGFOLD_SUM, group));
    OK(ringfold_all_reduce(data, data + 5, 1, INT, RINGFOLD_SUM, group));
    OK(ringfold_group_end(group));

    ringfold_request_t request = NULL;
    OK(ringfold_group_start(comm, &group));
    OK(ringfold_send(data, 1, INT, size, 0, group));
    EXPECT(ARGUMENT, "is not one of the", ringfold_start_group(group, &request));
    OK(ringfold_group_start(comm, &group));
    EXPECT(ARGUMENT, "the data is NULL", ringfold_send(NULL, 1, INT, 0, 0, group));
    EXPECT(ARGUMENT, "no call of the group has begun", ringfold_start_group(group, &request));
    CHECK(request == NULL);
    EXPECT(HANDLE, "it was freed", ringfold_start_group(group, &request));
    EXPECT(HANDLE, "is NULL", ringfold_start_group(NULL, &request));
    OK(ringfold_group_start(comm, &group));
    EXPECT(ARGUMENT, "request is NULL", ringfold_start_group(group, NULL));
    EXPECT(HANDLE, "it was freed", ringfold_group_discard(group));

    /* Functions that need the communicator itself. */
    OK(ringfold_group_start(comm, &group));
    EXPECT(HANDLE, "is a group of calls", ringfold_barrier(group));
    EXPECT(HANDLE, "is a group of calls", ringfold_recv_any(data, 8, INT, 0, &number, group));
    EXPECT(HANDLE, "is a group of calls", ringfold_comm_rank(group, &number));
    EXPECT(HANDLE, "is a group of calls", ringfold_group_start(group, &other));
    EXPECT(HANDLE, "is a group of calls", ringfold_comm_duplicate(group, &other));
    EXPECT(HANDLE, "is a group of calls", ringfold_comm_free(group));
    OK(ringfold_group_end(group));
}

/* A receive whose message has another tag fails the job of its communicator, and no other, when its
 * time has ended. */
static void disagreement(void) {
    ringfold_comm_t again, group;
    int32_t data[2] = {0}, value = 1;
    OK(ringfold_comm_duplicate(comm, &again));
    if (rank == 1) OK(ringfold_comm_set_timeout(again, 0.5));
    OK(ringfold_group_start(again, &group));
    if (rank == 0) OK(ringfold_send(data, 2, INT, 1, 7, group));
    if (rank == 1) OK(ringfold_recv(data, 2, INT, 0, 8, group));
    OK(ringfold_all_reduce(NULL, &value, 1, INT, RINGFOLD_SUM, group));
    EXPECT(RINGFOLD_ERROR_FAILED, "tag 8", ringfold_group_end(group));
    CHECK(strstr(ringfold_last_error(), "tag 7"));
    OK(ringfold_comm_free(again));
}

int main(void) {
    OK(ringfold_init(RINGFOLD_VERSION, &comm));
    OK(ringfold_comm_rank(comm, &rank));
    OK(ringfold_comm_size(comm, &size));
    CHECK(size <= RANKS_MAX);
    alone();
    from_any();
    matched();
    for (starts = 0; starts < 2; starts++) {
        together();
        collectives();
        packed();
    }
    abandoned();
    misuse();
    if (size > 1) disagreement();
    OK(ringfold_barrier(comm));
    OK(ringfold_comm_free(comm));
    printf("rank %u of %u is content\n", (unsigned)rank, (unsigned)size);
    return 0;
}
