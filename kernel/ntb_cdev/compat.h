/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* What differs between kernels from 6.1 on. */
#ifndef NTB_CDEV_COMPAT_H
#define NTB_CDEV_COMPAT_H

#include <linux/eventfd.h>
#include <linux/mm.h>
#include <linux/ntb.h>
#include <linux/pci.h>
#include <linux/version.h>

static inline void signal_eventfd(struct eventfd_ctx *ctx)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 8, 0)
	eventfd_signal(ctx);
#else
	eventfd_signal(ctx, 1);
#endif
}

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 3, 0)
static inline void vm_flags_set(struct vm_area_struct *vma, vm_flags_t flags)
{
	vma->vm_flags |= flags;
}

static inline void vm_flags_clear(struct vm_area_struct *vma, vm_flags_t flags)
{
	vma->vm_flags &= ~flags;
}
#endif

#ifndef HAVE_NTB_GET_DMA_DEV /* see Kbuild */
static inline struct device *ntb_get_dma_dev(struct ntb_dev *ntb)
{
	return &ntb->pdev->dev;
}
#endif

#endif /* NTB_CDEV_COMPAT_H */
