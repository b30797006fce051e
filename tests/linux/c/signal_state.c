/* A signal frame's vector state and stacks: what is in it, and what a handler's return makes of it. */
#include "check.h"

/* The kernel's words at the end of FXSAVE's part, and the header behind them (asm/sigcontext.h). */
struct software {
    uint32_t magic1, extended_size;
    uint64_t features;
    uint32_t size, padding[7];
};
#ifndef SS_AUTODISARM
#define SS_AUTODISARM (1u << 31)
#endif
#define SOFTWARE(area) ((struct software *)((char *)(area) + 464))
#define HEADER(area) ((uint64_t *)((char *)(area) + 512))
#define MAGIC2(area) ((uint32_t *)((char *)(area) + SOFTWARE(area)->size))

/* What the handler does to the area. */
enum change { NOTHING, NEW_VALUE, NO_AREA, NO_MAGIC, SMALLER, ONLY_X87, BAD_HEADER, UNALIGNED, UNMAPPED };
static volatile enum change change;
static int extended;

static double pattern[2] = {1.25, -7.5}, after[2];
static uint32_t rounding_down = 0x3f80, initial = 0x1f80, mxcsr_after;
static uint16_t truncating = 0xf7f, control_initial = 0x37f, control_after;

static void handler(int number, siginfo_t *info, void *context)
{
    struct _libc_fpstate *area = ((ucontext_t *)context)->uc_mcontext.fpregs;
    uint32_t mxcsr;
    uint16_t control;
    __asm__ volatile("stmxcsr %0; fnstcw %1" : "=m"(mxcsr), "=m"(control));
    (void)number;
    (void)info;
    printf("in the handler: mxcsr %x, control word %x\n", mxcsr, control);
    printf("in the frame: mxcsr %x, control word %x, xmm3 %d\n", area->mxcsr, area->cwd,
           memcmp(&area->_xmm[3], pattern, 16));
    if (extended)
        printf("area: magic %x, %d bytes behind the parts, ends by %x, header %lx, rest %d\n",
               SOFTWARE(area)->magic1, SOFTWARE(area)->extended_size - SOFTWARE(area)->size,
               *MAGIC2(area), HEADER(area)[0] & 3, HEADER(area)[1] == 0);
    printf("all features counted: %d\n",
           !extended || (HEADER(area)[0] & ~SOFTWARE(area)->features) == 0);
    switch (change) {
    case NEW_VALUE:
        area->_xmm[3].element[0] = 0;
        area->_xmm[3].element[1] = 0x40000000;
        area->mxcsr = initial;
        break;
    case NO_AREA:
        ((ucontext_t *)context)->uc_mcontext.fpregs = NULL;
        break;
    case NO_MAGIC:
        *MAGIC2(area) = 0;
        break;
    case SMALLER:
        SOFTWARE(area)->size = 575;
        break;
    case ONLY_X87:
        SOFTWARE(area)->features = 1;
        break;
    case BAD_HEADER:
        HEADER(area)[0] = 1ull << 62;
        break;
    case UNALIGNED:
        ((ucontext_t *)context)->uc_mcontext.fpregs = (void *)((char *)area + 8);
        break;
    case UNMAPPED:
        ((ucontext_t *)context)->uc_mcontext.fpregs = (void *)4096;
        break;
    default:
        break;
    }
}

/* A signal between loading the registers and looking at them. */
static void interrupted(const char *what, enum change wanted)
{
    change = wanted;
    printf("%s\n", what);
    fflush(stdout);
    long result = SYS_kill;
    __asm__ volatile("ldmxcsr %4; fldcw %5; movupd %6, %%xmm3\n"
                     "syscall\n"
                     "movupd %%xmm3, %1; stmxcsr %2; fnstcw %3\n"
                     "ldmxcsr %7; fldcw %8"
                     : "+a"(result), "=m"(after), "=m"(mxcsr_after), "=m"(control_after)
                     : "m"(rounding_down), "m"(truncating), "m"(pattern), "m"(initial),
                       "m"(control_initial), "D"((long)getpid()), "S"((long)SIGUSR1)
                     : "rcx", "r11", "xmm3", "memory");
    printf("then: %g %g, mxcsr %x, control word %x, result %ld\n", after[0], after[1], mxcsr_after,
           control_after, result);
}

/* The same in a child, which it may end. */
static void in_child(const char *what, enum change wanted)
{
    int status = 0;
    if (fork_clean() == 0) {
        interrupted(what, wanted);
        _exit(0);
    }
    wait(&status);
    show_status(what, status);
}

static char stack[64 * 1024], other[32 * 1024];

static void told(int number, siginfo_t *info, void *context)
{
    (void)context;
    printf("signal %d, code %d, address %d\n", number, info->si_code, info->si_addr != NULL);
    _exit(7);
}

static void install(int number, void (*function)(int, siginfo_t *, void *), int flags)
{
    struct sigaction action = {.sa_sigaction = function, .sa_flags = flags | SA_SIGINFO};
    sigaction(number, &action, NULL);
}

/* What becomes of a signal whose frame has no place. */
static void without_stack(int handled)
{
    int status = 0;
    if (fork_clean() == 0) {
        stack_t here = {.ss_sp = stack, .ss_size = sizeof stack};
        sigaltstack(&here, NULL);
        install(SIGUSR1, told, 0);
        if (handled)
            install(SIGSEGV, told, SA_ONSTACK);
        __asm__ volatile("mov $4096, %%rsp; syscall; ud2"
                         :
                         : "a"(SYS_kill), "D"((long)getpid()), "S"((long)SIGUSR1)
                         : "memory");
    }
    wait(&status);
    show_status("without a stack", status);
}

/* A handler that Linux's C libraries never install. */
static void without_restorer(void)
{
    int status = 0;
    if (fork_clean() == 0) {
        struct {
            void (*handler)(int, siginfo_t *, void *);
            unsigned long flags;
            void (*restorer)(void);
            unsigned long mask;
        } action = {told, SA_SIGINFO, NULL, 0};
        syscall(SYS_rt_sigaction, SIGUSR1, &action, NULL, 8);
        raise(SIGUSR1);
        _exit(0);
    }
    wait(&status);
    show_status("without a restorer", status);
}

/* Kills itself with 1,024 bytes of its stack left. */
static void at_the_end(int number, siginfo_t *info, void *context)
{
    (void)info;
    (void)context;
    __asm__ volatile("mov %0, %%rsp; syscall; ud2"
                     :
                     : "r"(stack + 1024), "a"(SYS_kill), "D"((long)getpid()), "S"((long)number)
                     : "memory");
}

/* A frame must not go below the stack that it is on. */
static void full_stack(void)
{
    int status = 0;
    if (fork_clean() == 0) {
        stack_t here = {.ss_sp = stack, .ss_size = sizeof stack};
        sigaltstack(&here, NULL);
        install(SIGUSR1, at_the_end, SA_ONSTACK | SA_NODEFER);
        raise(SIGUSR1);
        _exit(0);
    }
    wait(&status);
    show_status("a full stack", status);
}

static void show_stack(const char *where)
{
    stack_t now;
    sigaltstack(NULL, &now);
    printf("%s: flags %x, ours %d, the other %d\n", where, now.ss_flags, now.ss_sp == stack,
           now.ss_sp == other);
}

static volatile int take_other;

static void look(int number, siginfo_t *info, void *context)
{
    (void)number;
    (void)info;
    printf("saved flags %x\n", ((ucontext_t *)context)->uc_stack.ss_flags);
    show_stack("in the handler");
    if (take_other) {
        stack_t there = {.ss_sp = other, .ss_size = sizeof other};
        TRY(sigaltstack(&there, NULL));
        show_stack("changed");
    }
}

static void stacks(void)
{
    stack_t here = {.ss_sp = stack, .ss_size = sizeof stack, .ss_flags = (int)SS_AUTODISARM};
    install(SIGUSR1, look, SA_ONSTACK);
    TRY(sigaltstack(&here, NULL));
    raise(SIGUSR1);
    show_stack("after");
    take_other = 1;
    raise(SIGUSR1);
    show_stack("after the change");
    here.ss_flags = 0;
    TRY(sigaltstack(&here, NULL));
    raise(SIGUSR1);
    show_stack("kept");
}

int main(void)
{
    uint32_t a, b, c, d;
    __asm__("cpuid" : "=a"(a), "=b"(b), "=c"(c), "=d"(d) : "a"(1), "c"(0));
    extended = c >> 27 & 1; /* OSXSAVE */
    install(SIGUSR1, handler, 0);
    interrupted("unchanged", NOTHING);
    interrupted("changed", NEW_VALUE);
    interrupted("without an area", NO_AREA);
    if (extended) {
        interrupted("without magic", NO_MAGIC);
        interrupted("too small for its header", SMALLER);
        interrupted("of one part", ONLY_X87);
        in_child("with a bad header", BAD_HEADER);
    }
    in_child("unmapped", UNMAPPED);
    install(SIGSEGV, told, 0);
    in_child("not aligned, handled", UNALIGNED);
    signal(SIGSEGV, SIG_DFL);
    without_stack(0);
    without_stack(1);
    without_restorer();
    full_stack();
    stacks();
    return 0;
}
