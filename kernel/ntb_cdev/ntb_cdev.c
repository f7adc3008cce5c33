// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * A character device for each port of a non-transparent bridge, by which a
 * process stores into the peer's memory. <linux/ntb_cdev.h> describes it.
 *
 * Copyright (C) 2026 the ntbnet authors
 *
 * Handshake. Before a process may map anything, both sides' modules have agreed
 * by four words of scratchpads, which each side writes at the other:
 *
 *	0	NTB_CDEV_MAGIC and the ABI, written last; 0 while the rest changes
 *	1	generation: random, another one after each link event, never 0
 *	2	size of the memory that is granted, in pages of 4 KiB (24 bits), the
 *		index of its window (4 bits) and the writer's node number (2 bits)
 *	3	the other side's generation, once the writer has seen it
 *
 * The link is ready when the peer's words answer this side's generation. Until
 * then words are repeated, since what is written while the peer's driver is not
 * set up may be lost. A peer of any kind may write anything: each word is
 * checked, and what may be mapped lies within this side's BAR. When the file is
 * closed, this side begins anew, and so the peer's process learns of it.
 *
 * Mappings are filled in by page faults only. A mapping that is being made is
 * not known to unmap_mapping_range() yet, so nothing may be in it then. That is why
 * dma_mmap_coherent() does not make them. When the link ceases to be ready, those of
 * the peer's memory are emptied, and from then on their faults find a page that belongs
 * to the open file. This side's memory stays, with what has arrived, until the bridge is
 * removed, and then reads as zeros, from another page.
 *
 * Who opens the file begins anew too, and this side's memory is cleared once the peer
 * has answered that: stores that were meant for the holder before have ended then.
 *
 * Lock order: mmap_lock, ntb_cdev.lock, i_mmap_rwsem.
 */

#include <linux/bitfield.h>
#include <linux/dma-map-ops.h>
#include <linux/dma-mapping.h>
#include <linux/eventfd.h>
#include <linux/fs.h>
#include <linux/io.h>
#include <linux/kref.h>
#include <linux/lockdep.h>
#include <linux/log2.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/notifier.h>
#include <linux/ntb.h>
#include <linux/pci.h>
#include <linux/pid.h>
#include <linux/random.h>
#include <linux/reboot.h>
#include <linux/rwsem.h>
#include <linux/scatterlist.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/suspend.h>
#include <linux/uaccess.h>
#include <linux/workqueue.h>

#include "include/uapi/linux/ntb_cdev.h"
#include "compat.h"

MODULE_DESCRIPTION("Character devices of non-transparent bridges");
MODULE_AUTHOR("The ntbnet authors");
MODULE_LICENSE("Dual BSD/GPL");

static unsigned long buffer_size = SZ_16M;
module_param(buffer_size, ulong, 0444);
MODULE_PARM_DESC(buffer_size, "most bytes of memory that a peer is granted (16777216)");

/* "NTC" above the ABI, in word 0. */
#define NTB_CDEV_MAGIC		(0x4e544300 | NTB_CDEV_ABI)

/* The words, by scratchpad. */
enum { WORD_MAGIC, WORD_GENERATION, WORD_GRANT, WORD_SEEN, WORDS };

#define GRANT_PAGES		GENMASK(23, 0)
#define GRANT_WINDOW		GENMASK(27, 24)
#define GRANT_NODE		GENMASK(29, 28)

/* The least memory that is worth a link. */
#define MIN_SIZE		SZ_64K

/* The only peer. */
#define PEER			0

/* More doorbells than a process has lanes for are of no use. */
#define MAX_DOORBELLS		16

/* Offsets of the two memories for mmap(). */
#define OWN_OFFSET		0ULL
#define PEER_OFFSET		BIT_ULL(40)

/* Pauses between two looks while the link is up, but not ready. */
#define FIRST_PAUSE		msecs_to_jiffies(10)
#define LAST_PAUSE		HZ

/* Memory for the peer's stores: a part of a block, whose bus address is aligned as was asked. */
struct ntb_cdev_memory {
	void *block;
	dma_addr_t block_dma;
	size_t block_size;
	void *at;
	dma_addr_t dma;
	size_t size;
	unsigned long *pfns;
};

struct ntb_cdev {
	struct kref ref;	/* the driver's, and one of each open file */
	struct ntb_dev *ntb;	/* not used once gone is set */
	struct miscdevice misc;
	char name[32];		/* of misc */

	/* This side's memory: the work may take another before the link was ever ready. */
	struct ntb_cdev_memory memory;
	bool memory_coherent;

	struct notifier_block reboot, sleep;

	/* Doorbells: do not change. */
	int doorbells;		/* for processes */
	u64 bells;		/* their bits */
	u64 hello;		/* the bit that announces words, 0 if none is safe */

	/* The handshake, of the work alone. */
	struct delayed_work work;
	unsigned long pause;
	int window;		/* whose translation is set, -1 if none */
	size_t granted;		/* bytes of memory behind that window */
	u32 own;		/* generation of this side, 0 before the first */
	u32 peer;		/* generation of the peer that is answered, 0 if none */
	u32 said_node;		/* node number in the words of this generation */
	bool leak;		/* the window was not closed */
	phys_addr_t wc_base;	/* what is reserved as write-combining */
	resource_size_t wc_size;

	atomic_t anew;		/* asks the work for a new generation of this side */

	/* Written with lock held for writing. */
	struct rw_semaphore lock;
	bool gone;		/* the hardware is not to be touched */
	bool ready;
	bool link_up;
	u32 generation;
	u32 peer_word;
	u32 lacks;		/* NTB_CDEV_INFO_NO_WINDOW and _PEER_NO_WINDOW */
	u32 node;
	phys_addr_t peer_base;
	size_t peer_size;
	bool peer_wc;
	struct address_space *mapping;	/* of the open file, NULL if there is none */
	struct page *dummy;		/* its two pages, for this side's memory and the peer's */
	struct pid *holder;
	bool cleared;		/* nothing of those before the holder can be in memory */

	spinlock_t event_lock;	/* guards events */
	struct eventfd_ctx *events[1 + MAX_DOORBELLS];
};

static void ntb_cdev_release_ref(struct kref *ref)
{
	kfree(container_of(ref, struct ntb_cdev, ref));
}

/* Events */

static void ntb_cdev_signal(struct ntb_cdev *d, int event)
{
	unsigned long flags;

	spin_lock_irqsave(&d->event_lock, flags);
	if (d->events[event])
		signal_eventfd(d->events[event]);
	spin_unlock_irqrestore(&d->event_lock, flags);
}

static void ntb_cdev_set_event(struct ntb_cdev *d, int event, struct eventfd_ctx *ctx)
{
	unsigned long flags;

	spin_lock_irqsave(&d->event_lock, flags);
	swap(d->events[event], ctx);
	spin_unlock_irqrestore(&d->event_lock, flags);
	if (ctx)
		eventfd_ctx_put(ctx);
}

/* Called by the driver of the hardware, in interrupts too, under the lock of its context. */

static void ntb_cdev_link_event(void *ctx)
{
	struct ntb_cdev *d = ctx;

	/* A link may have been down and be up again. What was stored meanwhile is lost. */
	atomic_set(&d->anew, 1);
	mod_delayed_work(system_long_wq, &d->work, 0);
}

static void ntb_cdev_db_event(void *ctx, int vector)
{
	struct ntb_cdev *d = ctx;
	u64 bits = ntb_db_read(d->ntb) & ntb_db_vector_mask(d->ntb, vector);
	int i;

	/* Those that are woken look at memory after this: a later ring is another event. */
	ntb_db_clear(d->ntb, bits);
	if (!(bits & (d->bells | d->hello)))
		bits = d->bells | d->hello; /* some hardware reports others than were rung */
	if (bits & d->hello)
		mod_delayed_work(system_long_wq, &d->work, 0);
	for (i = 0; i < d->doorbells; i++)
		if (bits & BIT_ULL(i))
			ntb_cdev_signal(d, 1 + i);
}

static const struct ntb_ctx_ops ntb_cdev_ctx_ops = {
	.link_event = ntb_cdev_link_event,
	.db_event = ntb_cdev_db_event,
};

/* Clears this side's memory, up to 2 GiB. The caller holds the lock for writing. */
static void ntb_cdev_clear(struct ntb_cdev *d)
{
	size_t at;

	lockdep_assert_held_write(&d->lock);
	for (at = 0; at < d->memory.size; at += SZ_1M) {
		memset(d->memory.at + at, 0, min_t(size_t, d->memory.size - at, SZ_1M));
		cond_resched();
	}
}

/* Handshake, by the work */

/* Empties mappings from an offset on. The caller holds the lock for writing. */
static void ntb_cdev_zap(struct ntb_cdev *d, loff_t from)
{
	lockdep_assert_held_write(&d->lock);
	d->ready = false;
	if (d->mapping)
		unmap_mapping_range(d->mapping, from, 0, 1);
}

static void ntb_cdev_unready(struct ntb_cdev *d, const char *why)
{
	if (!d->ready)
		return;
	down_write(&d->lock);
	ntb_cdev_zap(d, PEER_OFFSET);
	up_write(&d->lock);
	ntb_cdev_signal(d, 0);
	dev_info_ratelimited(&d->ntb->dev, "link is not ready: %s\n", why);
}

/*
 * Writes this side's words at the peer. New ones replace the old as a whole: while
 * they are written there is no magic. Those that are only repeated are the same, so
 * a peer that reads meanwhile finds nothing else, and they ring no doorbell, which
 * the peer would answer by its own.
 */
static void ntb_cdev_publish(struct ntb_cdev *d, bool news)
{
	struct ntb_dev *ntb = d->ntb;
	u32 grant = FIELD_PREP(GRANT_PAGES, d->granted / NTB_CDEV_PAGE) |
		    FIELD_PREP(GRANT_WINDOW, max(d->window, 0)) |
		    FIELD_PREP(GRANT_NODE, d->said_node);

	if (news)
		ntb_peer_spad_write(ntb, PEER, WORD_MAGIC, 0);
	ntb_peer_spad_write(ntb, PEER, WORD_GENERATION, d->own);
	ntb_peer_spad_write(ntb, PEER, WORD_GRANT, grant);
	ntb_peer_spad_write(ntb, PEER, WORD_SEEN, d->peer);
	ntb_peer_spad_write(ntb, PEER, WORD_MAGIC, NTB_CDEV_MAGIC);
	if (news && d->hello)
		ntb_peer_db_set(ntb, d->hello);
}

/* Reads the peer's words, twice. Returns false if they change meanwhile. */
static bool ntb_cdev_read_words(struct ntb_cdev *d, u32 words[WORDS])
{
	u32 word;
	int i;

	for (i = 0; i < 2 * WORDS; i++) {
		word = ntb_spad_read(d->ntb, i % WORDS);
		rmb(); /* some drivers have scratchpads in memory; the peer writes in order */
		if (i >= WORDS && word != words[i % WORDS])
			return false;
		words[i % WORDS] = word;
	}
	return true;
}

static void ntb_cdev_free_memory(struct ntb_cdev *d, struct ntb_cdev_memory *m)
{
	kvfree(m->pfns);
	dma_free_coherent(ntb_get_dma_dev(d->ntb), m->block_size, m->block, m->block_dma);
}

/*
 * Allocates memory. What comes from an IOMMU or as pages is aligned to its size, and what is
 * of CMA may not be, so there it is a part of more.
 */
static int ntb_cdev_alloc_memory(struct ntb_cdev *d, struct ntb_cdev_memory *m, size_t size,
				 size_t align)
{
	struct device *dma_dev = ntb_get_dma_dev(d->ntb);
	int i = 0, first, pages = size / PAGE_SIZE, ret;
	struct sg_page_iter page;
	struct sg_table sgt;
	size_t skip;

	m->block_size = max(size, align);
	for (;;) {
		m->block = dma_alloc_coherent(dma_dev, m->block_size, &m->block_dma,
					      GFP_KERNEL | __GFP_NOWARN);
		if (!m->block)
			return -ENOMEM;
		skip = ALIGN(m->block_dma, align) - m->block_dma;
		if (skip + size <= m->block_size)
			break;
		dma_free_coherent(dma_dev, m->block_size, m->block, m->block_dma);
		m->block_size = size + align;
	}
	m->at = m->block + skip;
	m->dma = m->block_dma + skip;
	m->size = size;

	first = skip / PAGE_SIZE;
	m->pfns = kvmalloc_array(pages, sizeof(*m->pfns), GFP_KERNEL);
	ret = dma_get_sgtable(dma_dev, &sgt, m->block, m->block_dma, m->block_size);
	if (!ret) {
		if (m->pfns)
			for_each_sgtable_page(&sgt, &page, first)
				if (i < pages)
					m->pfns[i++] = page_to_pfn(sg_page_iter_page(&page));
		sg_free_table(&sgt);
	}
	if (i == pages)
		return 0;
	ntb_cdev_free_memory(d, m);
	return ret ?: -ENOMEM;
}

/*
 * Finds the window that takes most of this side's memory. If none takes any, the window that
 * would take most, were the memory aligned, has its demands in @size and @align.
 */
static void ntb_cdev_fit(struct ntb_cdev *d, int *window, size_t *granted, size_t *size,
			 size_t *align)
{
	resource_size_t addr_align, size_align, size_max, bar;
	phys_addr_t base;
	size_t fits;
	int i;

	*window = -1;
	*granted = *size = *align = 0;
	for (i = 0; i < min(ntb_mw_count(d->ntb, PEER), 16); i++) {
		/* The outbound window is of the same BAR, of which some drivers report all. */
		if (ntb_mw_get_align(d->ntb, PEER, i, &addr_align, &size_align, &size_max) ||
		    ntb_peer_mw_get_addr(d->ntb, i, &base, &bar))
			continue;
		fits = min3((u64)buffer_size, (u64)size_max, (u64)bar);
		fits = round_down(fits, max_t(u64, size_align, PAGE_SIZE));
		if (fits > *size) {
			*size = fits;
			*align = addr_align;
		}
		fits = round_down(min(fits, d->memory.size), max_t(u64, size_align, PAGE_SIZE));
		if (IS_ALIGNED(d->memory.dma, addr_align) && fits > *granted) {
			*window = i;
			*granted = fits;
		}
	}
}

/*
 * Has the hardware translate one window to this side's memory. There may be no window for it,
 * and then there is no error, and nothing is granted.
 */
static int ntb_cdev_translate(struct ntb_cdev *d)
{
	struct device *dev = &d->ntb->dev;
	struct ntb_cdev_memory other;
	size_t granted, size, align;
	int window, ret;

	ntb_cdev_fit(d, &window, &granted, &size, &align);
	/* Nothing is mapped or translated before the link was ever ready. */
	if (granted < MIN_SIZE && size >= MIN_SIZE && is_power_of_2(align) && !d->generation &&
	    d->window < 0 && !ntb_cdev_alloc_memory(d, &other, size, align)) {
		down_write(&d->lock);
		swap(d->memory, other);
		up_write(&d->lock);
		ntb_cdev_free_memory(d, &other);
		ntb_cdev_fit(d, &window, &granted, &size, &align);
	}
	if (granted < MIN_SIZE) {
		if (!(d->lacks & NTB_CDEV_INFO_NO_WINDOW))
			dev_err(dev, "windows want memory aligned to %zu KiB, which there is not: boot with an IOMMU or cma=%zuM, or have the firmware make BARs of at most %zu KiB\n",
				align / SZ_1K, 2 * max(align, size) / SZ_1M,
				d->memory.size / SZ_1K);
		d->granted = 0;
		return 0;
	}
	if (d->window >= 0 && window != d->window && ntb_mw_clear_trans(d->ntb, PEER, d->window))
		d->leak = true;
	d->window = window;
	d->granted = granted;
	ret = ntb_mw_set_trans(d->ntb, PEER, window, d->memory.dma, granted);
	if (ret)
		dev_err_ratelimited(dev, "window %d was not set up: %d\n", window, ret);
	return ret;
}

/* Returns true if the BAR with an address may be mapped write-combining. */
static bool ntb_cdev_combines(struct ntb_cdev *d, phys_addr_t base, resource_size_t size)
{
	struct resource *r;
	int i;

	if (d->wc_size && (d->wc_base != base || d->wc_size != size)) {
		arch_io_free_memtype_wc(d->wc_base, d->wc_size);
		d->wc_size = 0;
	}
	if (d->wc_size)
		return true;
	for (i = 0; i < PCI_STD_NUM_BARS; i++) {
		r = &d->ntb->pdev->resource[i];
		if (resource_type(r) == IORESOURCE_MEM && base >= r->start && base <= r->end)
			break;
	}
	if (i == PCI_STD_NUM_BARS || !(r->flags & IORESOURCE_PREFETCH))
		return false;
	if (arch_io_reserve_memtype_wc(base, size))
		return false;
	d->wc_base = base;
	d->wc_size = size;
	return true;
}

/* Settles which node this side is, see struct ntb_cdev_info. */
static u32 ntb_cdev_node(struct ntb_cdev *d, const u32 words[WORDS])
{
	u32 theirs = FIELD_GET(GRANT_NODE, words[WORD_GRANT]);
	bool lower = d->own < words[WORD_GENERATION];

	if (ntb_port_number(d->ntb) != ntb_peer_port_number(d->ntb, PEER))
		return d->node;
	if (d->node && (d->node != theirs || lower))
		return d->node;
	if (theirs == 1 || theirs == 2)
		return 3 - theirs;
	return lower ? 1 : 2;
}

/* Lets processes map, by words of the peer that answer this side's. */
static void ntb_cdev_make_ready(struct ntb_cdev *d, const u32 words[WORDS])
{
	u64 size = (u64)FIELD_GET(GRANT_PAGES, words[WORD_GRANT]) * NTB_CDEV_PAGE;
	int window = FIELD_GET(GRANT_WINDOW, words[WORD_GRANT]);
	struct device *dev = &d->ntb->dev;
	resource_size_t bar;
	phys_addr_t base;
	u32 node;
	bool wc;

	if (window >= ntb_peer_mw_count(d->ntb) ||
	    ntb_peer_mw_get_addr(d->ntb, window, &base, &bar) || !PAGE_ALIGNED(base)) {
		dev_err_ratelimited(dev, "the peer grants window %d, which is none here\n", window);
		return;
	}
	size = round_down(min_t(u64, size, bar), PAGE_SIZE);
	if (size < MIN_SIZE) {
		dev_err_ratelimited(dev, "the peer grants %llu bytes, want %d or more\n",
				    size, MIN_SIZE);
		return;
	}
	wc = ntb_cdev_combines(d, base, bar);
	node = ntb_cdev_node(d, words);

	down_write(&d->lock);
	if (atomic_read(&d->anew)) { /* the holder is another one than that these words are for */
		up_write(&d->lock);
		return;
	}
	d->peer_base = base;
	d->peer_size = size;
	d->peer_wc = wc;
	d->node = node;
	if (!++d->generation)
		d->generation = 1;
	/* The peer's module has ended the stores for those before. */
	if (!d->cleared)
		ntb_cdev_clear(d);
	d->cleared = true;
	d->ready = true;
	up_write(&d->lock);
	ntb_cdev_signal(d, 0);
	dev_info_ratelimited(dev, "link is ready: node %u; window %d: %zu KiB here; window %d: %llu KiB there, %s\n",
			     node, d->window, d->granted / SZ_1K, window, size / SZ_1K,
			     wc ? "write-combining" : "uncached");
}

/* Notes what the other side is and which side has no window, and logs it. */
static void ntb_cdev_note(struct ntb_cdev *d, u32 word, u32 lacks)
{
	u32 news = word ^ d->peer_word, lost = lacks & ~d->lacks;
	struct device *dev = &d->ntb->dev;

	if (!news && lacks == d->lacks)
		return;
	down_write(&d->lock);
	d->peer_word = word;
	d->lacks = lacks;
	up_write(&d->lock);
	ntb_cdev_signal(d, 0);
	if (lost & NTB_CDEV_INFO_PEER_NO_WINDOW)
		dev_err(dev, "the other host has no window: its log says what helps\n");
	if (!news)
		return;
	if (word == NTB_CDEV_MAGIC)
		dev_info_ratelimited(dev, "the other side has this module\n");
	else if ((word ^ NTB_CDEV_MAGIC) < 256)
		dev_err_ratelimited(dev, "the other side's module has ABI %u, this one %u\n",
				    word & 255, NTB_CDEV_ABI);
	else if (word == 4)
		dev_err_ratelimited(dev, "the other side runs ntb_transport (version 4)\n");
	else if (word && ~word)
		dev_err_ratelimited(dev, "the other side runs another client, with %#x in word 0\n",
				    word);
}

/*
 * One look at the link and the peer's words. Returns false if the next one is due in a
 * while, although there is no event.
 */
static bool ntb_cdev_look(struct ntb_cdev *d)
{
	bool anew = atomic_xchg(&d->anew, 0);
	bool up = ntb_link_is_up(d->ntb, NULL, NULL) & BIT_ULL(PEER);
	u32 words[WORDS], lacks = 0;

	if (anew || !up) {
		ntb_cdev_unready(d, up ? "this side begins anew" : "it is down");
		d->own = 0;
		d->pause = FIRST_PAUSE;
	}
	if (up != d->link_up) {
		down_write(&d->lock);
		d->link_up = up;
		up_write(&d->lock);
		ntb_cdev_signal(d, 0);
	}
	if (!up) {
		ntb_cdev_note(d, 0, 0);
		return true;
	}
	if (!d->own) {
		if (ntb_cdev_translate(d))
			return false;
		do {
			d->own = get_random_u32();
		} while (!d->own);
		d->peer = 0;
		d->said_node = d->node;
		ntb_cdev_publish(d, true);
	}
	if (!ntb_cdev_read_words(d, words))
		return false;
	if (!d->granted)
		lacks |= NTB_CDEV_INFO_NO_WINDOW;
	if (words[WORD_MAGIC] == NTB_CDEV_MAGIC && words[WORD_GENERATION] &&
	    !FIELD_GET(GRANT_PAGES, words[WORD_GRANT]))
		lacks |= NTB_CDEV_INFO_PEER_NO_WINDOW;
	ntb_cdev_note(d, words[WORD_MAGIC], lacks);
	if (words[WORD_MAGIC] != NTB_CDEV_MAGIC || !words[WORD_GENERATION]) {
		if (d->ready) {
			ntb_cdev_unready(d, "the other side's module has gone");
			d->own = 0;
			d->pause = FIRST_PAUSE;
		} else {
			ntb_cdev_publish(d, false);
		}
		return false;
	}
	if (words[WORD_GENERATION] != d->peer) {
		ntb_cdev_unready(d, "the other side begins anew");
		d->peer = words[WORD_GENERATION];
		d->pause = FIRST_PAUSE;
		/* Another holder there must not read what the one before has sent. */
		down_write(&d->lock);
		if (!d->mapping)
			ntb_cdev_clear(d);
		up_write(&d->lock);
		ntb_cdev_publish(d, true);
	} else {
		ntb_cdev_publish(d, false);
	}
	if (!d->ready && !lacks && words[WORD_SEEN] == d->own) {
		ntb_cdev_make_ready(d, words);
		d->pause = FIRST_PAUSE;
	}
	/*
	 * The last words may have been lost, so a side that is ready says them some more times.
	 * Without a doorbell it never hears of new ones.
	 */
	return d->ready && d->hello && d->pause >= LAST_PAUSE;
}

/* Ends all use of the hardware. */
static void ntb_cdev_end(struct ntb_cdev *d)
{
	struct ntb_dev *ntb = d->ntb;
	u16 vendor;
	int ret;

	if (ntb_link_is_up(ntb, NULL, NULL) & BIT_ULL(PEER)) {
		ntb_peer_spad_write(ntb, PEER, WORD_MAGIC, 0);
		if (d->hello)
			ntb_peer_db_set(ntb, d->hello);
	}
	if (d->hello)
		ntb_db_set_mask(ntb, d->bells | d->hello);
	ntb_link_disable(ntb);
	if (d->window >= 0) {
		ret = ntb_mw_clear_trans(ntb, PEER, d->window);
		/* Intel's driver checks a register that does not matter then. Others mean it. */
		if (ret && !(ret == -EIO && ntb->pdev->vendor == PCI_VENDOR_ID_INTEL)) {
			dev_err(&ntb->dev, "window %d was not closed (%d): its memory is kept for ever\n",
				d->window, ret);
			d->leak = true;
		}
	}
	/* The answer comes behind what the peer has stored. */
	pci_read_config_word(ntb->pdev, PCI_VENDOR_ID, &vendor);
}

static void ntb_cdev_work(struct work_struct *work)
{
	struct ntb_cdev *d = container_of(to_delayed_work(work), struct ntb_cdev, work);

	if (READ_ONCE(d->gone)) {
		ntb_cdev_end(d);
		return;
	}
	if (ntb_cdev_look(d))
		return;
	queue_delayed_work(system_long_wq, &d->work, d->pause);
	d->pause = min_t(unsigned long, 2 * d->pause, LAST_PAUSE);
}

/* Has the work look now. The caller holds the lock. */
static void ntb_cdev_look_now(struct ntb_cdev *d)
{
	lockdep_assert_held(&d->lock);
	if (!d->gone)
		mod_delayed_work(system_long_wq, &d->work, 0);
}

/* Ends stores for a holder before. The caller holds the lock for writing. */
static void ntb_cdev_begin_anew(struct ntb_cdev *d)
{
	lockdep_assert_held_write(&d->lock);
	d->ready = false;
	d->cleared = false;
	atomic_set(&d->anew, 1);
	ntb_cdev_look_now(d);
}

/* Files */

static int ntb_cdev_open(struct inode *inode, struct file *file)
{
	struct ntb_cdev *d = container_of(file->private_data, struct ntb_cdev, misc);
	struct page *page = alloc_pages(GFP_KERNEL_ACCOUNT | __GFP_ZERO, 1);

	if (!page)
		return -ENOMEM;
	down_write(&d->lock);
	if (d->mapping || d->gone) {
		up_write(&d->lock);
		__free_pages(page, 1);
		return d->gone ? -ENODEV : -EBUSY;
	}
	ntb_cdev_begin_anew(d);
	d->mapping = file->f_mapping;
	d->dummy = page;
	d->holder = get_pid(task_tgid(current));
	kref_get(&d->ref);
	if (d->bells) {
		ntb_db_clear(d->ntb, d->bells);
		ntb_db_clear_mask(d->ntb, d->bells);
	}
	up_write(&d->lock);
	file->private_data = d;
	return 0;
}

static int ntb_cdev_release(struct inode *inode, struct file *file)
{
	struct ntb_cdev *d = file->private_data;
	int i;

	down_write(&d->lock);
	if (!d->gone && d->bells)
		ntb_db_set_mask(d->ntb, d->bells & ~d->hello);
	for (i = 0; i < ARRAY_SIZE(d->events); i++)
		ntb_cdev_set_event(d, i, NULL);
	d->mapping = NULL; /* none is left: each held the file */
	__free_pages(d->dummy, 1);
	put_pid(d->holder);
	d->holder = NULL;
	ntb_cdev_begin_anew(d); /* and so the peer's process learns of it */
	up_write(&d->lock);
	kref_put(&d->ref, ntb_cdev_release_ref);
	return 0;
}

static vm_fault_t ntb_cdev_fault(struct vm_fault *vmf)
{
	struct vm_area_struct *vma = vmf->vma;
	struct ntb_cdev *d = vma->vm_file->private_data;
	bool peers = vmf->pgoff >= PHYS_PFN(PEER_OFFSET);
	pgprot_t prot = vma->vm_page_prot;
	unsigned long pfn;
	vm_fault_t ret;

	down_read(&d->lock);
	if (!peers && !d->gone) {
		pfn = d->memory.pfns[vmf->pgoff];
	} else if (peers && d->ready && d->generation == (unsigned long)vma->vm_private_data) {
		pfn = PHYS_PFN(d->peer_base) + vmf->pgoff - PHYS_PFN(PEER_OFFSET);
	} else {
		prot = vm_get_page_prot(vma->vm_flags);
		pfn = page_to_pfn(d->dummy) + peers;
	}
	ret = vmf_insert_pfn_prot(vma, vmf->address, pfn, prot);
	up_read(&d->lock);
	return ret;
}

static const struct vm_operations_struct ntb_cdev_vm_ops = {
	.fault = ntb_cdev_fault,
};

static int ntb_cdev_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct ntb_cdev *d = file->private_data;
	unsigned long first = vma->vm_pgoff, have;
	int ret = 0;

	if (!(vma->vm_flags & VM_SHARED) || vma->vm_flags & VM_EXEC)
		return -EINVAL;
	down_read(&d->lock);
	if (d->gone) {
		ret = -ENODEV;
		goto out;
	}
	if (!d->ready) {
		ret = -ENOTCONN;
		goto out;
	}
	if (first >= PHYS_PFN(PEER_OFFSET)) {
		first -= PHYS_PFN(PEER_OFFSET);
		have = d->peer_size / PAGE_SIZE;
		vma->vm_page_prot = pgprot_decrypted(d->peer_wc ?
						     pgprot_writecombine(vma->vm_page_prot) :
						     pgprot_device(vma->vm_page_prot));
	} else {
		have = d->memory.size / PAGE_SIZE;
		if (!d->memory_coherent)
			vma->vm_page_prot = pgprot_dmacoherent(vma->vm_page_prot);
	}
	if (first > have || vma_pages(vma) > have - first) {
		ret = -EINVAL;
		goto out;
	}
	vm_flags_set(vma, VM_IO | VM_PFNMAP | VM_DONTCOPY | VM_DONTEXPAND | VM_DONTDUMP);
	vm_flags_clear(vma, VM_MAYEXEC);
	vma->vm_private_data = (void *)(unsigned long)d->generation;
	vma->vm_ops = &ntb_cdev_vm_ops;
out:
	up_read(&d->lock);
	return ret;
}

static long ntb_cdev_get_info(struct ntb_cdev *d, void __user *arg)
{
	struct ntb_cdev_info info = {
		.argsz = sizeof(info),
		.own_offset = OWN_OFFSET,
		.peer_offset = PEER_OFFSET,
	};
	u32 argsz;

	if (get_user(argsz, (u32 __user *)arg))
		return -EFAULT;
	if (argsz < offsetofend(struct ntb_cdev_info, peer_size))
		return -EINVAL;
	down_read(&d->lock);
	ntb_cdev_look_now(d);
	up_read(&d->lock);
	flush_delayed_work(&d->work);

	down_read(&d->lock);
	if (d->gone) {
		info.flags = NTB_CDEV_INFO_GONE;
	} else if (d->ready) {
		info.flags = NTB_CDEV_INFO_LINK_UP | NTB_CDEV_INFO_READY;
		if (d->peer_wc)
			info.flags |= NTB_CDEV_INFO_WRITE_COMBINING;
		info.peer_size = d->peer_size;
	} else if (d->link_up) {
		info.flags = NTB_CDEV_INFO_LINK_UP;
	}
	info.flags |= d->lacks;
	info.generation = d->generation;
	info.peer_word = d->peer_word;
	info.node = d->node;
	info.doorbells = d->doorbells;
	info.own_size = d->memory.size;
	up_read(&d->lock);
	return copy_to_user(arg, &info, min_t(size_t, argsz, sizeof(info))) ? -EFAULT : 0;
}

static long ntb_cdev_set_events(struct ntb_cdev *d, struct ntb_cdev_events __user *arg)
{
	struct ntb_cdev_events set;
	struct eventfd_ctx *ctx;
	u32 i;
	s32 fd;

	if (copy_from_user(&set, arg, sizeof(set)))
		return -EFAULT;
	if (set.flags || set.count > 1 + d->doorbells || set.start > 1 + d->doorbells - set.count ||
	    set.argsz < struct_size(arg, fds, set.count))
		return -EINVAL;
	for (i = 0; i < set.count; i++) {
		if (get_user(fd, &arg->fds[i]))
			return -EFAULT;
		ctx = fd == -1 ? NULL : eventfd_ctx_fdget(fd);
		if (IS_ERR(ctx))
			return PTR_ERR(ctx);
		ntb_cdev_set_event(d, set.start + i, ctx);
	}
	return 0;
}

static long ntb_cdev_ring(struct ntb_cdev *d, unsigned long doorbell)
{
	long ret = -ENOTCONN;

	if (doorbell >= d->doorbells)
		return -EINVAL;
	down_read(&d->lock);
	if (d->gone) {
		ret = -ENODEV;
	} else if (d->ready) {
		wmb(); /* the process' stores, also write-combining ones, before the ring */
		ret = ntb_peer_db_set(d->ntb, BIT_ULL(doorbell));
	}
	up_read(&d->lock);
	return ret;
}

static long ntb_cdev_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	struct ntb_cdev *d = file->private_data;

	switch (cmd) {
	case NTB_CDEV_GET_INFO:
		return ntb_cdev_get_info(d, (void __user *)arg);
	case NTB_CDEV_SET_EVENTS:
		return ntb_cdev_set_events(d, (void __user *)arg);
	case NTB_CDEV_RING:
		return ntb_cdev_ring(d, arg);
	}
	return -ENOTTY;
}

static const struct file_operations ntb_cdev_fops = {
	.owner = THIS_MODULE,
	.open = ntb_cdev_open,
	.release = ntb_cdev_release,
	.mmap = ntb_cdev_mmap,
	.unlocked_ioctl = ntb_cdev_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
};

static ssize_t holder_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	struct ntb_cdev *d = container_of(dev_get_drvdata(dev), struct ntb_cdev, misc);
	int pid;

	down_read(&d->lock);
	pid = pid_vnr(d->holder); /* 0 if there is none, or it is of another namespace */
	up_read(&d->lock);
	return sysfs_emit(buf, "%d\n", pid);
}
static DEVICE_ATTR_RO(holder);

static ssize_t link_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	struct ntb_cdev *d = container_of(dev_get_drvdata(dev), struct ntb_cdev, misc);
	const char *state;

	down_read(&d->lock);
	if (d->lacks)
		state = d->lacks & NTB_CDEV_INFO_NO_WINDOW ? "no window" : "peer has no window";
	else
		state = d->ready ? "ready" : d->link_up ? "up" : "down";
	up_read(&d->lock);
	return sysfs_emit(buf, "%s\n", state);
}
static DEVICE_ATTR_RO(link);

static struct attribute *ntb_cdev_attrs[] = {
	&dev_attr_holder.attr,
	&dev_attr_link.attr,
	NULL
};
ATTRIBUTE_GROUPS(ntb_cdev);

/* Devices */

/* Allocates this side's memory, as much as the largest window shows and the system has. */
static int ntb_cdev_alloc(struct ntb_cdev *d)
{
	struct device *dev = &d->ntb->dev;
	resource_size_t bar, largest = 0;
	phys_addr_t base;
	size_t size;
	int i;

	/* Inbound windows have sizes while the link is up, mostly those of the outbound ones. */
	for (i = 0; i < ntb_peer_mw_count(d->ntb); i++)
		if (!ntb_peer_mw_get_addr(d->ntb, i, &base, &bar))
			largest = max(largest, bar);
	if (largest < MIN_SIZE || buffer_size < MIN_SIZE) {
		dev_err(dev, "windows of at most %pa bytes, buffer_size of %lu: want %d or more\n",
			&largest, buffer_size, MIN_SIZE);
		return -EINVAL;
	}
	/* Hardware wants memory that is aligned to its size, or to that of the window. */
	largest = min3((u64)largest, (u64)buffer_size, (u64)SZ_2G);
	size = rounddown_pow_of_two(largest);
	while (ntb_cdev_alloc_memory(d, &d->memory, size, size)) {
		size /= 2;
		if (size < MIN_SIZE) {
			dev_err(dev, "no memory of %d bytes or more in one piece\n", MIN_SIZE);
			return -ENOMEM;
		}
	}
	d->memory_coherent = dev_is_dma_coherent(ntb_get_dma_dev(d->ntb));
	for (i = 0; i < ntb_peer_mw_count(d->ntb); i++)
		if (!ntb_peer_mw_get_addr(d->ntb, i, &base, &bar))
			dev_info(dev, "window %d of %pa bytes: %llu are of no use, with %zu of memory\n",
				 i, &bar, bar > size ? (u64)bar - size : 0, size);
	return 0;
}

static void ntb_cdev_free(struct ntb_cdev *d)
{
	if (!d->leak)
		ntb_cdev_free_memory(d, &d->memory);
	else
		kvfree(d->memory.pfns);
	if (d->wc_size)
		arch_io_free_memtype_wc(d->wc_base, d->wc_size);
}

/* Finds out which doorbells are of use: those from bit 0 on, and one more for words. */
static void ntb_cdev_find_doorbells(struct ntb_cdev *d)
{
	u64 valid = ntb_db_valid_mask(d->ntb);
	int n = ~valid ? __ffs64(~valid) : 64;

	if (ntb_spad_is_unsafe(d->ntb))
		dev_warn(&d->ntb->dev, "scratchpads are not safe here while the link is busy\n");
	if (ntb_db_is_unsafe(d->ntb)) {
		dev_warn(&d->ntb->dev, "doorbells are not safe here, and are not used\n");
		return;
	}
	if (!n)
		return;
	d->doorbells = clamp(n - 1, 1, MAX_DOORBELLS);
	d->bells = BIT_ULL(d->doorbells) - 1;
	d->hello = BIT_ULL(min(d->doorbells, n - 1));
	ntb_db_set_mask(d->ntb, valid);
	ntb_db_clear(d->ntb, valid);
}

/*
 * Ends all use of the bridge. Nothing of the peer's reaches memory after it. Some drivers
 * give up closing a window when a signal is pending, so the work does it.
 */
static void ntb_cdev_quiesce(struct ntb_cdev *d)
{
	ntb_clear_ctx(d->ntb);
	down_write(&d->lock);
	WRITE_ONCE(d->gone, true);
	up_write(&d->lock);
	mod_delayed_work(system_long_wq, &d->work, 0);
	flush_delayed_work(&d->work);

	down_write(&d->lock);
	ntb_cdev_zap(d, OWN_OFFSET);
	up_write(&d->lock);
	ntb_cdev_signal(d, 0);
}

/* Before a reboot or another kernel, which must not find the peer's stores in its memory. */
static int ntb_cdev_reboot(struct notifier_block *nb, unsigned long action, void *data)
{
	struct ntb_cdev *d = container_of(nb, struct ntb_cdev, reboot);

	if (!d->gone)
		ntb_cdev_quiesce(d);
	return NOTIFY_DONE;
}

/* The peer stores at any time, and drivers do not set up a bridge again that lost its power. */
static int ntb_cdev_sleep(struct notifier_block *nb, unsigned long action, void *data)
{
	struct ntb_cdev *d = container_of(nb, struct ntb_cdev, sleep);

	if (action != PM_SUSPEND_PREPARE && action != PM_HIBERNATION_PREPARE)
		return NOTIFY_DONE;
	dev_err(&d->ntb->dev, "the peer's stores cannot wait: unload ntb_cdev before this machine sleeps\n");
	return notifier_from_errno(-EBUSY);
}

static int ntb_cdev_probe(struct ntb_client *client, struct ntb_dev *ntb)
{
	struct device *dev = &ntb->dev;
	struct ntb_cdev *d;
	int ret;

	if (ntb_peer_port_count(ntb) != 1) {
		dev_err(dev, "%d peers, want 1\n", ntb_peer_port_count(ntb));
		return -EOPNOTSUPP;
	}
	if (!ntb->ops->mw_set_trans) { /* and ntb_mw_set_trans() does nothing */
		dev_err(dev, "the peer says where its stores go here, and this side could not end them\n");
		return -EOPNOTSUPP;
	}
	if (ntb_spad_count(ntb) < WORDS) {
		dev_err(dev, "%d scratchpads, want %d\n", ntb_spad_count(ntb), WORDS);
		return -EOPNOTSUPP;
	}
	d = kzalloc(sizeof(*d), GFP_KERNEL);
	if (!d)
		return -ENOMEM;
	kref_init(&d->ref);
	init_rwsem(&d->lock);
	spin_lock_init(&d->event_lock);
	INIT_DELAYED_WORK(&d->work, ntb_cdev_work);
	d->ntb = ntb;
	d->window = -1;
	d->pause = FIRST_PAUSE;
	d->misc.minor = MISC_DYNAMIC_MINOR;
	snprintf(d->name, sizeof(d->name), "ntb/%s", dev_name(dev));
	d->misc.name = d->name;
	d->misc.mode = 0600;
	d->misc.fops = &ntb_cdev_fops;
	d->misc.groups = ntb_cdev_groups;
	d->misc.parent = dev;
	ret = ntb_cdev_alloc(d);
	if (ret)
		goto put;
	ntb_cdev_find_doorbells(d);
	if (ntb_port_number(ntb) != ntb_peer_port_number(ntb, PEER))
		d->node = ntb_port_number(ntb) < ntb_peer_port_number(ntb, PEER) ? 1 : 2;
	ret = ntb_set_ctx(ntb, d, &ntb_cdev_ctx_ops);
	if (ret)
		goto free;
	ret = misc_register(&d->misc);
	if (ret)
		goto clear;
	dev_set_drvdata(dev, d);
	d->reboot.notifier_call = ntb_cdev_reboot;
	d->sleep.notifier_call = ntb_cdev_sleep;
	register_reboot_notifier(&d->reboot);
	register_pm_notifier(&d->sleep);
	if (d->hello)
		ntb_db_clear_mask(ntb, d->hello);
	ret = ntb_link_enable(ntb, NTB_SPEED_AUTO, NTB_WIDTH_AUTO);
	if (ret) /* on some hardware only the other side can */
		dev_dbg(dev, "the link was not enabled: %d\n", ret);
	mod_delayed_work(system_long_wq, &d->work, 0);
	return 0;

clear:
	ntb_cdev_quiesce(d);
free:
	ntb_cdev_free(d);
put:
	kref_put(&d->ref, ntb_cdev_release_ref);
	return ret;
}

static void ntb_cdev_remove(struct ntb_client *client, struct ntb_dev *ntb)
{
	struct ntb_cdev *d = dev_get_drvdata(&ntb->dev);

	unregister_pm_notifier(&d->sleep);
	unregister_reboot_notifier(&d->reboot);
	misc_deregister(&d->misc);
	if (!d->gone)
		ntb_cdev_quiesce(d);
	ntb_cdev_free(d);
	kref_put(&d->ref, ntb_cdev_release_ref);
}

static struct ntb_client ntb_cdev_client = {
	.ops = {
		.probe = ntb_cdev_probe,
		.remove = ntb_cdev_remove,
	},
};

module_ntb_client(ntb_cdev_client);
