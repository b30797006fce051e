/* Whose children were that ended long before they are waited for, two users' at once. Run as root. */
#define _GNU_SOURCE
#include "check.h"
#include "users.h"

/* Numbers that no user of a host has. */
enum { ANN = 61000, BOB = 61001 };

int main(int count, char **words)
{
    unsigned users[2] = { ANN, BOB };
    pid_t children[2];
    siginfo_t info;
    if (count > 1)
        return 3;
    for (int at = 0; at < 2; at++) {
        children[at] = fork_clean();
        if (children[at] == 0) {
            TRY(setresuid(users[at], users[at], users[at]));
            execl("/proc/self/exe", words[0], "child", (char *)0);
            _exit(1);
        }
    }
    /* Nothing is left of either user meanwhile. */
    for (struct timespec rest = { 2, 500000000 }; nanosleep(&rest, &rest) != 0;)
        ;
    for (int at = 0; at < 2; at++) {
        TRY(waitid(P_PID, children[at], &info, WEXITED));
        printf("code %d status %d uid %u\n", info.si_code, info.si_status, info.si_uid);
    }
}
