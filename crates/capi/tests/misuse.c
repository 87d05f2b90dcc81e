/* Wrong arguments, freed handles and threads, in a group of one. */
#define _GNU_SOURCE
#include <math.h>
#include <pthread.h>
#include <stdint.h>

#include "check.h"

#define ARGUMENT RINGFOLD_ERROR_ARGUMENT
#define HANDLE RINGFOLD_ERROR_HANDLE

enum { THREADS = 4, CALLS = 500 };

static ringfold_comm_t comm;

/* One thread of several that share a communicator. */
static void *calls(void *unused) {
    for (int i = 0; i < CALLS; i++) {
        uint32_t value = (uint32_t)i;
        OK(ringfold_all_reduce(NULL, &value, 1, RINGFOLD_UINT32, RINGFOLD_SUM, comm));
        CHECK(value == (uint32_t)i);
    }
    return unused;
}

/* A thread that fails, whose message is its own. */
static void *fails(void *unused) {
    CHECK(ringfold_last_error()[0] == 0);
    EXPECT(HANDLE, "the communicator is NULL", ringfold_barrier(NULL));
    return unused;
}

static void *frees(void *result) {
    *(enum ringfold_result *)result = ringfold_comm_free(comm);
    return NULL;
}

static int set(void *context, const char *key, const void *value, size_t length) {
    (void)key, (void)value, (void)length;
    return *(int *)context;
}

static int get(void *context, const char *key, void *value, size_t capacity, size_t *length) {
    (void)key, (void)value, *length = capacity + 1;
    return *(int *)context;
}

static int wait_for(void *context, const char *key, uint64_t timeout_ms, void *value,
                    size_t capacity, size_t *length) {
    (void)timeout_ms;
    return get(context, key, value, capacity, length);
}

int main(void) {
    uint32_t number;
    ringfold_comm_t other, stale;
    ringfold_window_t window;
    void *memory;
    ringfold_op_t op;
    float in[8] = {0}, out[8] = {0};
    enum ringfold_result error;

    /* Versions. */
    EXPECT(RINGFOLD_ERROR_VERSION, "compile the program again",
           ringfold_init(RINGFOLD_VERSION + 1000, &comm));
    CHECK(comm == NULL);
    EXPECT(ARGUMENT, "the pointer to the new communicator is NULL",
           ringfold_init(RINGFOLD_VERSION, NULL));
    OK(ringfold_init(RINGFOLD_VERSION, &comm));

    /* Pointers and values. */
    EXPECT(ARGUMENT, "rank is NULL", ringfold_comm_rank(comm, NULL));
    EXPECT(ARGUMENT, "size is NULL", ringfold_comm_size(comm, NULL));
    EXPECT(ARGUMENT, "rank is not aligned",
           ringfold_comm_rank(comm, (uint32_t *)((char *)out + 1)));
    EXPECT(ARGUMENT, "the output is NULL",
           ringfold_all_reduce(in, NULL, 8, RINGFOLD_FLOAT32, RINGFOLD_SUM, comm));
    EXPECT(ARGUMENT, "12 is no data type",
           ringfold_all_reduce(in, out, 8, (enum ringfold_type)12, RINGFOLD_SUM, comm));
    EXPECT(ARGUMENT, "is no data type",
           ringfold_all_reduce(in, out, 8, (enum ringfold_type)-1, RINGFOLD_SUM, comm));
    EXPECT(ARGUMENT, "0x5 is no reduction operation",
           ringfold_all_reduce(in, out, 8, RINGFOLD_FLOAT32, 5, comm));
    EXPECT(ARGUMENT, "overlap",
           ringfold_all_reduce(in, in + 1, 4, RINGFOLD_FLOAT32, RINGFOLD_SUM, comm));
    EXPECT(ARGUMENT, "exceed the address space",
           ringfold_all_reduce(NULL, out, SIZE_MAX, RINGFOLD_FLOAT32, RINGFOLD_SUM, comm));
    EXPECT(ARGUMENT, "exceed the address space",
           ringfold_all_gather(in, out, SIZE_MAX / 8, RINGFOLD_FLOAT64, comm));
    EXPECT(ARGUMENT, "is longer than the address space",
           ringfold_all_reduce(NULL, (void *)(UINTPTR_MAX - 7), 8, RINGFOLD_FLOAT64, RINGFOLD_SUM,
                               comm));
    EXPECT(ARGUMENT, "root 1",
           ringfold_broadcast(in, out, 8, RINGFOLD_FLOAT32, 1, comm));
    EXPECT(ARGUMENT, "root 4294967295",
           ringfold_reduce(in, out, 8, RINGFOLD_FLOAT32, RINGFOLD_SUM, UINT32_MAX, comm));
    EXPECT(ARGUMENT, "a timeout of -1 seconds", ringfold_comm_set_timeout(comm, -1));
    EXPECT(ARGUMENT, "a timeout of NaN seconds", ringfold_comm_set_timeout(comm, NAN));
    OK(ringfold_comm_set_timeout(comm, 0));
    OK(ringfold_comm_set_timeout(comm, 1e300));
    OK(ringfold_comm_set_timeout(comm, INFINITY));
    EXPECT(ARGUMENT, "the color 4294967296",
           ringfold_comm_split(comm, (int64_t)UINT32_MAX + 1, 0, &other));
    EXPECT(ARGUMENT, "the list of ranks is NULL", ringfold_comm_subset(comm, NULL, 1, &other));
    EXPECT(ARGUMENT, "rank 5", ringfold_comm_subset(comm, (uint32_t[]){5}, 1, &other));
    EXPECT(ARGUMENT, "rank 5", ringfold_comm_shrink(comm, (uint32_t[]){5}, 1, &other));
    EXPECT(ARGUMENT, "rank 5", ringfold_comm_identity(comm, 5, (uint32_t[]){0}));
    EXPECT(ARGUMENT, "window is NULL", ringfold_window_alloc(8, comm, NULL, &memory));
    EXPECT(ARGUMENT, "limit of a window",
           ringfold_window_alloc(SIZE_MAX, comm, &window, &memory));
    CHECK(window == NULL && memory == NULL);
    OK(ringfold_op_create_pre_mul_sum(2, &op));
    OK(ringfold_all_reduce(in, out, 8, RINGFOLD_FLOAT32, op, comm));
    OK(ringfold_op_free(op));
    EXPECT(ARGUMENT, "is no reduction operation",
           ringfold_all_reduce(in, out, 8, RINGFOLD_FLOAT32, op, comm));
    EXPECT(HANDLE, "is no reduction operation", ringfold_op_free(op));

    /* Handles of another kind, and of no kind. */
    OK(ringfold_window_alloc(64, comm, &window, &memory));
    EXPECT(HANDLE, "is no communicator", ringfold_barrier((ringfold_comm_t)window));
    EXPECT(HANDLE, "is no window", ringfold_window_free((ringfold_window_t)comm));
    EXPECT(HANDLE, "is no communicator", ringfold_barrier((ringfold_comm_t)(void *)in));
    EXPECT(HANDLE, "the window is NULL", ringfold_window_free(NULL));

    /* Several threads, each with its own message. */
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, calls, NULL) == 0);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    EXPECT(HANDLE, "the window is NULL", ringfold_window_free(NULL));
    CHECK(pthread_create(&threads[0], NULL, fails, NULL) == 0);
    CHECK(pthread_join(threads[0], NULL) == 0);
    CHECK(strstr(ringfold_last_error(), "window"));

    /* A window of another communicator. */
    OK(ringfold_comm_duplicate(comm, &other));
    EXPECT(ARGUMENT, "another communicator",
           ringfold_all_reduce_window(NULL, window, 0, 8, RINGFOLD_FLOAT32, RINGFOLD_SUM, other));
    OK(ringfold_comm_free(other));

    /* The failure of a job, with and without a call. */
    OK(ringfold_comm_duplicate(comm, &other));
    OK(ringfold_comm_async_error(other, &error));
    CHECK(error == RINGFOLD_SUCCESS);
    OK(ringfold_comm_abort(other, "a test"));
    EXPECT(RINGFOLD_ERROR_FAILED, "a test", ringfold_barrier(other));
    uint32_t failed[1] = {1};
    size_t count = 0;
    EXPECT(ARGUMENT, "count", ringfold_comm_failed_ranks(other, failed, NULL));
    EXPECT(ARGUMENT, "ranks", ringfold_comm_failed_ranks(other, NULL, &count));
    OK(ringfold_comm_failed_ranks(other, failed, &count));
    CHECK(count == 1 && failed[0] == 0);
    EXPECT(ARGUMENT, "flag", ringfold_comm_agree(other, NULL));
    OK(ringfold_comm_async_error(other, &error));
    CHECK(error == RINGFOLD_ERROR_FAILED && strstr(ringfold_last_error(), "a test"));
    OK(ringfold_comm_free(other));
    OK(ringfold_comm_duplicate(comm, &other));
    OK(ringfold_comm_abort(other, NULL));
    OK(ringfold_comm_async_error(other, &error));
    CHECK(error == RINGFOLD_ERROR_FAILED && strstr(ringfold_last_error(), "ringfold_comm_abort"));
    EXPECT(RINGFOLD_ERROR_LEAVE, "on leaving", ringfold_comm_free(other));
    OK(ringfold_comm_duplicate(comm, &other));
    OK(ringfold_comm_abort(other, "not UTF-8: \xe9"));
    EXPECT(RINGFOLD_ERROR_FAILED, "not UTF-8: ", ringfold_barrier(other));
    OK(ringfold_comm_free(other));

    /* Freed handles, whose slot has another communicator. Two threads free the same one. */
    stale = comm;
    enum ringfold_result freed[2];
    CHECK(pthread_create(&threads[0], NULL, frees, &freed[0]) == 0);
    CHECK(pthread_create(&threads[1], NULL, frees, &freed[1]) == 0);
    for (int i = 0; i < 2; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK((freed[0] == RINGFOLD_SUCCESS) != (freed[1] == RINGFOLD_SUCCESS));
    CHECK(freed[0] == HANDLE || freed[1] == HANDLE);
    OK(ringfold_init(RINGFOLD_VERSION, &comm));
    CHECK(comm != stale);
    EXPECT(HANDLE, "it was freed", ringfold_barrier(stale));
    EXPECT(HANDLE, "it was freed", ringfold_comm_rank(stale, &number));
    EXPECT(HANDLE, "it was freed", ringfold_comm_abort(stale, "x"));
    EXPECT(HANDLE, "it was freed", ringfold_comm_async_error(stale, &error));
    EXPECT(HANDLE, "it was freed", ringfold_comm_split(stale, 0, 0, &other));
    EXPECT(HANDLE, "it was freed", ringfold_comm_free(stale));
    OK(ringfold_window_free(window));
    EXPECT(HANDLE, "it was freed", ringfold_window_free(window));
    EXPECT(HANDLE, "it was freed",
           ringfold_all_reduce_window(NULL, window, 0, 1, RINGFOLD_FLOAT32, RINGFOLD_SUM, comm));
    OK(ringfold_barrier(comm));
    OK(ringfold_comm_free(comm));

    /* Ids and stores. */
    struct ringfold_unique_id id;
    memset(&id, 'x', sizeof id);
    EXPECT(ARGUMENT, "id: not a unique id",
           ringfold_init_with_id(RINGFOLD_VERSION, &id, 0, 1, &comm));
    EXPECT(ARGUMENT, "id is NULL", ringfold_init_with_id(RINGFOLD_VERSION, NULL, 0, 1, &comm));
    OK(ringfold_unique_id_create(RINGFOLD_VERSION, &id));
    EXPECT(RINGFOLD_ERROR_INIT, "rank 1 of 1",
           ringfold_init_with_id(RINGFOLD_VERSION, &id, 1, 1, &comm));
    int code = 0;
    struct ringfold_store store = {&code, set, get, wait_for}, broken = {0};
    EXPECT(ARGUMENT, "a function of the store is NULL",
           ringfold_init_with_store(RINGFOLD_VERSION, &broken, 0, 1, &comm));
    EXPECT(RINGFOLD_ERROR_INIT, "a value of 4097 bytes",
           ringfold_init_with_store(RINGFOLD_VERSION, &store, 0, 1, &comm));
    code = 5;
    EXPECT(RINGFOLD_ERROR_INIT, "the function of the store returned 5",
           ringfold_init_with_store(RINGFOLD_VERSION, &store, 0, 1, &comm));
    code = RINGFOLD_STORE_NO_VALUE;
    EXPECT(RINGFOLD_ERROR_INIT, "cannot set the key",
           ringfold_init_with_store(RINGFOLD_VERSION, &store, 0, 1, &comm));
    CHECK(setenv("RINGFOLD_ALGO", "allreduce:teleport", 1) == 0);
    EXPECT(RINGFOLD_ERROR_CONFIG, "RINGFOLD_ALGO", ringfold_init(RINGFOLD_VERSION, &comm));
    printf("content\n");
    return 0;
}
