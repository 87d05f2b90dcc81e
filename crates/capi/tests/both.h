/* Messages by ringfold, or with -DWITH_MPI by an MPI, for programs that are compiled once for each. An
 * element is an int. A failed call ends the program. */
#ifndef BOTH_H
#define BOTH_H

#include <stdio.h>
#include <stdlib.h>

#ifdef WITH_MPI
#include <mpi.h>
#define OK_RESULT MPI_SUCCESS
#define ANY_RANK MPI_ANY_SOURCE
#define ANY_TAG MPI_ANY_TAG
#define NO_REQUEST MPI_REQUEST_NULL
typedef MPI_Request request;
#else
#include <ringfold.h>
#define OK_RESULT RINGFOLD_SUCCESS
#define ANY_RANK (-1)
#define ANY_TAG (-1)
#define NO_REQUEST NULL
typedef ringfold_request_t request;
static ringfold_comm_t comm;
#endif

#define DO(call)                                                                         \
    do {                                                                                 \
        if ((call) != OK_RESULT) {                                                       \
            fprintf(stderr, "%s:%d: %s fails\n", __FILE__, __LINE__, #call);             \
            exit(1);                                                                     \
        }                                                                                \
    } while (0)

/* What a receive says about its message. */
typedef struct {
    int source, tag, count;
} status;

static int rank, size;

#ifdef WITH_MPI

static status of(MPI_Status *it) {
    status found = {it->MPI_SOURCE, it->MPI_TAG, 0};
    DO(MPI_Get_count(it, MPI_INT, &found.count));
    return found;
}

static void begin(int *argc, char ***argv) {
    DO(MPI_Init(argc, argv));
    DO(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    DO(MPI_Comm_size(MPI_COMM_WORLD, &size));
    DO(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
}

static void end(void) { DO(MPI_Finalize()); }

static void barrier(void) { DO(MPI_Barrier(MPI_COMM_WORLD)); }

static void send(const int *data, int count, int to, int tag) {
    DO(MPI_Send(data, count, MPI_INT, to, tag, MPI_COMM_WORLD));
}

static status receive(int *data, int count, int from, int tag) {
    MPI_Status it;
    DO(MPI_Recv(data, count, MPI_INT, from, tag, MPI_COMM_WORLD, &it));
    return of(&it);
}

/* Whether a receive fails because the message is longer. */
static int is_truncated(int *data, int count, int from, int tag) {
    MPI_Status it;
    int kind, code = MPI_Recv(data, count, MPI_INT, from, tag, MPI_COMM_WORLD, &it);
    DO(MPI_Error_class(code, &kind));
    return kind == MPI_ERR_TRUNCATE;
}

static status exchange(const int *out, int length, int to, int *in, int count, int from, int tag) {
    MPI_Status it;
    DO(MPI_Sendrecv(out, length, MPI_INT, to, tag, in, count, MPI_INT, from, tag, MPI_COMM_WORLD, &it));
    return of(&it);
}

static request start_send(const int *data, int count, int to, int tag) {
    request it;
    DO(MPI_Isend(data, count, MPI_INT, to, tag, MPI_COMM_WORLD, &it));
    return it;
}

static request start_receive(int *data, int count, int from, int tag) {
    request it;
    DO(MPI_Irecv(data, count, MPI_INT, from, tag, MPI_COMM_WORLD, &it));
    return it;
}

static request start_sum(const int *in, int *out, int count) {
    request it;
    DO(MPI_Iallreduce(in, out, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &it));
    return it;
}

static status wait_for(request *it) {
    MPI_Status found;
    DO(MPI_Wait(it, &found));
    return of(&found);
}

/* Waits for one of some receives, and returns its index. The request is NO_REQUEST then. */
static int wait_any(int count, request *all, status *found) {
    MPI_Status it;
    int index;
    DO(MPI_Waitany(count, all, &index, &it));
    return *found = of(&it), index;
}

static int is_there(int from, int tag, status *found) {
    MPI_Status it;
    int flag;
    DO(MPI_Iprobe(from, tag, MPI_COMM_WORLD, &flag, &it));
    if (flag) *found = of(&it);
    return flag;
}

#else

static status of(const ringfold_message *it) {
    return (status){(int)it->source, (int)it->tag, (int)(it->bytes / sizeof(int))};
}

static void begin(int *argc, char ***argv) {
    uint32_t number;
    (void)argc, (void)argv;
    DO(ringfold_init(RINGFOLD_VERSION, &comm));
    DO(ringfold_comm_rank(comm, &number));
    rank = (int)number;
    DO(ringfold_comm_size(comm, &number));
    size = (int)number;
}

static void end(void) { DO(ringfold_comm_free(comm)); }

static void barrier(void) { DO(ringfold_barrier(comm)); }

static void send(const int *data, int count, int to, int tag) {
    DO(ringfold_send(data, (size_t)count, RINGFOLD_INT32, (uint32_t)to, (uint32_t)tag, comm));
}

static status receive(int *data, int count, int from, int tag) {
    ringfold_message it;
    DO(ringfold_recv_message(data, (size_t)count, RINGFOLD_INT32, (uint32_t)from, (uint32_t)tag, &it,
                             comm));
    return of(&it);
}

static int is_truncated(int *data, int count, int from, int tag) {
    return ringfold_recv(data, (size_t)count, RINGFOLD_INT32, (uint32_t)from, (uint32_t)tag, comm) ==
           RINGFOLD_ERROR_TRUNCATED;
}

static status exchange(const int *out, int length, int to, int *in, int count, int from, int tag) {
    DO(ringfold_send_recv(out, (size_t)length, RINGFOLD_INT32, (uint32_t)to, in, (size_t)count,
                          RINGFOLD_INT32, (uint32_t)from, (uint32_t)tag, comm));
    return (status){from, tag, count};
}

static request start_send(const int *data, int count, int to, int tag) {
    request it;
    DO(ringfold_start_send(data, (size_t)count, RINGFOLD_INT32, (uint32_t)to, (uint32_t)tag, comm, &it));
    return it;
}

static request start_receive(int *data, int count, int from, int tag) {
    request it;
    DO(ringfold_start_recv(data, (size_t)count, RINGFOLD_INT32, (uint32_t)from, (uint32_t)tag, comm,
                           &it));
    return it;
}

static request start_sum(const int *in, int *out, int count) {
    request it;
    DO(ringfold_start_all_reduce(in, out, (size_t)count, RINGFOLD_INT32, RINGFOLD_SUM, comm, &it));
    return it;
}

static status wait_for(request *it) {
    ringfold_message found = {0, 0, 0};
    DO(ringfold_wait_message(*it, &found));
    return *it = NO_REQUEST, of(&found);
}

static int wait_any(int count, request *all, status *found) {
    size_t index;
    DO(ringfold_wait_any((size_t)count, all, &index));
    return *found = wait_for(&all[index]), (int)index;
}

static int is_there(int from, int tag, status *found) {
    ringfold_message it;
    int flag;
    DO(ringfold_probe_message((uint32_t)from, (uint32_t)tag, &flag, &it, comm));
    if (flag) *found = of(&it);
    return flag;
}

#endif
#endif
