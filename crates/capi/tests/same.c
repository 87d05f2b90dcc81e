/* Messages whose output is that of an MPI: tags in reverse order, halos, wildcards under load, probes,
 * and a receive that is too short. `both.h` says which library moves them. A number as the argument
 * chooses lengths, tags and orders. All of the output starts with the rank and the number of the
 * line, so sorted lines do not depend on times. */
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include "both.h"

enum { RANKS_MAX = 8, LONG = 70001, MANY = 200, TAGS = 16, CELLS = 5000, STEPS = 40, LINE_MAX = 200 };

static uint64_t seed;
static int lines;

/* A random number below `limit`, the same one on each rank for the same arguments. */
static int chosen(int limit, uint64_t a, uint64_t b, uint64_t c) {
    uint64_t x = seed + a * 0x9e3779b97f4a7c15 + b * 0xbf58476d1ce4e5b9 + c * 0x94d049bb133111eb;
    for (int i = 0; i < 2; i++) x = (x ^ x >> 31) * 0xd6e8feb86659fd93;
    return (int)((x ^ x >> 32) % (uint64_t)limit);
}

__attribute__((format(printf, 1, 2))) static void say(const char *format, ...) {
    char text[LINE_MAX];
    va_list rest;
    va_start(rest, format);
    vsnprintf(text, sizeof text, format, rest);
    va_end(rest);
    printf("%03d %06d %s\n", rank, lines++, text);
}

static void fill(int *data, int count, int from, int number) {
    for (int i = 0; i < count; i++) data[i] = from * 1000003 + number * 10007 + i;
}

static uint64_t sum(const int *data, int count) {
    uint64_t sum = (uint64_t)count;
    for (int i = 0; i < count; i++) sum = sum * 31 + (uint64_t)(uint32_t)data[i];
    return sum;
}

static void say_message(const char *what, status it, const int *data) {
    say("%s: from %d, tag %d, %d elements, sum %016llx", what, it.source, it.tag, it.count,
        (unsigned long long)sum(data, it.count));
}

/* A length: mostly short, sometimes beyond what a library sends at once. */
static int length(int from, int number) {
    uint64_t a = (uint64_t)from, b = (uint64_t)number;
    return chosen(8, 1, a, b) == 0 ? chosen(LONG, 2, a, b) : chosen(300, 3, a, b);
}

static int *memory(size_t count) {
    int *data = calloc(count, sizeof *data);
    if (data == NULL) exit(2);
    return data;
}

/* Each rank sends the next one a message with each tag, which it takes in reverse order. */
static void reversed(int is_started) {
    int *out = memory((size_t)TAGS * LONG), *in = memory((size_t)TAGS * LONG);
    int next = (rank + 1) % size, previous = (rank + size - 1) % size;
    request sent[TAGS], taken[TAGS];
    for (int tag = 0; tag < TAGS; tag++) {
        fill(out + tag * LONG, length(rank, tag), rank, tag);
        sent[tag] = start_send(out + tag * LONG, length(rank, tag), next, tag);
    }
    for (int tag = TAGS; tag-- > 0 && is_started;)
        taken[tag] = start_receive(in + tag * LONG, LONG, previous, tag);
    for (int tag = TAGS; tag-- > 0;) {
        status it = is_started ? wait_for(&taken[tag]) : receive(in + tag * LONG, LONG, previous, tag);
        say_message("reversed", it, in + tag * LONG);
    }
    for (int tag = 0; tag < TAGS; tag++) wait_for(&sent[tag]);
    free(out), free(in);
}

/* Each rank has a part of a ring of cells, which become the mean of their neighbours. */
static void halo(void) {
    static int cells[CELLS + 2], after[CELLS + 2];
    int left = (rank + size - 1) % size, right = (rank + 1) % size;
    for (int i = 1; i <= CELLS; i++) cells[i] = chosen(1 << 20, 4, (uint64_t)rank, (uint64_t)i);
    for (int step = 0; step < STEPS; step++) {
        request all[4] = {
            start_receive(&cells[0], 1, left, 0), start_receive(&cells[CELLS + 1], 1, right, 1),
            start_send(&cells[CELLS], 1, right, 0), start_send(&cells[1], 1, left, 1)};
        for (int i = 2; i < CELLS; i++) after[i] = (cells[i - 1] + cells[i + 1]) / 2;
        for (int i = 0; i < 4; i++) wait_for(&all[i]);
        for (int i = 1; i <= CELLS; i += CELLS - 1) after[i] = (cells[i - 1] + cells[i + 1]) / 2;
        memcpy(cells, after, sizeof cells);
    }
    say("halo: %016llx", (unsigned long long)sum(cells + 1, CELLS));
}

/* A plane of faces: each rank exchanges long faces with both neighbours. */
static void faces(void) {
    int *out = memory(2 * LONG), *in = memory(2 * LONG);
    int to = (rank + 1) % size, from = (rank + size - 1) % size;
    for (int step = 0; step < 6; step++) {
        int count = chosen(LONG, 5, 0, (uint64_t)step);
        fill(out, count, rank, step);
        if (step % 2) {
            say_message("face", exchange(out, count, to, in, count, from, step), in);
        } else {
            request all[2] = {start_receive(in, count, to, step),
                              start_receive(in + LONG, count, from, step)};
            request sent[2] = {start_send(out, count, from, step), start_send(out, count, to, step)};
            for (int i = 0; i < 2; i++) say_message("face", wait_for(&all[i]), in + i * LONG);
            for (int i = 0; i < 2; i++) wait_for(&sent[i]);
        }
    }
    free(out), free(in);
}

/* The tag of a message of a rank. */
static int tag_of(int from, int number) { return chosen(5, 6, (uint64_t)from, (uint64_t)number); }

/* All ranks but 0 send it many messages, which it takes by wildcards while sums go on. Those of one
 * rank arrive in the order of their sends, so the output is sorted by rank. */
static void wild(void) {
    static int input[LONG], output[LONG];
    static status found[RANKS_MAX][MANY];
    static uint64_t sums[RANKS_MAX][MANY];
    int *data = memory(LONG), seen[RANKS_MAX] = {0}, others = size - 1;
    fill(input, LONG, rank, 0);
    request total = start_sum(input, output, LONG);
    for (int number = 0; rank != 0 && number < MANY; number++) {
        int count = length(rank, number);
        fill(data, count, rank, number);
        send(data, count, 0, tag_of(rank, number));
    }
    for (int number = 0; rank == 0 && number < MANY * others; number++) {
        status it = receive(data, LONG, ANY_RANK, ANY_TAG);
        int *at = &seen[it.source];
        sums[it.source][*at] = sum(data, it.count);
        found[it.source][(*at)++] = it;
    }
    for (int from = 1; rank == 0 && from < size; from++)
        for (int number = 0; number < seen[from]; number++)
            say("wild: from %d, tag %d, %d elements, sum %016llx", from, found[from][number].tag,
                found[from][number].count, (unsigned long long)sums[from][number]);
    wait_for(&total);
    say("sum beside: %016llx", (unsigned long long)sum(output, LONG));
    free(data);
}

/* As `wild`, by the tags in turn from any rank, and by the ranks in turn with any tag. */
static void wild_by_one(int is_by_tag) {
    int *data = memory(LONG), *all = memory((size_t)MANY * LONG), others = size - 1;
    request sent[MANY];
    barrier();
    for (int number = 0; rank != 0 && number < MANY; number++) {
        fill(all + number * LONG, length(rank, number), rank, number);
        sent[number] = start_send(all + number * LONG, length(rank, number), 0, tag_of(rank, number));
    }
    for (int turn = is_by_tag ? 4 : others; rank == 0 && turn >= !is_by_tag; turn--) {
        uint64_t of_all[RANKS_MAX] = {0};
        int expected = is_by_tag ? 0 : MANY;
        for (int from = 1; is_by_tag && from < size; from++)
            for (int number = 0; number < MANY; number++) expected += tag_of(from, number) == turn;
        for (int number = 0; number < expected; number++) {
            int from = is_by_tag ? ANY_RANK : turn, tag = is_by_tag ? turn : ANY_TAG;
            status it = receive(data, LONG, from, tag);
            of_all[it.source] = of_all[it.source] * 31 + sum(data, it.count) + (uint64_t)it.tag;
        }
        for (int from = 1; from < size; from++)
            say("%s %d: from %d %016llx", is_by_tag ? "tag" : "source", turn, from,
                (unsigned long long)of_all[from]);
    }
    for (int number = 0; rank != 0 && number < MANY; number++) wait_for(&sent[number]);
    free(data), free(all);
}

/* Receives that were started before any message, one for each other rank, end in any order. */
static void any_of_some(void) {
    int data[RANKS_MAX][300], mine[300], sources[RANKS_MAX] = {0};
    request all[RANKS_MAX];
    status it[RANKS_MAX];
    for (int other = 0; rank == 0 && other < size - 1; other++)
        all[other] = other % 2 ? start_receive(data[other], 300, other + 1, 7)
                               : start_receive(data[other], 300, ANY_RANK, 8);
    barrier();
    fill(mine, 300, rank, 1);
    /* The odd receives name rank 2, 4 and so on. The other ones take tag 8 of the rest. */
    if (rank != 0) send(mine, 100 + rank, 0, rank % 2 ? 8 : 7);
    for (int number = 0; rank == 0 && number < size - 1; number++) {
        status found;
        int index = wait_any(size - 1, all, &found);
        it[found.source] = found;
        sources[found.source] = index + 1;
    }
    for (int from = 1; rank == 0 && from < size; from++)
        say_message(sources[from] % 2 ? "any of some, any" : "any of some, one", it[from],
                    data[sources[from] - 1]);
}

/* A receive from any rank takes a message of the rank itself too. */
static void own(void) {
    int out[9], in[9] = {0};
    barrier();
    fill(out, 9, rank, 3);
    request sent = start_send(out, 9, rank, 30);
    say_message("own", receive(in, 9, ANY_RANK, ANY_TAG), in);
    wait_for(&sent);
    barrier();
}

/* A probe finds what the next receive takes. Those of ringfold see messages of other ranks only. */
static void probed(void) {
    int *data = memory(LONG), next = (rank + 1) % size, previous = (rank + size - 1) % size;
    for (int number = 0; number < 8 && size > 1; number++) {
        int *out = memory(LONG);
        status before = {0, 0, 0};
        fill(out, length(rank, number), rank, number);
        request sent = start_send(out, length(rank, number), next, number);
        int from = number % 2 ? ANY_RANK : previous;
        while (!is_there(from, number % 3 ? number : ANY_TAG, &before)) {
        }
        say("a message waits: from %d, tag %d, %d elements", before.source, before.tag, before.count);
        say("another tag: %d", is_there(previous, 1000, &before));
        say_message("probed", receive(data, before.count, before.source, before.tag), data);
        wait_for(&sent);
        free(out);
        barrier();
    }
    free(data);
}

/* A receive that is too short fails, and the next messages arrive. An MPI drops the message. */
static void truncated(void) {
    int data[100], next = (rank + 1) % size, previous = (rank + size - 1) % size;
    fill(data, 100, rank, 2);
    request sent[2] = {start_send(data, 100, next, 20), start_send(data, 50, next, 21)};
    int in[100] = {0};
    say("too short: %d", is_truncated(in, 99, previous, 20));
#ifndef WITH_MPI
    /* Here the message stays. */
    status it = receive(in, 100, previous, 20);
    if (it.count != 100) exit(3);
#endif
    say_message("after it", receive(in, 99, previous, 21), in);
    wait_for(&sent[0]), wait_for(&sent[1]);
}

int main(int argc, char **argv) {
    begin(&argc, &argv);
    seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 0;
    if (size > RANKS_MAX) return 2;
    reversed(0);
    reversed(1);
    halo();
    faces();
    wild();
    wild_by_one(0);
    wild_by_one(1);
    any_of_some();
    own();
    probed();
    truncated();
    end();
    return 0;
}
