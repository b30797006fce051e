/* Calls that wait with a signal mask of their own (ppoll(2), pselect(2)): a signal that only this mask blocks
 * comes when the call ends, before the program goes on. */
#include "check.h"

static volatile sig_atomic_t seen[65];

static void note(int number)
{
    seen[number]++;
}

/* A mask that blocks all that the thread's blocks, and `number`. */
static sigset_t with(int number)
{
    sigset_t set;
    sigprocmask(SIG_BLOCK, NULL, &set);
    sigaddset(&set, number);
    return set;
}

/* How often the signal has come, looked at without a call in between. */
static void end_of_time(const char *name, int is_select, int number)
{
    sigset_t mask = with(number);
    struct timespec time = {0, 60000000};
    struct itimerval soon = {.it_value = {0, 10000}};
    seen[number] = 0;
    setitimer(ITIMER_REAL, &soon, NULL);
    int result = is_select ? pselect(0, NULL, NULL, NULL, &time, &mask) : ppoll(NULL, 0, &time, &mask);
    int times = seen[number];
    printf("%s: %d, signal seen %d\n", name, result, times);
}

/* A descriptor is ready at once; the signal has come before. */
static void ready_at_once(int number)
{
    int ends[2];
    pipe(ends);
    write(ends[1], "x", 1);
    struct pollfd asked = {.fd = ends[0], .events = POLLIN};
    sigset_t mask = with(number), old;
    sigprocmask(SIG_SETMASK, &mask, &old);
    raise(number);
    seen[number] = 0;
    sigset_t open_mask = old;
    int result = ppoll(&asked, 1, NULL, &mask);
    int times = seen[number];
    printf("blocked before and meanwhile: %d, signal seen %d\n", result, times);
    result = ppoll(&asked, 1, NULL, &open_mask);
    times = seen[number];
    printf("blocked before alone: %d, signal seen %d\n", result, times);
    sigprocmask(SIG_SETMASK, &old, NULL);
    SHOW(seen[number]);
}

/* A signal that ends the process ends it before it goes on. */
static void ends_at_once(void)
{
    static volatile int *went_on;
    went_on = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t child = fork_clean();
    if (child == 0) {
        signal(SIGALRM, SIG_DFL);
        sigset_t mask = with(SIGALRM);
        struct timespec time = {0, 60000000};
        struct itimerval soon = {.it_value = {0, 10000}};
        setitimer(ITIMER_REAL, &soon, NULL);
        ppoll(NULL, 0, &time, &mask);
        *went_on = 1;
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    show_status("child", status);
    SHOW(*went_on);
}

/* The call is interrupted by one signal while its mask blocks another one, which has come before. */
static void interrupted(void)
{
    sigset_t old, mask, both;
    sigemptyset(&both);
    sigaddset(&both, SIGALRM);
    sigprocmask(SIG_BLOCK, &both, &old);
    mask = old;
    sigaddset(&mask, SIGUSR1);
    raise(SIGUSR1);
    printf("before the call: signal seen %d\n", seen[SIGUSR1]);
    raise(SIGALRM);
    int result = ppoll(NULL, 0, NULL, &mask);
    printf("interrupted: %d, signals seen %d %d\n", result, seen[SIGUSR1], seen[SIGALRM]);
    sigprocmask(SIG_SETMASK, &old, NULL);
}

/* The same, and the signal that is blocked comes meanwhile, from a child that sends both. */
static void sent_both(void)
{
    seen[SIGUSR1] = seen[SIGALRM] = 0;
    sigset_t mask = with(SIGUSR1);
    pid_t child = fork_clean();
    if (child == 0) {
        usleep(20000);
        kill(getppid(), SIGUSR1);
        kill(getppid(), SIGALRM);
        _exit(0);
    }
    int result = ppoll(NULL, 0, NULL, &mask);
    int first = seen[SIGUSR1], second = seen[SIGALRM];
    printf("sent both: %d, signals seen %d %d\n", result, first, second);
    waitpid(child, NULL, 0);
}

int main(void)
{
    struct sigaction action = {.sa_handler = note};
    sigaction(SIGALRM, &action, NULL);
    sigaction(SIGUSR1, &action, NULL);
    end_of_time("ppoll", 0, SIGALRM);
    end_of_time("pselect", 1, SIGALRM);
    ready_at_once(SIGUSR1);
    interrupted();
    sent_both();
    ends_at_once();
    return 0;
}
