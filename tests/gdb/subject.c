/* What the gdb test looks into: a function that two environments of one program call. */
#include <sys/wait.h>
#include <unistd.h>

int counter = 7;

__attribute__((noinline)) int answer(int question)
{
    int twice = 2 * question;
    counter += 1;
    return twice;
}

int main(void)
{
    pid_t child = fork();
    if (child == 0)
        _exit(answer(1000) != 2000);
    int status;
    waitpid(child, &status, 0);
    return status != 0 ? 1 : answer(21);
}
