/* What the tests of two users beside each other have in common. Behind check.h. */
#include <grp.h>

/* A working directory of one's own with this mode, for user 0 alone. Answers the status to end with
   where there is no going on (77: skipped), else 0. */
static inline int begin_in_place(unsigned mode)
{
    setvbuf(stdout, NULL, _IONBF, 0);
    if (geteuid() != 0)
        return 77;
    umask(0);
    char place[] = "/tmp/users-XXXXXX";
    return !mkdtemp(place) || chdir(place) || chmod(".", mode);
}

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

/* The master of a new pseudo-terminal, and the name of the other side. */
static inline int master_of(char name[static 64], int flags)
{
    int master = posix_openpt(O_RDWR | O_NOCTTY | flags);
    grantpt(master);
    unlockpt(master);
    ptsname_r(master, name, 64);
    return master;
}

/* A child that has done `prepare` when this returns, and sleeps until it is killed. */
static inline pid_t sleeper_after(void (*prepare)(const void *), const void *given)
{
    int ready[2];
    char byte;
    pipe(ready);
    pid_t child = fork_clean();
    if (child == 0) {
        prepare(given);
        write(ready[1], "r", 1);
        for (;;)
            pause();
    }
    read(ready[0], &byte, 1);
    close(ready[0]);
    close(ready[1]);
    return child;
}

static inline void become_given(const void *user)
{
    become(*(const unsigned *)user);
}

/* A child of `user` that sleeps until it is killed. */
static inline pid_t sleeper(unsigned user)
{
    return sleeper_after(become_given, &user);
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
