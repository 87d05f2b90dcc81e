/*
 * Memory windows of type 2B: a queue pair binds a key to a part of a region, and only the peer of
 * that queue pair may use it, until the owner invalidates it. A region may go while windows are
 * bound to it, which admit nothing from then on (IBA 10.6.7.2.6). Slots 7 and 9 of the
 * driver's table make and free windows (struct ibv_context_ops in libibverbs/verbs.h).
 */
#include "fake.h"
#include <errno.h>

enum { TYPE_2 = 2, ACCESS_BIND = 16, BIND_REFUSED = 6 };

/* What callers see, then the binding. */
struct window {
    struct context *context;
    struct domain *domain;
    uint32_t key, handle;
    int type;
    uint32_t number;
    bool is_bound;
    struct binding now;
    uint32_t queue_pair;
};

static struct table windows;

static struct window *window_of(uint32_t key) {
    return find(&windows, FIRST_NUMBER + ((key & ~WINDOW_KEY) >> 8));
}

struct window *alloc_window(struct domain *domain, int type) {
    if (type != TYPE_2) {
        errno = EOPNOTSUPP;
        return NULL;
    }
    struct window *made = calloc(1, sizeof *made);
    pthread_mutex_lock(&lock);
    uint32_t number = add(&windows, made);
    *made = (struct window){ .context = domain->context, .domain = domain, .type = type,
                             .number = number, .key = WINDOW_KEY | (number - FIRST_NUMBER) << 8 };
    counts.windows++;
    pthread_mutex_unlock(&lock);
    return made;
}

int dealloc_window(struct window *window) {
    pthread_mutex_lock(&lock);
    drop(&windows, window->number);
    counts.windows--;
    free(window);
    pthread_mutex_unlock(&lock);
    return 0;
}

struct binding binding_of(struct send *it) {
    return (struct binding){ .window = (struct window *)it->rest[3], .key = (uint32_t)it->rest[4],
                             .region = it->rest[5] ? ((struct region *)it->rest[5])->local_key : 0,
                             .begin = it->rest[6], .length = it->rest[7],
                             .access = (int)it->rest[8] };
}

/*
 * Binds or invalidates a window. A window that is bound must be invalidated first, and a binding
 * changes only the key's last eight bits (ibv_inc_rkey(3)). A region must allow it, and rights to
 * write take a region that its owner may write (IBA C10-73 and C10-74, as in the kernel's
 * drivers/infiniband/sw/rxe/rxe_mw.c).
 */
int change_window(struct queue_pair *own, struct request *it) {
    struct window *window = it->opcode == OP_BIND ? it->binding.window : window_of(it->number);
    if (!window || window->domain != own->domain) return BIND_REFUSED;
    if (it->opcode == OP_INVALIDATE) {
        if (!window->is_bound || window->now.key != it->number) return BIND_REFUSED;
        window->is_bound = false;
        return 0;
    }
    struct binding *wanted = &it->binding;
    struct region *region = find(&regions, wanted->region);
    bool writes = wanted->access & ACCESS_REMOTE_WRITE;
    if (window->is_bound || window_of(wanted->key) != window) return BIND_REFUSED;
    if (!covers(region, own->domain, wanted->begin, wanted->length)) return BIND_REFUSED;
    if (!(region->access & ACCESS_BIND)) return BIND_REFUSED;
    if (writes && !(region->access & ACCESS_LOCAL_WRITE)) return BIND_REFUSED;
    window->now = *wanted;
    window->queue_pair = own->number;
    window->is_bound = true;
    return 0;
}

bool window_admits(struct queue_pair *to, struct request *it, int needed) {
    struct window *window = window_of(it->remote_key);
    if (!window || !window->is_bound || window->now.key != it->remote_key) return false;
    if (window->queue_pair != to->number || !(window->now.access & needed)) return false;
    struct region *region = find(&regions, window->now.region);
    uint64_t from = it->remote - window->now.begin;
    return it->remote >= window->now.begin && from <= window->now.length &&
           it->bytes <= window->now.length - from &&
           covers(region, to->domain, it->remote, it->bytes);
}
