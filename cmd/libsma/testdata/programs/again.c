/* The library is opened several times. What the program has kept is there each time, and objects are new. */
#include <shmem.h>
#include <stdio.h>
#include <unistd.h>

static long counter, sum, kept = 40;

static int is(void) {
  int is = -1;
  shmem_query_initialized(&is);
  return is != 0;
}

int main(void) {
  int bad = is(), me = 0, n = 0;
  for (int round = 1; round <= 5; round++) {
    shmem_init();
    shmem_init();
    me = shmem_my_pe(), n = shmem_n_pes();
    bad += !is();
    shmem_ctx_t ctx; /* is left to the library */
    shmem_team_t team;
    long *object = shmem_calloc(1000, sizeof *object);
    bad += object == NULL || object[999] != 0 || shmem_ctx_create(0, &ctx) != 0;
    bad += shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 1, n, NULL, 0, &team) != 0;
    shmem_barrier_all();
    shmem_ctx_long_atomic_add(ctx, &counter, 1, (me + 1) % n);
    shmem_ctx_long_p(ctx, &object[999], round, (me + 1) % n);
    shmem_ctx_quiet(ctx);
    shmem_barrier_all();
    kept++;
    bad += counter != round || object[999] != round || kept != 40 + round;
    bad += shmem_long_sum_reduce(team, &sum, &counter, 1) != 0 || sum != (long)round * n;
    shmem_finalize();
    bad += !is();
    shmem_finalize();
    shmem_finalize(); /* one too many does no harm */
    bad += is() || counter != round;
    if (me == round % n)
      usleep(10000);
  }
  if (!bad && me == 0)
    printf("passed\n");
  return bad;
}
