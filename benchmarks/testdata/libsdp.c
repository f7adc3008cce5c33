/* libsdp serve: prints its address, and does what benchmarks' commands say: a byte, the size, and a number that
   does not count. 1 sends each message back, 2 reads until the end and answers how many bytes came.
   libsdp client ADDRESS: reads lines "op size count", and prints how many ns the messages took, behind an eighth as many. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <sdp.h>

static long long must(long long r, const char *what) {
  if (r < 0) {
    fprintf(stderr, "%s: %s\n", what, sdp_error());
    exit(1);
  }
  return r;
}

static char *memory(size_t n) {
  char *b = aligned_alloc(4096, (n + 4095) / 4096 * 4096);
  memset(b, 1, n);
  return b;
}

/* read_all reports false at the end of the stream. */
static int read_all(int c, char *b, size_t n) {
  for (size_t k; n > 0; b += k, n -= k)
    if ((k = (size_t)must(sdp_read(c, b, n), "read")) == 0)
      return 0;
  return 1;
}

static void serve(int c) {
  char head[9];
  uint32_t size;
  if (!read_all(c, head, sizeof head))
    return;
  memcpy(&size, head + 1, sizeof size);
  char *b = memory(size);
  if (head[0] == 1) {
    while (read_all(c, b, size))
      must(sdp_write(c, b, size), "write");
  } else {
    uint64_t sum = 0;
    for (ssize_t n; (n = must(sdp_read(c, b, size), "read")) > 0;)
      sum += (uint64_t)n;
    must(sdp_write(c, &sum, sizeof sum), "write");
  }
  free(b);
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void client(const char *address, int op, uint32_t size, long count) {
  int c = (int)must(sdp_dial("sdp", address, SDP_NEVER), "dial");
  char head[9] = {(char)op};
  memcpy(head + 1, &size, sizeof size);
  must(sdp_write(c, head, sizeof head), "write");
  char *b = memory(size);
  double begin = 0;
  for (long i = -count / 8; i < count; i++) {
    if (i == 0)
      begin = now();
    must(sdp_write(c, b, size), "write");
    if (op == 1 && !read_all(c, b, size))
      exit(1);
  }
  uint64_t sum = 0;
  if (op == 2) {
    must(sdp_shutdown(c, SDP_WRITE), "shutdown");
    if (!read_all(c, (char *)&sum, sizeof sum) || sum != (uint64_t)(count + count / 8) * size)
      exit(1);
  }
  printf("%.0f\n", now() - begin);
  fflush(stdout);
  must(sdp_close(c), "close");
  free(b);
}

/* ends ends the process when its standard input does. */
static void *ends(void *arg) {
  while (getchar() != EOF) {
  }
  exit(0);
  return arg;
}

int main(int argc, char **argv) {
  if (argc == 3 && strcmp(argv[1], "client") == 0) {
    int op;
    unsigned size;
    long count;
    while (scanf("%d %u %ld", &op, &size, &count) == 3)
      client(argv[2], op, size, count);
    return 0;
  }
  if (argc != 2 || strcmp(argv[1], "serve") != 0)
    return 2;
  pthread_t t;
  if (pthread_create(&t, NULL, ends, NULL) != 0)
    return 1;
  int ln = (int)must(sdp_listen("sdp", "localhost:0", 0), "listen");
  char name[128];
  must(sdp_name(ln, SDP_LOCAL, name, sizeof name), "name");
  puts(name);
  fflush(stdout);
  for (;;) {
    int c = (int)must(sdp_accept(ln), "accept");
    serve(c);
    must(sdp_close(c), "close");
  }
}
