/* What a further group alone has opened, and what its program is handed then that has another user. Run as root,
   which both systems' tests are. */
#define _GNU_SOURCE
#include "check.h"
#include "users.h"
#include <sys/socket.h>

/* Groups that no user of a host has; the last one is that of the network here. */
enum { ANN = 61000, BOB = 61001, TEAM = 61002, OTHERS = 61003, NETWORK = 3003 };

static void put(const char *from, const char *to, unsigned owner, unsigned group, unsigned mode)
{
    char piece[65536];
    int in = open(from, O_RDONLY), out = open(to, O_CREAT | O_WRONLY, 0600);
    for (ssize_t count; (count = read(in, piece, sizeof piece)) > 0;)
        if (write(out, piece, count) != count)
            perror(to);
    close(in);
    close(out);
    TRY(chown(to, owner, group));
    TRY(chmod(to, mode));
}

/* The program: what it reads and writes by descriptor 3. */
static int tool(void)
{
    char text[8] = "";
    ssize_t count = pread(3, text, 4, 0);
    ssize_t written = pwrite(3, "W", 1, 0);
    printf("as %s: read %zd %.4s, written %zd\n", geteuid() == BOB ? "bob" : "another", count, text, written);
    return 0;
}

/* Opens the file with `flags`; what its domain holds changes then, if `changes`. */
static void hand_over(const char *what, int flags, int changes)
{
    int status;
    gid_t groups[] = {TEAM, NETWORK};
    printf("%s: ", what);
    pid_t child = fork_clean();
    if (child == 0) {
        if (setgroups(2, groups) || setresgid(ANN, ANN, ANN) || setresuid(ANN, ANN, ANN))
            perror("ann");
        int fd = open("team", flags);
        dup2(fd, 3);
        if (fd != 3)
            close(fd);
        if (changes)
            close(socket(AF_INET, SOCK_DGRAM, 0));
        execl("./tool", "tool", NULL);
        perror("tool");
        _exit(1);
    }
    waitpid(child, &status, 0);
    show_status("ended", status);
}

int main(int count, char **words)
{
    (void)count;
    if (strcmp(words[0], "tool") == 0)
        return tool();
    int program = open("/proc/self/exe", O_RDONLY);
    int status = begin_in_place(0755);
    if (status)
        return status;
    char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", program);
    put(path, "tool", BOB, BOB, 04755);
    close(program);
    int text = open("text", O_CREAT | O_WRONLY, 0600);
    write(text, "team's", 6);
    close(text);
    put("text", "team", 0, TEAM, 0660);
    hand_over("read", O_RDONLY, 0);
    hand_over("read later", O_RDONLY, 1);
    hand_over("both", O_RDWR, 0);
    hand_over("both later", O_RDWR, 1);
    hand_over("write later", O_WRONLY, 1);
    return 0;
}
