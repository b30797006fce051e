/* A daemon as many are: it begins as root, leaves a helper that stays root, gives its ids up, and
   has workers, threads and programs afterwards. Run as root, which both systems' tests are. */
#define _GNU_SOURCE
#include "check.h"
#include "users.h"
#include <arpa/inet.h>
#include <pthread.h>
#include <sys/un.h>

/* The group of the network here; on Linux it means nothing. */
enum { USER = 61000, NETWORK = 3003, WORKERS = 2, REQUESTS = 6 };

/* Says so if it does not hold. */
#define CHECK(what)                            \
    do {                                       \
        errno = 0;                             \
        if (!(what))                           \
            printf("%s: %m\n", #what);         \
    } while (0)

static volatile sig_atomic_t last_signal;

static void note(int signal)
{
    last_signal = signal;
}

static void *sleeps(void *nothing)
{
    for (;;)
        pause();
    return nothing;
}

static void *ends(void *nothing)
{
    usleep(20000);
    exit(7);
    return nothing;
}

static void *executes(void *nothing)
{
    execl("/proc/self/exe", "stepping_down", "executed", NULL);
    _exit(9);
    return nothing;
}

/* A child that has one thread that sleeps and one that does this. */
static void beside_a_thread(const char *what, void *(*body)(void *))
{
    pthread_t thread;
    int status;
    pid_t child = fork_clean();
    if (child == 0) {
        pthread_create(&thread, NULL, sleeps, NULL);
        pthread_create(&thread, NULL, body, NULL);
        sleeps(NULL);
    }
    waitpid(child, &status, 0);
    show_status(what, status);
}

/* What the program does when it is executed by that user. */
static int executed(void)
{
    int status;
    printf("executed as %d %d\n", getuid(), getgid());
    pid_t child = fork_clean();
    if (child == 0)
        _exit(3);
    waitpid(child, &status, 0);
    show_status("its child", status);
    return 4;
}

/* What root does with a fifo, and a socket, of the daemon's. */
static void reach(char letter)
{
    struct sockaddr_un place = {.sun_family = AF_UNIX, .sun_path = "/tmp/stepping_socket"};
    int to = letter == 'S' ? socket(AF_UNIX, SOCK_STREAM, 0) : open("/tmp/stepping_fifo", O_WRONLY);
    if (letter == 'S')
        CHECK(connect(to, (void *)&place, sizeof place) == 0);
    CHECK(write(to, "root", 4) == 4);
    close(to);
}

/* Stays root, and answers each letter by the next one, when it has protected the memory, too. */
static pid_t helper(int own, int others, char *memory)
{
    char letter;
    pid_t child = fork_clean();
    if (child != 0) {
        close(own);
        return child;
    }
    close(others);
    while (read(own, &letter, 1) == 1) {
        if (letter == 'F' || letter == 'S')
            reach(letter);
        letter++;
        CHECK(mprotect(memory, 4096, PROT_READ) == 0);
        CHECK(mprotect(memory, 4096, PROT_READ | PROT_WRITE) == 0);
        memory[2] = 3;
        if (write(own, &letter, 1) != 1)
            _exit(6);
    }
    _exit(getuid() == 0 ? 5 : 8);
}

/* Answers connections with what they send, and says each time that it did. */
static pid_t worker(int listener, int says, volatile char *shared)
{
    char text[8];
    pid_t child = fork_clean();
    if (child != 0)
        return child;
    for (;;) {
        int peer = accept(listener, NULL, NULL);
        ssize_t count = read(peer, text, sizeof text);
        *shared = 1;
        if (count < 0 || write(peer, text, count) != count || close(peer))
            _exit(6);
        if (write(says, "", 1) != 1)
            _exit(7);
    }
}

/* Memory from before that is protected for a time: shared with others or nobody. */
static void protects(char *memory)
{
    SHOW(mprotect(memory, 4096, PROT_READ));
    SHOW(mprotect(memory, 4096, PROT_READ | PROT_WRITE));
    memory[1] = 2;
    printf("written %d %d\n", memory[0], memory[1]);
}

/* The same by a child, that has it as it is protected, and by its parent afterwards. */
static void protects_with_a_child(char *memory)
{
    int status;
    SHOW(mprotect(memory, 4096, PROT_NONE));
    pid_t child = fork_clean();
    if (child == 0) {
        CHECK(mprotect(memory, 4096, PROT_READ | PROT_WRITE) == 0);
        memory[3] = 4;
        _exit(2);
    }
    waitpid(child, &status, 0);
    show_status("who unprotects", status);
    SHOW(mprotect(memory, 4096, PROT_READ | PROT_WRITE));
    memory[4] = 5;
    printf("written %d %d %d\n", memory[2], memory[3], memory[4]);
}

/* It goes elsewhere while it is protected. */
static void protects_and_moves(char *memory)
{
    SHOW(mprotect(memory, 4096, PROT_READ));
    char *to = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(mremap(memory, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
    SHOW(mprotect(to, 4096, PROT_READ | PROT_WRITE));
    to[5] = 6;
    printf("written %d %d\n", to[4], to[5]);
}

/* What it makes afterwards has its child, who executes a program, and who opens it by its name. */
static void channels(int ask)
{
    const char *name = "/tmp/stepping_fifo";
    char text[64];
    int ends[2], status;
    CHECK(pipe(ends) == 0);
    pid_t child = fork_clean();
    if (child == 0) {
        dup2(ends[1], 1);
        execl("/proc/self/exe", "stepping_down", "executed", NULL);
        _exit(8);
    }
    waitpid(child, &status, 0);
    show_status("with a pipe", status);
    ssize_t count = read(ends[0], text, sizeof text);
    printf("it said %.*s\n", count < 8 ? 0 : 8, text);
    unlink(name);
    CHECK(mkfifo(name, 0600) == 0);
    CHECK(write(ask, "F", 1) == 1);
    int fifo = open(name, O_RDONLY);
    count = read(fifo, text, sizeof text);
    printf("root wrote %.*s\n", count < 0 ? 0 : (int)count, text);
    close(fifo);
    child = fork_clean();
    if (child == 0) {
        int own = open(name, O_WRONLY);
        _exit(write(own, "child", 5) != 5);
    }
    fifo = open(name, O_RDONLY);
    /* Root may have it open still: a read that comes between it and the child finds the end. */
    waitpid(child, &status, 0);
    count = read(fifo, text, sizeof text);
    printf("the child wrote %.*s\n", count < 0 ? 0 : (int)count, text);
    close(fifo);
    unlink(name);
    CHECK(read(ask, text, 1) == 1);
}

/* A local socket with a name: its child connects, and root does. */
static void listens(int ask)
{
    struct sockaddr_un place = {.sun_family = AF_UNIX, .sun_path = "/tmp/stepping_socket"};
    char text[64];
    int status, listener = socket(AF_UNIX, SOCK_STREAM, 0);
    unlink(place.sun_path);
    CHECK(bind(listener, (void *)&place, sizeof place) == 0 && listen(listener, 4) == 0);
    pid_t child = fork_clean();
    if (child == 0) {
        int own = socket(AF_UNIX, SOCK_STREAM, 0);
        CHECK(connect(own, (void *)&place, sizeof place) == 0);
        _exit(write(own, "child", 5) != 5);
    }
    int peer = accept(listener, NULL, NULL);
    CHECK(read(peer, text, sizeof text) == 5);
    close(peer);
    waitpid(child, &status, 0);
    show_status("who connects", status);
    CHECK(write(ask, "S", 1) == 1);
    peer = accept(listener, NULL, NULL);
    CHECK(read(peer, text, sizeof text) == 4);
    close(peer);
    close(listener);
    unlink(place.sun_path);
    CHECK(read(ask, text, 1) == 1);
}

/* Workers share a socket that was bound as root, and are signalled by their parent alone. */
static void workers(int listener, const struct sockaddr_in *place, char *shared)
{
    int said[2], answers = 0, status;
    pid_t all[WORKERS];
    char text[8];
    if (pipe(said))
        return;
    for (int at = 0; at < WORKERS; at++)
        all[at] = worker(listener, said[1], &shared[at]);
    for (int at = 0; at < REQUESTS; at++) {
        int own = socket(AF_INET, SOCK_STREAM, 0);
        CHECK(connect(own, (const void *)place, sizeof *place) == 0);
        CHECK(write(own, "hello", 5) == 5);
        answers += read(own, text, sizeof text) == 5;
        close(own);
        CHECK(read(said[0], text, 1) == 1);
    }
    printf("answers %d, shared %d\n", answers, shared[0] | shared[1]);
    for (int at = 0; at < WORKERS; at++) {
        printf("kill %d, ", kill(all[at], at ? SIGTERM : SIGKILL));
        waitpid(all[at], &status, 0);
        show_status("worker", status);
    }
}

/* Signals between the parent and a child, to and fro. */
static void signals(pid_t roots)
{
    int status;
    struct sigaction act = {.sa_handler = note};
    sigaction(SIGUSR1, &act, NULL);
    pid_t child = fork_clean();
    if (child == 0)
        _exit(kill(getppid(), SIGUSR1));
    while (waitpid(child, &status, 0) < 0)
        ;
    printf("signalled %d\n", last_signal == SIGUSR1);
    int refused = kill(roots, 0);
    printf("root's %d %s\n", refused, strerrorname_np(errno));
    child = fork_clean();
    if (child == 0)
        sleeps(NULL);
    kill(child, SIGSTOP);
    waitpid(child, &status, WUNTRACED);
    show_status("stopped", status);
    kill(child, SIGCONT);
    waitpid(child, &status, WCONTINUED);
    printf("continued %d\n", WIFCONTINUED(status));
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    show_status("killed", status);
}

/* Does the environment of that program say so? Soon, if its user may look. */
static int shows(pid_t pid, const char *mark)
{
    char path[64], text[4096];
    snprintf(path, sizeof path, "/proc/%d/environ", pid);
    for (int tries = 0; tries < 200; tries++) {
        int from = open(path, O_RDONLY);
        ssize_t count = from < 0 ? -1 : read(from, text, sizeof text);
        close(from);
        if (count > 0 && memmem(text, count, mark, strlen(mark)))
            return 1;
        usleep(5000);
    }
    return 0;
}

/* A program gives up by its exec what the saved id alone has kept: it is its user's like others. */
static void saved(void)
{
    int ends[2], status;
    char mark[] = "STEPPING=1", *environment[] = {mark, NULL};
    CHECK(pipe(ends) == 0);
    pid_t child = fork_clean();
    if (child == 0) {
        CHECK(setgroups(0, NULL) == 0 && setgid(USER) == 0 && setresuid(USER, USER, 0) == 0);
        dup2(ends[0], 0);
        close(ends[1]);
        execle("/proc/self/exe", "stepping_down", "waits", NULL, environment);
        _exit(8);
    }
    pid_t other = fork_clean();
    if (other == 0) {
        CHECK(setgroups(0, NULL) == 0 && setgid(USER) == 0 && setuid(USER) == 0);
        _exit(shows(child, mark));
    }
    waitpid(other, &status, 0);
    show_status("it is shown", status);
    close(ends[0]);
    close(ends[1]);
    waitpid(child, &status, 0);
    show_status("who gave the saved one up", status);
}

int main(int count, char **words)
{
    setvbuf(stdout, NULL, _IONBF, 0);
    if (count > 1 && strcmp(words[1], "waits") == 0)
        return read(0, words[1], 1) != 0;
    if (count > 1)
        return executed();
    if (geteuid() != 0)
        return 77;
    saved();
    int listener = socket(AF_INET, SOCK_STREAM, 0), pair[2], status;
    struct sockaddr_in place = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof place;
    CHECK(bind(listener, (void *)&place, length) == 0 && listen(listener, REQUESTS) == 0);
    CHECK(getsockname(listener, (void *)&place, &length) == 0);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    char *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    char *others = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t roots = helper(pair[1], pair[0], others);
    char *arena = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    arena[0] = 1;
    CHECK(setgroups(1, (gid_t[]){NETWORK}) == 0 && setgid(USER) == 0 && setuid(USER) == 0);

    protects(arena);
    protects(others);
    char letter = 'a';
    CHECK(write(pair[0], &letter, 1) == 1 && read(pair[0], &letter, 1) == 1);
    printf("the helper says %c\n", letter);
    protects_with_a_child(others);
    protects_and_moves(others);
    channels(pair[0]);
    listens(pair[0]);
    pthread_t thread;
    printf("thread %d\n", pthread_create(&thread, NULL, sleeps, NULL));
    workers(listener, &place, shared);
    signals(roots);
    beside_a_thread("ended by a thread", ends);
    beside_a_thread("executed by a thread", executes);
    pid_t child = vfork();
    if (child == 0) {
        execl("/proc/self/exe", "stepping_down", "executed", NULL);
        _exit(8);
    }
    waitpid(child, &status, 0);
    show_status("vfork", status);
    cpu_set_t first;
    CPU_ZERO(&first);
    CPU_SET(0, &first);
    printf("affinity %d\n", pthread_setaffinity_np(thread, sizeof first, &first));
    close(pair[0]);
    waitpid(roots, &status, 0);
    show_status("the helper", status);
    execl("/proc/self/exe", "stepping_down", "executed", NULL);
    return 1;
}
