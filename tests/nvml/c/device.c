/* What the system and a whole GPU answer. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "sim.h"

/* The texts of the real library: programs put them into their logs and errors. */
static const struct {
    int code;
    const char *text;
} ERRORS[] = {
    {0, "Success"},
    {1, "Uninitialized"},
    {2, "Invalid Argument"},
    {3, "Not Supported"},
    {4, "Insufficient Permissions"},
    {5, "Already Initialized"},
    {6, "Not Found"},
    {7, "Insufficient Size"},
    {8, "Insufficient External Power"},
    {9, "Driver Not Loaded"},
    {10, "Timeout"},
    {11, "Interrupt Request Issue"},
    {12, "NVML Shared Library Not Found"},
    {13, "Function Not Found"},
    {14, "Corrupted infoROM"},
    {15, "GPU is lost"},
    {16, "GPU requires reset"},
    {17, "GPU access blocked by the operating system"},
    {18, "Driver/library version mismatch"},
    {19, "In use by another client"},
    {20, "Insufficient Memory"},
    {21, "No data"},
    {25, "Argument version mismatch"},
    {27, "System is not in ready state"},
    {28, "No GPUs were found"},
};

const char *nvmlErrorString(int code) {
    for (size_t n = 0; n < sizeof ERRORS / sizeof *ERRORS; n++)
        if (ERRORS[n].code == code) return ERRORS[n].text;
    return "Unknown Error";
}

int nvmlSystemGetDriverVersion(char *version, unsigned size) {
    Call call = enter_at("nvmlSystemGetDriverVersion", EVERY_GPU);
    if (!call.code) call.code = copy_text(version, size, call.script->driver_version);
    return leave(&call);
}

int nvmlSystemGetNVMLVersion(char *version, unsigned size) {
    Call call = enter_at("nvmlSystemGetNVMLVersion", EVERY_GPU);
    if (!call.code) call.code = copy_text(version, size, call.script->nvml_version);
    return leave(&call);
}

int nvmlSystemGetCudaDriverVersion_v2(int *version) {
    Call call = enter_at("nvmlSystemGetCudaDriverVersion", EVERY_GPU);
    if (!call.code) *version = (int)call.script->cuda_version;
    return leave(&call);
}
ALSO(nvmlSystemGetCudaDriverVersion, nvmlSystemGetCudaDriverVersion_v2);

int nvmlDeviceGetCount_v2(unsigned *count) {
    Call call = enter_at("nvmlDeviceGetCount", EVERY_GPU);
    if (!call.code) *count = attached_count();
    return leave(&call);
}
ALSO(nvmlDeviceGetCount, nvmlDeviceGetCount_v2);

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Handle **device) {
    Call call = enter_at("nvmlDeviceGetHandleByIndex", (int)index);
    if (call.code) return leave(&call);
    if (index >= attached_count()) {
        call.code = INVALID_ARGUMENT;
        return leave(&call);
    }
    Gpu *gpu = attached(call.script, index);
    if (!gpu || is_lost(call.script, number_of(call.script, gpu))) call.code = GPU_IS_LOST;
    *device = gpu_handle(attached_bus(index));
    return leave(&call);
}
ALSO(nvmlDeviceGetHandleByIndex, nvmlDeviceGetHandleByIndex_v2);

/* The first attached GPU for which `is_it` says so. A lost one is found, and said to be lost. */
static int find(Call *call, int (*is_it)(const Gpu *, const char *), const char *text, Handle **device) {
    for (unsigned n = 0; text && n < attached_count(); n++) {
        Gpu *gpu = attached(call->script, n);
        if (!gpu || !is_it(gpu, text)) continue;
        *device = gpu_handle(gpu->bus_id);
        return is_lost(call->script, number_of(call->script, gpu)) ? GPU_IS_LOST : SUCCESS;
    }
    return NOT_FOUND;
}

static int has_uuid(const Gpu *gpu, const char *text) { return !strcmp(gpu->uuid, text); }
static int has_serial(const Gpu *gpu, const char *text) { return !strcmp(gpu->serial, text); }

static int has_bus_id(const Gpu *gpu, const char *text) {
    unsigned a[4], b[4];
    if (sscanf(text, "%x:%x:%x.%x", &a[0], &a[1], &a[2], &a[3]) != 4) return 0;
    return sscanf(gpu->bus_id, "%x:%x:%x.%x", &b[0], &b[1], &b[2], &b[3]) == 4 && !memcmp(a, b, sizeof a);
}

static int find_mig(Call *call, const char *uuid, Handle **device) {
    for (unsigned n = 0; n < attached_count(); n++) {
        Gpu *gpu = attached(call->script, n);
        for (unsigned m = 0; gpu && gpu->mig_current && m < gpu->migs; m++) {
            if (strcmp(gpu->mig[m].uuid, uuid)) continue;
            *device = mig_handle(gpu, &gpu->mig[m]);
            return is_lost(call->script, number_of(call->script, gpu)) ? GPU_IS_LOST : SUCCESS;
        }
    }
    return NOT_FOUND;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, Handle **device) {
    Call call = enter_at("nvmlDeviceGetHandleByUUID", EVERY_GPU);
    if (call.code) return leave(&call);
    if (uuid && !strncmp(uuid, "MIG-", 4)) {
        call.code = fault_of(call.script, "nvmlDeviceGetHandleByUUID(mig)", EVERY_GPU);
        if (!call.code) call.code = find_mig(&call, uuid, device);
    } else {
        call.code = find(&call, has_uuid, uuid, device);
    }
    return leave(&call);
}

int nvmlDeviceGetHandleBySerial(const char *serial, Handle **device) {
    Call call = enter_at("nvmlDeviceGetHandleBySerial", EVERY_GPU);
    if (!call.code) call.code = find(&call, has_serial, serial, device);
    return leave(&call);
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, Handle **device) {
    Call call = enter_at("nvmlDeviceGetHandleByPciBusId", EVERY_GPU);
    if (!call.code) call.code = find(&call, has_bus_id, bus_id, device);
    return leave(&call);
}
ALSO(nvmlDeviceGetHandleByPciBusId, nvmlDeviceGetHandleByPciBusId_v2);

int nvmlDeviceGetName(Handle *device, char *name, unsigned size) {
    Call call = enter("nvmlDeviceGetName", device);
    if (!call.code) call.code = copy_text(name, size, call.mig ? call.mig->name : call.gpu->name);
    return leave(&call);
}

int nvmlDeviceGetUUID(Handle *device, char *uuid, unsigned size) {
    Call call = enter("nvmlDeviceGetUUID", device);
    if (!call.code) call.code = copy_text(uuid, size, call.mig ? call.mig->uuid : call.gpu->uuid);
    return leave(&call);
}

int nvmlDeviceGetIndex(Handle *device, unsigned *index) {
    Call call = enter("nvmlDeviceGetIndex", device);
    if (call.code) return leave(&call);
    if (call.mig) {
        *index = call.mig->index;
        return leave(&call);
    }
    call.code = NOT_FOUND;
    for (unsigned n = 0; n < attached_count(); n++)
        if (attached(call.script, n) == call.gpu) *index = n, call.code = SUCCESS;
    return leave(&call);
}

/* For a whole GPU only: begins, and refuses a MIG device. */
static Call enter_whole(const char *function, Handle *device) {
    Call call = enter(function, device);
    if (!call.code && call.mig) call.code = NOT_SUPPORTED;
    return call;
}

int nvmlDeviceGetSerial(Handle *device, char *serial, unsigned size) {
    Call call = enter_whole("nvmlDeviceGetSerial", device);
    if (!call.code) call.code = call.gpu->serial[0] ? copy_text(serial, size, call.gpu->serial) : NOT_SUPPORTED;
    return leave(&call);
}

typedef struct {
    char bus_id_legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
} PciInfo;

typedef struct {
    unsigned version, domain, bus, device, device_id, subsystem_id, base_class, sub_class;
    char bus_id[32];
} PciInfoExt;

void fill_pci(PciInfo *pci, const char *bus_id) {
    unsigned function = 0;
    memset(pci, 0, sizeof *pci);
    sscanf(bus_id, "%x:%x:%x.%x", &pci->domain, &pci->bus, &pci->device, &function);
    snprintf(pci->bus_id, sizeof pci->bus_id, "%s", bus_id);
    snprintf(pci->bus_id_legacy, sizeof pci->bus_id_legacy, "%04X:%02X:%02X.%X", pci->domain & 0xffff, pci->bus & 0xff,
             pci->device & 0xff, function & 0xf);
}

int nvmlDeviceGetPciInfo_v3(Handle *device, PciInfo *pci) {
    Call call = enter("nvmlDeviceGetPciInfo", device);
    if (!call.code) {
        fill_pci(pci, call.gpu->bus_id);
        pci->device_id = call.gpu->device_id;
        pci->subsystem_id = call.gpu->subsystem_id;
    }
    return leave(&call);
}
ALSO(nvmlDeviceGetPciInfo_v2, nvmlDeviceGetPciInfo_v3);

int nvmlDeviceGetPciInfoExt(Handle *device, PciInfoExt *pci) {
    Call call = enter("nvmlDeviceGetPciInfoExt", device);
    if (!call.code) {
        PciInfo plain;
        fill_pci(&plain, call.gpu->bus_id);
        *pci = (PciInfoExt){pci->version,         plain.domain,
                            plain.bus,            plain.device,
                            call.gpu->device_id,  call.gpu->subsystem_id,
                            call.gpu->pci_class >> 16, call.gpu->pci_class >> 8 & 0xff,
                            ""};
        memcpy(pci->bus_id, plain.bus_id, sizeof pci->bus_id);
    }
    return leave(&call);
}

typedef struct {
    unsigned long long total, free, used;
} Memory;

typedef struct {
    unsigned version;
    unsigned long long total, reserved, free, used;
} MemoryV2;

static Memory memory_of(const Call *call) {
    if (!call->mig) return (Memory){call->gpu->memory_total, call->gpu->memory_free, call->gpu->memory_used};
    unsigned long long total = call->mig->memory_mb << 20;
    return (Memory){total, total - call->mig->memory_used, call->mig->memory_used};
}

int nvmlDeviceGetMemoryInfo(Handle *device, Memory *memory) {
    Call call = enter("nvmlDeviceGetMemoryInfo", device);
    if (!call.code) *memory = memory_of(&call);
    return leave(&call);
}

int nvmlDeviceGetMemoryInfo_v2(Handle *device, MemoryV2 *memory) {
    Call call = enter("nvmlDeviceGetMemoryInfo", device);
    if (!call.code) {
        Memory plain = memory_of(&call);
        unsigned long long reserved = call.mig ? 0 : call.gpu->memory_reserved;
        *memory = (MemoryV2){memory->version, plain.total, reserved, plain.free, plain.used};
    }
    return leave(&call);
}

int nvmlDeviceGetCudaComputeCapability(Handle *device, int *major, int *minor) {
    Call call = enter("nvmlDeviceGetCudaComputeCapability", device);
    if (!call.code) *major = (int)call.gpu->cc_major, *minor = (int)call.gpu->cc_minor;
    return leave(&call);
}

#define ONE_NUMBER(function, type, expression)                     \
    int function(Handle *device, type *number) {                   \
        Call call = enter_whole(#function, device);                \
        if (!call.code) *number = (type)(expression);              \
        return leave(&call);                                       \
    }

ONE_NUMBER(nvmlDeviceGetMinorNumber, unsigned, call.gpu->minor)
ONE_NUMBER(nvmlDeviceGetArchitecture, unsigned, call.gpu->architecture)
ONE_NUMBER(nvmlDeviceGetBrand, unsigned, call.gpu->brand)
ONE_NUMBER(nvmlDeviceGetPersistenceMode, unsigned, call.gpu->persistence)
ONE_NUMBER(nvmlDeviceGetComputeMode, unsigned, call.gpu->compute_mode)
ONE_NUMBER(nvmlDeviceGetPowerUsage, unsigned, call.gpu->power_mw)
ONE_NUMBER(nvmlDeviceGetBoardId, unsigned, number_of(call.script, call.gpu))
ONE_NUMBER(nvmlDeviceGetVirtualizationMode, unsigned, 0)

int nvmlDeviceGetNumaNodeId(Handle *device, unsigned *node) {
    Call call = enter_whole("nvmlDeviceGetNumaNodeId", device);
    if (!call.code && call.gpu->numa < 0) call.code = NOT_SUPPORTED; /* only coherent GPUs have one of their own */
    if (!call.code) *node = (unsigned)call.gpu->numa;
    return leave(&call);
}

int nvmlDeviceGetTemperature(Handle *device, unsigned sensor, unsigned *celsius) {
    Call call = enter_whole("nvmlDeviceGetTemperature", device);
    if (!call.code) call.code = sensor ? INVALID_ARGUMENT : SUCCESS;
    if (!call.code) *celsius = call.gpu->temperature_c;
    return leave(&call);
}

int nvmlDeviceGetUtilizationRates(Handle *device, unsigned *gpu_and_memory) {
    Call call = enter_whole("nvmlDeviceGetUtilizationRates", device);
    if (!call.code) gpu_and_memory[0] = call.gpu->busy_percent, gpu_and_memory[1] = call.gpu->memory_busy_percent;
    return leave(&call);
}

typedef struct {
    unsigned pid;
    unsigned long long memory;
    unsigned gi, ci;
} ProcessInfo;

int nvmlDeviceGetComputeRunningProcesses_v3(Handle *device, unsigned *count, ProcessInfo *infos) {
    Call call = enter("nvmlDeviceGetComputeRunningProcesses", device);
    if (call.code) return leave(&call);
    unsigned room = *count;
    *count = 0;
    for (unsigned n = 0; n < call.gpu->processes; n++) {
        Process *process = &call.gpu->process[n];
        if (call.mig && (process->gi != call.mig->gi || process->ci != call.mig->ci)) continue;
        if (*count < room && infos)
            infos[*count] = (ProcessInfo){process->pid, process->memory, process->gi, process->ci};
        ++*count;
    }
    if (*count > room) call.code = INSUFFICIENT_SIZE;
    return leave(&call);
}
ALSO(nvmlDeviceGetComputeRunningProcesses_v2, nvmlDeviceGetComputeRunningProcesses_v3);
