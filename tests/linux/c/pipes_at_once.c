/* Reading and writing what a pipe has, as programs do all the time: what of it must not get lost on
 * the shortest way there. Each thing is done when that way is known already. */
#include "check.h"

#include <sys/epoll.h>

enum { ROUNDS = 3000, /* more than it takes until the call site is rewritten */
       SAVED = 16 };

static unsigned long before[SAVED], after[SAVED];
static double vector_in[2] = {1.25, -7.5}, vector_out[2];
static int ends[2];

/* Makes the call with every register set, the direction flag and the carry, and the red zone. */
static __attribute__((noinline)) long call(long number, long fd, void *memory, long length)
{
    long answer;
    register long r10 __asm__("r10") = 0x1010;
    register long r8 __asm__("r8") = 0x8888;
    register long r9 __asm__("r9") = 0x9999;
    __asm__ volatile(
        "push %%rbx; push %%rbp; push %%r12; push %%r13; push %%r14; push %%r15\n"
        "movupd vector_in(%%rip), %%xmm3\n"
        "mov $0x1111, %%ebx; mov $0x2222, %%ebp\n"
        "mov $0x1212, %%r12d; mov $0x1313, %%r13d; mov $0x1414, %%r14d; mov $0x1515, %%r15d\n"
        "mov %%rdi, before+0(%%rip); mov %%rsi, before+8(%%rip); mov %%rdx, before+16(%%rip)\n"
        "mov %%rsp, before+24(%%rip)\n"
        "movq $0x5a5a, -8(%%rsp); movq $0xa5a5, -128(%%rsp)\n"
        "std; stc\n"
        "syscall\n"
        "setc after+128-8(%%rip)\n"
        "mov %%rdi, after+0(%%rip); mov %%rsi, after+8(%%rip); mov %%rdx, after+16(%%rip)\n"
        "mov %%rsp, after+24(%%rip); mov %%rbx, after+32(%%rip); mov %%rbp, after+40(%%rip)\n"
        "mov %%r8, after+48(%%rip); mov %%r9, after+56(%%rip); mov %%r10, after+64(%%rip)\n"
        "mov %%r12, after+72(%%rip); mov %%r13, after+80(%%rip); mov %%r14, after+88(%%rip)\n"
        "mov %%r15, after+96(%%rip)\n"
        "movupd %%xmm3, vector_out(%%rip)\n"
        "mov -8(%%rsp), %%rcx; xor -128(%%rsp), %%rcx; mov %%rcx, after+104(%%rip)\n"
        "pushfq; pop %%rcx; and $0x400, %%ecx; mov %%rcx, after+112(%%rip); cld\n"
        "pop %%r15; pop %%r14; pop %%r13; pop %%r12; pop %%rbp; pop %%rbx\n"
        : "=a"(answer), "+r"(r10), "+r"(r8), "+r"(r9)
        : "0"(number), "D"(fd), "S"(memory), "d"(length)
        : "rcx", "r11", "xmm3", "memory");
    return answer;
}

static int all_kept(void)
{
    static const unsigned long kept[] = {0x1111, 0x2222, 0x8888, 0x9999, 0x1010, 0x1212,
                                         0x1313, 0x1414, 0x1515, 0xffff, 0x400,  1};
    return !memcmp(before, after, 32) && !memcmp(kept, after + 4, sizeof kept) &&
           !memcmp(vector_in, vector_out, sizeof vector_in);
}

static void registers(void)
{
    unsigned lost = 0, wrong = 0;
    for (unsigned round = 0; round < ROUNDS; round++) {
        char out = (char)round, in = 0;
        wrong += call(SYS_write, ends[1], &out, 1) != 1;
        lost += !all_kept();
        wrong += call(SYS_read, ends[0], &in, 1) != 1 || in != out;
        lost += !all_kept();
    }
    printf("registers: %u calls lost some, %u were wrong\n", lost, wrong);
}

/* Pieces that do not divide the ring's length, so that some lie at both of its ends. */
static void around_the_ring(void)
{
    static char out[777], in[1000];
    unsigned wrong = 0;
    for (unsigned round = 0; round < 300; round++) {
        memset(out, (int)round, sizeof out);
        wrong += write(ends[1], out, sizeof out) != sizeof out;
        wrong += read(ends[0], in, 700) != 700 || memcmp(in, out, 700);
        wrong += read(ends[0], in, sizeof in) != 77 || memcmp(in, out, 77);
    }
    printf("around the ring: %u wrong\n", wrong);
}

/* What has come since the last look belongs to what a read finds. */
static void more_than_was_known(void)
{
    char in[100];
    TRY(write(ends[1], "0123456789", 10));
    TRY(read(ends[0], in, 4));
    TRY(write(ends[1], "abcdefghij", 10));
    TRY(read(ends[0], in, sizeof in));
    SHOW(in[0] == '4' && in[15] == 'j');
}

static void where_no_memory_is(void)
{
    char in = 0;
    char *page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(page + 4096, 4096);
    TRY(fcntl(ends[0], F_SETFL, O_NONBLOCK));
    TRY(read(ends[0], page + 4096, 1));
    TRY(fcntl(ends[0], F_SETFL, 0));
    TRY(write(ends[1], page + 4096, 1));
    TRY(write(ends[1], "xyz", 3));
    TRY(call(SYS_read, ends[0], page + 4096, 1) == -EFAULT);
    SHOW(all_kept());
    TRY(read(ends[0], page + 1, 1)); /* a page that nobody has touched */
    TRY(mprotect(page, 4096, PROT_READ));
    TRY(read(ends[0], page, 1));
    TRY(write(ends[1], page + 1, 1));
    /* The other half, where the system is, and the first address of no half. */
    const unsigned long beyond[] = {0xffffc08000000000, 0xffffc08000030000, 0xffffffff80200000,
                                    0x800000000000,     0xfffffffffffffff0};
    for (unsigned i = 0; i < sizeof beyond / sizeof *beyond; i++) {
        TRY(read(ends[0], (void *)beyond[i], 1));
        TRY(write(ends[1], (void *)beyond[i], 1));
    }
    TRY(read(ends[0], &in, 0));
    char rest[8] = {0};
    TRY(read(ends[0], rest, sizeof rest));
    SHOW(rest[0] == 'y' && rest[1] == 'z' && rest[2] == 'x');
    munmap(page, 4096);
}

static void by_whom(void)
{
    char byte = 'n';
    TRY(read(ends[1], &byte, 1));
    TRY(write(ends[0], &byte, 1));
    TRY(write(ends[1] + 100, &byte, 1));
    TRY(write(-1, &byte, 1));
    /* A descriptor is a number of 32 bits. */
    SHOW(call(SYS_write, 0x700000000 + ends[1], &byte, 1));
    SHOW(call(SYS_read, 0x700000000 + ends[0], &byte, 1));
}

static void pass_one(void)
{
    char byte = 'p';
    if (write(ends[1], &byte, 1) != 1 || read(ends[0], &byte, 1) != 1)
        printf("nothing passed\n");
}

/* Whoever shares the description may change its flags. */
static void flags_of_others(void)
{
    char byte;
    int status, go[2];
    if (pipe(go))
        return;
    pid_t child = fork_clean();
    if (child == 0)
        _exit(read(go[0], &byte, 1) != 1 || fcntl(ends[0], F_SETFL, O_NONBLOCK) != 0);
    pass_one();
    pass_one();
    TRY(write(go[1], "g", 1));
    waitpid(child, &status, 0);
    close(go[0]);
    close(go[1]);
    show_status("who changes flags", status);
    TRY(read(ends[0], &byte, 1));
    TRY(fcntl(ends[0], F_SETFL, 0));
    pass_one();
    pass_one();
    int twin = dup(ends[0]);
    TRY(fcntl(twin, F_SETFL, O_NONBLOCK));
    TRY(read(ends[0], &byte, 1));
    TRY(fcntl(ends[0], F_SETFL, 0));
    close(twin);
    pass_one();
}

static volatile int handled;

static void note(int signal)
{
    (void)signal;
    handled++;
}

static void fill(int signal)
{
    if (++handled == 3 && write(ends[1], "s", 1) != 1)
        printf("a handler could not write %d\n", signal);
}

static void signals_while_waiting(void)
{
    char byte = 0;
    struct itimerval often = {{0, 2000}, {0, 2000}}, never = {{0, 0}, {0, 0}};
    struct sigaction action = {.sa_handler = note};
    pass_one();
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    TRY(read(ends[0], &byte, 1));
    setitimer(ITIMER_REAL, &never, NULL);
    SHOW(handled > 0);
    pass_one();
    handled = 0;
    action.sa_handler = fill;
    action.sa_flags = SA_RESTART;
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    TRY(read(ends[0], &byte, 1));
    setitimer(ITIMER_REAL, &never, NULL);
    SHOW(handled >= 3 && byte == 's');
    signal(SIGALRM, SIG_DFL);
}

/* A page that parent and child share until one of them writes. */
static void shared_with_a_child(void)
{
    static char page[4096] __attribute__((aligned(4096))) = "before";
    int back[2];
    if (pipe(back))
        return;
    pid_t child = fork_clean();
    if (child == 0) {
        char go;
        if (read(back[0], &go, 1) != 1)
            _exit(1);
        _exit(strcmp(page, "before") ? 2 : 0);
    }
    TRY(write(ends[1], "after", 6));
    TRY(read(ends[0], page, 6));
    TRY(write(back[1], "g", 1));
    int status;
    waitpid(child, &status, 0);
    show_status("the child's page", status);
    printf("%s\n", page);
    close(back[0]);
    close(back[1]);
}

/* Edges begin where a read has found nothing more, also one that took less than it asked for. */
static void watched(void)
{
    char in[8];
    int watcher = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.fd = ends[0]};
    TRY(epoll_ctl(watcher, EPOLL_CTL_ADD, ends[0], &event));
    for (int round = 0; round < 3; round++) {
        TRY(write(ends[1], "e", 1));
        TRY(epoll_wait(watcher, &event, 1, 0));
        TRY(epoll_wait(watcher, &event, 1, 0));
        TRY(read(ends[0], in, sizeof in));
    }
    close(watcher);
}

static void ends_that_close(void)
{
    char byte = 'c';
    int other[2], status;
    if (pipe(other))
        return;
    pid_t child = fork_clean();
    if (child == 0) {
        close(other[0]);
        for (int round = 0; round < 3; round++)
            if (write(other[1], &byte, 1) != 1)
                _exit(1);
        _exit(0);
    }
    close(other[1]);
    for (int round = 0; round < 3; round++)
        TRY(read(other[0], &byte, 1));
    TRY(read(other[0], &byte, 1)); /* waits until the writer has gone */
    waitpid(child, &status, 0);
    close(other[0]);

    signal(SIGPIPE, note);
    handled = 0;
    for (int round = 0; round < 3; round++)
        pass_one();
    close(ends[0]);
    TRY(write(ends[1], &byte, 1));
    SHOW(handled);
    close(ends[1]);
    TRY(write(ends[1], &byte, 1));
}

int main(void)
{
    if (pipe(ends))
        return 1;
    registers();
    around_the_ring();
    more_than_was_known();
    where_no_memory_is();
    by_whom();
    flags_of_others();
    signals_while_waiting();
    shared_with_a_child();
    ends_that_close();
    if (pipe(ends))
        return 1;
    pass_one();
    watched();
    return 0;
}
