/* Two threads that posix_spawn programs of the file server at the same time. */
#include "check.h"
#include "users.h"
#include <pthread.h>

#define SPAWNS 50

extern char **environ;

static char *const arguments[] = {"twin", "end", NULL};
static int failed[2], ended[2];

static void *spawn(void *place)
{
    int which = (int)(long)place;
    for (int i = 0; i < SPAWNS; i++) {
        pid_t child;
        int status;
        if (posix_spawn(&child, "./twin", NULL, NULL, arguments, environ)) {
            failed[which]++;
            continue;
        }
        if (waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7)
            ended[which]++;
    }
    return NULL;
}

/* The two threads; what the process did with its files before works afterwards, too. */
static int both(void)
{
    pthread_t other;
    pthread_create(&other, NULL, spawn, (void *)1);
    spawn((void *)0);
    pthread_join(other, NULL);
    SHOW(failed[0] + failed[1]);
    SHOW(ended[0] + ended[1]);
    int file = open("after", O_CREAT | O_RDWR, 0600);
    TRY(write(file, "after", 5));
    puts("ok");
    return 3;
}

int main(int count, char **words)
{
    if (count > 1 && words[1])
        return 7;
    copy("twin", 0755, geteuid(), getegid());

    int pipes[2], status;
    if (pipe(pipes))
        return 1;
    pid_t child = fork_clean();
    if (child == 0)
        exit(both());
    close(pipes[1]);
    waitpid(child, &status, 0);
    show_status("the process of two threads", status);
    /* Nobody has the writing end any more. */
    struct pollfd end = {.fd = pipes[0], .events = POLLIN};
    SHOW(poll(&end, 1, 10000));
    SHOW(end.revents == POLLHUP);
    return 0;
}
