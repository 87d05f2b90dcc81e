/*
 * A libibverbs without devices: queue pairs of one process write to each other's registered memory.
 * README.md lists the controls for tests.
 *
 * The structures have the layout of rdma-core's headers on 64-bit Linux, as far as callers read
 * them. One lock guards everything. No thread works in the background: every call, polling included,
 * tries the waiting requests again.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

enum { DEVICES = 4096, CONTEXTS = 8192 };
enum { STATE_RESET, STATE_INIT, STATE_RTR, STATE_RTS, STATE_ERROR = 6 };
enum { MASK_STATE = 1, MASK_AV = 1 << 7, MASK_MTU = 1 << 8, MASK_TIMEOUT = 1 << 9 };
enum { ACCESS_REMOTE_WRITE = 2, ACCESS_REMOTE_READ = 4 };
enum { FIRST_NUMBER = 100 };
enum { OP_WRITE = 0, OP_WRITE_WITH_NUMBER = 1, OP_READ = 4 };
enum { SEND_SIGNALED = 2, SEND_INLINE = 8 };
enum { WC_WRITE = 1, WC_READ = 2, WC_RECV_NUMBER = 129 };
enum { FLUSHED = 5, REMOTE_ACCESS = 10, RETRIES_EXHAUSTED = 12 };
enum { LOST = -1, NOT_READY = -2 };
enum { LINK_INFINIBAND = 1, GRH_REQUIRED = 1, PORT_DOWN = 1, PORT_ACTIVE = 4 };
enum { EVENT_FATAL = 8, EVENT_PORT_ACTIVE = 9, EVENT_PORT_ERROR = 10 };

/* The structures that callers see. */

struct device { void *ops[2]; int node_type, transport_type; char name[64], paths[576]; };
struct context {
    struct device *device;
    void *ops[32];
    int cmd_fd, async_fd, vectors;
    int events_in, of;
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
    bool is_armed;
    struct completion *found;
    int count, room;
};
struct wanted { void *user; struct queue *sends, *receives; void *shared; struct capacity most; int type, all; };
struct global { uint8_t gid[16]; uint32_t flow; uint8_t index, hops, class; } __attribute__((aligned(8)));
struct address { struct global global; uint16_t lid; uint8_t level, bits, rate, is_global, port; };
struct change {
    uint32_t state, current, mtu, migration, key, receive_sequence, send_sequence, number, access;
    struct capacity most;
    struct address to, alternative;
    uint16_t key_index, other_key_index;
    uint8_t notify, draining, reads, reads_there, not_ready, port, timeout, retries, not_ready_retries;
    uint8_t other_port, other_timeout;
    uint32_t rate;
};
struct port_entry { uint8_t gid[16]; uint32_t index, port, kind, interface; } __attribute__((aligned(8)));
struct event { void *element; int type; };
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

/* The state behind them. */

struct request {
    struct request *next;
    uint64_t id, remote;
    uint32_t opcode, flags, number, remote_key, bytes, to;
    struct piece into;
    uint64_t posted_at;
    uint8_t *payload;
};
struct queue_pair {
    struct context *context;
    void *user;
    struct domain *domain;
    struct queue *sends, *receives;
    void *shared;
    uint32_t handle, number;
    int state, of, timeout, retries;
    uint32_t peer, mtu;
    struct address to;
    struct request *first, *last;
    uint64_t moved_at;
    bool is_busy;
    struct queue_pair *next_busy;
    uint64_t *posted;
    int posted_count, posted_room;
};
/* Objects by number. Numbers are given once. */
struct table { void **all; uint32_t count, room; };
/* Queue pairs that may have waiting requests, in the order of their turns. */
struct busy { struct queue_pair *first, *last; };
struct hooks {
    bool holds, refuses_error, refuses_deregistration, refuses_destruction, is_fatal, flushes_never;
    int destruction_ms, repeats;
    uint32_t longest_packet, bytes_per_ms;
};
static struct {
    struct device device;
    struct port port;
    uint8_t gid[16];
    uint32_t kind;
    struct hooks hooks;
    struct request *held;
    uint64_t out_free_at, in_free_at;
    long carried;
} devices[DEVICES];
static int device_count;
static struct context *contexts[CONTEXTS];
static struct table queue_pairs, regions;
static struct busy busy;
static uint16_t router_lid;
static long live_domains, live_regions, live_queues, live_queue_pairs, live_contexts, region_bytes;
static long polls, doorbells, works, signalled, inlines, receive_posts;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static uint64_t now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (uint64_t)at.tv_sec * 1000000000u + (uint64_t)at.tv_nsec;
}

static uint32_t add(struct table *table, void *it) {
    if (table->count == table->room) {
        table->room = table->room ? 2 * table->room : 1024;
        table->all = realloc(table->all, table->room * sizeof *table->all);
        if (!table->all) abort();
    }
    table->all[table->count] = it;
    return FIRST_NUMBER + table->count++;
}

static void *find(struct table *table, uint32_t number) {
    uint32_t place = number - FIRST_NUMBER;
    return place < table->count ? table->all[place] : NULL;
}

static void append(struct busy *list, struct queue_pair *own) {
    own->next_busy = NULL;
    if (list->last) list->last->next_busy = own;
    else list->first = own;
    list->last = own;
}

static void complete(struct queue *queue, struct completion it) {
    if (queue->count == queue->room) {
        queue->room = queue->room ? 2 * queue->room : 64;
        queue->found = realloc(queue->found, (size_t)queue->room * sizeof it);
    }
    queue->found[queue->count++] = it;
    if (queue->is_armed) {
        queue->is_armed = false;
        if (write(queue->channel->in, &queue, sizeof queue) < 0) abort();
    }
}

static void done(struct queue_pair *own, struct request *it, uint32_t status) {
    uint32_t opcode = it->opcode == OP_READ ? WC_READ : WC_WRITE;
    if (status || it->flags & SEND_SIGNALED)
        complete(own->sends, (struct completion){ .id = it->id, .status = status,
                                                  .opcode = opcode, .queue_pair = own->number });
}

static void forget(struct request *it) {
    free(it->payload);
    free(it);
}

static struct request *take_first(struct queue_pair *own) {
    struct request *it = own->first;
    own->first = it->next;
    if (!own->first) own->last = NULL;
    return it;
}

/* Moves a queue pair to the error state: flushes its requests. The network keeps held ones. */
static void fail(struct queue_pair *own, uint32_t status) {
    struct hooks *hooks = &devices[own->of].hooks;
    own->state = STATE_ERROR;
    while (own->first) {
        struct request *it = take_first(own);
        if (!hooks->flushes_never) done(own, it, status);
        status = FLUSHED;
        if (hooks->holds) {
            it->next = devices[own->of].held;
            devices[own->of].held = it;
        } else {
            forget(it);
        }
    }
    if (hooks->flushes_never) return;
    for (int at = 0; at < own->posted_count; at++)
        complete(own->receives, (struct completion){ .id = own->posted[at], .status = FLUSHED,
                                                     .queue_pair = own->number });
    own->posted_count = 0;
}

static bool covers(struct region *it, uint64_t at, uint64_t bytes) {
    uint64_t begin = (uint64_t)it->address;
    return at >= begin && bytes <= it->length && at - begin <= it->length - bytes;
}

/* Returns whether packets with that address get to another device, by InfiniBand's rules. */
static bool leads_to(int from, struct address *address, int to) {
    struct port *own = &devices[from].port, *theirs = &devices[to].port;
    bool by_gid = address->is_global && memcmp(address->global.gid, devices[to].gid, 16) == 0;
    if (own->layer != theirs->layer) return false;
    if (own->layer != LINK_INFINIBAND) return by_gid;
    if (address->is_global && !by_gid) return false;
    if ((own->flags | theirs->flags) & GRH_REQUIRED && !by_gid) return false;
    if (memcmp(devices[from].gid, devices[to].gid, 8) == 0)
        return address->lid != 0 && address->lid == theirs->lid;
    return by_gid && address->lid != 0 && address->lid == router_lid;
}

static bool is_up(int device) { return devices[device].port.state == PORT_ACTIVE; }

/*
 * Lets a request arrive. Returns its status, LOST where nobody answers, or NOT_READY as long as the
 * receiver has no receive for it. A queue pair in error that flushes nothing is not stopped by its
 * device yet: it takes writes, and completes nothing.
 */
static int arrive(struct request *it) {
    struct queue_pair *to = find(&queue_pairs, it->to);
    if (!to) return LOST;
    bool lingers = to->state == STATE_ERROR && devices[to->of].hooks.flushes_never;
    if (to->state != STATE_RTR && to->state != STATE_RTS && !lingers) return LOST;
    bool tells = it->opcode == OP_WRITE_WITH_NUMBER;
    if (tells && to->posted_count == 0) return NOT_READY;
    if (it->bytes) {
        struct region *there = find(&regions, it->remote_key);
        int needed = it->opcode == OP_READ ? ACCESS_REMOTE_READ : ACCESS_REMOTE_WRITE;
        if (!there || there->domain != to->domain || !(there->access & needed) ||
            !covers(there, it->remote, it->bytes))
            return REMOTE_ACCESS;
        if (it->opcode == OP_READ) memcpy((void *)it->into.address, (void *)it->remote, it->bytes);
        else memcpy((void *)it->remote, it->payload, it->bytes);
    }
    int *repeats = &devices[to->of].hooks.repeats;
    for (int times = tells && !lingers; times > 0; times--) {
        if (*repeats > 0 && to->posted_count > 1) (*repeats)--, times++;
        uint64_t id = to->posted[0];
        memmove(to->posted, to->posted + 1, (size_t)--to->posted_count * sizeof id);
        complete(to->receives,
                 (struct completion){ .id = id, .opcode = WC_RECV_NUMBER, .bytes = it->bytes,
                                      .number = it->number, .queue_pair = to->number, .flags = 2 });
    }
    return 0;
}

/* Returns whether the longest packet of a request passes where long ones are lost. */
static bool passes(struct queue_pair *own, struct request *it) {
    uint32_t longest = devices[own->of].hooks.longest_packet;
    uint32_t mtu = 128u << own->mtu;
    return longest == 0 || (it->bytes < mtu ? it->bytes : mtu) <= longest;
}

/*
 * Returns whether a request has crossed the wire, which takes time where a device has a rate. The
 * slower of both devices counts.
 */
static bool crosses(struct queue_pair *own, struct queue_pair *to, struct request *it) {
    uint64_t ends_at = it->posted_at, cost = 0;
    uint64_t *free_at[] = { &devices[own->of].out_free_at, &devices[to->of].in_free_at };
    uint32_t rates[] = { devices[own->of].hooks.bytes_per_ms, devices[to->of].hooks.bytes_per_ms };
    for (int end = 0; end < 2; end++) {
        if (rates[end] == 0) continue;
        uint64_t takes = it->bytes * 1000000ull / rates[end];
        if (takes > cost) cost = takes;
        if (*free_at[end] > ends_at) ends_at = *free_at[end];
    }
    ends_at += cost;
    if (ends_at > now()) return false;
    for (int end = 0; end < 2; end++)
        if (rates[end]) *free_at[end] = ends_at;
    return true;
}

/*
 * Lets the first request of a queue pair arrive if it can, and fails it after it could not for too
 * long. Returns whether it is gone. The timer of the requester begins anew with all progress
 * (InfiniBand Architecture Specification, volume 1, 9.7.6.1.3), and a timeout of 0 never ends. It
 * waits without end for receivers that are not ready, as a count of 7 means (9.7.5.2.8).
 */
static bool try_first(struct queue_pair *own) {
    struct request *it = own->first;
    struct queue_pair *to = find(&queue_pairs, own->peer);
    bool is_open = !devices[own->of].hooks.holds && to && is_up(own->of) && is_up(to->of) &&
                   leads_to(own->of, &own->to, to->of) && passes(own, it);
    uint64_t patience = (4096ull << (own->timeout & 31)) * (uint64_t)(own->retries + 1);
    int status = is_open ? NOT_READY : LOST;
    if (is_open && crosses(own, to, it)) status = arrive(it);
    if (status == LOST) {
        if (own->timeout == 0 || now() <= own->moved_at + patience) return false;
        fail(own, RETRIES_EXHAUSTED);
        return true;
    }
    own->moved_at = now();
    if (status == NOT_READY) return false;
    if (status > 0) {
        fail(own, (uint32_t)status);
        return true;
    }
    devices[own->of].carried += it->bytes;
    done(own, it, 0);
    forget(take_first(own));
    return true;
}

/*
 * Lets every request arrive that can, and fails those that could not for too long. Queue pairs take
 * turns, one request each.
 */
static void move_on(void) {
    bool has_moved = true;
    while (has_moved) {
        struct busy waiting = { 0 }, moved = { 0 };
        for (struct queue_pair *own = busy.first, *next; own; own = next) {
            next = own->next_busy;
            own->is_busy = own->state == STATE_RTS && own->first;
            if (own->is_busy) append(try_first(own) ? &moved : &waiting, own);
        }
        has_moved = moved.first;
        busy = waiting.first ? waiting : moved;
        if (waiting.first && moved.first) {
            busy.last->next_busy = moved.first;
            busy.last = moved.last;
        }
    }
}

/* The drivers' functions. */

static int poll_queue(struct queue *queue, int most, struct completion *into) {
    pthread_mutex_lock(&lock);
    polls++;
    move_on();
    int count = queue->count < most ? queue->count : most;
    memcpy(into, queue->found, (size_t)count * sizeof *into);
    queue->count -= count;
    memmove(queue->found, queue->found + count, (size_t)queue->count * sizeof *into);
    pthread_mutex_unlock(&lock);
    return count;
}

static int arm_queue(struct queue *queue, int solicited) {
    (void)solicited;
    pthread_mutex_lock(&lock);
    queue->is_armed = true;
    pthread_mutex_unlock(&lock);
    return 0;
}

static int post_one(struct queue_pair *own, struct send *it) {
    if (it->opcode != OP_WRITE && it->opcode != OP_WRITE_WITH_NUMBER && it->opcode != OP_READ)
        return EINVAL;
    works++;
    signalled += (it->flags & SEND_SIGNALED) != 0;
    inlines += (it->flags & SEND_INLINE) != 0;
    struct request *made = calloc(1, sizeof *made);
    *made = (struct request){ .id = it->id, .remote = it->remote, .opcode = it->opcode,
                              .flags = it->flags, .number = it->number, .to = own->peer,
                              .remote_key = it->remote_key, .posted_at = now() };
    for (int at = 0; at < it->count; at++) made->bytes += it->pieces[at].length;
    made->payload = malloc(made->bytes + 1);
    if (it->opcode == OP_READ && it->count) made->into = it->pieces[0];
    uint8_t *to = made->payload;
    for (int at = 0; at < it->count && it->opcode != OP_READ; at++) {
        struct piece piece = it->pieces[at];
        struct region *from = find(&regions, piece.key);
        bool may = from && from->domain == own->domain && covers(from, piece.address, piece.length);
        if (!(it->flags & SEND_INLINE) && !may) {
            forget(made);
            return EFAULT;
        }
        memcpy(to, (void *)piece.address, piece.length);
        to += piece.length;
    }
    if (own->state == STATE_ERROR) {
        if (!devices[own->of].hooks.flushes_never) done(own, made, FLUSHED);
        forget(made);
        return 0;
    }
    if (own->last) own->last->next = made;
    else own->first = made, own->moved_at = made->posted_at;
    own->last = made;
    if (!own->is_busy) append(&busy, own);
    own->is_busy = true;
    return 0;
}

static int post_sends(struct queue_pair *own, struct send *first, struct send **bad) {
    int status = 0;
    pthread_mutex_lock(&lock);
    doorbells++;
    if (own->state != STATE_RTS && own->state != STATE_ERROR) status = EINVAL;
    for (struct send *it = first; it && !status; it = it->next)
        if ((status = post_one(own, it))) *bad = it;
    move_on();
    pthread_mutex_unlock(&lock);
    return status;
}

static int post_receives(struct queue_pair *own, struct receive *first, struct receive **bad) {
    (void)bad;
    pthread_mutex_lock(&lock);
    receive_posts++;
    for (struct receive *it = first; it; it = it->next) {
        if (own->state == STATE_ERROR && !devices[own->of].hooks.flushes_never) {
            complete(own->receives, (struct completion){ .id = it->id, .status = FLUSHED,
                                                         .queue_pair = own->number });
            continue;
        }
        if (own->posted_count == own->posted_room) {
            own->posted_room = own->posted_room ? 2 * own->posted_room : 64;
            own->posted = realloc(own->posted, (size_t)own->posted_room * sizeof *own->posted);
        }
        own->posted[own->posted_count++] = it->id;
    }
    move_on();
    pthread_mutex_unlock(&lock);
    return 0;
}

/* The library's functions. */

EXPORT struct device **ibv_get_device_list(int *count) {
    struct device **list = calloc(DEVICES + 1, sizeof *list);
    for (int at = 0; at < device_count; at++) list[at] = &devices[at].device;
    if (count) *count = device_count;
    return list;
}

EXPORT void ibv_free_device_list(struct device **list) { free(list); }
EXPORT int ibv_fork_init(void) { return 0; }

EXPORT struct context *ibv_open_device(struct device *device) {
    struct context *made = calloc(1, sizeof *made);
    int ends[2];
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK)) abort();
    made->device = device;
    made->ops[11] = (void *)poll_queue;
    made->ops[12] = (void *)arm_queue;
    made->ops[25] = (void *)post_sends;
    made->ops[26] = (void *)post_receives;
    made->async_fd = ends[0];
    made->events_in = ends[1];
    made->vectors = 1;
    for (int at = 0; at < device_count; at++)
        if (&devices[at].device == device) made->of = at;
    pthread_mutex_lock(&lock);
    int at = 0;
    while (at < CONTEXTS && contexts[at]) at++;
    if (at == CONTEXTS) abort();
    contexts[at] = made;
    live_contexts++;
    pthread_mutex_unlock(&lock);
    return made;
}

EXPORT int ibv_close_device(struct context *context) {
    pthread_mutex_lock(&lock);
    for (int at = 0; at < CONTEXTS; at++)
        if (contexts[at] == context) contexts[at] = NULL;
    live_contexts--;
    pthread_mutex_unlock(&lock);
    close(context->async_fd);
    close(context->events_in);
    free(context);
    return 0;
}

EXPORT int ibv_query_device(struct context *context, uint8_t *answer) {
    (void)context;
    int requests = 16384, completions = 1 << 20;
    memset(answer, 0, 232);
    memcpy(answer + 112, &requests, sizeof requests);
    memcpy(answer + 132, &completions, sizeof completions);
    answer[227] = 1;
    return 0;
}

EXPORT int ibv_query_port(struct context *context, uint8_t number, struct port *answer) {
    if (number != 1) return EINVAL;
    pthread_mutex_lock(&lock);
    *answer = devices[context->of].port;
    pthread_mutex_unlock(&lock);
    return 0;
}

EXPORT int _ibv_query_gid_ex(struct context *context, uint32_t port, uint32_t index,
                             struct port_entry *answer, uint32_t flags, size_t bytes) {
    (void)flags;
    if (port != 1 || index != 0 || bytes < sizeof *answer) return EINVAL;
    *answer = (struct port_entry){ .port = port, .kind = devices[context->of].kind };
    memcpy(answer->gid, devices[context->of].gid, 16);
    return 0;
}

EXPORT int ibv_get_async_event(struct context *context, struct event *event) {
    return read(context->async_fd, event, sizeof *event) == sizeof *event ? 0 : -1;
}

EXPORT void ibv_ack_async_event(struct event *event) { (void)event; }

EXPORT const char *ibv_event_type_str(int type) {
    switch (type) {
    case EVENT_FATAL: return "local catastrophic error";
    case EVENT_PORT_ACTIVE: return "port active";
    case EVENT_PORT_ERROR: return "port error";
    case 11: return "LID change";
    case 17: return "client reregistration";
    case 18: return "GID table change";
    default: return "unknown";
    }
}

EXPORT struct domain *ibv_alloc_pd(struct context *context) {
    struct domain *made = calloc(1, sizeof *made);
    made->context = context;
    __atomic_add_fetch(&live_domains, 1, __ATOMIC_SEQ_CST);
    return made;
}

EXPORT int ibv_dealloc_pd(struct domain *domain) {
    free(domain);
    __atomic_sub_fetch(&live_domains, 1, __ATOMIC_SEQ_CST);
    return 0;
}

EXPORT struct region *ibv_reg_mr_iova2(struct domain *domain, void *address, size_t length,
                                       uint64_t at, unsigned int access) {
    (void)at;
    struct region *made = calloc(1, sizeof *made);
    pthread_mutex_lock(&lock);
    uint32_t key = add(&regions, made);
    *made = (struct region){ .context = domain->context, .domain = domain, .address = address,
                             .length = length, .local_key = key, .remote_key = key,
                             .access = (int)access };
    live_regions++;
    region_bytes += (long)length;
    pthread_mutex_unlock(&lock);
    return made;
}

EXPORT int ibv_dereg_mr(struct region *region) {
    pthread_mutex_lock(&lock);
    int status = devices[region->context->of].hooks.refuses_deregistration ? EIO : 0;
    if (!status) {
        regions.all[region->local_key - FIRST_NUMBER] = NULL;
        live_regions--;
        region_bytes -= (long)region->length;
        free(region);
    }
    pthread_mutex_unlock(&lock);
    return status;
}

EXPORT struct channel *ibv_create_comp_channel(struct context *context) {
    struct channel *made = calloc(1, sizeof *made);
    int ends[2];
    if (pipe2(ends, O_CLOEXEC)) abort();
    *made = (struct channel){ .context = context, .fd = ends[0], .in = ends[1] };
    return made;
}

EXPORT int ibv_destroy_comp_channel(struct channel *channel) {
    close(channel->fd);
    close(channel->in);
    free(channel);
    return 0;
}

EXPORT struct queue *ibv_create_cq(struct context *context, int entries, void *user,
                                   struct channel *channel, int vector) {
    (void)vector;
    struct queue *made = calloc(1, sizeof *made);
    *made = (struct queue){ .context = context, .channel = channel, .user = user,
                            .entries = entries };
    __atomic_add_fetch(&live_queues, 1, __ATOMIC_SEQ_CST);
    return made;
}

EXPORT int ibv_destroy_cq(struct queue *queue) {
    free(queue->found);
    free(queue);
    __atomic_sub_fetch(&live_queues, 1, __ATOMIC_SEQ_CST);
    return 0;
}

EXPORT int ibv_get_cq_event(struct channel *channel, struct queue **queue, void **user) {
    if (read(channel->fd, queue, sizeof *queue) != sizeof *queue) return -1;
    *user = (*queue)->user;
    return 0;
}

EXPORT void ibv_ack_cq_events(struct queue *queue, unsigned int count) {
    (void)queue;
    (void)count;
}

EXPORT struct queue_pair *ibv_create_qp(struct domain *domain, struct wanted *wanted) {
    struct queue_pair *made = calloc(1, sizeof *made);
    pthread_mutex_lock(&lock);
    *made = (struct queue_pair){ .context = domain->context, .domain = domain,
                                 .sends = wanted->sends, .receives = wanted->receives,
                                 .number = add(&queue_pairs, made), .of = domain->context->of };
    live_queue_pairs++;
    pthread_mutex_unlock(&lock);
    return made;
}

EXPORT int ibv_modify_qp(struct queue_pair *own, struct change *change, int mask) {
    int status = 0;
    pthread_mutex_lock(&lock);
    struct hooks *hooks = &devices[own->of].hooks;
    if (mask & MASK_STATE && change->state == STATE_ERROR) {
        if (hooks->refuses_error || hooks->is_fatal) status = EIO;
        else if (own->state != STATE_ERROR) fail(own, FLUSHED);
    } else if (mask & MASK_STATE) {
        if (own->state + 1 != (int)change->state) status = EINVAL;
        else own->state = (int)change->state;
    }
    if (!status && mask & MASK_AV) {
        own->to = change->to;
        own->peer = change->number;
    }
    if (!status && mask & MASK_MTU) own->mtu = change->mtu;
    if (!status && mask & MASK_TIMEOUT) {
        own->timeout = change->timeout;
        own->retries = change->retries;
    }
    move_on();
    pthread_mutex_unlock(&lock);
    return status;
}

EXPORT int ibv_destroy_qp(struct queue_pair *own) {
    pthread_mutex_lock(&lock);
    int wait = devices[own->of].hooks.destruction_ms;
    pthread_mutex_unlock(&lock);
    struct timespec time = { wait / 1000, (long)(wait % 1000) * 1000000 };
    nanosleep(&time, NULL);
    pthread_mutex_lock(&lock);
    if (devices[own->of].hooks.refuses_destruction) {
        pthread_mutex_unlock(&lock);
        return EBUSY;
    }
    queue_pairs.all[own->number - FIRST_NUMBER] = NULL;
    live_queue_pairs--;
    while (own->first) {
        struct request *it = take_first(own);
        if (devices[own->of].hooks.holds) {
            it->next = devices[own->of].held;
            devices[own->of].held = it;
        } else {
            forget(it);
        }
    }
    struct queue *queue = own->receives;
    int kept = 0;
    for (int at = 0; at < queue->count; at++)
        if (queue->found[at].queue_pair != own->number) queue->found[kept++] = queue->found[at];
    queue->count = kept;
    move_on();
    free(own->posted);
    free(own);
    pthread_mutex_unlock(&lock);
    return 0;
}

/* The controls of tests. */

EXPORT int fake_device(const char *name, int layer, int flags, int lid, const uint8_t *gid, int kind) {
    int at = device_count++;
    if (at == DEVICES) abort();
    strncpy(devices[at].device.name, name, 63);
    devices[at].port = (struct port){ .state = PORT_ACTIVE, .mtu_most = 5, .mtu = 5, .gids = 1,
                                      .message_most = 1u << 31, .keys = 1, .lid = (uint16_t)lid,
                                      .width = 2, .speed = 64, .layer = (uint8_t)layer,
                                      .flags = (uint8_t)flags };
    memcpy(devices[at].gid, gid, 16);
    devices[at].kind = (uint32_t)kind;
    return at;
}

EXPORT void fake_event(int device, int type) {
    struct event event = { .element = (void *)1, .type = type };
    pthread_mutex_lock(&lock);
    if (type == EVENT_FATAL) devices[device].hooks.is_fatal = true;
    if (type == EVENT_PORT_ACTIVE) devices[device].port.state = PORT_ACTIVE;
    if (type == EVENT_PORT_ERROR) devices[device].port.state = PORT_DOWN;
    for (int at = 0; at < CONTEXTS; at++)
        if (contexts[at] && contexts[at]->of == device &&
            write(contexts[at]->events_in, &event, sizeof event) < 0)
            abort();
    move_on();
    pthread_mutex_unlock(&lock);
}

/* Gives the port another LID and GID; a GID of zeros takes the GID away. */
EXPORT void fake_move(int device, int lid, const uint8_t *gid) {
    pthread_mutex_lock(&lock);
    devices[device].port.lid = (uint16_t)lid;
    memcpy(devices[device].gid, gid, 16);
    move_on();
    pthread_mutex_unlock(&lock);
}

EXPORT void fake_break(int device, int status) {
    pthread_mutex_lock(&lock);
    for (uint32_t place = 0; place < queue_pairs.count; place++) {
        struct queue_pair *own = queue_pairs.all[place];
        if (own && own->of == device && own->state == STATE_RTS) fail(own, (uint32_t)status);
    }
    pthread_mutex_unlock(&lock);
}

/* Sets a hook of a device. */
EXPORT void fake_hook(int device, int hook, int value) {
    pthread_mutex_lock(&lock);
    struct hooks *hooks = &devices[device].hooks;
    switch (hook) {
    case 0: hooks->holds = value; break;
    case 1: hooks->refuses_error = value; break;
    case 2: hooks->flushes_never = value; break;
    case 3: hooks->destruction_ms = value; break;
    case 4: hooks->refuses_deregistration = value; break;
    case 5: hooks->refuses_destruction = value; break;
    case 6: hooks->longest_packet = (uint32_t)value; break;
    case 7: hooks->bytes_per_ms = (uint32_t)value; break;
    case 9: hooks->repeats = value; break;
    default: abort();
    }
    move_on();
    pthread_mutex_unlock(&lock);
}

/* Lets held requests arrive, even of queue pairs that are gone. Returns how many arrived. */
EXPORT int fake_release(int device) {
    int arrived = 0;
    pthread_mutex_lock(&lock);
    devices[device].hooks.holds = false;
    for (struct request *it = devices[device].held, *next; it; it = next) {
        next = it->next;
        arrived += arrive(it) == 0;
        forget(it);
    }
    devices[device].held = NULL;
    move_on();
    pthread_mutex_unlock(&lock);
    return arrived;
}

/* Lets the port train to a width and speed, without an event. */
EXPORT void fake_train(int device, int width, int speed) {
    pthread_mutex_lock(&lock);
    devices[device].port.width = (uint8_t)width;
    devices[device].port.speed = (uint8_t)speed;
    pthread_mutex_unlock(&lock);
}

/* Returns the bytes that have left the device. */
EXPORT long fake_carried(int device) {
    pthread_mutex_lock(&lock);
    long carried = devices[device].carried;
    pthread_mutex_unlock(&lock);
    return carried;
}

EXPORT void fake_router(int lid) { router_lid = (uint16_t)lid; }

EXPORT long fake_count(int what) {
    pthread_mutex_lock(&lock);
    long counts[] = { live_domains, live_regions, live_queues,  live_queue_pairs, polls,
                      doorbells,    works,        signalled,    inlines,          receive_posts,
                      region_bytes, live_contexts };
    pthread_mutex_unlock(&lock);
    return counts[what];
}
