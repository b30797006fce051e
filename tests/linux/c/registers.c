/* A system call keeps every register but rax, rcx and r11, the red zone, and the vector state. */
#include "check.h"

static unsigned long in[16], out[16];
static double vector_in[2] = {1.25, -7.5}, vector_out[2];

static void call(long number)
{
    __asm__ volatile(
        "push %%rbx; push %%rbp; push %%r12; push %%r13; push %%r14; push %%r15\n"
        "mov %%rdi, %%rax\n"
        "movupd vector_in(%%rip), %%xmm3\n"
        "movupd vector_in(%%rip), %%xmm15\n"
        "mov $0x1111, %%rbx; mov $0x2222, %%rbp; mov $0x0, %%rdi; mov $0x0, %%rsi\n"
        "mov $0x0, %%rdx; mov $0x8888, %%r8; mov $0x9999, %%r9; mov $0x0, %%r10\n"
        "mov $0x1212, %%r12; mov $0x1313, %%r13; mov $0x1414, %%r14; mov $0x1515, %%r15\n"
        "movq $0x5a5a, -8(%%rsp); movq $0xa5a5, -128(%%rsp)\n"
        "syscall\n"
        "mov %%rbx, out+0(%%rip); mov %%rbp, out+8(%%rip); mov %%rdi, out+16(%%rip)\n"
        "mov %%rsi, out+24(%%rip); mov %%rdx, out+32(%%rip); mov %%r8, out+40(%%rip)\n"
        "mov %%r9, out+48(%%rip); mov %%r10, out+56(%%rip); mov %%r12, out+64(%%rip)\n"
        "mov %%r13, out+72(%%rip); mov %%r14, out+80(%%rip); mov %%r15, out+88(%%rip)\n"
        "mov -8(%%rsp), %%rax; mov %%rax, out+96(%%rip)\n"
        "mov -128(%%rsp), %%rax; mov %%rax, out+104(%%rip)\n"
        "movupd %%xmm3, vector_out(%%rip)\n"
        "addpd %%xmm15, %%xmm15\n"
        "pop %%r15; pop %%r14; pop %%r13; pop %%r12; pop %%rbp; pop %%rbx\n"
        : "+D"(number)
        :
        : "rax", "rcx", "rdx", "rsi", "r8", "r9", "r10", "r11", "xmm3", "xmm15", "memory");
}

int main(void)
{
    const long numbers[] = {SYS_getpid, SYS_getppid, SYS_sched_yield, SYS_close, SYS_alarm,
                            SYS_brk,    100000,      SYS_getuid,      SYS_poll,  SYS_umask};
    for (unsigned i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        /* Twice: the second one may take another path. */
        for (int round = 0; round < 3; round++) {
            memset(out, 0, sizeof out);
            call(numbers[i]);
            printf("%ld:", numbers[i]);
            for (int word = 0; word < 14; word++)
                printf(" %lx", out[word]);
            printf(" %d\n", memcmp(vector_in, vector_out, sizeof vector_in));
            if (numbers[i] == SYS_close)
                break; /* standard input is closed now */
        }
    }
    umask(022);
    (void)in;
    return 0;
}
