/* What a GPU says of its own health: ECC, remapped rows, retired pages, fabric. */
#include <stdio.h>
#include <string.h>

#include "sim.h"

enum { UNCORRECTED = 1, VOLATILE = 0, DEVICE_MEMORY = 2 };

int nvmlDeviceGetEccMode(Handle *device, unsigned *current, unsigned *pending) {
    Call call = enter("nvmlDeviceGetEccMode", device);
    if (!call.code && !call.gpu->ecc_capable) call.code = NOT_SUPPORTED;
    if (!call.code) *current = call.gpu->ecc_current, *pending = call.gpu->ecc_pending;
    return leave(&call);
}

int nvmlDeviceGetTotalEccErrors(Handle *device, unsigned type, unsigned counter, unsigned long long *count) {
    Call call = enter("nvmlDeviceGetTotalEccErrors", device);
    if (!call.code && (!call.gpu->ecc_capable || !call.gpu->ecc_current)) call.code = NOT_SUPPORTED;
    (void)counter; /* one count for both: since the last boot, and ever */
    if (!call.code) *count = type == UNCORRECTED ? call.gpu->ecc_uncorrected : call.gpu->ecc_corrected;
    return leave(&call);
}

int nvmlDeviceGetMemoryErrorCounter(Handle *device, unsigned type, unsigned counter, unsigned location,
                                    unsigned long long *count) {
    Call call = enter("nvmlDeviceGetMemoryErrorCounter", device);
    if (!call.code && (!call.gpu->ecc_capable || !call.gpu->ecc_current)) call.code = NOT_SUPPORTED;
    (void)counter;
    if (!call.code) *count = location != DEVICE_MEMORY    ? 0
                             : type == UNCORRECTED ? call.gpu->ecc_uncorrected
                                                   : call.gpu->ecc_corrected;
    return leave(&call);
}

int nvmlDeviceGetRemappedRows(Handle *device, unsigned *corrected, unsigned *uncorrected, unsigned *pending,
                              unsigned *failed) {
    Call call = enter("nvmlDeviceGetRemappedRows", device);
    if (!call.code && !call.gpu->ecc_capable) call.code = NOT_SUPPORTED;
    if (!call.code) {
        *corrected = call.gpu->remapped_corrected;
        *uncorrected = call.gpu->remapped_uncorrected;
        *pending = call.gpu->remap_pending;
        *failed = call.gpu->remap_failed;
    }
    return leave(&call);
}

int nvmlDeviceGetRetiredPagesPendingStatus(Handle *device, unsigned *pending) {
    Call call = enter("nvmlDeviceGetRetiredPagesPendingStatus", device);
    if (!call.code && !call.gpu->ecc_capable) call.code = NOT_SUPPORTED;
    if (!call.code) *pending = call.gpu->retirement_pending;
    return leave(&call);
}

enum { RECOVERY_ACTION = 230, UNSIGNED_INT = 1 };

typedef struct {
    unsigned field, scope;
    long long timestamp, latency;
    unsigned type;
    int code;
    unsigned long long value;
} FieldValue;

int nvmlDeviceGetFieldValues(Handle *device, int count, FieldValue *values) {
    Call call = enter("nvmlDeviceGetFieldValues", device);
    for (int n = 0; !call.code && n < count; n++) {
        int known = values[n].field == RECOVERY_ACTION && call.gpu->recovery_action >= 0;
        values[n].code = known ? SUCCESS : NOT_SUPPORTED;
        values[n].type = UNSIGNED_INT;
        values[n].value = known ? (unsigned)call.gpu->recovery_action : 0;
    }
    return leave(&call);
}

typedef struct {
    unsigned char cluster[16];
    int status;
    unsigned clique;
    unsigned char state;
} Fabric;

typedef struct {
    unsigned version;
    unsigned char cluster[16];
    int status;
    unsigned clique;
    unsigned char state;
    unsigned health;
    unsigned char summary; /* from version 3 on */
} FabricV;

static void parse_cluster(unsigned char *bytes, const char *text) {
    memset(bytes, 0, 16);
    for (unsigned n = 0; n < 16 && *text;) {
        unsigned byte;
        if (*text == '-') {
            text++;
        } else if (sscanf(text, "%2x", &byte) == 1) {
            bytes[n++] = (unsigned char)byte;
            text += 2;
        } else {
            return;
        }
    }
}

int nvmlDeviceGetGpuFabricInfo(Handle *device, Fabric *fabric) {
    Call call = enter("nvmlDeviceGetGpuFabricInfo", device);
    if (!call.code && call.gpu->fabric_state < 0) call.code = NOT_SUPPORTED;
    if (!call.code) {
        parse_cluster(fabric->cluster, call.gpu->fabric_cluster);
        fabric->status = (int)call.gpu->fabric_status;
        fabric->clique = call.gpu->fabric_clique;
        fabric->state = (unsigned char)call.gpu->fabric_state;
    }
    return leave(&call);
}

int nvmlDeviceGetGpuFabricInfoV(Handle *device, FabricV *fabric) {
    Call call = enter("nvmlDeviceGetGpuFabricInfo", device);
    unsigned version = fabric->version >> 24;
    if (!call.code && call.gpu->fabric_state < 0) call.code = NOT_SUPPORTED;
    if (!call.code && version != 2 && version != 3) call.code = VERSION_MISMATCH;
    if (!call.code) {
        parse_cluster(fabric->cluster, call.gpu->fabric_cluster);
        fabric->status = (int)call.gpu->fabric_status;
        fabric->clique = call.gpu->fabric_clique;
        fabric->state = (unsigned char)call.gpu->fabric_state;
        fabric->health = call.gpu->fabric_health;
        if (version == 3) fabric->summary = 0;
    }
    return leave(&call);
}

int nvmlDeviceGetAddressingMode(Handle *device, unsigned *version_and_value) {
    Call call = enter("nvmlDeviceGetAddressingMode", device);
    if (!call.code && call.gpu->addressing < 0) call.code = NOT_SUPPORTED;
    if (!call.code) version_and_value[1] = (unsigned)call.gpu->addressing;
    return leave(&call);
}
