/* Pipes at their edges: ends closed, full, empty, not blocking, atomic writes. */
#include "check.h"

int main(void)
{
    int ends[2];
    static char big[200000];
    signal(SIGPIPE, SIG_IGN);
    TRY(pipe2(ends, O_NONBLOCK | O_CLOEXEC));
    SHOW(fcntl(ends[0], F_GETFD));
    SHOW(fcntl(ends[0], F_GETFL) == (O_RDONLY | O_NONBLOCK));
    SHOW(fcntl(ends[1], F_GETFL) == (O_WRONLY | O_NONBLOCK));
    TRY(read(ends[0], big, 1));
    TRY(write(ends[0], big, 1));
    TRY(read(ends[1], big, 1));
    TRY(read(ends[0], big, 0));
    TRY(write(ends[1], big, 0));
    TRY(lseek(ends[0], 0, SEEK_SET));
    TRY(write(ends[1], big, sizeof big));
    TRY(write(ends[1], big, 1));
    int waiting = 0;
    TRY(ioctl(ends[0], FIONREAD, &waiting));
    SHOW(waiting);
    SHOW(fcntl(ends[0], F_GETPIPE_SZ));
    TRY(read(ends[0], big, 4095));
    TRY(write(ends[1], big, 4096)); /* a whole one or none */
    TRY(read(ends[0], big, 1));
    TRY(write(ends[1], big, 4096));
    close(ends[1]);
    long total = 0, got;
    while ((got = read(ends[0], big, sizeof big)) > 0)
        total += got;
    SHOW(total);
    SHOW(got);
    close(ends[0]);

    if (pipe(ends))
        return 1;
    close(ends[0]);
    TRY(write(ends[1], "x", 1));
    pid_t child = fork_clean();
    int status;
    if (child == 0) {
        signal(SIGPIPE, SIG_DFL);
        if (write(ends[1], "x", 1))
            _exit(1);
    }
    waitpid(child, &status, 0);
    show_status("writer", status);
    close(ends[1]);

    /* Four writers of whole records: none is torn. */
    if (pipe(ends))
        return 1;
    for (int writer = 0; writer < 4; writer++)
        if (fork_clean() == 0) {
            char record[1000];
            memset(record, 'a' + writer, sizeof record);
            for (int i = 0; i < 100; i++)
                if (write(ends[1], record, sizeof record) != sizeof record)
                    _exit(1);
            _exit(0);
        }
    close(ends[1]);
    FILE *reader = fdopen(ends[0], "r");
    char record[1000];
    int torn = 0, counts[4] = {0};
    while (fread(record, sizeof record, 1, reader) == 1) {
        for (unsigned i = 1; i < sizeof record; i++)
            torn += record[i] != record[0];
        counts[record[0] - 'a']++;
    }
    fclose(reader);
    while (wait(&status) > 0)
        if (status)
            show_status("a writer", status);
    printf("torn %d, %d %d %d %d\n", torn, counts[0], counts[1], counts[2], counts[3]);

    /* A large write passes a slow reader whole, vectors in order. */
    if (pipe(ends))
        return 1;
    child = fork_clean();
    if (child == 0) {
        for (unsigned i = 0; i < sizeof big; i++)
            big[i] = (char)(i % 251);
        struct iovec parts[3] = {{big, 1000}, {big + 1000, 0}, {big + 1000, sizeof big - 1000}};
        _exit(writev(ends[1], parts, 3) != sizeof big);
    }
    close(ends[1]);
    unsigned at = 0, wrong = 0;
    while ((got = read(ends[0], big, 777)) > 0)
        for (long i = 0; i < got; i++, at++)
            wrong += (unsigned char)big[i] != at % 251;
    waitpid(child, &status, 0);
    show_status("large writer", status);
    SHOW(at);
    SHOW(wrong);

    /* How much it holds can be changed, not below what it holds. */
    if (pipe2(ends, O_NONBLOCK))
        return 1;
    TRY(fcntl(ends[1], F_SETPIPE_SZ, 5000));
    SHOW(fcntl(ends[0], F_GETPIPE_SZ));
    TRY(write(ends[1], big, sizeof big));
    TRY(fcntl(ends[0], F_SETPIPE_SZ, 4096));
    TRY(read(ends[0], big, 4096));
    TRY(fcntl(ends[0], F_SETPIPE_SZ, 1));
    struct pollfd room = {.fd = ends[1], .events = POLLOUT};
    SHOW(poll(&room, 1, 0));
    fcntl(ends[1], F_SETFL, 0);
    child = fork_clean();
    if (child == 0) {
        usleep(10000);
        _exit(fcntl(ends[1], F_SETPIPE_SZ, 65536) != 65536);
    }
    TRY(write(ends[1], big, 60000)); /* waits until the pipe grows */
    waitpid(child, &status, 0);
    show_status("grower", status);
    TRY(ioctl(ends[0], FIONREAD, &waiting));
    SHOW(waiting);
    TRY(fcntl(0, F_SETPIPE_SZ, 4096));
    return 0;
}
