/* QEMU's plugin interface, version 1, as far as `count.c` uses it: QEMU's manual describes it
 * (Devices Emulation / TCG Plugins), Debian's package brings no header. */
#ifndef QEMU_PLUGIN_H
#define QEMU_PLUGIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

typedef uint64_t plugin_id;

struct qemu_info {
    const char *target_name;
    struct {
        int min;
        int cur;
    } version;
    bool system_emulation;
    struct {
        int smp_vcpus;
        int max_vcpus;
    } system;
};

/* A block of guest instructions that is being translated, and one of them: opaque. */
struct qemu_plugin_tb;
struct qemu_plugin_insn;

/* What a callback reads or writes of the registers; version 1 gives no access to them anyway. */
enum registers { REGISTERS_NONE = 0 };
/* What an inline operation does. */
enum operation { ADD_U64 = 0 };

typedef void (*on_translation)(plugin_id, struct qemu_plugin_tb *);
typedef void (*on_execution)(unsigned processor, void *argument);
typedef void (*at_exit)(plugin_id, void *argument);

size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *);
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *);

void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id, on_translation);
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *, on_execution, enum registers,
                                          void *argument);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *, on_execution,
                                            enum registers, void *argument);
void qemu_plugin_register_vcpu_insn_exec_inline(struct qemu_plugin_insn *, enum operation,
                                                void *counter, uint64_t step);
void qemu_plugin_register_atexit_cb(plugin_id, at_exit, void *argument);

#endif
