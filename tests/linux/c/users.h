/* What the tests of two users beside each other have in common. Behind check.h. */
#include <grp.h>

/* Gives up what it is for another user, whose group has the same number. */
static void become(unsigned user)
{
    if (setgroups(0, NULL) || setresgid(user, user, user) || setresuid(user, user, user))
        perror("become");
}

/* What `body` says as `user`, in a child. */
static void as(unsigned user, void (*body)(void))
{
    int status;
    pid_t child = fork_clean();
    if (child == 0) {
        become(user);
        body();
        _exit(0);
    }
    waitpid(child, &status, 0);
    show_status("ended", status);
}
