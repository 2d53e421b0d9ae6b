/* What the parts of the simulated driver share: the script as it was read, handles, and how a call begins and ends.
 *
 * The layouts of NVML's own structures stand where they are filled; nothing here is part of its interface. */
#ifndef SIM_H
#define SIM_H

#include <stddef.h>

enum {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9,
    TIMEOUT = 10,
    GPU_IS_LOST = 15,
    VERSION_MISMATCH = 25,
    UNKNOWN = 999,
};

enum { TEXT = 128, LINKS = 36, PROFILES = 32, PLACEMENTS = 16, MIGS = 64, PROCESSES = 16, EVERY_GPU = -1 };

typedef struct {
    unsigned constant, id, slices, instances, multiprocessors, copy_engines, decoders, encoders, jpegs, ofas;
    unsigned long long memory_mb;
    char name[TEXT];
    unsigned placements, start[PLACEMENTS], size[PLACEMENTS];
} Profile;

typedef struct {
    unsigned index, gi, ci, gi_profile, ci_profile, gi_start, gi_size, ci_start, ci_size;
    unsigned multiprocessors, gi_slices, ci_slices, copy_engines, decoders, encoders, jpegs, ofas;
    unsigned long long memory_mb, memory_used;
    char uuid[TEXT], name[TEXT];
} Mig;

typedef struct {
    unsigned up, kind; /* kind: 0 a GPU, 2 a switch */
    char remote[32];   /* the bus id at the other end */
} Link;

typedef struct {
    unsigned pid, gi, ci;
    unsigned long long memory;
} Process;

typedef struct {
    char uuid[TEXT], name[TEXT], serial[TEXT], bus_id[32], fabric_cluster[40];
    unsigned minor, device_id, subsystem_id, pci_class, cc_major, cc_minor, architecture, brand;
    unsigned long long memory_total, memory_reserved, memory_free, memory_used, events;
    unsigned mig_capable, mig_current, mig_pending, mig_max;
    unsigned persistence, compute_mode, ecc_capable, ecc_current, ecc_pending;
    unsigned long long ecc_corrected, ecc_uncorrected;
    unsigned remapped_corrected, remapped_uncorrected, remap_pending, remap_failed, retirement_pending;
    unsigned temperature_c, power_mw, busy_percent, memory_busy_percent;
    int numa, fabric_state, addressing, recovery_action; /* -1: not supported */
    unsigned fabric_status, fabric_clique, fabric_health;
    unsigned links, profiles, migs, processes;
    Link link[LINKS];
    Profile profile[PROFILES];
    Mig mig[MIGS];
    Process process[PROCESSES];
} Gpu;

typedef enum { FAULT, SLOW, HANG, LOST } RuleKind;

typedef struct {
    RuleKind kind;
    char function[TEXT]; /* without a version suffix; * for all */
    int number;          /* a FAULT's code, or how many milliseconds a SLOW call takes */
    int gpu;
} Rule;

typedef struct {
    unsigned a, b;
    int level;
} Level;

typedef struct {
    char driver_version[TEXT], nvml_version[TEXT];
    unsigned cuda_version, level_default;
    unsigned gpus, levels, rules;
    Gpu *gpu;
    Level *level;
    Rule *rule;
} Script;

/* Reads a script. NULL and errno 0: it cannot be understood, and a line on stderr says why. NULL and errno: it cannot be opened. */
Script *script_read(const char *path);
void script_free(Script *script);

typedef enum { A_GPU = 1, A_MIG, A_GPU_INSTANCE, A_COMPUTE_INSTANCE } HandleKind;

/* What nvmlDevice_t, nvmlGpuInstance_t and nvmlComputeInstance_t point to. It names its thing, and finds it anew in each script. */
typedef struct {
    unsigned magic;
    HandleKind kind;
    char bus_id[32], uuid[TEXT];
    unsigned gi, ci;
} Handle;

typedef struct {
    int code;
    Script *script;
    Gpu *gpu;
    Mig *mig;
} Call;

/* Every function is: enter, do its work if code is 0, leave. Between them the lock is held.
 * enter answers UNINITIALIZED, the fault of the script, GPU_IS_LOST or INVALID_ARGUMENT (a handle whose thing is gone). */
Call enter(const char *function, Handle *handle);
Call enter_at(const char *function, int gpu); /* for functions that name a GPU by its number, or none: EVERY_GPU */
int leave(Call *call);

void free_all_events(void);   /* at the last shutdown */
void let_go(void);            /* for a wait in the middle of a call */
Script *take_up(void);        /* and its end: the script as it is now */
int is_initialized(void);
int fault_of(Script *script, const char *function, int gpu);
int is_lost(Script *script, int gpu);
unsigned attached_count(void);
Gpu *attached(Script *script, unsigned index); /* NULL: gone since nvmlInit */
const char *attached_bus(unsigned index);
Gpu *find_gpu(Script *script, const char *bus_id);
int number_of(Script *script, const Gpu *gpu);
const char *control_path(const char *name, char *buffer, size_t size);

Handle *gpu_handle(const char *bus_id);
Handle *mig_handle(const Gpu *gpu, const Mig *mig);
Handle *instance_handle(HandleKind kind, const Gpu *gpu, unsigned gi, unsigned ci);

int copy_text(char *to, unsigned size, const char *text);

/* Two names for one function: what the header calls it today, and what older programs ask for. */
#define ALSO(old, new) extern __typeof__(new) old __attribute__((alias(#new)))

#endif
