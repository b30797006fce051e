/* What is asked about scheduling before it is set: the priorities of each policy, a turn's length,
 * sets of processors that leave none. */
#include "check.h"

static void priorities(int policy)
{
    printf("policy %d\n", policy);
    TRY(sched_get_priority_min(policy));
    TRY(sched_get_priority_max(policy));
}

static void interval(pid_t pid)
{
    struct timespec turn = {7, 0};
    TRY(sched_rr_get_interval(pid, &turn));
    SHOW(turn.tv_sec);
}

int main(void)
{
    for (int policy = -1; policy < 7; policy++)
        priorities(policy);
    priorities(77);
    interval(0);
    interval(getpid());
    interval(-1);
    interval(0x3fffffff);
    TRY(syscall(SYS_sched_rr_get_interval, 0, 1));

    cpu_set_t none, all;
    CPU_ZERO(&none);
    memset(&all, -1, sizeof all);
    TRY(sched_setaffinity(0, sizeof none, &none));
    TRY(sched_setaffinity(0, 0, &all));
    TRY(sched_setaffinity(-1, sizeof none, &none));
    TRY(sched_setaffinity(0x3fffffff, sizeof none, &none));
    TRY(syscall(SYS_sched_setaffinity, 0, 8, 1));
    TRY(sched_setaffinity(0, 1, &all));
    TRY(sched_setaffinity(0, sizeof all, &all));
    return 0;
}
