/* Reads the script: lines of a key and its values; `gpu`, `profile` and `mig` begin a part that the following lines describe. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"

typedef enum { WORDS, NUMBER, LONG_NUMBER } FieldKind;

typedef struct {
    const char *key;
    FieldKind kind;
    size_t offset, size;
} Field;

#define FIELD(type, kind, name) {#name, kind, offsetof(type, name), sizeof(((type *)0)->name)}
#define END {NULL, NUMBER, 0, 0}

static const Field SYSTEM_FIELDS[] = {
    FIELD(Script, WORDS, driver_version),
    FIELD(Script, WORDS, nvml_version),
    FIELD(Script, NUMBER, cuda_version),
    FIELD(Script, NUMBER, level_default),
    END,
};

#define GPU_NUMBER(name) FIELD(Gpu, NUMBER, name)
static const Field GPU_FIELDS[] = {
    FIELD(Gpu, WORDS, uuid),
    FIELD(Gpu, WORDS, name),
    FIELD(Gpu, WORDS, serial),
    FIELD(Gpu, WORDS, bus_id),
    FIELD(Gpu, WORDS, fabric_cluster),
    FIELD(Gpu, LONG_NUMBER, memory_total),
    FIELD(Gpu, LONG_NUMBER, memory_reserved),
    FIELD(Gpu, LONG_NUMBER, memory_free),
    FIELD(Gpu, LONG_NUMBER, memory_used),
    FIELD(Gpu, LONG_NUMBER, events),
    FIELD(Gpu, LONG_NUMBER, ecc_corrected),
    FIELD(Gpu, LONG_NUMBER, ecc_uncorrected),
    GPU_NUMBER(minor),
    GPU_NUMBER(device_id),
    GPU_NUMBER(subsystem_id),
    GPU_NUMBER(pci_class),
    GPU_NUMBER(cc_major),
    GPU_NUMBER(cc_minor),
    GPU_NUMBER(architecture),
    GPU_NUMBER(brand),
    GPU_NUMBER(mig_capable),
    GPU_NUMBER(mig_current),
    GPU_NUMBER(mig_pending),
    GPU_NUMBER(mig_max),
    GPU_NUMBER(persistence),
    GPU_NUMBER(compute_mode),
    GPU_NUMBER(ecc_capable),
    GPU_NUMBER(ecc_current),
    GPU_NUMBER(ecc_pending),
    GPU_NUMBER(remapped_corrected),
    GPU_NUMBER(remapped_uncorrected),
    GPU_NUMBER(remap_pending),
    GPU_NUMBER(remap_failed),
    GPU_NUMBER(retirement_pending),
    GPU_NUMBER(temperature_c),
    GPU_NUMBER(power_mw),
    GPU_NUMBER(busy_percent),
    GPU_NUMBER(memory_busy_percent),
    GPU_NUMBER(numa),
    GPU_NUMBER(fabric_state),
    GPU_NUMBER(fabric_status),
    GPU_NUMBER(fabric_clique),
    GPU_NUMBER(fabric_health),
    GPU_NUMBER(addressing),
    GPU_NUMBER(recovery_action),
    END,
};

#define PROFILE_NUMBER(name) FIELD(Profile, NUMBER, name)
static const Field PROFILE_FIELDS[] = {
    PROFILE_NUMBER(id),
    PROFILE_NUMBER(slices),
    PROFILE_NUMBER(instances),
    PROFILE_NUMBER(multiprocessors),
    PROFILE_NUMBER(copy_engines),
    PROFILE_NUMBER(decoders),
    PROFILE_NUMBER(encoders),
    PROFILE_NUMBER(jpegs),
    PROFILE_NUMBER(ofas),
    FIELD(Profile, LONG_NUMBER, memory_mb),
    FIELD(Profile, WORDS, name),
    END,
};

#define MIG_NUMBER(name) FIELD(Mig, NUMBER, name)
static const Field MIG_FIELDS[] = {
    FIELD(Mig, WORDS, uuid),
    FIELD(Mig, WORDS, name),
    MIG_NUMBER(gi),
    MIG_NUMBER(ci),
    MIG_NUMBER(gi_profile),
    MIG_NUMBER(ci_profile),
    MIG_NUMBER(gi_start),
    MIG_NUMBER(gi_size),
    MIG_NUMBER(ci_start),
    MIG_NUMBER(ci_size),
    MIG_NUMBER(multiprocessors),
    MIG_NUMBER(gi_slices),
    MIG_NUMBER(ci_slices),
    MIG_NUMBER(copy_engines),
    MIG_NUMBER(decoders),
    MIG_NUMBER(encoders),
    MIG_NUMBER(jpegs),
    MIG_NUMBER(ofas),
    FIELD(Mig, LONG_NUMBER, memory_mb),
    FIELD(Mig, LONG_NUMBER, memory_used),
    END,
};

typedef struct {
    Script *script;
    Gpu *gpu;
    Profile *profile;
    const Field *fields; /* of the part that is being described */
    char *part;
} Reader;

static int set_field(Reader *reader, const char *key, const char *value) {
    for (const Field *field = reader->fields; field->key; field++) {
        if (strcmp(field->key, key)) continue;
        char *at = reader->part + field->offset;
        if (field->kind == WORDS)
            snprintf(at, field->size, "%s", value);
        else if (field->kind == NUMBER)
            *(unsigned *)at = (unsigned)strtoll(value, NULL, 0); /* signed ones are two's complement too */
        else
            *(unsigned long long *)at = strtoull(value, NULL, 0);
        return 1;
    }
    return 0;
}

static void *grow(void *list, unsigned count, size_t size) {
    void *grown = realloc(list, (count + 1) * size);
    if (!grown) abort();
    memset((char *)grown + count * size, 0, size);
    return grown;
}

static void begin(Reader *reader, const Field *fields, void *part) {
    reader->fields = fields;
    reader->part = part;
}

static int add_gpu(Reader *reader) {
    Script *script = reader->script;
    script->gpu = grow(script->gpu, script->gpus, sizeof(Gpu));
    reader->gpu = &script->gpu[script->gpus++];
    reader->gpu->numa = reader->gpu->fabric_state = reader->gpu->addressing = -1;
    reader->profile = NULL;
    begin(reader, GPU_FIELDS, reader->gpu);
    return 1;
}

static int add_rule(Script *script, RuleKind kind, const char *value) {
    Rule rule = {.kind = kind, .function = "*", .gpu = EVERY_GPU};
    int complete = kind == LOST   ? sscanf(value, "%d", &rule.gpu) == 1
                   : kind == HANG ? sscanf(value, "%127s %d", rule.function, &rule.gpu) == 2
                                  : sscanf(value, "%127s %d %d", rule.function, &rule.number, &rule.gpu) == 3;
    if (!complete) return 0;
    script->rule = grow(script->rule, script->rules, sizeof(Rule));
    script->rule[script->rules++] = rule;
    return 1;
}

static int add_level(Script *script, const char *value) {
    Level level;
    if (sscanf(value, "%u %u %d", &level.a, &level.b, &level.level) != 3) return 0;
    script->level = grow(script->level, script->levels, sizeof(Level));
    script->level[script->levels++] = level;
    return 1;
}

static int add_to_gpu(Reader *reader, const char *key, const char *value) {
    Gpu *gpu = reader->gpu;
    unsigned number = (unsigned)strtoul(value, NULL, 0);
    if (!strcmp(key, "profile") && gpu->profiles < PROFILES) {
        reader->profile = &gpu->profile[gpu->profiles++];
        reader->profile->constant = number;
        begin(reader, PROFILE_FIELDS, reader->profile);
        return 1;
    }
    if (!strcmp(key, "mig") && gpu->migs < MIGS) {
        Mig *mig = &gpu->mig[gpu->migs++];
        mig->index = number;
        begin(reader, MIG_FIELDS, mig);
        return 1;
    }
    if (!strcmp(key, "placement") && reader->profile && reader->profile->placements < PLACEMENTS) {
        unsigned n = reader->profile->placements++;
        return sscanf(value, "%u %u", &reader->profile->start[n], &reader->profile->size[n]) == 2;
    }
    if (!strcmp(key, "link") && number < LINKS) {
        Link *link = &gpu->link[number];
        if (number >= gpu->links) gpu->links = number + 1;
        return sscanf(value, "%*u %u %u %31s", &link->up, &link->kind, link->remote) == 3;
    }
    if (!strcmp(key, "process") && gpu->processes < PROCESSES) {
        Process *process = &gpu->process[gpu->processes++];
        return sscanf(value, "%u %llu %u %u", &process->pid, &process->memory, &process->gi, &process->ci) == 4;
    }
    return 0;
}

static int read_line(Reader *reader, const char *key, const char *value) {
    if (!strcmp(key, "gpu")) return add_gpu(reader);
    if (!strcmp(key, "level")) return add_level(reader->script, value);
    if (!strcmp(key, "fault")) return add_rule(reader->script, FAULT, value);
    if (!strcmp(key, "slow")) return add_rule(reader->script, SLOW, value);
    if (!strcmp(key, "hang")) return add_rule(reader->script, HANG, value);
    if (!strcmp(key, "lost")) return add_rule(reader->script, LOST, value);
    if (set_field(reader, key, value)) return 1;
    return reader->gpu && add_to_gpu(reader, key, value);
}

Script *script_read(const char *path) {
    FILE *file = fopen(path, "re");
    if (!file) return NULL;
    Reader reader = {.script = calloc(1, sizeof(Script))};
    if (!reader.script) abort();
    begin(&reader, SYSTEM_FIELDS, reader.script);
    char line[512];
    int good = 1;
    for (int number = 1; good && fgets(line, sizeof line, file); number++) {
        line[strcspn(line, "\n")] = 0;
        if (!line[0] || line[0] == '#') continue;
        char *value = strchr(line, ' ');
        if (value) *value++ = 0;
        good = read_line(&reader, line, value ? value : "");
        if (!good) fprintf(stderr, "simulated driver: %s:%d: '%s' is not understood here\n", path, number, line);
    }
    fclose(file);
    if (good) return reader.script;
    script_free(reader.script);
    errno = 0;
    return NULL;
}

void script_free(Script *script) {
    if (!script) return;
    free(script->gpu);
    free(script->level);
    free(script->rule);
    free(script);
}
