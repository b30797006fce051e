/* Controls: programs in which no kernel has a part must cost the same on both systems. */
#include "bench.h"

#define SIDE 150
static int left[SIDE][SIDE], right[SIDE][SIDE], product[SIDE][SIDE];

/* aegis95 Table 9: 150 by 150 integers. */
static void matmul(unsigned operations)
{
    for (unsigned round = 0; round < operations; round++) {
        for (int i = 0; i < SIDE; i++)
            for (int j = 0; j < SIDE; j++) {
                int sum = 0;
                for (int k = 0; k < SIDE; k++)
                    sum += left[i][k] * right[k][j];
                product[i][j] = sum;
            }
        __asm__ volatile("" : : "r"(product) : "memory");
    }
}

static uint64_t source[8192], target[8192];

static const char *touch(void)
{
    memset(source, 1, sizeof source);
    memset(target, 2, sizeof target);
    memset(left, 1, sizeof left);
    memset(right, 1, sizeof right);
    memset(product, 1, sizeof product);
    return NULL;
}

static void copy(unsigned operations)
{
    for (unsigned round = 0; round < operations; round++)
        for (size_t word = 0; word < 8192; word++) {
            target[word] = source[word];
            __asm__ volatile("" : : : "memory");
        }
}

const struct row CONTROL_ROWS[] = {
    {"matmul", ONE_WAY, "control: multiply two 150x150 integer matrices", 1, touch, NULL, matmul,
     NULL, NULL},
    {"copy64k", ONE_WAY, "control: copy 64 KiB in user mode, word by word", 10, touch, NULL, copy,
     NULL, NULL},
    {0},
};
