/* threads NETWORK: 32 threads use a connection each, then all of them one, which another thread closes. */
#include "test.h"

enum { THREADS = 32, ROUNDS = 100 };

static const char *network;
static char address[128];
static int ln, shared;

static void *serve(void *arg) {
  int c = (int)(long)arg;
  char b[4096];
  for (ssize_t n; (n = must(sdp_read(c, b, sizeof b))) > 0;)
    check(must(sdp_write(c, b, (size_t)n)) == n);
  must(sdp_close(c));
  return NULL;
}

static void *accepts(void *arg) {
  (void)arg;
  for (int c; (c = sdp_accept(ln)) >= 0;)
    pthread_detach(start(serve, (void *)(long)c));
  check(errno == EBADF);
  return NULL;
}

static void *talks(void *arg) {
  int c = must(sdp_dial(network, address, SDP_NEVER));
  char out[2000], in[sizeof out];
  for (int i = 0; i < ROUNDS; i++) {
    memset(out, (int)(long)arg + i, sizeof out);
    check(must(sdp_write(c, out, sizeof out)) == sizeof out);
    read_all(c, in, sizeof in);
    check(memcmp(in, out, sizeof in) == 0);
  }
  must(sdp_close(c));
  return NULL;
}

/* shares writes records whole, and then reads until the connection is closed. */
static void *shares(void *arg) {
  char b[256], half[128];
  memset(b, (int)(long)arg, sizeof b);
  memset(half, (int)(long)arg, sizeof half);
  struct iovec v[] = {{b, 128}, {half, 128}};
  for (int i = 0; i < ROUNDS; i++)
    check(must(i % 2 ? sdp_writev(shared, v, 2) : sdp_write(shared, b, sizeof b)) == sizeof b);
  while (sdp_read(shared, b, sizeof b) > 0) {
  }
  check(errno == EBADF);
  return NULL;
}

int main(int argc, char **argv) {
  check(argc == 2);
  network = argv[1];
  ln = must(sdp_listen(network, "localhost:0", 0));
  must(sdp_name(ln, SDP_LOCAL, address, sizeof address));
  pthread_t acceptor = start(accepts, NULL), all[THREADS];
  for (long i = 0; i < THREADS; i++)
    all[i] = start(talks, (void *)i);
  for (int i = 0; i < THREADS; i++)
    pthread_join(all[i], NULL);
  must(sdp_close(ln));
  pthread_join(acceptor, NULL);

  ln = must(sdp_listen(network, "localhost:0", 0));
  must(sdp_name(ln, SDP_LOCAL, address, sizeof address));
  shared = must(sdp_dial(network, address, SDP_NEVER));
  int c = must(sdp_accept(ln));
  for (long i = 0; i < THREADS; i++)
    all[i] = start(shares, (void *)i);
  char b[256];
  for (int i = 0; i < THREADS * ROUNDS; i++) {
    read_all(c, b, sizeof b);
    for (size_t k = 1; k < sizeof b; k++)
      check(b[k] == b[0]);
  }
  must(sdp_close(shared));
  for (int i = 0; i < THREADS; i++)
    pthread_join(all[i], NULL);
  must(sdp_close(c));
  must(sdp_close(ln));
  puts("passed");
  return 0;
}
