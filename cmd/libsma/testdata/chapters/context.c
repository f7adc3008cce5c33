#include "test.h"
#include <pthread.h>

enum { THREADS = 4, ROUNDS = 200 };
static long counter, slots[THREADS];

static void *thread(void *arg) {
  long i = (long)(intptr_t)arg;
  shmem_ctx_t ctx;
  CHECK(shmem_ctx_create(SHMEM_CTX_PRIVATE, &ctx) == 0);
  for (long k = 1; k <= ROUNDS; k++) {
    shmem_ctx_long_atomic_inc(ctx, &counter, 0);
    shmem_ctx_long_p(ctx, &slots[i], k, next);
    shmem_ctx_fence(ctx);
  }
  shmem_ctx_quiet(ctx);
  shmem_ctx_destroy(ctx);
  shmem_long_wait_until(&slots[i], SHMEM_CMP_EQ, ROUNDS);
  return NULL;
}

void context(void) {
  shmem_ctx_t ctx, all[40];
  shmem_team_t team;
  counter = 0;
  memset(slots, 0, sizeof slots);
  CHECK(shmem_ctx_get_team(SHMEM_CTX_DEFAULT, &team) == 0 && team == SHMEM_TEAM_WORLD);
  CHECK(shmem_ctx_get_team(SHMEM_CTX_INVALID, &team) != 0 && team == SHMEM_TEAM_INVALID);
  for (int i = 0; i < 40; i++)
    CHECK(shmem_ctx_create(i % 2 ? SHMEM_CTX_SERIALIZED : SHMEM_CTX_NOSTORE, &all[i]) == 0 && all[i] != SHMEM_CTX_DEFAULT);
  for (int i = 0; i < 40; i++)
    shmem_ctx_destroy(all[i]);
  CHECK(shmem_ctx_create(0, &ctx) == 0 && shmem_ctx_get_team(ctx, &team) == 0 && team == SHMEM_TEAM_WORLD);
  shmem_ctx_destroy(ctx);
  shmem_ctx_destroy(SHMEM_CTX_INVALID);
  shmem_ctx_quiet(SHMEM_CTX_INVALID); /* does nothing, nor does the other one */
  shmem_ctx_fence(SHMEM_CTX_INVALID);
  shmem_barrier_all();
  pthread_t threads[THREADS];
  for (intptr_t i = 0; i < THREADS; i++)
    CHECK(pthread_create(&threads[i], NULL, thread, (void *)i) == 0);
  for (int i = 0; i < THREADS; i++)
    pthread_join(threads[i], NULL);
  shmem_barrier_all();
  CHECK(me != 0 || counter == (long)n * THREADS * ROUNDS);
}
