/* The controls of tests, which README.md lists. */
#include "fake.h"
#include <string.h>

/* Adds a port to a device. Returns its number. */
EXPORT int fake_port(int device, int layer, int flags, int lid, const uint8_t *gid, int kind) {
    struct nic *nic = &nics[device];
    if (nic->port_count == PORTS) abort();
    struct outlet *made = &nic->ports[nic->port_count++];
    made->seen = (struct port){ .state = PORT_ACTIVE, .mtu_most = 5, .mtu = 5, .gids = 1,
                                .message_most = 1u << 31, .keys = 1, .lid = (uint16_t)lid,
                                .width = 2, .speed = 64, .layer = (uint8_t)layer,
                                .flags = (uint8_t)flags };
    made->keys[0] = 0xffff;
    memcpy(made->gid, gid, 16);
    made->kind = (uint32_t)kind;
    return nic->port_count;
}

/* Adds a device without ports. Returns its number. */
EXPORT int fake_device(const char *name) {
    int at = nic_count++;
    if (at == DEVICES) abort();
    strncpy(nics[at].device.name, name, 63);
    return at;
}

static void fail_queues(int device) {
    for (uint32_t place = 0; place < queues.count; place++) {
        struct queue *it = queues.all[place];
        if (it && it->context->of == device) fail_queue(it);
    }
}

EXPORT void fake_event(int device, int port, int type) {
    pthread_mutex_lock(&lock);
    if (type == EVENT_FATAL) nics[device].is_fatal = true;
    if (type == EVENT_PORT_ACTIVE) nics[device].ports[port - 1].seen.state = PORT_ACTIVE;
    if (type == EVENT_PORT_ERROR) nics[device].ports[port - 1].seen.state = PORT_DOWN;
    if (type == EVENT_CQ_ERROR) fail_queues(device);
    else raise_event(device, (void *)(uintptr_t)port, type);
    move_on();
    pthread_mutex_unlock(&lock);
}

EXPORT void fake_move(int device, int port, int lid, const uint8_t *gid) {
    struct outlet *it = &nics[device].ports[port - 1];
    pthread_mutex_lock(&lock);
    it->seen.lid = (uint16_t)lid;
    memcpy(it->gid, gid, 16);
    move_on();
    pthread_mutex_unlock(&lock);
}

EXPORT void fake_gid(int device, int port, int index, const uint8_t *gid, int interface,
                     int is_elsewhere) {
    struct outlet *it = &nics[device].ports[port - 1];
    struct further_gid *further = &it->further[index];
    pthread_mutex_lock(&lock);
    if (index >= GIDS) abort();
    if (index >= it->seen.gids) it->seen.gids = index + 1;
    memcpy(index ? further->gid : it->gid, gid, 16);
    further->interface = (uint32_t)interface;
    further->is_elsewhere = is_elsewhere;
    pthread_mutex_unlock(&lock);
}

EXPORT void fake_partitions(int device, int port, int count, const uint16_t *keys) {
    struct outlet *it = &nics[device].ports[port - 1];
    pthread_mutex_lock(&lock);
    if (count > KEYS) abort();
    it->seen.keys = (uint16_t)count;
    memcpy(it->keys, keys, (size_t)count * sizeof *keys);
    pthread_mutex_unlock(&lock);
}

EXPORT void fake_train(int device, int port, int width, int speed) {
    struct outlet *it = &nics[device].ports[port - 1];
    pthread_mutex_lock(&lock);
    it->seen.width = (uint8_t)width;
    it->seen.speed = (uint8_t)speed;
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

EXPORT void fake_hook(int device, int port, int hook, int value) {
    struct nic *nic = &nics[device];
    struct outlet *outlet = &nic->ports[port - 1];
    pthread_mutex_lock(&lock);
    switch (hook) {
    case 0: outlet->holds = value; break;
    case 1: nic->refuses_error = value; break;
    case 2: nic->flushes_never = value; break;
    case 3: nic->destruction_ms = value; break;
    case 4: nic->deregistration_error = value; break;
    case 5: nic->refuses_destruction = value; break;
    case 6: outlet->longest_packet = (uint32_t)value; break;
    case 7: outlet->bytes_per_ms = (uint32_t)value; break;
    case 8: outlet->loses_replies = value; break;
    case 9: nic->repeats = value; break;
    case 10: nic->refuses_ready = value; break;
    case 11: nic->flush_ms = value; break;
    case 12: nic->options = (uint32_t)value; break;
    case 13: nic->is_old = value; break;
    case 14: nic->refuses_registration = value; break;
    case 15: nic->registration_ms = value; break;
    default: abort();
    }
    move_on();
    pthread_mutex_unlock(&lock);
}

EXPORT int fake_release(int device) {
    struct nic *nic = &nics[device];
    int arrived = 0;
    pthread_mutex_lock(&lock);
    for (int port = 0; port < nic->port_count; port++) nic->ports[port].holds = false;
    for (struct request *it = nic->held, *next; it; it = next) {
        next = it->next;
        arrived += arrive(it, true) == 0;
        forget(it);
    }
    nic->held = NULL;
    move_on();
    pthread_mutex_unlock(&lock);
    return arrived;
}

EXPORT void fake_router(int lid) { router_lid = (uint16_t)lid; }

EXPORT void fake_fork(int status) { fork_status = status; }

EXPORT void fake_seed(uint64_t seed) { disorder = seed; }

EXPORT long fake_carried(int device, int port) {
    pthread_mutex_lock(&lock);
    long carried = nics[device].ports[port - 1].carried;
    pthread_mutex_unlock(&lock);
    return carried;
}

EXPORT int fake_vectors(int device) { return (int)nics[device].vectors; }

EXPORT long fake_count(int what) {
    pthread_mutex_lock(&lock);
    long all[] = { counts.domains, counts.regions, counts.queues, counts.queue_pairs,
                   counts.polls, counts.doorbells, counts.works, counts.signalled, counts.inlines,
                   counts.receive_posts, counts.region_bytes, counts.contexts,
                   counts.queue_bytes, counts.windows };
    pthread_mutex_unlock(&lock);
    return all[what];
}
