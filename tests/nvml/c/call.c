/* How a call begins and ends: the lock, the newest script, faults, slow and hanging calls, handles. And nvmlInit.
 *
 * As with the real driver, which GPUs there are is settled when nvmlInit raises the reference count from 0.
 * What a GPU answers, its MIG layout too, is always that of the newest script. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "sim.h"

enum { MAGIC = 0x6e766d6c, NAP_MS = 2 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned references;
static Script *script;
static volatile uint64_t *generation; /* mapped: to see whether the script is new costs no system call */
static uint64_t generation_read;
static char control[4096];
static char (*bus_ids)[32];
static unsigned bus_id_count;
static Handle **handles;
static unsigned handle_count;

const char *control_path(const char *name, char *buffer, size_t size) {
    snprintf(buffer, size, "%s/%s", control, name);
    return buffer;
}

static void map_generation(void) {
    if (generation) munmap((void *)generation, sizeof *generation);
    generation = NULL;
    char path[4200];
    int fd = open(control_path("generation", path, sizeof path), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    void *page = mmap(NULL, sizeof *generation, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (page != MAP_FAILED) generation = page;
}

/* A script that is gone or cannot be understood leaves the last one standing, except for nvmlInit. */
static int refresh(int anew) {
    if (!anew && (!generation || *generation == generation_read)) return SUCCESS;
    uint64_t seen = generation ? *generation : 0;
    char path[4200];
    Script *fresh = script_read(control_path("script", path, sizeof path));
    if (!fresh) return errno ? DRIVER_NOT_LOADED : UNKNOWN;
    script_free(script);
    script = fresh;
    generation_read = seen;
    return SUCCESS;
}

static int matches(const Rule *rule, const char *function, int gpu) {
    if (rule->gpu != EVERY_GPU && rule->gpu != gpu) return 0;
    return !strcmp(rule->function, "*") || !strcmp(rule->function, function);
}

static const Rule *rule_for(const Script *in, RuleKind kind, const char *function, int gpu) {
    for (unsigned n = 0; in && n < in->rules; n++)
        if (in->rule[n].kind == kind && matches(&in->rule[n], function, gpu)) return &in->rule[n];
    return NULL;
}

int fault_of(Script *in, const char *function, int gpu) {
    const Rule *rule = rule_for(in, FAULT, function, gpu);
    return rule ? rule->number : SUCCESS;
}

int is_lost(Script *in, int gpu) { return gpu != EVERY_GPU && rule_for(in, LOST, "*", gpu) != NULL; }

static void nap(int ms) {
    struct timespec time = {ms / 1000, ms % 1000 * 1000000L};
    while (nanosleep(&time, &time) && errno == EINTR) {}
}

static void delay(const char *function, int gpu) {
    const Rule *slow = rule_for(script, SLOW, function, gpu);
    if (slow) {
        int ms = slow->number;
        pthread_mutex_unlock(&lock);
        nap(ms);
        pthread_mutex_lock(&lock);
    }
    while (rule_for(script, HANG, function, gpu)) { /* until the script says otherwise */
        pthread_mutex_unlock(&lock);
        nap(NAP_MS);
        pthread_mutex_lock(&lock);
        refresh(0);
    }
}

static Call begin(const char *function, int gpu) {
    if (references) refresh(0);
    delay(function, gpu);
    Call call = {.script = script};
    if (!references) call.code = UNINITIALIZED;
    return call;
}

Call enter_at(const char *function, int gpu) {
    pthread_mutex_lock(&lock);
    Call call = begin(function, gpu);
    if (!call.code) call.code = fault_of(script, function, gpu);
    return call;
}

static Mig *find_mig(Gpu *gpu, const Handle *handle) {
    for (unsigned n = 0; n < gpu->migs; n++) {
        Mig *mig = &gpu->mig[n];
        if (mig->gi != handle->gi) continue;
        if (handle->kind == A_GPU_INSTANCE) return mig; /* any of its compute instances speaks for it */
        if (mig->ci != handle->ci) continue;
        if (handle->kind == A_COMPUTE_INSTANCE || !strcmp(mig->uuid, handle->uuid)) return mig;
    }
    return NULL;
}

Call enter(const char *function, Handle *handle) {
    pthread_mutex_lock(&lock);
    int known = handle && handle->magic == MAGIC;
    Gpu *gpu = known ? find_gpu(script, handle->bus_id) : NULL;
    Call call = begin(function, gpu ? number_of(script, gpu) : EVERY_GPU);
    if (call.code) return call;
    if (!known) return call.code = INVALID_ARGUMENT, call;
    call.gpu = find_gpu(script, handle->bus_id); /* once more: the script may have changed while the call was slow */
    if (!call.gpu) return call.code = GPU_IS_LOST, call;
    int number = number_of(script, call.gpu);
    if (is_lost(script, number)) return call.code = GPU_IS_LOST, call;
    call.code = fault_of(script, function, number);
    if (call.code || handle->kind == A_GPU) return call;
    call.mig = call.gpu->mig_current ? find_mig(call.gpu, handle) : NULL;
    if (!call.mig) call.code = INVALID_ARGUMENT; /* the instance is gone */
    return call;
}

int leave(Call *call) {
    pthread_mutex_unlock(&lock);
    return call->code;
}

void let_go(void) { pthread_mutex_unlock(&lock); }

Script *take_up(void) {
    pthread_mutex_lock(&lock);
    if (references) refresh(0);
    return script;
}

int is_initialized(void) { return references > 0; }

Gpu *find_gpu(Script *in, const char *bus_id) {
    for (unsigned n = 0; in && n < in->gpus; n++)
        if (!strcasecmp(in->gpu[n].bus_id, bus_id)) return &in->gpu[n];
    return NULL;
}

int number_of(Script *in, const Gpu *gpu) { return (int)(gpu - in->gpu); }
unsigned attached_count(void) { return bus_id_count; }
const char *attached_bus(unsigned index) { return bus_ids[index]; }
Gpu *attached(Script *in, unsigned index) { return find_gpu(in, bus_ids[index]); }

static Handle *handle_for(Handle wanted) {
    wanted.magic = MAGIC;
    for (unsigned n = 0; n < handle_count; n++)
        if (!memcmp(handles[n], &wanted, sizeof wanted)) return handles[n];
    handles = realloc(handles, (handle_count + 1) * sizeof *handles);
    Handle *fresh = handles ? malloc(sizeof *fresh) : NULL;
    if (!fresh) abort();
    memcpy(fresh, &wanted, sizeof wanted);
    return handles[handle_count++] = fresh;
}

static Handle named(HandleKind kind, const char *bus_id) {
    Handle handle;
    memset(&handle, 0, sizeof handle); /* padding too: handles are compared by their bytes */
    handle.kind = kind;
    snprintf(handle.bus_id, sizeof handle.bus_id, "%s", bus_id);
    return handle;
}

Handle *gpu_handle(const char *bus_id) { return handle_for(named(A_GPU, bus_id)); }

Handle *mig_handle(const Gpu *gpu, const Mig *mig) {
    Handle handle = named(A_MIG, gpu->bus_id);
    snprintf(handle.uuid, sizeof handle.uuid, "%s", mig->uuid);
    handle.gi = mig->gi;
    handle.ci = mig->ci;
    return handle_for(handle);
}

Handle *instance_handle(HandleKind kind, const Gpu *gpu, unsigned gi, unsigned ci) {
    Handle handle = named(kind, gpu->bus_id);
    handle.gi = gi;
    handle.ci = ci;
    return handle_for(handle);
}

int copy_text(char *to, unsigned size, const char *text) {
    if (!to) return INVALID_ARGUMENT;
    if (strlen(text) >= size) return INSUFFICIENT_SIZE;
    strcpy(to, text);
    return SUCCESS;
}

static void attach(void) {
    free(bus_ids);
    bus_id_count = script->gpus;
    bus_ids = calloc(bus_id_count + 1, sizeof *bus_ids);
    if (!bus_ids) abort();
    for (unsigned n = 0; n < bus_id_count; n++) memcpy(bus_ids[n], script->gpu[n].bus_id, sizeof *bus_ids);
}

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    pthread_mutex_lock(&lock);
    int code = SUCCESS;
    if (!references) {
        const char *named_by = getenv("FAIRLEAD_NVML");
        snprintf(control, sizeof control, "%s", named_by ? named_by : "/run/fairlead-nvml");
        map_generation();
        code = refresh(1);
    } else {
        refresh(0);
    }
    if (!code) {
        delay("nvmlInit", EVERY_GPU);
        code = fault_of(script, "nvmlInit", EVERY_GPU);
    }
    if (!code && !references++) attach();
    pthread_mutex_unlock(&lock);
    return code;
}

int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
ALSO(nvmlInit, nvmlInit_v2);

int nvmlShutdown(void) {
    Call call = enter_at("nvmlShutdown", EVERY_GPU);
    if (!call.code && !--references) free_all_events();
    return leave(&call);
}
