/* fork, vfork, posix_spawn and execve, with programs that are there and that are not. */
#include "check.h"

extern char **environ;

static int depth;

int main(int count, char **words)
{
    int status;
    pid_t child;
    if (count > 1) {
        printf("child %s %s\n", words[0], words[1]);
        printf("HIDDEN=%s\n", getenv("HIDDEN") ? getenv("HIDDEN") : "unset");
        printf("descriptor 9: %s\n", fcntl(9, F_GETFD) < 0 ? "closed" : "open");
        return 7;
    }
    child = fork_clean();
    if (child == 0) {
        depth = 5;
        _exit(depth);
    }
    waitpid(child, &status, 0);
    show_status("fork", status);
    SHOW(depth);

    fflush(stdout);
    child = vfork();
    if (child == 0) {
        execl("/nosuch", "nosuch", NULL);
        depth = errno; /* vfork's child shares our memory */
        _exit(9);
    }
    waitpid(child, &status, 0);
    show_status("vfork, exec fails", status);
    SHOW(depth == ENOENT);

    char *arguments[] = {"zeroth", "first", NULL};
    fflush(stdout);
    child = vfork();
    if (child == 0) {
        execve("/proc/self/exe", arguments, environ);
        _exit(8);
    }
    waitpid(child, &status, 0);
    show_status("vfork, exec", status);

    SHOW(posix_spawn(&child, "/nosuch", NULL, NULL, arguments, environ) == ENOENT);
    SHOW(posix_spawnp(&child, "nosuchprogram", NULL, NULL, arguments, environ) == ENOENT);
    SHOW(posix_spawn(&child, "/", NULL, NULL, arguments, environ) == EACCES);
    fflush(stdout);
    int failed = posix_spawn(&child, "/proc/self/exe", NULL, NULL, arguments, environ);
    waitpid(child, &status, 0);
    SHOW(failed);
    show_status("posix_spawn", status);

    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, "spawned", O_CREAT | O_WRONLY | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&actions, 1, 9);
    char *environment[] = {"HIDDEN=seen", NULL};
    SHOW(posix_spawn(&child, "/proc/self/exe", &actions, NULL, arguments, environment));
    waitpid(child, &status, 0);
    show_status("with file actions", status);
    char text[200] = "";
    int file = open("spawned", O_RDONLY);
    TRY(read(file, text, sizeof text - 1) > 0);
    fputs(text, stdout);
    close(file);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/no/such/file", O_RDONLY, 0);
    SHOW(posix_spawn(&child, "/proc/self/exe", &actions, NULL, arguments, environ) == ENOENT);

    int script = open("script", O_CREAT | O_WRONLY, 0755);
    dprintf(script, "#!/nosuch/interpreter\n");
    close(script);
    child = fork_clean();
    if (child == 0) {
        fcntl(dup2(1, 9), F_SETFD, FD_CLOEXEC);
        TRY(execve("script", arguments, environ));
        TRY(execve("spawned", arguments, environ));
        TRY(execve(".", arguments, environ));
        TRY(execve("script/x", arguments, environ));
        fflush(stdout);
        execve("/proc/self/exe", arguments, environ);
    }
    waitpid(child, &status, 0);
    show_status("exec after failures", status);

    child = fork_clean();
    if (child == 0)
        for (int level = 0; level < 6; level++) {
            pid_t inner = fork();
            if (inner) {
                waitpid(inner, &status, 0);
                _exit(WEXITSTATUS(status) + 1);
            }
        }
    if (child == 0)
        _exit(1);
    waitpid(child, &status, 0);
    show_status("six deep", status);
    return 0;
}
