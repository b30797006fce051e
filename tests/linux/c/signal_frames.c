/* What a signal handler is given, and what it may change. */
#include "check.h"

static volatile sig_atomic_t count, nested, order;
static volatile char *fault_page;
static char alternate[64 * 1024];
static volatile int on_alternate;

static void plain(int number)
{
    count += number;
}

static void informed(int number, siginfo_t *info, void *context)
{
    ucontext_t *frame = context;
    printf("signal %d code %d from us %d uid %d\n", number, info->si_code,
           info->si_pid == getpid(), info->si_uid == getuid());
    printf("frame: rip %d rsp %d selectors %llx\n", frame->uc_mcontext.gregs[REG_RIP] != 0,
           frame->uc_mcontext.gregs[REG_RSP] != 0,
           frame->uc_mcontext.gregs[REG_CSGSFS] & 0xffff);
    printf("aligned %d fpregs %d\n", ((uintptr_t)__builtin_frame_address(0) & 15) == 0,
           frame->uc_mcontext.fpregs != NULL);
}

static void repair(int number, siginfo_t *info, void *context)
{
    (void)context;
    printf("signal %d code %d at ours %d\n", number, info->si_code,
           info->si_addr == (void *)fault_page);
    mprotect((void *)fault_page, 4096, PROT_READ | PROT_WRITE);
}

static void skip(int number, siginfo_t *info, void *context)
{
    ucontext_t *frame = context;
    printf("signal %d code %d\n", number, info->si_code);
    frame->uc_mcontext.gregs[REG_RIP] += 2; /* ud2, and idiv by ecx, are two bytes */
    frame->uc_mcontext.gregs[REG_RAX] = 77;
}

static void outer(int number)
{
    order = order * 10 + 1;
    raise(SIGUSR2);
    order = order * 10 + 3;
    nested = number;
}

static void inner(int number)
{
    (void)number;
    order = order * 10 + 2;
}

static void high(int number)
{
    char here;
    (void)number;
    on_alternate = &here >= alternate && &here < alternate + sizeof alternate;
}

static void install(int number, void (*handler)(int, siginfo_t *, void *), int flags)
{
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = flags | SA_SIGINFO};
    sigaction(number, &action, NULL);
}

int main(void)
{
    signal(SIGUSR1, plain);
    SHOW(raise(SIGUSR1));
    SHOW(count);
    install(SIGUSR1, informed, 0);
    kill(getpid(), SIGUSR1);
    raise(SIGUSR1);
    union sigval value = {.sival_int = 1234};
    SHOW(sigqueue(getpid(), SIGUSR1, value));

    fault_page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    install(SIGSEGV, repair, 0);
    *fault_page = 42;
    SHOW(*fault_page);
    fault_page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    SHOW(*fault_page);

    install(SIGILL, skip, 0);
    long value_after = 1;
    __asm__ volatile("ud2" : "+a"(value_after));
    SHOW(value_after);
    install(SIGFPE, skip, 0);
    long low = 5, rest = 0;
    __asm__ volatile("idivl %%ecx" : "+a"(low), "+d"(rest) : "c"(0L));
    SHOW(low);

    signal(SIGUSR1, outer);
    signal(SIGUSR2, inner);
    raise(SIGUSR1);
    SHOW(order);
    SHOW(nested);

    stack_t stack = {.ss_sp = alternate, .ss_size = sizeof alternate}, old;
    TRY(sigaltstack(&stack, &old));
    SHOW(old.ss_flags == SS_DISABLE);
    struct sigaction action = {.sa_handler = high, .sa_flags = SA_ONSTACK};
    sigaction(SIGUSR1, &action, NULL);
    raise(SIGUSR1);
    SHOW(on_alternate);
    action.sa_flags = 0;
    sigaction(SIGUSR1, &action, NULL);
    raise(SIGUSR1);
    SHOW(on_alternate);
    stack.ss_size = 10;
    TRY(sigaltstack(&stack, NULL));

    /* A handler between floating-point operations must not show in them. */
    signal(SIGUSR1, plain);
    volatile double sum = 0;
    for (int i = 1; i < 200; i++) {
        double part = 1.0 / i;
        raise(SIGUSR1);
        sum = sum + part;
    }
    printf("%.15f\n", sum);
    return 0;
}
