/* What lies between GPUs: PCI levels and NVLinks. */
#include <stdio.h>
#include <string.h>

#include "sim.h"

typedef struct {
    char bus_id_legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
} PciInfo;

void fill_pci(PciInfo *pci, const char *bus_id);

static int level_between(const Script *script, unsigned a, unsigned b) {
    if (a == b) return 0;
    for (unsigned n = script->levels; n-- > 0;) { /* the last word counts */
        const Level *level = &script->level[n];
        if ((level->a == a && level->b == b) || (level->a == b && level->b == a)) return level->level;
    }
    return (int)script->level_default;
}

/* Begins a call on two GPUs: a loss of either is the call's, a fault that of the first. */
static Call enter_pair(const char *function, Handle *one, Handle *other, Gpu **far) {
    Call call = enter(function, one);
    if (call.code) return call;
    *far = other ? find_gpu(call.script, other->bus_id) : NULL;
    if (!other) call.code = INVALID_ARGUMENT;
    else if (!*far || is_lost(call.script, number_of(call.script, *far))) call.code = GPU_IS_LOST;
    return call;
}

int nvmlDeviceGetTopologyCommonAncestor(Handle *one, Handle *other, int *level) {
    Gpu *far;
    Call call = enter_pair("nvmlDeviceGetTopologyCommonAncestor", one, other, &far);
    if (!call.code)
        *level = level_between(call.script, (unsigned)number_of(call.script, call.gpu), (unsigned)number_of(call.script, far));
    return leave(&call);
}

int nvmlDeviceOnSameBoard(Handle *one, Handle *other, int *same) {
    Gpu *far;
    Call call = enter_pair("nvmlDeviceOnSameBoard", one, other, &far);
    if (!call.code)
        *same = !level_between(call.script, (unsigned)number_of(call.script, call.gpu), (unsigned)number_of(call.script, far));
    return leave(&call);
}

int nvmlDeviceGetP2PStatus(Handle *one, Handle *other, int capability, int *status) {
    Gpu *far;
    Call call = enter_pair("nvmlDeviceGetP2PStatus", one, other, &far);
    (void)capability;
    if (!call.code) *status = 0;
    return leave(&call);
}

int nvmlDeviceGetTopologyNearestGpus(Handle *device, int level, unsigned *count, Handle **near) {
    Call call = enter("nvmlDeviceGetTopologyNearestGpus", device);
    if (call.code) return leave(&call);
    unsigned room = *count, self = (unsigned)number_of(call.script, call.gpu);
    *count = 0;
    for (unsigned n = 0; n < call.script->gpus; n++) {
        if (n == self || level_between(call.script, self, n) != level) continue;
        if (near && *count < room) near[*count] = gpu_handle(call.script->gpu[n].bus_id);
        ++*count;
    }
    return leave(&call);
}

static Call enter_link(const char *function, Handle *device, unsigned number, Link **link) {
    Call call = enter(function, device);
    if (call.code) return call;
    if (number >= LINKS) call.code = INVALID_ARGUMENT;
    else if (number >= call.gpu->links || !call.gpu->link[number].remote[0]) call.code = NOT_SUPPORTED;
    else *link = &call.gpu->link[number];
    return call;
}

int nvmlDeviceGetNvLinkState(Handle *device, unsigned number, unsigned *is_up) {
    Link *link;
    Call call = enter_link("nvmlDeviceGetNvLinkState", device, number, &link);
    if (!call.code) *is_up = link->up;
    return leave(&call);
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(Handle *device, unsigned number, PciInfo *pci) {
    Link *link;
    Call call = enter_link("nvmlDeviceGetNvLinkRemotePciInfo", device, number, &link);
    if (!call.code) fill_pci(pci, link->remote);
    return leave(&call);
}
ALSO(nvmlDeviceGetNvLinkRemotePciInfo, nvmlDeviceGetNvLinkRemotePciInfo_v2);

int nvmlDeviceGetNvLinkRemoteDeviceType(Handle *device, unsigned number, unsigned *kind) {
    Link *link;
    Call call = enter_link("nvmlDeviceGetNvLinkRemoteDeviceType", device, number, &link);
    if (!call.code) *kind = link->kind;
    return leave(&call);
}

int nvmlDeviceGetNvLinkVersion(Handle *device, unsigned number, unsigned *version) {
    Link *link;
    Call call = enter_link("nvmlDeviceGetNvLinkVersion", device, number, &link);
    if (!call.code) *version = call.gpu->cc_major >= 9 ? 4 : call.gpu->cc_major >= 8 ? 3 : 2;
    return leave(&call);
}

int nvmlDeviceGetNvLinkCapability(Handle *device, unsigned number, int capability, unsigned *able) {
    Link *link;
    Call call = enter_link("nvmlDeviceGetNvLinkCapability", device, number, &link);
    (void)capability;
    if (!call.code) *able = 1;
    return leave(&call);
}
