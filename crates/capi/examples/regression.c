/* Data-parallel training in C: every rank has its own samples of a line, and all ranks learn the
 * same line by averaging their gradients. docs/c.md shows how to compile and run it.
 *
 *     ringrun -n 4 ./regression
 */
#include <stdio.h>
#include <stdlib.h>

#include <ringfold.h>

enum { SAMPLES = 256, STEPS = 400 };

static const float SLOPE = 3, OFFSET = -1, RATE = 0.5F;

/* Ends the process with the message of a call that failed. The other ranks learn of it: their calls
 * fail with RINGFOLD_ERROR_FAILED and name this rank. */
static void check(enum ringfold_result result, const char *call) {
    if (result == RINGFOLD_SUCCESS) return;
    fprintf(stderr, "%s: %s: %s\n", call, ringfold_result_name(result), ringfold_last_error());
    exit(EXIT_FAILURE);
}

/* A number from 0 to 1, which depends on the rank. */
static float next(uint32_t *state) {
    *state = *state * 1664525 + 1013904223;
    return (float)(*state >> 8) / (float)(1 << 24);
}

int main(void) {
    ringfold_comm_t comm;
    uint32_t rank, size;
    check(ringfold_init(RINGFOLD_VERSION, &comm), "ringfold_init");
    check(ringfold_comm_rank(comm, &rank), "ringfold_comm_rank");
    check(ringfold_comm_size(comm, &size), "ringfold_comm_size");

    /* The samples of this rank. */
    float x[SAMPLES], y[SAMPLES];
    uint32_t state = rank + 1;
    for (int i = 0; i < SAMPLES; i++) {
        x[i] = next(&state);
        y[i] = SLOPE * x[i] + OFFSET;
    }

    /* All ranks begin with the weights of rank 0. */
    float weights[2] = {next(&state), next(&state)};
    check(ringfold_broadcast(NULL, weights, 2, RINGFOLD_FLOAT32, 0, comm), "ringfold_broadcast");

    for (int step = 0; step < STEPS; step++) {
        /* The gradient of the mean square error, and the error itself. */
        float sums[3] = {0, 0, 0};
        for (int i = 0; i < SAMPLES; i++) {
            float error = weights[0] * x[i] + weights[1] - y[i];
            sums[0] += 2 * error * x[i] / SAMPLES;
            sums[1] += 2 * error / SAMPLES;
            sums[2] += error * error / SAMPLES;
        }
        /* In place: the input is NULL. Every rank gets the same bits, so the weights stay equal. */
        check(ringfold_all_reduce(NULL, sums, 3, RINGFOLD_FLOAT32, RINGFOLD_AVG, comm),
              "ringfold_all_reduce");
        weights[0] -= RATE * sums[0];
        weights[1] -= RATE * sums[1];
        if (rank == 0 && step % 100 == 0) printf("step %d: error %.6f\n", step, sums[2]);
    }

    if (rank == 0) {
        printf("%u ranks: y = %.3f x + %.3f\n", (unsigned)size, weights[0], weights[1]);
    }
    check(ringfold_comm_free(comm), "ringfold_comm_free");
    return EXIT_SUCCESS;
}
