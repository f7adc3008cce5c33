#include "test.h"

static uint64_t memory_[64];

/* Three blocks of two, five elements apart there and four here. */
#define BLOCKS(NAME, T) { \
    T *there = (T *)memory_, here[12], back[12]; \
    for (int i = 0; i < 15; i++) there[i] = 0; \
    for (int i = 0; i < 12; i++) here[i] = (T)(me * 12 + i), back[i] = 0; \
    shmem_barrier_all(); \
    shmem_##NAME##_ibput(there, here, 5, 4, 2, 3, next); \
    shmem_barrier_all(); \
    for (int i = 0; i < 15; i++) \
      CHECK(there[i] == (i % 5 < 2 ? (T)(before * 12 + i / 5 * 4 + i % 5) : 0)); \
    shmem_ctx_##NAME##_ibget(SHMEM_CTX_DEFAULT, back, there, 4, 5, 2, 3, next); \
    for (int i = 0; i < 12; i++) CHECK(back[i] == (i % 4 < 2 ? here[i] : 0)); \
    shmem_##NAME##_ibget(back, there, 1, 1, 1, 12, me); /* blocks of one that lie side by side */ \
    shmem_##NAME##_ibput(there, here, 1, 1, 0, 5, next); \
    shmem_ctx_##NAME##_ibput(SHMEM_CTX_DEFAULT, there, here, 1, 1, 1, 0, next); \
    shmem_barrier_all(); \
  }
#define SIZED(BITS, BYTES) { \
    unsigned char *there = (unsigned char *)memory_, here[6 * BYTES], back[6 * BYTES]; \
    for (int i = 0; i < 6 * BYTES; i++) here[i] = (unsigned char)(me + i), there[i] = 0; \
    shmem_barrier_all(); \
    shmem_ibput##BITS(there, here, 3, 2, 2, 2, next); \
    shmem_barrier_all(); \
    shmem_ctx_ibget##BITS(SHMEM_CTX_DEFAULT, back, there, 2, 3, 2, 2, next); \
    CHECK(!memcmp(back, here, 4 * BYTES) && there[2 * BYTES] == 0 && there[3 * BYTES] == (unsigned char)(before + 2 * BYTES)); \
    shmem_barrier_all(); \
  }

void blocks(void) {
#define FOR12(NAME, T) { enum { fits = sizeof(T) * 15 <= sizeof memory_ }; CHECK(fits); BLOCKS(NAME, T) }
  RMA(FOR12)
  SIZED(8, 1) SIZED(16, 2) SIZED(32, 4) SIZED(64, 8) SIZED(128, 16)
#if __STDC_VERSION__ >= 201112L
  long here[4] = {me, me + 1, me + 2, me + 3}, *there = (long *)memory_;
  shmem_ibput(there, here, 3, 2, 2, 2, next);
  shmem_barrier_all();
  CHECK(there[0] == before && there[1] == before + 1 && there[3] == before + 2 && there[4] == before + 3);
  shmem_barrier_all();
  shmem_ibget(SHMEM_CTX_DEFAULT, here, (const long *)there, 2, 3, 2, 2, me);
  CHECK(here[3] == before + 3);
#endif
}
