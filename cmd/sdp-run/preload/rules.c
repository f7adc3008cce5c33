/* The rules of sdp-run, which sdp-run has checked and passes on, and what is said. */
#include "run.h"

#include <arpa/inet.h>
#include <fnmatch.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "calls.h"

/* rule says what connections to a server go by. */
struct rule {
  char by;  /* s: SDP, t: TCP */
  char end; /* c: those that the program makes, a: those that it accepts, b: both */
  int family, bits; /* 0: any address */
  unsigned char address[16];
  unsigned first, last; /* ports */
};

static struct rule rules[256];
static int count, level;
static int log_to = -1; /* -1: the standard error */
static char program[64];
size_t smallest = 16384;
char fabric[256]; /* programs that set their title overwrite the environment */

/* Each rule is "by end program address/bits first-last", with * for any program and address. */
__attribute__((constructor)) static void begin_rules(void) {
  const char *text = getenv("SDP_RUN_LOG"), *at = getenv("SDP_RUN_RULES"), *file = getenv("SDP_RUN_LOG_FILE");
  const char *with = getenv("SDP_FABRIC"), *bytes = getenv("SDP_RUN_SMALLEST");
  snprintf(program, sizeof program, "%s", program_invocation_short_name);
  snprintf(fabric, sizeof fabric, "%s", with != NULL ? with : "");
  level = text != NULL ? atoi(text) : PROBLEM;
  if (bytes != NULL)
    smallest = strtoul(bytes, NULL, 10);
  if (file != NULL) {
    log_to = open(file, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    int high = log_to < 0 ? -1 : REAL(fcntl)(log_to, F_DUPFD_CLOEXEC, 512);
    if (high >= 0) {
      REAL(close)(log_to);
      log_to = high;
    }
  }
  for (; at != NULL && *at != 0 && count < (int)(sizeof rules / sizeof *rules); at = strchr(at, ';') ? strchr(at, ';') + 1 : NULL) {
    struct rule r = {0};
    char pattern[256], address[64];
    if (sscanf(at, "%c %c %255s %63[^/ ]/%d %u-%u", &r.by, &r.end, pattern, address, &r.bits, &r.first, &r.last) != 7)
      continue;
    if (fnmatch(pattern, program, 0) != 0)
      continue;
    if (strcmp(address, "*") != 0) {
      r.family = strchr(address, ':') != NULL ? AF_INET6 : AF_INET;
      inet_pton(r.family, address, r.address);
    }
    rules[count++] = r;
  }
}

/* covers reports whether a rule is for an address, of which an IPv4 address may be a part. */
static int covers(const struct rule *r, const struct sockaddr *a, unsigned *port) {
  const unsigned char *p;
  int family = a->sa_family;
  if (family == AF_INET) {
    p = (const unsigned char *)&((const struct sockaddr_in *)a)->sin_addr;
    *port = ntohs(((const struct sockaddr_in *)a)->sin_port);
  } else {
    const struct in6_addr *six = &((const struct sockaddr_in6 *)a)->sin6_addr;
    p = six->s6_addr;
    *port = ntohs(((const struct sockaddr_in6 *)a)->sin6_port);
    if (IN6_IS_ADDR_V4MAPPED(six)) {
      family = AF_INET;
      p += 12;
    }
  }
  if (r->family == 0)
    return 1;
  if (r->family != family || memcmp(p, r->address, r->bits / 8) != 0)
    return 0;
  int over = r->bits % 8;
  return over == 0 || (p[r->bits / 8] ^ r->address[r->bits / 8]) >> (8 - over) == 0;
}

/* rules_allow reports whether connections to a server may go by SDP. The first rule that is for it says so. */
int rules_allow(int which, const struct sockaddr *server) {
  for (int i = 0; i < count; i++) {
    const struct rule *r = &rules[i];
    unsigned port;
    if (r->end != 'b' && r->end != (which == CONNECTS ? 'c' : 'a'))
      continue;
    if (covers(r, server, &port) && port >= r->first && port <= r->last)
      return r->by == 's';
  }
  return 1;
}

/* name writes an address. */
static void name(char *to, size_t n, int fd, __typeof__(getsockname) *which) {
  struct sockaddr_storage a;
  socklen_t size = sizeof a;
  char text[INET6_ADDRSTRLEN] = "?";
  unsigned port = 0;
  if (which(fd, (struct sockaddr *)&a, &size) == 0 && a.ss_family == AF_INET) {
    inet_ntop(AF_INET, &((struct sockaddr_in *)&a)->sin_addr, text, sizeof text);
    port = ntohs(((struct sockaddr_in *)&a)->sin_port);
  } else if (a.ss_family == AF_INET6) {
    inet_ntop(AF_INET6, &((struct sockaddr_in6 *)&a)->sin6_addr, text, sizeof text);
    port = ntohs(((struct sockaddr_in6 *)&a)->sin6_port);
  }
  snprintf(to, n, strchr(text, ':') != NULL ? "[%s]:%u" : "%s:%u", text, port);
}

/* say logs one line, of the connection fd if that is not negative. */
void say(int of, int fd, const char *format, ...) {
  if (of > level)
    return;
  int error = errno;
  char line[1024], own[64], theirs[64];
  size_t n = snprintf(line, sizeof line, "sdp-run: %s[%d]: ", program, getpid());
  if (fd >= 0) {
    name(own, sizeof own, fd, getsockname);
    name(theirs, sizeof theirs, fd, getpeername);
    n += snprintf(line + n, sizeof line - n, "%s to %s: ", own, theirs);
  }
  va_list l;
  va_start(l, format);
  n += vsnprintf(line + n, sizeof line - n, format, l);
  va_end(l);
  if (n > sizeof line - 2)
    n = sizeof line - 2;
  line[n++] = '\n';
  if (REAL(write)(log_to >= 0 ? log_to : 2, line, n) < 0) {
  }
  errno = error;
}
