/* A signal to a group meets every member, also children that are being made meanwhile: processes that
   each make one child and end are all ended by one kill. */
#include "check.h"
#include <sys/mman.h>

#define CHAINS 8
#define ROUNDS 40
/* Members in the table before the chains. */
#define SLEEPERS 100

static volatile unsigned *hops;

/* Each child goes on where its parent ends. */
static void hop(void)
{
    for (;;) {
        __atomic_fetch_add(hops, 1, __ATOMIC_SEQ_CST);
        pid_t child = fork();
        if (child != 0)
            _exit(child < 0);
    }
}

static int survives(int number)
{
    pid_t leader = fork_clean();
    if (leader == 0) {
        setpgid(0, 0);
        signal(SIGCHLD, SIG_IGN);
        /* Their places are free as soon as the kill has passed them. */
        for (int at = 0; at < SLEEPERS; at++)
            if (fork() == 0)
                for (;;)
                    pause();
        for (int chain = 0; chain < CHAINS; chain++)
            if (fork() == 0)
                hop();
        for (;;)
            pause();
    }
    setpgid(leader, leader);
    unsigned begun = *hops;
    for (int look = 0; *hops - begun < 20 && look < 10000; look++)
        usleep(200);
    if (kill(-leader, number) != 0)
        return -1;
    /* What was killed while it ran on another processor is gone soon. */
    usleep(5000);
    unsigned after = *hops;
    usleep(20000);
    int moved = *hops != after;
    kill(-leader, SIGKILL);
    while (waitpid(leader, NULL, 0) < 0 && errno == EINTR)
        ;
    return moved;
}

int main(void)
{
    hops = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int killed = 0, terminated = 0;
    for (int round = 0; round < ROUNDS; round++) {
        killed += survives(SIGKILL) == 0;
        terminated += survives(SIGTERM) == 0;
    }
    SHOW(killed);
    SHOW(terminated);
    return 0;
}
