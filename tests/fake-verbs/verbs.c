/*
 * A libibverbs without devices: queue pairs of one process write to each other's registered memory.
 * README.md lists the controls for tests.
 */
#include "fake.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MASK_STATE = 1, MASK_KEY = 1 << 4, MASK_PORT = 1 << 5, MASK_AV = 1 << 7, MASK_MTU = 1 << 8 };
enum { MASK_TIMEOUT = 1 << 9, VENDOR = 0x15b3 };

struct nic nics[DEVICES];
int nic_count;
struct context *contexts[CONTEXTS];
struct table queue_pairs, regions, queues;
/* The memory of the queue that was destroyed last, which the next one gets. */
static struct queue *spare_queue;
uint16_t router_lid;
struct counts counts;
uint64_t disorder = 1;
int fork_status = 2;
pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The drivers' functions. */

static int poll_queue(struct queue *queue, int most, struct completion *into) {
    pthread_mutex_lock(&lock);
    counts.polls++;
    move_on();
    int count = queue->count < most ? queue->count : most;
    for (int at = 0; at < count; at++) {
        struct entry *entry = &queue->found[at];
        into[at] = entry->it;
        /* Work gives its place back when its completion is taken, as in mlx5_parse_cqe. */
        struct queue_pair *own = find(&queue_pairs, entry->it.queue_pair);
        if (own && entry->send) own->sends_freed = entry->send;
        if (own && !entry->send) own->receives_freed++;
    }
    queue->count -= count;
    memmove(queue->found, queue->found + count, (size_t)queue->count * sizeof *queue->found);
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

static uint64_t kind_of(uint32_t opcode) {
    switch (opcode) {
    case OP_WRITE: return KIND_WRITE;
    case OP_WRITE_WITH_NUMBER: return KIND_WRITE_WITH_NUMBER;
    case OP_READ: return KIND_READ;
    case OP_INVALIDATE: return KIND_INVALIDATE;
    default: return KIND_BIND;
    }
}

/*
 * The bytes of queues in mlx5 (providers/mlx5/verbs.c): create_cq takes a power of two of entries of
 * 64 bytes, mlx5_calc_sq_size one of bytes, and mlx5_calc_rq_size one of receives.
 */
static long power(uint64_t least) {
    long it = 1;
    while ((uint64_t)it < least) it *= 2;
    return it;
}

static long queue_bytes(int entries) { return 64 * power((uint64_t)entries + 1); }

/* The sizes are those of _sq_overhead and mlx5_calc_send_wqe. */
static long queue_pair_bytes(struct capacity *most, uint64_t kinds) {
    uint32_t head = kinds & (KIND_BIND | KIND_INVALIDATE) ? 192 : kinds & KIND_ATOMIC ? 48 : 32;
    uint32_t in_line = most->inline_bytes ? head + (4 + most->inline_bytes + 15) / 16 * 16 : 0;
    uint32_t by_piece = head + 16 * most->send_pieces;
    uint32_t request = ((in_line > by_piece ? in_line : by_piece) + 63) / 64 * 64;
    return power((uint64_t)most->sends * request) +
           power(most->receives) * 16 * power(most->receive_pieces);
}

/* The refusals are those of mlx5_post_send (providers/mlx5/qp.c): a full queue is ENOMEM. */
static int post_one(struct queue_pair *own, struct send *it) {
    switch (it->opcode) {
    case OP_WRITE: case OP_WRITE_WITH_NUMBER: case OP_READ: case OP_INVALIDATE: case OP_BIND: break;
    default: return EINVAL;
    }
    if (!(own->kinds & kind_of(it->opcode))) return EINVAL;
    if (it->count > PIECES || (uint32_t)it->count > own->most.send_pieces) return EINVAL;
    if (own->sends_posted - own->sends_freed >= own->most.sends) return ENOMEM;
    uint32_t bytes = 0;
    for (int at = 0; at < it->count; at++) bytes += it->pieces[at].length;
    bool is_inline = it->flags & SEND_INLINE;
    if (is_inline && bytes > own->most.inline_bytes) return ENOMEM;
    counts.works++;
    counts.signalled += (it->flags & SEND_SIGNALED) != 0;
    counts.inlines += is_inline;
    struct request *made = calloc(1, sizeof *made);
    *made = (struct request){ .id = it->id, .remote = it->remote, .opcode = it->opcode,
                              .flags = it->flags, .number = it->number, .to = own->peer,
                              .remote_key = it->remote_key, .domain = own->domain,
                              .bytes = bytes, .mtu = 128u << own->mtu, .count = it->count,
                              .send = ++own->sends_posted };
    if (it->opcode == OP_BIND) made->binding = binding_of(it);
    if (it->count) memcpy(made->pieces, it->pieces, (size_t)it->count * sizeof *it->pieces);
    /* Inline bytes are copied, and others are read on the way (ibv_post_send(3)). */
    if (is_inline) {
        uint8_t *to = made->payload = malloc(bytes + 1);
        for (int at = 0; at < it->count; at++) {
            memcpy(to, (void *)it->pieces[at].address, it->pieces[at].length);
            to += it->pieces[at].length;
        }
    }
    if (own->state == STATE_ERROR) {
        flush(own, own->sends, outcome(own, made, FLUSHED));
        forget(made);
    } else {
        enqueue(own, made);
    }
    return 0;
}

static int post_sends(struct queue_pair *own, struct send *first, struct send **bad) {
    int status = 0;
    pthread_mutex_lock(&lock);
    counts.doorbells++;
    if (own->state != STATE_RTS && own->state != STATE_ERROR) status = EINVAL;
    for (struct send *it = first; it && !status; it = it->next)
        if ((status = post_one(own, it))) *bad = it;
    move_on();
    pthread_mutex_unlock(&lock);
    return status;
}

static int post_receives(struct queue_pair *own, struct receive *first, struct receive **bad) {
    int status = 0;
    pthread_mutex_lock(&lock);
    counts.receive_posts++;
    for (struct receive *it = first; it && !status; it = it->next) {
        if (own->receives_posted - own->receives_freed >= own->most.receives) {
            *bad = it;
            status = ENOMEM;
            continue;
        }
        own->receives_posted++;
        if (own->state == STATE_ERROR && !nics[own->of].flushes_never) {
            struct completion made = { .id = it->id, .status = FLUSHED,
                                       .queue_pair = own->number };
            flush(own, own->receives, (struct entry){ .it = made });
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
    return status;
}

static void wait_ms(int ms) {
    struct timespec time = { ms / 1000, (long)(ms % 1000) * 1000000 };
    nanosleep(&time, NULL);
}

/* The library's functions. */

EXPORT struct device **ibv_get_device_list(int *count) {
    struct device **list = calloc(DEVICES + 1, sizeof *list);
    for (int at = 0; at < nic_count; at++) list[at] = &nics[at].device;
    if (count) *count = nic_count;
    return list;
}

EXPORT void ibv_free_device_list(struct device **list) { free(list); }
EXPORT int ibv_fork_init(void) { return 0; }

static struct queue_pair *create_queue_pair(struct context *, struct more_wanted *);

/* rdma-core, libibverbs/memory.c: IBV_FORK_UNNEEDED where the kernel copies pinned pages for the
   child, as it does since Linux 5.12. */
EXPORT int ibv_is_fork_initialized(void) { return fork_status; }

EXPORT struct context *ibv_open_device(struct device *device) {
    struct whole_context *whole = calloc(1, sizeof *whole);
    struct context *made = &whole->context;
    whole->create_queue_pair = (void *)create_queue_pair;
    /* Up to here callers know the structure. */
    whole->size = offsetof(struct whole_context, context.events_in);
    made->abi = (void *)UINTPTR_MAX;
    int ends[2];
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK)) abort();
    made->device = device;
    made->ops[7] = (void *)alloc_window;
    made->ops[9] = (void *)dealloc_window;
    made->ops[11] = (void *)poll_queue;
    made->ops[12] = (void *)arm_queue;
    made->ops[25] = (void *)post_sends;
    made->ops[26] = (void *)post_receives;
    made->async_fd = ends[0];
    made->events_in = ends[1];
    made->vectors = VECTORS;
    for (int at = 0; at < nic_count; at++)
        if (&nics[at].device == device) made->of = at;
    pthread_mutex_lock(&lock);
    int at = 0;
    while (at < CONTEXTS && contexts[at]) at++;
    if (at == CONTEXTS) abort();
    contexts[at] = made;
    counts.contexts++;
    pthread_mutex_unlock(&lock);
    return made;
}

EXPORT int ibv_close_device(struct context *context) {
    pthread_mutex_lock(&lock);
    for (int at = 0; at < CONTEXTS; at++)
        if (contexts[at] == context) contexts[at] = NULL;
    counts.contexts--;
    pthread_mutex_unlock(&lock);
    close(context->async_fd);
    close(context->events_in);
    free((char *)context - offsetof(struct whole_context, context));
    return 0;
}

EXPORT int ibv_query_device(struct context *context, uint8_t *answer) {
    int requests = 16384, completions = 1 << 20;
    memset(answer, 0, 232);
    memcpy(answer + 112, &requests, sizeof requests);
    memcpy(answer + 132, &completions, sizeof completions);
    answer[227] = (uint8_t)nics[context->of].port_count;
    return 0;
}

EXPORT int ibv_query_port(struct context *context, uint8_t number, struct port *answer) {
    if (number < 1 || number > nics[context->of].port_count) return EINVAL;
    pthread_mutex_lock(&lock);
    *answer = nics[context->of].ports[number - 1].seen;
    pthread_mutex_unlock(&lock);
    return 0;
}

EXPORT int _ibv_query_gid_ex(struct context *context, uint32_t port, uint32_t index,
                             struct port_entry *answer, uint32_t flags, size_t bytes) {
    (void)flags;
    if (port < 1 || (int)port > nics[context->of].port_count) return EINVAL;
    struct outlet *it = &nics[context->of].ports[port - 1];
    if (index >= (uint32_t)it->seen.gids || bytes < sizeof *answer) return EINVAL;
    struct further_gid *further = &it->further[index];
    *answer = (struct port_entry){ .index = index, .port = port, .kind = it->kind,
                                   .interface = further->interface };
    memcpy(answer->gid, index ? further->gid : it->gid, 16);
    return 0;
}

EXPORT int ibv_query_pkey(struct context *context, uint8_t port, int index, uint16_t *answer) {
    if (port < 1 || port > nics[context->of].port_count) return -1;
    struct outlet *it = &nics[context->of].ports[port - 1];
    pthread_mutex_lock(&lock);
    bool is_there = index >= 0 && index < it->seen.keys;
    if (is_there) *answer = htons(it->keys[index]);
    pthread_mutex_unlock(&lock);
    return is_there ? 0 : -1;
}

EXPORT int ibv_get_async_event(struct context *context, struct event *event) {
    pthread_mutex_lock(&lock);
    bool is_there = read(context->async_fd, event, sizeof *event) == sizeof *event;
    if (is_there && event->type == EVENT_CQ_ERROR) ((struct queue *)event->element)->given++;
    pthread_mutex_unlock(&lock);
    return is_there ? 0 : -1;
}

EXPORT void ibv_ack_async_event(struct event *event) {
    pthread_mutex_lock(&lock);
    if (event->type == EVENT_CQ_ERROR) ((struct queue *)event->element)->acknowledged++;
    pthread_mutex_unlock(&lock);
}

EXPORT const char *ibv_event_type_str(int type) {
    switch (type) {
    case EVENT_FATAL: return "local catastrophic error";
    case EVENT_PORT_ACTIVE: return "port active";
    case EVENT_PORT_ERROR: return "port error";
    case 11: return "LID change";
    case 12: return "P_Key table change";
    case 17: return "client reregistration";
    case 18: return "GID table change";
    default: return "unknown";
    }
}

EXPORT struct domain *ibv_alloc_pd(struct context *context) {
    struct domain *made = calloc(1, sizeof *made);
    made->context = context;
    __atomic_add_fetch(&counts.domains, 1, __ATOMIC_SEQ_CST);
    return made;
}

EXPORT int ibv_dealloc_pd(struct domain *domain) {
    free(domain);
    __atomic_sub_fetch(&counts.domains, 1, __ATOMIC_SEQ_CST);
    return 0;
}

EXPORT struct region *ibv_reg_mr_iova2(struct domain *domain, void *address, size_t length,
                                       uint64_t at, unsigned int access) {
    (void)at;
    struct nic *nic = &nics[domain->context->of];
    pthread_mutex_lock(&lock);
    for (int ms = 0; ms < nic->registration_ms; ms++) {
        pthread_mutex_unlock(&lock);
        wait_ms(1);
        pthread_mutex_lock(&lock);
    }
    if (nic->refuses_registration) {
        pthread_mutex_unlock(&lock);
        errno = ENOMEM;
        return NULL;
    }
    struct region *made = calloc(1, sizeof *made);
    uint32_t key = add(&regions, made);
    *made = (struct region){ .context = domain->context, .domain = domain, .address = address,
                             .length = length, .local_key = key, .remote_key = key,
                             .access = (int)access };
    counts.regions++;
    counts.region_bytes += (long)length;
    pthread_mutex_unlock(&lock);
    return made;
}

EXPORT int ibv_dereg_mr(struct region *region) {
    pthread_mutex_lock(&lock);
    int status = nics[region->context->of].deregistration_error;
    if (!status) {
        drop(&regions, region->local_key);
        counts.regions--;
        counts.region_bytes -= (long)region->length;
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
    if (vector < 0 || vector >= context->vectors) {
        errno = EINVAL;
        return NULL;
    }
    pthread_mutex_lock(&lock);
    nics[context->of].vectors |= 1u << vector;
    struct queue *made = spare_queue ? spare_queue : calloc(1, sizeof *made);
    spare_queue = NULL;
    *made = (struct queue){ .context = context, .channel = channel, .user = user,
                            .entries = entries, .number = add(&queues, made),
                            .found = malloc((size_t)entries * sizeof *made->found) };
    pthread_mutex_unlock(&lock);
    __atomic_add_fetch(&counts.queues, 1, __ATOMIC_SEQ_CST);
    __atomic_add_fetch(&counts.queue_bytes, queue_bytes(entries), __ATOMIC_SEQ_CST);
    return made;
}

EXPORT int ibv_resize_cq(struct queue *queue, int entries) {
    int status = EINVAL;
    pthread_mutex_lock(&lock);
    if (nics[queue->context->of].is_old) status = EOPNOTSUPP;
    else if (entries >= queue->count) {
        queue->found = realloc(queue->found, (size_t)entries * sizeof *queue->found);
        counts.queue_bytes += queue_bytes(entries) - queue_bytes(queue->entries);
        queue->entries = entries;
        status = 0;
    }
    pthread_mutex_unlock(&lock);
    return status;
}

/*
 * Events about the queue that nobody has taken are gone (ib_uverbs_release_ucq in the kernel's
 * drivers/infiniband/core/uverbs_main.c), and the others must be acknowledged before
 * (ibv_cmd_destroy_cq in libibverbs/cmd_cq.c).
 */
EXPORT int ibv_destroy_cq(struct queue *queue) {
    pthread_mutex_lock(&lock);
    while (queue->given != queue->acknowledged) {
        pthread_mutex_unlock(&lock);
        wait_ms(1);
        pthread_mutex_lock(&lock);
    }
    struct event kept[4096];
    int count = 0;
    while (read(queue->context->async_fd, &kept[count], sizeof *kept) == sizeof *kept)
        count += kept[count].element != queue || kept[count].type != EVENT_CQ_ERROR;
    for (int at = 0; at < count; at++)
        if (write(queue->context->events_in, &kept[at], sizeof *kept) < 0) abort();
    drop(&queues, queue->number);
    pthread_mutex_unlock(&lock);
    __atomic_sub_fetch(&counts.queue_bytes, queue_bytes(queue->entries), __ATOMIC_SEQ_CST);
    free(queue->found);
    pthread_mutex_lock(&lock);
    free(spare_queue);
    spare_queue = queue;
    pthread_mutex_unlock(&lock);
    __atomic_sub_fetch(&counts.queues, 1, __ATOMIC_SEQ_CST);
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

static struct queue_pair *make_queue_pair(struct domain *domain, struct wanted *wanted,
                                          uint64_t kinds) {
    struct queue_pair *made = calloc(1, sizeof *made);
    pthread_mutex_lock(&lock);
    *made = (struct queue_pair){ .context = domain->context, .domain = domain,
                                 .sends = wanted->sends, .receives = wanted->receives,
                                 .number = add(&queue_pairs, made), .most = wanted->most,
                                 .of = domain->context->of, .port = 1, .kinds = kinds,
                                 .bytes = queue_pair_bytes(&wanted->most, kinds),
                                 .options = nics[domain->context->of].options };
    made->wanted_options = made->options;
    counts.queue_pairs++;
    counts.queue_bytes += made->bytes;
    pthread_mutex_unlock(&lock);
    return made;
}

EXPORT struct queue_pair *ibv_create_qp(struct domain *domain, struct wanted *wanted) {
    return make_queue_pair(domain, wanted, ~0ull);
}

/* Queue pairs for some kinds of work only, by the driver (ibv_create_qp_ex in verbs.h). */
static struct queue_pair *create_queue_pair(struct context *context, struct more_wanted *wanted) {
    enum { DOMAIN = 1, KINDS = 1 << 6 };
    bool is_known = wanted->mask == (DOMAIN | KINDS) && wanted->domain->context == context;
    if (!is_known || nics[context->of].is_old) {
        errno = EOPNOTSUPP;
        return NULL;
    }
    return make_queue_pair(wanted->domain, (struct wanted *)wanted, wanted->kinds);
}

/*
 * The device may refuse a state. On the way to the state that is ready to receive, the kernel looks
 * for the neighbour of a RoCE address and may not find it in time (ib_resolve_unicast_gid_dmac in
 * drivers/infiniband/core/verbs.c).
 */
EXPORT int ibv_modify_qp(struct queue_pair *own, struct change *change, int mask) {
    int status = 0;
    pthread_mutex_lock(&lock);
    struct nic *nic = &nics[own->of];
    if (mask & MASK_STATE && change->state == STATE_ERROR) {
        if (nic->refuses_error || nic->is_fatal) status = EIO;
        else if (own->state != STATE_ERROR) fail(own, FLUSHED);
    } else if (mask & MASK_STATE) {
        if (own->state + 1 != (int)change->state) status = EINVAL;
        else if (change->state == STATE_RTR && nic->refuses_ready) status = ETIMEDOUT;
        else if (mask & MASK_PORT && (change->port < 1 || change->port > nic->port_count))
            status = EINVAL;
        else if (mask & MASK_KEY && change->key_index >= nic->ports[change->port - 1].seen.keys)
            status = EINVAL;
        else own->state = (int)change->state;
    }
    if (!status && mask & MASK_PORT) own->port = change->port;
    if (!status && mask & MASK_KEY) own->key_index = change->key_index;
    if (!status && mask & MASK_AV) {
        own->to = change->to;
        own->peer = change->number;
    }
    if (!status && mask & MASK_STATE && change->state == STATE_RTR)
        own->options = own->wanted_options & nic->options;
    if (!status && mask & MASK_MTU) own->mtu = change->mtu;
    if (!status && mask & MASK_TIMEOUT) {
        own->timeout = change->timeout;
        own->retries = change->retries;
    }
    move_on();
    pthread_mutex_unlock(&lock);
    return status;
}

/*
 * Extended connection options. A new queue pair names those of its device. What the caller asks for
 * counts once the queue pair is ready to receive, as far as the device can (mlx5_query_ece and
 * mlx5_set_ece in rdma-core's providers/mlx5).
 */
EXPORT int ibv_query_ece(struct queue_pair *own, struct options *answer) {
    if (!nics[own->of].options) return EOPNOTSUPP;
    *answer = (struct options){ .vendor = VENDOR, .options = own->options };
    return 0;
}

EXPORT int ibv_set_ece(struct queue_pair *own, struct options *wanted) {
    if (!nics[own->of].options) return EOPNOTSUPP;
    if (wanted->mask || wanted->vendor != VENDOR) return EINVAL;
    own->wanted_options = wanted->options;
    own->options = 0;
    return 0;
}

EXPORT int ibv_destroy_qp(struct queue_pair *own) {
    pthread_mutex_lock(&lock);
    int wait = nics[own->of].destruction_ms;
    pthread_mutex_unlock(&lock);
    wait_ms(wait);
    pthread_mutex_lock(&lock);
    if (nics[own->of].refuses_destruction) {
        pthread_mutex_unlock(&lock);
        return EBUSY;
    }
    drop(&queue_pairs, own->number);
    counts.queue_pairs--;
    counts.queue_bytes -= own->bytes;
    drain(own);
    forget_completions(own->sends, own->number);
    forget_completions(own->receives, own->number);
    move_on();
    free(own->posted);
    free(own);
    pthread_mutex_unlock(&lock);
    return 0;
}
