/* Counts the guest's instructions and events between marker instructions, exactly.
 *
 * One processor under -icount, so nothing here is ever entered twice at once.
 *
 *   marker           nopl 0x584f0000+MARK(%rax), a NOP wherever it runs
 *   MARK             0 begins a sample, 1 ends it, others are milestones
 *   out=FILE         gets the lines below
 *   counters=FILE    holds the counters since power-on as they stand, a 64-bit word each, in the
 *                    order of the columns: for what is measured from outside
 *   profile=FILE     gets, at the end, how often each instruction ran inside of samples but the
 *                    first, which warms up
 *   until=MARK       the profile is of everything from power-on to this milestone instead
 *
 *   columns NAME...
 *   sample NUMBER...            what happened between begin and end
 *   milestone MARK NUMBER...    what has happened since power-on; 0: the first user instruction
 *
 * Who runs is told by the address: programs in the lower half, our library OS in its slot of the
 * upper half, the kernel in the rest of it. */
#include "qemu.h"
#include "decode.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

EXPORT int qemu_plugin_version = 1;

enum part { PROGRAM, LIBRARY, KERNEL, PARTS };

static const char *const COLUMNS =
    "program library kernel program_rep library_rep kernel_rep locked entries "
    "syscall return cr3 invlpg port msr vector";

struct counters {
    uint64_t instructions[PARTS];
    uint64_t repeated[PARTS];
    uint64_t locked;
    uint64_t entries; /* from a program or library into the kernel, for whatever reason */
    uint64_t events[EVENTS];
};

#define WORDS (sizeof(struct counters) / sizeof(uint64_t))

static struct counters own, begun;
static struct counters *now = &own;
static FILE *output;

/* The library's slot of the root table: 0xffff_c080_0000_0000. */
#define LIBRARY_SLOT 0x1ffff81ull

static enum part part_of(uint64_t address)
{
    if (address >> 47 == 0)
        return PROGRAM;
    return address >> 39 == LIBRARY_SLOT ? LIBRARY : KERNEL;
}

/* ---- the profile: a counter for each instruction, found by address and bytes ---- */

struct place {
    uint64_t address;
    uint64_t runs;  /* since the sample began */
    uint64_t total; /* in the samples so far */
    struct place *next;
    uint8_t size;
    uint8_t bytes[15];
};

#define BUCKETS (1u << 16)
static struct place *buckets[BUCKETS];
static const char *profile_path;
static unsigned profile_until; /* 0: samples are profiled */

static struct place *find_place(uint64_t address, const uint8_t *bytes, size_t size)
{
    struct place **bucket = &buckets[(address ^ address >> 16 ^ address >> 32) % BUCKETS];
    for (struct place *place = *bucket; place; place = place->next)
        if (place->address == address && place->size == size && !memcmp(place->bytes, bytes, size))
            return place;
    struct place *place = calloc(1, sizeof *place);
    if (!place)
        abort();
    place->address = address;
    place->size = (uint8_t)size;
    memcpy(place->bytes, bytes, size);
    place->next = *bucket;
    *bucket = place;
    return place;
}

static void start_profile(void)
{
    for (unsigned bucket = 0; bucket < BUCKETS; bucket++)
        for (struct place *place = buckets[bucket]; place; place = place->next)
            place->runs = 0;
}

static void add_profile(void)
{
    for (unsigned bucket = 0; bucket < BUCKETS; bucket++)
        for (struct place *place = buckets[bucket]; place; place = place->next)
            place->total += place->runs;
}

static void write_profile(void)
{
    FILE *file = fopen(profile_path, "w");
    if (!file)
        return;
    for (unsigned bucket = 0; bucket < BUCKETS; bucket++)
        for (struct place *place = buckets[bucket]; place; place = place->next)
            if (place->total) {
                fprintf(file, "%llx %llu ", (unsigned long long)place->address,
                        (unsigned long long)place->total);
                for (unsigned at = 0; at < place->size; at++)
                    fprintf(file, "%02x", place->bytes[at]);
                fputc('\n', file);
            }
    fclose(file);
}

/* ---- markers ---- */

enum mark { BEGIN, END };
static const struct counters power_on;
static unsigned samples;

static void write_counters(const struct counters *from)
{
    const uint64_t *after = (const uint64_t *)now, *before = (const uint64_t *)from;
    for (size_t word = 0; word < WORDS; word++)
        fprintf(output, " %llu", (unsigned long long)(after[word] - before[word]));
    fputc('\n', output);
}

static void write_milestone(unsigned mark)
{
    fprintf(output, "milestone %u", mark);
    write_counters(&power_on);
}

static void reach_marker(unsigned processor, void *argument)
{
    unsigned mark = (unsigned)(uintptr_t)argument;
    (void)processor;
    switch (mark) {
    case BEGIN:
        begun = *now;
        if (profile_path && !profile_until)
            start_profile();
        break;
    case END:
        fputs("sample", output);
        write_counters(&begun);
        if (profile_path && !profile_until && samples)
            add_profile();
        samples++;
        break;
    default:
        write_milestone(mark);
        if (profile_path && mark == profile_until) {
            add_profile();
            start_profile();
        }
    }
}

/* ---- blocks: who runs, and whether that is somebody else than before ---- */

struct block {
    enum part part;
    bool returns; /* its last instruction is iret or sysret */
};

static struct block kinds[PARTS][2] = {
    {{PROGRAM, false}, {PROGRAM, true}},
    {{LIBRARY, false}, {LIBRARY, true}},
    {{KERNEL, false}, {KERNEL, true}},
};
static const struct block *last = &kinds[KERNEL][0];
static bool user_seen;

static void enter_block(unsigned processor, void *argument)
{
    const struct block *block = argument;
    (void)processor;
    if (block->part == KERNEL) {
        now->entries += last->part != KERNEL;
    } else if (!user_seen && last->part == KERNEL && last->returns) {
        /* Firmware runs in the lower half too, but is not returned to from the upper one. */
        user_seen = true;
        write_milestone(0);
    }
    last = block;
}

static void count_instruction(struct qemu_plugin_insn *insn, struct decoded decoded)
{
    uint64_t address = qemu_plugin_insn_vaddr(insn);
    const uint8_t *bytes = qemu_plugin_insn_data(insn);
    size_t size = qemu_plugin_insn_size(insn);
    enum part part = part_of(address);
    if (decoded.is_marker) {
        qemu_plugin_register_vcpu_insn_exec_cb(insn, reach_marker, REGISTERS_NONE,
                                               (void *)(uintptr_t)decoded.mark);
        return;
    }
    uint64_t *counter = decoded.repeated ? &now->repeated[part] : &now->instructions[part];
    qemu_plugin_register_vcpu_insn_exec_inline(insn, ADD_U64, counter, 1);
    if (decoded.locked)
        qemu_plugin_register_vcpu_insn_exec_inline(insn, ADD_U64, &now->locked, 1);
    if (decoded.event != NO_EVENT)
        qemu_plugin_register_vcpu_insn_exec_inline(insn, ADD_U64, &now->events[decoded.event], 1);
    if (profile_path && size <= 15)
        qemu_plugin_register_vcpu_insn_exec_inline(
            insn, ADD_U64, &find_place(address, bytes, size)->runs, 1);
}

static void translate(plugin_id id, struct qemu_plugin_tb *tb)
{
    size_t count = qemu_plugin_tb_n_insns(tb);
    struct decoded decoded = {.event = NO_EVENT};
    (void)id;
    for (size_t at = 0; at < count; at++) {
        struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, at);
        decoded = decode(qemu_plugin_insn_data(insn), qemu_plugin_insn_size(insn));
        count_instruction(insn, decoded);
    }
    if (count == 0)
        return;
    enum part part = part_of(qemu_plugin_insn_vaddr(qemu_plugin_tb_get_insn(tb, 0)));
    struct block *block = &kinds[part][decoded.event == RETURN];
    qemu_plugin_register_vcpu_tb_exec_cb(tb, enter_block, REGISTERS_NONE, block);
}

static void finish(plugin_id id, void *argument)
{
    (void)id;
    (void)argument;
    fclose(output);
    if (profile_path)
        write_profile();
}

/* The counters, in a file that others may read meanwhile. */
static struct counters *map_counters(const char *path)
{
    int file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
    if (file < 0 || ftruncate(file, sizeof(struct counters)))
        return NULL;
    void *mapped = mmap(NULL, sizeof(struct counters), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    return mapped == MAP_FAILED ? NULL : mapped;
}

EXPORT int qemu_plugin_install(plugin_id id, const struct qemu_info *info, int count, char **words)
{
    if (strcmp(info->target_name, "x86_64") || !info->system_emulation)
        return 1;
    for (int at = 0; at < count; at++) {
        if (!strncmp(words[at], "out=", 4))
            output = fopen(words[at] + 4, "w");
        else if (!strncmp(words[at], "counters=", 9))
            now = map_counters(words[at] + 9);
        else if (!strncmp(words[at], "profile=", 8))
            profile_path = strdup(words[at] + 8);
        else if (!strncmp(words[at], "until=", 6))
            profile_until = (unsigned)atoi(words[at] + 6);
    }
    if (!output || !now)
        return 1;
    setvbuf(output, NULL, _IOLBF, 0);
    fprintf(output, "columns %s\n", COLUMNS);
    qemu_plugin_register_vcpu_tb_trans_cb(id, translate);
    qemu_plugin_register_atexit_cb(id, finish, NULL);
    return 0;
}
