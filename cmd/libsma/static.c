//go:build libsma && cgo && linux

/* Static data. The writable segment of the program becomes a symmetric object: its pages are
   copied to the heap, whose memory is mapped in their place. So a variable has an offset in
   the heap as everything else has. */
#define _GNU_SOURCE
#include "sma.h"
#include "_cgo_export.h"

#include <elf.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

struct segment {
  uintptr_t from, to;
  uint64_t layout; /* differs between programs */
};

static uint64_t mix(uint64_t h, const void *bytes, size_t n) {
  for (const unsigned char *b = bytes; n > 0; b++, n--)
    h = (h ^ *b) * 0x100000001b3;
  return h;
}

/* find fills the segment from the first object of the process, which is the program. What
   the loader has made read-only, and what ends within a page of it, is left out. */
static int find(struct dl_phdr_info *info, size_t size, void *arg) {
  (void)size;
  struct segment *s = arg;
  uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), sealed = 0;
  for (int i = 0; i < info->dlpi_phnum; i++)
    if (info->dlpi_phdr[i].p_type == PT_GNU_RELRO)
      sealed = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr + info->dlpi_phdr[i].p_memsz;
  s->layout = 0xcbf29ce484222325;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) *h = &info->dlpi_phdr[i];
    s->layout = mix(s->layout, h, sizeof *h);
    if (h->p_type == PT_NOTE) /* has the identity of the build */
      s->layout = mix(s->layout, (void *)(info->dlpi_addr + h->p_vaddr), h->p_memsz);
    if (h->p_type != PT_LOAD || !(h->p_flags & PF_W))
      continue;
    uintptr_t from = info->dlpi_addr + h->p_vaddr, to = from + h->p_memsz;
    from &= -page;
    if (sealed > from && sealed <= to)
      from = sealed & -page;
    s->from = from;
    s->to = (to + page - 1) & -page;
  }
  return 1;
}

/* copy copies static data to memory of zeros, whose pages stay as they are where all is zero. It calls no memcpy, which
   the program's sanitizer would have in its place: between variables are bytes that nobody is to read. */
static void copy(void *to, const void *from, size_t size) {
  uint64_t *out = to;
  const volatile uint64_t *in = from;
  for (size_t i = 0; i < size / sizeof *in; i++) {
    uint64_t word = in[i];
    if (word != 0)
      out[i] = word;
  }
}

int sma_unshare(void) {
  if (sma.data_size == 0)
    return 0;
  char *own = mmap(NULL, sma.data_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (own == MAP_FAILED)
    return -1;
  copy(own, sma.data, sma.data_size);
  if (mremap(own, sma.data_size, sma.data_size, MREMAP_MAYMOVE | MREMAP_FIXED, sma.data) == MAP_FAILED)
    return -1;
  return 0;
}

/* After fork the child's pages are its own again, as they would be without the library. */
static void own_pages(void) {
  if (sma_unshare() != 0)
    _exit(127);
}

static struct segment program(void) {
  struct segment s = {0, 0, 0};
  dl_iterate_phdr(find, &s);
  return s;
}

size_t sma_static_size(void) {
  struct segment s = program();
  return s.to - s.from;
}

void sma_static(const char *name) {
  struct segment s = program();
  size_t size = s.to - s.from;
  int fd = -1;
  int64_t at = 0;
  size_t off = smaStatic(name, size, s.layout, &fd, &at);
  if (size == 0)
    return;
  /* Nothing of the program runs between the copy and the mapping. */
  copy(sma.heap + (off - sma.at), (void *)s.from, size);
  if (mmap((void *)s.from, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, (off_t)at + (off_t)off) == MAP_FAILED)
    sma_die(name, "map %zu bytes of static data: %s", size, strerror(errno));
  sma.data = (char *)s.from;
  sma.data_at = off;
  sma.data_size = size;
  static int forks; /* own_pages is known */
  if (!forks++)
    pthread_atfork(NULL, NULL, own_pages);
  smaSync(name);
}
