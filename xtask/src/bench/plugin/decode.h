/* What an x86-64 instruction is to the counters, from its bytes (SDM volume 2). */
#ifndef DECODE_H
#define DECODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Kinds of instructions that are events; the order of `EVENT_NAMES` in `count.c`. */
enum event {
    NO_EVENT = -1,
    SYSCALL,
    RETURN,  /* to the program or to where an interrupt was: sysret, iret */
    CR3,     /* mov to CR3 */
    INVLPG,  /* invlpg, invpcid */
    PORT,    /* in, out */
    MSR,     /* wrmsr */
    VECTOR,  /* xsave, xrstor and their kin */
    EVENTS,
};

struct decoded {
    enum event event;
    bool locked;
    bool repeated; /* a string instruction with a repeat prefix: each step is counted */
    bool is_marker;
    uint32_t mark; /* the lower half of a marker's displacement */
};

/* `nopl disp32(%rax)` whose displacement begins so is a marker. */
#define MARKER_MAGIC 0x584f0000u

static inline bool is_prefix(uint8_t byte)
{
    switch (byte) {
    case 0x26: case 0x2e: case 0x36: case 0x3e: case 0x64: case 0x65: case 0x66: case 0x67:
    case 0xf0: case 0xf2: case 0xf3:
        return true;
    }
    return false;
}

static inline bool is_string(uint8_t opcode)
{
    return (opcode >= 0xa4 && opcode <= 0xa7) || (opcode >= 0xaa && opcode <= 0xaf) ||
           (opcode >= 0x6c && opcode <= 0x6f);
}

/* The opcodes behind 0x0f. */
static inline enum event two_byte_event(uint8_t opcode, uint8_t modrm)
{
    unsigned extension = modrm >> 3 & 7;
    bool memory = modrm >> 6 != 3;
    switch (opcode) {
    case 0x05:
        return SYSCALL;
    case 0x07:
        return RETURN;
    case 0x22:
        return extension == 3 ? CR3 : NO_EVENT;
    case 0x01:
        return extension == 7 && memory ? INVLPG : NO_EVENT;
    case 0x30:
        return MSR;
    case 0xae:
        return memory && (extension <= 1 || (extension >= 4 && extension <= 6)) ? VECTOR : NO_EVENT;
    case 0xc7:
        return memory && extension >= 3 && extension <= 5 ? VECTOR : NO_EVENT;
    }
    return NO_EVENT;
}

static inline struct decoded decode(const uint8_t *bytes, size_t size)
{
    struct decoded found = {.event = NO_EVENT};
    uint8_t window[16] = {0};
    for (size_t at = 0; at < size && at < 15; at++)
        window[at] = bytes[at];
    size_t at = 0;
    bool repeat = false;
    while (at < 13 && is_prefix(window[at])) {
        found.locked |= window[at] == 0xf0;
        repeat |= window[at] == 0xf2 || window[at] == 0xf3;
        at++;
    }
    if ((window[at] & 0xf0) == 0x40)
        at++;
    uint8_t opcode = window[at], next = window[at + 1], modrm = window[at + 2];
    if (opcode != 0x0f) {
        found.repeated = repeat && is_string(opcode);
        /* xchg with memory locks by itself. */
        found.locked |= (opcode == 0x86 || opcode == 0x87) && next >> 6 != 3;
        if (opcode == 0xcf)
            found.event = RETURN;
        else if ((opcode >= 0xe4 && opcode <= 0xe7) || (opcode >= 0xec && opcode <= 0xef))
            found.event = PORT;
        return found;
    }
    if (next == 0x38 && modrm == 0x82)
        found.event = INVLPG;
    else
        found.event = two_byte_event(next, modrm);
    if (size == 7 && at == 0 && next == 0x1f && modrm == 0x80) {
        uint32_t displacement = (uint32_t)bytes[3] | (uint32_t)bytes[4] << 8 |
                                (uint32_t)bytes[5] << 16 | (uint32_t)bytes[6] << 24;
        found.is_marker = (displacement & 0xffff0000u) == MARKER_MAGIC;
        found.mark = displacement & 0xffffu;
    }
    return found;
}

#endif
