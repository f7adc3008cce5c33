/* talk serve NETWORK ADDRESS: prints its address, and sends all back.
   talk send NETWORK ADDRESS BYTES: sends as much, and checks what comes back. It prints how it was carried. */
#include "test.h"

static void *echo(void *arg) {
  int c = (int)(long)arg;
  static __thread char b[1 << 16];
  for (ssize_t n; (n = must(sdp_read(c, b, sizeof b))) > 0;)
    check(must(sdp_write(c, b, (size_t)n)) == n);
  must(sdp_shutdown(c, SDP_WRITE));
  must(sdp_close(c));
  return NULL;
}

static void serve(const char *network, const char *address) {
  int ln = must(sdp_listen(network, address, 0));
  char name[128];
  must(sdp_name(ln, SDP_LOCAL, name, sizeof name));
  puts(name);
  fflush(stdout);
  for (;;)
    pthread_detach(start(echo, (void *)(long)must(sdp_accept(ln))));
}

static int conn;
static size_t bytes;

static char at(size_t i) { return (char)(i * 7 + (i >> 8) * 3 + (i >> 16)); }

static void *sends(void *arg) {
  static char b[100003];
  (void)arg;
  for (size_t i = 0, n; i < bytes; i += n) {
    n = 1 + i % sizeof b;
    if (n > bytes - i)
      n = bytes - i;
    for (size_t k = 0; k < n; k++)
      b[k] = at(i + k);
    check(must(sdp_write(conn, b, n)) == (ssize_t)n);
  }
  must(sdp_shutdown(conn, SDP_WRITE));
  return NULL;
}

int main(int argc, char **argv) {
  if (argc == 4 && strcmp(argv[1], "serve") == 0)
    serve(argv[2], argv[3]);
  check(argc == 5 && strcmp(argv[1], "send") == 0);
  conn = must(sdp_dial(argv[2], argv[3], SDP_NEVER));
  bytes = strtoul(argv[4], NULL, 10);
  pthread_t t = start(sends, NULL);
  static char b[1 << 16];
  size_t i = 0;
  for (ssize_t n; (n = must(sdp_read(conn, b, sizeof b))) > 0; i += (size_t)n)
    for (ssize_t k = 0; k < n; k++)
      check(b[k] == at(i + (size_t)k));
  check(i == bytes);
  pthread_join(t, NULL);
  puts(must(sdp_get(conn, SDP_BY_TCP)) ? "by TCP" : "by SDP");
  must(sdp_close(conn));
  return 0;
}
