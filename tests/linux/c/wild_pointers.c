/* A pointer to nowhere is EFAULT, in every call that takes one; the program lives on. */
#include "check.h"

static void with(void *wild)
{
    char buffer[16] = "x";
    int pipes[2];
    if (pipe(pipes))
        return;
    TRY(syscall(SYS_write, pipes[1], wild, 4));
    if (write(pipes[1], buffer, 1) != 1)
        return;
    TRY(syscall(SYS_read, pipes[0], wild, 1));
    TRY(syscall(SYS_openat, AT_FDCWD, wild, O_RDONLY));
    TRY(syscall(SYS_stat, wild, buffer));
    TRY(syscall(SYS_stat, "/", wild));
    TRY(syscall(SYS_fstat, 0, wild));
    TRY(syscall(SYS_newfstatat, AT_FDCWD, ".", wild, 0));
    TRY(syscall(SYS_access, wild, 0));
    TRY(syscall(SYS_pipe2, wild, 0));
    TRY(syscall(SYS_getcwd, wild, 100));
    TRY(syscall(SYS_chdir, wild));
    TRY(syscall(SYS_mkdir, wild, 0700));
    TRY(syscall(SYS_unlink, wild));
    TRY(syscall(SYS_rename, "a", wild));
    TRY(syscall(SYS_readlink, "/proc/self/exe", wild, 10));
    TRY(syscall(SYS_uname, wild));
    TRY(syscall(SYS_sysinfo, wild));
    TRY(syscall(SYS_poll, wild, 1, 0));
    TRY(syscall(SYS_clock_gettime, CLOCK_MONOTONIC, wild));
    TRY(syscall(SYS_nanosleep, wild, NULL));
    TRY(syscall(SYS_rt_sigaction, SIGUSR1, wild, NULL, 8));
    TRY(syscall(SYS_rt_sigaction, SIGUSR1, NULL, wild, 8));
    TRY(syscall(SYS_rt_sigprocmask, SIG_BLOCK, wild, NULL, 8));
    TRY(syscall(SYS_sigaltstack, wild, NULL));
    TRY(syscall(SYS_execve, wild, NULL, NULL));
    TRY(syscall(SYS_execve, "/proc/self/exe", wild, NULL));
    TRY(syscall(SYS_writev, pipes[1], wild, 1));
    TRY(syscall(SYS_getrandom, wild, 8, 0));
    TRY(syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, NULL, wild));
    TRY(syscall(SYS_ioctl, pipes[0], FIONREAD, wild));
    TRY(syscall(SYS_getrusage, 0, wild));
    TRY(syscall(SYS_times, wild));
    close(pipes[0]);
    close(pipes[1]);
    pid_t child = fork_clean();
    if (child == 0)
        _exit(3);
    TRY(syscall(SYS_wait4, 0x7fffffff, wild, 0, NULL));
    waitpid(child, NULL, 0);
}

int main(void)
{
    puts("unmapped");
    with((void *)0x1000);
    puts("upper half");
    with((void *)0xffff800000001000);
    puts("not canonical");
    with((void *)0x00ff000000000000);
    puts("wraps");
    with((void *)-8);
    puts("read-only");
    void *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    TRY(syscall(SYS_fstat, 0, page));
    TRY(syscall(SYS_uname, page));
    puts("across an end");
    char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(pages + 4096, 4096);
    int zero = open("/dev/zero", O_RDONLY);
    TRY(read(zero, pages + 4090, 100));
    TRY(syscall(SYS_uname, pages + 4000));
    memset(pages + 4000, 'n', 96);
    TRY(open(pages + 4000, O_RDONLY));
    return 0;
}
