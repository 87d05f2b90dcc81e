/*
 * The limit of the network between hosts: a ring of plain TCP connections with one process on each
 * host, which sends to the next and receives from the previous one at the same time.
 *
 *     wire RANKS ADDRESS...     the variable RANK is this process's number
 *
 * Rank 0 prints `wire MICROSECONDS GB/S`: the latency of one byte from host to host, and the rate of
 * every host while all send, both the best of several tries.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { PORT = 29517, PATIENCE_S = 20, ROUND_TRIPS = 500, TRIES = 5, PIECE = 1 << 18 };

static const double TRY_S = 0.5;
static int next_host, previous_host;
static char to_send[PIECE], received[PIECE];

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static struct sockaddr_in address_of(const char *text) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    if (inet_pton(AF_INET, text, &address.sin_addr) != 1) fail(text);
    return address;
}

static void at_once(int connection) {
    int yes = 1;
    setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
}

static void join_ring(const char *own, const char *next) {
    struct sockaddr_in here = address_of(own), there = address_of(next);
    int listener = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(listener, (struct sockaddr *)&here, sizeof here) != 0 || listen(listener, 1) != 0)
        fail("listen");
    double until = now() + PATIENCE_S;
    for (;;) {
        next_host = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(next_host, (struct sockaddr *)&there, sizeof there) == 0) break;
        if (now() > until) fail("connect");
        close(next_host);
        usleep(10000);
    }
    previous_host = accept(listener, NULL, NULL);
    if (previous_host < 0) fail("accept");
    at_once(next_host);
    at_once(previous_host);
}

static void send_all(const char *bytes, size_t length) {
    while (length > 0) {
        ssize_t sent = send(next_host, bytes, length, 0);
        if (sent < 0 && errno == EINTR) continue;
        if (sent <= 0) fail("send");
        bytes += sent;
        length -= (size_t)sent;
    }
}

static void receive_all(size_t length) {
    while (length > 0) {
        size_t most = length < PIECE ? length : PIECE;
        ssize_t got = recv(previous_host, received, most, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) fail("recv");
        length -= (size_t)got;
    }
}

/* Seconds of one byte from a host to the next, as it travels round the ring. */
static double pass_around(int rank, int ranks) {
    double start = now();
    for (int trip = 0; trip < ROUND_TRIPS; trip++) {
        if (rank == 0) send_all(to_send, 1);
        receive_all(1);
        if (rank != 0) send_all(to_send, 1);
    }
    return (now() - start) / ROUND_TRIPS / ranks;
}

static void *send_pieces(void *argument) {
    for (long piece = 0; piece < *(long *)argument; piece++) send_all(to_send, PIECE);
    return NULL;
}

/* Seconds until this host has sent and received `pieces` pieces. */
static double flood(long pieces) {
    pthread_t sender;
    double start = now();
    if (pthread_create(&sender, NULL, send_pieces, &pieces) != 0) fail("pthread_create");
    receive_all((size_t)pieces * PIECE);
    pthread_join(sender, NULL);
    return now() - start;
}

int main(int argc, char **argv) {
    const char *text = getenv("RANK");
    int ranks = argc > 1 ? atoi(argv[1]) : 0, rank = text ? atoi(text) : -1;
    if (ranks < 2 || argc < ranks + 2 || rank < 0 || rank >= ranks) {
        fprintf(stderr, "RANK=N wire RANKS ADDRESS...\n");
        return 2;
    }
    join_ring(argv[2 + rank], argv[2 + (rank + 1) % ranks]);
    double least = 1e9, rate = 0;
    for (int attempt = 0; attempt < TRIES; attempt++) {
        double time = pass_around(rank, ranks);
        if (time < least) least = time;
    }
    /* The token buckets of shaped links are full at first. The first try empties them. */
    for (int attempt = 0; attempt <= TRIES; attempt++) {
        static long pieces = 40;
        pass_around(rank, ranks);
        double time = flood(pieces);
        double reached = (double)pieces * PIECE / time / 1e9;
        if (attempt > 0 && reached > rate) rate = reached;
        /* All hosts need the same number, so rank 0 sends it round. */
        if (attempt == 0) {
            long wanted = (long)((double)pieces * TRY_S / time) + 1;
            if (rank == 0) send_all((char *)&wanted, sizeof wanted);
            size_t got = 0;
            while (got < sizeof wanted) {
                ssize_t some = recv(previous_host, (char *)&wanted + got, sizeof wanted - got, 0);
                if (some <= 0) fail("recv");
                got += (size_t)some;
            }
            if (rank != 0) send_all((char *)&wanted, sizeof wanted);
            pieces = wanted;
        }
    }
    if (rank == 0) printf("wire %.2f %.4f\n", least * 1e6, rate);
    return 0;
}
