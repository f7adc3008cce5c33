/* echo serves at an address and sends back what it reads, with a thread for each connection; echo with text asks such a server.
 *
 *   cc -o echo echo.c -pthread $(PKG_CONFIG_PATH=DIR/lib/pkgconfig pkg-config --cflags --libs libsdp)
 *   ./echo sdp localhost:7000 &
 *   ./echo sdp localhost:7000 hello
 *
 * DIR is where cmd/libsdp/install has put the library. With tcp in place of sdp, clients by TCP are served too. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sdp.h>

static int must(const char *what, long long r) {
  if (r < 0) {
    fprintf(stderr, "%s: %s\n", what, sdp_error());
    exit(1);
  }
  return (int)r;
}

static void *serve(void *arg) {
  int c = (int)(long)arg;
  char b[4096];
  ssize_t n;
  while ((n = sdp_read(c, b, sizeof b)) > 0 && sdp_write(c, b, (size_t)n) == n) {
  }
  if (n < 0)
    fprintf(stderr, "a client: %s\n", sdp_error());
  sdp_close(c);
  return NULL;
}

static void ask(int c, const char *text) {
  size_t n = strlen(text);
  must("write", sdp_write(c, text, n));
  must("shutdown", sdp_shutdown(c, SDP_WRITE));
  char b[4096];
  for (int k; (k = must("read", sdp_read(c, b, sizeof b))) > 0;)
    fwrite(b, 1, (size_t)k, stdout);
  puts(sdp_get(c, SDP_BY_TCP) ? ", by TCP" : ", by SDP");
  must("close", sdp_close(c));
}

int main(int argc, char **argv) {
  if (argc == 4) {
    ask(must("dial", sdp_dial(argv[1], argv[2], SDP_NEVER)), argv[3]);
    return 0;
  }
  if (argc != 3) {
    fprintf(stderr, "usage: echo sdp|tcp HOST:PORT [TEXT]\n");
    return 2;
  }
  int ln = must("listen", sdp_listen(argv[1], argv[2], 0));
  char name[128];
  must("name", sdp_name(ln, SDP_LOCAL, name, sizeof name));
  printf("%s\n", name);
  fflush(stdout);
  for (;;) {
    pthread_t t;
    int c = must("accept", sdp_accept(ln));
    if (pthread_create(&t, NULL, serve, (void *)(long)c) != 0)
      sdp_close(c);
    else
      pthread_detach(t);
  }
}
