/* What the tests of two users beside each other have in common. Behind check.h. */
#include <grp.h>

/* Gives up what it is for another user, whose group has the same number. */
static inline void become(unsigned user)
{
    if (setgroups(0, NULL) || setresgid(user, user, user) || setresuid(user, user, user))
        perror("become");
}

/* What `body` says as `user`, in a child. */
static inline void as(unsigned user, void (*body)(void))
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

/* A child that executes `file` as `user`. */
static inline pid_t execute(unsigned user, const char *file, char **arguments, char **environment)
{
    pid_t child = fork_clean();
    if (child == 0) {
        become(user);
        execve(file, arguments, environment);
        printf("%s: %s\n", file, strerrorname_np(errno));
        fflush(stdout);
        _exit(1);
    }
    return child;
}

/* This program under another name, with these attributes. */
static inline void copy(const char *name, unsigned mode, unsigned user, unsigned group)
{
    static char bytes[65536];
    ssize_t count;
    int from = open("/proc/self/exe", O_RDONLY), to = open(name, O_CREAT | O_WRONLY, 0600);
    while ((count = read(from, bytes, sizeof bytes)) > 0)
        write(to, bytes, count);
    close(from);
    close(to);
    chown(name, user, group);
    chmod(name, mode);
}
