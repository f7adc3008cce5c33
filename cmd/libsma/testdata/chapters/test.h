/* What the test programs share. Each chapter is a function that all PEs call. */
#include <pshmem.h>
#include <shmem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern int me, n, next, before;

#define CHECK(c) do { \
    if (!(c)) { \
      fprintf(stderr, "PE %d of %d: %s:%d: %s\n", me, n, __FILE__, __LINE__, #c); \
      shmem_global_exit(3); \
    } \
  } while (0)

#define REALS(M) M(float, float) M(double, double) M(longdouble, long double)
#define SMALL(M) M(char, char) M(schar, signed char) M(short, short) M(uchar, unsigned char) M(ushort, unsigned short) \
  M(int8, int8_t) M(int16, int16_t) M(uint8, uint8_t) M(uint16, uint16_t)
#define BITWISE(M) M(uint, unsigned) M(ulong, unsigned long) M(ulonglong, unsigned long long) \
  M(int32, int32_t) M(int64, int64_t) M(uint32, uint32_t) M(uint64, uint64_t)
#define AMO(M) BITWISE(M) M(int, int) M(long, long) M(longlong, long long) M(size, size_t) M(ptrdiff, ptrdiff_t)
#define RMA(M) REALS(M) SMALL(M) AMO(M)
