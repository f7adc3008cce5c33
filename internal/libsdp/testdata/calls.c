/* calls makes each call of sockets at both ends of a connection, and prints what it returns. What it prints by TCP and by SDP
   is the same. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define say(call) \
  do { \
    errno = 0; \
    long r_ = (long)(call); \
    printf("%-60s %ld %s\n", #call, r_, r_ < 0 ? strerrorname_np(errno) : ""); \
  } while (0)

static int a, b, server; /* the ends: a has connected, b was accepted */
static struct sockaddr_in at = {.sin_family = AF_INET};
static socklen_t n = sizeof at;
static char buf[1 << 20], other[1 << 20];

static void must(int ok, const char *what) {
  if (!ok) {
    perror(what);
    exit(1);
  }
}
#define MUST(x) must((x), #x)

static void pair(void) {
  MUST((a = socket(AF_INET, SOCK_STREAM, 0)) >= 0);
  MUST(connect(a, (struct sockaddr *)&at, sizeof at) == 0);
  MUST((b = accept(server, NULL, NULL)) >= 0);
  for (int i = 0; i < 4; i++) { /* the ends meet */
    MUST(write(a, "ping", 4) == 4 && read(b, buf, 4) == 4);
    MUST(write(b, "pong", 4) == 4 && read(a, buf, 4) == 4);
  }
}

static void drop(void) {
  close(a);
  close(b);
}

static int ready(int fd, int events) { /* what poll, select and both kinds of epoll say, without a wait */
  struct pollfd p = {fd, events, 0};
  fd_set r, w;
  struct timeval now = {0, 0};
  struct timespec soon = {0, 0};
  struct epoll_event e = {.events = events}, got = {0}, edge = {0};
  FD_ZERO(&r);
  FD_ZERO(&w);
  FD_SET(fd, &r);
  FD_SET(fd, &w);
  int polled = poll(&p, 1, 0) ? p.revents : 0;
  int ppolled = ppoll(&p, 1, &soon, NULL) ? p.revents : 0;
  int selected = select(fd + 1, &r, &w, NULL, &now);
  int q = epoll_create1(0);
  epoll_ctl(q, EPOLL_CTL_ADD, fd, &e);
  epoll_wait(q, &got, 1, 0);
  e.events |= EPOLLET;
  epoll_ctl(q, EPOLL_CTL_MOD, fd, &e);
  epoll_wait(q, &edge, 1, 0);
  epoll_wait(q, &edge, 1, 0);
  close(q);
  printf("  poll %x ppoll %x select %d%d%d epoll %x %x\n", polled, ppolled, selected, FD_ISSET(fd, &r) != 0, FD_ISSET(fd, &w) != 0, got.events, edge.events);
  return 0;
}

static volatile int got_signal;
static void on_signal(int number) { got_signal = number; }

static void *late(void *p) {
  usleep(20000);
  MUST(write(a, p, strlen(p)) == (ssize_t)strlen(p));
  return NULL;
}

static void later(const char *text) {
  pthread_t t;
  MUST(pthread_create(&t, NULL, late, (void *)text) == 0);
  pthread_detach(t);
}

static void each_way_to_write_and_read(void) {
  struct iovec v[2] = {{"some", 4}, {"thing", 5}}, w[2] = {{buf, 3}, {buf + 3, 20}};
  struct msghdr out = {.msg_iov = v, .msg_iovlen = 2}, in = {.msg_iov = w, .msg_iovlen = 2};
  struct mmsghdr outs = {.msg_hdr = out}, ins = {.msg_hdr = in};
  pair();
  memset(buf, 0, 64);
  say(write(a, "write", 5));
  say(read(b, buf, 100));
  say(send(a, "send", 4, 0));
  say(recv(b, buf, 100, 0));
  say(sendto(a, "sendto", 6, MSG_NOSIGNAL, NULL, 0));
  say(recvfrom(b, buf, 100, 0, NULL, NULL));
  say(writev(a, v, 2));
  say(readv(b, w, 2));
  say(sendmsg(a, &out, 0));
  say(recvmsg(b, &in, 0));
  say(in.msg_flags);
  say(sendmmsg(a, &outs, 1, 0));
  say(recvmmsg(b, &ins, 1, 0, NULL));
  printf("%.9s\n", buf);
  say(write(a, "", 0));
  say(read(b, buf, 0));
  say(recv(b, buf, 1, MSG_DONTWAIT));
  say(write(a, "peek me", 7));
  say(recv(b, buf, 4, MSG_PEEK));
  say(recv(b, buf, 100, MSG_PEEK));
  say(write(a, " more", 5));
  say(recv(b, buf, 100, MSG_PEEK));
  say(read(b, buf, 3));
  say(recv(b, buf + 3, 100, 0));
  printf("%.12s\n", buf);
  say(write(a, "and ", 4));
  later("the rest");
  say(recv(b, buf, 12, MSG_WAITALL));
  printf("%.12s\n", buf);
  later("waited for");
  say(read(b, buf, 100));
  say(fcntl(b, F_SETFL, O_NONBLOCK));
  say(read(b, buf, 100));
  say(readv(b, w, 2));
  say(recvmsg(b, &in, 0));
  drop();
}

static void what_is_ready(void) {
  int unread = 0;
  pair();
  ready(a, POLLIN | POLLOUT | POLLRDHUP);
  ready(b, POLLIN | POLLOUT | POLLRDHUP);
  MUST(write(a, "0123456789", 10) == 10);
  ready(b, POLLIN | POLLOUT | POLLRDHUP);
  say(ioctl(b, FIONREAD, &unread));
  say(unread);
  say(read(b, buf, 4));
  ready(b, POLLIN | POLLOUT);
  say(read(b, buf, 6));
  ready(b, POLLIN | POLLOUT);
  say(ioctl(b, FIONREAD, &unread));
  say(unread);
  say(write(a, "last", 4));
  say(shutdown(a, SHUT_WR));
  ready(b, POLLIN | POLLOUT | POLLRDHUP);
  say(read(b, buf, 100));
  say(read(b, buf, 100));
  ready(b, POLLIN | POLLOUT | POLLRDHUP);
  say(write(b, "half", 4));
  say(read(a, buf, 100));
  signal(SIGPIPE, on_signal);
  say(write(a, "x", 1));
  say(got_signal);
  got_signal = 0;
  say(send(a, "x", 1, MSG_NOSIGNAL));
  say(got_signal);
  drop();
}

static void a_peer_that_closes(void) {
  pair();
  MUST(write(a, "unread", 6) == 6);
  close(b); /* with something unread: a reset */
  usleep(1000);
  say(read(a, buf, 1));
  say(read(a, buf, 1));
  say(send(a, "x", 1, MSG_NOSIGNAL));
  close(a);
  pair();
  MUST(write(b, "bye", 3) == 3);
  close(b);
  say(read(a, buf, 100));
  say(read(a, buf, 100));
  say(send(a, "x", 1, MSG_NOSIGNAL));
  usleep(1000);
  say(send(a, "x", 1, MSG_NOSIGNAL));
  close(a);
}

static void full_and_empty_again(void) {
  pair();
  MUST(fcntl(a, F_SETFL, O_NONBLOCK) == 0);
  size_t sent = 0, got = 0;
  struct epoll_event e = {.events = EPOLLOUT | EPOLLIN | EPOLLET}, have = {0};
  int q = epoll_create1(0);
  MUST(epoll_ctl(q, EPOLL_CTL_ADD, a, &e) == 0);
  epoll_wait(q, &have, 1, 0);
  for (;;) {
    for (size_t i = 0; i < sizeof buf; i++)
      buf[i] = (char)((sent + i) * 7 >> 3);
    ssize_t r = write(a, buf, 100000);
    if (r < 0)
      break;
    sent += (size_t)r;
  }
  say(-(errno == EAGAIN));
  say(epoll_wait(q, &have, 1, 0));
  while (got < sent) {
    ssize_t r = read(b, other, sizeof other);
    MUST(r > 0);
    for (ssize_t i = 0; i < r; i++)
      MUST(other[i] == (char)((got + (size_t)i) * 7 >> 3));
    got += (size_t)r;
  }
  say(epoll_wait(q, &have, 1, 60000));
  say(have.events & EPOLLOUT);
  say(sent == got);
  close(q);
  drop();
}

static void copies(void) {
  pair();
  int c, d = fcntl(b, F_DUPFD, 200);
  say(d);
  say(dup2(b, 210));
  say(dup3(b, 211, O_CLOEXEC));
  MUST((c = dup(a)) >= 0);
  say(write(c, "by a copy", 9));
  say(read(d, buf, 3));
  say(read(210, buf, 3));
  say(read(211, buf, 3));
  close(b);
  close(d);
  close(210);
  say(write(211, "still", 5));
  say(read(c, buf, 100));
  close(211);
  say(read(a, buf, 100));
  say(dup2(c, a) == a);
  say(read(a, buf, 100));
  close(c);
  close(a);
  say(read(a, buf, 1));
}

static void options(void) {
  int on = 1, v = -1;
  socklen_t size = sizeof v;
  struct sockaddr_in own, theirs;
  struct timeval limit = {0, 30000}, none = {0, 0};
  pair();
  say(getsockopt(a, IPPROTO_TCP, TCP_NODELAY, &v, &size));
  say(v);
  say(setsockopt(a, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on));
  say(getsockopt(a, IPPROTO_TCP, TCP_NODELAY, &v, &size));
  say(v);
  say(getsockopt(a, SOL_SOCKET, SO_ERROR, &v, &size));
  say(v);
  say(setsockopt(a, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on));
  size = sizeof own;
  say(getsockname(a, (struct sockaddr *)&own, &size));
  say(getpeername(b, (struct sockaddr *)&theirs, &size));
  say(memcmp(&own, &theirs, sizeof own));
  say(setsockopt(b, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit));
  say(read(b, buf, 1));
  say(recv(b, buf, 1, MSG_PEEK));
  say(setsockopt(b, SOL_SOCKET, SO_RCVTIMEO, &none, sizeof none));
  struct itimerval t = {{0, 30000}, {0, 30000}}, never = {0};
  struct sigaction act = {.sa_handler = on_signal};
  sigaction(SIGALRM, &act, NULL);
  setitimer(ITIMER_REAL, &t, NULL);
  say(read(b, buf, 1)); /* which the signal ends */
  setitimer(ITIMER_REAL, &never, NULL);
  say(got_signal);
  drop();
}

static void files(void) {
  char name[] = "/tmp/calls-XXXXXX";
  int f = mkstemp(name);
  off_t from = 100000;
  MUST(f >= 0 && unlink(name) == 0);
  for (size_t i = 0; i < sizeof buf; i++)
    buf[i] = (char)(i * 11 >> 4);
  MUST(write(f, buf, sizeof buf) == sizeof buf && lseek(f, 0, SEEK_SET) == 0);
  pair();
  MUST(pwrite(f, buf, 4, 0) == 4);
  say(sendfile(a, f, NULL, 1000));
  say(lseek(f, 0, SEEK_CUR));
  say(sendfile(a, f, &from, 2000));
  say(from);
  say(lseek(f, 0, SEEK_CUR));
  say(recv(b, other, 3000, MSG_WAITALL));
  say(memcmp(other, buf, 4));
  say(sendfile(a, f, &(off_t){sizeof buf}, 10));
  close(f);
  drop();
}

static void without_a_wait(void) {
  int v = -1;
  socklen_t size = sizeof v;
  MUST((a = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0)) >= 0);
  say(connect(a, (struct sockaddr *)&at, sizeof at) == 0 || errno == EINPROGRESS);
  struct pollfd p = {a, POLLOUT, 0};
  say(poll(&p, 1, 60000));
  say(getsockopt(a, SOL_SOCKET, SO_ERROR, &v, &size));
  say(v);
  MUST((b = accept4(server, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0);
  say(read(b, buf, 1));
  say(read(a, buf, 1));
  say(write(a, "x", 1));
  say(read(b, buf, 1));
  say(write(b, "y", 1));
  say(read(a, buf, 1));
  say(connect(a, (struct sockaddr *)&at, sizeof at));
  drop();
  struct sockaddr_in nobody = at;
  nobody.sin_port = htons(1);
  MUST((a = socket(AF_INET, SOCK_STREAM, 0)) >= 0);
  say(connect(a, (struct sockaddr *)&nobody, sizeof nobody));
  say(write(a, "x", 1) * 0);
  close(a);
}

static void a_child(void) {
  int status;
  pair();
  MUST(write(a, "before", 6) == 6);
  pid_t child = fork();
  if (child == 0) {
    ssize_t r = read(b, buf, 6);
    r += write(b, "the child's", 11);
    _exit(r == 17 && memcmp(buf, "before", 6) == 0 ? 7 : 1);
  }
  MUST(waitpid(child, &status, 0) == child);
  say(WEXITSTATUS(status));
  say(read(a, buf, 100));
  printf("%.11s\n", buf);
  say(write(a, "behind", 6));
  say(read(b, buf, 100));
  say(system("exit 3") >> 8);
  say(write(b, "again", 5));
  say(read(a, buf, 100));
  drop();
}

static int arrives(int number) { /* in any thread */
  for (int i = 0; i < 5000 && got_signal != number; i++)
    usleep(1000);
  return got_signal == number;
}

static void handlers(void) {
  static const int each[] = {SIGPIPE, SIGCHLD, SIGURG, SIGPROF};
  struct sigaction act = {.sa_handler = on_signal}, had;
  for (int again = 0; again < 2; again++) { /* set before the connection, and after it */
    for (int i = 0; i < 4; i++)
      sigaction(each[i], &act, NULL);
    if (!again)
      pair();
    for (int i = 0; i < 4; i++) {
      got_signal = 0;
      kill(getpid(), each[i]);
      say(arrives(each[i]));
      sigaction(each[i], NULL, &had);
      say(had.sa_handler == on_signal);
    }
  }
  got_signal = 0;
  say(fcntl(b, F_SETOWN, getpid()));
  say(send(a, "!", 1, MSG_OOB));
  say(arrives(SIGURG));
  say(recv(b, buf, 1, MSG_OOB));
  say(write(a, "on", 2));
  say(recv(b, buf, 2, MSG_WAITALL));
  struct itimerval t = {{0, 1000}, {0, 1000}}, never = {{0, 0}, {0, 0}};
  got_signal = 0;
  setitimer(ITIMER_PROF, &t, NULL);
  for (int i = 0; i < 10000000 && got_signal != SIGPROF; i++) { /* it counts processor time */
    MUST(write(a, "x", 1) == 1 && read(b, buf, 1) == 1);
  }
  setitimer(ITIMER_PROF, &never, NULL);
  say(got_signal == SIGPROF);
  drop();
  for (int i = 0; i < 4; i++)
    signal(each[i], SIG_DFL);
}

int main(void) {
  MUST((server = socket(AF_INET, SOCK_STREAM, 0)) >= 0);
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  MUST(bind(server, (struct sockaddr *)&at, sizeof at) == 0 && listen(server, 10) == 0);
  MUST(getsockname(server, (struct sockaddr *)&at, &n) == 0);
  each_way_to_write_and_read();
  what_is_ready();
  a_peer_that_closes();
  full_and_empty_again();
  copies();
  options();
  files();
  without_a_wait();
  handlers();
  a_child();
  return 0;
}
