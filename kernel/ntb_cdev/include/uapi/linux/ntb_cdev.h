/* SPDX-License-Identifier: ((GPL-2.0 WITH Linux-syscall-note) OR BSD-3-Clause) */
/*
 * A character device for each port of a non-transparent bridge: a process
 * maps the memory that the peer stores into, and the peer's as a window to
 * store into.
 *
 * The node is /dev/ntb/ADDRESS, ADDRESS being that of the PCI function.
 * One process may have it open at a time; a second open() fails with EBUSY.
 * The link begins anew when it is opened or closed, and is ready a moment later.
 *
 * Copyright (C) 2026 the ntbnet authors
 */
#ifndef _UAPI_LINUX_NTB_CDEV_H
#define _UAPI_LINUX_NTB_CDEV_H

#include <linux/ioctl.h>
#include <linux/types.h>

/*
 * Both sides' modules must have the same number here: it is what they
 * exchange before either lets a process store.
 */
#define NTB_CDEV_ABI		1

#define NTB_CDEV_TYPE		0xBE

/* Memory on either side is in whole pages of this many bytes. */
#define NTB_CDEV_PAGE		4096

/**
 * struct ntb_cdev_info - what there is to map, and the state of the link
 * @argsz:	 bytes of this struct that the caller knows; the kernel writes no
 *		 more than that, and returns how many it knows
 * @flags:	 NTB_CDEV_INFO_*
 * @generation:	 counts how often the link became ready; 0 before the first
 *		 time. A mapping of the peer's memory belongs to the generation
 *		 that it was made in: what is stored later reaches nobody. One of
 *		 this side's memory stays as it is until the bridge is removed,
 *		 and reads as zeros then.
 * @peer_word:	 the first word that the other side has written, which is
 *		 "NTC" and its ABI if it has this module, or 0 if there is none
 * @node:	 1 or 2, the other number being the peer's, or 0 while that is
 *		 not settled: the side with the lower port number has 1; if the
 *		 hardware has no port numbers, a side that has had a number
 *		 since its module was loaded keeps it, and of two new sides that
 *		 has 1 whose first generation word is the lower
 * @doorbells:	 doorbells that can be rung and that events come for, from 0 on;
 *		 0 if the hardware's are not safe to use. Then the words in
 *		 memory must be looked at from time to time.
 * @own_offset:	 where mmap() has this side's memory, which the peer stores into
 * @own_size:	 its size in bytes
 * @peer_offset: where mmap() has the peer's memory. It is for stores only.
 * @peer_size:	 its size in bytes, 0 unless ready
 *
 * Sizes are multiples of NTB_CDEV_PAGE.
 */
struct ntb_cdev_info {
	__u32 argsz;
	__u32 flags;
#define NTB_CDEV_INFO_LINK_UP		0x1	/* the hardware's link is up */
#define NTB_CDEV_INFO_READY		0x2	/* and the peer's module agrees */
#define NTB_CDEV_INFO_WRITE_COMBINING	0x4	/* asked for the peer's memory */
#define NTB_CDEV_INFO_GONE		0x8	/* the bridge was removed: close */
#define NTB_CDEV_INFO_NO_WINDOW		0x10	/* none takes this side's memory */
#define NTB_CDEV_INFO_PEER_NO_WINDOW	0x20	/* nor, there, the peer's */
	__u32 generation;
	__u32 peer_word;
	__u32 node;
	__u32 doorbells;
	__aligned_u64 own_offset;
	__aligned_u64 own_size;
	__aligned_u64 peer_offset;
	__aligned_u64 peer_size;
};

/*
 * NTB_CDEV_GET_INFO - _IO(NTB_CDEV_TYPE, 0), struct ntb_cdev_info
 *
 * The words of the peer are looked at before the answer, so a caller that has
 * heard nothing for long learns of a peer that began anew without an event.
 * It works also after the bridge was removed.
 *
 * Errors: EINVAL if @argsz is too small.
 */
#define NTB_CDEV_GET_INFO	_IO(NTB_CDEV_TYPE, 0)

/**
 * struct ntb_cdev_events - eventfds that are signalled
 * @argsz:	bytes of this struct with its descriptors
 * @flags:	0
 * @start:	the first event: 0 for changes of the link's state, 1 + K for
 *		doorbell K of this side
 * @count:	how many events, each with its descriptor
 * @fds:	descriptors of eventfds, or -1 for none
 *
 * Doorbells are hints. Some hardware reports another bit than was rung, and
 * rings may be lost as one: after any event all words in memory are looked at.
 */
struct ntb_cdev_events {
	__u32 argsz;
	__u32 flags;
	__u32 start;
	__u32 count;
	__s32 fds[];
};

/*
 * NTB_CDEV_SET_EVENTS - _IO(NTB_CDEV_TYPE, 1), struct ntb_cdev_events
 *
 * All events are without eventfds when the node is opened.
 *
 * Changes before are not signalled, so NTB_CDEV_GET_INFO comes after this.
 *
 * Errors: EINVAL if @argsz, @flags or the events are out of range, EBADF and
 * those of eventfds, after which the events before the bad one are set.
 */
#define NTB_CDEV_SET_EVENTS	_IO(NTB_CDEV_TYPE, 1)

/*
 * NTB_CDEV_RING - _IO(NTB_CDEV_TYPE, 2), the number of a doorbell, by value
 *
 * The peer's doorbell is rung after what this process stored before.
 *
 * Errors: EINVAL if there is no such doorbell, ENOTCONN unless ready, ENODEV
 * after the bridge was removed.
 */
#define NTB_CDEV_RING		_IO(NTB_CDEV_TYPE, 2)

/*
 * mmap() with MAP_SHARED from one of the two offsets, or behind it, maps memory
 * of the present generation. Errors: ENOTCONN unless ready, ENODEV after the
 * bridge was removed, EINVAL if the range is not within one memory, or for
 * MAP_PRIVATE or PROT_EXEC.
 */

#endif /* _UAPI_LINUX_NTB_CDEV_H */
