/* process ADDRESS: what fork, exec and signals do to a connection with a server that sends all back. */
#define _GNU_SOURCE
#include "test.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

static int c;
static volatile sig_atomic_t handled;
static pthread_t main_thread;

static void handle(int sig) {
  (void)sig;
  handled = pthread_equal(pthread_self(), main_thread) ? 1 : 2;
}

static void exchange(void) {
  char b[4];
  check(must(sdp_write(c, "ping", 4)) == 4);
  read_all(c, b, 4);
  check(memcmp(b, "ping", 4) == 0);
}

static int ended_well(pid_t child) {
  int status;
  check(waitpid(child, &status, 0) == child);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* in_child makes each call. All fail. */
static int in_child(int fd) {
  char b[64];
  struct iovec v = {b, sizeof b};
  struct sdp_peer p;
  const void *data;
  void *room;
  long long all[] = {
    sdp_dial("sdp", "localhost:1", SDP_NEVER), sdp_listen("sdp", ":0", 0), sdp_accept(c), sdp_read(c, b, 1),
    sdp_write(c, b, 1), sdp_readv(c, &v, 1), sdp_writev(c, &v, 1), sdp_shutdown(c, SDP_WRITE), sdp_close(c),
    sdp_deadline(c, SDP_READ, 0), sdp_name(c, SDP_LOCAL, b, sizeof b), sdp_peer(c, &p), sdp_set(c, SDP_NONBLOCK, 1),
    sdp_get(c, SDP_BY_TCP), sdp_peek(c, &data), sdp_discard(c, 0), sdp_reserve(c, 1, &room), sdp_commit(c, 0),
    sdp_fd(c), sdp_arm(c, SDP_READ), sdp_ready(c),
  };
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    if (all[i] != -1)
      return 1;
  return errno != ENOTRECOVERABLE || strstr(sdp_error(), "fork") == NULL || fcntl(fd, F_GETFD) < 0;
}

int main(int argc, char **argv) {
  check(argc == 2);
  main_thread = pthread_self();
  c = must(sdp_dial("sdp", argv[1], SDP_NEVER));
  exchange();
  int fd = must(sdp_fd(c));
  pid_t child = fork();
  if (child == 0)
    _exit(in_child(fd));
  check(ended_well(child));
  exchange();
  if ((child = fork()) == 0)
    exit(0); /* with all that exit does */
  check(ended_well(child));
  exchange();

  /* No descriptor of the library is open behind exec. */
  char *args[] = {"sh", "-c", "! ls -l /proc/self/fd | grep -E 'socket:|memfd:|anon_inode:|ntbnet'", NULL};
  check(posix_spawn(&child, "/bin/sh", NULL, NULL, args, environ) == 0 && ended_well(child));
  if ((child = fork()) == 0)
    execv("/bin/sh", args);
  check(ended_well(child));
  exchange();

  struct sigaction a = {.sa_handler = handle, .sa_flags = SA_ONSTACK};
  int signals[] = {SIGUSR1, SIGCHLD, SIGPIPE, SIGTERM, SIGPROF};
  for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
    check(sigaction(signals[i], &a, NULL) == 0);
    handled = 0;
    check(kill(getpid(), signals[i]) == 0);
    while (!handled)
      usleep(1000);
    check(handled == 1);
    exchange();
  }
  must(sdp_close(c));
  puts("passed");
  return 0;
}
