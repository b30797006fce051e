/* A program that ends at once, without a library: what `fork_exec` executes. */
#include <sys/syscall.h>

void _start(void)
{
    for (;;)
        __asm__ volatile("syscall" : : "a"(SYS_exit_group), "D"(0) : "rcx", "r11", "memory");
}
