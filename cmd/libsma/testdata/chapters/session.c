#include "test.h"

enum { UPDATES = 2000, INDICES = 64 };
static uint64_t sig, table[INDICES], total, mine;

/* Updates of a table at all PEs in a session, as in the example of the specification. */
static void updates(void) {
  shmem_ctx_t ctx;
  shmem_ctx_session_config_t config = {.total_ops = UPDATES};
  memset(table, 0, sizeof table);
  mine = 0;
  shmem_barrier_all();
  CHECK(shmem_ctx_create(0, &ctx) == 0);
  shmem_ctx_session_start(ctx, SHMEM_CTX_SESSION_BATCH, &config, SHMEM_CTX_SESSION_TOTAL_OPS);
  shmem_ctx_session_start(ctx, 0, NULL, 0); /* a session may be started again */
  for (uint64_t i = 1, r = (uint64_t)me + 1; i <= UPDATES; i++) {
    r = r * 6364136223846793005u + 1442695040888963407u;
    shmem_ctx_uint64_atomic_xor(ctx, &table[r >> 58], r, (int)(r >> 40) % n);
    mine ^= r;
  }
  shmem_ctx_session_stop(ctx);
  shmem_ctx_session_stop(ctx);
  shmem_ctx_session_start(SHMEM_CTX_INVALID, SHMEM_CTX_SESSION_BATCH, NULL, 0);
  shmem_ctx_session_stop(SHMEM_CTX_INVALID);
  shmem_ctx_quiet(ctx);
  shmem_sync_all();
  for (int i = 0; i < INDICES; i++)
    mine ^= table[i];
  CHECK(shmem_uint64_xor_reduce(SHMEM_TEAM_WORLD, &total, &mine, 1) == 0 && total == 0);
  shmem_ctx_destroy(ctx);
}

/* Signals without data, and pe_quiet, which is for some PEs only. */
static void some(void) {
  static long data[500];
  int pes[] = {next, before, next};
  shmem_ctx_t ctx;
  CHECK(shmem_ctx_create(0, &ctx) == 0);
  sig = 0;
  shmem_barrier_all();
  for (int i = 0; i < 500; i++)
    shmem_long_p(&data[i], me + i, next);
  shmem_pe_quiet(pes, 3);
  shmem_ctx_signal_set(ctx, &sig, 5, next); /* of another context */
  CHECK(shmem_signal_wait_until(&sig, SHMEM_CMP_EQ, 5) == 5 && data[499] == before + 499);
  shmem_barrier_all();
  shmem_signal_add(&sig, 2, next);
  shmem_signal_wait_until(&sig, SHMEM_CMP_EQ, 7);
  shmem_barrier_all();
  shmem_ctx_signal_add(ctx, &sig, 2, next);
  shmem_ctx_pe_quiet(ctx, pes, 1);
  shmem_pe_quiet(NULL, 0);
  shmem_ctx_pe_quiet(SHMEM_CTX_INVALID, pes, 1);
  shmem_barrier_all();
  CHECK(shmem_signal_fetch(&sig) == 9);
  shmem_barrier_all();
  shmem_signal_set(&sig, 1, next);
#if __STDC_VERSION__ >= 201112L
  shmem_signal_add(ctx, &sig, 1, next);
  shmem_ctx_quiet(ctx);
#endif
  shmem_ctx_destroy(ctx);
}

void session(void) {
  updates();
  some();
  /* Each finalize but the last is a barrier. */
  int is = 0, level = -1;
  shmem_init();
  CHECK(shmem_init_thread(SHMEM_THREAD_SINGLE, &level) == 0 && level == SHMEM_THREAD_MULTIPLE);
  shmem_finalize();
  shmem_finalize();
  start_pes(0);
  shmem_query_initialized(&is);
  CHECK(is && shmem_team_ptr(SHMEM_TEAM_WORLD, &sig, me) == &sig && shmem_team_ptr(SHMEM_TEAM_INVALID, &sig, 0) == NULL);
  CHECK(shmem_team_get_config(SHMEM_TEAM_WORLD, 0, NULL) == 0 && shmem_team_get_config(SHMEM_TEAM_INVALID, 0, NULL) != 0);
  CHECK(shmem_long_test_all(NULL, 0, NULL, SHMEM_CMP_EQ, 1) == 1);
}
