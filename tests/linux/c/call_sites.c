/* Call sites that run often enough to be rewritten: what a program sees must stay as it is. */
#include "check.h"

/* Calls after which every site here has become what it becomes. */
enum { OFTEN = 5000 };

/* Functions as assemblers write them: known by their unwind entry, aligned, padded with nops. */
#define FUNCTION(name, body)                                                  \
    __asm__(".text\n.p2align 4\n.globl " #name "\n.type " #name               \
            ", @function\n" #name ":\n.cfi_startproc\n" body                  \
            ".cfi_endproc\n.size " #name ", . - " #name "\n.p2align 4\n")

/* The eight words below rsp belong to a leaf function, across the call, too. Answers how many of
 * them changed; 100 more if the answer is not the parent's. */
FUNCTION(red_zone,
         "mov %edi, %r8d\n"
         "movq $1, -8(%rsp)\nmovq $2, -16(%rsp)\nmovq $3, -24(%rsp)\nmovq $4, -32(%rsp)\n"
         "movq $5, -40(%rsp)\nmovq $6, -48(%rsp)\nmovq $7, -56(%rsp)\nmovq $8, -64(%rsp)\n"
         "mov $110, %eax\nsyscall\n"
         "mov %eax, %edx\nmov $100, %eax\ncmp %edx, %r8d\njne 1f\nxor %eax, %eax\n1:\n"
         "cmpq $1, -8(%rsp)\nje 1f\ninc %eax\n1:\ncmpq $2, -16(%rsp)\nje 1f\ninc %eax\n1:\n"
         "cmpq $3, -24(%rsp)\nje 1f\ninc %eax\n1:\ncmpq $4, -32(%rsp)\nje 1f\ninc %eax\n1:\n"
         "cmpq $5, -40(%rsp)\nje 1f\ninc %eax\n1:\ncmpq $6, -48(%rsp)\nje 1f\ninc %eax\n1:\n"
         "cmpq $7, -56(%rsp)\nje 1f\ninc %eax\n1:\ncmpq $8, -64(%rsp)\nje 1f\ninc %eax\n1:\n"
         "ret\n");
int red_zone(int parent);

/* Loads the number, or comes to the `syscall` itself with another one. */
FUNCTION(two_ways,
         "test %edi, %edi\njz 1f\nmov %edi, %eax\njmp 2f\n1:\nmov $110, %eax\n2:\nsyscall\nret\n");
int two_ways(int number);

/* Nothing that could be displaced: the `syscall` itself makes place. */
FUNCTION(short_site, "mov %edi, %eax\nsyscall\nret\n");
int short_site(int number);
FUNCTION(short_read, "xor %eax, %eax\nsyscall\nret\n");
long short_read(int fd, void *to, size_t len);
FUNCTION(long_read, "mov $0, %eax\nsyscall\nret\n");
long long_read(int fd, void *to, size_t len);

/* rcx and r11 behind the call, and every flag that a program may set, DF among them. */
FUNCTION(after_call,
         "push %rdi\npopfq\nmov $110, %eax\n.globl after_site\nafter_site:\nsyscall\n"
         ".globl after_behind\nafter_behind:\npushfq\ncld\npop %rax\n"
         "mov %rcx, (%rsi)\nmov %r11, 8(%rsi)\nmov %rax, 16(%rsi)\nret\n");
void after_call(uint64_t flags, uint64_t seen[3]);
extern char after_behind[];

/* What the timer may find: before the number is loaded, with it in rax, behind with the answer. */
FUNCTION(stormed,
         "1:\n.globl storm_load\nstorm_load:\nmov $110, %eax\n.globl storm_site\nstorm_site:\n"
         "syscall\n.globl storm_behind\nstorm_behind:\ncmp %eax, %edi\njne 2f\n"
         "dec %esi\njnz 1b\n2:\nmov %esi, %eax\nret\n");
int stormed(int parent, int times);
extern char storm_load[], storm_site[], storm_behind[];
FUNCTION(padded_storm,
         "1:\nmov %edx, %eax\n.globl padded_site\npadded_site:\n"
         "syscall\n.globl padded_behind\npadded_behind:\ncmp %eax, %edi\njne 2f\n"
         "dec %esi\njnz 1b\n2:\nmov %esi, %eax\nret\n");
int padded_storm(int parent, int times, int number);
extern char padded_site[], padded_behind[];

/* Has a page to itself, which the program changes later. */
__asm__(".text\n.p2align 12\n");
FUNCTION(changing, "mov $110, %eax\nsyscall\nret\n");
int changing(void);
__asm__(".text\n.p2align 12\n");

static void often(void)
{
    int parent = getppid(), red = 0, wrong = 0;
    for (int i = 0; i < OFTEN; i++)
        red += red_zone(parent);
    SHOW(red);
    for (int i = 0; i < OFTEN; i++)
        wrong += two_ways(0) != parent;
    for (int i = 0; i < OFTEN; i++)
        wrong += two_ways(SYS_getpid) != getpid();
    for (int i = 0; i < OFTEN; i++)
        wrong += short_site(SYS_getppid) != parent;
    wrong += two_ways(SYS_getuid) != (int)getuid() || short_site(SYS_gettid) != getpid();
    SHOW(wrong);
    SHOW(two_ways(100000));
    SHOW(short_site(100000));
}

static void registers(void)
{
    uint64_t seen[3];
    int rip = 0, r11 = 0, flags = 0;
    for (int i = 0; i < OFTEN; i++) {
        /* CF, PF, AF, ZF, SF, OF in turn, and DF. */
        uint64_t set = 0x202 | ((i & 1) ? 1 : 0) | ((i & 2) ? 4 : 0) | ((i & 4) ? 0x10 : 0) |
                       ((i & 8) ? 0x40 : 0) | ((i & 16) ? 0x80 : 0) | ((i & 32) ? 0x800 : 0) |
                       ((i & 64) ? 0x400 : 0);
        after_call(set, seen);
        rip += seen[0] != (uint64_t)after_behind;
        r11 += seen[1] != set;
        flags += seen[2] != set;
    }
    SHOW(rip);
    SHOW(r11);
    SHOW(flags);
}

static volatile int rings, strange;
static int expected_parent;

static void ring(int signal, siginfo_t *info, void *context)
{
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    char *rip = (char *)registers[REG_RIP];
    (void)signal, (void)info;
    rings++;
    if (rip == storm_site)
        strange += registers[REG_RAX] != SYS_getppid;
    else if (rip == storm_behind || rip == padded_behind)
        strange += registers[REG_RAX] != expected_parent || registers[REG_RCX] != (greg_t)rip;
    else if (rip == padded_site)
        strange += registers[REG_RAX] != SYS_getppid;
    else if (!(rip >= storm_load && rip < storm_load + 32) &&
             !(rip >= padded_site - 16 && rip < padded_site + 32) && rip < (char *)0x400000)
        strange++;
}

static void storm(void)
{
    struct sigaction action = {.sa_sigaction = ring, .sa_flags = SA_SIGINFO};
    struct itimerval fast = {{0, 200}, {0, 200}}, never = {{0, 0}, {0, 0}};
    int stopped = 0;
    expected_parent = getppid();
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &fast, NULL);
    while (rings < 400) {
        stopped += stormed(expected_parent, 1000);
        stopped += padded_storm(expected_parent, 1000, SYS_getppid);
    }
    setitimer(ITIMER_REAL, &never, NULL);
    SHOW(stopped);
    SHOW(strange);
}

static int pipe_ends[2];

static void write_one(int signal)
{
    (void)signal;
    if (write(pipe_ends[1], "x", 1) != 1)
        _exit(9);
}

/* A read that waits is ended by a handler, or starts again, at a site that was rewritten. */
static void interrupted(const char *name, long (*reads)(int, void *, size_t), int flags)
{
    struct sigaction action = {.sa_handler = write_one, .sa_flags = flags};
    struct itimerval soon = {{0, 0}, {0, 20000}};
    char byte = 0;
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &soon, NULL);
    long result = reads(pipe_ends[0], &byte, 1);
    printf("%s, flags %x: %ld %c\n", name, (unsigned)flags, result, byte ? byte : '-');
    if (result < 0)
        (void)!read(pipe_ends[0], &byte, 1);
}

static void restarts(void)
{
    char byte;
    int zero = open("/dev/zero", O_RDONLY), wrong = 0;
    for (int i = 0; i < OFTEN; i++)
        wrong += short_read(zero, &byte, 1) != 1 || long_read(zero, &byte, 1) != 1;
    SHOW(wrong);
    TRY(pipe(pipe_ends));
    interrupted("short", short_read, 0);
    interrupted("short", short_read, SA_RESTART);
    interrupted("long", long_read, 0);
    interrupted("long", long_read, SA_RESTART);
}

static void family(void)
{
    int self = getpid(), status;
    pid_t child = fork_clean();
    if (child == 0) {
        int wrong = 0;
        for (int i = 0; i < OFTEN; i++)
            wrong += red_zone(self) || short_site(SYS_getppid) != self;
        _exit(wrong ? 1 : 0);
    }
    waitpid(child, &status, 0);
    show_status("child", status);
    int ends[2];
    TRY(pipe(ends));
    child = fork_clean();
    if (child == 0) {
        int parent = getpid();
        if (fork_clean() == 0) {
            /* The grandchild sees its parent go. */
            while (two_ways(0) == parent)
                sched_yield();
            char news = two_ways(0) == getppid() ? 'y' : 'n';
            (void)!write(ends[1], &news, 1);
        }
        _exit(0);
    }
    waitpid(child, &status, 0);
    char news = 0;
    TRY(read(ends[0], &news, 1));
    SHOW(news == 'y');
    child = vfork();
    if (child == 0)
        _exit(red_zone(self) ? 1 : 0);
    waitpid(child, &status, 0);
    show_status("vfork child", status);
    child = vfork();
    if (child == 0) {
        /* One that forks before it has a space of its own. */
        int own = getpid();
        pid_t grandchild = fork();
        if (grandchild == 0)
            _exit(getppid() == own ? 3 : 4);
        waitpid(grandchild, &status, 0);
        _exit(WEXITSTATUS(status));
    }
    waitpid(child, &status, 0);
    show_status("vfork child's child", status);
}

static void changed(void)
{
    unsigned char *code = (unsigned char *)changing;
    int parent = getppid(), wrong = 0;
    for (int i = 0; i < OFTEN; i++)
        wrong += changing() != parent;
    SHOW(wrong);
    TRY(mprotect(code, 4096, PROT_READ | PROT_WRITE | PROT_EXEC));
    SHOW(code[0]);
    SHOW(code[1]);
    for (int i = 0; i < OFTEN; i++)
        wrong += changing() != parent;
    code[1] = SYS_getpid;
    for (int i = 0; i < OFTEN; i++)
        wrong += changing() != getpid();
    TRY(mprotect(code, 4096, PROT_READ | PROT_EXEC));
    for (int i = 0; i < OFTEN; i++)
        wrong += changing() != getpid();
    SHOW(wrong);
    SHOW(code[1] == SYS_getpid);
    /* Elsewhere, then gone. */
    void *moved = mremap(code, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)0x10000000);
    SHOW(moved);
    SHOW(((int (*)(void))moved)() == getpid());
}

int main(void)
{
    often();
    registers();
    storm();
    restarts();
    family();
    often();
    changed();
    return 0;
}
