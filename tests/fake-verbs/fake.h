/*
 * The structures of the library that callers see, and the state of its devices behind them.
 *
 * "IBA" is the InfiniBand Architecture Specification, volume 1. The structures have the layout of
 * rdma-core's headers on 64-bit Linux, as far as callers read them.
 */
#pragma once
#define _GNU_SOURCE
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#define EXPORT __attribute__((visibility("default")))

enum { VECTORS = 4, DEVICES = 4096, PORTS = 4, KEYS = 4, GIDS = 4, CONTEXTS = 8192, PIECES = 4, FIRST_NUMBER = 100 };
/* The bit that tells a window's key from a region's. */
#define WINDOW_KEY 0x80000000u
enum { STATE_RESET, STATE_INIT, STATE_RTR, STATE_RTS, STATE_ERROR = 6 };
enum { ACCESS_LOCAL_WRITE = 1, ACCESS_REMOTE_WRITE = 2, ACCESS_REMOTE_READ = 4 };
enum { OP_WRITE = 0, OP_WRITE_WITH_NUMBER = 1, OP_READ = 4, OP_INVALIDATE = 7, OP_BIND = 8 };
/* Kinds of work (ibv_qp_create_send_ops_flags). */
enum { KIND_WRITE = 1, KIND_WRITE_WITH_NUMBER = 2, KIND_READ = 16, KIND_ATOMIC = 32 + 64 };
enum { KIND_INVALIDATE = 128, KIND_BIND = 256 };
enum { SEND_SIGNALED = 2, SEND_INLINE = 8 };
enum { WC_WRITE = 1, WC_READ = 2, WC_BIND = 5, WC_INVALIDATE = 6, WC_RECV_NUMBER = 129 };
enum { LOCAL_PROTECTION = 4, FLUSHED = 5, REMOTE_ACCESS = 10, RETRIES_EXHAUSTED = 12 };
enum { PORT_DOWN = 1, PORT_ACTIVE = 4 };
enum { EVENT_CQ_ERROR = 0, EVENT_FATAL = 8, EVENT_PORT_ACTIVE = 9, EVENT_PORT_ERROR = 10 };

/* The structures that callers see. */

struct device { void *ops[2]; int node_type, transport_type; char name[64], paths[576]; };
struct context {
    struct device *device;
    void *ops[32];
    int cmd_fd, async_fd, vectors;
    pthread_mutex_t mutex;
    void *abi;
    int events_in, of;
};
/* A context with the fields before it (struct verbs_context), up to the function for queue pairs. */
struct whole_context {
    void *create_queue_pair, *others[4];
    uint64_t placeholder;
    size_t size;
    struct context context;
};
struct domain { struct context *context; uint32_t handle; };
struct channel { struct context *context; int fd, references, in; };
struct region {
    struct context *context;
    struct domain *domain;
    void *address;
    size_t length;
    uint32_t handle, local_key, remote_key;
    int access;
};
struct completion {
    uint64_t id;
    uint32_t status, opcode, vendor, bytes, number, queue_pair, source, flags;
    uint16_t key_index, source_lid;
    uint8_t level, path_bits;
};
struct piece { uint64_t address; uint32_t length, key; };
struct receive { uint64_t id; struct receive *next; struct piece *pieces; int count; };
struct send {
    uint64_t id;
    struct send *next;
    struct piece *pieces;
    int count;
    uint32_t opcode, flags, number;
    uint64_t remote;
    uint32_t remote_key;
    uint64_t rest[9];
};
struct capacity { uint32_t sends, receives, send_pieces, receive_pieces, inline_bytes; };
struct queue {
    struct context *context;
    struct channel *channel;
    void *user;
    uint32_t handle;
    int entries;
    uint32_t number;
    bool is_armed, is_overrun;
    /* Events about the queue that were given to the caller, and that it has acknowledged. */
    uint32_t given, acknowledged;
    struct entry *found;
    int count;
};
struct wanted {
    void *user;
    struct queue *sends, *receives;
    void *shared;
    struct capacity most;
    int type, all;
};
/* With the fields that count: a domain, and the kinds of work. */
struct more_wanted {
    void *user;
    struct queue *sends, *receives;
    void *shared;
    struct capacity most;
    int type, all;
    uint32_t mask;
    struct domain *domain;
    uint64_t rest[7], kinds;
};
struct global {
    uint8_t gid[16];
    uint32_t flow;
    uint8_t index, hops, class;
} __attribute__((aligned(8)));
struct address { struct global global; uint16_t lid; uint8_t level, bits, rate, is_global, port; };
struct change {
    uint32_t state, current, mtu, migration, key, receive_sequence, send_sequence, number, access;
    struct capacity most;
    struct address to, alternative;
    uint16_t key_index, other_key_index;
    uint8_t notify, draining, reads, reads_there, not_ready, port, timeout, retries;
    uint8_t not_ready_retries, other_port, other_timeout;
    uint32_t rate;
};
struct port_entry {
    uint8_t gid[16];
    uint32_t index, port, kind, interface;
} __attribute__((aligned(8)));
struct event { void *element; int type; };
struct options { uint32_t vendor, options, mask; };
/* Up to the last field that this symbol ever filled in: callers may have room for no more. */
struct port {
    uint32_t state, mtu_most, mtu;
    int gids;
    uint32_t capabilities, message_most, bad_keys, violations;
    uint16_t keys, lid, manager_lid;
    uint8_t mask, lanes, manager_level, timeout, reply, width, speed, physical, layer, flags;
};
_Static_assert(sizeof(struct port) == 48, "port");
_Static_assert(sizeof(struct completion) == 48, "completion");
_Static_assert(sizeof(struct send) == 128, "send");
_Static_assert(sizeof(struct change) == 144, "change");
_Static_assert(sizeof(struct wanted) == 64, "wanted");
_Static_assert(sizeof(struct more_wanted) == 136, "more_wanted");

/* The state behind them. */

/* A completion, and the number of the send that it completes; 0 for a receive. */
struct entry { struct completion it; uint64_t send; };
struct window;
/* The key, place and rights that a window gets. */
struct binding { struct window *window; uint32_t key, region; uint64_t begin, length; int access; };
struct request {
    struct request *next;
    struct domain *domain;
    uint64_t id, send, remote, posted_at;
    uint32_t opcode, flags, number, remote_key, bytes, to, mtu;
    struct piece pieces[PIECES];
    int count;
    struct binding binding;
    /* The bytes, where they were copied: inline, or into the network. */
    uint8_t *payload;
    /* The packets that have landed, and the order in which they land. */
    uint32_t landed, first_packet, stride;
    bool has_crossed, is_reply_lost;
};
struct queue_pair {
    struct context *context;
    void *user;
    struct domain *domain;
    struct queue *sends, *receives;
    void *shared;
    uint32_t handle, number;
    int state, of, port, timeout, retries;
    uint16_t key_index;
    uint32_t peer, mtu;
    struct address to;
    struct capacity most;
    /* The kinds of work that it can do, and the bytes of its queues. */
    uint64_t kinds;
    long bytes;
    uint32_t options, wanted_options;
    /* Sends and receives posted, and those whose place is free again. */
    uint64_t sends_posted, sends_freed, receives_posted, receives_freed;
    /* The oldest request without an answer, the first that has not arrived, and the last. */
    struct request *first, *pending, *last;
    uint64_t moved_at;
    bool is_busy;
    struct queue_pair *next_busy;
    uint64_t *posted;
    int posted_count, posted_room;
};
/* Objects by number. Numbers are given once. */
struct table { void **all; uint32_t count, room; };
/* More of an entry of a table of GIDs: a GID of another namespace sends and takes no packets. */
struct further_gid { uint8_t gid[16]; uint32_t interface; bool is_elsewhere; };
struct outlet {
    struct port seen;
    uint8_t gid[16];
    /* By index. Entry 0 has its GID above. */
    struct further_gid further[GIDS];
    /* The table of partition keys. */
    uint16_t keys[KEYS];
    uint32_t kind;
    bool holds, loses_replies;
    uint32_t longest_packet, bytes_per_ms;
    uint64_t out_free_at, in_free_at;
    long carried;
};
struct nic {
    struct device device;
    struct outlet ports[PORTS];
    int port_count;
    bool is_old, refuses_ready, refuses_error, refuses_destruction, refuses_registration;
    bool is_fatal, flushes_never;
    int destruction_ms, flush_ms, registration_ms, deregistration_error, repeats;
    uint32_t options;
    /* The completion vectors that queues were made for, as bits. */
    uint32_t vectors;
    struct request *held;
};
struct counts {
    long domains, regions, queues, queue_pairs, polls, doorbells, works, signalled, inlines;
    long receive_posts, region_bytes, contexts, windows, queue_bytes;
};

extern struct nic nics[DEVICES];
extern int nic_count;
extern struct context *contexts[CONTEXTS];
extern struct table queue_pairs, regions, queues;
extern uint16_t router_lid;
extern struct counts counts;
extern uint64_t disorder;
extern int fork_status;
/* One lock guards everything. */
extern pthread_mutex_t lock;

/* The functions of wire.c. Their callers hold the lock. */

bool covers(struct region *it, struct domain *domain, uint64_t at, uint64_t bytes);
uint32_t add(struct table *table, void *it);
void *find(struct table *table, uint32_t number);
void drop(struct table *table, uint32_t number);
struct outlet *outlet_of(struct queue_pair *own);
void raise_event(int of, void *element, int type);
void fail_queue(struct queue *queue);
void complete(struct queue *queue, struct entry entry);
void flush(struct queue_pair *own, struct queue *queue, struct entry entry);
struct entry outcome(struct queue_pair *own, struct request *it, uint32_t status);
void enqueue(struct queue_pair *own, struct request *it);
void forget(struct request *it);
void fail(struct queue_pair *own, uint32_t status);
int arrive(struct request *it, bool is_whole);
void drain(struct queue_pair *own);
void forget_completions(struct queue *queue, uint32_t number);
void move_on(void);

/* The functions of windows.c. The first two take the lock. */

struct window *alloc_window(struct domain *domain, int type);
int dealloc_window(struct window *window);
struct binding binding_of(struct send *it);
int change_window(struct queue_pair *own, struct request *it);
bool window_admits(struct queue_pair *to, struct request *it, int needed);
