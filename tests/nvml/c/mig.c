/* MIG: mode, instances, devices, and the profiles that a GPU could have. */
#include <stdio.h>
#include <string.h>

#include "sim.h"

static Call enter_capable(const char *function, Handle *device) {
    Call call = enter(function, device);
    if (!call.code && (!call.gpu->mig_capable || call.mig)) call.code = NOT_SUPPORTED;
    return call;
}

int nvmlDeviceGetMigMode(Handle *device, unsigned *current, unsigned *pending) {
    Call call = enter_capable("nvmlDeviceGetMigMode", device);
    if (!call.code) *current = call.gpu->mig_current, *pending = call.gpu->mig_pending;
    return leave(&call);
}

int nvmlDeviceGetMaxMigDeviceCount(Handle *device, unsigned *count) {
    Call call = enter("nvmlDeviceGetMaxMigDeviceCount", device);
    if (!call.code) *count = call.gpu->mig_max;
    return leave(&call);
}

int nvmlDeviceGetMigDeviceHandleByIndex(Handle *device, unsigned index, Handle **mig) {
    Call call = enter_capable("nvmlDeviceGetMigDeviceHandleByIndex", device);
    if (call.code) return leave(&call);
    call.code = index >= call.gpu->mig_max ? INVALID_ARGUMENT : NOT_FOUND;
    for (unsigned n = 0; call.gpu->mig_current && n < call.gpu->migs; n++) {
        if (call.gpu->mig[n].index != index) continue;
        *mig = mig_handle(call.gpu, &call.gpu->mig[n]);
        call.code = SUCCESS;
    }
    return leave(&call);
}

int nvmlDeviceIsMigDeviceHandle(Handle *device, unsigned *is_mig) {
    Call call = enter("nvmlDeviceIsMigDeviceHandle", device);
    if (!call.code) *is_mig = call.mig != NULL;
    return leave(&call);
}

static Call enter_mig(const char *function, Handle *device) {
    Call call = enter(function, device);
    if (!call.code && !call.mig) call.code = INVALID_ARGUMENT;
    return call;
}

int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(Handle *mig, Handle **device) {
    Call call = enter_mig("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", mig);
    if (!call.code) *device = gpu_handle(call.gpu->bus_id);
    return leave(&call);
}

int nvmlDeviceGetGpuInstanceId(Handle *mig, unsigned *id) {
    Call call = enter_mig("nvmlDeviceGetGpuInstanceId", mig);
    if (!call.code) *id = call.mig->gi;
    return leave(&call);
}

int nvmlDeviceGetComputeInstanceId(Handle *mig, unsigned *id) {
    Call call = enter_mig("nvmlDeviceGetComputeInstanceId", mig);
    if (!call.code) *id = call.mig->ci;
    return leave(&call);
}

typedef struct {
    unsigned multiprocessors, copy_engines, decoders, encoders, jpegs, ofas, gi_slices, ci_slices;
    unsigned long long memory_mb;
} Attributes;

int nvmlDeviceGetAttributes_v2(Handle *mig, Attributes *attributes) {
    Call call = enter("nvmlDeviceGetAttributes", mig);
    if (!call.code && !call.mig) call.code = NOT_SUPPORTED;
    if (!call.code) {
        const Mig *it = call.mig;
        *attributes = (Attributes){it->multiprocessors, it->copy_engines, it->decoders,  it->encoders, it->jpegs,
                                   it->ofas,            it->gi_slices,    it->ci_slices, it->memory_mb};
    }
    return leave(&call);
}
ALSO(nvmlDeviceGetAttributes, nvmlDeviceGetAttributes_v2);

typedef struct {
    unsigned id, is_p2p, slices, instances, multiprocessors, copy_engines, decoders, encoders, jpegs, ofas;
    unsigned long long memory_mb;
} ProfileInfo;

typedef struct {
    unsigned version, id, is_p2p, slices, instances, multiprocessors, copy_engines, decoders, encoders, jpegs, ofas;
    unsigned long long memory_mb;
    char name[96];
} ProfileInfoV2;

typedef struct {
    unsigned version, id, slices, instances, multiprocessors, copy_engines, decoders, encoders, jpegs, ofas;
    unsigned long long memory_mb;
    char name[96];
    unsigned capabilities;
} ProfileInfoV3;

static Profile *profile_at(Gpu *gpu, unsigned constant) {
    for (unsigned n = 0; n < gpu->profiles; n++)
        if (gpu->profile[n].constant == constant) return &gpu->profile[n];
    return NULL;
}

static Profile *profile_with_id(Gpu *gpu, unsigned id) {
    for (unsigned n = 0; n < gpu->profiles; n++)
        if (gpu->profile[n].id == id) return &gpu->profile[n];
    return NULL;
}

int nvmlDeviceGetGpuInstanceProfileInfo(Handle *device, unsigned constant, ProfileInfo *info) {
    Call call = enter_capable("nvmlDeviceGetGpuInstanceProfileInfo", device);
    Profile *it = call.code ? NULL : profile_at(call.gpu, constant);
    if (!call.code && !it) call.code = NOT_SUPPORTED;
    if (!call.code)
        *info = (ProfileInfo){it->id,       0,        it->slices,   it->instances, it->multiprocessors, it->copy_engines,
                              it->decoders, it->encoders, it->jpegs, it->ofas,      it->memory_mb};
    return leave(&call);
}

static int fill_versioned(const Profile *it, void *info) {
    unsigned version = *(unsigned *)info;
    if (version >> 24 == 2) {
        ProfileInfoV2 *out = info;
        *out = (ProfileInfoV2){version, it->id, 0, it->slices, it->instances, it->multiprocessors, it->copy_engines,
                               it->decoders, it->encoders, it->jpegs, it->ofas, it->memory_mb, ""};
        snprintf(out->name, sizeof out->name, "%.95s", it->name);
        return SUCCESS;
    }
    if (version >> 24 == 3) {
        ProfileInfoV3 *out = info;
        *out = (ProfileInfoV3){version, it->id, it->slices, it->instances, it->multiprocessors, it->copy_engines,
                               it->decoders, it->encoders, it->jpegs, it->ofas, it->memory_mb, "", 0};
        snprintf(out->name, sizeof out->name, "%.95s", it->name);
        return SUCCESS;
    }
    return VERSION_MISMATCH;
}

int nvmlDeviceGetGpuInstanceProfileInfoV(Handle *device, unsigned constant, void *info) {
    Call call = enter_capable("nvmlDeviceGetGpuInstanceProfileInfo", device);
    Profile *it = call.code ? NULL : profile_at(call.gpu, constant);
    if (!call.code) call.code = it ? fill_versioned(it, info) : NOT_SUPPORTED;
    return leave(&call);
}

int nvmlDeviceGetGpuInstanceProfileInfoByIdV(Handle *device, unsigned id, void *info) {
    Call call = enter_capable("nvmlDeviceGetGpuInstanceProfileInfo", device);
    Profile *it = call.code ? NULL : profile_with_id(call.gpu, id);
    if (!call.code) call.code = it ? fill_versioned(it, info) : NOT_SUPPORTED;
    return leave(&call);
}

typedef struct {
    unsigned start, size;
} Placement;

int nvmlDeviceGetGpuInstancePossiblePlacements_v2(Handle *device, unsigned id, Placement *placements, unsigned *count) {
    Call call = enter_capable("nvmlDeviceGetGpuInstancePossiblePlacements", device);
    Profile *it = call.code ? NULL : profile_with_id(call.gpu, id);
    if (!call.code && !it) call.code = NOT_SUPPORTED;
    if (call.code) return leave(&call);
    unsigned room = *count;
    *count = it->placements;
    for (unsigned n = 0; placements && n < it->placements && n < room; n++)
        placements[n] = (Placement){it->start[n], it->size[n]};
    if (placements && it->placements > room) call.code = INSUFFICIENT_SIZE;
    return leave(&call);
}

/* The first MIG device of each GPU instance speaks for it. */
static int is_first_of_instance(const Gpu *gpu, unsigned n) {
    for (unsigned m = 0; m < n; m++)
        if (gpu->mig[m].gi == gpu->mig[n].gi) return 0;
    return 1;
}

static unsigned profile_id(Gpu *gpu, const Mig *mig) {
    Profile *it = profile_at(gpu, mig->gi_profile);
    return it ? it->id : mig->gi_profile;
}

static unsigned instances_of(Gpu *gpu, unsigned id, Handle **instances) {
    unsigned count = 0;
    for (unsigned n = 0; gpu->mig_current && n < gpu->migs; n++) {
        if (!is_first_of_instance(gpu, n) || profile_id(gpu, &gpu->mig[n]) != id) continue;
        if (instances) instances[count] = instance_handle(A_GPU_INSTANCE, gpu, gpu->mig[n].gi, 0);
        count++;
    }
    return count;
}

int nvmlDeviceGetGpuInstances(Handle *device, unsigned id, Handle **instances, unsigned *count) {
    Call call = enter_capable("nvmlDeviceGetGpuInstances", device);
    if (!call.code) *count = instances_of(call.gpu, id, instances);
    return leave(&call);
}

int nvmlDeviceGetGpuInstanceRemainingCapacity(Handle *device, unsigned id, unsigned *count) {
    Call call = enter_capable("nvmlDeviceGetGpuInstanceRemainingCapacity", device);
    Profile *it = call.code ? NULL : profile_with_id(call.gpu, id);
    if (!call.code && !it) call.code = NOT_SUPPORTED;
    if (call.code) return leave(&call);
    *count = 0;
    for (unsigned n = 0; n < it->placements; n++) {
        int free = 1;
        for (unsigned m = 0; m < call.gpu->migs; m++) {
            const Mig *mig = &call.gpu->mig[m];
            if (it->start[n] < mig->gi_start + mig->gi_size && mig->gi_start < it->start[n] + it->size[n]) free = 0;
        }
        *count += (unsigned)free;
    }
    return leave(&call);
}

int nvmlDeviceGetGpuInstanceById(Handle *device, unsigned id, Handle **instance) {
    Call call = enter_capable("nvmlDeviceGetGpuInstanceById", device);
    if (call.code) return leave(&call);
    call.code = NOT_FOUND;
    for (unsigned n = 0; call.gpu->mig_current && n < call.gpu->migs; n++) {
        if (call.gpu->mig[n].gi != id) continue;
        *instance = instance_handle(A_GPU_INSTANCE, call.gpu, id, 0);
        call.code = SUCCESS;
    }
    return leave(&call);
}

typedef struct {
    Handle *device;
    unsigned id, profile_id;
    Placement placement;
} InstanceInfo;

int nvmlGpuInstanceGetInfo(Handle *instance, InstanceInfo *info) {
    Call call = enter_mig("nvmlGpuInstanceGetInfo", instance);
    if (!call.code)
        *info = (InstanceInfo){gpu_handle(call.gpu->bus_id), call.mig->gi, profile_id(call.gpu, call.mig),
                               {call.mig->gi_start, call.mig->gi_size}};
    return leave(&call);
}

/* Compute instances. Their profile ids are the constants themselves. */
static const unsigned CI_SLICES[] = {1, 2, 3, 4, 7, 8, 6, 1};

typedef struct {
    unsigned id, slices, instances, multiprocessors, copy_engines, decoders, encoders, jpegs, ofas;
} ComputeProfileInfo;

typedef struct {
    unsigned version;
    ComputeProfileInfo info;
    char name[96];
    unsigned capabilities; /* from version 3 on */
} ComputeProfileInfoV;

static int fill_compute(const Call *call, unsigned constant, unsigned engine, ComputeProfileInfo *info) {
    const Profile *it = profile_at(call->gpu, call->mig->gi_profile);
    if (engine || constant >= sizeof CI_SLICES / sizeof *CI_SLICES || !it || CI_SLICES[constant] > it->slices)
        return NOT_SUPPORTED;
    unsigned slices = CI_SLICES[constant], multiprocessors = it->multiprocessors * slices / it->slices;
    *info = (ComputeProfileInfo){constant, slices, it->slices / slices, multiprocessors, it->copy_engines,
                                 it->decoders, it->encoders, it->jpegs, it->ofas};
    return SUCCESS;
}

int nvmlGpuInstanceGetComputeInstanceProfileInfo(Handle *instance, unsigned constant, unsigned engine, ComputeProfileInfo *info) {
    Call call = enter_mig("nvmlGpuInstanceGetComputeInstanceProfileInfo", instance);
    if (!call.code) call.code = fill_compute(&call, constant, engine, info);
    return leave(&call);
}

int nvmlGpuInstanceGetComputeInstanceProfileInfoV(Handle *instance, unsigned constant, unsigned engine, ComputeProfileInfoV *info) {
    Call call = enter_mig("nvmlGpuInstanceGetComputeInstanceProfileInfo", instance);
    unsigned version = info->version >> 24;
    if (!call.code && version != 2 && version != 3) call.code = VERSION_MISMATCH;
    if (!call.code) call.code = fill_compute(&call, constant, engine, &info->info);
    if (!call.code) {
        snprintf(info->name, sizeof info->name, "MIG %uc.%ug", info->info.slices, call.mig->gi_slices);
        if (version == 3) info->capabilities = 0;
    }
    return leave(&call);
}

int nvmlGpuInstanceGetComputeInstances(Handle *instance, unsigned id, Handle **found, unsigned *count) {
    Call call = enter_mig("nvmlGpuInstanceGetComputeInstances", instance);
    if (call.code) return leave(&call);
    *count = 0;
    for (unsigned n = 0; n < call.gpu->migs; n++) {
        const Mig *mig = &call.gpu->mig[n];
        if (mig->gi != instance->gi || mig->ci_profile != id) continue;
        if (found) found[*count] = instance_handle(A_COMPUTE_INSTANCE, call.gpu, mig->gi, mig->ci);
        ++*count;
    }
    return leave(&call);
}

int nvmlGpuInstanceGetComputeInstanceById(Handle *instance, unsigned id, Handle **found) {
    Call call = enter_mig("nvmlGpuInstanceGetComputeInstanceById", instance);
    if (call.code) return leave(&call);
    call.code = NOT_FOUND;
    for (unsigned n = 0; n < call.gpu->migs; n++) {
        if (call.gpu->mig[n].gi != instance->gi || call.gpu->mig[n].ci != id) continue;
        *found = instance_handle(A_COMPUTE_INSTANCE, call.gpu, instance->gi, id);
        call.code = SUCCESS;
    }
    return leave(&call);
}

typedef struct {
    Handle *device, *instance;
    unsigned id, profile_id;
    Placement placement;
} ComputeInfo;

int nvmlComputeInstanceGetInfo_v2(Handle *compute, ComputeInfo *info) {
    Call call = enter_mig("nvmlComputeInstanceGetInfo", compute);
    if (!call.code)
        *info = (ComputeInfo){gpu_handle(call.gpu->bus_id), instance_handle(A_GPU_INSTANCE, call.gpu, call.mig->gi, 0),
                              call.mig->ci, call.mig->ci_profile, {call.mig->ci_start, call.mig->ci_size}};
    return leave(&call);
}
ALSO(nvmlComputeInstanceGetInfo, nvmlComputeInstanceGetInfo_v2);
