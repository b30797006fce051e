/* The worked example: which blocks an inode of some file system owns, in C for clang's bpf target.
 *
 * clang -target bpf -mcpu=v3 -O2 -c owns.c; code::object takes the function out of the object file.
 * Addresses of parameters, loops, and calls by number are all there is: no globals, no other functions
 * that are not inlined. */

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

#define DIRECT 12

struct inode {
	u32 size;
	u32 kind;
	u32 direct[DIRECT];
	/* Five bytes each, big-endian: no structure of the machine's. */
	u8 extents[4][5];
};

/* The set that the caller collects: first block, how many. */
static void (*emit)(u64 first, u64 count) = (void *)7;

static inline __attribute__((always_inline)) u64 wide(const u8 *bytes)
{
	u64 value = 0;

#pragma clang loop unroll(disable)
	for (int at = 0; at < 5; at++)
		value = value << 8 | bytes[at];
	return value;
}

/* How many blocks the partition owns: 0 is what `direct` names, in runs; 1 what the extents do, 16 each. */
u64 owns(const struct inode *inode, u64 partition)
{
	u64 total = 0;

	if (partition > 1)
		return -1ULL;
	if (partition == 1) {
		for (u32 at = 0; at < 4; at++) {
			u64 first = wide(inode->extents[at]);

			if (first) {
				emit(first * 16, 16);
				total += 16;
			}
		}
		return total;
	}
	u32 first = 0, count = 0;
	for (u32 at = 0; at < DIRECT && at * 4096 < inode->size; at++) {
		u32 block = inode->direct[at];

		if (count && block == first + count) {
			count++;
			continue;
		}
		if (count) {
			emit(first, count);
			total += count;
		}
		first = block;
		count = block != 0;
	}
	if (count) {
		emit(first, count);
		total += count;
	}
	return total;
}
