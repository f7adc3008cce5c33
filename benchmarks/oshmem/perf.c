/*
 * The counterpart in C of BenchmarkShmem, by OpenSHMEM: the same loops, buffers and
 * checks. The benchmark builds it by oshcc and runs it by oshrun.
 *
 * PE 0 reads lines with an operation and how often, "put 1000", and answers each with
 * the nanoseconds of one. PE 1 is the other one; further ones take part in barriers
 * only. While PE 0 works alone, all others wait in a barrier. All end when the input does.
 *
 * With Open MPI's memory hooks, which "--mca memory ^patcher" leaves out, it crashes at
 * its end.
 */
#include <shmem.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
	LINE = 64,
	LARGE = 1 << 20, /* bytes of a large put */
	LONGS = LARGE / sizeof(long),
	PIECE = 512 << 10,
	TRIALS = 10, /* of the checks of barriers */
	PEER = 1,
	/* As large as any collective wants it. */
	SYNC = SHMEM_BCAST_SYNC_SIZE + SHMEM_REDUCE_SYNC_SIZE + SHMEM_ALLTOALL_SYNC_SIZE + SHMEM_COLLECT_SYNC_SIZE,
};

static const long WORD = 0x0102030405060708;

/* Symmetric, each on lines of its own. */
static long *what, *count; /* the item that comes next and how often, told by PE 0 */
static long *expect;
static long *word, *sum, *flag, *from, *to;
static long *large;

static long *src;  /* this PE's own: LARGE bytes */
static long total; /* operations of the item until now, here */
static int me, pes;

static long at_rest; /* symmetric by its place */

static long *psync[2]; /* of collectives, in turns */
static long *work;     /* of reductions */

static void die(const char *item, const char *what) {
	fprintf(stderr, "perf: PE %d: %s: %s\n", me, item, what);
	shmem_global_exit(1);
	exit(1);
}

static double now(void) { /* in ns */
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e9 + t.tv_nsec;
}

static long pattern(long i) { return (long)((unsigned long)(i + 1) * 0x9E3779B97F4A7C15ul); }

/* Loops. Each does n operations, at PE 0 or at all PEs. */

static void put(long n) {
	for (long i = 0; i < n; i++) {
		src[0] = total + i + 1;
		shmem_long_put(word, src, 1, PEER);
	}
	total += n;
}

static void put_static(long n) {
	for (long i = 0; i < n; i++) {
		src[0] = total + i + 1;
		shmem_long_put(&at_rest, src, 1, PEER);
	}
	total += n;
}

static void put_quiet(long n) {
	for (long i = 0; i < n; i++) {
		src[0] = total + i + 1;
		shmem_long_put(word, src, 1, PEER);
		shmem_quiet();
	}
	total += n;
}

static void get(long n) {
	unsigned long all = 0;
	for (long i = 0; i < n; i++) {
		shmem_long_get(src, word, 1, PEER);
		all += (unsigned long)src[0];
	}
	if (all != (unsigned long)n * (unsigned long)WORD)
		die("get", "wrong value");
}

static void fetch_add(long n) {
	for (long i = 0; i < n; i++)
		if (shmem_long_atomic_fetch_add(sum, 1, PEER) != total + i)
			die("fetchadd", "wrong value");
	total += n;
}

static void contended(long n) {
	if (me <= PEER)
		for (long i = 0; i < n; i++)
			shmem_long_atomic_fetch_add(sum, 1, PEER);
	total += n;
	shmem_barrier_all();
}

static void one_way(long n) {
	if (me == 0)
		for (long i = 1; i <= n; i++) {
			shmem_long_p(flag, total + i, PEER);
			shmem_long_wait_until(flag, SHMEM_CMP_EQ, total + i);
		}
	else if (me == PEER)
		for (long i = 1; i <= n; i++) {
			shmem_long_wait_until(flag, SHMEM_CMP_EQ, total + i);
			shmem_long_p(flag, total + i, 0);
		}
	total += n;
}

static void barrier(long n) {
	for (long i = 0; i < n; i++)
		shmem_barrier_all();
}

/* The roots take turns, so that none runs ahead, and the work areas are free again. */
static void broadcast(long n) {
	if (me > PEER)
		return;
	for (long i = 0; i < n; i++) {
		int root = i & 1;
		from[0] = total + i + 1;
		shmem_broadcast64(to, from, 1, root, 0, 0, 2, psync[root]);
		if (me != root && to[0] != total + i + 1)
			die("broadcast", "wrong value");
	}
	total += n;
}

/* All PEs of these know that the others have begun, so work areas are free again after two. */

static void reduce(long n) {
	for (long i = 0; i < n; i++) {
		from[0] = total + i + me;
		shmem_long_sum_to_all(to, from, 1, 0, 0, pes, work, psync[i & 1]);
		if (to[0] != pes * (total + i) + pes * (pes - 1) / 2)
			die("reduce", "wrong sum");
	}
	total += n;
}

static void alltoall(long n) {
	for (long i = 0; i < n; i++) {
		for (int pe = 0; pe < pes; pe++)
			from[pe] = total + i + pe * PIECE + me;
		shmem_alltoall64(to, from, 1, 0, 0, pes, psync[i & 1]);
		for (int pe = 0; pe < pes; pe++)
			if (to[pe] != total + i + me * PIECE + pe)
				die("alltoall", "wrong value");
		shmem_barrier_all();
	}
	total += n;
}

static void fcollect(long n) {
	for (long i = 0; i < n; i++) {
		from[0] = total + i + me;
		shmem_fcollect64(to, from, 1, 0, 0, pes, psync[i & 1]);
		for (int pe = 0; pe < pes; pe++)
			if (to[pe] != total + i + pe)
				die("fcollect", "wrong value");
		shmem_barrier_all();
	}
	total += n;
}

static void put_large(long n) {
	for (long i = 0; i < n; i++) {
		shmem_long_put(large, src, LONGS, PEER);
		shmem_quiet();
	}
}

static void get_large(long n) {
	for (long i = 0; i < n; i++)
		shmem_long_get(src, large, LONGS, PEER);
}

static void copy_large(long n) {
	void *dst = shmem_ptr(large, PEER);
	for (long i = 0; i < n; i++) {
		memcpy(dst, src, LARGE);
		__asm__ volatile("" ::: "memory");
	}
}

static void copy_pieces(long n) {
	char *dst = shmem_ptr(large, PEER);
	for (long i = 0; i < n; i++)
		for (long at = 0; at < LARGE; at += PIECE) {
			memcpy(dst + at, (char *)src + at, PIECE);
			__asm__ volatile("" ::: "memory");
		}
}

/* Checks at the end of an item, at all PEs. */

static void check_word(const char *item) {
	if (me == PEER && word[0] != expect[0])
		die(item, "wrong value at the end");
}

static void check_static(const char *item) {
	if (me == PEER && at_rest != expect[0])
		die(item, "wrong value at the end");
}

static void check_sum(const char *item) {
	if (me == PEER && sum[0] != expect[0])
		die(item, "wrong sum at the end");
}

static void check_contended(const char *item) {
	if (me == PEER && sum[0] != 2 * total)
		die(item, "wrong sum at the end");
}

static void check_flag(const char *item) {
	if (me <= PEER && flag[0] != total)
		die(item, "wrong value at the end");
}

static void check_barrier(const char *item) {
	for (long i = 1; i <= TRIALS; i++) {
		shmem_long_p(word, i, (me + 1) % pes);
		shmem_barrier_all();
		if (word[0] != i)
			die(item, "a put before it is not there");
		shmem_barrier_all();
	}
}

static void check_put_large(const char *item) {
	for (long i = 0; me == PEER && i < LONGS; i++)
		if (large[i] != pattern(i))
			die(item, "wrong bytes");
}

static void check_get_large(const char *item) {
	for (long i = 0; me == 0 && i < LONGS; i++)
		if (src[i] != pattern(i))
			die(item, "wrong bytes");
}

enum { PATTERN_HERE = 1, PATTERN_THERE = 2, WORD_THERE = 4 };

static const struct item {
	const char *key;
	void (*run)(long n);
	void (*check)(const char *item);
	bool together; /* all PEs run it */
	int prepare;
} items[] = {
	{"put", put, check_word, false, 0},
	{"static", put_static, check_static, false, 0},
	{"putquiet", put_quiet, check_word, false, 0},
	{"get", get, NULL, false, WORD_THERE},
	{"fetchadd", fetch_add, check_sum, false, 0},
	{"contended", contended, check_contended, true, 0},
	{"oneway", one_way, check_flag, true, 0},
	{"barrier", barrier, check_barrier, true, 0},
	{"barrier4", barrier, check_barrier, true, 0},
	{"broadcast", broadcast, NULL, true, 0},
	{"reduce", reduce, NULL, true, 0},
	{"alltoall", alltoall, NULL, true, 0}, /* with a barrier */
	{"fcollect", fcollect, NULL, true, 0}, /* with a barrier */
	{"put1m", put_large, check_put_large, false, PATTERN_HERE},
	{"get1m", get_large, check_get_large, false, PATTERN_THERE},
	{"copy", copy_large, check_put_large, false, PATTERN_HERE},
	{"copypieces", copy_pieces, check_put_large, false, PATTERN_HERE},
};

enum { ITEMS = sizeof items / sizeof items[0] };

/* announce puts what comes next at all PEs. */
static void announce(long item, long n) {
	for (int pe = 0; pe < pes; pe++) {
		shmem_long_p(what, item, pe);
		shmem_long_p(count, n, pe);
	}
}

/* measure returns how many ns one of n operations took, at PE 0. */
static double measure(const struct item *t, long n) {
	total = 0;
	word[0] = t->prepare & WORD_THERE ? WORD : 0;
	sum[0] = flag[0] = to[0] = 0;
	for (long i = 0; i < LONGS; i++) {
		src[i] = t->prepare & PATTERN_HERE ? pattern(i) : 0;
		large[i] = t->prepare & PATTERN_THERE ? pattern(i) : 0;
	}
	shmem_barrier_all();
	double begin = now();
	if (me == 0 || t->together)
		t->run(n);
	double took = now() - begin;
	shmem_quiet();
	if (me == 0 && !t->together)
		shmem_long_p(expect, total, PEER);
	shmem_barrier_all();
	if (t->check)
		t->check(t->key);
	shmem_barrier_all();
	return took / n;
}

/* next reads what comes next, at PE 0. It returns ITEMS at the end of the input. */
static int next(long *n) {
	char key[32];
	if (scanf("%31s %ld", key, n) != 2)
		return ITEMS;
	for (int i = 0; i < ITEMS; i++)
		if (strcmp(key, items[i].key) == 0)
			return i;
	die(key, "no such item");
	return ITEMS;
}

static long *lines(void) {
	long *p = shmem_align(LINE, 2 * LINE);
	if (!p)
		die("start", "no symmetric memory");
	memset(p, 0, 2 * LINE);
	return p;
}

int main(void) {
	shmem_init();
	me = shmem_my_pe(), pes = shmem_n_pes();
	if (pes < 2)
		die("start", "want 2 PEs or more");
	what = lines();
	count = lines(), expect = lines(), word = lines(), sum = lines();
	flag = lines(), from = lines(), to = lines();
	large = shmem_align(4096, LARGE);
	src = aligned_alloc(4096, LARGE);
	for (int i = 0; i < 2; i++) {
		psync[i] = shmem_align(LINE, SYNC * sizeof(long));
		for (int k = 0; psync[i] && k < SYNC; k++)
			psync[i][k] = SHMEM_SYNC_VALUE;
	}
	work = shmem_align(LINE, SHMEM_REDUCE_MIN_WRKDATA_SIZE * sizeof(long));
	if (!large || !src || !psync[0] || !psync[1] || !work)
		die("start", "no memory");
	shmem_barrier_all();
	for (;;) {
		long n = 0;
		if (me == 0) {
			int item = next(&n);
			announce(item, n);
		}
		shmem_barrier_all();
		if (what[0] == ITEMS)
			break;
		double took = measure(&items[what[0]], count[0]);
		if (me == 0) {
			printf("%.6g\n", took);
			fflush(stdout);
		}
	}
	shmem_finalize();
	return 0;
}
