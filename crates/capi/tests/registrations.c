/* Registered memory. Run it as a job. Whether a device has the memory or not, calls give the same
 * results. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#define ARGUMENT RINGFOLD_ERROR_ARGUMENT
#define HANDLE RINGFOLD_ERROR_HANDLE

enum { COUNT = 1 << 19, CALLS = 20 };

static uint32_t rank, size;
static ringfold_comm_t comm;
static float *buffer;

static void reduces(ringfold_comm_t by, float *at, size_t count) {
    for (size_t i = 0; i < count; i++) at[i] = (float)(rank + i % 7);
    OK(ringfold_all_reduce(NULL, at, count, RINGFOLD_FLOAT32, RINGFOLD_SUM, by));
    float ranks = (float)(size * (size - 1) / 2);
    for (size_t i = 0; i < count; i++) CHECK(at[i] == ranks + (float)(size * (i % 7)));
}

/* A thread whose calls use the memory while others register it and end that. */
static void *calls(void *unused) {
    for (int i = 0; i < CALLS; i++) reduces(comm, buffer, COUNT);
    return unused;
}

int main(void) {
    ringfold_registration_t whole, again, part, none;
    ringfold_comm_t other;
    OK(ringfold_init(RINGFOLD_VERSION, &comm));
    OK(ringfold_comm_rank(comm, &rank));
    OK(ringfold_comm_size(comm, &size));
    OK(ringfold_comm_duplicate(comm, &other));
    buffer = malloc(COUNT * sizeof *buffer);
    CHECK(buffer);

    /* Whole, again, and in parts. */
    OK(ringfold_comm_register(comm, buffer, COUNT * sizeof *buffer, &whole));
    OK(ringfold_comm_register(comm, buffer, COUNT * sizeof *buffer, &again));
    OK(ringfold_comm_register(other, buffer + 100, 1 << 20, &part));
    CHECK(whole && again && part && whole != again);
    reduces(comm, buffer, COUNT);
    reduces(other, buffer + 101, 1 << 17);
    OK(ringfold_comm_deregister(whole));
    EXPECT(HANDLE, "is no registration", ringfold_comm_deregister(whole));
    reduces(comm, buffer, COUNT);

    /* Nothing, and no memory. */
    OK(ringfold_comm_register(comm, NULL, 0, &none));
    OK(ringfold_comm_deregister(none));
    EXPECT(ARGUMENT, "the memory is NULL", ringfold_comm_register(comm, NULL, 8, &none));
    CHECK(none == NULL);
    EXPECT(ARGUMENT, "the memory is longer than the address space",
           ringfold_comm_register(comm, buffer, SIZE_MAX, &none));
    EXPECT(ARGUMENT, "registration is NULL", ringfold_comm_register(comm, buffer, 8, NULL));
    EXPECT(HANDLE, "the communicator is NULL", ringfold_comm_register(NULL, buffer, 8, &none));
    EXPECT(HANDLE, "the registration is NULL", ringfold_comm_deregister(NULL));
    EXPECT(HANDLE, "is no registration",
           ringfold_comm_deregister((ringfold_registration_t)comm));
    /* Memory of a GPU has an address, and the CPU cannot read it. */
    void *device = mmap(NULL, 1 << 16, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(device != MAP_FAILED);
    EXPECT(ARGUMENT, "not of a GPU", ringfold_comm_register(comm, device, 1 << 16, &none));

    /* During calls of another thread. */
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, calls, NULL) == 0);
    for (int i = 0; i < CALLS; i++) {
        OK(ringfold_comm_deregister(again));
        OK(ringfold_comm_register(comm, buffer, COUNT * sizeof *buffer, &again));
    }
    CHECK(pthread_join(thread, NULL) == 0);

    /* In a child, which leaves the memory to its parent. */
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        EXPECT(RINGFOLD_ERROR_FORKED, "forked", ringfold_comm_register(comm, buffer, 8, &none));
        OK(ringfold_comm_deregister(again));
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    reduces(comm, buffer, COUNT);

    /* After the end of the communicators: one of a failed job, and one that has left. */
    OK(ringfold_barrier(comm));
    OK(ringfold_comm_abort(other, "on purpose"));
    /* A barrier of all ranks may end before the news of the abort comes. */
    enum ringfold_result result;
    do result = ringfold_barrier(other);
    while (result == RINGFOLD_SUCCESS);
    CHECK(result == RINGFOLD_ERROR_FAILED);
    EXPECT(RINGFOLD_ERROR_FAILED, "on purpose", ringfold_comm_register(other, buffer, 8, &none));
    ringfold_comm_free(other);
    OK(ringfold_comm_deregister(part));
    OK(ringfold_comm_free(comm));
    OK(ringfold_comm_deregister(again));
    free(buffer);
    printf("rank %u of %u is content\n", (unsigned)rank, (unsigned)size);
    return 0;
}
