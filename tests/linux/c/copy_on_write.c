/* After a fork each side sees its own stores in private memory, and both in shared memory. */
#include "check.h"

static char data[3 * 4096] = "data";
static char zero[5 * 4096];

int main(void)
{
    char *heap = malloc(100000);
    char *private = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *shared = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    char stack[20000] = "stack";
    strcpy(heap, "heap");
    strcpy(private, "private");
    strcpy(shared, "shared");
    pid_t child = fork_clean();
    if (child == 0) {
        printf("child sees %s %s %s %s %s %d\n", data, heap, private, shared, stack, zero[4097]);
        strcpy(data, "DATA");
        strcpy(heap, "HEAP");
        strcpy(private, "PRIVATE");
        strcpy(shared, "SHARED");
        strcpy(stack, "STACK");
        zero[4097] = 1;
        private[40000] = 'x';
        shared[40000] = 'y';
        fflush(stdout);
        _exit(0);
    }
    waitpid(child, NULL, 0);
    printf("parent sees %s %s %s %s %s %d\n", data, heap, private, shared, stack, zero[4097]);
    SHOW(private[40000]);
    SHOW(shared[40000]);

    /* The parent stores first; the child must still see what was. */
    int gate[2];
    if (pipe(gate))
        return 1;
    child = fork_clean();
    if (child == 0) {
        char byte;
        if (read(gate[0], &byte, 1) != 1)
            _exit(1);
        printf("second child sees %s %s %s\n", data, heap, stack);
        fflush(stdout);
        _exit(0);
    }
    strcpy(data, "late");
    strcpy(heap, "late");
    strcpy(stack, "late");
    if (write(gate[1], "g", 1) != 1)
        return 1;
    waitpid(child, NULL, 0);

    /* The kernel's stores obey it as well. */
    child = fork_clean();
    if (child == 0) {
        int file = open("/dev/zero", O_RDONLY);
        if (read(file, data, 4) != 4)
            _exit(1);
        _exit(data[0]);
    }
    waitpid(child, NULL, 0);
    printf("after the child's read: %s\n", data);

    /* Many generations, each with its own counter. */
    int *counter = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int own = 0;
    for (int i = 0; i < 30; i++) {
        child = fork_clean();
        if (child == 0) {
            own += i;
            *counter += own;
            _exit(0);
        }
        waitpid(child, NULL, 0);
    }
    SHOW(own);
    SHOW(*counter);
    return 0;
}
