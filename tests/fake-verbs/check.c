/* Checks what the transport does not use yet: options of connections, and memory windows. */
#include "fake.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { MASKS_INIT = 1 | 1 << 5, MASKS_RTR = 1 | 1 << 7 | 1 << 8, MASKS_RTS = 1 | 1 << 9 };
enum { ETHERNET = 2, ROCE_V2 = 2, RIGHTS = ACCESS_LOCAL_WRITE | 16, BYTES = 16384 };
enum { HOOK_OPTIONS = 12, COUNT_WINDOWS = 13 };

struct window { struct context *context; struct domain *domain; uint32_t key, handle; int type; };

extern int fake_device(const char *name);
extern int fake_port(int device, int layer, int flags, int lid, const uint8_t *gid, int kind);
extern void fake_hook(int device, int port, int hook, int value);
extern long fake_count(int what);
extern struct context *ibv_open_device(struct device *device);
extern struct device **ibv_get_device_list(int *count);
extern struct domain *ibv_alloc_pd(struct context *context);
extern struct region *ibv_reg_mr_iova2(struct domain *domain, void *address, size_t length,
                                       uint64_t at, unsigned int access);
extern struct queue *ibv_create_cq(struct context *context, int entries, void *user,
                                   struct channel *channel, int vector);
extern struct queue_pair *ibv_create_qp(struct domain *domain, struct wanted *wanted);
extern int ibv_modify_qp(struct queue_pair *own, struct change *change, int mask);
extern int ibv_query_ece(struct queue_pair *own, struct options *options);
extern int ibv_set_ece(struct queue_pair *own, struct options *options);

#define CHECK(it) do { if (!(it)) { \
    fprintf(stderr, "check.c:%d: %s\n", __LINE__, #it); exit(1); } } while (0)

struct end {
    struct context *context;
    struct domain *domain;
    struct queue *queue;
    struct queue_pair *pair;
    uint8_t gid[16], *memory;
    struct region *region;
};

static struct queue_pair *make(struct end *end) {
    struct wanted wanted = { .sends = end->queue, .receives = end->queue,
                             .most = { 8, 8, 2, 1, 64 }, .type = 2 };
    return ibv_create_qp(end->domain, &wanted);
}

static struct end open_end(int host) {
    struct end end = { .gid = { 10, (uint8_t)host }, .memory = calloc(1, BYTES) };
    int device = fake_device(host ? "one" : "zero");
    CHECK(fake_port(device, ETHERNET, 0, 0, end.gid, ROCE_V2) == 1);
    end.context = ibv_open_device(ibv_get_device_list(NULL)[device]);
    end.domain = ibv_alloc_pd(end.context);
    end.queue = ibv_create_cq(end.context, 64, NULL, NULL, 0);
    end.region = ibv_reg_mr_iova2(end.domain, end.memory, BYTES, (uint64_t)end.memory, RIGHTS);
    end.pair = make(&end);
    return end;
}

static void get_ready(struct queue_pair *own, struct queue_pair *peer, uint8_t *gid) {
    struct change change = { .state = STATE_INIT, .port = 1 };
    CHECK(ibv_modify_qp(own, &change, MASKS_INIT) == 0);
    change = (struct change){ .state = STATE_RTR, .mtu = 5, .number = peer->number };
    change.to.is_global = 1;
    memcpy(change.to.global.gid, gid, 16);
    CHECK(ibv_modify_qp(own, &change, MASKS_RTR) == 0);
    change = (struct change){ .state = STATE_RTS, .timeout = 14, .retries = 1 };
    CHECK(ibv_modify_qp(own, &change, MASKS_RTS) == 0);
}

static void meet(struct end *one, struct end *other) {
    get_ready(one->pair, other->pair, other->gid);
    get_ready(other->pair, one->pair, one->gid);
}

/* Posts a request and waits for its completion. */
static struct completion perform(struct end *end, struct send *send) {
    int (*post)(struct queue_pair *, struct send *, struct send **) = end->context->ops[25];
    int (*poll)(struct queue *, int, struct completion *) = end->context->ops[11];
    struct send *bad;
    struct completion found;
    send->flags = SEND_SIGNALED;
    CHECK(post(end->pair, send, &bad) == 0);
    while (poll(end->queue, 1, &found) == 0) {}
    return found;
}

static uint32_t write_to(struct end *from, struct end *to, uint32_t at, uint32_t bytes,
                         uint32_t key) {
    struct piece piece = { (uint64_t)from->memory, bytes, from->region->local_key };
    struct send send = { .pieces = &piece, .count = 1, .opcode = OP_WRITE,
                         .remote = (uint64_t)to->memory + at, .remote_key = key };
    return perform(from, &send).status;
}

static struct completion bind(struct end *end, struct window *window, uint32_t key) {
    struct send send = { .opcode = OP_BIND };
    uint64_t rest[9] = { [3] = (uint64_t)window, [4] = key, [5] = (uint64_t)end->region,
                         [6] = (uint64_t)end->memory + 4096, [7] = 4096,
                         [8] = ACCESS_REMOTE_WRITE };
    memcpy(send.rest, rest, sizeof rest);
    return perform(end, &send);
}

static void check_options(void) {
    struct end one = open_end(0), other = open_end(1);
    struct options options = { 0 };
    CHECK(ibv_query_ece(one.pair, &options) == EOPNOTSUPP);
    fake_hook(one.context->of, 1, HOOK_OPTIONS, 0x30);
    one.pair = make(&one);
    CHECK(ibv_query_ece(one.pair, &options) == 0 && options.options == 0x30);
    options.mask = 1;
    CHECK(ibv_set_ece(one.pair, &options) == EINVAL);
    options = (struct options){ .vendor = options.vendor, .options = 0x14 };
    CHECK(ibv_set_ece(one.pair, &options) == 0);
    CHECK(ibv_query_ece(one.pair, &options) == 0 && options.options == 0);
    meet(&one, &other);
    CHECK(ibv_query_ece(one.pair, &options) == 0 && options.options == 0x10);
}

static void check_windows(void) {
    struct end one = open_end(0), other = open_end(1);
    struct window *(*alloc)(struct domain *, int) = other.context->ops[7];
    int (*dealloc)(struct window *) = other.context->ops[9];
    CHECK(alloc(other.domain, 1) == NULL && errno == EOPNOTSUPP);
    struct window *window = alloc(other.domain, 2);
    meet(&one, &other);
    one.memory[0] = 7;
    uint32_t key = window->key + 1;
    CHECK(bind(&other, window, key).opcode == WC_BIND);
    CHECK(write_to(&one, &other, 8191, 1, key) == 0 && other.memory[8191] == 7);
    struct send invalidate = { .opcode = OP_INVALIDATE, .number = key };
    CHECK(perform(&other, &invalidate).opcode == WC_INVALIDATE);
    CHECK(bind(&other, window, key + 1).status == 0);
    CHECK(write_to(&one, &other, 4096, 4096, key + 1) == 0);
    /* An old key, a place outside, and another queue pair end the connection. */
    CHECK(write_to(&one, &other, 4096, 1, key) == REMOTE_ACCESS);
    for (int outside = 0; outside < 2; outside++) {
        one.pair = make(&one);
        other.pair = make(&other);
        meet(&one, &other);
        CHECK(write_to(&one, &other, outside ? 8192 : 4096, 1, key + 1) == REMOTE_ACCESS);
    }
    CHECK(fake_count(COUNT_WINDOWS) == 1 && dealloc(window) == 0);
    CHECK(fake_count(COUNT_WINDOWS) == 0);
}

int main(void) {
    check_options();
    check_windows();
    return 0;
}
