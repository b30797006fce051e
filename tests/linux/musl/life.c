/* What a C library does by itself: its start, threads, standard streams, memory, call sites. With a
 * word as its argument it ends with what /proc/self/callsites says. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Calls after which the sites of a loop have become what they become. */
enum { OFTEN = 6000, THREADS = 8, ROUNDS = 200 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int turn;
static volatile sig_atomic_t caught;

/* Threads take turns, in the order of their numbers. */
static void *take_turns(void *argument)
{
    int mine = *(int *)argument;
    for (int round = 0; round < ROUNDS; round++) {
        pthread_mutex_lock(&lock);
        while (turn % THREADS != mine)
            pthread_cond_wait(&changed, &lock);
        turn++;
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&lock);
    }
    return NULL;
}

static void on_signal(int number)
{
    caught += number == SIGUSR1;
}

static void threads(void)
{
    pthread_t made[THREADS];
    int numbers[THREADS];
    for (int number = 0; number < THREADS; number++) {
        numbers[number] = number;
        pthread_create(&made[number], NULL, take_turns, &numbers[number]);
    }
    for (int number = 0; number < THREADS; number++)
        pthread_join(made[number], NULL);
    printf("turns %d\n", turn);
}

static void memory(void)
{
    /* Small blocks of many sizes, some given back between, and a large one that grows. */
    char *blocks[500];
    size_t sum = 0;
    for (size_t index = 0; index < 500; index++) {
        blocks[index] = malloc(index * 37 % 4096 + 1);
        memset(blocks[index], (int)index, index * 37 % 4096 + 1);
        if (index % 3 == 2)
            free(blocks[index - 1]), blocks[index - 1] = NULL;
    }
    for (size_t index = 0; index < 500; index++) {
        if (blocks[index] != NULL)
            sum += (unsigned char)blocks[index][index * 37 % 4096];
        free(blocks[index]);
    }
    char *large = malloc(1 << 20);
    large[5] = 'x';
    large = realloc(large, 8 << 20);
    printf("memory %zu %c\n", sum, large[5]);
    free(large);
}

static void files(void)
{
    char line[64] = "";
    FILE *file = fopen("/tmp/musl-test", "w+");
    for (int number = 0; number < 2000; number++)
        fprintf(file, "line %d\n", number);
    fseek(file, -10, SEEK_END);
    fgets(line, sizeof line, file);
    fgets(line, sizeof line, file);
    fclose(file);
    remove("/tmp/musl-test");
    printf("last %s", line);
    FILE *pipe = popen("echo through a pipe", "r");
    fgets(line, sizeof line, pipe);
    printf("%s", line);
    printf("pclose %d\n", pclose(pipe));
}

static void calls(void)
{
    int wrong = 0;
    pid_t parent = getppid(), own = getpid();
    for (int count = 0; count < OFTEN; count++)
        wrong += getppid() != parent || getpid() != own || write(-1, "", 0) != -1;
    printf("wrong answers %d\n", wrong);
}

static void process(void)
{
    signal(SIGUSR1, on_signal);
    raise(SIGUSR1);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0)
        _exit(7);
    int status = 0;
    waitpid(child, &status, 0);
    printf("caught %d, child %d\n", (int)caught, WEXITSTATUS(status));
    struct timespec pause = {.tv_nsec = 2000000};
    printf("slept %d\n", nanosleep(&pause, NULL));
}

int main(int count, char **words)
{
    threads();
    memory();
    files();
    process();
    calls();
    if (count > 1 && words[1] != NULL) {
        char line[128];
        FILE *file = fopen("/proc/self/callsites", "r");
        while (file != NULL && fgets(line, sizeof line, file) != NULL)
            fputs(line, stdout);
    }
    return 0;
}
