/* PE 0 puts at PE 1, which waits awake. It reads a line between what it puts to the heap, and what it puts to a variable. */
#include <shmem.h>
#include <stdio.h>
#include <stdlib.h>

enum { N = 1 << 18 };
static long variable[N];

static void step(const char *done) {
  printf("%s\n", done);
  fflush(stdout);
  if (getchar() < 0)
    exit(5);
}

static void check(const long *at, int from, int to, int every) {
  for (int i = from; i < to; i++)
    if (at[i] != (i % every == 0 ? i + 1 : 0)) {
      fprintf(stderr, "element %d: %ld\n", i, at[i]);
      shmem_global_exit(3);
    }
}

static void await(uint64_t *sig, uint64_t v) {
  while (!shmem_uint64_test(sig, SHMEM_CMP_EQ, v))
    ;
}

int main(void) {
  shmem_init();
  int me = shmem_my_pe(), other = 1 - me;
  long *object = shmem_calloc(N, sizeof *object), *apart = shmem_calloc(N, sizeof *apart), *source = malloc(N * sizeof *source);
  uint64_t *sig = shmem_calloc(2, sizeof *sig);
  int *small = shmem_calloc(2, sizeof *small);
  for (int i = 0; i < N; i++)
    source[i] = i + 1;
  if (me == 0) {
    await(sig, 1); /* PE 1 does not sleep from here on */
    shmem_uint64_p(sig, 1, other); /* which it is told, if it is asleep */
    await(sig + 1, 1);
    step("ready");
    shmem_put(object, source, N, other);
    shmem_long_iput(apart, source, 2, 2, N / 2, other);
    shmem_int_p(small, -7, other);
    shmem_fence();
    shmem_put_signal(object, source, N, sig, 2, SHMEM_SIGNAL_SET, other);
    await(sig, 2);
    step("object");
    shmem_put(variable, source, N, other);
    shmem_put_signal(object, source, 1, sig, 3, SHMEM_SIGNAL_SET, other); /* behind it */
    await(sig, 3);
    step("variable");
    shmem_quiet();
    shmem_ulong_atomic_add(sig, 1, other);
    shmem_quiet();
    shmem_put(object, source + 1, 1, other);
    if (shmem_g(object, other) != 2)
      return 6;
  } else {
    shmem_uint64_p(sig, 1, other);
    await(sig, 1);
    shmem_uint64_p(sig + 1, 1, other);
    await(sig, 2);
    check(object, 0, N, 1);
    check(apart, 0, N, 2);
    if (*small != -7)
      return 6;
    shmem_uint64_p(sig, 2, other);
    await(sig, 3);
    check(variable, 0, N, 1);
    shmem_uint64_p(sig, 3, other);
    shmem_uint64_wait_until(sig, SHMEM_CMP_EQ, 4);
  }
  shmem_barrier_all();
  shmem_finalize();
  return 0;
}
