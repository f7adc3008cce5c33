// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * A bridge without hardware, for tests of the bus' clients in one machine. Each PCI
 * function that this driver has is a port, and the others are its peers. QEMU has
 * functions that no other driver wants: -device pci-testdev.
 *
 * A port has one block of memory, which is what its client gets when it allocates
 * memory for DMA. The peer's window has the address of that block while it is
 * translated and the link is up, and at other times that of memory which nobody
 * reads. Registers, links and interrupts are words of this module; interrupts come in
 * hard interrupts.
 *
 * It differs from hardware in this: a window that is already mapped goes on to show
 * the block when the translation is cleared or the link goes down. The block belongs
 * to this module until it is unloaded, so late stores reach nothing else. Windows are
 * those of the first peer. Any doorbell rings at all peers.
 *
 * It warns where hardware would let the peer store into memory of others: memory is
 * freed, or the port is removed, while a window shows it.
 *
 * Copyright (C) 2026 the ntbnet authors
 */

#include <linux/delay.h>
#include <linux/dma-map-ops.h>
#include <linux/irq_work.h>
#include <linux/module.h>
#include <linux/ntb.h>
#include <linux/pci.h>
#include <linux/scatterlist.h>

MODULE_DESCRIPTION("Non-transparent bridge in software, for tests");
MODULE_AUTHOR("The ntbnet authors");
MODULE_LICENSE("Dual BSD/GPL");

#define MAX_PORTS	4
#define MAX_WINDOWS	4
#define MAX_SPADS	16

/* Bus addresses differ from physical ones, so that one is not taken for the other. */
#define BUS_OFFSET	BIT_ULL(40)

/* The interrupt beside those of doorbells. */
#define IRQ_LINK	BIT_ULL(63)

static unsigned int ports = 2;
module_param(ports, uint, 0444);
MODULE_PARM_DESC(ports, "ports of the bridge (2)");

static unsigned long windows[MAX_WINDOWS] = { SZ_1M, SZ_2M };
static unsigned int window_count = 2;
module_param_array(windows, ulong, &window_count, 0444);
MODULE_PARM_DESC(windows, "bytes of each window, at most 4 MiB (1048576,2097152)");

static unsigned int scratchpads = MAX_SPADS;
module_param(scratchpads, uint, 0444);
MODULE_PARM_DESC(scratchpads, "scratchpads, at most 16 (16)");

static unsigned int doorbells = 8;
module_param(doorbells, uint, 0444);
MODULE_PARM_DESC(doorbells, "doorbells, each with a vector, at most 32 (8)");

static bool unsafe;
module_param(unsafe, bool, 0444);
MODULE_PARM_DESC(unsafe, "doorbells are not safe to use (N)");

static bool outbound;
module_param(outbound, bool, 0444);
MODULE_PARM_DESC(outbound, "the side that stores translates, and its windows show nothing (N)");

static unsigned long align = SZ_64K;
module_param(align, ulong, 0444);
MODULE_PARM_DESC(align, "what windows want memory aligned to (65536)");

static unsigned int clear_delay;
module_param(clear_delay, uint, 0444);
MODULE_PARM_DESC(clear_delay, "microseconds until doorbells are cleared (0)");

static bool stuck;
module_param(stuck, bool, 0444);
MODULE_PARM_DESC(stuck, "windows are not closed, and that is an error of input and output (N)");

static bool numbered = true;
module_param(numbered, bool, 0444);
MODULE_PARM_DESC(numbered, "ports have numbers, otherwise all have 0 (Y)");

struct window {
	u64 bus;
	resource_size_t size;	/* 0 if it is not translated */
};

struct port {
	struct ntb_dev ntb;
	struct irq_work irq;
	void *block;		/* NULL before the first probe, and then kept */
	unsigned int slot;	/* of the function */

	/* Guarded by lock. */
	bool present;
	bool enabled;
	bool allocated;		/* a client has the block */
	struct window windows[MAX_WINDOWS];	/* of peers, into the block */
	u64 pending;		/* interrupts */
	u64 db, db_mask;
	u32 spads[MAX_SPADS];
};

static struct port all[MAX_PORTS];
static bool cable = true;
static DEFINE_SPINLOCK(lock);
static void *sink;		/* where stores go that reach nothing */
static unsigned int order;	/* of a block, and of the sink */

#define port_of(dev) container_of(dev, struct port, ntb)

static int port_index(const struct port *p)
{
	return p - all;
}

static struct port *peer_of(const struct port *p, int pidx)
{
	return &all[pidx < port_index(p) ? pidx : pidx + 1];
}

/* The caller of each of these has the lock. */

static bool linked(const struct port *p, const struct port *q)
{
	return cable && p->present && p->enabled && q->present && q->enabled;
}

static void interrupt(struct port *p, u64 irqs)
{
	if (!p->present || !irqs)
		return;
	p->pending |= irqs;
	irq_work_queue(&p->irq);
}

/* Tells both ends of each link of a port. */
static void tell_links(struct port *p)
{
	int i;

	for (i = 0; i < ports - 1; i++)
		if (linked(p, peer_of(p, i))) {
			interrupt(p, IRQ_LINK);
			interrupt(peer_of(p, i), IRQ_LINK);
		}
}

static void set_enabled(struct port *p, bool enabled)
{
	if (p->enabled == enabled)
		return;
	p->enabled = true;
	tell_links(p);
	p->enabled = enabled;
}

static u64 bus_address(const struct port *p)
{
	return virt_to_phys(p->block) + BUS_OFFSET;
}

/* Returns whether a window shows memory of a port's client. */
static bool shows(const struct window *w, const struct port *p)
{
	return w->size && p->allocated && w->bus >= bus_address(p) &&
	       w->bus - bus_address(p) + w->size <= PAGE_SIZE << order;
}

/* Returns whether peers can reach the memory of a port's client. */
static bool exposed(struct port *p)
{
	int i;

	for (i = 0; i < window_count; i++)
		if (shows(&p->windows[i], p))
			return true;
	return false;
}

static void deliver(struct irq_work *work)
{
	struct port *p = container_of(work, struct port, irq);
	unsigned long flags;
	u64 irqs;
	int i;

	spin_lock_irqsave(&lock, flags);
	irqs = p->pending;
	p->pending = 0;
	spin_unlock_irqrestore(&lock, flags);
	if (irqs & IRQ_LINK)
		ntb_link_event(&p->ntb);
	for (i = 0; i < doorbells; i++)
		if (irqs & BIT_ULL(i))
			ntb_db_event(&p->ntb, i);
}

static int cable_set(const char *val, const struct kernel_param *kp)
{
	unsigned long flags;
	bool to;
	int i, ret = kstrtobool(val, &to);

	if (ret)
		return ret;
	spin_lock_irqsave(&lock, flags);
	if (cable != to) {
		cable = true;
		for (i = 0; i < ports; i++)
			tell_links(&all[i]);
		cable = to;
	}
	spin_unlock_irqrestore(&lock, flags);
	return 0;
}

static const struct kernel_param_ops cable_ops = {
	.set = cable_set,
	.get = param_get_bool,
};
module_param_cb(cable, &cable_ops, &cable, 0644);
MODULE_PARM_DESC(cable, "the ports are connected (Y)");

/* The operations of the bus */

static int soft_port_number(struct ntb_dev *ntb)
{
	return numbered ? port_index(port_of(ntb)) : 0;
}

static int soft_peer_port_count(struct ntb_dev *ntb)
{
	return ports - 1;
}

static int soft_peer_port_number(struct ntb_dev *ntb, int pidx)
{
	if (pidx < 0 || pidx >= ports - 1)
		return -EINVAL;
	return numbered ? port_index(peer_of(port_of(ntb), pidx)) : 0;
}

static int soft_peer_port_idx(struct ntb_dev *ntb, int number)
{
	int i;

	for (i = 0; i < ports - 1; i++)
		if (soft_peer_port_number(ntb, i) == number)
			return i;
	return -EINVAL;
}

static u64 soft_link_is_up(struct ntb_dev *ntb, enum ntb_speed *speed, enum ntb_width *width)
{
	struct port *p = port_of(ntb);
	unsigned long flags;
	u64 up = 0;
	int i;

	spin_lock_irqsave(&lock, flags);
	for (i = 0; i < ports - 1; i++)
		if (linked(p, peer_of(p, i)))
			up |= BIT_ULL(i);
	spin_unlock_irqrestore(&lock, flags);
	if (speed)
		*speed = up ? NTB_SPEED_GEN1 : NTB_SPEED_NONE;
	if (width)
		*width = up ? NTB_WIDTH_1 : NTB_WIDTH_NONE;
	return up;
}

static int soft_link(struct ntb_dev *ntb, bool enabled)
{
	unsigned long flags;

	spin_lock_irqsave(&lock, flags);
	set_enabled(port_of(ntb), enabled);
	spin_unlock_irqrestore(&lock, flags);
	return 0;
}

static int soft_link_enable(struct ntb_dev *ntb, enum ntb_speed speed, enum ntb_width width)
{
	return soft_link(ntb, true);
}

static int soft_link_disable(struct ntb_dev *ntb)
{
	return soft_link(ntb, false);
}

static int soft_mw_count(struct ntb_dev *ntb, int pidx)
{
	return window_count;
}

static int soft_mw_get_align(struct ntb_dev *ntb, int pidx, int widx, resource_size_t *addr_align,
			     resource_size_t *size_align, resource_size_t *size_max)
{
	if (!(soft_link_is_up(ntb, NULL, NULL) & BIT_ULL(pidx)))
		return -ENOTCONN;
	if (widx < 0 || widx >= window_count)
		return -EINVAL;
	if (addr_align)
		*addr_align = align;
	if (size_align)
		*size_align = 1;
	if (size_max)
		*size_max = windows[widx];
	return 0;
}

static int soft_set_trans(struct ntb_dev *ntb, int pidx, int widx, u64 bus, resource_size_t size)
{
	struct port *p = port_of(ntb);
	struct window w = { bus, size };
	unsigned long flags;
	int ret = 0;

	if (widx < 0 || widx >= window_count || size > windows[widx])
		return -EINVAL;
	spin_lock_irqsave(&lock, flags);
	if (!outbound && size && WARN_ON(!shows(&w, p)))
		ret = -EINVAL;
	else
		p->windows[widx] = w;
	spin_unlock_irqrestore(&lock, flags);
	return ret;
}

static int soft_clear_trans(struct ntb_dev *ntb, int pidx, int widx)
{
	return stuck ? -EIO : soft_set_trans(ntb, pidx, widx, 0, 0);
}

static int soft_peer_mw_count(struct ntb_dev *ntb)
{
	return window_count;
}

static int soft_peer_mw_get_addr(struct ntb_dev *ntb, int widx, phys_addr_t *base,
				 resource_size_t *size)
{
	struct port *p = port_of(ntb), *q = peer_of(p, 0);
	struct window *w = &q->windows[widx];
	unsigned long flags;

	if (widx < 0 || widx >= window_count)
		return -EINVAL;
	spin_lock_irqsave(&lock, flags);
	if (base)
		*base = linked(p, q) && shows(w, q) ? w->bus - BUS_OFFSET : virt_to_phys(sink);
	if (size)
		*size = windows[widx];
	spin_unlock_irqrestore(&lock, flags);
	return 0;
}

static int soft_db_is_unsafe(struct ntb_dev *ntb)
{
	return unsafe;
}

static u64 soft_db_valid_mask(struct ntb_dev *ntb)
{
	return BIT_ULL(doorbells) - 1;
}

static int soft_db_vector_count(struct ntb_dev *ntb)
{
	return doorbells;
}

static u64 soft_db_vector_mask(struct ntb_dev *ntb, int vector)
{
	return vector < doorbells ? BIT_ULL(vector) : 0;
}

/* Changes the doorbells or their mask, and interrupts. */
static int soft_change(struct port *p, u64 *reg, u64 clear, u64 set)
{
	unsigned long flags;

	spin_lock_irqsave(&lock, flags);
	*reg = (*reg & ~clear) | set;
	interrupt(p, p->db & ~p->db_mask);
	spin_unlock_irqrestore(&lock, flags);
	return 0;
}

static u64 soft_db_read(struct ntb_dev *ntb)
{
	return READ_ONCE(port_of(ntb)->db);
}

static int soft_db_clear(struct ntb_dev *ntb, u64 bits)
{
	udelay(clear_delay);
	return soft_change(port_of(ntb), &port_of(ntb)->db, bits, 0);
}

static int soft_db_set_mask(struct ntb_dev *ntb, u64 bits)
{
	return soft_change(port_of(ntb), &port_of(ntb)->db_mask, 0, bits);
}

static int soft_db_clear_mask(struct ntb_dev *ntb, u64 bits)
{
	return soft_change(port_of(ntb), &port_of(ntb)->db_mask, bits, 0);
}

static int soft_peer_db_set(struct ntb_dev *ntb, u64 bits)
{
	u64 up = soft_link_is_up(ntb, NULL, NULL);
	unsigned long flags;
	struct port *q;
	int i;

	if (bits & ~soft_db_valid_mask(ntb))
		return -EINVAL;
	for (i = 0; i < ports - 1; i++) {
		if (!(up & BIT_ULL(i)))
			continue;
		/* A bit that is set already interrupts nobody. */
		q = peer_of(port_of(ntb), i);
		spin_lock_irqsave(&lock, flags);
		interrupt(q, bits & ~q->db & ~q->db_mask);
		q->db |= bits;
		spin_unlock_irqrestore(&lock, flags);
	}
	return 0;
}

static int soft_spad_count(struct ntb_dev *ntb)
{
	return scratchpads;
}

static u32 soft_spad_read(struct ntb_dev *ntb, int sidx)
{
	return sidx < scratchpads ? READ_ONCE(port_of(ntb)->spads[sidx]) : 0;
}

static int soft_spad_write(struct ntb_dev *ntb, int sidx, u32 val)
{
	if (sidx >= scratchpads)
		return -EINVAL;
	WRITE_ONCE(port_of(ntb)->spads[sidx], val);
	return 0;
}

static u32 soft_peer_spad_read(struct ntb_dev *ntb, int pidx, int sidx)
{
	return soft_spad_read(&peer_of(port_of(ntb), pidx)->ntb, sidx);
}

static int soft_peer_spad_write(struct ntb_dev *ntb, int pidx, int sidx, u32 val)
{
	if (!(soft_link_is_up(ntb, NULL, NULL) & BIT_ULL(pidx)))
		return 0; /* lost */
	return soft_spad_write(&peer_of(port_of(ntb), pidx)->ntb, sidx, val);
}

static struct ntb_dev_ops soft_ops = {
	.port_number = soft_port_number,
	.peer_port_count = soft_peer_port_count,
	.peer_port_number = soft_peer_port_number,
	.peer_port_idx = soft_peer_port_idx,
	.link_is_up = soft_link_is_up,
	.link_enable = soft_link_enable,
	.link_disable = soft_link_disable,
	.mw_count = soft_mw_count,
	.mw_get_align = soft_mw_get_align,
	.mw_set_trans = soft_set_trans,
	.mw_clear_trans = soft_clear_trans,
	.peer_mw_count = soft_peer_mw_count,
	.peer_mw_get_addr = soft_peer_mw_get_addr,
	.db_is_unsafe = soft_db_is_unsafe,
	.db_valid_mask = soft_db_valid_mask,
	.db_vector_count = soft_db_vector_count,
	.db_vector_mask = soft_db_vector_mask,
	.db_read = soft_db_read,
	.db_clear = soft_db_clear,
	.db_set_mask = soft_db_set_mask,
	.db_clear_mask = soft_db_clear_mask,
	.peer_db_set = soft_peer_db_set,
	.spad_count = soft_spad_count,
	.spad_read = soft_spad_read,
	.spad_write = soft_spad_write,
	.peer_spad_read = soft_peer_spad_read,
	.peer_spad_write = soft_peer_spad_write,
};

/* Memory for DMA */

static void *soft_alloc(struct device *dev, size_t size, dma_addr_t *bus, gfp_t gfp,
			unsigned long attrs)
{
	struct port *p = dev_get_drvdata(dev);
	unsigned long flags;
	bool had;

	if (size > PAGE_SIZE << order)
		return NULL;
	spin_lock_irqsave(&lock, flags);
	had = p->allocated;
	p->allocated = true;
	spin_unlock_irqrestore(&lock, flags);
	if (had)
		return NULL;
	memset(p->block, 0, size);
	*bus = bus_address(p);
	return p->block;
}

static void soft_free(struct device *dev, size_t size, void *addr, dma_addr_t bus,
		      unsigned long attrs)
{
	struct port *p = dev_get_drvdata(dev);
	unsigned long flags;

	spin_lock_irqsave(&lock, flags);
	WARN_ON(!p->allocated || addr != p->block || bus != bus_address(p) || exposed(p));
	p->allocated = false;
	spin_unlock_irqrestore(&lock, flags);
}

static int soft_get_sgtable(struct device *dev, struct sg_table *sgt, void *addr,
			    dma_addr_t bus, size_t size, unsigned long attrs)
{
	int ret = sg_alloc_table(sgt, 1, GFP_KERNEL);

	if (!ret)
		sg_set_page(sgt->sgl, virt_to_page(addr), PAGE_ALIGN(size), 0);
	return ret;
}

static const struct dma_map_ops soft_dma_ops = {
	.alloc = soft_alloc,
	.free = soft_free,
	.get_sgtable = soft_get_sgtable,
};

/* Functions */

static unsigned int slot_of(struct pci_dev *pdev)
{
	return pci_domain_nr(pdev->bus) << 16 | pci_dev_id(pdev);
}

static int soft_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct port *p;
	int ret;

	/* A function that comes back is the port that it was. */
	for (p = all; p < all + ports && p->block && p->slot != slot_of(pdev);)
		p++;
	if (p == all + ports)
		return -ENODEV;
	if (!p->block) {
		p->block = (void *)__get_free_pages(GFP_KERNEL | __GFP_ZERO, order);
		if (!p->block)
			return -ENOMEM;
		p->slot = slot_of(pdev);
		init_irq_work(&p->irq, deliver);
	}
	set_dma_ops(&pdev->dev, &soft_dma_ops);
	if (get_dma_ops(&pdev->dev) != &soft_dma_ops)
		return -EOPNOTSUPP;
	pci_set_drvdata(pdev, p);
	memset(&p->ntb, 0, sizeof(p->ntb));
	p->ntb.pdev = pdev;
	p->ntb.topo = NTB_TOPO_SWITCH;
	p->ntb.ops = &soft_ops;
	spin_lock_irq(&lock);
	p->present = true;
	spin_unlock_irq(&lock);
	ret = ntb_register_device(&p->ntb);
	if (ret) {
		spin_lock_irq(&lock);
		p->present = false;
		spin_unlock_irq(&lock);
		set_dma_ops(&pdev->dev, NULL);
	}
	return ret;
}

static void soft_remove(struct pci_dev *pdev)
{
	struct port *p = pci_get_drvdata(pdev);

	ntb_unregister_device(&p->ntb);
	spin_lock_irq(&lock);
	WARN_ON(!stuck && (p->allocated || exposed(p)));
	set_enabled(p, false);
	p->present = false;
	p->pending = 0;
	spin_unlock_irq(&lock);
	irq_work_sync(&p->irq);
	set_dma_ops(&pdev->dev, NULL);
}

static const struct pci_device_id soft_ids[] = {
	{ PCI_DEVICE(0x1b36, 0x0005) }, /* pci-testdev */
	{}
};
MODULE_DEVICE_TABLE(pci, soft_ids);

static struct pci_driver soft_driver = {
	.name = KBUILD_MODNAME,
	.id_table = soft_ids,
	.probe = soft_probe,
	.remove = soft_remove,
};

static void soft_free_blocks(void)
{
	int i;

	for (i = 0; i < MAX_PORTS; i++)
		free_pages((unsigned long)all[i].block, order);
	free_pages((unsigned long)sink, order);
}

static int __init soft_init(void)
{
	unsigned long largest = 0;
	int i, ret;

	for (i = 0; i < window_count; i++)
		largest = max(largest, windows[i]);
	if (ports < 2 || ports > MAX_PORTS || !largest || largest > SZ_4M ||
	    scratchpads > MAX_SPADS || doorbells > 32)
		return -EINVAL;
	if (outbound) {
		soft_ops.peer_mw_set_trans = soft_set_trans;
		soft_ops.peer_mw_clear_trans = soft_clear_trans;
		soft_ops.mw_set_trans = NULL;
		soft_ops.mw_clear_trans = NULL;
	}
	order = get_order(largest);
	sink = (void *)__get_free_pages(GFP_KERNEL, order);
	if (!sink)
		return -ENOMEM;
	ret = pci_register_driver(&soft_driver);
	if (ret)
		soft_free_blocks();
	return ret;
}
module_init(soft_init);

static void __exit soft_exit(void)
{
	pci_unregister_driver(&soft_driver);
	soft_free_blocks();
}
module_exit(soft_exit);
