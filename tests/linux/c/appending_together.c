/* Processes that append large pieces to one file at the same time: none of it is lost (O_APPEND,
 * open(2)). */
#include "check.h"
#include <fcntl.h>

enum { WRITERS = 4, PIECES = 40, PIECE = 256 << 10 };

static char piece[PIECE];

int main(void)
{
    const char *name = "appending_together.tmp";
    long counts[WRITERS] = {0}, size = 0, got;
    pid_t children[WRITERS];
    int status, fd = open(name, O_CREAT | O_TRUNC | O_RDWR, 0600);
    for (int i = 0; i < WRITERS; i++) {
        children[i] = fork_clean();
        if (children[i] > 0)
            continue;
        int own = open(name, O_WRONLY | O_APPEND);
        memset(piece, 'a' + i, PIECE);
        for (int at = 0; at < PIECES; at++)
            if (write(own, piece, PIECE) != PIECE)
                _exit(1);
        _exit(0);
    }
    for (int i = 0; i < WRITERS; i++) {
        waitpid(children[i], &status, 0);
        show_status("writer", status);
    }
    while ((got = read(fd, piece, PIECE)) > 0) {
        size += got;
        for (long i = 0; i < got; i++)
            if (piece[i] >= 'a' && piece[i] < 'a' + WRITERS)
                counts[piece[i] - 'a']++;
    }
    printf("%ld bytes\n", size);
    for (int i = 0; i < WRITERS; i++)
        printf("%ld of %c\n", counts[i], 'a' + i);
    unlink(name);
    return 0;
}
