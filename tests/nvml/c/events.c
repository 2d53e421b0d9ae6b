/* Events. They are lines of a file that only grows: each event set reads on from where it is, so any number of programs see them all.
 *
 *     event GPU TYPE DATA GI CI      reaches the sets that this GPU is registered in for this type
 *     stray TYPE DATA                reaches all sets, and names no GPU
 *     error CODE                     one nvmlEventSetWait of each set fails so
 *
 * A wait sleeps in poll on an inotify watch of the control directory, so an event arrives without delay. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "sim.h"

enum { REGISTRATIONS = 256, NO_INSTANCE = -1 };

typedef struct {
    Handle *device;
    unsigned long long types;
    int told_lost;
} Registration;

typedef struct EventSet {
    struct EventSet *earlier;
    int watch, waiting, freed; /* the memory stays: who uses a freed set is told so, and does not crash */
    long offset;
    unsigned registrations;
    Registration registration[REGISTRATIONS];
} EventSet;

typedef struct {
    Handle *device;
    unsigned long long type, data;
    unsigned gi, ci;
} EventData;

static EventSet *latest;

static long end_of_events(void) {
    char path[4200];
    struct stat found;
    return stat(control_path("events", path, sizeof path), &found) ? 0 : (long)found.st_size;
}

int nvmlEventSetCreate(EventSet **set) {
    Call call = enter_at("nvmlEventSetCreate", EVERY_GPU);
    if (call.code) return leave(&call);
    char path[4200];
    EventSet *fresh = calloc(1, sizeof *fresh);
    if (!fresh) abort();
    fresh->watch = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (fresh->watch < 0 || inotify_add_watch(fresh->watch, control_path("", path, sizeof path), IN_MODIFY | IN_MOVED_TO) < 0) {
        if (fresh->watch >= 0) close(fresh->watch);
        free(fresh);
        call.code = UNKNOWN;
        return leave(&call);
    }
    fresh->offset = end_of_events();
    fresh->earlier = latest;
    *set = latest = fresh;
    return leave(&call);
}

static void clear_up(EventSet *set) {
    if (!set->freed || set->waiting || set->watch < 0) return;
    close(set->watch);
    set->watch = -1;
}

/* At the last shutdown nothing stays open, whoever forgot it: a machine has few inotify instances, and tests are many. */
void free_all_events(void) {
    for (; latest; latest = latest->earlier) {
        latest->freed = 1;
        clear_up(latest);
    }
}

int nvmlEventSetFree(EventSet *set) {
    Call call = enter_at("nvmlEventSetFree", EVERY_GPU);
    if (!call.code && (!set || set->freed)) call.code = INVALID_ARGUMENT;
    /* After the last shutdown as well: a thread that ends late would leave its watch behind, and they are few. */
    if (!call.code || (call.code == UNINITIALIZED && set && !set->freed)) {
        set->freed = 1;
        clear_up(set);
    }
    return leave(&call);
}

int nvmlDeviceGetSupportedEventTypes(Handle *device, unsigned long long *types) {
    Call call = enter("nvmlDeviceGetSupportedEventTypes", device);
    if (!call.code) *types = call.gpu->events;
    return leave(&call);
}

int nvmlDeviceRegisterEvents(Handle *device, unsigned long long types, EventSet *set) {
    Call call = enter("nvmlDeviceRegisterEvents", device);
    if (!call.code && (!set || set->freed)) call.code = INVALID_ARGUMENT;
    if (!call.code && (call.mig || types & ~call.gpu->events)) call.code = NOT_SUPPORTED;
    if (call.code) return leave(&call);
    if (!set->registrations) set->offset = end_of_events(); /* what happened before is not told */
    for (unsigned n = 0; n < set->registrations; n++) {
        if (set->registration[n].device != device) continue;
        set->registration[n].types |= types;
        return leave(&call);
    }
    if (set->registrations == REGISTRATIONS) abort();
    set->registration[set->registrations++] = (Registration){device, types, 0};
    return leave(&call);
}

static Registration *registered(EventSet *set, const char *bus_id, unsigned long long type) {
    for (unsigned n = 0; n < set->registrations; n++) {
        Registration *it = &set->registration[n];
        if (!strcmp(it->device->bus_id, bus_id) && it->types & type) return it;
    }
    return NULL;
}

/* The next line that concerns this set; TIMEOUT if there is none yet. */
static int next_event(EventSet *set, Script *script, EventData *data) {
    char path[4200], line[256];
    FILE *file = fopen(control_path("events", path, sizeof path), "re");
    if (!file) return TIMEOUT;
    int code = TIMEOUT;
    fseek(file, set->offset, SEEK_SET);
    while (code == TIMEOUT && fgets(line, sizeof line, file) && strchr(line, '\n')) {
        unsigned gpu;
        unsigned long long type, value;
        int gi = NO_INSTANCE, ci = NO_INSTANCE, error;
        set->offset = ftell(file);
        if (sscanf(line, "error %d", &error) == 1) code = error;
        if (sscanf(line, "stray %llu %llu", &type, &value) == 2) {
            *data = (EventData){NULL, type, value, (unsigned)gi, (unsigned)ci};
            code = SUCCESS;
        }
        if (sscanf(line, "event %u %llu %llu %d %d", &gpu, &type, &value, &gi, &ci) < 3 || gpu >= script->gpus) continue;
        Registration *it = registered(set, script->gpu[gpu].bus_id, type);
        if (!it) continue;
        *data = (EventData){it->device, type, value, (unsigned)gi, (unsigned)ci};
        code = SUCCESS;
    }
    fclose(file);
    return code;
}

/* A GPU that falls off the bus makes a wait fail, once for each set. */
static int newly_lost(EventSet *set, Script *script) {
    for (unsigned n = 0; n < set->registrations; n++) {
        Registration *it = &set->registration[n];
        Gpu *gpu = find_gpu(script, it->device->bus_id);
        int lost = gpu ? is_lost(script, number_of(script, gpu)) : 1;
        int news = lost && !it->told_lost;
        it->told_lost = lost;
        if (news) return 1;
    }
    return 0;
}

static long long now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

static void sleep_until_news(int watch, long long ms) {
    struct pollfd it = {.fd = watch, .events = POLLIN};
    char ignored[4096];
    if (poll(&it, 1, ms > 0 ? (int)ms : 0) > 0)
        while (read(watch, ignored, sizeof ignored) > 0) {}
}

int nvmlEventSetWait_v2(EventSet *set, EventData *data, unsigned timeout_ms) {
    long long deadline = now_ms() + timeout_ms;
    Call call = enter_at("nvmlEventSetWait", EVERY_GPU);
    if (!call.code && (!set || set->freed)) call.code = INVALID_ARGUMENT;
    int inside = !call.code;
    if (inside) set->waiting++;
    while (!call.code) {
        call.code = next_event(set, call.script, data);
        if (call.code == TIMEOUT && newly_lost(set, call.script)) call.code = GPU_IS_LOST;
        if (call.code != TIMEOUT || now_ms() >= deadline) break;
        let_go();
        sleep_until_news(set->watch, deadline - now_ms());
        call.script = take_up();
        call.code = is_initialized() ? fault_of(call.script, "nvmlEventSetWait", EVERY_GPU) : UNINITIALIZED;
    }
    if (inside) {
        set->waiting--;
        clear_up(set);
    }
    return leave(&call);
}
ALSO(nvmlEventSetWait, nvmlEventSetWait_v2);
