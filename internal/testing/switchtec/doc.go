// Package switchtec is a model of a Microchip Switchtec PFX Gen4, for tests: one switch of two partitions, with an
// NTB function in each. Its facts are what Linux's drivers reveal, drivers/pci/switch/switchtec.c and
// drivers/ntb/hw/mscc/ntb_hw_switchtec.c, with their header include/linux/switchtec.h. A name in parentheses
// beside a constant is of that header, unless another file is named.
//
// BAR 0 has the switch's registers, the same in both functions but for who asks. BAR 2 has windows into the
// memory of the other machine: 64 of 64 KiB, each of which has an entry in a table, and behind them a direct
// one.
//
//	BAR 2 of partition 0   control block 0, written by machine 1    memory of machine 1
//	0      64 KiB windows  table entry: valid, partition, address   shared page of the driver
//	4 MiB  direct window   size, partition, address                 buffer of a client
//
// So the side that owns a buffer writes its address into the peer's control block. It locks the block,
// writes, and has the switch take that over. The two sides use one word of state for that, which knows no
// owner. Where both lock a block at once, the drivers fail with EIO, or print "Error setting up the requester
// ID table: 00000000" and go on.
//
// What the drivers do not reveal, and the model decides:
//
//   - An operation on a control block is done at once. One that does not fit the block's state is ignored, and so is
//     what is written to a block that is not locked.
//   - A message for a register whose message was not cleared is lost.
//   - An interrupt is sent when a doorbell or a message becomes pending and enabled, whichever comes last. One that
//     is rung again before it was cleared sends none.
//   - All loads and stores of a machine have the requester ID 00:00.0.
//   - A machine's reset takes down the link of its partition's upstream port, which is an event for both.
//   - Cut stops what goes from one partition to the other. The ports' links go down with it, though registers
//     still answer.
//
// MRPC, the way to the switch's firmware, answers nothing, and of the events only the ports' link states occur.
package switchtec
