/* execve(2): what a program finds of the one before it in the same process, and what is gone. */
#include "check.h"

extern char **environ;

static char zeroed[3 * 4096];
static long touched = 1;
/* Of the file, in pages of their own. */
static const volatile char constants[2 * 4096] __attribute__((aligned(4096))) = {5, [4096] = 6};

/* An address far from everything, where the program before has memory and the next one has none. */
static char *const FAR = (char *)0x200000000000;

static void handle(int signal)
{
    (void)signal;
}

static void execute(const char *stage, const char *detail, const char *variable)
{
    char *words[] = {"executing", (char *)stage, (char *)detail, NULL};
    char *environment[] = {(char *)variable, NULL};
    fflush(stdout);
    execve("/proc/self/exe", words, environment);
    TRY(-1);
    _exit(99);
}

static int only_zeros(const char *bytes, size_t count)
{
    for (size_t at = 0; at < count; at++)
        if (bytes[at])
            return 0;
    return 1;
}

/* Is anything left of the variable that the program before had near the top of its stack? */
static int remains(void)
{
    char *name = environ[0];
    for (char *at = (char *)((uintptr_t)name & ~4095ul); at < name - 8; at++)
        if (memcmp(at, "MMMMMMMM", 8) == 0)
            return 1;
    return 0;
}

static void show_action(int signal)
{
    struct sigaction action;
    sigaction(signal, NULL, &action);
    printf("signal %d: %s, flags %d\n", signal,
           action.sa_handler == SIG_DFL ? "default"
           : action.sa_handler == SIG_IGN ? "ignored" : "handled",
           action.sa_flags & ~0x04000000);
}

/* The next program: `id` is the pid of the one before. */
static int second(char **words, const char *id)
{
    SHOW(getpid() == atoi(id));
    printf("%s, STAGE=%s\n", words[0], getenv("STAGE"));
    SHOW(touched);
    SHOW(only_zeros(zeroed, sizeof zeroed));
    /* Below the arguments the stack was never used, a start's few frames apart. */
    char *stack = (char *)((uintptr_t)&stack & ~4095ul);
    SHOW(only_zeros(stack - 64 * 1024, 48 * 1024));
    unsigned char seen;
    TRY(mincore(FAR, 4096, &seen));
    SHOW(sbrk(0) >= (void *)(zeroed + sizeof zeroed));
    TRY(fcntl(20, F_GETFD));
    TRY(fcntl(21, F_GETFD));
    TRY(lseek(20, 0, SEEK_CUR));
    char byte;
    TRY(read(22, &byte, 1));
    show_action(SIGUSR1);
    show_action(SIGUSR2);
    show_action(SIGTERM);
    sigset_t set;
    sigprocmask(SIG_SETMASK, NULL, &set);
    SHOW(sigismember(&set, SIGHUP));
    SHOW(sigismember(&set, SIGALRM));
    SHOW(sigismember(&set, SIGINT));
    sigpending(&set);
    SHOW(sigismember(&set, SIGHUP));
    SHOW(sigismember(&set, SIGINT));
    stack_t alternate;
    sigaltstack(NULL, &alternate);
    SHOW(alternate.ss_flags == SS_DISABLE);
    struct itimerval left;
    getitimer(ITIMER_REAL, &left);
    SHOW(left.it_value.tv_sec > 90);
    struct itimerspec timer;
    SHOW(syscall(SYS_timer_gettime, 0, &timer) < 0 && errno == EINVAL);
    SHOW(umask(0) == 031);
    struct rlimit limit;
    getrlimit(RLIMIT_CORE, &limit);
    SHOW(limit.rlim_max);
    char text[200] = "";
    int file = open("/proc/self/environ", O_RDONLY);
    SHOW(read(file, text, sizeof text));
    printf("%s\n", text);
    close(file);
    file = open("/proc/self/comm", O_RDONLY);
    memset(text, 0, sizeof text);
    TRY(read(file, text, sizeof text) > 0);
    printf("%s", text);
    close(file);
    int status;
    TRY(waitpid(-1, &status, 0) > 0);
    show_status("the child of the program before", status);
    return 3;
}

static int first(void)
{
    char id[20];
    snprintf(id, sizeof id, "%d", getpid());
    touched = 2;
    memset(zeroed, 7, sizeof zeroed);
    /* The stack, further down than the next program's start comes. */
    volatile char deep[300 * 1024];
    for (size_t at = 0; at < sizeof deep; at += 64)
        deep[at] = 9;
    void *far = mmap(FAR, 4 << 20, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    SHOW(far == FAR);
    memset(FAR, 1, 1 << 16);
    int file = open("kept", O_CREAT | O_RDWR, 0600);
    TRY(write(file, "hello", 5));
    dup2(file, 20);
    fcntl(dup2(file, 21), F_SETFD, FD_CLOEXEC);
    close(file);
    /* Its writing end closes with us, so that the next program reads its end. */
    int ends[2];
    TRY(pipe2(ends, O_CLOEXEC));
    dup2(ends[0], 22);
    signal(SIGUSR1, handle);
    signal(SIGUSR2, SIG_IGN);
    struct sigaction action = {.sa_handler = handle, .sa_flags = SA_RESTART | SA_ONSTACK};
    sigaction(SIGTERM, &action, NULL);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGALRM);
    sigprocmask(SIG_BLOCK, &set, NULL);
    kill(getpid(), SIGHUP);
    static char room[1 << 16];
    stack_t alternate = {.ss_sp = room, .ss_size = sizeof room};
    sigaltstack(&alternate, NULL);
    struct itimerval timer = {.it_value.tv_sec = 100};
    setitimer(ITIMER_REAL, &timer, NULL);
    timer_t number;
    struct sigevent event = {.sigev_notify = SIGEV_NONE};
    timer_create(CLOCK_MONOTONIC, &event, &number);
    umask(031);
    struct rlimit limit = {0, 12345};
    setrlimit(RLIMIT_CORE, &limit);
    if (fork_clean() == 0)
        _exit(6);
    execute("second", id, "STAGE=second");
    return 1;
}

/* So many programs one after the other, each with memory of its own. */
static int next(int left)
{
    char *more = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(more, 1, 1 << 18);
    if (left == 0)
        return 5;
    char number[20];
    snprintf(number, sizeof number, "%d", left - 1);
    execute("next", number, "STAGE=next");
    return 1;
}

/* Most of a page of the stack is filled by the first program, and looked for in the second; a
 * page of the file is changed in between, which is the program's own business. */
static int fill(const char *what)
{
    static char filler[3500];
    memset(filler, 'M', sizeof filler - 1);
    SHOW(constants[0] + 10 * constants[4096]);
    if (!strcmp(what, "begin")) {
        char *page = (char *)constants + 4096;
        TRY(mprotect(page, 4096, PROT_READ | PROT_WRITE));
        *(volatile char *)page = 7;
        TRY(mprotect(page, 4096, PROT_READ));
        SHOW(constants[0] + 10 * constants[4096]);
        execute("fill", "go on", filler);
    }
    if (!strcmp(what, "go on"))
        execute("fill", "look", "STAGE=look");
    SHOW(remains());
    return 4;
}

/* A program that is given no arguments at all, not even its name. */
static void without_arguments(char **list)
{
    int status;
    pid_t child = fork_clean();
    if (child == 0) {
        execve("/proc/self/exe", list, environ);
        _exit(9);
    }
    waitpid(child, &status, 0);
    show_status("no arguments", status);
}

int main(int count, char **words)
{
    if (count == 0 || words[0][0] == 0)
        return 20 + count;
    if (count > 2)
        return !strcmp(words[1], "second") ? second(words, words[2])
               : !strcmp(words[1], "next") ? next(atoi(words[2]))
                                           : fill(words[2]);
    int status;
    pid_t child = fork_clean();
    if (child == 0)
        _exit(first());
    waitpid(child, &status, 0);
    show_status("second program", status);

    child = fork_clean();
    if (child == 0)
        execute("next", "30", "STAGE=next");
    waitpid(child, &status, 0);
    show_status("thirtieth program", status);

    child = fork_clean();
    if (child == 0)
        fill("begin");
    waitpid(child, &status, 0);
    show_status("the stack of another", status);

    /* What fails leaves everything as it was. */
    static char large[140 * 1024];
    memset(large, 'x', sizeof large - 1);
    char *too_large[] = {"executing", large, NULL};
    child = fork_clean();
    if (child == 0) {
        touched = 4;
        signal(SIGUSR1, handle);
        fcntl(dup2(1, 21), F_SETFD, FD_CLOEXEC);
        TRY(execve("/proc/self/exe", too_large, environ));
        TRY(syscall(SYS_execve, "/proc/self/exe", 8, environ));
        TRY(execve("/nosuch", words, environ));
        TRY(execve("/", words, environ));
        SHOW(touched);
        show_action(SIGUSR1);
        TRY(fcntl(21, F_GETFD));
        _exit(8);
    }
    waitpid(child, &status, 0);
    show_status("after failures", status);

    /* A large argument list: the next program's stack is more than a page. */
    child = fork_clean();
    if (child == 0) {
        large[100 * 1024] = 0;
        char *words[] = {"executing", "next", "0", large, large, NULL};
        execve("/proc/self/exe", words, environ);
        _exit(9);
    }
    waitpid(child, &status, 0);
    show_status("large arguments", status);
    static char *none[] = {NULL};
    without_arguments(none);
    without_arguments(NULL);
    return touched;
}
