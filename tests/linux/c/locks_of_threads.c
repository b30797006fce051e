/* Locks of fcntl belong to the process, whichever of its threads takes, tests or drops them, and
   stay when the thread ends. */
#include "check.h"
#include <pthread.h>

static int file;

static int lock(int command, int type, long start, long length)
{
    struct flock wanted = {.l_type = type, .l_start = start, .l_len = length};
    return fcntl(file, command, &wanted);
}

/* What is in the way of a lock of all. */
static void look(const char *who, pid_t expected)
{
    struct flock seen = {.l_type = F_WRLCK};
    if (fcntl(file, F_GETLK, &seen))
        printf("%s: %s\n", who, strerrorname_np(errno));
    else if (seen.l_type == F_UNLCK)
        printf("%s: free\n", who);
    else
        printf("%s: %d %ld+%ld ours %d\n", who, seen.l_type, (long)seen.l_start, (long)seen.l_len,
               seen.l_pid == expected);
}

/* The same in another process, which also tries to take it. */
static void look_elsewhere(const char *who)
{
    pid_t parent = getpid(), child = fork_clean();
    if (child == 0) {
        look(who, parent);
        TRY(lock(F_SETLK, F_WRLCK, 5, 1));
        _exit(0);
    }
    waitpid(child, NULL, 0);
}

static void *takes(void *unused)
{
    TRY(lock(F_SETLK, F_WRLCK, 0, 10));
    look("the thread itself", getpid());
    return unused;
}

static void *changes(void *unused)
{
    TRY(lock(F_SETLK, F_RDLCK, 0, 5));
    TRY(lock(F_SETLK, F_UNLCK, 8, 0));
    return unused;
}

static void *closes(void *unused)
{
    TRY(close(open("locked", O_RDONLY)));
    return unused;
}

/* The same, and nothing is said. */
static void *closes_silently(void *unused)
{
    close(open("locked", O_RDONLY));
    return unused;
}

static void *executes(void *unused)
{
    execl("/proc/self/exe", "locks_of_threads", "look", NULL);
    return unused;
}

static void run(void *(*what)(void *))
{
    pthread_t thread;
    pthread_create(&thread, NULL, what, NULL);
    pthread_join(thread, NULL);
}

/* A child waits until a thread of its parent's gives the lock back. */
static void waited_for(void)
{
    int ready[2];
    char byte;
    lock(F_SETLK, F_WRLCK, 0, 0);
    if (pipe(ready))
        exit(1);
    pid_t child = fork_clean();
    if (child == 0) {
        (void)!write(ready[1], "r", 1);
        TRY(lock(F_SETLKW, F_WRLCK, 0, 0));
        _exit(0);
    }
    (void)!read(ready[0], &byte, 1);
    usleep(20000);
    run(closes_silently);
    waitpid(child, NULL, 0);
}

/* A child that shares the memory has locks of its own. */
static void borrowed(void)
{
    lock(F_SETLK, F_WRLCK, 0, 10);
    pid_t child = vfork();
    if (child == 0) {
        struct flock wanted = {.l_type = F_WRLCK, .l_len = 10};
        _exit(fcntl(file, F_SETLK, &wanted) == 0 ? 0 : errno);
    }
    int status;
    waitpid(child, &status, 0);
    SHOW(WEXITSTATUS(status) == EAGAIN);
}

int main(int count, char **unused)
{
    (void)unused;
    if (count > 1) {
        file = open("locked", O_RDWR);
        look("what it executes", getpid());
        TRY(lock(F_SETLK, F_WRLCK, 0, 10));
        return 0;
    }
    file = open("locked", O_CREAT | O_RDWR, 0600);
    run(takes);
    look("the process", getpid());
    look_elsewhere("a child");
    TRY(lock(F_SETLK, F_WRLCK, 3, 10));
    run(changes);
    look_elsewhere("a child");
    run(closes);
    look_elsewhere("a child");
    waited_for();
    borrowed();
    run(takes);
    run(executes);
    return 1;
}
