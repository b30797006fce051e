/* The console is user 0's: a process of another user that leads a session of its own opens it by no
   name, whatever descriptors of its former terminal it has kept. */
#include "check.h"

int main(void)
{
    int kept = open("/dev/tty", O_RDWR);
    pid_t child = fork_clean();
    if (child == 0) {
        TRY(setsid() < 0);
        TRY(setgid(65534));
        TRY(setuid(65534));
        printf("console opened: %d\n", open("/dev/console", O_RDWR | O_NOCTTY) >= 0);
        printf("terminal opened: %d\n", open("/dev/tty", O_RDWR) >= 0);
        exit(0);
    }
    int status = -1;
    TRY(waitpid(child, &status, 0) != child);
    printf("kept a descriptor: %d, status %d\n", kept >= 0, status);
    return 0;
}
