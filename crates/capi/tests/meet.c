/* Ranks without a launcher: meet WAY SIZE ROUNDS. The process forks its ranks. They meet by a unique
 * id or by a key-value store, both in a folder, as often as ROUNDS says. WAY is id, store, abort,
 * fork or grow.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

static char folder[] = "/tmp/ringfold-meet-XXXXXX";

/* The path of a key: its slashes become dashes. */
static void path_of(char *path, size_t room, const char *key, const char *ending) {
    size_t begin = (size_t)snprintf(path, room, "%s/", folder);
    CHECK(snprintf(path + begin, room - begin, "%s%s", key, ending) < (int)(room - begin));
    for (char *at = path + begin; *at; at++)
        if (*at == '/') *at = '-';
}

/* The value appears at once, by the new name of a file. */
static int set(void *context, const char *key, const void *value, size_t length) {
    char path[256], made[256], ending[32];
    snprintf(ending, sizeof ending, ".%d", (int)getpid());
    path_of(path, sizeof path, key, "");
    path_of(made, sizeof made, key, ending);
    FILE *file = fopen(made, "wb");
    if (!file) return 7;
    int done = fwrite(value, 1, length, file) == length;
    ++*(int *)context;
    return fclose(file) == 0 && done && rename(made, path) == 0 ? 0 : 8;
}

static int get(void *context, const char *key, void *value, size_t capacity, size_t *length) {
    char path[256];
    path_of(path, sizeof path, key, "");
    ++*(int *)context;
    FILE *file = fopen(path, "rb");
    if (!file) return RINGFOLD_STORE_NO_VALUE;
    *length = fread(value, 1, capacity, file);
    return fclose(file);
}

static int wait_for(void *context, const char *key, uint64_t timeout_ms, void *value,
                    size_t capacity, size_t *length) {
    for (uint64_t ms = 0; ms < timeout_ms; ms += 2) {
        int code = get(context, key, value, capacity, length);
        if (code != RINGFOLD_STORE_NO_VALUE) return code;
        nanosleep(&(struct timespec){0, 2000000}, NULL);
    }
    return RINGFOLD_STORE_NO_VALUE;
}

static ringfold_comm_t join(int by_id, uint32_t rank, uint32_t size, int round) {
    ringfold_comm_t comm;
    int used = 0;
    if (!by_id) {
        struct ringfold_store store = {&used, set, get, wait_for};
        OK(ringfold_init_with_store(RINGFOLD_VERSION, &store, rank, size, &comm));
        CHECK(used > 0);
        return comm;
    }
    struct ringfold_unique_id id;
    char key[32];
    size_t length;
    snprintf(key, sizeof key, "unique-id-%d", round);
    if (rank == 0) {
        OK(ringfold_unique_id_create(RINGFOLD_VERSION, &id));
        CHECK(set(&used, key, &id, sizeof id) == 0);
    } else {
        CHECK(wait_for(&used, key, 60000, &id, sizeof id, &length) == 0);
    }
    OK(ringfold_init_with_id(RINGFOLD_VERSION, &id, rank, size, &comm));
    return comm;
}

static void *aborts(void *comm) {
    nanosleep(&(struct timespec){0, 100000000}, NULL);
    OK(ringfold_comm_abort((ringfold_comm_t)comm, "rank 0 has had enough"));
    return NULL;
}

/* Rank 0 aborts from another thread while its call waits. The last rank makes no call until it
 * knows. */
static void abort_all(ringfold_comm_t comm, uint32_t rank, uint32_t size) {
    pthread_t aborter;
    enum ringfold_result error = RINGFOLD_SUCCESS;
    if (rank == 0) CHECK(pthread_create(&aborter, NULL, aborts, comm) == 0);
    if (rank + 1 < size) {
        /* A barrier that has heard of all ranks before the news succeeds. The next one fails. */
        while (error == RINGFOLD_SUCCESS) error = ringfold_barrier(comm);
        CHECK(error == RINGFOLD_ERROR_FAILED);
        CHECK(strstr(ringfold_last_error(), "rank 0 has had enough"));
    } else {
        while (error == RINGFOLD_SUCCESS) OK(ringfold_comm_async_error(comm, &error));
        CHECK(error == RINGFOLD_ERROR_FAILED);
        CHECK(strstr(ringfold_last_error(), "rank 0 has had enough"));
        EXPECT(RINGFOLD_ERROR_FAILED, "rank 0 has had enough", ringfold_barrier(comm));
    }
    if (rank == 0) CHECK(pthread_join(aborter, NULL) == 0);
}

/* Rank 0 forks while a call of another thread waits. The child gets an error from each call, and
 * waits for none. */
static void *waits(void *comm) {
    OK(ringfold_barrier((ringfold_comm_t)comm));
    return NULL;
}

static void fork_in_call(ringfold_comm_t comm, uint32_t rank) {
    int status;
    if (rank == 0) {
        pthread_t waiter;
        CHECK(pthread_create(&waiter, NULL, waits, comm) == 0);
        nanosleep(&(struct timespec){0, 100000000}, NULL);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            alarm(30);
            EXPECT(RINGFOLD_ERROR_FORKED, "was forked", ringfold_barrier(comm));
            EXPECT(RINGFOLD_ERROR_FORKED, "was forked", ringfold_comm_free(comm));
            _exit(0);
        }
        CHECK(waitpid(child, &status, 0) == child && status == 0);
        CHECK(pthread_join(waiter, NULL) == 0);
    } else {
        nanosleep(&(struct timespec){1, 0}, NULL);
        OK(ringfold_barrier(comm));
    }
}

/* Adds up 1 to `size` on the ranks of a communicator. */
static void add_up(ringfold_comm_t comm, uint32_t rank, uint32_t size) {
    uint32_t value = rank + 1, number, count;
    OK(ringfold_comm_rank(comm, &number));
    OK(ringfold_comm_size(comm, &count));
    CHECK(number == rank && count == size);
    OK(ringfold_all_reduce(NULL, &value, 1, RINGFOLD_UINT32, RINGFOLD_SUM, comm));
    CHECK(value == size * (size + 1) / 2);
}

/* The last rank joins the others while they run, and leaves again. They go on without it. */
static void grow(uint32_t rank, uint32_t size, int round) {
    struct ringfold_unique_id id;
    ringfold_comm_t comm, larger, smaller;
    enum ringfold_result error = RINGFOLD_SUCCESS;
    char key[32];
    size_t length;
    int used = 0;
    snprintf(key, sizeof key, "door-%d", round);
    if (rank == size - 1) {
        CHECK(wait_for(&used, key, 60000, &id, sizeof id, &length) == 0);
        OK(ringfold_init_as_newcomer(RINGFOLD_VERSION, &id, &larger));
        add_up(larger, rank, size);
        OK(ringfold_comm_free(larger));
        return;
    }
    comm = join(1, rank, size - 1, round);
    add_up(comm, rank, size - 1);
    if (rank == 0) {
        OK(ringfold_unique_id_create(RINGFOLD_VERSION, &id));
        CHECK(set(&used, key, &id, sizeof id) == 0);
    }
    OK(ringfold_comm_grow(comm, 1, rank == 0 ? &id : NULL, &larger));
    CHECK(larger);
    add_up(larger, rank, size);
    while (error == RINGFOLD_SUCCESS) error = ringfold_barrier(larger);
    CHECK(error == RINGFOLD_ERROR_FAILED);
    CHECK(strstr(ringfold_last_error(), "has left the job"));
    OK(ringfold_comm_shrink(larger, NULL, 0, &smaller));
    add_up(smaller, rank, size - 1);
    OK(ringfold_comm_free(smaller));
    OK(ringfold_comm_free(larger));
    OK(ringfold_comm_free(comm));
}

static int rank_main(const char *way, uint32_t rank, uint32_t size, int rounds) {
    for (int round = 0; round < rounds; round++) {
        if (strcmp(way, "grow") == 0) {
            grow(rank, size, round);
            continue;
        }
        ringfold_comm_t comm = join(strcmp(way, "store") != 0, rank, size, round);
        add_up(comm, rank, size);
        ringfold_window_t window;
        void *memory;
        OK(ringfold_window_alloc(64, comm, &window, &memory));
        if (strcmp(way, "abort") == 0) abort_all(comm, rank, size);
        if (strcmp(way, "fork") == 0) fork_in_call(comm, rank);
        OK(ringfold_comm_free(comm));
        memset(memory, 1, 64);
        OK(ringfold_window_free(window));
    }
    return 0;
}

int main(int argc, char **argv) {
    CHECK(argc == 4);
    uint32_t size = (uint32_t)atoi(argv[2]);
    int rounds = atoi(argv[3]), failed = 0, status;
    CHECK(mkdtemp(folder));
    for (uint32_t rank = 0; rank < size; rank++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) return rank_main(argv[1], rank, size, rounds);
    }
    while (wait(&status) > 0) failed |= status;
    CHECK(failed == 0);
    printf("content\n");
    return 0;
}
