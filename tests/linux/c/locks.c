/* Advisory locks: flock's belong to the open file, fcntl's to the process; both go with them. */
#include "check.h"
#include <sys/file.h>

static int lock(int file, int command, int type, long start, long length)
{
    struct flock wanted = {.l_type = type, .l_start = start, .l_len = length};
    return fcntl(file, command, &wanted);
}

/* What is in the way of a lock, as seen by another process. */
static void look(int file, int type, long start, long length, pid_t expected)
{
    pid_t child = fork_clean();
    if (child == 0) {
        struct flock seen = {.l_type = type, .l_start = start, .l_len = length};
        fcntl(file, F_GETLK, &seen);
        if (seen.l_type == F_UNLCK)
            puts("free");
        else
            printf("held %s %ld+%ld ours %d\n", seen.l_type == F_WRLCK ? "alone" : "shared",
                   (long)seen.l_start, (long)seen.l_len, seen.l_pid == expected);
        fflush(stdout);
        _exit(0);
    }
    waitpid(child, NULL, 0);
}

/* Runs `step` in a child that tells by a byte that it is ready; the byte is read here. */
static pid_t holder(int file, void (*step)(int), int *go)
{
    int ready[2], hold[2];
    char byte;
    if (pipe(ready) || pipe(hold))
        _exit(1);
    pid_t child = fork_clean();
    if (child == 0) {
        close(hold[1]);
        step(file);
        (void)!write(ready[1], "r", 1);
        (void)!read(hold[0], &byte, 1);
        usleep(20000);
        _exit(0);
    }
    close(hold[0]);
    close(ready[1]);
    (void)!read(ready[0], &byte, 1);
    close(ready[0]);
    *go = hold[1];
    return child;
}

static void range_lock(int file) { lock(file, F_SETLK, F_WRLCK, 0, 0); }
static void whole_lock(int file)
{
    (void)file;
    flock(open("locked", O_RDWR), LOCK_EX);
}

int main(void)
{
    int status, go;
    int first = open("locked", O_CREAT | O_RDWR, 0600);
    int second = open("locked", O_RDWR);
    int same = dup(first);

    TRY(flock(first, LOCK_SH | LOCK_NB));
    TRY(flock(second, LOCK_SH | LOCK_NB));
    TRY(flock(first, LOCK_EX | LOCK_NB));
    TRY(flock(second, LOCK_UN));
    TRY(flock(same, LOCK_EX | LOCK_NB));
    TRY(flock(second, LOCK_SH | LOCK_NB));
    pid_t child = fork_clean();
    if (child == 0)
        _exit(flock(first, LOCK_EX | LOCK_NB)); /* the same open file */
    waitpid(child, &status, 0);
    show_status("inherited", status);
    close(first);
    TRY(flock(second, LOCK_SH | LOCK_NB));
    close(same);
    TRY(flock(second, LOCK_EX | LOCK_NB));
    TRY(flock(second, LOCK_UN));
    TRY(flock(second, 0));
    TRY(flock(99, LOCK_SH));

    /* The two kinds do not see each other; a process's own locks never conflict. */
    first = open("locked", O_RDWR);
    TRY(flock(first, LOCK_EX));
    TRY(lock(second, F_SETLK, F_WRLCK, 10, 20));
    TRY(lock(first, F_SETLK, F_WRLCK, 15, 5));
    look(second, F_RDLCK, 0, 10, getpid());
    look(second, F_RDLCK, 0, 11, getpid());
    TRY(lock(second, F_SETLK, F_UNLCK, 15, 5));
    look(second, F_WRLCK, 15, 5, getpid());
    look(second, F_WRLCK, 15, 0, getpid());
    TRY(lock(second, F_SETLK, F_RDLCK, 0, 0));
    look(second, F_RDLCK, 0, 0, getpid());
    look(second, F_WRLCK, 100, 0, getpid());
    TRY(flock(first, LOCK_UN));
    close(first); /* any descriptor's end ends all of the process's locks on the file */
    look(second, F_WRLCK, 0, 0, getpid());
    int reader = open("locked", O_RDONLY);
    TRY(lock(reader, F_SETLK, F_WRLCK, 0, 0));
    TRY(lock(reader, F_SETLK, 77, 0, 0));
    TRY(lock(reader, F_SETLK, F_RDLCK, -5, 0));

    /* Waiting: for a process that ends, and for one that is killed. */
    child = holder(second, range_lock, &go);
    TRY(lock(second, F_SETLK, F_WRLCK, 5, 1));
    close(go);
    TRY(lock(second, F_SETLKW, F_WRLCK, 5, 1));
    SHOW(waitpid(child, NULL, 0) == child);
    lock(second, F_SETLK, F_UNLCK, 0, 0);
    child = holder(second, whole_lock, &go);
    TRY(flock(second, LOCK_EX | LOCK_NB));
    pid_t killer = fork_clean();
    if (killer == 0) {
        usleep(20000);
        _exit(kill(child, SIGKILL));
    }
    TRY(flock(second, LOCK_EX));
    waitpid(child, &status, 0);
    show_status("holder", status);
    waitpid(killer, &status, 0);

    /* Waiting for one that lives on. */
    int ends[2];
    if (pipe(ends))
        return 1;
    child = fork_clean();
    if (child == 0) {
        int own = open("locked", O_RDWR);
        (void)!write(ends[1], "w", 1);
        int result = flock(own, LOCK_EX);
        (void)!write(ends[1], "g", 1);
        pause();
        _exit(result);
    }
    char byte;
    (void)!read(ends[0], &byte, 1);
    usleep(20000);
    TRY(flock(second, LOCK_UN));
    (void)!read(ends[0], &byte, 1);
    printf("the other has it: %c\n", byte);
    kill(child, SIGTERM);
    waitpid(child, &status, 0);
    show_status("the other", status);
    TRY(flock(second, LOCK_EX | LOCK_NB));
    return 0;
}
