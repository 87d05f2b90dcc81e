/* Started collectives, right and wrong. Run it as a job. */
#include <stdint.h>
#include <stdlib.h>

#include "check.h"

#define ARGUMENT RINGFOLD_ERROR_ARGUMENT
#define HANDLE RINGFOLD_ERROR_HANDLE
#define INT RINGFOLD_INT32

enum { CALLS = 40, LONG = 100003 };

static uint32_t rank, size;
static ringfold_comm_t comm;

/* Starts calls of all kinds before it waits for the first. */
static void all_kinds(size_t count) {
    size_t all = count * size;
    int32_t *in = malloc((all + 1) * sizeof *in), *out[10];
    ringfold_request_t requests[11];
    for (size_t i = 0; i < all; i++) in[i] = (int32_t)(rank + i);
    for (size_t i = 0; i < 10; i++) out[i] = calloc(all + 1, sizeof **out);
    OK(ringfold_start_all_reduce(in, out[0], count, INT, RINGFOLD_SUM, comm, &requests[0]));
    OK(ringfold_start_all_gather(in, out[1], count, INT, comm, &requests[1]));
    OK(ringfold_start_reduce_scatter(in, out[2], count, INT, RINGFOLD_MAX, comm, &requests[2]));
    OK(ringfold_start_broadcast(in, out[3], count, INT, size - 1, comm, &requests[3]));
    OK(ringfold_start_reduce(in, out[4], count, INT, RINGFOLD_MIN, 0, comm, &requests[4]));
    OK(ringfold_start_all_to_all(in, out[5], count, INT, comm, &requests[5]));
    OK(ringfold_start_gather(in, out[6], count, INT, 0, comm, &requests[6]));
    OK(ringfold_start_scatter(in, out[7], count, INT, 0, comm, &requests[7]));
    OK(ringfold_start_scan(in, out[8], count, INT, RINGFOLD_SUM, comm, &requests[8]));
    OK(ringfold_start_exscan(in, out[9], count, INT, RINGFOLD_SUM, comm, &requests[9]));
    OK(ringfold_start_barrier(comm, &requests[10]));
    /* The last one ends after all others. */
    for (int i = 10; i >= 0; i--) OK(ringfold_wait(requests[i]));
    for (size_t i = 0; i < count; i++) {
        int32_t n = (int32_t)size, r = (int32_t)rank, at = (int32_t)i;
        CHECK(out[0][i] == n * at + n * (n - 1) / 2);
        for (int32_t peer = 0; peer < n; peer++) {
            CHECK(out[1][peer * count + i] == peer + at);
            CHECK(out[5][peer * count + i] == peer + (int32_t)(rank * count + i));
            CHECK(rank != 0 || out[6][peer * count + i] == peer + at);
        }
        CHECK(out[2][i] == n - 1 + (int32_t)(rank * count + i));
        CHECK(out[3][i] == n - 1 + at);
        CHECK(rank != 0 || out[4][i] == at);
        CHECK(out[7][i] == (int32_t)(rank * count + i));
        CHECK(out[8][i] == (r + 1) * at + r * (r + 1) / 2);
        CHECK(out[9][i] == (rank == 0 ? 0 : r * at + r * (r - 1) / 2));
    }
    free(in);
    for (size_t i = 0; i < 10; i++) free(out[i]);
}

/* Many calls at once, awaited as they end. A blocking call and a message come between. */
static void many(void) {
    static int32_t sums[CALLS][3], all[LONG];
    ringfold_request_t requests[CALLS];
    int32_t sent = (int32_t)rank, got = -1, one = 1, total = 0;
    for (int32_t i = 0; i < CALLS; i++) {
        for (int k = 0; k < 3; k++) sums[i][k] = i;
        OK(ringfold_start_all_reduce(NULL, sums[i], 3, INT, RINGFOLD_SUM, comm, &requests[i]));
        if (i == CALLS / 2) {
            uint32_t next = (rank + 1) % size, previous = (rank + size - 1) % size;
            OK(ringfold_send_recv(&sent, 1, INT, next, &got, 1, INT, previous, 5, comm));
            CHECK(got == (int32_t)previous);
            OK(ringfold_all_reduce(&one, &total, 1, INT, RINGFOLD_SUM, comm));
            CHECK(total == (int32_t)size);
        }
    }
    for (int left = CALLS; left > 0; left--) {
        size_t index = CALLS;
        OK(ringfold_wait_any(CALLS, requests, &index));
        CHECK(index < CALLS);
        int ended = 0;
        OK(ringfold_test(requests[index], &ended));
        CHECK(ended == 1);
        OK(ringfold_wait(requests[index]));
        requests[index] = NULL;
        for (int k = 0; k < 3; k++) CHECK(sums[index][k] == (int32_t)(size * index));
    }
    size_t index = 0;
    OK(ringfold_wait_any(CALLS, requests, &index));
    CHECK(index == CALLS);
    /* The program computes until the call has ended. */
    ringfold_request_t request;
    for (size_t i = 0; i < LONG; i++) all[i] = (int32_t)i;
    OK(ringfold_start_all_reduce(NULL, all, LONG, INT, RINGFOLD_MAX, comm, &request));
    for (int ended = 0; !ended;) OK(ringfold_test(request, &ended));
    OK(ringfold_wait(request));
    CHECK(all[LONG - 1] == LONG - 1);
}

/* Calls that are prepared once and started many times. */
static void prepared(void) {
    ringfold_comm_t later;
    ringfold_request_t sum, send, recv, all[3], freed;
    static int32_t data[5], sent[2], got[2];
    uint32_t next = (rank + 1) % size, previous = (rank + size - 1) % size;
    size_t index = 7;
    int ended = 7, descriptor = -1;
    OK(ringfold_prepare(comm, &later));
    CHECK(later != NULL && later != comm);
    OK(ringfold_start_all_reduce(NULL, data, 5, INT, RINGFOLD_SUM, later, &sum));
    OK(ringfold_start_send(sent, 2, INT, next, 3, later, &send));
    OK(ringfold_start_recv(got, 2, INT, RINGFOLD_ANY_SOURCE, 3, later, &recv));
    /* A request that is not active counts as ended. */
    OK(ringfold_test(sum, &ended));
    CHECK(ended == 1);
    OK(ringfold_wait(sum));
    OK(ringfold_request_descriptor(sum, &descriptor));
    all[0] = sum, all[1] = send, all[2] = recv;
    for (int32_t round = 0; round < 100; round++) {
        struct ringfold_message message = {0};
        for (int i = 0; i < 5; i++) data[i] = round + i;
        sent[1] = round * 1000 + (int32_t)rank;
        for (int i = 0; i < 3; i++) OK(ringfold_start(all[i]));
        EXPECT(ARGUMENT, "is active", ringfold_start(recv));
        OK(ringfold_wait_message(recv, &message));
        CHECK(got[1] == round * 1000 + (int32_t)previous);
        CHECK(message.source == previous && message.bytes == sizeof got);
        OK(ringfold_wait_any(1, &sum, &index));
        CHECK(index == 0);
        OK(ringfold_wait(sum));
        OK(ringfold_wait(send));
        for (int i = 0; i < 5; i++) CHECK(data[i] == (int32_t)size * (round + i));
    }
    /* The handle stands for no communicator elsewhere. */
    EXPECT(HANDLE, "ringfold_prepare", ringfold_barrier(later));
    EXPECT(HANDLE, "", ringfold_prepare(later, &later));
    CHECK(later == NULL);
    EXPECT(ARGUMENT, "", ringfold_prepare(comm, NULL));
    EXPECT(HANDLE, "", ringfold_prepare(NULL, &later));
    OK(ringfold_prepare(comm, &later));
    EXPECT(ARGUMENT, "", ringfold_start_broadcast(NULL, data, 2, INT, size, later, &freed));
    EXPECT(HANDLE, "", ringfold_start(NULL));
    EXPECT(HANDLE, "", ringfold_start((ringfold_request_t)comm));
    OK(ringfold_start_barrier(comm, &freed));
    EXPECT(ARGUMENT, "is started already", ringfold_start(freed));
    OK(ringfold_wait(freed));
    EXPECT(HANDLE, "", ringfold_start(freed));
    /* One call must not use a prepared request twice. */
    all[1] = sum;
    EXPECT(ARGUMENT, "uses the prepared request", ringfold_wait_any(2, all, &index));
    OK(ringfold_request_free(sum));
    EXPECT(HANDLE, "", ringfold_start(sum));
    EXPECT(HANDLE, "", ringfold_request_free(sum));
    /* The call of a request that is freed goes on. */
    data[0] = 1;
    OK(ringfold_start_all_reduce(NULL, data, 1, INT, RINGFOLD_SUM, later, &sum));
    OK(ringfold_start(sum));
    OK(ringfold_request_free(sum));
    OK(ringfold_barrier(comm));
    CHECK(data[0] == (int32_t)size);
    OK(ringfold_request_free(send));
    OK(ringfold_request_free(recv));
}

static void wrong(void) {
    int32_t data[2] = {1, 2};
    int ended = 7;
    size_t index = 7;
    ringfold_request_t request = NULL, freed;
    EXPECT(ARGUMENT, "", ringfold_start_broadcast(NULL, data, 2, INT, size, comm, &request));
    CHECK(request == NULL);
    EXPECT(ARGUMENT, "", ringfold_start_all_reduce(NULL, NULL, 2, INT, RINGFOLD_SUM, comm, &request));
    EXPECT(ARGUMENT, "", ringfold_start_barrier(comm, NULL));
    EXPECT(HANDLE, "", ringfold_start_barrier(NULL, &request));
    EXPECT(HANDLE, "", ringfold_wait(NULL));
    EXPECT(HANDLE, "", ringfold_test(NULL, &ended));
    CHECK(ended == 0);
    OK(ringfold_start_barrier(comm, &freed));
    EXPECT(ARGUMENT, "", ringfold_test(freed, NULL));
    EXPECT(ARGUMENT, "", ringfold_wait_any(1, &freed, NULL));
    EXPECT(ARGUMENT, "", ringfold_wait_any(1, NULL, &index));
    OK(ringfold_wait(freed));
    EXPECT(HANDLE, "", ringfold_wait(freed));
    EXPECT(HANDLE, "", ringfold_wait_any(1, &freed, &index));
    /* A handle of another kind is none of a request. */
    EXPECT(HANDLE, "", ringfold_wait((ringfold_request_t)comm));
    EXPECT(HANDLE, "", ringfold_barrier((ringfold_comm_t)freed));
}

int main(void) {
    OK(ringfold_init(RINGFOLD_VERSION, &comm));
    OK(ringfold_comm_rank(comm, &rank));
    OK(ringfold_comm_size(comm, &size));
    const size_t counts[] = {0, 1, 7, 4099, LONG};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) all_kinds(counts[i]);
    many();
    prepared();
    wrong();
    /* Freeing a communicator waits for its calls. Their requests stay. */
    static int32_t last[5] = {1, 1, 1, 1, 1};
    ringfold_comm_t later;
    ringfold_request_t request, unstarted;
    OK(ringfold_prepare(comm, &later));
    OK(ringfold_start_barrier(later, &unstarted));
    OK(ringfold_start_all_reduce(NULL, last, 5, INT, RINGFOLD_SUM, comm, &request));
    OK(ringfold_comm_free(comm));
    EXPECT(HANDLE, "", ringfold_start(unstarted));
    OK(ringfold_request_free(unstarted));
    OK(ringfold_wait(request));
    CHECK(last[4] == (int32_t)size);
    printf("rank %u of %u is content\n", (unsigned)rank, (unsigned)size);
    return 0;
}
