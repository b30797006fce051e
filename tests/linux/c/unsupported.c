/* Numbers that no call has, and odd arguments of those that have: an error, never an end. */
#include "check.h"

int main(void)
{
    TRY(syscall(-1));
    TRY(syscall(1000));
    TRY(syscall(0x7fffffff));
    TRY(syscall(SYS_getpid | 0x40000000)); /* the x32 numbers */
    TRY(syscall(400));
    TRY(syscall(SYS_read, -1, NULL, 0));
    TRY(syscall(SYS_lseek, 0, 0, 77));
    TRY(syscall(SYS_mmap, 0, 0, 0, 0, 0, 0));
    TRY(syscall(SYS_ioctl, 99, TCGETS, NULL));
    TRY(syscall(SYS_splice, 99, NULL, 1, NULL, 5, 0));
    int file = open("file", O_CREAT | O_RDWR, 0600);
    TRY(ioctl(file, TCGETS, &(char[64]){0}));
    TRY(syscall(SYS_splice, file, NULL, file, NULL, 5, 0)); /* no pipe; Go reads and writes then */
    TRY(ioctl(file, TIOCGPGRP, &(int){0}));
    TRY(ioctl(file, 0x12345678, NULL));
    TRY(syscall(SYS_fcntl, file, 12345, 0));
    TRY(syscall(SYS_prctl, 99999, 0, 0, 0, 0));
    TRY(syscall(SYS_arch_prctl, 0x9999, 0));
    TRY(syscall(SYS_rt_sigaction, 1, NULL, NULL, 4));
    TRY(syscall(SYS_rt_sigprocmask, 77, &(sigset_t){0}, NULL, 8));
    TRY(syscall(SYS_clock_gettime, 999, &(struct timespec){0}));
    TRY(syscall(SYS_nanosleep, &(struct timespec){0, 2000000000}, NULL));
    TRY(syscall(SYS_futex, &(int){5}, 0, 6, NULL, NULL, 0));
    TRY(syscall(SYS_futex, &(int){5}, 999, 6, NULL, NULL, 0));
    TRY(syscall(SYS_futex, &(int){5}, 1, 1, NULL, NULL, 0));
    TRY(syscall(SYS_prlimit64, 0, 99, NULL, &(struct rlimit){0}));
    TRY(syscall(SYS_getpriority, 77, 0));
    TRY(syscall(SYS_socket, 99, 1, 0));
    TRY(syscall(SYS_dup3, 0, 50, 0x77));
    TRY(syscall(SYS_pipe2, &(int[2]){0}, 0x77));
    TRY(syscall(SYS_openat, 99, "relative", O_RDONLY));
    TRY(syscall(SYS_openat, 99, "/dev/null", O_RDONLY) >= 0);
    TRY(syscall(SYS_unlinkat, AT_FDCWD, ".", 0x1234));
    TRY(syscall(SYS_rename, "none", "other"));
    TRY(syscall(SYS_rmdir, "file"));
    TRY(syscall(SYS_readlink, "file", &(char[8]){0}, 8));
    TRY(syscall(SYS_readlink, "/proc/self/exe", &(char[8]){0}, 0));
    TRY(syscall(SYS_getcwd, &(char[2]){0}, 1));
    TRY(syscall(SYS_truncate, "file", -1L));
    TRY(syscall(SYS_setpgid, -1, 0));
    TRY(syscall(SYS_kill, 0x3fffffff, 0));
    TRY(syscall(SYS_sigaltstack, &(stack_t){.ss_flags = 99}, NULL));
    TRY(syscall(SYS_getrandom, &(char[8]){0}, 8, 99));
    return 0;
}
