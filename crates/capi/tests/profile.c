/* Profiles. Run it as a job. */
#include "check.h"

enum { COUNT = 1 << 16, CALLS = 10 };

int main(void) {
    uint32_t rank, size;
    ringfold_comm_t comm;
    OK(ringfold_init(RINGFOLD_VERSION, &comm));
    OK(ringfold_comm_rank(comm, &rank));
    OK(ringfold_comm_size(comm, &size));
    float *buffer = calloc(COUNT, sizeof *buffer);
    CHECK(buffer);

    /* Without a profile there is none. */
    struct ringfold_profiled_calls kinds[4];
    size_t count = 9;
    OK(ringfold_comm_end_profile(comm, kinds, 4, &count));
    CHECK(count == 0);

    OK(ringfold_comm_begin_profile(comm));
    for (int i = 0; i < CALLS; i++)
        OK(ringfold_all_reduce(NULL, buffer, COUNT, RINGFOLD_FLOAT32, RINGFOLD_SUM, comm));
    OK(ringfold_broadcast(NULL, buffer, 100, RINGFOLD_FLOAT32, 0, comm));
    OK(ringfold_comm_end_profile(comm, kinds, 4, &count));
    CHECK(count == 2);
    CHECK(strcmp(kinds[0].operation, "allreduce") == 0 && kinds[0].algorithm[0]);
    CHECK(strcmp(kinds[1].operation, "broadcast") == 0 && kinds[1].calls == 1);
    CHECK(kinds[0].calls == CALLS && kinds[0].bytes == CALLS * COUNT * sizeof *buffer);
    CHECK(kinds[0].time_ns > 0);
    CHECK(kinds[0].waiting_ns + kinds[0].moving_ns + kinds[0].combining_ns == kinds[0].time_ns);

    /* Less room than kinds, and none. */
    for (size_t room = 0; room < 2; room++) {
        OK(ringfold_comm_begin_profile(comm));
        OK(ringfold_all_reduce(NULL, buffer, COUNT, RINGFOLD_FLOAT32, RINGFOLD_SUM, comm));
        OK(ringfold_broadcast(NULL, buffer, 100, RINGFOLD_FLOAT32, 0, comm));
        kinds[1].calls = 77;
        OK(ringfold_comm_end_profile(comm, room ? kinds : NULL, room, &count));
        CHECK(count == 2 && kinds[1].calls == 77);
    }
    EXPECT(RINGFOLD_ERROR_ARGUMENT, "kinds is NULL",
           ringfold_comm_end_profile(comm, NULL, 1, &count));
    EXPECT(RINGFOLD_ERROR_ARGUMENT, "count is NULL",
           ringfold_comm_end_profile(comm, kinds, 4, NULL));

    free(buffer);
    OK(ringfold_comm_free(comm));
    EXPECT(RINGFOLD_ERROR_HANDLE, "", ringfold_comm_begin_profile(comm));
    printf("rank %u is content\n", rank);
    return 0;
}
