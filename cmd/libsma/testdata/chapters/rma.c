#include "test.h"

enum { N = 40, LARGE = 300000 };
static long double memory_[N * 4];
static char local_[LARGE];

/* Each PE writes to the next one, and reads what the one before it has written. */
#define TYPED(NAME, T) \
  static void rma_##NAME(void) { \
    T *s = (T *)memory_, v[N], w[N]; \
    for (int i = 0; i < N; i++) v[i] = (T)(me + i + 1), s[i] = 0; \
    shmem_barrier_all(); \
    shmem_##NAME##_put(s, v, 9, next); \
    shmem_##NAME##_p(s + 9, v[9], next); \
    shmem_ctx_##NAME##_p(SHMEM_CTX_DEFAULT, s + 10, v[10], next); \
    shmem_##NAME##_iput(s + 11, v, 2, 3, 4, next); \
    shmem_##NAME##_put_nbi(s + 20, v + 20, 1, next); \
    shmem_ctx_##NAME##_put(SHMEM_CTX_DEFAULT, s + 21, v + 21, 5, next); \
    shmem_##NAME##_put(NULL, NULL, 0, next); \
    shmem_barrier_all(); \
    for (int i = 0; i < 11; i++) CHECK(s[i] == (T)(before + i + 1)); \
    for (int i = 0; i < 4; i++) CHECK(s[11 + 2 * i] == (T)(before + 3 * i + 1) && (i == 3 || s[12 + 2 * i] == 0)); \
    for (int i = 20; i < 26; i++) CHECK(s[i] == (T)(before + i + 1)); \
    memset(w, 0, sizeof w); \
    shmem_##NAME##_get(w, s, 9, next); \
    w[9] = shmem_##NAME##_g(s + 9, next); \
    w[10] = shmem_ctx_##NAME##_g(SHMEM_CTX_DEFAULT, s + 10, next); \
    shmem_##NAME##_get_nbi(w + 20, s + 20, 6, next); \
    shmem_##NAME##_iget(w + 11, s + 11, 1, 2, 4, next); \
    shmem_quiet(); \
    for (int i = 0; i < 11; i++) CHECK(w[i] == (T)(me + i + 1)); \
    for (int i = 0; i < 4; i++) CHECK(w[11 + i] == (T)(me + 3 * i + 1)); \
    for (int i = 20; i < 26; i++) CHECK(w[i] == (T)(me + i + 1)); \
    shmem_barrier_all(); \
  }
RMA(TYPED)

#define SIZED(BITS) { \
    enum { B = BITS / 8 }; \
    char v[20 * B], w[20 * B], *s = (char *)memory_; \
    for (int i = 0; i < 20 * B; i++) v[i] = (char)(me * 5 + i), s[i] = 0, w[i] = 0; \
    shmem_barrier_all(); \
    shmem_put##BITS(s, v, 3, next); \
    shmem_put##BITS##_nbi(s + 3 * B, v + 3 * B, 1, next); \
    shmem_iput##BITS(s + 4 * B, v + 4 * B, 1, 1, 2, next); \
    shmem_ctx_put##BITS(SHMEM_CTX_DEFAULT, s + 6 * B, v + 6 * B, 4, next); \
    shmem_barrier_all(); \
    for (int i = 0; i < 10 * B; i++) CHECK(s[i] == (char)(before * 5 + i)); \
    shmem_get##BITS(w, s, 5, next); \
    shmem_get##BITS##_nbi(w + 5 * B, s + 5 * B, 3, next); \
    shmem_iget##BITS(w + 8 * B, s + 8 * B, 1, 1, 2, next); \
    shmem_quiet(); \
    CHECK(!memcmp(w, v, 10 * B)); \
    shmem_barrier_all(); \
  }

void rma(void) {
#define CALL(NAME, T) rma_##NAME();
  RMA(CALL)
  SIZED(8) SIZED(16) SIZED(32) SIZED(64) SIZED(128)
  char *s = shmem_malloc(LARGE);
  for (size_t bytes = 1; bytes < LARGE; bytes = bytes * 7 + 1) {
    for (size_t i = 0; i < bytes; i++)
      local_[i] = (char)(me + i * 3);
    shmem_putmem(s, local_, bytes, next);
    shmem_barrier_all();
    for (size_t i = 0; i < bytes; i++)
      CHECK(s[i] == (char)(before + i * 3));
    memset(local_, 0, bytes);
    shmem_getmem_nbi(local_, s, bytes, next);
    shmem_quiet();
    for (size_t i = 0; i < bytes; i++)
      CHECK(local_[i] == (char)(me + i * 3));
    shmem_barrier_all();
  }
  shmem_free(s);
}
