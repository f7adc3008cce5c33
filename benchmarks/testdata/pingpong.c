/*
 * One cache line to and fro between two processes: what BenchmarkWord
 * measures, in C. Prints microseconds for a round trip.
 *
 *     gcc -O2 -o pingpong pingpong.c && ./pingpong 50000
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void await(uint64_t *p, uint64_t want)
{
	while (__atomic_load_n(p, __ATOMIC_ACQUIRE) != want)
		;
}

static void publish(uint64_t *p, uint64_t v)
{
	__atomic_store_n(p, v, __ATOMIC_RELEASE);
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

int main(int argc, char **argv)
{
	uint64_t rounds = argc > 1 ? strtoull(argv[1], NULL, 10) : 0;
	uint64_t warm = rounds / 8, i;
	double start = 0;
	char *mem;
	uint64_t *ping, *pong;
	pid_t child;

	if (rounds == 0) {
		fprintf(stderr, "usage: pingpong ROUNDS\n");
		return 2;
	}
	mem = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (mem == MAP_FAILED) {
		perror("mmap");
		return 1;
	}
	ping = (uint64_t *)mem;
	pong = (uint64_t *)(mem + 1024);

	child = fork();
	if (child < 0) {
		perror("fork");
		return 1;
	}
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL); /* do not spin alone */
		for (i = 1; i <= warm + rounds; i++) {
			await(ping, i);
			publish(pong, i);
		}
		_exit(0);
	}
	for (i = 1; i <= warm + rounds; i++) {
		if (i == warm + 1)
			start = now();
		publish(ping, i);
		await(pong, i);
	}
	printf("%.4f\n", (now() - start) / rounds);
	waitpid(child, NULL, 0);
	return 0;
}
