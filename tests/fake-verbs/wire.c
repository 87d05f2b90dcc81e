/*
 * Requests on their way: packets, answers, retries and flushes. No thread works in the background:
 * every call, polling included, tries the waiting requests again.
 */
#include "fake.h"
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LINK_INFINIBAND = 1, GRH_REQUIRED = 1 };
/* The states of a request that has not arrived: nobody answers, or it takes its time. */
enum { LOST = -1, WAITS = -2 };

/* Queue pairs that may have waiting requests, in the order of their turns. */
struct busy { struct queue_pair *first, *last; };
/* A completion that a device is late with. */
struct late { struct late *next; uint64_t at; struct queue *queue; struct entry entry; };

static struct busy busy;
static struct late *late;

static uint64_t now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (uint64_t)at.tv_sec * 1000000000u + (uint64_t)at.tv_nsec;
}

/* Returns a random number below `end`; always 0 without a seed. */
static uint32_t below(uint32_t end) {
    if (!disorder) return 0;
    disorder ^= disorder << 13;
    disorder ^= disorder >> 7;
    disorder ^= disorder << 17;
    return (uint32_t)((disorder >> 16) % end);
}

/* Returns true once in so many times; never without a seed. */
static bool once_in(uint32_t times) { return below(times) == times - 1; }

uint32_t add(struct table *table, void *it) {
    if (table->count == table->room) {
        table->room = table->room ? 2 * table->room : 1024;
        table->all = realloc(table->all, table->room * sizeof *table->all);
        if (!table->all) abort();
    }
    table->all[table->count] = it;
    return FIRST_NUMBER + table->count++;
}

void *find(struct table *table, uint32_t number) {
    uint32_t place = number - FIRST_NUMBER;
    return place < table->count ? table->all[place] : NULL;
}

void drop(struct table *table, uint32_t number) { table->all[number - FIRST_NUMBER] = NULL; }

struct outlet *outlet_of(struct queue_pair *own) { return &nics[own->of].ports[own->port - 1]; }

void raise_event(int of, void *element, int type) {
    struct event event = { .element = element, .type = type };
    for (int at = 0; at < CONTEXTS; at++)
        if (contexts[at] && contexts[at]->of == of &&
            write(contexts[at]->events_in, &event, sizeof event) < 0)
            abort();
}

/* Reports that a queue is in error, once. */
void fail_queue(struct queue *queue) {
    struct event event = { .element = queue, .type = EVENT_CQ_ERROR };
    if (!queue->is_overrun && write(queue->context->events_in, &event, sizeof event) < 0) abort();
    queue->is_overrun = true;
}

/* A queue that has no room left is in error (IBV_EVENT_CQ_ERR in ibv_get_async_event(3)). */
void complete(struct queue *queue, struct entry entry) {
    if (queue->count == queue->entries) return fail_queue(queue);
    queue->found[queue->count++] = entry;
    if (queue->is_armed) {
        queue->is_armed = false;
        if (write(queue->channel->in, &queue, sizeof queue) < 0) abort();
    }
}

/*
 * Completes work of a queue pair in error. The state is reached first, and the completions come at
 * any time after that (IBA 10.3.1.7).
 */
void flush(struct queue_pair *own, struct queue *queue, struct entry entry) {
    struct nic *nic = &nics[own->of];
    if (nic->flushes_never) return;
    if (nic->flush_ms == 0) return complete(queue, entry);
    struct late *made = malloc(sizeof *made), **end = &late;
    *made = (struct late){ .at = now() + (uint64_t)nic->flush_ms * 1000000, .queue = queue,
                           .entry = entry };
    while (*end) end = &(*end)->next;
    *end = made;
}

static void complete_late(void) {
    for (struct late **at = &late, *it; (it = *at);) {
        if (it->at > now()) {
            at = &it->next;
            continue;
        }
        *at = it->next;
        complete(it->queue, it->entry);
        free(it);
    }
}

struct entry outcome(struct queue_pair *own, struct request *it, uint32_t status) {
    uint32_t opcode = it->opcode == OP_READ         ? WC_READ
                      : it->opcode == OP_BIND       ? WC_BIND
                      : it->opcode == OP_INVALIDATE ? WC_INVALIDATE
                                                    : WC_WRITE;
    struct completion made = { .id = it->id, .status = status, .queue_pair = own->number,
                               .opcode = opcode };
    return (struct entry){ .it = made, .send = it->send };
}

void forget(struct request *it) {
    free(it->payload);
    free(it);
}

void enqueue(struct queue_pair *own, struct request *it) {
    it->posted_at = now();
    if (!own->first) own->moved_at = it->posted_at;
    if (own->first) own->last->next = it;
    else own->first = it;
    own->last = it;
    if (!own->pending) own->pending = it;
    if (own->is_busy) return;
    own->is_busy = true;
    own->next_busy = NULL;
    if (busy.first) busy.last->next_busy = own;
    else busy.first = own;
    busy.last = own;
}

static struct request *take_first(struct queue_pair *own) {
    struct request *it = own->first;
    own->first = it->next;
    if (own->pending == it) own->pending = it->next;
    return it;
}

/* Copies some bytes of a request, as they are in memory at this moment. */
static void gather(struct request *it, uint32_t from, uint32_t bytes, uint8_t *into) {
    if (it->payload) {
        memcpy(into, it->payload + from, bytes);
        return;
    }
    for (int at = 0; bytes; at++) {
        struct piece *piece = &it->pieces[at];
        if (from >= piece->length) {
            from -= piece->length;
            continue;
        }
        uint32_t some = piece->length - from < bytes ? piece->length - from : bytes;
        memcpy(into, (uint8_t *)piece->address + from, some);
        into += some;
        bytes -= some;
        from = 0;
    }
}

bool covers(struct region *it, struct domain *domain, uint64_t at, uint64_t bytes) {
    if (!it || it->domain != domain) return false;
    uint64_t begin = (uint64_t)it->address;
    return at >= begin && bytes <= it->length && at - begin <= it->length - bytes;
}

/*
 * Returns whether the device may access the local memory of a request, which it checks when it
 * executes the request. Inline bytes have no key (rdma-core's ibv_post_send(3)).
 */
static bool has_local(struct request *it) {
    for (int at = 0; at < it->count && !it->payload; at++) {
        struct piece *piece = &it->pieces[at];
        struct region *from = find(&regions, piece->key);
        if (!covers(from, it->domain, piece->address, piece->length)) return false;
        if (it->opcode == OP_READ && !(from->access & ACCESS_LOCAL_WRITE)) return false;
    }
    return true;
}

/* Returns whether a request may access the receiver's memory. */
static bool may_access(struct queue_pair *to, struct request *it, int needed) {
    if (it->remote_key & WINDOW_KEY) return window_admits(to, it, needed);
    struct region *there = find(&regions, it->remote_key);
    return covers(there, to->domain, it->remote, it->bytes) && there->access & needed;
}

/* Takes the requests of a queue pair that is over. The network keeps those that it holds. */
void drain(struct queue_pair *own) {
    struct nic *nic = &nics[own->of];
    bool has_arrived = own->first != own->pending;
    while (own->first) {
        if (own->first == own->pending) has_arrived = false;
        struct request *it = take_first(own);
        if (has_arrived || !outlet_of(own)->holds || !has_local(it)) {
            forget(it);
            continue;
        }
        if (!it->payload && it->opcode != OP_READ) {
            uint8_t *payload = malloc(it->bytes + 1);
            gather(it, 0, it->bytes, payload);
            it->payload = payload;
        }
        it->next = nic->held;
        nic->held = it;
    }
}

/* Moves a queue pair to the error state, where all its work is flushed (IBA 10.3.1.7). */
void fail(struct queue_pair *own, uint32_t status) {
    own->state = STATE_ERROR;
    for (struct request *it = own->first; it; it = it->next) {
        flush(own, own->sends, outcome(own, it, status));
        status = FLUSHED;
    }
    drain(own);
    if (nics[own->of].flushes_never) return;
    for (int at = 0; at < own->posted_count; at++) {
        struct completion it = { .id = own->posted[at], .status = FLUSHED,
                                 .queue_pair = own->number };
        flush(own, own->receives, (struct entry){ .it = it });
    }
    own->posted_count = 0;
}

/* Returns whether a port takes packets to that GID. */
static bool has_gid(struct outlet *it, uint8_t *gid) {
    for (int at = 0; at < it->seen.gids; at++) {
        uint8_t *own = at ? it->further[at].gid : it->gid;
        if (!it->further[at].is_elsewhere && memcmp(own, gid, 16) == 0) return true;
    }
    return false;
}

/* Returns whether packets with that address get to another port, by InfiniBand's rules. */
static bool leads_to(struct outlet *from, struct address *address, struct outlet *to) {
    struct port *own = &from->seen, *theirs = &to->seen;
    bool by_gid = address->is_global && !from->further[address->global.index].is_elsewhere &&
                  has_gid(to, address->global.gid);
    if (own->layer != theirs->layer) return false;
    if (own->layer != LINK_INFINIBAND) return by_gid;
    if (address->is_global && !by_gid) return false;
    if ((own->flags | theirs->flags) & GRH_REQUIRED && !by_gid) return false;
    if (memcmp(from->gid, to->gid, 8) == 0)
        return address->lid != 0 && address->lid == theirs->lid;
    return by_gid && address->lid != 0 && address->lid == router_lid;
}

/* Returns whether two keys are of one partition and one of a full member (IBA 10.9.3). */
static bool match(uint16_t one, uint16_t other) {
    return (one & 0x7fff) == (other & 0x7fff) && one & 0x7fff && (one | other) & 0x8000;
}

static bool is_up(struct outlet *it) { return it->seen.state == PORT_ACTIVE; }

/* Reads a packet's bytes, and writes them where they belong. */
static void land_packet(struct request *it, uint32_t packet) {
    uint32_t from = packet * it->mtu;
    uint32_t bytes = it->bytes - from < it->mtu ? it->bytes - from : it->mtu;
    gather(it, from, bytes, (uint8_t *)it->remote + from);
}

static uint32_t common_divisor(uint32_t one, uint32_t other) {
    return other ? common_divisor(other, one % other) : one;
}

/*
 * Lets packets of a write land, some or all. Returns whether all have landed.
 *
 * The bytes of a write land in any order (rdma-core's ibv_query_qp_data_in_order(3)), and a device
 * may send a packet again, with what is in memory then, until the request completes
 * (ibv_post_send(3)). Writes of one queue pair land one after another (IBA 9.5).
 */
static bool land(struct request *it, bool is_whole) {
    uint32_t packets = (it->bytes + it->mtu - 1) / it->mtu, end = packets;
    if (it->stride == 0) {
        it->first_packet = below(packets);
        it->stride = 1 + below(packets);
        while (common_divisor(it->stride, packets) != 1) it->stride++;
    }
    if (!is_whole && once_in(2)) end = it->landed + below(packets - it->landed + 1);
    for (; it->landed < end; it->landed++)
        land_packet(it, (it->first_packet + it->landed * it->stride) % packets);
    if (it->landed && once_in(4)) land_packet(it, it->first_packet);
    return it->landed == packets;
}

/*
 * Lets a request arrive, as a whole or a part. Returns its status, LOST where nobody answers, or
 * WAITS until all of it has landed and the receiver has a receive for it, without end, as the queue
 * pairs ask (IBA 9.7.5.2.8). A queue pair in error that flushes nothing is not stopped by its
 * device yet: it takes writes, and completes nothing.
 */
int arrive(struct request *it, bool is_whole) {
    struct queue_pair *to = find(&queue_pairs, it->to);
    if (!to) return LOST;
    bool lingers = to->state == STATE_ERROR && nics[to->of].flushes_never;
    if (to->state != STATE_RTR && to->state != STATE_RTS && !lingers) return LOST;
    bool tells = it->opcode == OP_WRITE_WITH_NUMBER;
    if (tells && to->posted_count == 0) return WAITS;
    if (it->bytes) {
        int needed = it->opcode == OP_READ ? ACCESS_REMOTE_READ : ACCESS_REMOTE_WRITE;
        if (!has_local(it)) return LOCAL_PROTECTION;
        if (!may_access(to, it, needed)) return REMOTE_ACCESS;
        if (it->opcode == OP_READ)
            memcpy((void *)it->pieces[0].address, (void *)it->remote, it->bytes);
        else if (!land(it, is_whole))
            return WAITS;
    }
    /* The receiver's completion comes after the bytes of all writes before it (IBA 9.5). */
    int *repeats = &nics[to->of].repeats;
    for (int times = tells && !lingers; times > 0; times--) {
        if (*repeats > 0 && to->posted_count > 1) (*repeats)--, times++;
        struct completion made = { .id = to->posted[0], .opcode = WC_RECV_NUMBER,
                                   .bytes = it->bytes, .number = it->number,
                                   .queue_pair = to->number, .flags = 2 };
        memmove(to->posted, to->posted + 1, (size_t)--to->posted_count * sizeof *to->posted);
        complete(to->receives, (struct entry){ .it = made });
    }
    return 0;
}

/* Returns whether the longest packet of a request passes where long ones are lost. */
static bool passes(struct outlet *by, struct request *it) {
    uint32_t longest = it->bytes < it->mtu ? it->bytes : it->mtu;
    return by->longest_packet == 0 || longest <= by->longest_packet;
}

/*
 * Returns whether a request has crossed the wire, which takes time where a port has a pace. The
 * slower of both ports counts.
 */
static bool crosses(struct outlet *from, struct outlet *to, struct request *it) {
    uint64_t ends_at = it->posted_at, cost = 0;
    uint64_t *free_at[] = { &from->out_free_at, &to->in_free_at };
    uint32_t paces[] = { from->bytes_per_ms, to->bytes_per_ms };
    for (int end = 0; end < 2 && !it->has_crossed; end++) {
        if (paces[end] == 0) continue;
        uint64_t takes = it->bytes * 1000000ull / paces[end];
        if (takes > cost) cost = takes;
        if (*free_at[end] > ends_at) ends_at = *free_at[end];
    }
    if (it->has_crossed || cost == 0) return true;
    ends_at += cost;
    if (ends_at > now()) return false;
    for (int end = 0; end < 2; end++)
        if (paces[end]) *free_at[end] = ends_at;
    return it->has_crossed = true;
}

/*
 * Takes the answers to requests that have arrived. They come in order, later than the arrivals, and
 * one answers all before it (IBA 9.7.5.1.2). A request whose answer was lost is sent again, and the
 * receiver answers it without executing it again (duplicate_request in the kernel's
 * drivers/infiniband/sw/rxe/rxe_resp.c). A device in a fatal state answers nothing
 * (mlx5_enter_error_state in drivers/net/ethernet/mellanox/mlx5/core/health.c). Returns whether any
 * has come.
 */
static bool take_answers(struct queue_pair *own, struct queue_pair *to, bool answers_again) {
    struct outlet *by = outlet_of(own);
    bool answers = !to || !nics[to->of].is_fatal;
    bool has_moved = false;
    while (own->first && own->first != own->pending) {
        struct request *it = own->first;
        bool comes = answers && is_up(by) && !by->loses_replies;
        if (!comes) it->is_reply_lost = true;
        if (!comes || (it->is_reply_lost && !answers_again)) return has_moved;
        own->moved_at = now();
        if (once_in(4)) return has_moved;
        if (it->flags & SEND_SIGNALED) complete(own->sends, outcome(own, it, 0));
        forget(take_first(own));
        has_moved = true;
    }
    return has_moved;
}

/*
 * Gives a queue pair a turn. Returns whether anything has moved. The requester's timer begins anew
 * with every answer, and a timeout of 0 never ends (IBA 9.7.6.1.3).
 */
static bool take_turn(struct queue_pair *own) {
    struct request *it = own->pending;
    struct queue_pair *to = find(&queue_pairs, own->peer);
    struct outlet *by = outlet_of(own);
    uint64_t patience = (4096ull << (own->timeout & 31)) * (uint64_t)(own->retries + 1);
    bool is_open = to && !by->holds && is_up(by) && is_up(outlet_of(to)) &&
                   leads_to(by, &own->to, outlet_of(to)) &&
                   match(by->keys[own->key_index], outlet_of(to)->keys[to->key_index]);
    bool is_local = it && (it->opcode == OP_BIND || it->opcode == OP_INVALIDATE);
    int status = it ? LOST : WAITS;
    if (is_local) status = change_window(own, it);
    else if (it && is_open && passes(by, it))
        status = crosses(by, outlet_of(to), it) ? arrive(it, false) : WAITS;
    if (it && it == own->first && status == WAITS) own->moved_at = now();
    if (it && status == 0) {
        by->carried += it->bytes;
        own->pending = it->next;
    }
    bool takes = to && (to->state == STATE_RTR || to->state == STATE_RTS);
    bool has_moved = take_answers(own, to, is_open && takes) || status == 0;
    if (status > 0) {
        /* The answer that refuses a request answers those before it. */
        while (own->first != it) {
            if (own->first->flags & SEND_SIGNALED)
                complete(own->sends, outcome(own, own->first, 0));
            forget(take_first(own));
        }
        fail(own, (uint32_t)status);
        /* The responder's queue pair ends too (do_class_ac_error in rxe_resp.c). */
        if (status == REMOTE_ACCESS && to->state != STATE_ERROR) fail(to, FLUSHED);
        return true;
    }
    if (has_moved || !own->first || own->timeout == 0 || now() <= own->moved_at + patience)
        return has_moved;
    fail(own, RETRIES_EXHAUSTED);
    return true;
}

/*
 * Lets every request arrive that can, and fails those that could not for too long. Queue pairs take
 * turns, one request each.
 */
void move_on(void) {
    complete_late();
    for (bool has_moved = true; has_moved;) {
        struct queue_pair *next = busy.first;
        struct busy lists[2] = { 0 };
        has_moved = false;
        for (struct queue_pair *own; (own = next);) {
            next = own->next_busy;
            own->is_busy = own->state == STATE_RTS && own->first;
            if (!own->is_busy) continue;
            bool moves = take_turn(own);
            struct busy *list = &lists[moves];
            own->next_busy = NULL;
            if (list->first) list->last->next_busy = own;
            else list->first = own;
            list->last = own;
            has_moved |= moves;
        }
        /* Those that waited have the first turns next time. */
        if (!lists[0].first) lists[0] = lists[1];
        else if (lists[1].first) {
            lists[0].last->next_busy = lists[1].first;
            lists[0].last = lists[1].last;
        }
        busy = lists[0];
    }
}

/* Forgets the completions of a queue pair that is destroyed, as mlx5_cq_clean does. */
void forget_completions(struct queue *queue, uint32_t number) {
    int kept = 0;
    for (int at = 0; at < queue->count; at++)
        if (queue->found[at].it.queue_pair != number) queue->found[kept++] = queue->found[at];
    queue->count = kept;
    for (struct late **at = &late, *it; (it = *at);) {
        if (it->entry.it.queue_pair != number) {
            at = &it->next;
            continue;
        }
        *at = it->next;
        free(it);
    }
}
