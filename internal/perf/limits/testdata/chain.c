/*
 * One word along a chain of processes and back: what Chain of package limits
 * measures, in C. Each process polls and yields; when nothing has come for 50 µs, it
 * sleeps. Prints microseconds for a round trip.
 *
 *     gcc -O2 -o chain chain.c && ./chain 2 50000
 */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MAX_HOPS 15

/* What a process stores for its neighbours; asleep is set back by them. */
struct place {
	uint64_t rightward;
	char gap0[1016];
	uint64_t leftward;
	char gap1[1016];
	uint32_t asleep;
	char gap2[2044];
};

static struct place *all;
static int last;
static uint64_t from_left, from_right;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static void send_word(uint64_t *word, uint64_t v, int to)
{
	uint32_t *asleep = &all[to].asleep;

	__atomic_store_n(word, v, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(asleep, __ATOMIC_SEQ_CST)) {
		__atomic_store_n(asleep, 0, __ATOMIC_SEQ_CST);
		syscall(SYS_futex, asleep, FUTEX_WAKE, 1, NULL, NULL, 0);
	}
}

static uint64_t of_left(int i)
{
	return i > 0 ? __atomic_load_n(&all[i - 1].rightward, __ATOMIC_SEQ_CST) : from_left;
}

static uint64_t of_right(int i)
{
	return i < last ? __atomic_load_n(&all[i + 1].leftward, __ATOMIC_SEQ_CST) : from_right;
}

static int pass(int i)
{
	uint64_t l = of_left(i), r = of_right(i);

	if (l == from_left && r == from_right)
		return 0;
	if (l != from_left) {
		from_left = l;
		if (i < last)
			send_word(&all[i].rightward, l, i + 1);
		else
			send_word(&all[i].leftward, l, i - 1);
	}
	if (r != from_right) {
		from_right = r;
		if (i > 0)
			send_word(&all[i].leftward, r, i - 1);
	}
	return 1;
}

static void await(int i)
{
	uint32_t *asleep = &all[i].asleep;
	double start;
	int n;

	for (;;) {
		start = now();
		for (n = 0; (n & 7) != 7 || now() - start < 50; n++) {
			if (pass(i))
				return;
			sched_yield();
		}
		__atomic_store_n(asleep, 1, __ATOMIC_SEQ_CST);
		if (of_left(i) == from_left && of_right(i) == from_right)
			syscall(SYS_futex, asleep, FUTEX_WAIT, 1, NULL, NULL, 0);
		__atomic_store_n(asleep, 0, __ATOMIC_SEQ_CST);
	}
}

int main(int argc, char **argv)
{
	uint64_t rounds, warm, i;
	pid_t child[MAX_HOPS + 1];
	double start = 0;
	int n;

	last = argc > 2 ? atoi(argv[1]) : 0;
	rounds = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
	warm = rounds / 8;
	if (rounds == 0 || last < 1 || last > MAX_HOPS) {
		fprintf(stderr, "usage: chain HOPS ROUNDS\n");
		return 2;
	}
	all = mmap(NULL, (last + 1) * sizeof(*all), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (all == MAP_FAILED) {
		perror("mmap");
		return 1;
	}
	for (n = 1; n <= last; n++) {
		child[n] = fork();
		if (child[n] < 0) {
			perror("fork");
			return 1;
		}
		if (child[n] == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL); /* do not wait alone */
			for (;;)
				await(n);
		}
	}
	for (i = 1; i <= warm + rounds; i++) {
		if (i == warm + 1)
			start = now();
		send_word(&all[0].rightward, i, 1);
		await(0);
	}
	printf("%.4f\n", (now() - start) / rounds);
	for (n = 1; n <= last; n++) {
		kill(child[n], SIGKILL);
		waitpid(child[n], NULL, 0);
	}
	return 0;
}
