/* Threads: made, joined, excluded, told; their own masks and names; the end from any of them. */
#include "check.h"
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static long counter;
static int turn;
static __thread int own = 5;

static long futex(void *word, int operation, long value, void *timeout, void *second, long third)
{
    return syscall(SYS_futex, word, operation, value, timeout, second, third);
}

static void *count(void *argument)
{
    for (int n = 0; n < 2000; n++) {
        pthread_mutex_lock(&mutex);
        counter++;
        pthread_mutex_unlock(&mutex);
    }
    own += (long)argument;
    return (void *)(long)own;
}

static void *ping(void *argument)
{
    int side = (long)argument;
    for (int n = 0; n < 200; n++) {
        pthread_mutex_lock(&mutex);
        while (turn != side)
            pthread_cond_wait(&cond, &mutex);
        turn = !side;
        pthread_cond_signal(&cond);
        pthread_mutex_unlock(&mutex);
    }
    return NULL;
}

static void *identity(void *argument)
{
    pid_t *ids = argument;
    ids[0] = getpid();
    ids[1] = gettid();
    ids[2] = getppid();
    return NULL;
}

static void run(int threads, void *(*body)(void *), long first)
{
    pthread_t all[64];
    long sum = 0;
    for (long n = 0; n < threads; n++)
        if (pthread_create(&all[n], NULL, body, (void *)(first + n)))
            printf("pthread_create failed\n");
    for (int n = 0; n < threads; n++) {
        void *answer;
        pthread_join(all[n], &answer);
        sum += (long)answer;
    }
    SHOW(sum);
}

static atomic_int flag, interrupted;

static void on_interrupt(int signal)
{
    (void)signal;
    atomic_store(&interrupted, 1);
}

static void *interrupts(void *argument)
{
    usleep(1000);
    atomic_store(&flag, 1);
    return (void *)(long)pthread_kill(*(pthread_t *)argument, SIGUSR2);
}

/* The first thread makes no call while the other one needs it to come on. */
static void without_calls(void)
{
    pthread_t self = pthread_self(), thread;
    signal(SIGUSR2, on_interrupt);
    pthread_create(&thread, NULL, interrupts, &self);
    while (!atomic_load(&flag) || !atomic_load(&interrupted))
        ;
    pthread_join(thread, NULL);
    SHOW(atomic_load(&interrupted));
}

static pthread_barrier_t barrier;
static atomic_int handled;
static pthread_t taker;

static void on_signal(int signal)
{
    (void)signal;
    taker = pthread_self();
    atomic_fetch_add(&handled, 1);
}

static void *blocked(void *argument)
{
    sigset_t set;
    (void)argument;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    sigpending(&set);
    return (void *)(long)sigismember(&set, SIGUSR1);
}

static void *taking(void *argument)
{
    (void)argument;
    pthread_barrier_wait(&barrier);
    while (!atomic_load(&handled))
        usleep(1000);
    return (void *)(long)pthread_equal(taker, pthread_self());
}

static void signals(void)
{
    struct sigaction action = {.sa_handler = on_signal};
    pthread_t one, other;
    void *answer;
    sigset_t set, old;
    sigaction(SIGUSR1, &action, NULL);
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &set, &old);
    pthread_barrier_init(&barrier, NULL, 2);

    /* Everybody blocks it but one. */
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_create(&one, NULL, taking, NULL);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    pthread_barrier_wait(&barrier);
    kill(getpid(), SIGUSR1);
    pthread_join(one, &answer);
    printf("taken by the one that wants it: %ld\n", (long)answer);

    /* One thread's own, which it blocks. */
    atomic_store(&handled, 0);
    pthread_create(&other, NULL, blocked, NULL);
    pthread_barrier_wait(&barrier);
    pthread_kill(other, SIGUSR1);
    pthread_barrier_wait(&barrier);
    pthread_join(other, &answer);
    printf("waits for the thread: %ld, for us: ", (long)answer);
    sigpending(&set);
    printf("%d, handled %d\n", sigismember(&set, SIGUSR1), atomic_load(&handled));
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    SHOW(syscall(SYS_tgkill, getpid(), gettid(), SIGUSR1));
    SHOW(atomic_load(&handled));
    TRY(syscall(SYS_tgkill, getpid(), 0x3fffff, SIGUSR1));
    TRY(syscall(SYS_tkill, 0, SIGUSR1));
    SHOW(pthread_kill(pthread_self(), 0));
}

static void *cancelled(void *argument)
{
    (void)argument;
    for (;;)
        pause();
    return NULL;
}

static void *leaver(void *argument)
{
    pthread_mutex_lock(argument);
    return NULL;
}

static void robust(void)
{
    pthread_mutexattr_t attributes;
    pthread_mutex_t held;
    pthread_t thread;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&held, &attributes);
    pthread_create(&thread, NULL, leaver, &held);
    pthread_join(thread, NULL);
    SHOW(pthread_mutex_lock(&held) == EOWNERDEAD);
    SHOW(pthread_mutex_consistent(&held));
    SHOW(pthread_mutex_unlock(&held));
    SHOW(pthread_mutex_lock(&held));
    pthread_mutex_unlock(&held);
}

struct shared {
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    sem_t done;
    int turn, rounds;
};

static void take_turns(struct shared *shared, int side)
{
    for (int n = 0; n < 100; n++) {
        pthread_mutex_lock(&shared->mutex);
        while (shared->turn != side)
            pthread_cond_wait(&shared->cond, &shared->mutex);
        shared->turn = (side + 1) % 3;
        shared->rounds++;
        pthread_cond_broadcast(&shared->cond);
        pthread_mutex_unlock(&shared->mutex);
    }
    sem_post(&shared->done);
}

static void *takes_turns(void *argument)
{
    take_turns(argument, 2);
    return NULL;
}

/* Two processes, one of them with two threads, exclude each other in memory that they share. */
static void between_processes(void)
{
    struct shared *shared =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_mutexattr_t mutex;
    pthread_condattr_t cond;
    pthread_t thread;
    pthread_mutexattr_init(&mutex);
    pthread_mutexattr_setpshared(&mutex, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(&shared->mutex, &mutex);
    pthread_condattr_init(&cond);
    pthread_condattr_setpshared(&cond, PTHREAD_PROCESS_SHARED);
    pthread_cond_init(&shared->cond, &cond);
    sem_init(&shared->done, 1, 0);
    pid_t child = fork_clean();
    if (child == 0) {
        pthread_create(&thread, NULL, takes_turns, shared);
        take_turns(shared, 0);
        pthread_join(thread, NULL);
        _exit(0);
    }
    take_turns(shared, 1);
    for (int n = 0; n < 3; n++)
        sem_wait(&shared->done);
    SHOW(shared->rounds);
    waitpid(child, NULL, 0);
    munmap(shared, 4096);
}

static void words(void)
{
    static uint32_t word = 1, second = 7;
    struct timespec little = {0, 2000000};
    char *hole = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    TRY(futex(&word, FUTEX_WAIT, 0, NULL, NULL, 0));
    TRY(futex(&word, FUTEX_WAIT, 1, &little, NULL, 0));
    TRY(futex(&word, FUTEX_WAIT_PRIVATE, 1, &little, NULL, 0));
    TRY(futex((char *)&word + 1, FUTEX_WAIT, 1, NULL, NULL, 0));
    TRY(futex(hole, FUTEX_WAIT, 0, NULL, NULL, 0));
    TRY(futex(hole, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0));
    TRY(futex(NULL, FUTEX_WAIT, 0, NULL, NULL, 0));
    TRY(futex((void *)-4096L, FUTEX_WAIT, 0, NULL, NULL, 0));
    TRY(futex((void *)0x800000000000, FUTEX_WAKE, 1, NULL, NULL, 0));
    TRY(futex(&word, FUTEX_WAIT_BITSET, 1, NULL, NULL, 0));
    TRY(futex(&word, FUTEX_WAKE_BITSET, 1, NULL, NULL, 0));
    TRY(futex(&word, FUTEX_WAKE, 1, NULL, NULL, 0));
    TRY(futex(&word, FUTEX_CMP_REQUEUE, 1, (void *)1, &second, 2));
    TRY(futex(&word, FUTEX_CMP_REQUEUE, 1, (void *)1, &second, 1));
    TRY(futex(&word, FUTEX_WAKE_OP, 1, (void *)1, &second,
              FUTEX_OP(FUTEX_OP_ADD, 3, FUTEX_OP_CMP_EQ, 7)));
    SHOW(second);
    TRY(futex(&word, FUTEX_WAKE_OP, 1, (void *)1, hole,
              FUTEX_OP(FUTEX_OP_ADD, 3, FUTEX_OP_CMP_EQ, 7)));
    TRY(futex(&word, 99, 1, NULL, NULL, 0));
    struct timespec wrong = {0, 2000000000};
    TRY(futex(&word, FUTEX_WAIT, 1, &wrong, NULL, 0));
}

static void nonsense(void)
{
    static char stack[4096] __attribute__((aligned(16)));
    TRY(syscall(SYS_clone, CLONE_THREAD, stack + sizeof stack, 0, 0, 0));
    TRY(syscall(SYS_clone, CLONE_SIGHAND, stack + sizeof stack, 0, 0, 0));
    TRY(syscall(SYS_clone, CLONE_THREAD | CLONE_VM, stack + sizeof stack, 0, 0, 0));
    uint64_t zero[11] = {0};
    TRY(syscall(SYS_clone3, zero, 8));
    TRY(syscall(SYS_clone3, zero, 8192));
    TRY(syscall(SYS_clone3, NULL, 88));
    zero[4] = 65;
    TRY(syscall(SYS_clone3, zero, 88));
    zero[4] = 0;
    zero[5] = 4096; /* a stack without a size */
    TRY(syscall(SYS_clone3, zero, 88));
    zero[5] = 0;
    zero[0] = CLONE_THREAD | CLONE_SIGHAND | CLONE_VM;
    zero[4] = SIGCHLD;
    TRY(syscall(SYS_clone3, zero, 88));
    zero[0] = SIGCHLD;
    zero[4] = 0;
    TRY(syscall(SYS_clone3, zero, 88));
    TRY(syscall(SYS_set_robust_list, zero, 1));
}

static void *ends_all(void *argument)
{
    usleep(5000);
    if (argument)
        raise((long)argument);
    exit(9);
}

static void *sleeper(void *argument)
{
    (void)argument;
    for (;;)
        pause();
    return NULL;
}

static void *spinner(void *argument)
{
    (void)argument;
    for (;;)
        counter++;
    return NULL;
}

static void *executes(void *argument)
{
    (void)argument;
    char *words[] = {"again", "executed", NULL};
    execve("/proc/self/exe", words, NULL);
    return NULL;
}

static void *last(void *argument)
{
    (void)argument;
    usleep(20000);
    printf("the first thread has ended\n");
    return NULL;
}

static void ends(const char *what, void *(*body)(void *), void *argument)
{
    int status;
    pid_t child = fork_clean();
    if (child == 0) {
        pthread_t thread;
        pthread_create(&thread, NULL, sleeper, NULL);
        pthread_create(&thread, NULL, spinner, NULL);
        pthread_create(&thread, NULL, spinner, NULL);
        pthread_create(&thread, NULL, body, argument);
        for (;;)
            pause();
    }
    waitpid(child, &status, 0);
    show_status(what, status);
}

int main(int arguments, char **argument)
{
    pthread_t thread;
    void *answer;
    pid_t ids[3];
    int status;
    if (arguments > 1) {
        printf("%s, tid is pid: %d\n", argument[1], gettid() == getpid());
        return 3;
    }
    without_calls();
    run(8, count, 1);
    SHOW(counter);
    SHOW(own);
    run(2, ping, 0);
    pthread_create(&thread, NULL, identity, ids);
    pthread_join(thread, NULL);
    SHOW(ids[0] == getpid());
    SHOW(ids[1] != getpid());
    SHOW(ids[2] == getppid());
    run(64, count, 0);
    SHOW(counter);
    signals();
    pthread_create(&thread, NULL, cancelled, NULL);
    SHOW(pthread_cancel(thread));
    pthread_join(thread, &answer);
    SHOW(answer == PTHREAD_CANCELED);
    robust();
    between_processes();
    words();
    nonsense();
    ends("exit by another thread", ends_all, NULL);
    ends("a signal in another thread", ends_all, (void *)(long)SIGTERM);
    ends("a fault in another thread", ends_all, (void *)(long)SIGSEGV);
    ends("execve by another thread", executes, NULL);
    pid_t child = fork_clean();
    if (child == 0) {
        pthread_create(&thread, NULL, last, NULL);
        pthread_exit(NULL);
    }
    waitpid(child, &status, 0);
    show_status("the first thread first", status);
    child = fork_clean();
    if (child == 0) {
        pthread_create(&thread, NULL, spinner, NULL);
        pthread_create(&thread, NULL, spinner, NULL);
        for (;;)
            counter++;
    }
    usleep(20000);
    kill(child, SIGSTOP);
    waitpid(child, &status, WUNTRACED);
    show_status("stopped", status);
    kill(child, SIGCONT);
    waitpid(child, &status, WCONTINUED);
    show_status("continued", status);
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    show_status("killed", status);
    return 0;
}
