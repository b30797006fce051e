/* Which group a parent may put its child into, that the child is there then for all who ask, and who may
 * begin a session. */
#include "check.h"

/* No process's number, nor ever one. */
enum { NOBODYS = 0x3ffffff0 };

static int ask[2], tell[2];

/* A child that says its group in one byte when asked by one: its own (o), its parent's (p), another one (x). It
   asks nobody about groups before, and does as it is told: a session (s), a group of its own (g), its end (e). */
static pid_t answerer(pid_t parents)
{
    pipe(ask);
    pipe(tell);
    pid_t child = fork_clean();
    if (child != 0) {
        close(ask[0]);
        close(tell[1]);
        return child;
    }
    char what, said;
    close(ask[1]);
    close(tell[0]);
    while (read(ask[0], &what, 1) == 1) {
        if (what == 's')
            said = setsid() == getpid() ? 'y' : 'n';
        else if (what == 'g')
            said = setpgid(0, 0) == 0 ? 'y' : 'n';
        else if (what == 'e')
            _exit(7);
        else
            said = getpgrp() == getpid() ? 'o' : getpgrp() == parents ? 'p' : 'x';
        write(tell[1], &said, 1);
    }
    _exit(0);
}

static char told(char what)
{
    char said = '?';
    write(ask[1], &what, 1);
    read(tell[0], &said, 1);
    return said;
}

static int end(pid_t child)
{
    int status;
    close(ask[1]);
    close(tell[0]);
    return waitpid(child, &status, 0) == child ? status : -1;
}

/* What a process that is not the parent sees. */
static void seen_by_another(pid_t child, pid_t group)
{
    int status;
    pid_t other = fork_clean();
    if (other == 0) {
        SHOW(getpgid(child) == group);
        _exit(0);
    }
    waitpid(other, &status, 0);
}

static void moved(void)
{
    pid_t own = getpgrp(), child = answerer(own);
    TRY(setpgid(child, child));
    SHOW(getpgid(child) == child);
    seen_by_another(child, child);
    printf("the child: %c\n", told('?'));
    TRY(setpgid(child, own));
    seen_by_another(child, own);
    printf("the child: %c\n", told('?'));
    TRY(setpgid(child, 0));
    seen_by_another(child, child);
    TRY(setpgid(child, own));
    printf("by itself: %c\n", told('g'));
    SHOW(getpgid(child) == child); /* where it is, not where it was put */
    seen_by_another(child, child);
    printf("the child: %c\n", told('?'));
    TRY(setpgid(child, own));
    TRY(kill(child, SIGSTOP));
    int status;
    waitpid(child, &status, WUNTRACED);
    TRY(setpgid(child, child)); /* while it can do nothing */
    SHOW(getpgid(child) == child);
    TRY(kill(-child, SIGCONT));
    printf("the child: %c\n", told('?'));
    seen_by_another(child, child);
    TRY(waitpid(-own, &status, WNOHANG));
    TRY(waitpid(-child, &status, WNOHANG));
    show_status("moved", end(child));
}

static void refused(void)
{
    pid_t own = getpgrp(), child = answerer(own);
    TRY(setpgid(child, -1));
    TRY(setpgid(child, NOBODYS));
    TRY(setpgid(child, 1));
    TRY(setpgid(NOBODYS, 0));
    TRY(setpgid(getppid(), 0));
    printf("a session: %c\n", told('s'));
    TRY(setpgid(child, own));
    TRY(setpgid(child, child));
    TRY(setpgid(0, child)); /* of another session */
    SHOW(getpgid(child) == child);
    printf("the child: %c\n", told('?'));
    show_status("led a session", end(child));
}

/* A process that leads no session, but is in another one than its parent. */
static void of_another_session(void)
{
    pid_t own = getpgrp(), child = answerer(own);
    int status;
    pid_t middle = fork_clean();
    if (middle == 0) {
        pid_t mine = answerer(own);
        setsid();
        TRY(setpgid(mine, mine));
        TRY(setpgid(mine, 0));
        printf("the child: %c\n", told('?'));
        end(mine);
        _exit(0);
    }
    waitpid(middle, &status, 0);
    show_status("the middle", status);
    show_status("the child", end(child));
}

static void executed(void)
{
    int status, ready[2];
    char byte;
    pipe2(ready, O_CLOEXEC);
    pid_t child = fork_clean();
    if (child == 0) {
        char *arguments[] = {"self", "sleep", NULL};
        execv("/proc/self/exe", arguments);
        _exit(1);
    }
    close(ready[1]);
    read(ready[0], &byte, 1); /* the end of it: executed */
    close(ready[0]);
    TRY(setpgid(child, child));
    SHOW(getpgid(child) == getpgrp());
    kill(child, SIGTERM);
    siginfo_t info;
    waitid(P_PID, child, &info, WEXITED | WNOWAIT);
    TRY(setpgid(child, child)); /* the dead one */
    waitpid(child, &status, 0);
    show_status("executed", status);
    child = answerer(getpgrp());
    char what = 'e';
    write(ask[1], &what, 1);
    waitid(P_PID, child, &info, WEXITED | WNOWAIT);
    TRY(setpgid(child, child));
    SHOW(getpgid(child) == child);
    TRY(waitpid(-getpgrp(), &status, WNOHANG));
    TRY(waitpid(-child, &status, 0) == child);
    show_status("a dead one", status);
    TRY(setpgid(child, child));
}

/* A grandchild begins where its parent is by then. */
static void grandchildren(void)
{
    int status, ready[2], go[2];
    char byte = 0;
    pipe(ready);
    pipe(go);
    pid_t child = fork_clean();
    if (child == 0) {
        read(go[0], &byte, 1);
        pid_t grandchild = fork();
        if (grandchild == 0) {
            byte = getpgrp() == getppid() ? 'y' : 'n';
            write(ready[1], &byte, 1);
            _exit(0);
        }
        waitpid(grandchild, &status, 0);
        _exit(0);
    }
    TRY(setpgid(child, child));
    write(go[1], "g", 1);
    read(ready[0], &byte, 1);
    printf("in its parent's group: %c\n", byte);
    waitpid(child, &status, 0);
    show_status("its parent", status);
}

static void sessions(void)
{
    pid_t before = getpgrp();
    int status;
    pid_t child = fork_clean();
    if (child == 0) {
        TRY(setpgid(0, 0));
        TRY(setsid());
        pid_t member = answerer(before);
        TRY(setpgid(0, before));
        TRY(setsid()); /* the group that it led has a member */
        TRY(setpgid(member, before));
        end(member);
        TRY(setsid() == getpid());
        TRY(setsid());
        TRY(setpgid(0, 0));
        TRY(getsid(0) == getpid());
        _exit(0);
    }
    waitpid(child, &status, 0);
    show_status("who began a session", status);
}

int main(int count, char **arguments)
{
    (void)arguments;
    while (count > 1)
        pause();
    setpgid(0, 0);
    moved();
    refused();
    of_another_session();
    executed();
    grandchildren();
    sessions();
    return 0;
}
