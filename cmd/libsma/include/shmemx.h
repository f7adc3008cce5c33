/* Extensions of OpenSHMEM that programs for Sandia OpenSHMEM use. They are made of functions of
   shmem.h, and nothing of them is in the library. */
#ifndef SHMEMX_H
#define SHMEMX_H

#include <shmem.h>

#include <stdlib.h>
#include <string.h>

/* The PEs of this PE's host whose memory is mapped. */
#define SHMEMX_TEAM_NODE SHMEM_TEAM_SHARED

/* shmem_malloc_with_hints is a barrier also with this hint. */
#define SHMEMX_MALLOC_NO_BARRIER 0x100L

/* These change a signal, without data. */
static inline void shmemx_signal_set(shmem_ctx_t ctx, uint64_t *sig, uint64_t signal, int pe) {
  shmem_ctx_uint64_atomic_set(ctx, sig, signal, pe);
}
static inline void shmemx_signal_add(uint64_t *sig, uint64_t signal, int pe) {
  shmem_uint64_atomic_add(sig, signal, pe);
}

/* Counters: each PE's own counts the operations that have named the counter and that PE. To
   make and to free one is collective. */
typedef long *shmemx_ct_t;
static inline void shmemx_ct_create(shmemx_ct_t *ct) { *ct = (shmemx_ct_t)shmem_calloc(1, sizeof **ct); }
static inline void shmemx_ct_free(shmemx_ct_t *ct) { shmem_free(*ct); }
static inline long shmemx_ct_get(shmemx_ct_t ct) { return shmem_long_atomic_fetch(ct, shmem_my_pe()); }
static inline void shmemx_ct_set(shmemx_ct_t ct, long value) { shmem_long_atomic_set(ct, value, shmem_my_pe()); }
static inline void shmemx_ct_wait(shmemx_ct_t ct, long until) { shmem_long_wait_until(ct, SHMEM_CMP_GE, until); }
static inline void shmemx_putmem_ct(shmemx_ct_t ct, void *dest, const void *source, size_t nelems, int pe) {
  shmem_putmem(dest, source, nelems, pe);
  shmem_fence();
  shmem_long_atomic_inc(ct, pe);
}
static inline void shmemx_getmem_ct(shmemx_ct_t ct, void *dest, const void *source, size_t nelems, int pe) {
  shmem_getmem(dest, source, nelems, pe);
  shmem_long_atomic_inc(ct, pe);
}

/* Blocks of bsize elements that lie dst and sst elements apart. */
#define SHMEMX_BLOCKS_(T, N) \
  static inline void shmemx_ctx_##N##_ibput(shmem_ctx_t ctx, T *dest, const T *source, ptrdiff_t dst, ptrdiff_t sst, size_t bsize, size_t nblocks, int pe) { \
    for (; nblocks > 0; nblocks--, dest += dst, source += sst) \
      shmem_ctx_putmem(ctx, dest, source, bsize * sizeof(T), pe); \
  } \
  static inline void shmemx_##N##_ibput(T *dest, const T *source, ptrdiff_t dst, ptrdiff_t sst, size_t bsize, size_t nblocks, int pe) { \
    shmemx_ctx_##N##_ibput(SHMEM_CTX_DEFAULT, dest, source, dst, sst, bsize, nblocks, pe); \
  } \
  static inline void shmemx_ctx_##N##_ibget(shmem_ctx_t ctx, T *dest, const T *source, ptrdiff_t dst, ptrdiff_t sst, size_t bsize, size_t nblocks, int pe) { \
    for (; nblocks > 0; nblocks--, dest += dst, source += sst) \
      shmem_ctx_getmem(ctx, dest, source, bsize * sizeof(T), pe); \
  } \
  static inline void shmemx_##N##_ibget(T *dest, const T *source, ptrdiff_t dst, ptrdiff_t sst, size_t bsize, size_t nblocks, int pe) { \
    shmemx_ctx_##N##_ibget(SHMEM_CTX_DEFAULT, dest, source, dst, sst, bsize, nblocks, pe); \
  }
#define SHMEMX_TYPES_(M) \
  M(float, float) M(double, double) M(long double, longdouble) M(char, char) M(signed char, schar) M(short, short) \
  M(int, int) M(long, long) M(long long, longlong) M(unsigned char, uchar) M(unsigned short, ushort) \
  M(unsigned int, uint) M(unsigned long, ulong) M(unsigned long long, ulonglong)
#define SHMEMX_OTHER_NAMES_(M) \
  M(int8_t, int8) M(int16_t, int16) M(int32_t, int32) M(int64_t, int64) M(uint8_t, uint8) M(uint16_t, uint16) \
  M(uint32_t, uint32) M(uint64_t, uint64) M(size_t, size) M(ptrdiff_t, ptrdiff)
SHMEMX_TYPES_(SHMEMX_BLOCKS_)
SHMEMX_OTHER_NAMES_(SHMEMX_BLOCKS_)

#if !defined(__cplusplus) && defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L
#define SHMEMX_IBPUT_(T, N) T *: shmemx_##N##_ibput, const T *: shmemx_##N##_ibput,
#define SHMEMX_IBGET_(T, N) T *: shmemx_##N##_ibget, const T *: shmemx_##N##_ibget,
#define SHMEMX_CTX_IBPUT_(T, N) T *: shmemx_ctx_##N##_ibput, const T *: shmemx_ctx_##N##_ibput,
#define SHMEMX_CTX_IBGET_(T, N) T *: shmemx_ctx_##N##_ibget, const T *: shmemx_ctx_##N##_ibget,
#define shmemx_ibput(A, B, ...) _Generic((A), SHMEMX_TYPES_(SHMEMX_IBPUT_) shmem_ctx_t: _Generic((B), SHMEMX_TYPES_(SHMEMX_CTX_IBPUT_) default: 0))(A, B, __VA_ARGS__)
#define shmemx_ibget(A, B, ...) _Generic((A), SHMEMX_TYPES_(SHMEMX_IBGET_) shmem_ctx_t: _Generic((B), SHMEMX_TYPES_(SHMEMX_CTX_IBGET_) default: 0))(A, B, __VA_ARGS__)
#endif

/* Scans: what the PEs of a team before this one have, added up, and for inscan what this PE has. They
   return 0, or another number without memory. */
#define SHMEMX_SCAN_(T, N) \
  static inline int shmemx_##N##_sum_scan_(shmem_team_t team, T *dest, const T *source, size_t nelems, int own) { \
    int me = shmem_team_my_pe(team), pe; \
    size_t i; \
    T *sum = (T *)calloc(nelems + 1, sizeof(T)), *one = (T *)malloc((nelems + 1) * sizeof(T)); \
    shmem_team_sync(team); \
    for (pe = 0; sum != NULL && one != NULL && pe < me + own; pe++) { \
      shmem_getmem(one, source, nelems * sizeof(T), shmem_team_translate_pe(team, pe, SHMEM_TEAM_WORLD)); \
      for (i = 0; i < nelems; i++) \
        sum[i] = (T)(sum[i] + one[i]); \
    } \
    shmem_team_sync(team); /* dest may be source */ \
    if (sum != NULL && one != NULL) \
      memcpy(dest, sum, nelems * sizeof(T)); \
    pe = sum == NULL || one == NULL; \
    free(sum); \
    free(one); \
    return pe; \
  } \
  static inline int shmemx_##N##_sum_inscan(shmem_team_t team, T *dest, const T *source, size_t nelems) { \
    return shmemx_##N##_sum_scan_(team, dest, source, nelems, 1); \
  } \
  static inline int shmemx_##N##_sum_exscan(shmem_team_t team, T *dest, const T *source, size_t nelems) { \
    return shmemx_##N##_sum_scan_(team, dest, source, nelems, 0); \
  }
SHMEMX_TYPES_(SHMEMX_SCAN_)
SHMEMX_OTHER_NAMES_(SHMEMX_SCAN_)

#endif
