/* A signal to a group is sent to all of its processes before any of them runs: the reader of a pipe whose writer
 * it ends is ended by it, too, and does not see the end of the pipe first. */
#include "check.h"
#include <termios.h>

/* A writer that writes nothing and a reader, in a group of their own; the group. */
static pid_t pipeline(pid_t *reader)
{
    int ends[2];
    char byte;
    pipe(ends);
    pid_t writer = fork_clean();
    if (writer == 0) {
        setpgid(0, 0);
        close(ends[0]);
        pause();
        _exit(1);
    }
    setpgid(writer, writer);
    *reader = fork_clean();
    if (*reader == 0) {
        setpgid(0, writer);
        close(ends[1]);
        _exit(read(ends[0], &byte, 1) == 0 ? 2 : 3);
    }
    setpgid(*reader, writer);
    close(ends[0]);
    close(ends[1]);
    return writer;
}

/* Are both ended by SIGINT? */
static int interrupted(pid_t writer, pid_t reader)
{
    int first, second;
    waitpid(writer, &first, 0);
    waitpid(reader, &second, 0);
    return first == SIGINT && second == SIGINT;
}

/* Sleeps until a process does: its state is the third word of /proc/PID/stat. */
static void await_sleep(pid_t pid)
{
    char path[64], line[512], *end;
    sprintf(path, "/proc/%d/stat", pid);
    for (int tries = 0; tries < 1000; tries++) {
        FILE *file = fopen(path, "r");
        int sleeps = file != NULL && fgets(line, sizeof line, file) != NULL && (end = strrchr(line, ')')) != NULL &&
                     end[2] == 'S';
        if (file != NULL)
            fclose(file);
        if (sleeps)
            return;
        usleep(1000);
    }
}

/* The same for a terminal's ^C, in a session that has it. */
static int typed(int master, int slave)
{
    int status;
    pid_t reader, leader = fork_clean();
    if (leader == 0) {
        setsid();
        ioctl(slave, TIOCSCTTY, 0);
        signal(SIGTTOU, SIG_IGN);
        pid_t writer = pipeline(&reader);
        tcsetpgrp(slave, writer);
        await_sleep(writer);
        await_sleep(reader);
        write(master, "\3", 1);
        _exit(interrupted(writer, reader));
    }
    waitpid(leader, &status, 0);
    return status == 1 << 8;
}

/* Other systems' processors may hold the sender up for a moment: one time of three is enough. */
int main(void)
{
    int by_kill = 0, by_terminal = 0;
    char name[64];
    pid_t reader;
    for (int times = 0; times < 3; times++) {
        pid_t writer = pipeline(&reader);
        await_sleep(writer);
        await_sleep(reader);
        kill(-writer, SIGINT);
        by_kill |= interrupted(writer, reader);
    }
    SHOW(by_kill);
    for (int times = 0; times < 3; times++) {
        int master = posix_openpt(O_RDWR | O_NOCTTY);
        grantpt(master);
        unlockpt(master);
        ptsname_r(master, name, sizeof name);
        int slave = open(name, O_RDWR | O_NOCTTY);
        by_terminal |= typed(master, slave);
        close(slave);
        close(master);
    }
    SHOW(by_terminal);
    return 0;
}
