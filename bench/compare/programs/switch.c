// A switch between hosts with tunnels: switch DELAY BYTE FILE:ADDRESS...
//
// A packet arrives DELAY nanoseconds after it left its host. If BYTE is above 0, each link carries
// one byte in so many picoseconds in each direction, and one packet after the other. The switch
// passes on the first byte of a packet before the last has come. Queues have no end, so no packet is
// lost. FILE is the number of an open tunnel, and ADDRESS that of its host, in the order of the
// network.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

// Nanoseconds for which a link takes packets before their time, since this program may be late.
#define AHEAD 1000000
#define HOSTS 256
#define LONGEST 65536

struct packet {
    struct packet *next;
    int64_t at;
    int to;
    ssize_t length;
    char bytes[];
};

// Packets in the order of their times.
struct queue {
    struct packet *first, *last;
};

struct host {
    uint32_t address;
    // Times from which its links have room.
    int64_t out, into;
    // Packets from it on their way, and packets to it in the switch.
    struct queue sent, arriving;
};

static struct host hosts[HOSTS];
static struct pollfd files[HOSTS];
static int count;

static int64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

static int64_t later(int64_t one, int64_t other) { return one > other ? one : other; }
static int64_t sooner(int64_t one, int64_t other) { return one < other ? one : other; }

static void add(struct queue *queue, struct packet *packet) {
    packet->next = NULL;
    if (queue->first)
        queue->last->next = packet;
    else
        queue->first = packet;
    queue->last = packet;
}

static struct packet *take(struct queue *queue) {
    struct packet *packet = queue->first;
    queue->first = packet->next;
    return packet;
}

static int64_t next_of(const struct queue *queue) {
    return queue->first ? queue->first->at : INT64_MAX;
}

// Returns the host of an IPv4 packet, or -1. Others have none here.
static int receiver(const char *bytes, ssize_t length) {
    uint32_t address;
    if (length < 20 || (unsigned char)bytes[0] >> 4 != 4)
        return -1;
    memcpy(&address, bytes + 16, sizeof address);
    for (int at = 0; at < count; at++)
        if (hosts[at].address == address)
            return at;
    return -1;
}

// Takes a packet from a host.
static void read_from(int from, int64_t delay, double byte) {
    static char bytes[LONGEST];
    ssize_t length = read(files[from].fd, bytes, sizeof bytes);
    int to = receiver(bytes, length);
    if (to < 0)
        return;
    struct packet *packet = malloc(sizeof *packet + length);
    if (!packet)
        exit(1);
    memcpy(packet->bytes, bytes, length);
    packet->to = to;
    packet->length = length;
    int64_t start = later(now(), hosts[from].out);
    hosts[from].out = start + (int64_t)(length * byte);
    packet->at = start + delay;
    add(&hosts[from].sent, packet);
}

// Gives a packet whose first byte has come its time on the link to its host, for the earliest one.
// Returns 0 if there is none.
static int pass_on(double byte) {
    int first = 0;
    for (int at = 1; at < count; at++)
        if (next_of(&hosts[at].sent) < next_of(&hosts[first].sent))
            first = at;
    if (next_of(&hosts[first].sent) > now())
        return 0;
    struct packet *packet = take(&hosts[first].sent);
    struct host *to = &hosts[packet->to];
    to->into = later(packet->at, to->into) + (int64_t)(packet->length * byte);
    packet->at = to->into;
    add(&to->arriving, packet);
    return 1;
}

int main(int argc, char **argv) {
    if (argc < 3 || argc > 3 + HOSTS)
        return 2;
    int64_t delay = atoll(argv[1]);
    double byte = atof(argv[2]) / 1e3;
    for (count = 0; count < argc - 3; count++) {
        char address[32];
        if (sscanf(argv[3 + count], "%d:%31s", &files[count].fd, address) != 2)
            return 2;
        hosts[count].address = inet_addr(address);
    }
    // A cable waits for no CPU.
    struct sched_param first = {.sched_priority = 1};
    sched_setscheduler(0, SCHED_FIFO, &first);
    for (;;) {
        int64_t start = now(), until = start + 100000000;
        for (int at = 0; at < count; at++) {
            int is_able = hosts[at].out <= start + AHEAD;
            files[at].events = is_able ? POLLIN : 0;
            if (!is_able)
                until = sooner(until, hosts[at].out - AHEAD);
            until = sooner(until, next_of(&hosts[at].sent));
            until = sooner(until, next_of(&hosts[at].arriving));
        }
        struct timespec left = {.tv_nsec = later(until - start, 0)};
        if (ppoll(files, count, &left, NULL) < 0)
            return 1;
        for (int at = 0; at < count; at++)
            if (files[at].revents & POLLIN)
                read_from(at, delay, byte);
        while (pass_on(byte)) {
        }
        for (int at = 0; at < count; at++)
            while (next_of(&hosts[at].arriving) <= now()) {
                struct packet *packet = take(&hosts[at].arriving);
                if (write(files[at].fd, packet->bytes, packet->length) < 0) {
                    // A full queue of the host, or none any more.
                }
                free(packet);
            }
    }
}
