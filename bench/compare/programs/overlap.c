/*
 * Measures how much of a started collective of an MPI a computation hides, as `allreduce-perf
 * --overlap` does for ringfold. That is the method of the OSU benchmarks without calls of MPI_Test.
 *
 *     overlap OPERATION BYTES CALLS
 *
 * OPERATION is all_reduce, all_gather or reduce, of f32, with MPI_SUM and root 0. BYTES is the size
 * of the larger of the two buffers of a rank. After a call whose result is checked come three times
 * CALLS calls with a barrier before each: to warm up, alone, and with a computation between start and
 * wait that takes as long as this rank's calls alone. Times are means over calls and ranks. Rank 0
 * prints
 *
 *     overlap BYTES MICROSECONDS_ALONE MICROSECONDS_WITH_THE_COMPUTATION WRONG_ELEMENTS
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, ranks;
static size_t count;
static float *input, *output;
static const char *what;

static MPI_Request start(void) {
    MPI_Request request;
    MPI_Comm all = MPI_COMM_WORLD;
    int n = (int)count;
    if (strcmp(what, "all_reduce") == 0)
        MPI_Iallreduce(input, output, n, MPI_FLOAT, MPI_SUM, all, &request);
    else if (strcmp(what, "all_gather") == 0)
        MPI_Iallgather(input, n, MPI_FLOAT, output, n, MPI_FLOAT, all, &request);
    else MPI_Ireduce(input, output, n, MPI_FLOAT, MPI_SUM, 0, all, &request);
    return request;
}

/* Seconds of a call of this rank with a computation of so many seconds. */
static double time_calls(int calls, double computing) {
    double mine = 0;
    for (int call = 0; call < calls; call++) {
        MPI_Barrier(MPI_COMM_WORLD);
        double begin = MPI_Wtime();
        MPI_Request request = start();
        double end = MPI_Wtime() + computing;
        while (computing > 0 && MPI_Wtime() < end) {
        }
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        mine += MPI_Wtime() - begin;
    }
    return mine / calls;
}

/* The mean of all ranks. */
static double mean(double mine) {
    double sum = 0;
    MPI_Allreduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return sum / ranks;
}

/* The wrong elements of all ranks after a call. */
static long check(void) {
    int is_gather = strcmp(what, "all_gather") == 0, has_result = strcmp(what, "reduce") || rank == 0;
    size_t length = has_result ? count * (size_t)(is_gather ? ranks : 1) : 0;
    long mine = 0, all = 0;
    for (size_t i = 0; i < count; i++) input[i] = (float)(rank + 1) * (float)(i % 97);
    MPI_Request request = start();
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    for (size_t i = 0; i < length; i++) {
        size_t factor = is_gather ? i / count + 1 : (size_t)ranks * (size_t)(ranks + 1) / 2;
        mine += output[i] != (float)(factor * (i % count % 97));
    }
    MPI_Allreduce(&mine, &all, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    return all;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int calls = argc == 4 ? atoi(argv[3]) : 0;
    size_t bytes = argc == 4 ? (size_t)atoll(argv[2]) : 0;
    what = argc == 4 ? argv[1] : "";
    int is_gather = strcmp(what, "all_gather") == 0;
    int is_known = is_gather || strcmp(what, "all_reduce") == 0 || strcmp(what, "reduce") == 0;
    count = bytes / sizeof *input / (size_t)(is_gather ? ranks : 1);
    if (calls < 1 || count < 1 || !is_known) {
        fprintf(stderr, "overlap all_reduce|all_gather|reduce BYTES CALLS\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    input = malloc(count * sizeof *input);
    output = malloc(bytes);
    if (input == NULL || output == NULL) {
        fprintf(stderr, "no memory for %zu bytes\n", bytes);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    long wrong = check();
    time_calls(calls, 0);
    double alone = time_calls(calls, 0), computing = time_calls(calls, alone);
    alone = mean(alone), computing = mean(computing);
    if (rank == 0) printf("overlap %zu %.2f %.2f %ld\n", bytes, alone * 1e6, computing * 1e6, wrong);
    MPI_Finalize();
    return 0;
}
